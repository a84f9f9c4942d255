#!/usr/bin/env python3
"""A group of three of ours beside groups of three of Apache's (DLedger), in one run.

  dledger_bench.py [sends] [batch] [mixed] [kills] [cuts] [idle]      all when none is named
      [--twistmq .venv/bin/twistmq] [--apache 5.5.0] [--seconds 8] [--rounds 5] [--kills 10]
      [--idle 120] [--keep DIR]

sends   4 x 64 sends in flight to the leader, then one send at a time; Apache's brokers have the
        defaults of their group
batch   the same 4 x 64 in flight; Apache's brokers have enableBatchPush=true
mixed   the same 4 x 64 in flight to a leader of Apache's, which has one follower of Apache's and
        one of ours in the first group, and two of Apache's in the second one; with the defaults
kills   from the end of the leader's process (kill -9) to the next accepted send, so many times in
        each group; ours once with its defaults and once with dledger.quick_failover=true. The
        dead broker is started again and has the whole log before the next kill
cuts    from the moment at which the leader no longer reaches the other two brokers, nor they it, to
        the next accepted send; as many times in each group. Clients reach all three brokers. The
        brokers reach each other through relays (tests/long/dledger_relay.py) in both groups. After
        the cut, an accepted send counts only if the log of the whole group has its message
idle    CPU and memory of a member of a group without producers, over so many seconds; and the same
        of a broker of ours that is not in a group

CPU is counted for all three brokers, and for the leader. In `sends`, `batch` and `mixed` rounds
alternate, another group first each time, once both are warm for that load (warm_up.py); the table
has medians. In `kills` and `cuts` one group runs at a time, because what is measured is mostly time
that passes without work. A send is offered to each living broker every few milliseconds, so this is
the time of the group; a client adds the time until it knows the new leader. The exit status is 1
when a group with a broker of ours refused a request that it should have accepted, lost a message,
or did not come back. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import wire_bench
from acceptances import Acceptance, first_kept
from bench_servers import PATIENT, Values, anonymous_mb, parser_of, print_ratios
from ha_bench import COMMON, RUNTIME_INFO, SUCCESS, OurServer, given_load, replies
from warm_up import ROUND_SECONDS, warm_up

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))
from peer import Peer

from tests.long.dledger_relay import CALM, Relays, Weather

#: The first of the ports; each group takes its own hundred.
PORT_FIRST = 26_100
PORTS_OF_GROUP = 100
TOPIC, QUEUES, MEMBERS = "DLedgerBench", 4, 3
#: The bytes of a message that is offered.
BODY_SIZE = 128
#: How long anything may take that is waited for, seconds.
PATIENCE = 120.0
#: Between two offers of a send to a broker that refused the last one, seconds.
OFFER_SECONDS = 0.005
#: How long a broker may take to answer an offer, seconds: a group without a majority takes 2.5 s.
ANSWER_SECONDS = 4.0
#: How long a group is left alone before a kill, seconds. The leader's heartbeat takes 2 s, so the
#: kills are spread over it.
REST_SECONDS = (2.0, 4.0)
OURS, APACHE = "twistmq", "Apache"
#: The remoting code of a request for a message by its offset.
VIEW_MESSAGE = 33
QUICK = ("dledger.quick_failover=true",)
BATCH = ("enableBatchPush=true",)
#: The first member leads.
FIRST_LEADS = ("preferredLeaderId=n0",)


class Member:
    """A broker of a group, which can be killed and started again.

    :param port: its port for clients; the next but one is that for members.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    @property
    def peer_port(self) -> int:
        return self.port + 2

    @property
    def pid(self) -> int:
        raise NotImplementedError

    def start(self) -> None:
        """Start it; return when it listens."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop it, if it runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """End its process at once, and return when it has ended."""
        raise NotImplementedError

    def log_end(self) -> int:
        """Where its log ends for readers; -1 while it does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10) as link:
                link.sendall(wire_bench.frame(RUNTIME_INFO, 1, {}, b"", False))
                header, body = next(replies(link))
        except (OSError, SystemExit):
            return -1
        if header["code"] != SUCCESS:
            return -1
        return int(body.partition(b'"commitLogMaxOffset":"')[2].partition(b'"')[0])


class OurMember(Member):
    """A broker of ours."""

    def __init__(self, folder: Path, port: int, program: str, settings: dict[str, str]) -> None:
        super().__init__(folder, port)
        self._program = program
        self._settings = settings
        self._server: OurServer | None = None

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        words = ["broker", "bindAddress=127.0.0.1", f"storePathRootDir={self.folder}/store",
                 *(f"{key}={value}" for key, value in self._settings.items())]
        self._server = OurServer(self._program, words, self.folder / "out", self.port)

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def kill(self) -> None:
        server, self._server = self._server, None
        assert server is not None
        server.kill()


class ApacheMember(Member):
    """A broker of Apache's."""

    def __init__(self, folder: Path, port: int, version: str, settings: dict[str, str]) -> None:
        super().__init__(folder, port)
        self._peer = Peer(folder, version, broker_port=port, with_namesrv=False,
                          namesrv_address=settings["namesrvAddr"], settings=settings,
                          short_lived=False)

    @property
    def pid(self) -> int:
        return self._peer.processes["broker"].pid

    def start(self) -> None:
        self._peer.start_broker()

    def stop(self) -> None:
        self._peer.stop_one("broker")

    def kill(self) -> None:
        self._peer.stop_one("broker", kill=True)


class Group:
    """A name server and three brokers of one name.

    :param kind: ``OURS`` or ``APACHE``: the column of its values.
    :param port: the first of its ports; the name server's.
    :param settings: of all three brokers.
    :param kinds: of the three brokers; all are of the kind of the group by default. The name server
        is of the kind of the first one.
    :param has_relays: whether the brokers reach each other through relays.
    """

    def __init__(
        self, name: str, kind: str, folder: Path, port: int, arguments: argparse.Namespace,
        settings: Sequence[str] = (), kinds: Sequence[str] = (), *, has_relays: bool = False,
    ) -> None:
        self.name, self.kind, self.folder, self.port = name, kind, folder, port
        self._program: str = arguments.twistmq
        self._version: str = arguments.apache
        self._kinds = kinds or [kind] * MEMBERS
        #: Whether it counts as a failure that the first broker does not lead.
        self._is_first_leader = FIRST_LEADS[0] in settings
        self.values: Values = {}
        self.bad = 0
        self._stack = contextlib.ExitStack()
        ports = [port + 10 * number for number in range(1, MEMBERS + 1)]
        self._peer_ports = {f"n{number}": each + 2 for number, each in enumerate(ports)}
        self.relays = Relays(self._peer_ports) if has_relays else None
        self.members = [self._member(number, each, settings) for number, each in enumerate(ports)]

    def _peers(self, member: str) -> str:
        """Return the setting dLegerPeers of a broker."""
        ports = self.relays.ports_for(member) if self.relays else self._peer_ports
        return ";".join(f"{each}-127.0.0.1:{port}" for each, port in ports.items())

    def _member(self, number: int, port: int, more: Sequence[str]) -> Member:
        settings = {
            "brokerName": "group", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
            "listenPort": str(port), "haListenPort": str(port + 1),
            "namesrvAddr": f"127.0.0.1:{self.port}", **PATIENT,
            "enableDLegerCommitLog": "true", "dLegerGroup": "group",
            "dLegerPeers": self._peers(f"n{number}"), "dLegerSelfId": f"n{number}",
            **dict(pair.split("=", 1) for pair in (*COMMON, *more))}
        folder = self.folder / f"n{number}"
        if self._kinds[number] == OURS:
            return OurMember(folder, port, self._program, settings)
        return ApacheMember(folder, port, self._version, settings)

    def start(self) -> None:
        """Start all, and wait for a leader that accepts a send."""
        self.folder.mkdir(parents=True)
        if self.relays is not None:
            self._stack.enter_context(self.relays)
        if self._kinds[0] == OURS:
            server = OurServer(
                self._program, ("namesrv", f"listenPort={self.port}", "bindAddress=127.0.0.1",
                                f"kvConfigPath={self.folder}/kv.json"),
                self.folder / "out", self.port)
            self._stack.callback(server.stop)
        else:
            peer = Peer(self.folder / "namesrv", self._version, self.port, short_lived=False)
            self._stack.callback(peer.stop_one, "namesrv")
            peer.start_namesrv()
        for member in self.members:
            self._stack.callback(member.stop)
            member.start()
        self.find_leader()
        self.wait_until_whole()

    def stop(self) -> None:
        """Stop all."""
        self._stack.close()

    def find_leader(self) -> Member:
        """Wait for the broker that accepts a send, which is the first one if it should lead."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for member in self.members[:1] if self._is_first_leader else self.members:
                with contextlib.suppress(OSError, SystemExit), Offer(member.port) as offer:
                    if offer.is_accepted():
                        return member
            time.sleep(0.05)
        raise SystemExit(f"{self.name}: no broker accepts a send after {PATIENCE} s; see "
                         f"{self.folder}")

    def wait_until_whole(self) -> bool:
        """Wait until all brokers have the same log; :returns: False when that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ends = {member.log_end() for member in self.members}
            if len(ends) == 1 and ends != {-1}:
                return True
            time.sleep(0.05)
        print(f"{self.name}: the brokers have other logs after {PATIENCE} s: "
              f"{[member.log_end() for member in self.members]}", file=sys.stderr, flush=True)
        return False

    def cut_off(self, member: Member) -> None:
        """Cut all connections between a broker and the other two, in both directions."""
        self._set_weather(member, Weather(is_cut=True))

    def join_again(self, member: Member) -> None:
        """Connect a broker with the other two again."""
        self._set_weather(member, CALM)

    def _set_weather(self, member: Member, weather: Weather) -> None:
        assert self.relays is not None
        name = f"n{self.members.index(member)}"
        for direction in self.relays.weather:
            if name in direction:
                self.relays.weather[direction] = weather

    def endpoint(self) -> wire_bench.Endpoint:
        """The leader, with the CPU of all brokers."""
        pids = "+".join(str(member.pid) for member in self.members)
        return wire_bench.Endpoint(f"{self.name}=127.0.0.1:{self.find_leader().port}:{pids}")


class Offer:
    """A connection over which one send at a time is offered to a broker.

    :raises OSError: when the broker does not listen.
    """

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = replies(self._link)
        self._number = 0

    def __enter__(self) -> Offer:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def is_accepted(self) -> bool:
        """Send one message; :returns: whether the broker accepted it.

        :raises OSError: when the broker does not answer.
        :raises SystemExit: when it closes the connection.
        """
        return bool(self._ask(self._frame())[0]["code"] == SUCCESS)

    def accepted(self, name: str) -> Acceptance | None:
        """Send one message; :returns: None if the broker did not accept it.

        :param name: of the broker.
        :raises OSError, SystemExit: as ``is_accepted`` does.
        """
        sent = self._frame(binary=False)
        header, _ = self._ask(sent)
        if header["code"] != SUCCESS:
            return None
        return Acceptance(time.monotonic(), name, header["msgId"], sent[-BODY_SIZE:])

    def view(self, offset: int) -> bytes:
        """Return the record at an offset of the log; empty if the broker shows none there.

        :raises OSError, SystemExit: as ``is_accepted`` does.
        """
        header, record = self._ask(
            wire_bench.frame(VIEW_MESSAGE, 1, {"offset": str(offset)}, b"", False))
        return record if header["code"] == SUCCESS else b""

    def _frame(self, *, binary: bool = True) -> bytes:
        self._number += 1
        return wire_bench.send_frame(
            TOPIC, self._number, self._number % QUEUES, BODY_SIZE, binary)

    def _ask(self, sent: bytes) -> tuple[dict[str, Any], bytes]:
        self._link.sendall(sent)
        return next(self._replies)


@contextlib.contextmanager
def with_groups(*groups: Group) -> Iterator[None]:
    """Start the groups; all is stopped behind the block."""
    with contextlib.ExitStack() as stack:
        for group in groups:
            stack.callback(group.stop)
            group.start()
        yield


# --- sends

def send_rounds(
    groups: Sequence[Group], row: str, arguments: argparse.Namespace, **options: object
) -> None:
    """Sends to each leader in turn; medians go to the values, with the extremes of the rounds."""
    given = given_load(topic=TOPIC, queues=QUEUES, **options)
    rounds: dict[str, list[tuple[float, float, float]]] = {group.name: [] for group in groups}

    def cpu_of(group: Group) -> Values:
        seconds = max(arguments.seconds, ROUND_SECONDS)
        return {"us": wire_bench.send_round(group.endpoint(), given, seconds)[1]}

    warm_up(row, {group.name: partial(cpu_of, group) for group in groups}, arguments.warm_ups)
    for number in range(arguments.rounds):
        for group in groups[::-1] if number % 2 else groups:
            leader = group.find_leader()
            before = wire_bench.cpu_seconds([leader.pid])
            rate, cpu, bad, first = wire_bench.send_round(
                group.endpoint(), given, arguments.seconds)
            used = wire_bench.cpu_seconds([leader.pid]) - before
            group.bad += bad
            if bad:
                print(f"{group.name}: {bad} refused: {first}", file=sys.stderr, flush=True)
            rounds[group.name].append((rate, cpu, used / rate / arguments.seconds * 1e6))
            print(f"{row:<8} {group.name:<8} {rate:>10,.1f}/s {cpu:8.2f} us", flush=True)
    for group in groups:
        for what, figures in zip(("rate", "cpu", "leader cpu"),
                                 zip(*rounds[group.name], strict=True), strict=True):
            add_figures(group, f"{row} {what}", figures)


def add_figures(group: Group, key: str, figures: Sequence[float]) -> None:
    """Add the median of rounds to the values of a group, and the least and the most."""
    group.values |= {key: statistics.median(figures), f"{key}, least": min(figures),
                     f"{key}, most": max(figures)}


def single_rounds(groups: Sequence[Group], arguments: argparse.Namespace) -> None:
    """One send at a time to each leader in turn: how long an answer takes, ms."""
    rounds: dict[str, list[tuple[float, float]]] = {group.name: [] for group in groups}

    def latency_of(group: Group) -> Values:
        times = single_round(group, max(arguments.seconds, ROUND_SECONDS))
        return {"p50 ms": times[len(times) // 2]}

    warm_up("single", {group.name: partial(latency_of, group) for group in groups},
            arguments.warm_ups)
    for number in range(arguments.rounds):
        for group in groups[::-1] if number % 2 else groups:
            times = single_round(group, arguments.seconds)
            p50, p99 = (times[len(times) * part // 100] for part in (50, 99))
            rounds[group.name].append((p50, p99))
            print(f"single   {group.name:<8} {len(times):,} sends, p50 {p50:.3f} ms, "
                  f"p99 {p99:.3f} ms", flush=True)
    for group in groups:
        for part, figures in zip((50, 99), zip(*rounds[group.name], strict=True), strict=True):
            add_figures(group, f"single p{part}", figures)


def single_round(group: Group, seconds: float) -> list[float]:
    """:returns: the time of each send, ms, in ascending order."""
    times = []
    with Offer(group.find_leader().port) as offer:
        now = time.monotonic()
        end = now + seconds
        while now < end:
            group.bad += not offer.is_accepted()
            before, now = now, time.monotonic()
            times.append((now - before) * 1000)
    return sorted(times)


def sends(arguments: argparse.Namespace, folder: Path, port: int) -> list[Group]:
    """Sends beside a group of Apache's with its defaults."""
    groups = pair_of_groups(arguments, folder, port, ())
    with with_groups(*groups):
        send_rounds(groups, "sends", arguments)
        single_rounds(groups, arguments)
    return groups


def batch(arguments: argparse.Namespace, folder: Path, port: int) -> list[Group]:
    """Sends beside a group of Apache's that pushes several entries together."""
    groups = pair_of_groups(arguments, folder, port, BATCH)
    with with_groups(*groups):
        send_rounds(groups, "batch", arguments)
    return groups


def mixed(arguments: argparse.Namespace, folder: Path, port: int) -> list[Group]:
    """Sends to a leader of Apache's, in a group with one follower of ours and in one without."""
    groups = [Group("J+J+O", OURS, folder / "JJO", port, arguments, FIRST_LEADS,
                    (APACHE, APACHE, OURS)),
              Group("J+J+J", APACHE, folder / "JJJ", port + PORTS_OF_GROUP, arguments,
                    FIRST_LEADS)]
    with with_groups(*groups):
        send_rounds(groups, "mixed", arguments)
    return groups


def pair_of_groups(
    arguments: argparse.Namespace, folder: Path, port: int, theirs: Sequence[str]
) -> list[Group]:
    """A group of ours, and one of Apache's with more settings."""
    return [Group(OURS, OURS, folder / OURS, port, arguments),
            Group(APACHE, APACHE, folder / APACHE, port + PORTS_OF_GROUP, arguments, theirs)]


# --- kills

def kills(arguments: argparse.Namespace, folder: Path, port: int) -> list[Group]:
    """Kills of the leader, in one group after the other."""
    groups = [Group(OURS, OURS, folder / "defaults", port, arguments),
              Group(OURS, OURS, folder / "quick", port + PORTS_OF_GROUP, arguments, QUICK),
              Group(APACHE, APACHE, folder / APACHE, port + 2 * PORTS_OF_GROUP, arguments)]
    for group, row in zip(groups, ("kill", "quick", "kill"), strict=True):
        with with_groups(group):
            took = [kill_once(group, row) for _ in range(arguments.kills)]
        add_figures(group, row, took)
    theirs = groups[-1].values
    # One group of Apache's is beside both of ours.
    groups[-1].values = theirs | {
        key.replace("kill", "quick", 1): value for key, value in theirs.items()}
    return groups


def kill_once(group: Group, row: str) -> float:
    """Kill the leader; :returns: the time until a broker accepts a send, s."""
    leader = group.find_leader()
    time.sleep(random.uniform(*REST_SECONDS))
    others = [member for member in group.members if member is not leader]
    accepted = threading.Event()
    threads = [threading.Thread(target=offer_until, args=(member, accepted), daemon=True)
               for member in others]
    begin = time.monotonic()
    leader.kill()
    for thread in threads:
        thread.start()
    if not accepted.wait(PATIENCE):
        raise SystemExit(f"{group.name}: no broker accepts a send {PATIENCE} s after a kill; see "
                         f"{group.folder}")
    took = time.monotonic() - begin
    for thread in threads:
        thread.join()
    leader.start()
    if not group.wait_until_whole() and group.kind == OURS:
        group.bad += 1
    print(f"{row:<8} {group.name:<8} {took:.2f} s", flush=True)
    return took


def offer_until(member: Member, accepted: threading.Event) -> None:
    """Offer sends to a broker until one broker has accepted one."""
    while not accepted.is_set():
        with contextlib.suppress(OSError, SystemExit), Offer(member.port) as offer:
            while not accepted.is_set():
                if offer.is_accepted():
                    accepted.set()
                time.sleep(OFFER_SECONDS)
        time.sleep(OFFER_SECONDS)


# --- cuts

def cuts(arguments: argparse.Namespace, folder: Path, port: int) -> list[Group]:
    """Cuts of the leader from the other brokers, in one group after the other."""
    groups = [Group(kind, kind, folder / kind, port + number * PORTS_OF_GROUP, arguments,
                    has_relays=True) for number, kind in enumerate((OURS, APACHE))]
    for group in groups:
        with with_groups(group):
            took = [cut_once(group) for _ in range(arguments.kills)]
        add_figures(group, "cut", took)
    return groups


def cut_once(group: Group) -> float:
    """Cut the leader off; :returns: the time until a send is accepted that the group keeps, s."""
    leader = group.find_leader()
    time.sleep(random.uniform(*REST_SECONDS))
    accepted: list[Acceptance] = []
    over = threading.Event()
    threads = [threading.Thread(target=collect_until, args=(
        member, f"n{number}", accepted, over, member is not leader), daemon=True)
        for number, member in enumerate(group.members)]
    begin = time.monotonic()
    group.cut_off(leader)
    for thread in threads:
        thread.start()
    if not over.wait(PATIENCE):
        raise SystemExit(f"{group.name}: no other broker accepts a send {PATIENCE} s after the "
                         f"leader is cut off; see {group.folder}")
    for thread in threads:
        thread.join()
    group.join_again(leader)
    is_whole = group.wait_until_whole()
    first, lost = first_kept(accepted, lambda each: is_kept(group, each))
    for each in lost:
        print(f"{group.name}: {each.name} accepted {each.message_id}, and the log does not have "
              "it", file=sys.stderr, flush=True)
    if not is_whole or lost or first is None:
        group.bad += 1
    took = (accepted[-1] if first is None else first).moment - begin
    print(f"cut      {group.name:<8} {took:.2f} s, {len(lost)} of {len(accepted)} accepted sends "
          "lost", flush=True)
    return took


def collect_until(
    member: Member, name: str, accepted: list[Acceptance], over: threading.Event, ends: bool
) -> None:
    """Offer sends to a broker until an end, and collect those that it accepted.

    :param ends: whether its first acceptance is the end.
    """
    while not over.is_set():
        with contextlib.suppress(OSError, SystemExit), Offer(member.port) as offer:
            while not over.is_set():
                acceptance = offer.accepted(name)
                if acceptance is not None:
                    accepted.append(acceptance)
                    if ends:
                        over.set()
                time.sleep(OFFER_SECONDS)
        time.sleep(OFFER_SECONDS)


def is_kept(group: Group, acceptance: Acceptance) -> bool:
    """Return whether the leader shows the message of a send that some broker has accepted."""
    with Offer(group.find_leader().port) as offer:
        return acceptance.body in offer.view(acceptance.offset)


# --- idle

class PlainGroup(Group):
    """One broker of ours that is in no group, with a name server."""

    def __init__(
        self, name: str, kind: str, folder: Path, port: int, arguments: argparse.Namespace
    ) -> None:
        super().__init__(name, kind, folder, port, arguments, ("enableDLegerCommitLog=false",))
        del self.members[1:]


def idle(arguments: argparse.Namespace, folder: Path, port: int) -> list[Group]:
    """Groups that do nothing, one after the other."""
    groups = pair_of_groups(arguments, folder, port, ())
    plain = PlainGroup("plain", OURS, folder / "plain", port + 2 * PORTS_OF_GROUP, arguments)
    for group in (*groups, plain):
        with with_groups(group):
            time.sleep(REST_SECONDS[1])
            pids = [member.pid for member in group.members]
            before = wire_bench.cpu_seconds(pids)
            time.sleep(arguments.idle)
            used = wire_bench.cpu_seconds(pids) - before
            group.values["idle cpu"] = used / arguments.idle / len(pids) * 100
            group.values["idle memory"] = anonymous_mb(pids) / len(pids)
        print(f"idle     {group.name:<8} {group.values['idle cpu']:.2f} %, "
              f"{group.values['idle memory']:.1f} MB", flush=True)
    for group in groups:
        # The plain broker is beside both.
        group.values |= {f"plain {key}": value for key, value in plain.values.items()}
    return groups


PARTS = {"sends": sends, "batch": batch, "mixed": mixed, "kills": kills, "cuts": cuts, "idle": idle}
#: Text, key, form, the bound of ours / Apache's.
ROWS = (
    ("256 in flight, msg/s", "sends rate", ",.0f", ">= 1.5x"),
    ("the least of a round", "sends rate, least", ",.0f", ""),
    ("the most of a round", "sends rate, most", ",.0f", ""),
    ("CPU of all three per message, us", "sends cpu", ".2f", "<= 0.7x"),
    ("the least of a round", "sends cpu, least", ".2f", ""),
    ("the most of a round", "sends cpu, most", ".2f", ""),
    ("CPU of the leader per message, us", "sends leader cpu", ".2f", ""),
    ("Apache's with enableBatchPush: 256 in flight, msg/s", "batch rate", ",.0f", ">= 1.0x"),
    ("the least of a round", "batch rate, least", ",.0f", ""),
    ("the most of a round", "batch rate, most", ",.0f", ""),
    ("CPU of all three per message, us", "batch cpu", ".2f", ""),
    ("CPU of the leader per message, us", "batch leader cpu", ".2f", ""),
    ("J+J+O beside J+J+J, led by Apache's: 256 in flight, msg/s", "mixed rate", ",.0f",
     ">= 0.95x"),
    ("the least of a round", "mixed rate, least", ",.0f", ""),
    ("the most of a round", "mixed rate, most", ",.0f", ""),
    ("CPU of all three per message, us", "mixed cpu", ".2f", ""),
    ("CPU of the leader per message, us", "mixed leader cpu", ".2f", ""),
    ("one send at a time, p50, ms", "single p50", ".3f", "<= 1.0x"),
    ("the least of a round", "single p50, least", ".3f", ""),
    ("the most of a round", "single p50, most", ".3f", ""),
    ("one send at a time, p99, ms", "single p99", ".3f", "<= 1.0x"),
    ("the least of a round", "single p99, least", ".3f", ""),
    ("the most of a round", "single p99, most", ".3f", ""),
    ("kill -9 of the leader until the next accepted send, median, s", "kill", ".2f", "<= 1.0x"),
    ("the shortest", "kill, least", ".2f", ""),
    ("the longest", "kill, most", ".2f", "<= 10 of ours"),
    ("ours with dledger.quick_failover, median, s", "quick", ".2f", "<= 2 of ours"),
    ("the shortest", "quick, least", ".2f", ""),
    ("the longest", "quick, most", ".2f", ""),
    ("the leader is cut off until the next accepted send, median, s", "cut", ".2f", "<= 1.0x"),
    ("the shortest", "cut, least", ".2f", ""),
    ("the longest", "cut, most", ".2f", ""),
    ("an idle member, CPU, % of a core", "idle cpu", ".2f", "<= 0.5 of ours"),
    ("an idle broker of ours in no group, CPU, % of a core", "plain idle cpu", ".2f", ""),
    ("an idle member, anonymous memory, MB", "idle memory", ".1f", "+ 10 of ours"),
    ("an idle broker of ours in no group, anonymous memory, MB", "plain idle memory", ".1f", ""),
)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(PARTS))
    parser.add_argument("--apache", default="5.5.0", help="the release to compare with")
    parser.add_argument("--seconds", type=float, default=8, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10,
                        help="of the leader in each group, and as many cuts")
    parser.add_argument("--idle", type=float, default=120, help="seconds of `idle`")
    parser.add_argument("--warm-ups", type=int, default=20, help="the most rounds of a warm-up")
    parser.add_argument("--port", type=int, default=PORT_FIRST)
    parser.add_argument("--keep", type=Path, help="a folder for stores and logs, kept afterwards")
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    version = subprocess.run([arguments.twistmq, "--version"], text=True, capture_output=True,
                             check=True).stdout.strip()
    print(f"{version}; Apache {arguments.apache}; {os.cpu_count()} cores, Python "
          f"{sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # all servers are stopped
    values: dict[str, Values] = {OURS: {}, APACHE: {}}
    bad = 0
    with contextlib.ExitStack() as stack:
        root = arguments.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-bench-")))
        for number, what in enumerate(arguments.what or PARTS):
            port = arguments.port + 3 * PORTS_OF_GROUP * number
            for group in PARTS[what](arguments, root / what, port):
                values[group.kind] |= group.values
                bad += group.bad if group.kind == OURS else 0
        print_ratios(ROWS, (OURS, APACHE), values[OURS], values[APACHE])
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
