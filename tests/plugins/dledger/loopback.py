"""Three nodes of one group in memory, on one clock, with links that can be cut and processes that
can be killed.

group = Loopback(self)
leader = group.elect()
group.append(leader, b"body")
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.dledger.node import GroupNode
from twistmq.raft.actions import Role
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import Member
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.messages import Request, Response
from twistmq.raft.settings import MemberSettings

__all__ = ["Loopback", "Machine"]

DELAY = 0.001
NAMES = ("n0", "n1", "n2")


@dataclass
class Machine:
    """One member: its disk, its node while the process is alive, and the reports of the node."""

    name: str
    loop: Loopback
    log: MemoryLog = field(default_factory=MemoryLog)
    state: HardState | None = None
    node: GroupNode | None = None
    committed: int = -1
    roles: list[tuple[Role, int, str]] = field(default_factory=list)
    #: Whether the listener was told to accept work, and not told to stop.
    accepts: bool = False
    failed: bool = False
    #: Saves and syncs that wait until the test ends them, while ``is_slow``.
    is_slow: bool = False
    held: list[Deferred[None]] = field(default_factory=list)
    saves: int = 0
    disk_fault: str = ""

    # GroupListener

    def lead_lost(self) -> None:
        self.accepts = False

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        self.roles.append((role, term, leader))

    def lead_established(self, term: int) -> None:
        self.accepts = True

    def entries_committed(self, index: int) -> None:
        self.committed = index

    def node_failed(self) -> None:
        self.failed = True

    # MemberStorage

    def save(self, state: HardState) -> Deferred[None]:
        self.saves += 1
        return self._later().addCallback(lambda _: setattr(self, "state", state))

    def flush(self) -> Deferred[None] | None:
        return self._later()

    def fault(self) -> str:
        return self.disk_fault

    def _later(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self.is_slow:
            self.held.append(done)
        else:
            self.loop.clock.callLater(DELAY, done.callback, None)
        return done

    def end_held(self, error: Exception | None = None) -> None:
        """End all saves and syncs that wait."""
        held, self.held = self.held, []
        for each in held:
            if error is None:
                each.callback(None)
            else:
                each.errback(error)

    # GroupLinks

    def rest_ms(self) -> int | None:
        """Return None, because ``tick`` never has anything to do here."""
        return None

    def tick(self, now_ms: int = 0) -> None:
        """Each request ends by itself in this network, so a tick does nothing."""

    def close(self) -> None:
        """A test kills the process instead of closing the network."""

    def ask(self, peer: str, request: Request, *, bulk: bool) -> Deferred[Response]:
        return self.loop.ask(self.name, peer, request)


class Loopback:
    """A group whose messages take a millisecond."""

    def __init__(self, test: SynchronousTestCase, seed: int = 1, **settings: object) -> None:
        self.clock = Clock()
        self.test = test
        self.random = random.Random(seed)
        self._settings = settings
        #: Pairs (from, to) between which nothing arrives.
        self.cut: set[tuple[str, str]] = set()
        self.machines = {name: Machine(name, self) for name in NAMES}
        for name in NAMES:
            self.start(name)

    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def start(self, name: str) -> None:
        """Start the process of a member with its disk."""
        machine = self.machines[name]
        settings = MemberSettings("g", name, NAMES, **self._settings)  # type: ignore[arg-type]
        member = Member(settings, machine.log, machine.state, machine.committed)
        machine.node = GroupNode(
            member, machine, machine, machine, self.now_ms,
            lambda delay, run: self.clock.callLater(delay, run), self.random.random)
        machine.node.start()

    def kill(self, name: str) -> None:
        """Kill a member; its peers find that its port is closed."""
        machine = self.machines[name]
        assert machine.node is not None
        machine.node.stop()
        machine.node = None
        for other in self.machines.values():
            if other.node is not None:
                self.clock.callLater(DELAY, other.node.note_peer_gone, name)

    def ask(self, sender: str, receiver: str, request: Request) -> Deferred[Response]:
        """Deliver a request and its response."""
        answered: Deferred[Response] = Deferred()

        def arrive() -> None:
            node = self.machines[receiver].node
            if (sender, receiver) in self.cut:
                return
            if node is None:
                answered.errback(ConnectionError("no process"))
                return
            node.answer_request(request).addCallbacks(back, answered.errback)

        def back(response: Response) -> None:
            if (receiver, sender) not in self.cut:
                self.clock.callLater(DELAY, answered.callback, response)

        self.clock.callLater(DELAY, arrive)
        return answered

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.pump([DELAY] * int(seconds / DELAY))

    def leader(self) -> Machine | None:
        """Return the member that accepts proposals."""
        accepting = [machine for machine in self.machines.values()
                     if machine.node is not None and machine.accepts]
        return accepting[-1] if accepting else None

    def elect(self, seconds: float = 20.0, besides: str = "") -> Machine:
        """Let time pass until a member accepts work.

        :param besides: a member that is not meant.
        """
        for _ in range(int(seconds / DELAY)):
            leader = self.leader()
            if leader is not None and leader.name != besides:
                return leader
            self.clock.advance(DELAY)
        raise self.test.failureException(f"no leader within {seconds} s")

    def append(self, leader: Machine, *bodies: bytes) -> int:
        """Append entries as the leader's broker does; returns the index of the last one."""
        assert leader.node is not None and leader.node.member.is_appendable
        leader.log.extend(leader.node.member.term, bodies)
        leader.node.note_appended()
        return leader.log.end_index

    def bodies(self, name: str) -> list[bytes]:
        """The bodies in the log of a member, without barriers."""
        return [entry.body for entry in self.machines[name].log.entries if entry.body]
