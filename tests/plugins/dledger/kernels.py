"""Three brokers of one group without a network: kernels with the plugin, on disks in memory.

    group = KernelGroup(self)
    leader = group.elect()
    group.send(leader, b"body")

All of them are on one clock. A message from one member to another needs a millisecond.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.api import Broker, PeriodicTask
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import admin, dledger, schedule, timer
from twistmq.plugins.dledger.group_broker import ConnectGroup, GroupBroker
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.settings import group_settings
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.header import CommandHeader
from twistmq.raft.messages import Request, Response

__all__ = ["NAMES", "SETTINGS", "TOPIC", "Answer", "KernelGroup", "Machine", "group_plugin"]

NAMES: Final = ("n0", "n1", "n2")
TOPIC: Final = "T"
#: The time between two rounds of periodic tasks, ms.
_TASKS_MS: Final = 100
#: The longest rest of a task, ms.
_REST_MAX_MS: Final = 1000
#: The settings of all members.
SETTINGS: Final = {
    "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dledger.quick_failover": "true",
    "dLegerPeers": ";".join(f"{name}-127.0.0.1:{40911 + at}" for at, name in enumerate(NAMES)),
    "mappedFileSizeCommitLog": "65536", "maxMessageSize": "30000"}

Answer = Callable[[Request], Deferred[Response]]


def group_plugin(
    timers: object, connect: ConnectGroup, draw: Callable[[], float]
) -> type[dledger.Plugin]:
    """Return the plugin with a network in memory.

    :param timers: the clock of the broker's timers.
    :param connect: connects the member to its group.
    :param draw: returns the random numbers of elections.
    """
    class MemoryPlugin(dledger.Plugin):
        """The plugin of one life of a member."""

        def __init__(self, broker: Broker) -> None:
            # The host of a box has a clock of its own.
            broker.host.timers = timers  # type: ignore[attr-defined]
            broker.hooks.add("dledger_member", GroupBroker(
                broker, group_settings(broker.settings), connect, draw))

    return MemoryPlugin


class Machine:
    """One broker of the group and its disk."""

    def __init__(self, name: str, group: KernelGroup, disk: MemoryDisk) -> None:
        self.name = name
        self.group = group
        self.disk = disk
        self.box: KernelBox | None = None
        self.answer: Answer | None = None
        self.peer_gone: Callable[[str], None] | None = None
        self._due: dict[object, int] = {}
        #: When each task ran last, ms.
        self._ran: dict[object, int] = {}
        #: The number of runs, and of runs that were left out because the task rested.
        self.runs = self.rests = 0

    # GroupLinks

    def ask(self, peer: str, request: Request, *, bulk: bool) -> Deferred[Response]:
        return self.group.ask(self.name, peer, request)

    def rest_ms(self) -> int | None:
        """Return None, because ``tick`` never has anything to do here."""
        return None

    def tick(self, now_ms: int = 0) -> None:
        """Each request ends by itself in this network, so a tick does nothing."""

    def close(self) -> None:
        self.answer = None

    # life

    @property
    def kernel(self) -> Any:
        assert self.box is not None, f"{self.name} is not alive"
        return self.box.kernel

    @property
    def broker(self) -> GroupBroker:
        """Return the hooks of the plugin."""
        assert self.box is not None
        return self.box.plugin(GroupBroker)

    def start(self, settings: Mapping[str, str]) -> None:
        def connect(
            broker: Broker, group: PeerGroup, answer: Answer, peer_gone: Callable[[str], None],
            find_leader: Callable[[], str],
        ) -> Machine:
            self.answer, self.peer_gone = answer, peer_gone
            return self

        port = 10911 + 10 * NAMES.index(self.name)
        self.box = KernelBox(
            [("admin", admin.Plugin),
             ("dledger", group_plugin(self.group.clock, connect, self.group.chance.random)),
             ("schedule", schedule.Plugin), ("timer", timer.Plugin), *self.group.plugins],
            {**SETTINGS, "dLegerSelfId": self.name, "listenPort": str(port), **settings},
            self.disk, self.group.now_ms)
        host: Any = self.box.host
        host.find_members, host.ask_server = self.group.find_members, self.group.ask_server
        self._due = {task: self.group.now_ms() + task.first_ms
                     for task in self.kernel.periodic_tasks}
        self._ran = {}

    def run_tasks(self) -> None:
        """Run the periodic tasks that are due, unless they rest."""
        now_ms = self.group.now_ms()
        assert self.box is not None
        self.box.now_ms = now_ms
        for task in self.kernel.periodic_tasks:
            if self._due[task] <= now_ms:
                period = task.period_ms
                self._due[task] = now_ms + (period() if callable(period) else period)
                if now_ms < self._ran.get(task, 0) + _REST_MAX_MS and _rests(task):
                    self.rests += 1
                    continue
                self._ran[task] = now_ms
                self.runs += 1
                waiting = task.run(now_ms)
                if waiting is not None:
                    waiting.addErrback(lambda failure: failure.trap(RemotingError))


def _rests(task: PeriodicTask) -> bool:
    """Return whether a task has nothing to do until its next run."""
    if task.rest_ms is None:
        return False
    rest_ms = task.rest_ms()
    return rest_ms is None or rest_ms > _TASKS_MS


class KernelGroup:
    """A group of three brokers.

    :param plugins: plugins beside those that every broker of these tests has.
    :param chance: the random choices of the members.
    :param make_disk: makes the disk of each broker.
    """

    def __init__(self, test: SynchronousTestCase, plugins: Sequence[tuple[str, object]] = (),
                 chance: random.Random | None = None,
                 make_disk: Callable[[], MemoryDisk] = MemoryDisk, **settings: str) -> None:
        self.test = test
        self.chance = chance or random.Random(0)
        self.plugins = plugins
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.settings = {name.replace("__", "."): text for name, text in settings.items()}
        self.cut: set[tuple[str, str]] = set()
        self.machines = {name: Machine(name, self, make_disk()) for name in NAMES}
        self._tasks_ms = self.now_ms() + _TASKS_MS
        for name in NAMES:
            self.start(name)

    def now_ms(self) -> int:
        return round(self.clock.seconds() * 1000)

    def start(self, name: str) -> None:
        """Start the broker of a member on its disk."""
        self.machines[name].start(self.settings)

    def kill(self, name: str) -> None:
        """Kill a broker; the others find that its port is closed."""
        machine = self.machines[name]
        box, machine.box, machine.answer = machine.box, None, None
        assert box is not None
        node = box.plugin(GroupBroker).node
        assert node is not None
        box.kernel.store.close()
        # A process that is killed does nothing any more.
        node._runs = False
        for other in self.alive:
            assert other.peer_gone is not None
            self.clock.callLater(0.001, other.peer_gone, name)

    @property
    def alive(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.box is not None]

    def step(self) -> None:
        """Let time pass until something happens: a timer, a message, or the next round of tasks."""
        due_ms = self._tasks_ms
        for call in self.clock.getDelayedCalls():
            due_ms = min(due_ms, round(call.getTime() * 1000))
        self.clock.advance(max(1, due_ms - self.now_ms()) / 1000)
        if self.now_ms() >= self._tasks_ms:
            self._tasks_ms = self.now_ms() + _TASKS_MS
            for machine in self.alive:
                machine.run_tasks()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms() + int(seconds * 1000)
        while self.now_ms() < end_ms:
            self.step()

    def until(self, true: Callable[[], object], what: str, seconds: float = 20) -> None:
        """Let time pass until a condition holds."""
        end_ms = self.now_ms() + int(seconds * 1000)
        while not true():
            if self.now_ms() >= end_ms:
                raise self.test.failureException(f"{what}: not within {seconds} s")
            self.step()

    @property
    def masters(self) -> list[Machine]:
        return [machine for machine in self.alive if not machine.kernel.is_slave]

    def elect(self, besides: str = "") -> Machine:
        """Wait for a master."""
        self.until(lambda: [each for each in self.masters if each.name != besides], "no master")
        return next(each for each in self.masters if each.name != besides)

    # --- the network

    def ask(self, sender: str, receiver: str, request: Request) -> Deferred[Response]:
        answered: Deferred[Response] = Deferred()

        def arrive() -> None:
            answer = self.machines[receiver].answer
            if (sender, receiver) in self.cut:
                return
            if answer is None:
                answered.errback(ConnectionError("no process"))
            else:
                answer(request).addCallbacks(back, answered.errback)

        def back(response: Response) -> None:
            if (receiver, sender) not in self.cut:
                self.clock.callLater(0.001, answered.callback, response)

        self.clock.callLater(0.001, arrive)
        return answered

    def isolate(self, name: str) -> None:
        """Cut the connections of a member to the others."""
        self.cut |= {pair for other in NAMES for pair in ((name, other), (other, name))}

    async def find_members(self, broker_name: str) -> dict[int, str]:
        """Return the ids of the brokers that have registered, as name servers do."""
        return {machine.kernel.broker_id: machine.kernel.broker_address for machine in self.alive
                if machine.kernel.identity.registers}

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        for machine in self.alive:
            if machine.kernel.broker_address == address:
                assert machine.box is not None
                return machine.box.ask(code, header, body)
        raise RemotingError(f"there is no broker at {address}")

    # --- clients

    def begin_send(
        self, machine: Machine, body: bytes, topic: str = TOPIC,
        properties: Mapping[str, str] | None = None,
    ) -> Callable[[], RemotingCommand | None]:
        """Send a message; the returned function gives the reply, or None until there is a reply."""
        return self.begin(machine, RequestCode.SEND_MESSAGE_V2, send_header(
            topic, self.now_ms(), properties=properties), body)

    def begin(self, machine: Machine, code: int, header: CommandHeader, body: bytes = b""
              ) -> Callable[[], RemotingCommand | None]:
        """Send a request; the returned function gives the reply, or None until there is a reply."""
        box = machine.box
        assert box is not None
        peer: Peer = box.peer()
        reply = box.send(peer, code, header, body)
        return lambda: reply or next(iter(box.late_replies(peer)), None)

    def send(
        self, machine: Machine, body: bytes, topic: str = TOPIC,
        properties: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Send a message and wait for the reply."""
        return self.reply(self.begin_send(machine, body, topic, properties))

    def request(self, machine: Machine, code: int, header: CommandHeader, body: bytes = b""
                ) -> RemotingCommand:
        """Send a request and wait for the reply."""
        return self.reply(self.begin(machine, code, header, body))

    def reply(self, reply: Callable[[], RemotingCommand | None]) -> RemotingCommand:
        """Wait for a response."""
        self.until(reply, "no reply")
        answer = reply()
        assert answer is not None
        return answer

    def bodies(self, name: str, topic: str = TOPIC) -> list[bytes]:
        """Return the bodies in the queue of a broker."""
        box = self.machines[name].box
        assert box is not None
        return [message.body for message in box.stored(topic, 0)]
