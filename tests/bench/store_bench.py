# ^The cost of a large store for a broker: memory, and sends during reads of old messages.
"""What a large store costs a broker: memory, and sends while its old messages are read.

  store_bench.py memory [--twistmq .venv/bin/twistmq] [--gigabytes 1,2,4]
      anonymous memory of `twistmq up` while its store grows, and after a restart over it
  store_bench.py reader [--twistmq .venv/bin/twistmq] [--gigabytes 1] [--seconds 8] [--rounds 3]
      send rate alone, and while another process reads so much of old messages round and round:
      ours beside Apache's (tests/interop/peer.py: needs java and mvn). The control is the send rate
      while that process reads the same messages from a broker of its own: what is left of the
      machine, the more so as the broker that is read takes a share too. Rounds count once both are
      warm (warm_up.py)

Messages have 1 KiB, a tag and two keys; files have default sizes. Stores are in a temporary folder.
Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import wire_bench
from bench_servers import Apache, Server, Twistmq, anonymous_mb, parser_of
from warm_up import ROUND_SECONDS, warm_up

OLD, NEW, QUEUES = "StoreBenchOld", "StoreBenchNew", 4
BODY_SIZE = 1024
GIB = 1 << 30
#: Seconds of each burst of sends that fill a store, and for what was sent to settle.
BURST_SECONDS, SETTLE_SECONDS = 2.0, 5.0
#: Until queues and index are on disk without new messages, seconds.
QUIET_SECONDS = 60.0
#: Else Apache's broker refuses what waited for 200 ms, which on a machine with few cores sends do.
PATIENT = ("waitTimeMillsInSendQueue=60000", "osPageCacheBusyTimeOutMills=60000")
#: Ports of the servers, each with its own ten.
PORT_FIRST = 32_300


def arguments_for(topic: str) -> argparse.Namespace:
    """Return the command line of wire_bench."""
    return argparse.Namespace(connections=4, window=64, size=BODY_SIZE, encoding="rocketmq",
                              topic=topic, queues=QUEUES, batch=32)


def log_bytes(server: Server) -> int:
    """Return the disk space of the commit log."""
    return sum(path.stat().st_blocks * 512 for path in server.folder.glob("*/store/commitlog/*"))


def fill(server: Server, size: float) -> None:
    """Send until the commit log has so many bytes."""
    endpoint = wire_bench.Endpoint(server.endpoint)
    while log_bytes(server) < size:
        _, _, bad, first_bad = wire_bench.send_round(endpoint, arguments_for(OLD), BURST_SECONDS)
        if bad:
            raise SystemExit(f"{bad} sends failed: {first_bad}")


def memory_bench(args: argparse.Namespace, folder: Path) -> None:
    """Anonymous memory against the size of the store."""
    server = Twistmq("twistmq", args.twistmq, folder, PORT_FIRST)

    def show(what: str) -> None:
        time.sleep(SETTLE_SECONDS)
        print(f"{what:<40} RssAnon {anonymous_mb(server.pids):6.1f} MB", flush=True)

    server.start()
    try:
        show("empty store")
        for size in args.gigabytes:
            fill(server, size * GIB)
            show(f"commit log of {log_bytes(server) / GIB:.1f} GiB")
        time.sleep(QUIET_SECONDS)
        show("with everything on disk")
    finally:
        server.stop()
    server.start()
    try:
        show("started again over it")
        rate, _, bad, _ = wire_bench.pull_round(
            wire_bench.Endpoint(server.endpoint), arguments_for(OLD), args.seconds)
        if bad:
            raise SystemExit(f"{bad} pulls failed")
        show(f"after pulls of {rate:,.0f} msg/s, {args.seconds:.0f} s")
    finally:
        server.stop()


def read_for(endpoint: str, seconds: float, rates: multiprocessing.Queue[float]) -> None:
    """Read the old messages; the rate goes to a queue."""
    rate, _, bad, _ = wire_bench.pull_round(
        wire_bench.Endpoint(endpoint), arguments_for(OLD), seconds)
    rates.put(-1.0 if bad else rate)


def send_beside(
    server: Server, reader_of: Server | None, seconds: float
) -> tuple[float, float, float]:
    """Send while another process reads from a server.

    :returns: messages a second sent and read, broker CPU a message sent, us.
    """
    rates: multiprocessing.Queue[float] = multiprocessing.Queue()
    reader = None
    if reader_of is not None:
        reader = multiprocessing.Process(
            target=read_for, args=(reader_of.endpoint, seconds + 2, rates))
        reader.start()
        time.sleep(1)
    rate, cost, bad, first_bad = wire_bench.send_round(
        wire_bench.Endpoint(server.endpoint), arguments_for(NEW), seconds)
    read = 0.0
    if reader is not None:
        read = rates.get(timeout=60)
        reader.join()
    if bad or read < 0:
        raise SystemExit(f"{server.name}: requests failed: {first_bad}")
    return rate, read, cost


def cpu_beside(server: Server, seconds: float) -> dict[str, float]:
    """A round that does not count: sends while old messages are read; CPU a message, us."""
    _, _, cost = send_beside(server, server, seconds)
    return {"us": cost}


def reader_bench(args: argparse.Namespace, folder: Path) -> None:
    """Send rates with and without a reader."""
    other = Twistmq("other", args.twistmq, folder / "other", PORT_FIRST + 40)
    servers: Sequence[Server] = [
        Twistmq("twistmq", args.twistmq, folder / "twistmq", PORT_FIRST),
        Apache(folder / "apache", PORT_FIRST + 20), other]
    running = []
    try:
        for server in servers:
            server.folder.mkdir()
            server.start(*(PATIENT if isinstance(server, Apache) else ()))
            running.append(server)
            fill(server, args.gigabytes[0] * GIB)
        found = measure(servers[:2], other, args)
    finally:
        for server in running:
            server.stop()
    print(f"\n| {os.cpu_count()} cores, median of {args.rounds} | "
          + " | ".join(server.name for server in servers[:2]) + " |\n| --- | --- | --- |")
    for row, form in ROWS.items():
        print(f"| {row} | " + " | ".join(
            format(statistics.median(found[server.name][row]), form) for server in servers[:2])
            + " |")
    for row in (READER, CONTROL):
        print(f"| {row} / {ALONE} | " + " | ".join(
            f"{ratio(found[server.name], row):.2f}" for server in servers[:2]) + " |")


ALONE, READER, CONTROL = "send alone, msg/s", "send beside a reader, msg/s", "control, msg/s"
READ, READ_CONTROL = "read meanwhile, msg/s", "read meanwhile from the other, msg/s"
ROWS = {ALONE: ",.0f", READER: ",.0f", READ: ",.0f", CONTROL: ",.0f", READ_CONTROL: ",.0f"}


def ratio(values: dict[str, list[float]], row: str) -> float:
    """Return a row's median divided by that of the sends alone."""
    return statistics.median(values[row]) / statistics.median(values[ALONE])


def measure(
    servers: Sequence[Server], other: Server, args: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Return rates by server and row."""
    found = {server.name: {row: [] for row in ROWS} for server in servers}
    warm_up("sends beside a reader", {
        server.name: partial(cpu_beside, server, max(args.seconds, ROUND_SECONDS))
        for server in servers})
    for number in range(args.rounds):
        for server in servers[::-1] if number % 2 else servers:
            values = found[server.name]
            alone, _, _ = send_beside(server, None, args.seconds)
            beside, read, _ = send_beside(server, server, args.seconds)
            control, read_other, _ = send_beside(server, other, args.seconds)
            for row, value in zip(ROWS, (alone, beside, read, control, read_other), strict=True):
                values[row].append(value)
            print(f"{server.name:<8} alone {alone:,.0f}, beside a reader {beside:,.0f} "
                  f"(it reads {read:,.0f}), control {control:,.0f} (it reads {read_other:,.0f})",
                  flush=True)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["memory", "reader"])
    parser.add_argument("--gigabytes", type=lambda text: [float(n) for n in text.split(",")])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.gigabytes = args.gigabytes or ([1.0, 2.0, 4.0] if args.what == "memory" else [1.0])
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as name:
        (memory_bench if args.what == "memory" else reader_bench)(args, Path(name))


if __name__ == "__main__":
    main()
