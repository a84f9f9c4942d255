"""A cluster in memory: brokers, a name server and clients, with a clock that the test sets."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twisted.internet.task import Clock

from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import Message, ReceivedMessage, SendResult, message_of
from twistmq.client.core.connection.client import ClientCore, ClientOptions
from twistmq.client.core.connection.engine import Close, Connect, Effect, Work, Write
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.subscriptions import Topics
from twistmq.client.core.pop.pop_consumer import PopMember
from twistmq.client.core.producer.sender import Sender
from twistmq.client.roles.parts import build_consumer, build_pop_consumer, build_producer
from twistmq.client.testing.network import Faults, Pipe
from twistmq.client.testing.servers import MemoryBroker, MemoryNameServer

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import MessageArguments

__all__ = ["MemoryClient", "MemoryCluster", "MemoryMember", "MemoryPopMember",
           "MemoryProducer"]

T = TypeVar("T")

#: The address of the name server.
NAMESRV: Final = "10.0.0.9:9876"
#: How often the servers run their periodic tasks, ms.
_TICK_MS: Final = 1000
_BEGIN_MS: Final = 1_700_000_000_000
#: The number of names of brokers.
_BROKERS_MAX: Final = 26
_ENDLESS_MS: Final = float("inf")


class _ClientClock:
    """The clocks of a client. They follow the cluster's, but a test may set the wall clock."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.jump_ms = 0

    def monotonic_ms(self) -> float:
        """Milliseconds for measuring durations."""
        return self._cluster.now_ms

    def wall_ms(self) -> int:
        """Unix ms."""
        return int(_BEGIN_MS + self._cluster.now_ms) + self.jump_ms


class MemoryClient:
    """A client of a cluster: its core and its connections.

    Producers and consumers are made with ``core``. Functions in ``on_write`` get the address and
    the bytes of each write.
    """

    def __init__(self, cluster: MemoryCluster, number: int, options: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.clock = _ClientClock(cluster)
        self.ip = f"10.0.1.{number}"
        option_values = {"name_servers": (NAMESRV,), "client_id": f"{self.ip}@{number}", **options}
        self.core = ClientCore(ClientOptions(**option_values), self.clock, cluster.chance.randrange)
        self.engine = self.core.engine
        self.is_up = True
        #: The client does nothing until this time, like a process that was stopped.
        self.stopped_until_ms = 0.0
        self.pipes: dict[int, Pipe] = {}
        self.on_write: list[Callable[[str, bytes], object]] = []

    def address(self, number: int) -> str:
        """The client's side of a connection, "ip:port"."""
        return f"{self.ip}:{40_000 + number}"

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_ms: float = 120_000) -> T:
        """Run a coroutine of the core to its end; the clock advances as needed.

        :raises TimeoutError: when it does not end in time.
        """
        task: Future[T] = self.engine.tasks.spawn(coroutine)
        # The caller gets an error of the task, so the log does not need it.
        task.when_done(lambda _: None)
        self.cluster.wait_for(lambda: task.is_done, timeout_ms)
        return task.result()

    def settle(self) -> bool:
        """Do all work that is possible now; :returns: whether there was any."""
        if not self.is_up or self.stopped_until_ms > self.cluster.now_ms:
            return False
        self.engine.run()
        effects = self.engine.take_effects()
        for effect in effects:
            self._do(effect)
        return bool(effects)

    def due_ms(self) -> float | None:
        """When the next timer is due."""
        if not self.is_up:
            return None
        due = self.engine.tasks.next_due_ms
        return None if due is None else max(due, self.stopped_until_ms)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Connect):
            self.pipes[effect.number] = self.cluster.connect(self, effect)
        elif isinstance(effect, Write):
            pipe = self.pipes.get(effect.number)
            if pipe is not None and not pipe.is_over:
                for listener in self.on_write:
                    listener(pipe.address, effect.data)
                pipe.to_server(effect.data)
        elif isinstance(effect, Close):
            pipe = self.pipes.get(effect.number)
            if pipe is not None:
                pipe.close()
        elif isinstance(effect, Work):
            try:
                self.engine.worked(effect.number, effect.function(), None)
            except Exception as error:
                self.engine.worked(effect.number, None, error)

    def cut(self, address: str | None = None) -> None:
        """Lose the connections to one address, or all connections."""
        for pipe in list(self.pipes.values()):
            if address in (None, pipe.address):
                pipe.cut()

    def kill(self) -> None:
        """End like a process that is killed: nothing more is sent."""
        self.cut()
        self.is_up = False

    def close(self) -> None:
        """Leave all groups and close the connections."""
        self.run(self.core.close())
        self.cluster.advance(10)


class MemoryProducer:
    """A producer of a cluster; ``sender`` is its core."""

    def __init__(self, client: MemoryClient, options: Mapping[str, Any]) -> None:
        self.client = client
        self.sender: Sender = build_producer(client.core, options)
        client.core.add(self.sender)

    def send(
        self, topic: str | Message, body: Any = b"", **message: Unpack[MessageArguments]
    ) -> SendResult:
        """Send a message and wait, as ``Producer.send``."""
        ready = self.sender.prepare(message_of(topic, body, message))
        return self.client.run(self.sender.send(ready))


class MemoryMember:
    """A member of a consumer group; ``member`` is its core."""

    def __init__(
        self, client: MemoryClient, group: str, topics: Topics, options: Mapping[str, Any]
    ) -> None:
        self.client = client
        self.member: Member[Any] = build_consumer(client.core, group, topics, options)
        client.run(self.member.start())

    def take(self, max_count: int = 32, wait_ms: float = 5_000) -> list[ReceivedMessage[Any]]:
        """Take and acknowledge messages; :returns: messages of one queue, or [] after the wait."""
        end_ms = self.client.cluster.now_ms + wait_ms
        while (batch := self.member.take(max_count)) is None:
            if self.client.cluster.now_ms >= end_ms:
                return []
            self.client.cluster.advance(min(10, end_ms - self.client.cluster.now_ms))
        self.member.succeed(batch.assigned, batch.messages)
        return batch.messages

    def close(self, timeout_ms: float = 10_000) -> None:
        """Commit, and leave the group."""
        self.client.run(self.member.close(timeout_ms))


class MemoryPopMember:
    """A member of a consumer group that pops; ``member`` is its core."""

    def __init__(
        self, client: MemoryClient, group: str, topics: Topics, options: Mapping[str, Any]
    ) -> None:
        self.client = client
        pop: PopMember[Any] = build_pop_consumer(client.core, group, topics, options)
        self.member = pop.member
        #: The part of the core that receives messages.
        self.receiver = pop.receiver
        client.run(self.member.start())

    def receive(
        self, max_count: int = 32, wait_ms: float = 5_000, invisible_ms: float | None = None
    ) -> list[ReceivedMessage[Any]]:
        """Receive messages, as ``PopConsumer.receive``."""
        batches = self.client.run(self.receiver.receive(max_count, invisible_ms, wait_ms))
        return [message for batch in batches for message in batch.messages]

    def acknowledge(self, messages: Sequence[ReceivedMessage[Any]]) -> None:
        """Acknowledge received messages, as ``PopConsumer.acknowledge``."""
        self.client.run(self.receiver.acknowledge(messages))

    def close(self, timeout_ms: float = 10_000) -> None:
        """Return the messages that are not finished, and leave the group."""
        self.client.run(self.member.close(timeout_ms))


class MemoryCluster:
    """Brokers, a name server and clients in one process, without sockets and threads.

        cluster = MemoryCluster(seed=7, brokers=2)
        cluster.producer().send("orders", b"paid")
        member = cluster.member("billing", "orders", start="first")
        assert [message.body for message in member.take()] == [b"paid"]

    Time passes only in :meth:`advance` and in calls that wait. The same seed gives the same run.

    :param seed: the seed of all random choices.
    :param brokers: the number of brokers, at most 26; their names are "broker-a" and so on.
    :param settings: the settings of the brokers, texts by name.
    :param pop: whether the brokers support pop consumption and timers (``delay_s`` and
        ``deliver_at``); each needs 40 MB more for it. Without it, brokers deliver later only
        by ``delay_level``.
    :raises OptionError: when a number, a name or a setting is not valid.
    """

    def __init__(
        self, seed: int = 0, brokers: int = 1, settings: Mapping[str, str] | None = None, *,
        pop: bool = False,
    ) -> None:
        if type(brokers) is not int or not 1 <= brokers <= _BROKERS_MAX:
            raise OptionError(f"brokers is {brokers!r}: give a number from 1 to {_BROKERS_MAX}")
        _check_settings(settings or {})
        self.chance = random.Random(seed)
        #: How long the cluster has been running, ms.
        self.now_ms = 0.0
        self._reactor = Clock()
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = count()
        self._numbers = count(1)
        #: The faults of the network; a test sets its attributes.
        self.faults = Faults(self.chance)
        self.name_server = MemoryNameServer(self._reactor, NAMESRV, self._steady_ms)
        self.brokers: dict[str, MemoryBroker] = {}
        for number in range(brokers):
            self._add_broker(number, seed, settings or {}, pop)
        self._servers: dict[str, MemoryBroker | MemoryNameServer] = {
            broker.address: broker for broker in self.brokers.values()}
        self._servers[NAMESRV] = self.name_server
        self.clients: list[MemoryClient] = []
        self.call_later(_TICK_MS, self._tick)

    def _add_broker(self, number: int, seed: int, settings: Mapping[str, str], pop: bool) -> None:
        """Start a broker; :raises OptionError: when it has no such setting."""
        name = f"broker-{chr(ord('a') + number)}"
        self.brokers[name] = MemoryBroker(
            self._reactor, name, f"10.0.0.{number + 1}:10911", self.name_server,
            self._steady_ms, settings, seed, pop)
        unknown = self.brokers[name].box.settings.unknown
        if unknown:
            raise OptionError(f"these brokers in memory have no setting {', '.join(unknown)}")

    def _steady_ms(self) -> int:
        return _BEGIN_MS + int(self.now_ms)

    # --- clients

    def client(self, **options: Any) -> MemoryClient:
        """Make a client; ``options`` has the names of ``ClientOptions``, with times in ms."""
        client = MemoryClient(self, next(self._numbers), options)
        self.clients.append(client)
        return client

    def producer(self, client: MemoryClient | None = None, **options: Any) -> MemoryProducer:
        """Make a producer with the ``options`` of a ``Producer``."""
        return MemoryProducer(client or self.client(), options)

    def member(
        self, group: str, topics: Topics, client: MemoryClient | None = None, **options: Any
    ) -> MemoryMember:
        """Make a member of a consumer group with the ``options`` of a ``Consumer``."""
        return MemoryMember(client or self.client(), group, topics, options)

    def pop_member(
        self, group: str, topics: Topics, client: MemoryClient | None = None, **options: Any
    ) -> MemoryPopMember:
        """Make a member of a group that pops with the ``options`` of a ``PopConsumer``."""
        return MemoryPopMember(client or self.client(), group, topics, options)

    # --- servers and faults

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic with the given number of queues on each broker."""
        for broker in self.brokers.values():
            broker.create_topic(topic, queues)

    def kill_broker(self, name: str) -> None:
        """End a broker like a process that is killed."""
        broker = self._broker(name)
        broker.kill()
        for client in self.clients:
            client.cut(broker.address)

    def start_broker(self, name: str) -> None:
        """Start a broker that was killed, with the files on its disk."""
        broker = self._broker(name)
        if broker.is_up:
            raise OptionError(f"the broker {name} already runs")
        broker.start()

    def _broker(self, name: str) -> MemoryBroker:
        """Return a broker; :raises OptionError: when no broker has this name."""
        broker = self.brokers.get(name)
        if broker is None:
            raise OptionError(f"there is no broker {name!r}; there are {', '.join(self.brokers)}")
        return broker

    def connect(self, client: MemoryClient, effect: Connect) -> Pipe:
        """Begin a connection of a client."""
        return Pipe(client, effect.number, effect.address, self._servers.get(effect.address),
                    self.faults, self.call_later)

    def _tick(self) -> None:
        for server in self._servers.values():
            server.tick()
        self.call_later(_TICK_MS, self._tick)

    # --- time

    def call_later(self, delay_ms: float, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function after some milliseconds."""
        heapq.heappush(self._events, (self.now_ms + max(delay_ms, 0), next(self._order), function,
                                      arguments))

    def advance(self, milliseconds: float) -> None:
        """Advance the clock; :raises OptionError: when the time is not a number of at least 0."""
        if not isinstance(milliseconds, int | float) or not 0 <= milliseconds < _ENDLESS_MS:
            raise OptionError(f"milliseconds is {milliseconds!r}: give a number of at least 0")
        end_ms = self.now_ms + milliseconds
        while self._step(end_ms):
            pass

    def wait_for(self, condition: Callable[[], bool], timeout_ms: float = 60_000) -> None:
        """Advance the clock until a condition holds.

        :raises TimeoutError: when it does not hold in time.
        """
        end_ms = self.now_ms + timeout_ms
        self.settle()
        while not condition():
            if not self._step(end_ms):
                raise TimeoutError(f"the condition did not hold within {timeout_ms:g} ms")

    def _step(self, end_ms: float) -> bool:
        """Go to the next event; :returns: False when it is after the end."""
        self.settle()
        due_ms = self._events[0][0]
        calls = self._reactor.getDelayedCalls()
        times = [due_ms, *(each.getTime() * 1000 for each in calls[:1])]
        times += [due for client in self.clients if (due := client.due_ms()) is not None]
        due_ms = max(min(times), self.now_ms)
        self._set_time(min(due_ms, end_ms))
        self.settle()
        return due_ms <= end_ms and self.now_ms < end_ms

    def _set_time(self, now_ms: float) -> None:
        self.now_ms = now_ms
        # The time of a call in ms may be rounded down, and the call is due nevertheless.
        due = (call.getTime() for call in self._reactor.getDelayedCalls()[:1]
               if call.getTime() * 1000 <= now_ms)
        self._reactor.rightNow = max(self._reactor.rightNow, now_ms / 1000, *due)
        self._reactor.advance(0)

    def settle(self) -> None:
        """Do all work that is possible without advancing the clock."""
        busy = True
        while busy:
            busy = False
            while self._events[0][0] <= self.now_ms:
                _, _, function, arguments = heapq.heappop(self._events)
                function(*arguments)
            self._reactor.advance(0)
            for client in self.clients:
                busy = client.settle() or busy
                for number, pipe in list(client.pipes.items()):
                    pipe.pump()
                    if pipe.is_drained:
                        del client.pipes[number]
            busy = busy or self._events[0][0] <= self.now_ms


def _check_settings(settings: Mapping[str, str]) -> None:
    """:raises OptionError: when a setting is not a text."""
    for name, text in settings.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise OptionError(f"setting {name!r} is {text!r}: give a text, such as 'false'")
