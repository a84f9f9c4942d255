"""A simulation of three whole brokers of one group in memory, determined by a seed.

    KernelSimulation(seed).run()

The brokers come from ``kernels.py``: kernels with the plugin and with all plugins that derive
messages from others. Clients send, also without waiting (WAIT=false) and one-way, and read from all
brokers, while brokers are killed, cut off and slowed down. Messages are delayed and timed, and with
``derived_messages.py`` also transactional, sent back and popped. At the end everything is repaired,
and the history is checked with ``tests/history``. Further rules:

| rule | invariant |
| --- | --- |
| I13 | a broker that does not lead accepts no messages |
| I14 | ``progress_rules.py``: what a dead leader counts as done is committed |
| H9 | a popped message comes again unless it was acknowledged |
| I18 | after the faults there is one master soon, and all logs have the same bytes |
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred

from tests.history.check import check_history
from tests.history.records import (
    Commit,
    Derivation,
    Entry,
    Failover,
    FinalLog,
    History,
    Outcome,
    Read,
    Send,
)
from tests.plugins.dledger.derived_messages import DELAYS_MS, GROUPS, DerivedMessages
from tests.plugins.dledger.kernels import NAMES, TOPIC, KernelGroup, Machine
from tests.plugins.dledger.logged_failures import logged_failures
from tests.plugins.dledger.member_links import MemberLinks
from tests.plugins.dledger.progress_rules import progress_faults
from tests.plugins.timer.small_wheel import small_wheel
from tests.raft.simulation.world import InvariantBroken
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import orderly, pop, retry
from twistmq.protocol.bodies import DelayOffsetSerializeWrapper, SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import decode_record
from twistmq.protocol.topic_names import SCHEDULE_TOPIC
from twistmq.raft.actions import Role
from twistmq.raft.messages import Request, Response
from twistmq.transaction import plugin as transaction

__all__ = ["KernelSimulation"]

GROUP: Final = "cg"
#: The time of the faults, and the time in which the group is whole afterwards, s.
_FAULT_SECONDS: Final = (8, 20, 40)
_WHOLE_SECONDS: Final = 40
#: A client gives up a send after this time, ms.
_SEND_MS: Final = 3000
#: The delays of timed messages, which are delivered up to a second early, ms.
_TIMES_MS: Final = (1500, 4000, 9000)
_TIMER_TICK_MS: Final = 1000
_PLUGINS: Final = (
    ("orderly", orderly.Plugin), ("pop", pop.Plugin), ("retry", retry.Plugin),
    ("transaction", transaction.Plugin))
_SETTINGS: Final = {
    "flushDelayOffsetInterval": "1000", "popFromRetryProbability": "0", "reviveQueueNum": "1",
    "transactionTimeOut": "1000", "transactionCheckInterval": "2000",
    "transactionCheckMax": "1000", "transactionOpBatchInterval": "100",
    "mappedFileSizeTimerLog": "1048576"}
#: In this time, a master has saved its progress, and the others have copied and saved it, ms.
_SETTLED_MS: Final = 8000
#: The answers that mean that nothing was appended.
_REFUSALS: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL)


class _Judge:
    """Stands for the test of a ``KernelGroup``."""

    @staticmethod
    def failureException(text: str) -> InvariantBroken:
        return InvariantBroken("I18", text)


@dataclass(slots=True)
class _Pending:
    """A send that is not answered yet."""

    client: str
    node: str
    body: str
    begin_ms: int
    #: The earliest delivery of a delayed or timed message; 0: it is an ordinary one.
    due_ms: int
    is_timed: bool
    reply: Callable[[], RemotingCommand | None]


class _Group(KernelGroup):
    """A group on links that lose and delay messages."""

    def __init__(self, draw: random.Random) -> None:
        self.links = MemberLinks(lambda: self.clock, draw, lambda name: self.machines[name].answer)
        super().__init__(  # type: ignore[misc]
            _Judge(), _PLUGINS, draw, **_SETTINGS)  # type: ignore[arg-type]
        self.cut = self.links.cut

    def ask(self, sender: str, receiver: str, request: Request) -> Deferred[Response]:
        return self.links.ask(sender, receiver, request)


@dataclass(slots=True)
class _Counts:
    """What happened in a run."""

    kills: int = 0
    leader_kills: int = 0
    cuts: int = 0
    acknowledged: int = 0
    delayed: int = 0
    timed: int = 0
    elections: int = 0


def _progress(machine: Machine) -> dict[int, int]:
    """The offset that the disk of a broker has for each level of delayed messages."""
    path = "/store/config/delayOffset.json"
    if not machine.disk.exists(path):
        return {}
    table = DelayOffsetSerializeWrapper.decode(machine.disk.read_file(path)).offset_table
    return {int(level): offset for level, offset in table.items()}


class KernelSimulation:
    """One run of three brokers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.group: _Group
        self.derived: DerivedMessages
        self.steps: list[str] = []
        self.counts = _Counts()
        self.history = History()
        self._pending: list[_Pending] = []
        self._bodies = 0
        self._lives = dict.fromkeys(NAMES, 0)
        self._restarts: dict[str, int] = {}
        self._master = ""
        self._master_since_ms = 0
        #: The deliveries up to this time are known to all members.
        self._settled_ms = 0
        self._unknown_delayed: list[tuple[Derivation, Send]] = []
        faults = [self._kill, self._kill_master, self._kill_master, self._cut_off, self._cut_one,
                  self._heal, self._slow, self._lose, self._kill_all]
        kinds = self.draw.sample(faults, self.draw.randint(1, 4))
        self._faults: list[Callable[[], None]] = [*kinds, self._heal]

    def run(self) -> None:
        """Run the seed.

        :raises InvariantBroken: when a rule does not hold, or a part of a broker fails.
        """
        try:
            with small_wheel(), logged_failures() as failures:
                self._run_all()
            for failure in failures:
                failure.raiseException()
        except InvariantBroken:
            raise
        except Exception as error:
            raise InvariantBroken("broker", f"{type(error).__name__}: {error}") from error

    def _run_all(self) -> None:
        draw = self.draw
        group = self.group = _Group(draw)
        self.derived = DerivedMessages(group, self.history, draw)
        self._make_groups()
        end_ms = group.now_ms() + draw.choice(_FAULT_SECONDS) * 1000
        pause_ms = draw.choice((20, 100, 400))
        fault = draw.choice((0.03, 0.1, 0.2))
        while group.now_ms() < end_ms:
            if draw.random() < fault:
                draw.choice(self._faults)()
            else:
                draw.choice((self._send, self._send, self._send, self._read, self._commit,
                             self._derive))()
            self._pass_time(int(draw.random() * 2 * pause_ms))
        self._become_whole()
        self._check_end()

    def _make_groups(self) -> None:
        """Let all members know the groups of consumers."""
        group = self.group
        for name in GROUPS:
            group.elect().kernel.subscription_group.update(SubscriptionGroupConfig(name), {})
        group.until(lambda: all(
            name in machine.kernel.subscription_group.table
            for machine in group.alive for name in GROUPS), "the groups of consumers")

    # --- time

    def _pass_time(self, elapsed_ms: int) -> None:
        """Let time pass, and note what comes back."""
        end_ms = self.group.now_ms() + elapsed_ms
        while True:
            self._look()
            if self.group.now_ms() >= end_ms:
                return
            self.group.step()

    def _look(self) -> None:
        """Note answers and restarts, and check rule I13."""
        now_ms = self.group.now_ms()
        self.derived.look()
        for pending in list(self._pending):
            reply = pending.reply()
            if reply is not None or now_ms - pending.begin_ms >= _SEND_MS:
                self._pending.remove(pending)
                self._note_send(pending, reply)
        for name, start_ms in list(self._restarts.items()):
            if now_ms >= start_ms:
                del self._restarts[name]
                self._note(f"{name} starts")
                self._lives[name] += 1
                self.group.start(name)
        for machine in self.group.alive:
            kernel = machine.kernel
            node = machine.broker.node
            if node is None or node.member.role is not Role.LEADER:
                if not kernel.is_slave and kernel.store.writable:
                    raise InvariantBroken("I13", f"{machine.name} does not lead, and is a master")
            elif not kernel.is_slave and self._master != machine.name:
                self._master, self._master_since_ms = machine.name, now_ms
                self.counts.elections += 1
                self._note(f"{machine.name} is the master")
                self.history.failovers.append(Failover(now_ms, self._settled_ms))
        is_calm = len(self.group.masters) == 1 and len(self.group.alive) == len(NAMES) and not (
            self.group.cut or self.group.links.loss)
        if not is_calm:
            self._master_since_ms = now_ms
        elif now_ms - self._master_since_ms >= _SETTLED_MS:
            self._settled_ms = now_ms - _SETTLED_MS

    def _note(self, text: str) -> None:
        self.steps.append(f"{self.group.now_ms() - 1_700_000_000_000:7} {text}")

    # --- clients

    def _machine(self) -> Machine | None:
        """A master, sometimes another broker; None: all brokers are dead."""
        alive, masters = self.group.alive, self.group.masters
        if not alive:
            return None
        return self.draw.choice(masters if masters and self.draw.random() < 0.85 else alive)

    def _send(self) -> None:
        machine = self._machine()
        if machine is None:
            return
        draw, group = self.draw, self.group
        body = f"{self._bodies}"
        self._bodies += 1
        properties: dict[str, str] = {}
        due_ms, now_ms = 0, group.now_ms()
        kind = draw.random()
        if kind < 0.2:
            properties["WAIT"] = "false"
        elif kind < 0.35:
            level = draw.choice(list(DELAYS_MS))
            properties["DELAY"] = str(level)
            due_ms = now_ms + DELAYS_MS[level]
        elif kind < 0.5:
            delay_ms = draw.choice(_TIMES_MS)
            properties["TIMER_DELAY_MS"] = str(delay_ms)
            due_ms = now_ms + delay_ms - _TIMER_TICK_MS
        if kind > 0.9:
            self._send_oneway(machine, body)
            return
        reply = group.begin_send(machine, body.encode(), properties=properties)
        self._pending.append(_Pending(
            draw.choice("ab"), machine.name, body, now_ms, due_ms, 0.35 <= kind < 0.5, reply))

    def _derive(self) -> None:
        """Send a request that lets brokers append messages by themselves."""
        machine = self._machine()
        if machine is None:
            return
        step = self.draw.randrange(3)
        if step == 0:
            self.derived.send_back(machine)
        elif step == 1:
            self.derived.pop(machine)
        else:
            self.derived.send_half(machine, f"{self._bodies}")
            self._bodies += 1

    def _send_oneway(self, machine: Machine, body: str) -> None:
        """Send without an answer: the message may be stored."""
        box, now_ms = machine.box, self.group.now_ms()
        assert box is not None
        box.send(box.peer(), RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, now_ms),
                 body.encode(), oneway=True)
        self.history.sends.append(Send(
            "a", machine.name, TOPIC, body, now_ms, now_ms, Outcome.UNKNOWN))

    def _note_send(self, pending: _Pending, reply: RemotingCommand | None) -> None:
        now_ms = self.group.now_ms()
        place = offset = -1
        if reply is None:
            outcome = Outcome.UNKNOWN
        elif reply.code == ResponseCode.SUCCESS:
            outcome = Outcome.OK
            header = reply.header(SendMessageResponseHeader)
            place, offset = parse_offset_message_id(header.msg_id)[2], header.queue_offset
            self.counts.acknowledged += 1
            if pending.due_ms:
                self.counts.delayed += not pending.is_timed
                self.counts.timed += pending.is_timed
                self.history.derivations.append(Derivation(pending.body, pending.due_ms))
                return
        else:
            outcome = Outcome.REFUSED if reply.code in _REFUSALS else Outcome.UNKNOWN
        send = Send(pending.client, pending.node, TOPIC, pending.body, pending.begin_ms, now_ms,
                    outcome, place, offset)
        if pending.due_ms and outcome is Outcome.UNKNOWN:
            self._unknown_delayed.append((Derivation(pending.body, pending.due_ms), send))
        else:
            self.history.sends.append(send)

    def _read(self) -> None:
        """Read the end of the queue of a broker."""
        machine = self._machine()
        if machine is None:
            return
        store, now_ms = machine.kernel.store, self.group.now_ms()
        low = store.queues.min_offset(TOPIC, 0)
        high = store.queues.max_offset(TOPIC, 0)
        start = max(low, high - 8)
        bodies = [(record.queue_offset, record.body.decode()) for record in map(
            decode_record, store.get_message(TOPIC, 0, start, 8).messages)] if high > low else []
        node = machine.broker.node
        assert node is not None
        self.history.reads.append(Read(
            self.draw.choice("ab"), machine.name, TOPIC, now_ms, now_ms, start, bodies, low, high,
            node.member.term, not machine.kernel.is_slave, self._lives[machine.name]))

    def _commit(self) -> None:
        """Commit the end of the queue as a consumer does that has read all of it."""
        machine = self._machine()
        if machine is None or machine.box is None:
            return
        high = machine.kernel.store.queues.max_offset(TOPIC, 0)
        machine.box.send(machine.box.peer(), RequestCode.UPDATE_CONSUMER_OFFSET,
                         UpdateConsumerOffsetRequestHeader(
                             consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=high))

    # --- faults

    def _end(self, machine: Machine) -> None:
        """Kill a broker; a dead leader must not be ahead of the group: rule I14."""
        is_leader = not machine.kernel.is_slave
        self._note(f"{machine.name} is killed")
        self.counts.kills += 1
        self.counts.leader_kills += is_leader
        if is_leader:
            self._check_progress(machine)
        self.group.kill(machine.name)
        self._restarts[machine.name] = self.group.now_ms() + int(self.draw.random() ** 2 * 9000)
        if self._master == machine.name:
            self._master = ""

    @staticmethod
    def _check_progress(machine: Machine) -> None:
        assert machine.box is not None
        for fault in progress_faults(machine.box):
            raise InvariantBroken("I14", f"{machine.name}: {fault}")

    def _kill(self) -> None:
        if self.group.alive:
            self._end(self.draw.choice(self.group.alive))

    def _kill_master(self) -> None:
        for machine in self.group.masters[:1]:
            self._end(machine)

    def _kill_all(self) -> None:
        for machine in self.group.alive:
            self._end(machine)

    def _cut_off(self) -> None:
        masters = self.group.masters
        name = (masters[0].name if masters and self.draw.random() < 0.6
                else self.draw.choice(NAMES))
        self._note(f"{name} is cut off")
        self.counts.cuts += 1
        self.group.isolate(name)

    def _cut_one(self) -> None:
        first, second = self.draw.sample(NAMES, 2)
        self._note(f"cut: {first} to {second}")
        self.counts.cuts += 1
        self.group.cut.add((first, second))

    def _heal(self) -> None:
        self._note("the links are repaired")
        self.group.links.heal()

    def _slow(self) -> None:
        self.group.links.delay_seconds_max = self.draw.choice((0.05, 0.3, 1.5))

    def _lose(self) -> None:
        self.group.links.loss = self.draw.choice((0.05, 0.2))

    # --- the end

    def _become_whole(self) -> None:
        """Repair everything: rule I18."""
        self._heal()
        for name in self._restarts:
            self._restarts[name] = self.group.now_ms()
        self._pass_time(max(_SEND_MS, *DELAYS_MS.values()) + 1000)
        end_ms = self.group.now_ms() + _WHOLE_SECONDS * 1000
        while not self._is_whole() or self._misses_something():
            if self.group.now_ms() >= end_ms:
                if self._is_whole():
                    # The history says what is missing.
                    break
                raise InvariantBroken("I18", f"not whole after {_WHOLE_SECONDS} s: " + "; ".join(
                    f"{machine.name} {machine.kernel.role} ends at "
                    f"{machine.kernel.store.commit_log.max_offset}, confirmed "
                    f"{machine.kernel.store.dispatch.confirm_offset}"
                    for machine in self.group.alive))
            self._pass_time(500)
        reply = self.group.send(self.group.masters[0], b"last")
        if reply.code != ResponseCode.SUCCESS:
            raise InvariantBroken("I18", f"a send is answered by {reply.code}: {reply.remark}")
        self.group.until(self._is_whole, "the last message is not everywhere", _WHOLE_SECONDS)

    def _is_whole(self) -> bool:
        stores = [machine.kernel.store for machine in self.group.alive]
        ends = {store.commit_log.max_offset for store in stores}
        return (len(stores) == len(NAMES) and len(self.group.masters) == 1 and len(ends) == 1
                and all(store.dispatch.offset in ends for store in stores)
                and not any(self._waits(machine) for machine in self.group.masters))

    def _misses_something(self) -> bool:
        return any(self.derived.is_missing(machine) for machine in self.group.masters)

    def _waits(self, machine: Machine) -> bool:
        """Whether a delayed message is not delivered yet."""
        store = machine.kernel.store
        count = sum(store.queues.max_offset(SCHEDULE_TOPIC, level - 1) for level in DELAYS_MS)
        return count > sum(_progress(machine).values())

    def _check_end(self) -> None:
        files = {}
        for machine in self.group.alive:
            assert machine.box is not None
            self._check_progress(machine)
            self.history.logs = {**self.history.logs, machine.name: FinalLog([
                Entry(message.physical_offset, TOPIC, message.queue_offset, message.body.decode(),
                      message.store_timestamp)
                for message in machine.box.stored(TOPIC, 0) if message.body != b"last"]
                + self.derived.entries(machine))}
            folder = f"/store/dledger-{machine.name}/data"
            end = machine.kernel.store.commit_log.max_offset
            files[machine.name] = [
                machine.disk.read_file(f"{folder}/{name}")[:max(0, end - int(name))]
                for name in sorted(machine.disk.list_directory(folder)) if name.isdecimal()]
            high = machine.kernel.store.queues.max_offset(TOPIC, 0)
            offset = machine.kernel.consumer_offset.query(GROUP, TOPIC, 0)
            if offset >= 0:
                self.history.commits.append(Commit(GROUP, TOPIC, offset, high))
        if any(files[name] != files[NAMES[0]] for name in NAMES):
            raise InvariantBroken("I18", "the logs have different bytes")
        stored = {entry.body for log in self.history.logs.values() for entry in log.entries}
        for derivation, send in self._unknown_delayed:
            if derivation.body in stored:
                self.history.derivations.append(derivation)
            else:
                self.history.sends.append(send)
        self.derived.finish(stored)
        for fault in self.derived.faults():
            raise InvariantBroken("H9", fault)
        anomalies = check_history(self.history)
        if anomalies:
            raise InvariantBroken(anomalies[0].rule, anomalies[0].text)
        for machine in self.group.alive:
            machine.kernel.store.close()
