"""A client's core with functions as its servers, and a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twistmq.client.core.connection.client import ClientCore, ClientOptions
from twistmq.client.core.connection.engine import Close, Connect, Effect, Engine, Work, Write
from twistmq.client.core.connection.tasks import Future
from twistmq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_reply
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader

__all__ = ["NAMESRV", "Answer", "Box", "HandClock", "route", "routes", "stored"]

T = TypeVar("T")

NAMESRV = "10.0.0.9:9876"
#: Code, header, body, remark of a reply; None: there is none.
Answer = tuple[int, CommandHeader | None, bytes, str | None] | None


class HandClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0

    def monotonic_ms(self) -> float:
        """Return milliseconds for durations."""
        return self.now_ms

    def wall_ms(self) -> int:
        """Return Unix ms."""
        return 1_700_000_000_000 + int(self.now_ms)


class Box:
    """The shell of a core in a test.

    ``servers`` are functions by address that get each request and return its answer. A server
    that is not there refuses connections; one in ``silent`` neither accepts nor refuses.

    :param fetch: asks an address server; see ``ClientCore``.
    """

    def __init__(
        self, fetch: Callable[[str], list[str]] | None = None, **options: Any
    ) -> None:
        self.clock = HandClock()
        self.servers: dict[str, Callable[[RemotingCommand], Answer]] = {}
        self.silent: set[str] = set()
        self.requests: list[tuple[str, RemotingCommand]] = []
        self.connects: list[str] = []
        self.closed: list[str] = []
        self._addresses: dict[int, str] = {}
        self._decoders: dict[int, FrameDecoder] = {}
        self.core = ClientCore(
            ClientOptions(**{"name_servers": (NAMESRV,), "client_id": "10.0.0.1@test", **options}),
            self.clock, lambda bound: 0, fetch)
        self.engine: Engine = self.core.engine

    def advance(self, milliseconds: float) -> None:
        """Let time pass, a timer at a time."""
        end = self.clock.now_ms + milliseconds
        while True:
            due = self.settle()
            if due is None or due > end:
                break
            self.clock.now_ms = max(due, self.clock.now_ms)
        self.clock.now_ms = end
        self.settle()

    def settle(self) -> float | None:
        """Run until nothing more can be done without time; :returns: when the next timer is due."""
        while True:
            due = self.engine.run()
            effects = self.engine.take_effects()
            if not effects:
                return due
            for effect in effects:
                self._do(effect)

    def run(self, coroutine: Coroutine[Any, Any, T], milliseconds: float = 60_000) -> T:
        """Run a coroutine to its end, letting time pass as needed."""
        task: Future[T] = self.engine.tasks.spawn(coroutine)
        end = self.clock.now_ms + milliseconds
        while not task.is_done:
            due = self.settle()
            if task.is_done:
                break
            assert due is not None and due <= end, "the coroutine waits for what never comes"
            self.clock.now_ms = max(due, self.clock.now_ms)
        return task.result()

    def tasks_later(self, milliseconds: float, function: Callable[..., object],
                    *arguments: Any) -> None:
        """Call a function after a while."""
        self.engine.tasks.call_later(milliseconds, function, *arguments)

    def push(self, address: str, frame: bytes) -> None:
        """Let a server send bytes on its newest connection."""
        number = max(number for number, each in self._addresses.items() if each == address)
        self.engine.received(number, frame)

    def reply(
        self, address: str, request: RemotingCommand, code: int, header: CommandHeader | None,
        body: bytes = b"", remark: str | None = None,
    ) -> None:
        """Let a server answer a request that it did not answer before."""
        self.push(address, encode_reply(code, request.opaque, header, body, remark))

    def cut(self, address: str, reason: str = "reset") -> None:
        """Let the connections of a server be lost."""
        for number in [number for number, each in self._addresses.items() if each == address]:
            del self._addresses[number]
            self.engine.lost(number, reason)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Connect):
            self.connects.append(effect.address)
            if effect.address in self.servers:
                self._addresses[effect.number] = effect.address
                self._decoders[effect.number] = FrameDecoder()
                self.engine.connected(effect.number, "10.0.0.1:50000")
            elif effect.address not in self.silent:
                self.engine.lost(effect.number, "refused")
        elif isinstance(effect, Write):
            self._answer(effect.number, effect.data)
        elif isinstance(effect, Close):
            self.closed.append(self._addresses.pop(effect.number, ""))
        elif isinstance(effect, Work):
            try:
                self.engine.worked(effect.number, effect.function(), None)
            except Exception as error:
                self.engine.worked(effect.number, None, error)

    def _answer(self, number: int, data: bytes) -> None:
        address = self._addresses.get(number)
        if address is None:
            return
        for frame in self._decoders[number].feed(data):
            command = decode_command(frame)
            self.requests.append((address, command))
            if command.is_response:
                continue
            answer = self.servers[address](command)
            if answer is not None and not command.is_oneway:
                code, header, body, remark = answer
                self.engine.received(number, encode_reply(code, command.opaque, header, body,
                                                          remark))


def route(brokers: dict[str, str], queues: int = 4, perm: int = 6) -> TopicRouteData:
    """Return a route over masters, by name and address."""
    return TopicRouteData(
        queue_datas=[QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues,
                               perm=perm) for name in brokers],
        broker_datas=[BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
                      for name, address in brokers.items()])


def routes(table: dict[str, TopicRouteData]) -> Callable[[RemotingCommand], Answer]:
    """Return a name server that knows these topics."""
    def answer(command: RemotingCommand) -> Answer:
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        found = table.get(command.fields()["topic"])
        if found is None:
            return ResponseCode.TOPIC_NOT_EXIST, None, b"", "no such topic"
        return ResponseCode.SUCCESS, None, found.encode_standard(), None

    return answer


def stored(command: RemotingCommand) -> Answer:
    """Return a broker that stores every message at offset 0, and accepts heartbeats."""
    if command.code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
        return ResponseCode.SUCCESS, None, b"", None
    queue_id = int(command.fields()["e"])
    return ResponseCode.SUCCESS, SendMessageResponseHeader("ID", queue_id, 0), b"", None
