#!/usr/bin/env python3
"""What many connections and many topics cost a broker.

  scale_bench.py connections HOST:PORT:PID [--idle 5000]
      send rate and anonymous memory, without and with so many idle connections held
  scale_bench.py topics HOST:PORT:PID [--counts 1,100,1000]
      send rate over so many topics of 4 queues

PID is the broker's process. Topics are created by the first sends (autoCreateTopicEnable), before
the measurement. Rounds alternate, so ratios hold on a noisy machine. Standard library only.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import resource
import selectors
import socket
import statistics
import time

import wire_bench


def anonymous_memory_mb(pid: int) -> float:
    """RssAnon of a process, MB: what is its own; mapped pages of files are the kernel's."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def send_round(
    endpoint: wire_bench.Endpoint, topics: list[str], seconds: float, connections: int = 4,
    window: int = 64,
) -> float:
    """Send to all topics in turn; :returns: messages a second."""
    arguments = argparse.Namespace(connections=connections, window=window)
    selector, links = selectors.DefaultSelector(), []
    for number in range(connections):
        frames = [
            wire_bench.send_frame(topics[(number + k) % len(topics)], number * 100_000 + k,
                                  k // len(topics) % 4, 128, False)
            for k in range(max(8192, len(topics) * 4))
        ]
        link = {"socket": endpoint.connect(), "frames": frames, "next": window,
                "buffer": bytearray()}
        links.append(link)
        selector.register(link["socket"], selectors.EVENT_READ, link)
        link["socket"].sendall(b"".join(frames[:window]))

    def more(link: dict, count: int) -> bytes:
        frames, first = link["frames"], link["next"]
        return b"".join(frames[(first + k) % len(frames)] for k in range(count))

    rate, _, bad, first_bad = wire_bench.drive(
        selector, links, endpoint, seconds, lambda *_: 1, more, arguments)
    if bad:
        raise SystemExit(f"{bad} sends failed: {first_bad}")
    return rate


def connections_bench(endpoint: wire_bench.Endpoint, args: argparse.Namespace) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, args.idle + 500)), hard))
    topics = ["ScaleBench"]
    send_round(endpoint, topics, 2)
    alone: list[float] = []
    crowded: list[float] = []
    before = anonymous_memory_mb(endpoint.pids[0])
    after = before
    for _ in range(args.rounds):
        alone.append(send_round(endpoint, topics, args.seconds))
        idle: list[socket.socket] = [endpoint.connect() for _ in range(args.idle)]
        crowded.append(send_round(endpoint, topics, args.seconds))
        after = anonymous_memory_mb(endpoint.pids[0])
        for link in idle:
            link.close()
        time.sleep(0.5)
    print(f"send rate alone {statistics.median(alone):,.0f} msg/s, RssAnon {before:.1f} MB")
    print(f"with {args.idle} idle connections {statistics.median(crowded):,.0f} msg/s "
          f"(x{statistics.median(crowded) / statistics.median(alone):.2f}), RssAnon {after:.1f} MB")


def topics_bench(endpoint: wire_bench.Endpoint, args: argparse.Namespace) -> None:
    rates: dict[int, list[float]] = {count: [] for count in args.counts}
    names = {count: [f"ScaleBench_{count}_{k}" for k in range(count)] for count in args.counts}
    for count in args.counts:
        send_round(endpoint, names[count], 3)
    for _ in range(args.rounds):
        for count in args.counts:
            rates[count].append(send_round(endpoint, names[count], args.seconds))
    base = statistics.median(rates[args.counts[0]])
    for count in args.counts:
        rate = statistics.median(rates[count])
        print(f"{count:>5} topics x 4 queues: {rate:>9,.0f} msg/s (x{rate / base:.2f})")
    print(f"RssAnon {anonymous_memory_mb(endpoint.pids[0]):.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["connections", "topics"])
    parser.add_argument("endpoint", type=lambda text: wire_bench.Endpoint(f"broker={text}"))
    parser.add_argument("--idle", type=int, default=5000)
    parser.add_argument("--counts", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 100, 1000])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    (connections_bench if args.what == "connections" else topics_bench)(args.endpoint, args)


if __name__ == "__main__":
    main()
