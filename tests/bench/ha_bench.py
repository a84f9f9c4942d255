#!/usr/bin/env python3
"""A pair of ours, master and slave, beside a pair of Apache's: in turn, in one run.

  ha_bench.py [asynchronous] [synchronous] [single] [mixed] [lag] [catch-up]
      all when none is named
      [--twistmq .venv/bin/twistmq] [--apache 5.3.3] [--seconds 8] [--rounds 5] [--rate 5000]
      [--mebibytes 2048] [--keep DIR]

asynchronous  sends to masters with a live slave, and to others without one; CPU counts both
              brokers, and the master's; then how many bytes the slave lacks under that load
synchronous   the same under SYNC_MASTER with inSyncReplicas=2, 4 x 64 in flight
single        one send at a time under SYNC_MASTER
mixed         `synchronous` by our master with Apache's slave and by Apache's master with ours
lag           at a steady rate: from the send of a message until a pull of the slave has it
catch-up      how fast a slave that was away copies what came meanwhile, and the master's rate
              meanwhile

Rounds alternate, another pair first each time, once all are warm for that load (warm_up.py); the
table has medians. The exit status is 1 when a request was not answered with SUCCESS, or a slave
did not get a message. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import wire_bench
from bench_servers import BROKER_CONFIG, CLUSTER_INFO, ask, parser_of, print_ratios
from warm_up import ROUND_SECONDS, warm_up

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))
from peer import Peer

#: The first of the ports; each server takes its own ten.
PORT_FIRST = 31_100
TOPIC, QUEUES = "HaBench", 4
#: In front of the time in a body.
MARK = b"SENT"
RUNTIME_INFO, PULL, SUCCESS, PULL_NOT_FOUND = 28, 11, 0, 19
#: How long anything may take that is waited for, seconds.
PATIENCE = 120.0
COMMON = ("slaveReadEnable=true", "waitTimeMillsInSendQueue=30000", "slaveTimeout=30000",
          "osPageCacheBusyTimeOutMills=30000", "waitTimeMillsInPullQueue=30000")
SYNCHRONOUS = ("brokerRole=SYNC_MASTER", "inSyncReplicas=2")
OURS, APACHE = "twistmq", "Apache"
#: How often a slave is away in `catch-up`.
CATCH_UPS = 5


class OurServer:
    """A name server or a broker of ours.

    :param port: it answers there once it is started.
    """

    def __init__(self, program: str, words: Sequence[str], out: Path, port: int) -> None:
        with open(out, "ab") as file:
            self._process = subprocess.Popen([program, *words], stdout=file, stderr=file)
        self._out = out
        ask(port, CLUSTER_INFO if words[0] == "namesrv" else BROKER_CONFIG)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(PATIENCE):
            raise SystemExit(f"{self._process.args} ended with status "
                             f"{self._process.returncode}; see {self._out}")

    def kill(self) -> None:
        """End the process at once, and return when it has ended."""
        self._process.kill()
        self._process.wait()


class ApacheServer:
    """A broker of Apache's, with a name server or without."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        peer.start()
        self.pid = peer.processes["broker"].pid

    def stop(self) -> None:
        self._peer.stop()


class Pair:
    """A name server, a master and a slave.

    :param port: the first of its ports; the name server's.
    :param kinds: of the master and of the slave, ``OURS`` or ``APACHE``.
    """

    def __init__(self, name: str, folder: Path, port: int, kinds: tuple[str, str],
                 arguments: argparse.Namespace) -> None:
        self.name, self.folder, self.port = name, folder, port
        self.kinds = kinds
        self._program: str = arguments.twistmq
        self._version: str = arguments.apache
        self._servers: dict[str, OurServer | ApacheServer] = {}
        self.settings: Sequence[str] = ()
        self.values: dict[str, float] = {}
        self.bad = 0

    def start(self, *settings: str) -> None:
        """Start the name server and the master; :param settings: of both brokers."""
        self.settings = settings
        if self.kinds[0] == OURS:
            self._servers["namesrv"] = self._ours(
                self.port, "namesrv", f"listenPort={self.port}", "bindAddress=127.0.0.1",
                f"kvConfigPath={self.folder}/kv.json")
        self._start_broker("master")

    def start_slave(self) -> None:
        """Start the slave."""
        self._start_broker("slave")

    def _start_broker(self, name: str) -> None:
        is_slave = name == "slave"
        port = self.slave_port if is_slave else self.master_port
        settings = self.broker_settings(is_slave)
        if self.kinds[is_slave] == OURS:
            self._servers[name] = self._ours(
                port, "broker", "-n", f"127.0.0.1:{self.port}", "bindAddress=127.0.0.1",
                f"storePathRootDir={self.folder}/{name}",
                *(f"{key}={value}" for key, value in settings.items()))
        else:
            self._servers[name] = ApacheServer(Peer(
                self.folder / name, self._version, self.port, port, short_lived=False,
                with_namesrv=not is_slave, settings=settings,
                **({"namesrv_address": f"127.0.0.1:{self.port}"} if is_slave else {})))

    def _ours(self, port: int, *words: str) -> OurServer:
        return OurServer(self._program, words, self.folder / "out", port)

    def stop_slave(self) -> None:
        """Stop the slave, if it runs."""
        if (slave := self._servers.pop("slave", None)) is not None:
            slave.stop()

    def stop(self) -> None:
        """Stop all."""
        self.stop_slave()
        for name in ("master", "namesrv"):
            if (server := self._servers.pop(name, None)) is not None:
                server.stop()

    @property
    def pids(self) -> list[int]:
        """Of the brokers that run."""
        return [server.pid for name, server in self._servers.items() if name != "namesrv"]

    @property
    def master_pid(self) -> int:
        """Of the master."""
        return self._servers["master"].pid

    @property
    def master_port(self) -> int:
        return self.port + 5

    @property
    def slave_port(self) -> int:
        return self.port + 15

    def endpoint(self) -> wire_bench.Endpoint:
        """The master, with the CPU of both brokers."""
        pids = "+".join(map(str, self.pids))
        return wire_bench.Endpoint(f"{self.name}=127.0.0.1:{self.master_port}:{pids}")

    def log_end(self, port: int) -> int:
        """Where a broker's commit log ends."""
        with socket.create_connection(("127.0.0.1", port), 10) as link:
            link.sendall(wire_bench.frame(RUNTIME_INFO, 1, {}, b"", False))
            header, body = next(replies(link))
        if header["code"] != SUCCESS:
            raise ConnectionError(f"{port} answers {header}")  # it does not run yet
        return int(json.loads(body)["table"]["commitLogMaxOffset"])

    def slave_end(self, otherwise: int) -> int:
        """Where the slave's commit log ends; :param otherwise: while it does not answer."""
        try:
            return self.log_end(self.slave_port)
        except OSError:
            return otherwise

    def wait_for_slave(self) -> float:
        """Wait until the slave has all that the master has; :returns: how long that took, s."""
        begin = time.monotonic()
        while time.monotonic() < begin + PATIENCE:
            if self.slave_end(-1) == self.log_end(self.master_port):
                return time.monotonic() - begin
            time.sleep(0.05)
        raise SystemExit(f"{self.name}: the slave is behind its master after {PATIENCE} s")

    def broker_settings(self, is_slave: bool) -> dict[str, str]:
        """The settings of a broker that both kinds have."""
        port = self.slave_port if is_slave else self.master_port
        found = {
            "brokerName": "pair", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
            "listenPort": str(port), "haListenPort": str(port + 1),
            **dict(pair.split("=", 1) for pair in (*COMMON, *self.settings))}
        if is_slave:
            found |= {"brokerRole": "SLAVE", "brokerId": "1"}
        return found


def replies(link: socket.socket) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The replies that come on a connection: fields of the header with its code, and body."""
    buffer = bytearray()
    while True:
        end, code, header, start, stop = wire_bench.decode(buffer, 0)
        if end < 0:
            data = link.recv(1 << 18)
            if not data:
                raise SystemExit("a connection was closed")
            buffer += data
            continue
        yield {"code": code, **((header or {}).get("extFields") or {})}, bytes(buffer[start:stop])
        del buffer[:end]


def given_load(**options: object) -> argparse.Namespace:
    """Of ``wire_bench.send_round``."""
    return argparse.Namespace(**{
        "connections": 4, "window": 64, "size": 128, "encoding": "rocketmq", "topic": TOPIC,
        "queues": QUEUES, **options})


def warm(pairs: Sequence[Pair], what: str, given: argparse.Namespace, seconds: float) -> None:
    """Send to each master until both brokers of each pair are warm."""
    def cpu_of(pair: Pair) -> dict[str, float]:
        return {"us": wire_bench.send_round(
            pair.endpoint(), given, max(seconds, ROUND_SECONDS))[1]}

    warm_up(what, {pair.name: partial(cpu_of, pair) for pair in pairs})


def send_rounds(
    pairs: Sequence[Pair], row: str, arguments: argparse.Namespace, **options: object
) -> None:
    """Sends to each master in turn; medians go to the values.

    ``cpu`` is the time of both brokers for a message, and ``master cpu`` is the master's part.
    """
    given = given_load(**options)
    rounds: dict[str, list[tuple[float, float, float]]] = {pair.name: [] for pair in pairs}
    warm(pairs, row, given, arguments.seconds)
    for number in range(arguments.rounds):
        for pair in pairs[::-1] if number % 2 else pairs:
            before = wire_bench.cpu_seconds([pair.master_pid])
            rate, cpu, bad, first = wire_bench.send_round(
                pair.endpoint(), given, arguments.seconds)
            used = wire_bench.cpu_seconds([pair.master_pid]) - before
            pair.bad += bad
            if bad:
                print(f"{pair.name}: {bad} refused: {first}", file=sys.stderr, flush=True)
            rounds[pair.name].append((rate, cpu, used / rate / arguments.seconds * 1e6))
            print(f"{row:<24} {pair.name:<8} {rate:>10,.1f}/s {cpu:8.2f} us", flush=True)
    for pair in pairs:
        rates, cpus, masters = zip(*rounds[pair.name], strict=True)
        pair.values[f"{row} rate"] = statistics.median(rates)
        pair.values[f"{row} cpu"] = statistics.median(cpus)
        pair.values[f"{row} master cpu"] = statistics.median(masters)
        pair.values[f"{row} master cpu, least"] = min(masters)
        pair.values[f"{row} master cpu, most"] = max(masters)


@contextlib.contextmanager
def with_pairs(pairs: Sequence[Pair], *settings: str) -> Iterator[None]:
    """Start the masters; all is stopped behind the block."""
    with contextlib.ExitStack() as stack:
        for pair in pairs:
            stack.callback(pair.stop)
            pair.start(*settings)
        yield


def start_slaves(pairs: Sequence[Pair]) -> None:
    """Start the slaves; each is connected to its master then."""
    for pair in pairs:
        pair.start_slave()
        send_at_rate(pair, 50, 1)  # a master without messages has a slave that has them all
        pair.wait_for_slave()


def asynchronous(pairs: Sequence[Pair], arguments: argparse.Namespace) -> None:
    """Sends to masters with and without a slave, in turn, and beside a process that only runs.

    The machine's speed changes within minutes, so those without a slave are brokers of their own.
    """
    alone = [Pair(f"{pair.name} alone", pair.folder / "alone", pair.port + 60, pair.kinds,
                  arguments) for pair in pairs]
    for pair in alone:
        pair.folder.mkdir()
    with with_pairs((*pairs, *alone)):
        start_slaves(pairs)
        send_rounds((*pairs, *alone), "with a slave", arguments)
        with busy_process():
            send_rounds(alone, "beside a busy process", arguments)
        for pair, other in zip(pairs, alone, strict=True):
            for key, value in other.values.items():
                pair.values[key.replace("with a slave", "alone")] = value
            pair.bad += other.bad
            pair.wait_for_slave()
            behind(pair, arguments.seconds)


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """A process that does nothing but run: it has the part of the cores that a slave would have."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def behind(pair: Pair, seconds: float) -> None:
    """The bytes that the slave lacks at most under full load, and how long after it."""
    most = 0
    is_over = threading.Event()

    def look() -> None:
        nonlocal most
        while not is_over.wait(0.02):
            slave = pair.slave_end(0)
            most = max(most, pair.log_end(pair.master_port) - slave)

    watch = threading.Thread(target=look)
    watch.start()
    wire_bench.send_round(pair.endpoint(), given_load(), seconds)
    is_over.set()
    watch.join()
    pair.values["behind"] = most / (1 << 20)
    pair.values["behind s"] = pair.wait_for_slave()


def synchronous(pairs: Sequence[Pair], arguments: argparse.Namespace) -> None:
    """Sends that wait for the slave."""
    with with_pairs(pairs, *SYNCHRONOUS):
        start_slaves(pairs)
        send_rounds(pairs, "synchronous", arguments)


def mixed(pairs: Sequence[Pair], arguments: argparse.Namespace) -> None:
    """The same by pairs of which one broker is Apache's, beside Apache's pair."""
    _, theirs = pairs
    more = [Pair(name, theirs.folder.parent / name, theirs.port + 30 * number, kinds, arguments)
            for number, (name, kinds) in enumerate((
                ("our master", (OURS, APACHE)), ("our slave", (APACHE, OURS))), 1)]
    for pair in more:
        pair.folder.mkdir()
    together = (theirs, *more)
    with with_pairs(together, *SYNCHRONOUS):
        start_slaves(together)
        send_rounds(together, "mixed", arguments)
    for pair in more:
        theirs.bad += pair.bad
        for what in ("rate", "cpu"):
            pairs[0].values[f"{pair.name} {what}"] = pair.values[f"mixed {what}"]
            theirs.values[f"{pair.name} {what}"] = theirs.values[f"mixed {what}"]


def single(pairs: Sequence[Pair], arguments: argparse.Namespace) -> None:
    """One send at a time that waits for the slave."""
    with with_pairs(pairs, *SYNCHRONOUS):
        start_slaves(pairs)
        send_rounds(pairs, "single", arguments, connections=1, window=1)
        for pair in pairs:
            pair.values["single ms"] = 1000 / pair.values["single rate"]


def lag(pairs: Sequence[Pair], arguments: argparse.Namespace) -> None:
    """The age of messages when the slave's consumer has them."""
    with with_pairs(pairs):
        start_slaves(pairs)
        for pair in pairs:
            send_at_rate(pair, 100, 1)
            wait_for_topic(pair)
        warm_up("lag", {pair.name: partial(
            cpu_of_lag, pair, arguments.rate, max(arguments.seconds, ROUND_SECONDS))
            for pair in pairs})
        for pair in pairs:
            ages = ages_at(pair, arguments.rate, arguments.seconds * arguments.rounds)
            ages.sort()
            for part in (50, 99):
                pair.values[f"lag p{part}"] = ages[len(ages) * part // 100] * 1000
            print(f"lag {pair.name:<8} {len(ages):,} messages, p50 {pair.values['lag p50']:.1f} ms,"
                  f" p99 {pair.values['lag p99']:.1f} ms", flush=True)


def cpu_of_lag(pair: Pair, rate: int, seconds: float) -> dict[str, float]:
    """A round of `lag` that does not count; CPU of both brokers for a message, us.

    Ages are not compared: one wakeup of a process more or less doubles them.
    """
    before = wire_bench.cpu_seconds(pair.pids)
    count = len(ages_at(pair, rate, seconds))
    return {"us": (wire_bench.cpu_seconds(pair.pids) - before) / count * 1e6}


def ages_at(pair: Pair, rate: int, seconds: float) -> list[float]:
    """Send at a rate and pull from the slave; the age of each message then, seconds."""
    ends = queue_ends(pair)
    ages: list[float] = []
    links = []
    selector = selectors.DefaultSelector()
    for queue in range(QUEUES):
        link = socket.create_connection(("127.0.0.1", pair.slave_port))
        links.append(link)
        selector.register(link, selectors.EVENT_READ, [queue, ends[queue], bytearray()])
        link.sendall(held_pull(queue, ends[queue]))
    sender = threading.Thread(target=send_at_rate, args=(pair, rate, seconds))
    count = int(rate * seconds)
    sender.start()
    deadline = time.monotonic() + seconds + PATIENCE
    while len(ages) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{pair.name}: {count - len(ages)} messages are not at the slave")
        for key, _ in selector.select(0.2):
            took = time.time()
            queue, offset, buffer = key.data
            buffer += key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            while (found := wire_bench.decode(buffer, 0))[0] >= 0:
                end, code, header, start, stop = found
                if code == SUCCESS:
                    assert header is not None
                    offset = int(header["extFields"]["nextBeginOffset"])
                    while start < stop:
                        size = int.from_bytes(buffer[start:start + 4], "big")
                        at = buffer.index(MARK, start) + len(MARK)
                        ages.append(took - float(buffer[at:at + 18]))
                        start += size
                del buffer[:end]
                key.data[1] = offset
                key.fileobj.sendall(held_pull(queue, offset))  # type: ignore[union-attr]
    sender.join()
    for link in links:
        link.close()
    return ages


def held_pull(queue: int, offset: int) -> bytes:
    """A pull of the slave that waits for messages."""
    return wire_bench.frame(PULL, queue, {
        "consumerGroup": "ha_bench", "topic": TOPIC, "queueId": str(queue),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG"}, b"", False)


def wait_for_topic(pair: Pair) -> None:
    """Wait until the slave knows the topic: Apache's copies topics each minute."""
    deadline = time.monotonic() + PATIENCE
    with socket.create_connection(("127.0.0.1", pair.slave_port)) as link:
        found = replies(link)
        while True:
            link.sendall(held_pull(0, 0))
            if next(found)[0]["code"] == SUCCESS:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{pair.name}: the slave has no topic after {PATIENCE} s")
            time.sleep(0.2)


def queue_ends(pair: Pair) -> list[int]:
    """The ends of the queues at the slave."""
    with socket.create_connection(("127.0.0.1", pair.slave_port)) as link:
        for queue in range(QUEUES):
            link.sendall(wire_bench.frame(30, queue, {
                "topic": TOPIC, "queueId": str(queue)}, b"", False))
        found = replies(link)
        return [int(next(found)[0]["offset"]) for _ in range(QUEUES)]


def send_at_rate(pair: Pair, rate: int, seconds: float) -> None:
    """Send messages with the time of their send in the body."""
    with socket.create_connection(("127.0.0.1", pair.master_port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=drain, args=(link,), daemon=True).start()
        begin = time.monotonic()
        sent, count = 0, int(rate * seconds)
        while sent < count:
            due = min(int((time.monotonic() - begin) * rate) + 1, count)
            if due > sent:
                stamp = MARK + f"{time.time():018.6f}".encode().ljust(124, b"x")
                link.sendall(b"".join(
                    wire_bench.frame(310, number, {
                        "a": "ha_bench", "b": TOPIC, "c": "TBW102", "d": "4",
                        "e": str(number % QUEUES), "f": "0", "g": "1", "h": "0", "i": "", "j": "0",
                        "k": "false", "l": "0", "m": "false"}, stamp, False)
                    for number in range(sent, due)))
                sent = due
            time.sleep(0.001)
        time.sleep(1)  # the last replies


def drain(link: socket.socket) -> None:
    """Read over the replies."""
    with contextlib.suppress(OSError):
        while link.recv(1 << 18):
            pass


@contextlib.contextmanager
def answers_of(pair: Pair) -> Iterator[list[float]]:
    """How long the slave took to answer each request while the block ran, ms; 50 a second."""
    taken: list[float] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            begin = time.monotonic()
            if pair.slave_end(-1) >= 0:
                taken.append((time.monotonic() - begin) * 1000)

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield taken
    finally:
        is_over.set()
        watch.join()


def catch_up(pairs: Sequence[Pair], arguments: argparse.Namespace) -> None:
    """A slave that was away, the master's rate meanwhile, and the slave's answers; in turn."""
    found: dict[str, list[dict[str, float]]] = {pair.name: [] for pair in pairs}
    with with_pairs(pairs):
        start_slaves(pairs)
        warm(pairs, "catch-up", given_load(window=32, size=4096), arguments.seconds)
        for number in range(CATCH_UPS):
            for pair in pairs[::-1] if number % 2 else pairs:
                found[pair.name].append(catch_up_once(pair, arguments.mebibytes))
    for pair in pairs:
        rounds = found[pair.name]
        pair.values |= {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        speeds = [each["catch-up"] for each in rounds]
        pair.values |= {"catch-up slowest": min(speeds), "catch-up fastest": max(speeds)}


def catch_up_once(pair: Pair, mebibytes: int) -> dict[str, float]:
    """Let the slave be away for so many MiB; :returns: the figures of its return."""
    given = given_load(window=32, size=4096)
    pair.stop_slave()
    behind = pair.log_end(pair.master_port)
    rates, costs = [], []
    while pair.log_end(pair.master_port) - behind < mebibytes << 20:
        rate, cost, bad, _ = wire_bench.send_round(pair.endpoint(), given, 3)
        rates.append(rate)
        costs.append(cost)
        pair.bad += bad
    before = pair.log_end(pair.master_port)
    begin = time.monotonic()
    pair.start_slave()
    start = time.monotonic()
    while (at := pair.slave_end(behind)) == behind:
        start = time.monotonic()
        time.sleep(0.01)
    first = at
    with answers_of(pair) as answers:
        used = wire_bench.cpu_seconds([pair.master_pid])
        meanwhile, _, bad, _ = wire_bench.send_round(pair.endpoint(), given, 3)
        used = wire_bench.cpu_seconds([pair.master_pid]) - used
        pair.bad += bad
        while (at := pair.slave_end(behind)) < before:
            if time.monotonic() - begin > 10 * PATIENCE:
                raise SystemExit(f"{pair.name}: the slave stands at {at} of {before}")
            time.sleep(0.05)
        took = time.monotonic() - start
    answers.sort()
    values = {
        "answers p50": answers[len(answers) // 2],
        "answers p99": answers[len(answers) * 99 // 100],
        "catch-up": (at - first) / took / (1 << 20),
        "meanwhile": meanwhile / statistics.median(rates),
        "before cpu": statistics.median(costs),
        "meanwhile cpu": used / (3 * meanwhile) * 1e6,
    }
    values["meanwhile kept"] = values["before cpu"] / values["meanwhile cpu"]
    print(f"catch-up {pair.name:<8} {values['catch-up']:.0f} MiB/s, the master at "
          f"{values['meanwhile']:.2f} of its rate, {values['meanwhile kept']:.2f} by its CPU",
          flush=True)
    pair.wait_for_slave()
    pair.stop_slave()
    return values


PARTS = {"asynchronous": asynchronous, "synchronous": synchronous, "single": single,
         "mixed": mixed, "lag": lag, "catch-up": catch_up}
#: Text, key, form, the bound of ours / Apache's.
ROWS = (
    ("master alone, msg/s", "alone rate", ",.0f", ""),
    ("master with a live slave, msg/s", "with a slave rate", ",.0f", ">= 1.0x"),
    ("with a live slave / alone", "kept", ".2f", ">= 0.85 of ours"),
    ("alone beside a process that only runs, msg/s", "beside a busy process rate", ",.0f", ""),
    ("with a live slave / alone beside such a process", "kept busy", ".2f", ">= 0.85 of ours"),
    ("CPU of both per message, us", "with a slave cpu", ".2f", "<= 0.7x"),
    ("CPU of the master per message, alone, us", "alone master cpu", ".2f", ""),
    ("the least of a round", "alone master cpu, least", ".2f", ""),
    ("the most of a round", "alone master cpu, most", ".2f", ""),
    ("CPU of the master per message, with a live slave, us", "with a slave master cpu", ".2f", ""),
    ("the least of a round", "with a slave master cpu, least", ".2f", ""),
    ("the most of a round", "with a slave master cpu, most", ".2f", ""),
    ("alone / with a live slave, by the master's CPU", "kept cpu", ".2f", ">= 0.85 of ours"),
    ("SYNC_MASTER, 256 in flight, msg/s", "synchronous rate", ",.0f", ">= 1.2x"),
    ("SYNC_MASTER, CPU of both per message, us", "synchronous cpu", ".2f", ""),
    ("SYNC_MASTER, one at a time, ms", "single ms", ".2f", "<= 1.0x"),
    ("our master, Apache's slave, 256 in flight, msg/s", "our master rate", ",.0f", ">= 0.9x"),
    ("our slave, Apache's master, 256 in flight, msg/s", "our slave rate", ",.0f", ">= 0.9x"),
    ("under full load the slave lacks at most, MiB", "behind", ".1f", "< 8 of ours"),
    ("all is at the slave after the load, s", "behind s", ".2f", "<= 2 of ours"),
    ("lag p50, ms", "lag p50", ".1f", ""),
    ("lag p99, ms", "lag p99", ".1f", "<= 20 ms"),
    ("catch-up, MiB/s", "catch-up", ",.0f", ">= 0.8x"),
    ("slowest of five copies, MiB/s", "catch-up slowest", ",.0f", ""),
    ("fastest of five copies, MiB/s", "catch-up fastest", ",.0f", ""),
    ("master's rate during the copy / before", "meanwhile", ".2f", ">= 0.80 of ours"),
    ("master's CPU a message before / during the copy", "meanwhile kept", ".2f", ">= 0.80 of ours"),
    ("CPU of the master per message of 4 KiB before, us", "before cpu", ".2f", ""),
    ("CPU of the master per message of 4 KiB during and with the copy, us", "meanwhile cpu",
     ".2f", ""),
    ("response time of the slave during the copy, p50, ms", "answers p50", ".1f", ""),
    ("response time of the slave during the copy, p99, ms", "answers p99", ".1f", "<= 50 of ours"),
)


def print_table(pairs: Sequence[Pair]) -> None:
    """A Markdown table of what was measured."""
    ours, theirs = pairs
    for pair in pairs:
        if "alone rate" in pair.values:
            pair.values["kept"] = pair.values["with a slave rate"] / pair.values["alone rate"]
            pair.values["kept busy"] = (
                pair.values["with a slave rate"] / pair.values["beside a busy process rate"])
            pair.values["kept cpu"] = (
                pair.values["alone master cpu"] / pair.values["with a slave master cpu"])
    print_ratios(ROWS, (OURS, APACHE), ours.values, theirs.values)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(PARTS))
    parser.add_argument("--apache", default="5.3.3", help="the release to compare with")
    parser.add_argument("--seconds", type=float, default=8, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second of `lag`")
    parser.add_argument("--mebibytes", type=int, default=2048, help="of `catch-up`")
    parser.add_argument("--port", type=int, default=PORT_FIRST)
    parser.add_argument("--keep", type=Path, help="a folder for stores and logs, kept afterwards")
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    version = subprocess.run([arguments.twistmq, "--version"], text=True, capture_output=True,
                             check=True).stdout.strip()
    print(f"{version}; {os.cpu_count()} cores, Python {sys.version.split()[0]}, "
          f"load {os.getloadavg()[0]:.1f}", flush=True)
    with contextlib.ExitStack() as stack:
        root = arguments.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-bench-")))
        values: dict[str, dict[str, float]] = {OURS: {}, APACHE: {}}
        bad = 0
        pairs: list[Pair] = []
        for number, what in enumerate(arguments.what or PARTS):
            port = arguments.port + 120 * number
            pairs = [Pair(name, root / what / name, port + 30 * at, (name, name), arguments)
                     for at, name in enumerate(values)]
            for pair in pairs:
                pair.folder.mkdir(parents=True)
            for pair in pairs:
                pair.values = values[pair.name]
            PARTS[what](pairs, arguments)
            bad += sum(pair.bad for pair in pairs)
        print_table(pairs)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
