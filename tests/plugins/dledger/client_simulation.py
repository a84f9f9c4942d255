"""A simulation of clients of one group of brokers, determined by a seed.

    ClientGroupSimulation(seed).run()

The three brokers, the name server and the clients come from ``group_cluster.py``. Producers send,
and consumer groups push, poll and pop, while brokers are killed, lose power, are cut off from each
other or from clients, and give the lead to each other; members of the groups join, leave and die.
Times of faults and quiet times take turns. At the end everything is repaired, and these rules are
checked:

| rule | demand |
| --- | --- |
| H1 to H11 | ``tests/history``: every attempt of a send and every pull, beside the three logs |
| H10 | ``tests/client/invariants.py`` for order, locks, commits and repetitions |
| H10 | what was committed in a quiet time does not come again, whichever broker leads |
| H10 | what was acknowledged by a group that pops in a quiet time does not come again |
| I18 | after the faults there is one master soon, and all logs have the same bytes |
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from twisted.python.failure import Failure

from tests.client.invariants import PromiseBroken
from tests.client.simulated_member import SimulatedMember
from tests.history.check import check_history
from tests.history.records import Commit, Entry, FinalLog, History
from tests.plugins.dledger.client_members import PolledMember, PoppingMember
from tests.plugins.dledger.client_records import (
    GroupInvariants,
    PopInvariants,
    RequestRecorder,
    queue_name,
)
from tests.plugins.dledger.group_cluster import GroupCluster, MemberServer
from tests.plugins.dledger.kernels import NAMES
from tests.plugins.dledger.logged_failures import logged_failures
from tests.plugins.timer.small_wheel import small_wheel
from tests.raft.simulation.world import InvariantBroken
from twistmq.client.base.messages import Message, SendResult
from twistmq.client.core.producer.sender import Sender
from twistmq.client.roles.parts import build_producer
from twistmq.client.testing import MemoryClient

__all__ = ["ClientGroupSimulation"]

TOPIC: Final = "T"
#: The consumer groups, by the way in which their members receive messages.
KINDS: Final = ("jobs", "orders", "polls", "pops")
_MEMBERS_MAX: Final = 3
#: The times between two steps, ms.
_ELAPSED_MS: Final = (5, 60, 400, 1500)
#: The lengths of the times of faults, and of the quiet times after them, ms.
_FAULTS_MS: Final = (4000, 10_000, 20_000)
_QUIET_MS: Final = (0, 20_000, 60_000)
#: How long everything may take to be whole after the faults, and to be handled, ms.
_WHOLE_MS: Final = 60_000
_HANDLED_MS: Final = 600_000
#: A commit is known to all members after this time without a disturbance, ms: it is sent, copied
#: by the followers, and saved by them.
_SETTLED_MS: Final = 15_000
#: In this time without a disturbance all members of consumer groups have learnt about the brokers
#: and about each other, ms: routes are asked for every 30 s, and queues are divided every 20 s.
_LEARNT_MS: Final = 50_000
#: The time between two looks, ms.
_LOOK_MS: Final = 250

AnyMember = SimulatedMember | PolledMember | PoppingMember


@dataclass(slots=True)
class _Counts:
    """What happened in a run."""

    kills: int = 0
    leader_kills: int = 0
    power_losses: int = 0
    cuts: int = 0
    transfers: int = 0
    elections: int = 0
    acknowledged: int = 0
    handled: int = 0
    repeats: int = 0


class ClientGroupSimulation:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps: list[str] = []
        self.counts = _Counts()
        self.history = History()
        self.draw = random.Random(seed)
        #: Whether members count entries only after a sync, so that all of them may lose power.
        self.is_durable = self.draw.random() < 0.5
        #: Whether members lose power. Their disks then keep what is not synced apart.
        self.loses_power = self.draw.random() < 0.4
        self.promises: dict[str, GroupInvariants | PopInvariants] = {}
        self.members: list[AnyMember] = []
        self._kinds_of: dict[int, str] = {}
        self._recorders: list[RequestRecorder] = []
        self._senders: list[tuple[MemoryClient, Sender]] = []
        self._sent = 0
        self._restarts: dict[str, float] = {}
        self._master = ""
        self._disturbed_ms = 0.0
        self._logged: list[Failure] = []
        self._failing = self.draw.choice((0.0, 0.0, 0.1))

    def run(self) -> None:
        """Run the seed.

        :raises InvariantBroken: when a rule does not hold, or a part of a program fails.
        """
        log = logging.getLogger("twistmq.client")
        was_disabled, log.disabled = log.disabled, True
        try:
            with small_wheel(), logged_failures() as self._logged:
                self._run_all()
        except InvariantBroken:
            raise
        except PromiseBroken as broken:
            raise InvariantBroken("H10", str(broken)) from broken
        except Exception as error:
            raise InvariantBroken("program", f"{type(error).__name__}: {error}") from error
        finally:
            log.disabled = was_disabled

    def _run_all(self) -> None:
        draw = self.draw
        self.cluster = GroupCluster(self.seed, {
            "flushDiskType": "SYNC_FLUSH" if self.is_durable else "ASYNC_FLUSH",
            "flushDelayOffsetInterval": "1000", "reviveQueueNum": "1",
            "mappedFileSizeTimerLog": "1048576"}, has_power=not self.loses_power)
        self.cluster.elect()
        self.queue_count = draw.choice((1, 2, 4))
        self.cluster.create_topic(TOPIC, self.queue_count)
        for kind in draw.sample(KINDS, draw.choice((1, 1, 2))):
            self._make_promises(kind)
        for _ in range(draw.choice((1, 2))):
            self._add_producer()
        for kind in self.promises:
            self._join(kind)
        for _ in range(draw.choice((1, 2, 2))):
            self._fault_time()
            self._quiet_time(draw.choice(_QUIET_MS))
        self._become_whole()
        self._wait_until_handled()
        self._restart()
        self._check_end()

    # --- time

    @property
    def _now_ms(self) -> float:
        return self.cluster.now_ms

    def _advance(self, milliseconds: float) -> None:
        """Let time pass, and look at everything from time to time."""
        end_ms = self._now_ms + milliseconds
        while True:
            self._look()
            if self._now_ms >= end_ms:
                return
            self.cluster.advance(min(_LOOK_MS, end_ms - self._now_ms))

    def _look(self) -> None:
        """Start brokers that are due, note changes, and check the promises."""
        for name, start_ms in list(self._restarts.items()):
            if self._now_ms >= start_ms:
                del self._restarts[name]
                self._note(f"{name} starts")
                self.cluster.start_broker(name)
        masters = ",".join(server.member for server in self.cluster.masters)
        if masters != self._master:
            self._master = masters
            self.counts.elections += bool(masters)
            self._note(f"masters: {masters or 'none'}")
            self._disturb()
            for promises in self.promises.values():
                if isinstance(promises, GroupInvariants):
                    promises.masters_changed_ms = self.cluster.wall_ms()
        cluster = self.cluster
        if (not cluster.links.are_good or cluster.client_cuts or cluster.faults.delay_ms
                or len(cluster.alive) < len(NAMES) or len(cluster.masters) != 1):
            self._disturb()
        for error in (*cluster.failures, *(failure.value for failure in self._logged)):
            raise InvariantBroken("broker", f"{type(error).__name__}: {error}") from error
        for promises in self.promises.values():
            if self._now_ms - self._disturbed_ms >= _LEARNT_MS:
                promises.settle(self._disturbed_ms + 1000, self._now_ms - _SETTLED_MS)
            if promises.failures:
                raise promises.failures[0]
        for member in list(self.members):
            member.check()
            if member.is_closed:
                self.members.remove(member)

    def _disturb(self) -> None:
        self._disturbed_ms = self._now_ms

    def _note(self, text: str) -> None:
        self.steps.append(f"{self._now_ms / 1000:9.3f} s  {text}")

    def _fault_time(self) -> None:
        """Let faults happen, with sends and changes of members between them."""
        draw = self.draw
        faults: list[Callable[[], None]] = [
            self._kill, self._kill_master, self._kill_master, self._lose_power, self._cut_off,
            self._cut_one, self._cut_client, self._transfer, self._slow, self._lose,
            self._delay_clients, self._end_all]
        kinds = [*draw.sample(faults, draw.randint(1, 4)), self._heal]
        share = draw.choice((0.08, 0.2, 0.4))
        end_ms = self._now_ms + draw.choice(_FAULTS_MS)
        while self._now_ms < end_ms:
            if draw.random() < share:
                draw.choice(kinds)()
            else:
                draw.choice((self._send, self._send, self._send, self._send_oneway,
                             self._change_members))()
            self._advance(draw.choice(_ELAPSED_MS))

    def _quiet_time(self, milliseconds: float) -> None:
        """Repair everything, and send on."""
        if not milliseconds:
            return
        self._repair()
        end_ms = self._now_ms + milliseconds
        while self._now_ms < end_ms:
            self._send()
            self._advance(3000)

    # --- clients

    def _make_promises(self, kind: str) -> None:
        self.promises[kind] = (PopInvariants(self.cluster, self._is_sent_again) if kind == "pops"
                               else GroupInvariants(self.cluster, kind == "orders"))

    def _is_sent_again(self, body: str) -> bool:
        return sum(send.body == body for send in self.history.sends) > 1

    def _add_producer(self) -> None:
        client = self.cluster.client()
        self._recorders.append(RequestRecorder(self.cluster, client, self.history, TOPIC))
        sender = build_producer(client.core, {"await_master": self.draw.random() < 0.7})
        client.core.add(sender)
        self._senders.append((client, sender))

    def _send(self) -> None:
        _, sender = self.draw.choice(self._senders)
        for _ in range(self.draw.choice((1, 3, 10))):
            body = b"%d" % self._sent
            self._sent += 1
            message = Message(TOPIC, body, wait_stored=self.draw.random() < 0.7)
            sender.begin(sender.prepare(message), self._noting(body))

    def _noting(self, body: bytes) -> Callable[[SendResult | Exception], object]:
        def done(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, SendResult):
                self.counts.acknowledged += 1
                for promises in self.promises.values():
                    promises.acknowledged.add(body)

        return done

    def _send_oneway(self) -> None:
        client, sender = self.draw.choice(self._senders)
        message = sender.prepare(Message(TOPIC, b"%d" % self._sent))
        self._sent += 1
        sending = client.engine.tasks.spawn(sender.send_oneway(message), "one-way send")
        # Without a master, nobody learns that the message is lost.
        sending.when_done(lambda _: None)

    def _join(self, kind: str) -> None:
        cluster, promises = self.cluster, self.promises[kind]
        member: AnyMember
        if isinstance(promises, PopInvariants):
            member = PoppingMember(cluster, promises, kind, TOPIC, self.draw)
        elif kind == "polls":
            member = PolledMember(cluster, promises, kind, TOPIC, self.draw)
        else:
            member = SimulatedMember(cluster, promises, kind, TOPIC, kind == "orders", self.draw,
                                     self._fails)
        if kind != "pops":
            self._recorders.append(RequestRecorder(cluster, member.client, self.history, ""))
        self.members.append(member)
        self._kinds_of[id(member)] = kind
        self._disturb()
        self._note(f"{member.name} joins {kind}")

    def _fails(self) -> bool:
        return self.draw.random() < self._failing

    def _there(self, kind: str) -> list[AnyMember]:
        return [member for member in self.members
                if self._kinds_of[id(member)] == kind and not member.is_closing]

    def _change_members(self) -> None:
        """Let a member join, leave or die."""
        kind = self.draw.choice(list(self.promises))
        there = self._there(kind)
        step = self.draw.random()
        if not there or (step < 0.5 and len(there) < _MEMBERS_MAX):
            self._join(kind)
        elif step < 0.6:
            member = self.draw.choice(there)
            self._note(f"{member.name} leaves {kind}")
            self._disturb()
            member.close()
        elif step < 0.7:
            member = self.draw.choice(there)
            self._note(f"{member.name} of {kind} is killed")
            self._disturb()
            member.kill()
            self.members.remove(member)

    # --- faults

    def _count_end(self, server: MemberServer) -> None:
        self.counts.kills += 1
        self.counts.leader_kills += server.is_master
        self._restarts[server.member] = self._now_ms + self.draw.random() ** 2 * 12_000

    def _end(self, server: MemberServer) -> None:
        self._note(f"{server.member} is killed")
        self._count_end(server)
        self.cluster.kill_broker(server.member)

    def _kill(self) -> None:
        if self.cluster.alive:
            self._end(self.draw.choice(self.cluster.alive))

    def _kill_master(self) -> None:
        for server in self.cluster.masters[:1]:
            self._end(server)

    def _lose_power(self) -> None:
        """One member loses its power. If entries count before a sync, the others have them."""
        alive = self.cluster.alive
        if alive and self.loses_power and (self.is_durable or self.cluster.is_whole):
            self._lose_power_of(self.draw.choice(alive))

    def _lose_power_of(self, server: MemberServer) -> None:
        self._note(f"{server.member} loses its power")
        self._count_end(server)
        self.counts.power_losses += 1
        self.cluster.lose_power(server.member)

    def _end_all(self) -> None:
        """All members end at once."""
        loses_power = self.loses_power and self.is_durable and self.draw.random() < 0.5
        for server in self.cluster.alive:
            if loses_power:
                self._lose_power_of(server)
            else:
                self._end(server)

    def _cut_off(self) -> None:
        masters = self.cluster.masters
        name = (masters[0].member if masters and self.draw.random() < 0.6
                else self.draw.choice(NAMES))
        self._note(f"{name} is cut off from the other members")
        self.counts.cuts += 1
        self.cluster.isolate(name)

    def _cut_one(self) -> None:
        first, second = self.draw.sample(NAMES, 2)
        self._note(f"cut: {first} to {second}")
        self.counts.cuts += 1
        self.cluster.links.cut.add((first, second))

    def _cut_client(self) -> None:
        """A client loses a member, by a reset or in silence."""
        clients = [client for client, _ in self._senders] + [
            member.client for member in self.members]
        client = self.draw.choice(clients)
        masters = self.cluster.masters
        server = (masters[0] if masters and self.draw.random() < 0.7
                  else self.draw.choice(list(self.cluster.members.values())))
        self.counts.cuts += 1
        if self.draw.random() < 0.5:
            self._note(f"{client.core.client_id} is reset by {server.member}")
            self._disturb()
            client.cut(server.address)
        else:
            self._note(f"{client.core.client_id} and {server.member} are cut")
            self.cluster.cut_client(client, server.address)

    def _transfer(self) -> None:
        for server in self.cluster.masters[:1]:
            name = self.draw.choice([name for name in NAMES if name != server.member])
            self._note(f"{server.member} gives the lead to {name}")
            self.counts.transfers += 1
            server.node.transfer_lead(name)

    def _slow(self) -> None:
        self._note("the links between the members are slow")
        self.cluster.links.delay_seconds_max = self.draw.choice((0.05, 0.3, 1.5))

    def _lose(self) -> None:
        self._note("the links between the members lose messages")
        self.cluster.links.loss = self.draw.choice((0.05, 0.2))

    def _delay_clients(self) -> None:
        self._note("the links of the clients are slow")
        faults = self.cluster.faults
        faults.delay_ms = self.draw.choice((5, 200, 1000))
        faults.reorders = self.draw.random() < 0.5

    def _heal(self) -> None:
        self._note("the links are repaired")
        self.cluster.heal()

    # --- the end

    def _repair(self) -> None:
        self._heal()
        for name in self._restarts:
            self._restarts[name] = self._now_ms
        self._look()

    def _become_whole(self) -> None:
        """Repair everything: rules I18 and H11."""
        self._repair()
        self._failing = 0.0
        end_ms = self._now_ms + _WHOLE_MS
        while not self.cluster.is_whole:
            if self._now_ms >= end_ms:
                raise InvariantBroken("I18", f"not whole after {_WHOLE_MS} ms: " + "; ".join(
                    f"{server.member} {server.box.kernel.role} ends at "
                    f"{server.box.kernel.store.commit_log.max_offset}, confirmed "
                    f"{server.box.kernel.store.dispatch.confirm_offset}"
                    for server in self.cluster.alive))
            self._advance(500)
        self._note("all is whole")
        for kind in self.promises:
            if not self._there(kind):
                self._join(kind)
        # The clients look at their routes every 30 s.
        self._advance(31_000)
        begin = self.cluster.wall_ms()
        for _ in range(6):
            self._send()
            self._advance(3000)
        self.history.calm.append((begin, self.cluster.wall_ms()))

    def _missing(self) -> dict[str, list[bytes]]:
        return {kind: sorted(promises.missing)[:5]
                for kind, promises in self.promises.items() if promises.missing}

    def _wait_until_handled(self) -> None:
        end_ms = self._now_ms + _HANDLED_MS
        while missing := self._missing():
            if self._now_ms >= end_ms:
                raise InvariantBroken("H10", f"not handled: {missing}")
            self._advance(2000)
        self._note("all is handled")

    def _restart(self) -> None:
        """In some seeds, close all members; new ones begin where they ended."""
        groups = {kind: promises for kind, promises in self.promises.items()
                  if isinstance(promises, GroupInvariants)}
        if self.draw.random() >= 0.15 or not groups:
            return
        end_ms = self._now_ms + _HANDLED_MS
        # Messages of members that were killed come again meanwhile, and locks of theirs end.
        self._advance(65_000)
        while not all(promises.is_all_committed for promises in groups.values()):
            if self._now_ms >= end_ms:
                raise InvariantBroken("H10", "what is finished is not committed")
            self._advance(5000)
        for member in list(self.members):
            if not member.is_closing:
                self._note(f"{member.name} leaves in order")
                member.close(10_000)
        self._advance(26_000)
        if self.members:
            raise InvariantBroken("H10", f"{[each.name for each in self.members]} do not close")
        for promises in groups.values():
            promises.never_again = set(promises.handled)
        for server in self.cluster.masters[:1]:
            self._end(server)
        self._become_whole()
        self._wait_until_handled()

    def _check_end(self) -> None:
        # The members of groups still store offsets and acknowledgements from time to time.
        self.cluster.wait_for(lambda: self.cluster.is_whole, _WHOLE_MS)
        for recorder in self._recorders:
            recorder.end()
        self.counts.handled = sum(len(each.handled) for each in self.promises.values())
        self.counts.repeats = sum(each.repeats for each in self.promises.values())
        history = self.history
        history.handled = {kind: {body.decode() for body in promises.handled}  # type: ignore[misc]
                           for kind, promises in self.promises.items()}
        history.logs = {server.member: self._final_log(server) for server in self.cluster.alive}
        history.commits = self._commits()
        files = [self._files(server) for server in self.cluster.alive]
        if len(files) < len(NAMES) or any(each != files[0] for each in files):
            raise InvariantBroken("I18", "the logs have different bytes")
        anomalies = check_history(history)
        if anomalies:
            raise InvariantBroken(anomalies[0].rule, anomalies[0].text)
        for server in self.cluster.alive:
            server.box.kernel.store.close()

    def _final_log(self, server: MemberServer) -> FinalLog:
        entries = [
            Entry(message.physical_offset, queue_name(TOPIC, queue_id), message.queue_offset,
                  message.body.decode(), message.store_timestamp)
            for queue_id in range(self.queue_count)
            for message in server.box.stored(TOPIC, queue_id)]
        return FinalLog(sorted(entries, key=lambda entry: entry.place))

    def _files(self, server: MemberServer) -> list[bytes]:
        folder = f"/store/dledger-{server.member}/data"
        end = server.box.kernel.store.commit_log.max_offset
        disk: Any = server.box.disk
        return [disk.read_file(f"{folder}/{name}")[:max(0, end - int(name))]
                for name in sorted(disk.list_directory(folder)) if name.isdecimal()]

    def _commits(self) -> list[Commit]:
        """Return the offsets that the groups have committed, at each member."""
        commits = []
        for server in self.cluster.alive:
            kernel = server.box.kernel
            for kind in self.promises:
                for queue_id in range(self.queue_count):
                    offset = kernel.consumer_offset.query(kind, TOPIC, queue_id)
                    if offset >= 0:
                        commits.append(Commit(
                            kind, queue_name(TOPIC, queue_id), offset,
                            kernel.store.queues.max_offset(TOPIC, queue_id)))
        return commits
