"""Loads of wire_bench on servers in turn, with the medians of their rounds."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from functools import partial

import wire_bench
from bench_servers import Server
from warm_up import ROUND_SECONDS, warm_up

__all__ = ["load"]


def load(
    servers: Sequence[Server], row: str, what: str, seconds: float, rounds: int, *,
    warms: bool = True, **options: object,
) -> None:
    """Run one kind of load on each server in turn; the medians are stored in its values.

    :param warms: whether rounds that do not count come first, until all servers are warm.
    """
    given = {"connections": 4, "window": 64, "size": 128, "encoding": "rocketmq",
             "topic": "WireBench", "queues": 4, "batch": 32, "tls": None, **options}
    arguments = argparse.Namespace(**given)
    endpoints = [wire_bench.Endpoint(server.endpoint) for server in servers]
    for endpoint in endpoints:
        endpoint.tls = arguments.tls
    drive = wire_bench.send_round if what == "send" else wire_bench.pull_round
    turns = list(zip(servers, endpoints, strict=True))

    def cpu_of(endpoint: wire_bench.Endpoint) -> dict[str, float]:
        return {"us": drive(endpoint, arguments, max(seconds, ROUND_SECONDS))[1]}

    if warms:
        warm_up(row, {server.name: partial(cpu_of, endpoint) for server, endpoint in turns})
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
