"""Loads of wire_bench on servers in turn, with the medians of their rounds."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import wire_bench
from bench_servers import Server

__all__ = ["WARM_UP_ROUNDS", "load"]

#: Rounds that do not count: Java compiles what it runs.
WARM_UP_ROUNDS = 3


def load(
    servers: Sequence[Server], row: str, what: str, seconds: float, rounds: int, **options: object
) -> None:
    """One kind of load on each server in turn; medians go to its values."""
    given = {"connections": 4, "window": 64, "size": 128, "encoding": "rocketmq",
             "topic": "WireBench", "queues": 4, "batch": 32, "tls": None, **options}
    arguments = argparse.Namespace(**given)
    endpoints = [wire_bench.Endpoint(server.endpoint) for server in servers]
    for endpoint in endpoints:
        endpoint.tls = arguments.tls
    drive = wire_bench.send_round if what == "send" else wire_bench.pull_round
    turns = list(zip(servers, endpoints, strict=True))
    for number in range(rounds):
        # The order matters: one's dirty pages are written while the next is measured.
        first = number % len(turns)
        for server, endpoint in turns[first:] + turns[:first]:
            rate, cost, bad, first_bad = drive(endpoint, arguments, seconds)
            endpoint.rates.append(rate)
            endpoint.cpu.append(cost)
            server.bad += bad
            print(f"{row:<22} {server.name:<14} {rate:>10,.0f} msg/s {cost:8.2f} us CPU a message"
                  + (f"  bad={bad} {first_bad}" if bad else ""), flush=True)
    for server, endpoint in zip(servers, endpoints, strict=True):
        server.values[f"{row} rate"] = statistics.median(endpoint.rates)
        server.values[f"{row} cpu"] = statistics.median(endpoint.cpu)
