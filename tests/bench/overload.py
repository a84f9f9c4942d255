# ^Send more to a broker than it can accept, and record the result of each message.
"""Offer a broker more than it can take, and see what becomes of each message.

  overload.py [--factor 2] [--seconds 10] [--svg FILE] [--json FILE] [--without] [--apache]

First the broker's capacity is measured, once it is warm (warm_up.py): clients that wait for
answers, as many as it takes. Then
clients that do not wait (an open loop: messages come at their rate, whatever became of those before
them) offer half of that, FACTOR times that, and half of it again. Of each tenth of a second it is
noted how many messages were offered, accepted and refused, and how long the accepted took, from
when they were given to their connection: what a full socket holds up counts too.

The run fails when the broker does not live through it, when it refuses nothing, when one in a
hundred accepted messages took a second or more, when answers are missing, or when it has not
recovered two seconds after the overload. `--without` measures a broker without flow control, which
fails; `--apache` Apache's. The picture needs matplotlib (`pip install '.[bench]'`).
"""

from __future__ import annotations

import argparse
import json
import re
import select
import socket
import struct
import sys
import tempfile
import time
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import wire_bench
from bench_servers import Apache, Server, Twistmq, parser_of
from svg_picture import save, svg_pyplot
from warm_up import ROUND_SECONDS, warm_up

#: Width of what is noted together, seconds.
BIN: float = 0.1
#: Where a frame with a binary header has its opaque, bytes from its start.
OPAQUE_AT = 13
#: Frames that are written together at most.
BLOCK = 64
REPLY = re.compile(rb'"code":(\d+).*?"opaque":(\d+)(?:,"remark":"\[(\w+)\])?')


@dataclass
class Bin:
    """The sent and answered messages of a tenth of a second."""

    offered: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    #: Of messages accepted in it, seconds.
    latencies: list[float] = field(default_factory=list)

    def percentile(self, part: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


class Link:
    """One connection of the load."""

    def __init__(self, port: int, size: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.unsent = bytearray()
        self.received = b""
        self._block = bytearray()
        self._ends = [0]
        for number in range(BLOCK):
            self._block += wire_bench.send_frame("Overload", number, number % 4, size, True)
            self._ends.append(len(self._block))

    def offer(self, numbers: range) -> None:
        """Write messages with these opaques, as far as the socket takes them."""
        for begin in range(numbers.start, numbers.stop, BLOCK):
            count = min(BLOCK, numbers.stop - begin)
            for index in range(count):
                struct.pack_into(">i", self._block, self._ends[index] + OPAQUE_AT, begin + index)
            self.unsent += memoryview(self._block)[:self._ends[count]]
        self.flush()

    def flush(self) -> None:
        while self.unsent:
            try:
                taken = self.socket.send(memoryview(self.unsent)[:1 << 20])
            except BlockingIOError:
                return
            del self.unsent[:taken]

    def replies(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return code, opaque and the word of the remark of each received answer."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return []
        if not data:
            raise SystemExit("the broker closed a connection")
        data = self.received + data
        end = 0
        while len(data) - end >= 4:
            size = 4 + struct.unpack_from(">i", data, end)[0]
            if len(data) - end < size:
                break
            end += size
        self.received = data[end:]
        return REPLY.findall(data, 0, end)


class Load:
    """Messages over some connections, and their results."""

    def __init__(self, port: int, links: int, size: int) -> None:
        self.links = [Link(port, size) for _ in range(links)]
        self.bins: dict[int, Bin] = defaultdict(Bin)
        self.sent = self.answered = 0
        self.began = time.monotonic()
        #: When each was given to its connection, by number.
        self._times = array("d")

    def capacity(self, seconds: float, window: int) -> float:
        """Return the messages a second when each connection has ``window`` of them in flight."""
        for link in self.links:
            link.offer(range(window))
        begin = count = 0.0
        warm = time.monotonic() + seconds / 3
        end = warm + seconds
        while (now := time.monotonic()) < end:
            if not begin and now >= warm:
                begin, count = now, 0.0
            for link in self.links:
                done = len(link.replies())
                count += done
                link.offer(range(done))
            select.select([link.socket for link in self.links], [], [], 0.1)
        rate = count / (now - begin)
        self.drain(window * len(self.links))
        return rate

    def drain(self, count: int) -> None:
        """Read the remaining answers."""
        end = time.monotonic() + 10
        while count > 0 and time.monotonic() < end:
            select.select([link.socket for link in self.links], [], [], 0.1)
            count -= sum(len(link.replies()) for link in self.links)

    def phase(self, rate: float, seconds: float) -> None:
        """Send messages evenly, whatever their results are."""
        begin = time.monotonic()
        if not self._times:
            self.began = begin
        first = self.sent
        while (now := time.monotonic()) < begin + seconds:
            due = first + int(rate * (now - begin))
            each = -(-(due - self.sent) // len(self.links))
            for link in self.links:
                numbers = range(self.sent, min(due, self.sent + each))
                if numbers:
                    given = time.monotonic()
                    self._times.extend([given] * len(numbers))
                    self.bins[self._bin(given)].offered += len(numbers)
                    self.sent = numbers.stop
                    link.offer(numbers)
                elif link.unsent:
                    link.flush()
            self._take(0.001)

    def finish(self) -> int:
        """Wait for the missing answers; :returns: how many never arrived."""
        end = time.monotonic() + 20
        while self.answered < self.sent and time.monotonic() < end:
            for link in self.links:
                link.flush()
            self._take(0.02)
        return self.sent - self.answered

    def _take(self, wait: float) -> None:
        readable, _, _ = select.select([link.socket for link in self.links], [], [], wait)
        now = time.monotonic()
        there = self.bins[self._bin(now)]
        for link in self.links:
            if link.socket not in readable:
                continue
            for code, opaque, word in link.replies():
                self.answered += 1
                if code == b"0":
                    there.accepted += 1
                    there.latencies.append(now - self._times[int(opaque)])
                else:
                    there.refused[word.decode() or code.decode()] += 1

    def _bin(self, now: float) -> int:
        return int((now - self.began) / BIN)


def run(server: Server, options: argparse.Namespace) -> tuple[dict[str, object], list[str]]:
    """Measure one server; :returns: the figures, and its faults."""
    load = Load(server.port + 5, options.links, options.size)
    warm_up("capacity", {server.name: lambda: {
        "us a message": 1e6 / load.capacity(max(options.seconds / 2, ROUND_SECONDS), 64)}})
    capacity = load.capacity(options.seconds / 2, 64)
    edges = [0.0, options.seconds / 2, options.seconds * 1.5, options.seconds * 2.5]
    busy: list[float] = []
    for rate, begin, end in zip((0.5, options.factor, 0.5), edges, edges[1:], strict=False):
        used = wire_bench.cpu_seconds(server.pids[:1])
        load.phase(rate * capacity, end - begin)
        busy.append((wire_bench.cpu_seconds(server.pids[:1]) - used) / (end - begin))
    missing = load.finish()
    bins = [load.bins[index] for index in range(max(load.bins) + 1)]

    def part(begin: float, end: float) -> Bin:
        joined = Bin()
        for each in bins[round(begin / BIN):round(end / BIN)]:
            joined.offered += each.offered
            joined.accepted += each.accepted
            joined.refused += each.refused
            joined.latencies += each.latencies
        return joined

    parts = {"before": part(edges[0], edges[1]), "overload": part(edges[1], edges[2]),
             "after": part(edges[2] + 2, edges[3])}
    figures: dict[str, object] = {
        "server": server.name, "capacity": round(capacity), "factor": options.factor,
        "edges": edges, "missing": missing,
        "bins": [[each.offered, each.accepted, sum(each.refused.values()),
                  round(each.percentile(0.5), 4), round(each.percentile(0.99), 4)]
                 for each in bins]}
    for (name, each), share in zip(parts.items(), busy, strict=True):
        figures[name] = {
            "cpu": round(share, 2),
            "offered": each.offered, "accepted": each.accepted, "refused": dict(each.refused),
            "p50_ms": round(each.percentile(0.5) * 1000, 1),
            "p99_ms": round(each.percentile(0.99) * 1000, 1)}
    faults = [text for is_fault, text in (
        (missing > 0, f"{missing} messages were not answered"),
        (not parts["overload"].refused, "nothing was refused"),
        (parts["overload"].percentile(0.99) >= 1.0, "one in a hundred took a second or more"),
        (bool(parts["after"].refused), "it still refuses two seconds after the overload"),
        (parts["after"].percentile(0.99) >= 0.2, "it is still slow two seconds after it"),
    ) if is_fault]
    return figures, faults


def draw(figures: dict[str, object], path: str) -> None:
    """Draw the load, the accepted and refused messages, and the latency, over time."""
    bins = figures["bins"]
    edges = figures["edges"]
    assert isinstance(bins, list) and isinstance(edges, list)
    times = [index * BIN for index in range(len(bins))]
    picture, (rates, latency) = svg_pyplot().subplots(2, 1, sharex=True, figsize=(7, 4.6))
    for column, name, colour in ((0, "offered", "0.6"), (1, "accepted", "tab:green"),
                                 (2, "refused: SYSTEM_BUSY", "tab:red")):
        rates.plot(times, [each[column] / BIN / 1000 for each in bins], color=colour, label=name,
                   linewidth=1)
    rates.set_ylabel("1,000 messages/s")
    for column, name in ((3, "median"), (4, "99th percentile")):
        latency.plot(times, [max(each[column] * 1000, 0.1) for each in bins], linewidth=1,
                     label=f"{name} of the accepted")
    latency.axhline(1000, color="0.7", linestyle=":")
    latency.set_yscale("log")
    latency.set_ylabel("ms")
    latency.set_xlabel("seconds")
    for axes in (rates, latency):
        axes.axvspan(edges[1], edges[2], color="0.95")
        axes.legend(loc="upper right", frameon=False, fontsize=8)
    rates.set_title(f"{figures['factor']:g} times the {figures['capacity']:,} messages/s that "
                    f"{figures['server']} takes", fontsize=9)
    save(picture, path)


def main() -> None:
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the overload")
    parser.add_argument("--links", type=int, default=8)
    parser.add_argument("--size", type=int, default=128, help="bytes of a body")
    parser.add_argument("--port", type=int, default=29_000)
    parser.add_argument("--set", action="append", default=[], help="a setting, key=value")
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--apache", action="store_true")
    parser.add_argument("--svg")
    parser.add_argument("--json")
    options = parser.parse_args()
    settings = [*options.set, *(["plugins.disabled=flow_control"] if options.without else [])]
    with tempfile.TemporaryDirectory(prefix="overload-") as folder:
        server: Server = (Apache(Path(folder), options.port) if options.apache else
                          Twistmq("twistmq", options.twistmq, Path(folder), options.port))
        server.start(*settings)
        try:
            figures, faults = run(server, options)
        finally:
            server.stop()
    if options.json:
        Path(options.json).write_text(json.dumps(figures))
    if options.svg:
        draw(figures, options.svg)
    for name in ("before", "overload", "after"):
        print(name, figures[name])
    print("capacity", figures["capacity"], "; ".join(faults) or "as it should be")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
