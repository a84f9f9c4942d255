"""The servers of a cluster in memory: this project's name server and brokers, without ports.

Each server has the same protocol that serves sockets, on connections in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from twistmq.broker.namesrv.registration import Registration
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.steady_clock import TICK_MS
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.name_server import PortlessNameServer, StillChannel
from twistmq.plugins.orderly import Plugin as Orderly
from twistmq.plugins.pop import Plugin as Pop
from twistmq.plugins.retry import Plugin as Retry
from twistmq.plugins.schedule import Plugin as Schedule
from twistmq.plugins.timer import Plugin as Timer
from twistmq.protocol.bodies import TopicConfig

__all__ = ["MemoryBroker", "MemoryNameServer"]

#: How often a broker registers with the name server.
_REGISTER_MS: Final = 30_000
_PLUGINS: Final = (("orderly", Orderly), ("retry", Retry), ("schedule", Schedule))
#: The plugins of a broker with pop consumption: retries of popped messages are timed messages.
_POP_PLUGINS: Final = (*_PLUGINS, ("timer", Timer), ("pop", Pop))


class _Periodic:
    """Periodic tasks, which run when the cluster's clock ticks.

    :param failed: called with the failure of a task.
    """

    def __init__(
        self, tasks: Sequence[PeriodicTask], now_ms: int, failed: Callable[[Failure], object],
    ) -> None:
        self._failed = failed
        self._due: list[tuple[PeriodicTask, int]] = [
            (task, now_ms + task.first_ms) for task in tasks]

    def run(self, now_ms: int, wall_ms: int) -> None:
        """Run the tasks that are due."""
        for index, (task, due_ms) in enumerate(self._due):
            if due_ms <= now_ms:
                period = task.period_ms
                self._due[index] = task, now_ms + (period() if callable(period) else period)
                maybeDeferred(task.run, wall_ms).addErrback(self._failed)


def _raise(failure: Failure) -> None:
    failure.raiseException()


class MemoryNameServer:
    """The name server of a cluster."""

    def __init__(self, reactor: Clock, address: str, steady_ms: Callable[[], int]) -> None:
        self.address = address
        self.is_up = True
        self.server = PortlessNameServer(clock=steady_ms)
        dispatcher = Dispatcher({row.code: row for row in self.server.handlers()}, Hooks())
        self.factory = RemotingFactory(
            reactor, dispatcher, ChannelTable(), steady_ms, reactor.seconds)
        self._periodic = _Periodic(self.server.periodic_tasks(), steady_ms(), _raise)
        self._steady_ms = steady_ms

    def tick(self) -> None:
        """Run the tasks that are due."""
        now_ms = self._steady_ms()
        self.server.steady.tick()
        self._periodic.run(now_ms, now_ms)


class MemoryBroker:
    """A broker of a cluster.

    :param steady_ms: the clock of the cluster.
    :param settings: the settings, texts by name.
    :param pop: whether the broker supports pop consumption.
    :param disk: its disk; None: an empty one.
    """

    def __init__(
        self, reactor: Clock, name: str, address: str, names: MemoryNameServer,
        steady_ms: Callable[[], int], settings: Mapping[str, str], seed: int, pop: bool = False,
        disk: MemoryDisk | None = None,
    ) -> None:
        self.name = name
        self.address = address
        #: The difference between its wall clock and the cluster's, ms.
        self.jump_ms = 0
        #: When it was last killed, by the cluster's clock; None: never.
        self.killed_ms: int | None = None
        self._reactor = reactor
        self._names = names
        self._steady_ms = steady_ms
        self._seed = seed
        self._plugins = _POP_PLUGINS if pop else _PLUGINS
        host, _, port = address.rpartition(":")
        self._settings = {
            "brokerName": name, "brokerIP1": host, "listenPort": port, "brokerIP2": host,
            **settings}
        self._disk = disk or MemoryDisk()
        self.start()

    def start(self) -> None:
        """Start with the files on the disk."""
        self.box = self._make_box()
        self.box.jump_ms = self.jump_ms
        kernel = self.box.kernel
        kernel.random.seed(self._seed)
        kernel.identity.set_port(int(self._settings["listenPort"]))
        self.factory = RemotingFactory(
            self._reactor, kernel.dispatcher, kernel.channels, self._wall_ms,
            self._reactor.seconds, steady=kernel.steady)
        self._channel = StillChannel()
        self._periodic = _Periodic([
            *kernel.periodic_tasks,
            PeriodicTask("register", _REGISTER_MS, _REGISTER_MS, lambda _: self._register()),
            PeriodicTask("record that the process runs", 0, TICK_MS, kernel.steady.tick),
        ], self._steady_ms(), self._task_failed)
        self.is_up = True
        self.box.host.on_topic_change.append(self._register)
        self._register()

    def _task_failed(self, failure: Failure) -> None:
        """Handle the failure of a periodic task."""
        _raise(failure)

    def _make_box(self) -> KernelBox:
        """Make the kernel of one life."""
        return KernelBox(self._plugins, self._settings, self._disk, clock=self._steady_ms)

    def _wall_ms(self) -> int:
        return self._steady_ms() + self.jump_ms

    def _register(self) -> None:
        """Register all topics with the name server."""
        identity = self.box.kernel.identity
        if not (self.is_up and identity.registers):
            return
        topics = self.box.kernel.topic_config.topic_tables()
        topics.topic_config_table = dict(self.box.kernel.topic_config.table)
        self._names.server.routes.register(Registration(
            cluster="DefaultCluster", address=self.address, broker_name=self.name,
            broker_id=identity.broker_id,
            ha_address=self.address, channel=self._channel, topics=topics), self._steady_ms())

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic with the given number of queues to read and write."""
        self.box.kernel.topic_config.update(TopicConfig(topic, queues, queues, 6), {})
        self._register()

    def kill(self) -> None:
        """End at once; only data that is already on the disk is kept."""
        self.is_up = False
        self.killed_ms = self._steady_ms()
        self._disk.forget_locks()
        self._names.server.connection_lost(self._channel)

    def jump(self, milliseconds: int) -> None:
        """Set its wall clock forward or back."""
        self.jump_ms += milliseconds
        self.box.jump_ms = self.jump_ms

    def tick(self) -> None:
        """Run the tasks that are due."""
        if self.is_up:
            self._periodic.run(self._steady_ms(), self._wall_ms())
