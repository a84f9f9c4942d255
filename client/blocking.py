"""The blocking shell: a client and a producer for threads.

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send("orders", b"paid", tags="eu")

All objects here may be used by many threads. The work is done by one daemon thread of the process,
see ``twistmq.client.loop``.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from twistmq.broker.codes import ResponseCode
from twistmq.broker.wire.bodies import ClusterInfo, TopicRouteData
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.signature import Credentials
from twistmq.client.core.client import ClientCore, ClientOptions
from twistmq.client.core.queries import Queries
from twistmq.client.core.sending import Outgoing, ProducerOptions, Sender
from twistmq.client.errors import Closed, Full, OptionError
from twistmq.client.identity import new_client_id, process_ids, randrange
from twistmq.client.lookup import fetch_name_servers, local_ip, name_servers_of
from twistmq.client.loop import Loop, SystemClock, shared_loop
from twistmq.client.messages import Message, MessageQueue, PullResult, SendResult

__all__ = ["Client", "Producer", "Where"]

T = TypeVar("T")

#: How a client is told its name servers: "host:port;host:port", a list of "host:port",
#: "http://..." of an address server, "dns://host:port", or None for NAMESRV_ADDR.
Where = str | Sequence[str] | None


class Client:
    """A client of a cluster, shared by the producers and consumers that are given it.

    :param where: the name servers, see :data:`Where`.
    :param namespace: of all topics and groups, which are named here without it; "" for none.
    :param namespace_v2: whether brokers (5.1 and later) put the namespace before names.
    :param credentials: the account that requests are signed with.
    :param tls: the TLS context for all connections; None: they are plain.
    :param unit: behind the instance in the client id.
    :param instance: in the client id; "": process, time and random bytes.
    :param timeout_s: bound on each request, seconds.
    :param connect_timeout_s: bound on making a connection, seconds.
    :param retries: how often a request without an answer is tried again.
    :param retry_wait_s: the wait before that, seconds.
    :raises OptionError: when no name server is given.
    """

    def __init__(
        self, where: Where = None, *, namespace: str = "", namespace_v2: bool = False,
        credentials: Credentials | None = None, tls: ssl.SSLContext | None = None,
        unit: str = "", instance: str = "", timeout_s: float = 3.0,
        connect_timeout_s: float = 3.0, retries: int = 2, retry_wait_s: float = 0.2,
    ) -> None:
        addresses, url = name_servers_of(where)
        self.options = ClientOptions(
            name_servers=tuple(addresses), name_server_url=url, namespace=namespace,
            namespace_v2=namespace_v2, credentials=credentials,
            client_id=new_client_id(local_ip(addresses), instance, unit),
            timeout_ms=timeout_s * 1000,
            connect_timeout_ms=connect_timeout_s * 1000, retries=retries,
            retry_wait_ms=retry_wait_s * 1000)
        self.core = ClientCore(self.options, SystemClock(), randrange, fetch_name_servers)
        self.queries = Queries(self.core)
        self.loop: Loop = shared_loop()
        self.loop.add(self.core.engine, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def client_id(self) -> str:
        """The id under which brokers know the client."""
        return self.core.client_id

    @property
    def name_servers(self) -> list[str]:
        """The addresses of the name servers that are known now."""
        return list(self.core.names.addresses)

    def close(self) -> None:
        """Leave all groups and close all connections; a second call does nothing."""
        if not self.core.is_closed:
            self.loop.call(self.core.engine, self.core.close)
            self.loop.remove(self.core.engine)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the core and wait for it.

        :raises Closed: when the client is closed.
        """
        if self.core.is_closed:
            raise Closed("the client is closed")
        return self.loop.call(self.core.engine, make)

    # --- requests

    @property
    def timeout_s(self) -> float:
        """The bound on each request, seconds."""
        return self.options.timeout_ms / 1000

    def ask(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        taken: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Ask the server at an address, once.

        :param taken: the codes of an answer that is returned.
        :raises RequestRefused: with another code.
        :raises RemotingError: when it does not answer; the text names it.
        """
        timeout_ms = None if timeout_s is None else timeout_s * 1000
        return self.run(lambda: self.core.ask(address, code, header, body, taken=taken,
                                              timeout_ms=timeout_ms))

    def ask_name_server(self, code: int, header: CommandHeader | None = None) -> RemotingCommand:
        """Ask one name server after the other until one answers.

        :raises RequestRefused: when it answers with an error.
        :raises RemotingError: when none answers.
        """
        return self.run(lambda: self.core.ask_name_server(code, header))

    # --- topics and brokers

    def route(self, topic: str, *, again: bool = False) -> TopicRouteData:
        """Where a topic is.

        :param again: ask even when the route is known.
        :raises RequestRefused: TOPIC_NOT_EXIST when no name server knows it.
        :raises RemotingError: when none answers.
        """
        return self.run(lambda: self.queries.route(topic, again=again))

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        return self.run(self.queries.topics)

    def read_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues that a topic can be read from, in order; :raises: as :meth:`route`."""
        return self.run(lambda: self.queries.read_queues(topic, again=again))

    def write_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """The queues that a topic can be sent to, in order.

        A topic that is not there yet has those that a first send makes.

        :raises RequestRefused: TOPIC_NOT_EXIST when no broker makes topics either.
        """
        return self.run(lambda: self.queries.write_queues(topic, again=again))

    def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        return self.run(self.queries.cluster_info)

    def broker_addresses(self) -> dict[str, str]:
        """The address of each broker's master, or of a slave without a master, by name."""
        return self.run(self.queries.broker_addresses)

    def runtime_info(self, address: str) -> dict[str, str]:
        """A broker's runtime table: what ``mqadmin brokerStatus`` shows."""
        return self.run(lambda: self.queries.runtime_info(address))

    # --- offsets: all are logical indices in a queue

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read."""
        return self.run(lambda: self.queries.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return self.run(lambda: self.queries.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at that Unix ms or later; the queue's end without one."""
        return self.run(lambda: self.queries.search_offset(queue, timestamp_ms))

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The first offset that a group has not consumed; None when it never had the queue."""
        return self.run(lambda: self.queries.group_offset(group, queue))

    def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set how far a group has come: the first offset that it has not consumed."""
        self.run(lambda: self.queries.commit_group_offset(group, queue, offset))

    # --- pulling

    def pull(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_blocking_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of one queue.

        :param hold_ms: how long the broker may wait for a message.
        :raises RequestRefused: with the broker's code and remark.
        """
        return self.run(lambda: self.queries.pull(
            queue, offset, group=group, max_count=max_count, expression=expression,
            expression_type=expression_type, hold_ms=hold_ms))


class Producer:
    """Sends messages; the blocking one.

    :param where: the name servers, see :data:`Where`, or a :class:`Client` to share.
    :param group: the producer group.
    :param timeout_s: bound on a send, all attempts together, seconds.
    :param retries: how often a send is tried again.
    :param require_safe: raise ``NotSafe`` when a flush or a slave was not waited for.
    :param compress_over: bodies of so many bytes are compressed; 0: none.
    :param codec: "zlib", "lz4" or "zstd".
    :param in_flight_max: messages that :meth:`send_soon` has under way at most.
    :param in_flight_bytes_max: bytes of them at most.
    :param client_options: those of :class:`Client`.
    """

    def __init__(
        self, where: Where | Client = None, *, group: str = "twistmq_producer",
        timeout_s: float = 3.0, retries: int = 2, require_safe: bool = False,
        compress_over: int = 4096, codec: str = "zlib", in_flight_max: int = 1024,
        in_flight_bytes_max: int = 64 << 20, **client_options: Any,
    ) -> None:
        self._owns_client = not isinstance(where, Client)
        self.client = where if isinstance(where, Client) else Client(where, **client_options)
        options = ProducerOptions(
            group=group, timeout_ms=timeout_s * 1000, retries=retries, require_safe=require_safe,
            compress_over=compress_over, codec=codec, in_flight_max=in_flight_max,
            in_flight_bytes_max=in_flight_bytes_max)
        self._sender = Sender(self.client.core, options, process_ids(self.client.client_id))
        self._room = _Room(in_flight_max, in_flight_bytes_max)
        self._is_closed = False
        self.client.loop.post(self.client.core.add, self._sender)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def group(self) -> str:
        """The producer group."""
        return self._sender.options.group

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a topic can be sent to."""
        return self.client.write_queues(topic)

    def send(
        self, topic: str | Message, body: Any = b"", *, tags: str = "",
        keys: Sequence[str] = (), sharding_key: str = "",
        properties: Mapping[str, str] | None = None, delay_level: int = 0, delay_ms: int = 0,
        deliver_at: datetime | int | None = None, queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored; :class:`Message` has the parameters.

        :raises SendFailed: when all attempts failed.
        :raises RequestRefused: when the broker refuses it for good.
        :raises OptionError: when it cannot be sent to any broker.
        """
        message = _message(topic, body, tags, keys, sharding_key, properties, delay_level,
                           delay_ms, deliver_at)
        ready = self._prepare(message)
        return self.client.run(lambda: self._sender.send(
            ready, queue, timeout_ms=None if timeout_s is None else timeout_s * 1000))

    def send_soon(
        self, topic: str | Message, body: Any = b"", *, tags: str = "",
        keys: Sequence[str] = (), sharding_key: str = "",
        properties: Mapping[str, str] | None = None, delay_level: int = 0, delay_ms: int = 0,
        deliver_at: datetime | int | None = None, queue: MessageQueue | None = None,
    ) -> ThreadFuture[SendResult]:
        """Send a message and do not wait, but for room among the messages under way.

        :returns: a future of the result, or of the errors of :meth:`send`.
        :raises Full: when there is no room within the producer's time-out.
        """
        message = _message(topic, body, tags, keys, sharding_key, properties, delay_level,
                           delay_ms, deliver_at)
        ready = self._prepare(message)
        self._room.take(ready.size, self._sender.options.timeout_ms / 1000)
        future: ThreadFuture[SendResult] = ThreadFuture()
        self.client.loop.post(self._begin, ready, queue, future)
        return future

    def _begin(
        self, ready: Outgoing, queue: MessageQueue | None, future: ThreadFuture[SendResult]
    ) -> None:
        size = ready.size

        def done(outcome: SendResult | Exception) -> None:
            self._room.give(size)
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self._sender.begin(ready, done, queue)

    def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send messages, each as a request of its own, many under way at once.

        :returns: the result of each, in order.
        :raises: as :meth:`send`, for the first that failed, when all have ended.
        """
        waiting = [self.send_soon(message) for message in messages]
        errors = [future.exception() for future in waiting]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in waiting]

    def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored, or none."""
        self._check_open()
        ready = self._sender.prepare_batch(messages)
        return self.client.run(lambda: self._sender.send(ready, queue))

    def send_oneway(
        self, topic: str | Message, body: Any = b"", *, tags: str = "",
        keys: Sequence[str] = (), sharding_key: str = "",
        properties: Mapping[str, str] | None = None, queue: MessageQueue | None = None,
    ) -> None:
        """Send a message without an answer: whether it is stored is not known.

        :raises NoRoute: when no broker takes the topic.
        """
        ready = self._prepare(_message(topic, body, tags, keys, sharding_key, properties, 0, 0,
                                       None))
        self.client.run(lambda: self._sender.send_oneway(ready, queue))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages of :meth:`send_soon` have ended.

        :raises TimeoutError: when they do not in time.
        """
        self._room.wait_empty(timeout_s)

    def close(self) -> None:
        """Wait for the messages under way, leave the group; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._room.wait_empty(None)
        if self._owns_client:
            self.client.close()
        elif not self.client.core.is_closed:
            self.client.run(lambda: self.client.core.remove(self._sender))

    def _prepare(self, message: Message) -> Outgoing:
        self._check_open()
        return self._sender.prepare(message)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")
        self.client.loop.check_process()


def _message(
    topic: str | Message, body: Any, tags: str, keys: Sequence[str], sharding_key: str,
    properties: Mapping[str, str] | None, delay_level: int, delay_ms: int,
    deliver_at: datetime | int | None,
) -> Message:
    """The message of the arguments of a send."""
    if isinstance(topic, Message):
        if body or tags or keys or sharding_key or properties or delay_level or delay_ms or (
                deliver_at is not None):
            raise OptionError("give a Message, or topic and body with their options, not both")
        return topic
    return Message(topic=topic, body=body, tags=tags, keys=keys, sharding_key=sharding_key,
                   properties=properties or {}, delay_level=delay_level, delay_ms=delay_ms,
                   deliver_at=deliver_at)


class _Room:
    """Bounds on messages under way, for threads."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._count_max: Final = count_max
        self._bytes_max: Final = bytes_max
        self._count = 0
        self._bytes = 0

    def take(self, size: int, timeout_s: float) -> None:
        """Take room for a message; :raises Full: when it does not get any in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count < self._count_max and (
                    not self._count or self._bytes + size <= self._bytes_max), timeout_s):
                raise Full(f"{self._count} messages with {self._bytes} bytes are under way, "
                           f"and none ended within {timeout_s:g} s")
            self._count += 1
            self._bytes += size

    def give(self, size: int) -> None:
        """Give room back."""
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()

    def wait_empty(self, timeout_s: float | None) -> None:
        """Wait until nothing is under way; :raises TimeoutError: when it is not in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._count, timeout_s):
                raise TimeoutError(f"{self._count} messages are still under way")
