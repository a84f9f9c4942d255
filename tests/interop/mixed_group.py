"""A group with Apache's members and ours, which join, leave and are killed under load.

    group = MixedGroup(*both_brokers(folder, stack))
    change_often(group, random.Random(1), 20)
    group.finish()
    assert faults_of(group) == []

Each member has two consumers: one of the group ``CONCURRENT``, one of ``ORDERLY``, which keeps
order. ``java/GroupMember.java`` and ``group_member.py`` are the programs. A producer of ours sends
to both topics all the time.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.clients import HERE, go_program
from tests.interop.java_process import JavaProcess, LineProcess
from tests.interop.peer import Peer
from tests.interop.ports import free_port
from tests.interop.servers import servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.client import Client, Message, NoRoute, Producer
from twistmq.protocol.bodies import ConsumerConnection
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.client import GetConsumerConnectionListRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

__all__ = ["CONCURRENT", "GO", "ORDERLY", "OURS", "QUEUES", "MixedGroup", "Work", "both_brokers",
           "change_often", "copies", "faults_of", "order_faults", "overlaps"]

CONCURRENT, ORDERLY, OURS, GO = "MixedConcurrent", "MixedOrderly", "ours", "go"
#: Queues of a topic at each broker.
QUEUES: Final = 8
#: Brokers keep a lock for so long that members who renew it each 20 s do not lose it, ms.
LOCK_MS: Final = 30_000
#: How often members commit, with what it takes, ms: later results of a killed one are unknown.
COMMIT_MS: Final = 6000
#: How long after it took a queue a member of ours looks where it begins, with doubt, ms.
SETTLE_MS: Final = 400
#: A member tells a lost queue so late at most, on a busy machine, ms.
TOLD_MS: Final = 1000
Queue = tuple[str, int]


class Work(NamedTuple):
    """A member's turn with a message; times are Unix ms."""

    begin_ms: int
    #: None: it was killed meanwhile.
    end_ms: int | None
    member: str
    offset: int
    body: str


class _Feed(threading.Thread):
    """Sends to both topics until it is stopped."""

    def __init__(self, namesrv: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._namesrv = namesrv
        self._pause_seconds = 10 / rate
        self._is_over = threading.Event()
        #: Bodies that are acknowledged, by topic.
        self.sent: dict[str, list[str]] = {CONCURRENT: [], ORDERLY: []}
        self.failures: list[str] = []

    def run(self) -> None:
        numbers = itertools.count()
        try:
            with Producer(self._namesrv, timeout_s=15) as producer:
                # The producer's pace, no wait for anything.
                while not self._is_over.wait(self._pause_seconds):
                    bodies = [str(next(numbers)) for _ in range(10)]
                    producer.send_many([Message(topic, body.encode())
                                        for topic in self.sent for body in bodies])
                    for sent in self.sent.values():
                        sent += bodies
        except Exception as error:
            self.failures.append(repr(error))

    def stop(self) -> None:
        """Stop the sends."""
        self._is_over.set()
        self.join(60)


class MixedGroup:
    """The present and former members, and their work.

    :param namesrv: the name server of the brokers.
    :param brokers: their addresses.
    :param rate: messages a second, of each topic.
    :param work_ms: how long a handler takes.
    :param properties: Java's system properties of Apache's members.
    """

    def __init__(self, namesrv: str, brokers: Sequence[str], *, rate: int = 200, work_ms: int = 5,
                 properties: Sequence[str] = ()) -> None:
        self._namesrv, self._brokers, self._work_ms = namesrv, brokers, work_ms
        self._properties = properties
        self._rate = rate
        self.processes: dict[str, LineProcess] = {}
        self.living: list[str] = []
        self._kinds: dict[str, str] = {}
        #: When a member was killed, or told to leave, Unix ms.
        self.killed_ms: dict[str, int] = {}
        self.left_ms: dict[str, int] = {}
        #: How long the shares of each change took, seconds.
        self.shares_seconds: list[float] = []
        for broker in brokers:
            _make_topics(broker)
        _wait_for_routes(namesrv, QUEUES * len(brokers))
        self._feed = _Feed(namesrv, rate)
        self._feed.start()

    @property
    def work_ms(self) -> int:
        """Return the duration of a handler."""
        return self._work_ms

    @property
    def rate(self) -> int:
        """Return the messages a second in each topic."""
        return self._rate

    @property
    def sent(self) -> dict[str, list[str]]:
        """Return the acknowledged bodies, by topic."""
        return self._feed.sent

    # --- changes

    def start(self, name: str, kind: str) -> None:
        """Start a member.

        :param kind: ``OURS``, the release of Apache's Java client, or ``GO``, whose members are in
            the group ``CONCURRENT`` only.
        """
        self.processes[name] = self._program(kind)
        self._kinds[name] = kind
        self.processes[name].wait_for("started")
        self.living.append(name)

    def _program(self, kind: str) -> LineProcess:
        words = [self._namesrv, CONCURRENT, ORDERLY, str(self._work_ms)]
        if kind == OURS:
            return LineProcess([sys.executable, "-P", str(HERE / "group_member.py"), *words])
        if kind == GO:
            words.remove(ORDERLY)
            return LineProcess([str(go_program("go_member")), *words])
        return JavaProcess(kind, "GroupMember", *words, properties=self._properties)

    def kill(self, name: str) -> None:
        """Kill a member."""
        self.living.remove(name)
        self.processes[name].kill()
        self.killed_ms[name] = _now_ms()

    def leave(self, name: str) -> None:
        """Let a member leave."""
        self.living.remove(name)
        self.left_ms[name] = _now_ms()
        self.processes[name].leave()

    def wait_for_shares(self, topics: Sequence[str] = (CONCURRENT, ORDERLY),
                        seconds: float = 30) -> None:
        """Wait until the living members divide all queues evenly, and the brokers know them."""
        begin = time.monotonic()
        wait_until(f"{self.living} share the queues of {topics}", lambda: all(
            self._is_shared(topic) for topic in topics), seconds)
        self.shares_seconds.append(round(time.monotonic() - begin, 1))
        for broker in self._brokers:
            with RawClient(broker) as client:
                for topic in topics:
                    wait_until(f"{broker} knows the members of {topic}", lambda client=client,
                               topic=topic: _member_count(client, topic) == len(self.living), 10)

    def _is_shared(self, topic: str) -> bool:
        shares = [self.held(name, topic) for name in self.living
                  if topic == CONCURRENT or self._kinds[name] != GO]
        held = [queue for share in shares for queue in share]
        sizes = [len(share) for share in shares]
        return (len(held) == len(set(held)) == QUEUES * len(self._brokers)
                and max(sizes) - min(sizes) <= 1)

    def held(self, name: str, topic: str) -> list[str]:
        """The queues that a member has now, as "broker:id"."""
        lines = [line for line in self.processes[name].told("held") if line.split(" ")[1] == topic]
        return [each for each in lines[-1].split(" ")[3].split(",") if each] if lines else []

    def finish(self, seconds: float = 120) -> None:
        """Send no more, wait until all is consumed, and let the members leave."""
        self._feed.stop()
        assert not self._feed.failures, self._feed.failures
        wait_until("all is consumed", lambda: all(
            set(sent) <= self._ended(topic) for topic, sent in self.sent.items()), seconds)
        for name in list(self.living):
            self.leave(name)

    def _ended(self, topic: str) -> set[str]:
        return {line.rpartition(" ")[2] for process in self.processes.values()
                for line in process.told("end") if line.split(" ")[1] == topic}

    def close(self) -> None:
        """End all processes."""
        self._feed.stop()
        for process in self.processes.values():
            process.close()

    # --- what they did

    def works(self, topic: str) -> dict[Queue, list[Work]]:
        """The turns with the messages of each queue, in order of their beginnings."""
        queues: defaultdict[Queue, list[Work]] = defaultdict(list)
        for name, process in self.processes.items():
            open_ms: dict[tuple[str, ...], int] = {}
            for line in process.lines:
                event, where, *rest = line.split(" ")
                if event not in ("begin", "end") or where != topic:
                    continue
                place = tuple(rest[1:])
                if event == "begin":
                    open_ms[place] = int(rest[0])
                    continue
                queues[rest[1], int(rest[2])].append(Work(
                    open_ms.pop(place), int(rest[0]), name, int(rest[3]), rest[5]))
            for place, begin_ms in open_ms.items():
                queues[place[0], int(place[1])].append(
                    Work(begin_ms, None, name, int(place[2]), place[4]))
        return {queue: sorted(works, key=lambda work: work.begin_ms)
                for queue, works in queues.items()}

    def changes(self, topic: str) -> dict[tuple[str, Queue], list[tuple[int, bool]]]:
        """Return the times at which each member got and lost each queue; Unix ms."""
        found: defaultdict[tuple[str, Queue], list[tuple[int, bool]]] = defaultdict(list)
        for name, process in self.processes.items():
            had: set[str] = set()
            for line in process.told("held"):
                _, where, ms, now = line.split(" ")
                if where == topic:
                    held = {each for each in now.split(",") if each}
                    for key in held ^ had:
                        found[name, _queue(key)].append((int(ms), key in held))
                    had = held
            end_ms = self.killed_ms.get(name, self.left_ms.get(name))
            for key in had if end_ms is not None else ():
                found[name, _queue(key)].append((end_ms, False))
        return found


def both_brokers(folder: Path, stack: ExitStack) -> tuple[str, list[str]]:
    """Start our broker and Apache's, with our name server; the addresses of it and of both.

    :param stack: ends them.
    """
    ours = stack.enter_context(servers(
        folder / "ours", "brokerName=broker-ours", f"orderly.lock_age_max={LOCK_MS}"))
    peer = Peer(folder / "peer", broker_port=free_port(), heap="512m", with_namesrv=False,
                namesrv_address=ours.namesrv,
                properties={"rocketmq.broker.rebalance.lockMaxLiveTime": str(LOCK_MS)})
    stack.callback(peer.stop, kill=True)
    peer.start()
    return ours.namesrv, [f"127.0.0.1:{ours.broker_port}", f"127.0.0.1:{peer.broker_port}"]


def change_often(group: MixedGroup, chosen: random.Random, count: int) -> None:
    """Let all members join; then they are killed, leave and return, a number of times in all.

    After each change the members divide the queues of the concurrent group within 30 s. Those of
    the orderly one do at the end: the locks of killed members have to expire.
    """
    kinds = {"java1": "5.3.3", "ours1": OURS, "java2": "5.3.3", "ours2": OURS, "old": "4.9.4"}
    for name, kind in kinds.items():
        group.start(name, kind)
        # The first Java programs load their classes, beside other tests.
        group.wait_for_shares([CONCURRENT], 90)
    for number in range(count - len(kinds)):
        away = sorted(set(kinds) - {name.partition("-")[0] for name in group.living})
        if away and (len(away) > 2 or chosen.random() < 0.5):
            name = chosen.choice(away)
            group.start(f"{name}-{number}", kinds[name])
        else:
            end = chosen.choice((group.kill, group.leave))
            end(chosen.choice(group.living))
        group.wait_for_shares([CONCURRENT])
    group.wait_for_shares(seconds=60)


def copies(group: MixedGroup, topic: str) -> tuple[int, list[str]]:
    """Return how often messages were repeated, and the repetitions that are wrong.

    A message may come again when its handler ran, or ran shortly before, as its queue changed
    hands: an offset says only up to where all are finished. When a member is killed, or two have a
    queue for a moment, what was finished since the last commit comes again. The second of the two
    may have lost it since: it comes again at a third one then, but never at the first, which knows
    where it stopped.
    """
    count, faults, changes = 0, [], group.changes(topic)
    for queue, works in group.works(topic).items():
        by_offset: defaultdict[int, list[Work]] = defaultdict(list)
        for work in works:
            by_offset[work.offset].append(work)
        for turns in by_offset.values():
            for before, after in pairwise(turns):
                count += 1
                if before.end_ms is None:
                    continue
                lost = [ms for ms, got in changes[before.member, queue]
                        if not got and ms >= before.begin_ms - TOLD_MS]
                took = [ms for ms, got in changes[after.member, queue]
                        if got and ms <= after.begin_ms + TOLD_MS]
                if not lost or not took:
                    faults.append(f"{queue}: {before} {after}: the queue did not change hands")
                    continue
                had_ms = max((ms for ms, got in changes[before.member, queue]
                              if got and ms <= before.begin_ms + TOLD_MS), default=0)
                settled_ms = min([_settled_ms(after.member, max(took)), *(
                    _settled_ms(name, ms) for (name, where), each in changes.items()
                    if where == queue and before.member not in (name, after.member)
                    for ms, got in each if got and had_ms < ms <= after.begin_ms)])
                is_unclean = before.member in group.killed_ms or settled_ms < lost[0]
                allowed_ms = TOLD_MS + group.work_ms + (COMMIT_MS if is_unclean else 0)
                if before.end_ms < min(lost[0], max(took)) - allowed_ms:
                    faults.append(f"{queue}: {before} {after}: lost {lost} taken {took}")
    return count, faults


def _settled_ms(member: str, took_ms: int) -> int:
    """Return the earliest time at which a member knows the beginning of a queue, Unix ms.

    Ours asks for the offset again half a second later.
    """
    return took_ms + (SETTLE_MS if member.startswith("ours") else -TOLD_MS)


def faults_of(group: MixedGroup) -> list[str]:
    """Return all faults in both groups."""
    return [*copies(group, CONCURRENT)[1], *overlaps(group, ORDERLY),
            *order_faults(group, ORDERLY)]


def overlaps(group: MixedGroup, topic: str) -> list[str]:
    """Turns with a message of a queue that began before another's turn had ended."""
    faults = []
    for queue, works in group.works(topic).items():
        for before, after in pairwise(works):
            end_ms = before.end_ms or group.killed_ms.get(before.member, before.begin_ms)
            if end_ms > after.begin_ms:
                faults.append(f"{queue}: {before} {after}")
    return faults


def order_faults(group: MixedGroup, topic: str) -> list[str]:
    """Turns that do not follow the one before: next, or again after a change of hands."""
    faults, changes = [], group.changes(topic)
    for queue, works in group.works(topic).items():
        for before, after in pairwise(works):
            following = before.offset + (before.end_ms is not None)
            kept = before.member == after.member and not any(
                before.begin_ms <= ms <= after.begin_ms + TOLD_MS
                for ms, got in changes[after.member, queue] if got)
            if after.offset > following or (kept and after.offset < following):
                faults.append(f"{queue}: {before} {after}")
    return faults


def _make_topics(broker: str) -> None:
    with RawClient(broker) as client:
        for topic in (CONCURRENT, ORDERLY):
            reply = client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                topic=topic, default_topic="TBW102", read_queue_nums=QUEUES,
                write_queue_nums=QUEUES, perm=6, topic_filter_type="SINGLE_TAG"))
            assert reply.code == 0, reply


def _wait_for_routes(namesrv: str, count: int) -> None:
    """Wait until the topics have so many queues there.

    Members that start before hear of the others up to half a minute later, each at a time of its
    own, and share some until then.
    """
    def queue_count(topic: str) -> int:
        try:
            return len(client.read_queues(topic, again=True))
        except NoRoute:
            return 0

    with Client(namesrv) as client:
        for topic in (CONCURRENT, ORDERLY):
            wait_until(f"{topic} has its queues", lambda topic=topic: queue_count(topic) == count)


def _member_count(client: RawClient, group: str) -> int:
    reply = client.request(RequestCode.GET_CONSUMER_CONNECTION_LIST,
                           GetConsumerConnectionListRequestHeader(consumer_group=group))
    if reply.code:
        return 0
    return len(ConsumerConnection.decode_reply(reply.body).connection_set)


def _queue(key: str) -> Queue:
    broker, _, number = key.rpartition(":")
    return broker, int(number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
