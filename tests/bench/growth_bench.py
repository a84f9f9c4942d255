# ^The growth of a message's cost with topics, connections, groups and the size of the store.
"""How the cost of a message grows with topics, connections, groups, and the size of the store.

  growth_bench.py [topics] [connections] [groups] [stores]      all when none is named
      [--twistmq .venv/bin/twistmq] [--seconds 6] [--rounds 3] [--most 80000] [--gibibytes 1,4]

topics       sends in turn to 1, 100, 1,000, 10,000, 80,000 topics of 4 queues, and a start with
             them
connections  sends by 1, 100, 1,000, 10,000 connections (or as many as there may be open files
             for), 256 messages under way over all
groups       pulls of 32 messages by 1, 100, 1,000 groups in turn, each with a commit of its offset
stores       with a commit log of so many GiB: sends, pulls of the oldest and the newest messages, a
             start after a clean stop and after a kill

One broker of ours for each row; CPU is the broker's, the median of the rounds. Brokers of one kind,
but for stores, run at the same time and are loaded in turn, so that a machine whose speed changes
changes no row alone. Rounds are so long that a broker with many queues writes their entries in
each. A start lasts until the broker answers and is registered. `--most` leaves out the counts above
it. growth_picture.py draws the tables. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os
import resource
import selectors
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import wire_bench
from bench_servers import PORT_STEP, Twistmq, anonymous_mb, parser_of

PORT_FIRST = 32_600
#: How long a broker may take to stop: one with 320,000 queues writes each.
STOP_SECONDS = 1800
TOPIC, QUEUES, BODY_SIZE = "GrowthBench", 4, 128
#: The counts of each kind, but for stores.
COUNTS = {"topics": (1, 100, 1000, 10_000, 80_000), "connections": (1, 100, 1000, 10_000),
          "groups": (1, 100, 1000)}
#: Files that a broker opens besides those of its queues and its connections, generously.
OTHER_FILES = 500
IN_FLIGHT = 256
#: Messages of a round that differ, each with keys of its own: to 80,000 topics in turn they are one
#: a queue. As many in each row, since the index of few keys stays in the processor's cache.
MESSAGES = 320_000
CONNECTIONS = 4
PULL_COUNT = 32
#: The body of a message that fills a store, bytes, and the seconds of a burst of them.
FILLING_SIZE, BURST_SECONDS = 4096, 2.0
GIB = 1 << 30
#: The name of a column, and its value.
Row: TypeAlias = dict[str, float]


@contextmanager
def running(program: str, folder: Path, number: int = 0) -> Iterator[Twistmq]:
    """Run a broker over a folder.

    :param number: which of those that run at the same time.
    """
    server = Twistmq("twistmq", program, folder, PORT_FIRST + number * PORT_STEP)
    server.start()
    try:
        yield server
    finally:
        server.stop(STOP_SECONDS)


def start_seconds(program: str, folder: Path) -> float:
    """Return the time of a start over the data in a folder."""
    with running(program, folder) as server:
        return server.values["start"]


def send_turns(
    server: Twistmq, topics: Sequence[str], connections: int, seconds: float
) -> tuple[float, float]:
    """Send to topics in turn; :returns: messages a second, CPU a message in us."""
    endpoint = wire_bench.Endpoint(server.endpoint)
    selector = selectors.DefaultSelector()
    window = max(1, IN_FLIGHT // connections)
    count = max(window, MESSAGES // connections)
    links = []
    for number in range(connections):
        frames = [wire_bench.send_frame(
            topics[(number * count + k) % len(topics)], number * count + k,
            (number * count + k) // len(topics) % QUEUES, BODY_SIZE, True) for k in range(count)]
        link = {"socket": endpoint.connect(), "frames": frames, "next": window,
                "buffer": bytearray()}
        links.append(link)
        selector.register(link["socket"], selectors.EVENT_READ, link)
    # More connections than messages under way: the others are open, and say nothing.
    for link in links[:IN_FLIGHT]:
        link["socket"].sendall(b"".join(link["frames"][:window]))
    return drive(selector, links, endpoint, seconds, lambda *_: 1, next_frames)


def next_frames(link: dict, count: int) -> bytes:
    """Return the next frames of a connection."""
    frames, first = link["frames"], link["next"]
    return b"".join(frames[(first + k) % len(frames)] for k in range(count))


def drive(
    selector: selectors.BaseSelector, links: Sequence[dict], endpoint: wire_bench.Endpoint,
    seconds: float, arrived: Callable[..., int], more: Callable[[dict, int], bytes],
) -> tuple[float, float]:
    """Run one round; :returns: messages a second, CPU of a message in us."""
    rate, cost, bad, first_bad = wire_bench.drive(
        selector, links, endpoint, seconds, arrived, more, argparse.Namespace())
    if bad:
        raise SystemExit(f"{bad} requests failed: {first_bad}")
    return rate, cost


def medians(rounds: Sequence[tuple[float, float]]) -> Row:
    """Return the columns of a load."""
    return {"msg/s": statistics.median(rate for rate, _ in rounds),
            "CPU a message, us": statistics.median(cost for _, cost in rounds)}


def send_to_topics(server: Twistmq, count: int, seconds: float) -> tuple[float, float]:
    """Send to so many topics in turn."""
    topics = [f"{TOPIC}_{number}" for number in range(count)]
    return send_turns(server, topics, CONNECTIONS, seconds)


def make_topics(server: Twistmq, count: int, seconds: float) -> None:
    """Send to each topic, which makes it, and let a stop make the files of all queues."""
    send_to_topics(server, count, max(seconds, count / 1000))
    server.stop(STOP_SECONDS)
    server.start()


def send_by_connections(server: Twistmq, count: int, seconds: float) -> tuple[float, float]:
    """Send by so many connections."""
    return send_turns(server, [TOPIC], count, seconds)


def fill_topic(server: Twistmq, _: int, seconds: float) -> None:
    """Send to the one topic."""
    send_by_connections(server, CONNECTIONS, seconds)


class Load(NamedTuple):
    """The load of one kind of brokers, called with a broker, a count and seconds."""

    #: Before the rounds.
    prepare: Callable[[Twistmq, int, float], None]
    #: One round: messages a second, CPU a message in us.
    run: Callable[[Twistmq, int, float], tuple[float, float]]
    #: Whether the start of a broker with so many is measured too.
    starts: bool = False


def in_turn(arguments: argparse.Namespace, load: Load, counts: Sequence[int]) -> Iterator[Row]:
    """The row of each count; a round loads all brokers, each second round in the other order."""
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as text, ExitStack() as stack:
        servers: dict[int, Twistmq] = {}
        for number, count in enumerate(counts):
            folder = Path(text) / str(count)
            folder.mkdir()
            servers[count] = stack.enter_context(running(arguments.twistmq, folder, number))
            load.prepare(servers[count], count, arguments.seconds)
        found: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
        for number in range(arguments.rounds):
            for count in counts[::-1] if number % 2 else counts:
                found[count].append(load.run(servers[count], count, arguments.seconds))
        rows = {count: {**medians(found[count]), "memory, MB": anonymous_mb(server.pids)}
                for count, server in servers.items()}
        stack.close()
        for count, row in rows.items():
            if load.starts:
                row["start, s"] = start_seconds(arguments.twistmq, servers[count].folder)
            yield row


def group_pull(group: str, queue_id: int, offset: int) -> bytes:
    """Return a pull that commits its offset for a group."""
    return wire_bench.pull_frame(TOPIC, queue_id, offset, PULL_COUNT, group, commits=True)


def pull_by_groups(server: Twistmq, groups: int, seconds: float) -> tuple[float, float]:
    """Pull by groups in turn; :returns: messages a second, CPU a message in us."""
    endpoint = wire_bench.Endpoint(server.endpoint)
    selector = selectors.DefaultSelector()
    links = []
    for queue_id in range(QUEUES):
        link = {"socket": endpoint.connect(), "queue": queue_id, "offset": 0, "next": 0,
                "buffer": bytearray()}
        links.append(link)
        selector.register(link["socket"], selectors.EVENT_READ, link)
        link["socket"].sendall(group_pull("growth_0", queue_id, 0))

    def more(link: dict, count: int) -> bytes:
        group = f"growth_{link['next'] % groups}"
        return group_pull(group, link["queue"], link["offset"])

    return drive(selector, links, endpoint, seconds, wire_bench.pulled, more)


def with_store(arguments: argparse.Namespace, folder: Path, gibibytes: int) -> Row:
    old = argparse.Namespace(connections=CONNECTIONS, window=64, size=FILLING_SIZE,
                             encoding="rocketmq", topic=TOPIC, queues=QUEUES, batch=PULL_COUNT)
    new = argparse.Namespace(**{**vars(old), "size": BODY_SIZE, "topic": f"{TOPIC}New"})
    seconds, program = arguments.seconds, arguments.twistmq
    with running(program, folder) as server:
        endpoint = wire_bench.Endpoint(server.endpoint)
        while log_bytes(folder) < gibibytes * GIB:
            checked(wire_bench.send_round(endpoint, old, BURST_SECONDS))
        sends = medians([checked(wire_bench.send_round(endpoint, new, seconds))
                         for _ in range(arguments.rounds)])
        oldest = medians([checked(wire_bench.pull_round(endpoint, old, seconds))])
        newest = medians([checked(wire_bench.pull_round(endpoint, new, seconds))])
        memory = anonymous_mb(server.pids)
    clean = start_seconds(program, folder)
    with running(program, folder) as server:
        checked(wire_bench.send_round(wire_bench.Endpoint(server.endpoint), new, seconds))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        killed = Twistmq("twistmq", program, folder, PORT_FIRST)
        killed.start()
        # It is stopped in place of the one that was killed.
        server.process = killed.process
    cpu = "CPU a message, us"
    return {**sends, "pull of the oldest, us": oldest[cpu], "pull of the newest, us": newest[cpu],
            "memory, MB": memory, "start, s": clean,
            "start after a kill, s": killed.values["start"]}


def checked(found: tuple[float, float, int, str]) -> tuple[float, float]:
    """The figures of a round; :raises SystemExit: when a request failed."""
    rate, cost, bad, first_bad = found
    if bad:
        raise SystemExit(f"{bad} requests failed: {first_bad}")
    return rate, cost


def log_bytes(folder: Path) -> int:
    """Return the disk space of the commit log."""
    return sum(path.stat().st_blocks * 512 for path in folder.glob("*/store/commitlog/*"))


LOADS = {
    "topics": Load(make_topics, send_to_topics, starts=True),
    "connections": Load(fill_topic, send_by_connections),
    "groups": Load(fill_topic, pull_by_groups),
}
KINDS = (*LOADS, "stores")


def has_room(gibibytes: int) -> bool:
    """Return whether the disk has room for a store; otherwise a line is printed."""
    disk = os.statvfs(tempfile.gettempdir())
    used, usable = disk.f_blocks - disk.f_bfree, disk.f_bavail
    wanted = 1.1 * gibibytes * GIB / disk.f_frsize
    # At 85 % a broker begins to remove its oldest files.
    fits = used + wanted < 0.85 * (used + usable)
    if not fits:
        print(f"\nleft out: the disk has no room for {gibibytes} GiB", flush=True)
    return fits


def counts_of(kind: str, arguments: argparse.Namespace) -> Sequence[int]:
    """Return the counts to measure."""
    if kind == "stores":
        return tuple(count for count in arguments.gibibytes if has_room(count))
    counts = [count for count in COUNTS[kind] if count <= arguments.most]
    if kind == "connections":
        # A broker takes so many as it may open files, without half of those for its queues.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - OTHER_FILES
        counts = sorted({min(count, most) for count in counts})
    return counts


def stores(arguments: argparse.Namespace, counts: Sequence[int]) -> Iterator[Row]:
    """Return the row of each size of a store."""
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as text:
            yield with_store(arguments, Path(text), count)


def measure(kind: str, arguments: argparse.Namespace) -> None:
    """Measure all rows of one kind, and print them as a Markdown table."""
    counts = counts_of(kind, arguments)
    found = stores(arguments, counts) if kind == "stores" else in_turn(
        arguments, LOADS[kind], counts)
    for number, (count, row) in enumerate(zip(counts, found, strict=True)):
        if number == 0:
            heads = ["GiB of messages" if kind == "stores" else kind, *row]
            print(f"\n| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
        cells = [f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" for value in row.values()]
        print(f"| {count:,} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=6, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=COUNTS["topics"][-1],
                        help="leave out counts above it")
    parser.add_argument("--gibibytes", default=[1, 4],
                        type=lambda text: [int(each) for each in text.split(",")])
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, max(soft, 4 * COUNTS["connections"][-1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    begin = time.monotonic()
    for kind in arguments.what or KINDS:
        measure(kind, arguments)
    print(f"\n{time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
