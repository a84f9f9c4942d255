"""Consume from a group of three brokers while its leader is killed again and again.

    python -m tests.long.dledger_consumers [PART]... [--rounds 20] [--pause 6] [--rate 100]
        [--no-java] [--program twistmq]

The leader is killed in each round, and started again; the next round begins 6 s after all brokers
have everything.

The part ``groups`` sends to two topics, which are consumed by these groups:

    Jobs        four members without order: two of twistmq's client, two of Apache's Java client
    Orders      the same four, in order
    pop         a member that pops the messages of Jobs
    pull        a member that polls the messages of Jobs, and commits after each poll

In the end each group must have handled every acknowledged message. A message may be handled again
only if a leader was killed between 15 s before its last handling and the next one, and each kill
explains one repetition. A message of Orders is never begun before its predecessor was done. The
offsets that the groups have committed must be in the queues.

The part ``derived`` sends delayed, timed and transactional messages, and messages that are sent
back by a consumer or popped a second time: tests/long/dledger_derived.py says what must come of
them. A tenth of --rate of each kind is sent in a second.

The logs and sends are judged as in ``dledger_kills``. Without a part, both of them run. Ends with
status 1 when there is a fault.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.history.records import Commit, FinalLog, History, Outcome
from tests.interop import group_member
from tests.interop.java_process import JavaProcess, LineProcess
from tests.long.dledger_derived import (
    FORGOTTEN_MS,
    MESSAGE_KINDS,
    DerivedConsumers,
    DerivedSenders,
    appearances,
    derivation_faults,
    handling_faults,
    kind_of,
    unhandled_messages,
)
from tests.long.dledger_derived import GROUPS as DERIVED_GROUPS
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    describe,
    judge,
    make_parser,
    report,
    run_folder,
)
from tests.long.dledger_load import QUEUES, body_id, queue_name
from twistmq.broker.testing import RawClient
from twistmq.client import ClientError, PopConsumer, PullConsumer, ReceivedMessage
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)

__all__ = ["Handling", "consumption_faults", "main", "unhandled"]

PARTS: Final = ("groups", "derived")
JOBS: Final = "Jobs"
ORDERS: Final = "Orders"
POP: Final = "pop"
PULL: Final = "pull"
#: The topic of each group.
GROUPS: Final = {JOBS: JOBS, ORDERS: ORDERS, POP: JOBS, PULL: JOBS}
#: The brokers ask for the end of a transaction earlier than by default, ms.
_CHECKS: Final = {"transactionTimeOut": "3000", "transactionCheckInterval": "3000"}
#: How long all groups may take to handle the last messages, s. A message that was popped and whose
#: acknowledgement was lost returns after a minute.
_REST_SECONDS: Final = 150.0
_JAVA: Final = "5.5.0"
_WORK_MS: Final = "1"


class Handling(NamedTuple):
    """One handling of a message. Times are in Unix ms.

    :param body: what identifies the message.
    """

    queue: str
    offset: int
    body: str
    begin: int
    end: int


def repetitions(handlings: Iterable[Handling], kills: Sequence[int]) -> list[str]:
    """Return the handlings that no kill explains.

    A kill explains one more handling of a message if it came before that, and after the last
    handling or at most 15 s before it.
    """
    by_body: defaultdict[tuple[str, int], list[Handling]] = defaultdict(list)
    for handling in handlings:
        by_body[handling.queue, handling.offset].append(handling)
    faults = []
    for those in by_body.values():
        those.sort(key=lambda each: each.begin)
        for first, second in pairwise(those):
            if not any(first.begin - FORGOTTEN_MS <= kill <= second.begin for kill in kills):
                faults.append(f"{second} is a repetition of {first} without a kill")
        possible = 1 + sum(those[0].begin - FORGOTTEN_MS <= kill <= those[-1].begin
                           for kill in kills)
        if len(those) > possible:
            faults.append(f"{those[0]} was handled {len(those)} times, and {possible} are possible")
    return faults


def disorders(handlings: Iterable[Handling]) -> list[str]:
    """Return the messages that were begun before their predecessor in the queue was done."""
    begun: dict[tuple[str, int], Handling] = {}
    done: dict[tuple[str, int], int] = {}
    for handling in handlings:
        place = handling.queue, handling.offset
        if place not in begun or handling.begin < begun[place].begin:
            begun[place] = handling
        done[place] = min(handling.end, done.get(place, handling.end))
    return [f"{handling} was begun before the message before it was done"
            for (queue, offset), handling in begun.items()
            if offset and done.get((queue, offset - 1), handling.begin + 1) > handling.begin]


def consumption_faults(
    handled: dict[str, list[Handling]], kills: Sequence[int], ordered: str = ORDERS
) -> list[str]:
    """Return the forbidden handlings of the groups, each with the name of its group."""
    faults = [f"{group}: {text}" for group, handlings in handled.items()
              for text in repetitions(handlings, kills)]
    return faults + [f"{ordered}: {text}" for text in disorders(handled.get(ordered, []))]


class OwnMembers:
    """The members in this process: one that pops, and one that polls."""

    def __init__(self, namesrv: str) -> None:
        self.handled: dict[str, list[Handling]] = {POP: [], PULL: []}
        self.failures: list[str] = []
        self._over = threading.Event()
        self._pop: PopConsumer[Any] = PopConsumer(namesrv, group=POP, topics=JOBS, start="first")
        self._pull: PullConsumer[Any] = PullConsumer(namesrv, group=PULL, topics=JOBS,
                                                     start="first")
        self._threads = [threading.Thread(target=self._keep, args=(work,), daemon=True)
                         for work in (self._run_pop, self._run_pull)]
        for thread in self._threads:
            thread.start()

    def _keep(self, work: Callable[[], None]) -> None:
        """Note an error that ends a member."""
        try:
            work()
        except Exception as error:
            self.failures.append(f"{work.__name__} failed: {error!r}")

    def _run_pop(self) -> None:
        self._pop.run(lambda message: self._note(POP, message), workers=1)

    def _run_pull(self) -> None:
        while not self._over.is_set():
            for message in self._pull.poll(timeout_s=1):
                self._note(PULL, message)
            try:
                self._pull.commit()
            except ClientError:
                # The group has no leader at the moment; the next commit has the same offsets.
                self._over.wait(0.2)

    def _note(self, group: str, message: ReceivedMessage[Any]) -> None:
        now = group_member.now_ms()
        self.handled[group].append(Handling(
            queue_name(JOBS, message.queue.queue_id), message.offset, body_id(message.body), now,
            now))

    def close(self) -> None:
        """Leave the groups."""
        self._over.set()
        self._threads[1].join(60)
        for close in (self._pop.close, self._pull.close):
            try:
                close()
            except ClientError as error:
                self.failures.append(f"a member does not leave: {error!r}")
        for thread in self._threads:
            thread.join(60)


def read_handlings(lines: Iterable[str], topic: str) -> list[Handling]:
    """Return the handlings that a member printed and that have an end."""
    begun: dict[tuple[str, str], int] = {}
    handlings = []
    for line in lines:
        event, *words = line.split(" ")
        if event not in ("begin", "end") or words[0] != topic:
            continue
        _, moment, _, queue_id, offset, _, body = words
        if event == "begin":
            begun[queue_id, offset] = int(moment)
        else:
            handlings.append(Handling(
                queue_name(topic, int(queue_id)), int(offset), body_id(body.encode()),
                begun[queue_id, offset], int(moment)))
    return handlings


def committed(
    group: ProcessGroup, leader: str, groups: Iterable[tuple[str, str]]
) -> list[Commit]:
    """Return the offsets that groups have committed at the leader.

    :param groups: each with its topic.
    """
    commits = []
    with RawClient(group.members[leader].address) as client:
        for name, topic in groups:
            for queue_id in range(QUEUES):
                reply = client.request(
                    RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
                        consumer_group=name, topic=topic, queue_id=queue_id))
                if reply.code == ResponseCode.SUCCESS:
                    header = reply.header(QueryConsumerOffsetResponseHeader)
                    commits.append(Commit(name, queue_name(topic, queue_id), header.offset,
                                          client.max_offset(topic, queue_id)))
    return commits


def run(
    group: ProcessGroup, rounds: int, pause: float, rate: float, *, with_java: bool
) -> int:
    """Kill the leader in each round; :returns: the exit status.

    :param pause: before the next kill, s.
    """
    kills = []
    with ExitStack() as stack:
        loaded = stack.enter_context(LoadedGroup(
            group, writers=2, rate=rate, body_max=400, topics=(JOBS, ORDERS)))
        namesrv = group.namesrv.address
        # Joining members hand queues over to each other, as a kill does.
        kills.append(group_member.now_ms())
        python = [sys.executable, "-P", str(Path(group_member.__file__)), namesrv, JOBS, ORDERS,
                  _WORK_MS]
        members = [LineProcess(python) for _ in range(2 if with_java else 4)]
        if with_java:
            members += [JavaProcess(_JAVA, "GroupMember", namesrv, JOBS, ORDERS, _WORK_MS)
                        for _ in range(2)]
        for member in members:
            stack.callback(member.close)
        own = OwnMembers(namesrv)
        for member in members:
            member.wait_for("started")
        kills.append(group_member.now_ms())

        def handled() -> dict[str, list[Handling]]:
            return {**own.handled, **{topic: [
                each for member in members for each in read_handlings(list(member.lines), topic)]
                for topic in (JOBS, ORDERS)}}

        for number in range(rounds):
            kills.append(_kill_leader(loaded, pause))
            print(f"kill {number + 1}: handled by now", ", ".join(
                f"{name} {len(those):,}" for name, those in handled().items()), flush=True)
        loaded.stop()
        _wait_for_rest(lambda: unhandled(loaded.history, handled()))
        for member in members:
            member.leave()
        own.close()
        found = handled()
        loaded.history.commits = committed(group, group.wait_for_leader(), GROUPS.items())
        faults = loaded.finish()
    faults += own.failures + unhandled(loaded.history, found) + consumption_faults(found, kills)
    counts = ", ".join(
        f"{name} {len(those):,} ({len(those) - len({(each.queue, each.offset) for each in those})}"
        f" again)" for name, those in found.items())
    return report("consumers", f"{rounds} kills; handled by {counts}; "
                  f"{describe(loaded.history)}", faults)


def _kill_leader(loaded: LoadedGroup, pause: float) -> int:
    """Kill the leader and start it again; :returns: when it was killed, Unix ms."""
    # In this time the members find the new leader and go on.
    time.sleep(pause)
    leader = loaded.group.wait_for_leader()
    killed = group_member.now_ms()
    loaded.group.kill(leader)
    loaded.group.start(leader)
    loaded.recover()
    return killed


def run_derived(group: ProcessGroup, rounds: int, pause: float, rate: float) -> int:
    """Kill the leader while it derives messages; :returns: the exit status."""
    with ExitStack() as stack:
        loaded = stack.enter_context(LoadedGroup(group, writers=2, rate=rate / 2, body_max=400))
        senders = DerivedSenders(group.namesrv.address, rate / 10)
        stack.callback(senders.close)
        consumers = DerivedConsumers(group.namesrv.address)
        kills = [group_member.now_ms()]
        for number in range(rounds):
            kills.append(_kill_leader(loaded, pause))
            print(f"kill {number + 1}: {len(senders.messages()):,} derived messages acknowledged, "
                  f"{len(consumers.handled):,} handled", flush=True)
        senders.stop()
        loaded.stop()
        _wait_for_rest(lambda: unhandled_messages(senders.messages(), consumers.handled))
        consumers.close()
        commits = committed(group, group.wait_for_leader(), [
            (name, topic) for topic, name in DERIVED_GROUPS.items()])
        faults = loaded.read_logs() + senders.failures + consumers.failures
        messages = senders.messages()
    history = loaded.history
    entries = next(iter(history.logs.values())).entries
    history.commits = commits
    history.logs = {node: FinalLog([entry for entry in log.entries if not kind_of(entry.body)])
                    for node, log in history.logs.items()}
    appeared = appearances(entries)
    faults += judge(history) + derivation_faults(messages, appeared, kills)
    faults += handling_faults(messages, consumers.handled, kills)
    counts = Counter(message.kind for message in messages)
    copied, again = (Counter(kind_of(body) for body, times in those.items() if len(times) > 1)
                     for those in (appeared, consumers.handled))
    return report("derived", f"{rounds} kills; acknowledged (and twice in the log, handled twice): "
                  + ", ".join(f"{kind} {counts[kind]:,} ({copied[kind]}, {again[kind]})"
                              for kind in MESSAGE_KINDS) + f"; {describe(history)}", faults)


def unhandled(history: History, handled: Mapping[str, Sequence[Handling]]) -> list[str]:
    """Return the acknowledged messages that a group never handled."""
    faults = []
    for group, topic in GROUPS.items():
        bodies = {each.body for each in handled[group]}
        faults += [f"{group} never handled {send}" for send in list(history.sends)
                   if send.outcome is Outcome.OK and send.queue.startswith(f"{topic}-")
                   and send.body not in bodies]
    return faults


def _wait_for_rest(missing: Callable[[], Sequence[object]]) -> None:
    """Wait until the groups have handled everything, or for the time that they may take."""
    deadline = time.monotonic() + _REST_SECONDS
    while missing() and time.monotonic() < deadline:
        time.sleep(1)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pause", type=float, default=6, help="between two kills, s (6)")
    parser.add_argument("--rate", type=float, default=100, help="messages a second (100)")
    parser.add_argument("--no-java", dest="with_java", action="store_false",
                        help="four members of twistmq's client in the groups Jobs and Orders")
    args = parser.parse_args()
    # A kill fails the requests of the members, and each failure is a warning.
    logging.getLogger("twistmq.client").setLevel(logging.ERROR)
    status = 0
    for name in args.parts or PARTS:
        with run_folder(args.keep, name) as folder:
            group = ProcessGroup(folder, args.program, {
                "dledger.quick_failover": "true", **(_CHECKS if name == "derived" else {})})
            status |= (run_derived(group, args.rounds, args.pause, args.rate)
                       if name == "derived" else run(
                           group, args.rounds, args.pause, args.rate, with_java=args.with_java))
    return status


if __name__ == "__main__":
    sys.exit(main())
