"""The blocking client: it answers questions about topics, queues and offsets, for threads.

    with Client("127.0.0.1:9876") as client:
        print(client.topics())

All objects in this package may be used by many threads. One daemon thread of the process does the
work, see ``twistmq.client.blocking.loop``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from twistmq.client.base.argument_checks import check_text, check_whole
from twistmq.client.base.errors import Closed, OptionError, Undecodable
from twistmq.client.base.messages import (
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    check_queue,
)
from twistmq.client.blocking.futures import finish, running_future
from twistmq.client.blocking.loop import Loop
from twistmq.client.blocking.process_loop import shared_loop
from twistmq.client.core.connection.tasks import Cancelled
from twistmq.client.core.consumer.pull_request import PULL_BYTES, messages_of, pull_header
from twistmq.client.roles.client import BaseClient, check_pull
from twistmq.client.roles.waits import ForThreads
from twistmq.client.shell.client_builder import build_client
from twistmq.client.shell.clock import SystemClock
from twistmq.client.shell.options import CLIENT, NameServers, lists_options, milliseconds
from twistmq.protocol.bodies import ClusterInfo, TopicRouteData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.base.received_message import DamagedMessage
    from twistmq.client.core.consumer.subscriptions import Expression
    from twistmq.client.roles.parts import Parts
    from twistmq.client.shell.arguments import ClientArguments

__all__ = ["Client", "closing_on_error"]

T = TypeVar("T")


@lists_options(CLIENT)
class Client(ForThreads, BaseClient):
    """A client of a cluster. Producers and consumers that are given the same client share it.

    :param options: see below.
    :raises OptionError: when no name server is given, or an option has an invalid value.
    """

    def __init__(self, name_servers: NameServers = None,
                 **options: Unpack[ClientArguments]) -> None:
        built = build_client(name_servers, SystemClock(), options)
        super().__init__(built.core)
        self._options = self._core.options
        self._loop: Loop = shared_loop()
        self._loop.add(self._core.engine, built.tls, self._finish)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def name_servers(self) -> list[str]:
        """The addresses of the name servers that are currently known."""
        return list(self._core.names.addresses)

    def close(self) -> None:
        """Leave all groups and close all connections; a second call does nothing.

        In a child of ``fork`` it does nothing, because everything belongs to the parent.

        :raises RuntimeError: when it is called on the client's own thread.
        """
        if not (self._core.is_closed or self._loop.is_over):
            # Another thread may close the client first.
            with suppress(Closed):
                self._loop.call(self._core.engine, self._core.close)
            self._loop.remove(self._core.engine)

    async def _finish(self) -> None:
        """Deliver all pending work to the brokers at the end of the program."""
        # This module is loaded only at the end of a program.
        from twistmq.client.core.connection.exit_flush import finish

        await finish(self._core)

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the core and wait for its result.

        :raises Closed: when the client is closed.
        """
        if self._core.is_closed:
            raise Closed("the client is closed")
        try:
            return self._loop.call(self._core.engine, make)
        except Cancelled:
            raise Closed("the client is closed") from None

    # --- requests

    @property
    def timeout_s(self) -> float:
        """The time-out of each request, seconds."""
        return self._options.timeout_ms / 1000

    def ask(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request once to the server at an address.

        :param accepted_codes: the response codes with which the response is returned.
        :raises RequestRefused: when the response has another code.
        :raises RemotingError: when the server does not answer; the text names the server.
        """
        check_text(address, "address")
        if not isinstance(body, bytes):
            raise OptionError(f"the body is a {type(body).__name__}: give bytes")
        timeout_ms = None if timeout_s is None else milliseconds(timeout_s)
        return self._run(lambda: self._core.ask(address, code, header, body,
                                              accepted_codes=accepted_codes,
                                              timeout_ms=timeout_ms))

    def ask_name_server(self, code: int, header: CommandHeader | None = None) -> RemotingCommand:
        """Send a request to one name server after the other until one of them answers.

        :raises RequestRefused: when the name server answers with an error.
        :raises RemotingError: when no name server answers.
        """
        return self._run(lambda: self._core.ask_name_server(code, header))

    # --- topics and brokers

    def route(self, topic: str, *, again: bool = False) -> TopicRouteData:
        """The route of a topic: the brokers and queues that hold it.

        :param again: ask the name servers even when the route is known.
        :raises RequestRefused: with TOPIC_NOT_EXIST when no name server knows the topic.
        :raises RemotingError: when no name server answers.
        """
        check_text(topic, "topic")
        return self._run(lambda: self._queries.route(topic, again=again))

    def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        return self._run(self._queries.cluster_info)

    def broker_addresses(self) -> dict[str, str]:
        """The address of each broker's master, or of a slave without a master, by broker name."""
        return self._run(self._queries.broker_addresses)

    def runtime_info(self, address: str) -> dict[str, str]:
        """A broker's runtime table, which ``mqadmin brokerStatus`` prints."""
        check_text(address, "address")
        return self._run(lambda: self._queries.runtime_info(address))

    # --- pulling

    def read(
        self, queue: MessageQueue, start: int | None = None, stop: int | None = None, *,
        expression: Expression = None, group: str = "twistmq_client", damaged: str = "skip",
    ) -> Iterator[ReceivedMessage[bytes]]:
        """Iterate over the messages of a queue; nothing is committed.

        Bodies are decompressed. The client compares the tags itself, because a broker compares only
        the hashes of tags.

        :param start: the first offset; None: the first offset that can be read.
        :param stop: the offset after the last message; None: the current end of the queue.
        :param expression: None for all messages, "a || b" or a list for messages with one of these
            tags, or ``sql(...)``.
        :param damaged: as the option of consumers; "stop" raises an error after all messages that
            precede the damaged one.
        :raises RequestRefused: with the broker's code and remark.
        :raises Undecodable: when a message is damaged and ``damaged`` is "stop".
        :raises OptionError: when ``damaged`` is not one of the three values.
        """
        check_queue(queue)
        for name, offset in (("start", start), ("stop", stop)):
            if offset is not None:
                check_whole(offset, name)
        from twistmq.client.core.consumer.damaged_messages import DAMAGED, sort_out
        from twistmq.client.core.consumer.subscriptions import subscription

        if damaged not in DAMAGED:
            raise OptionError(f"damaged is {damaged!r}, not one of {', '.join(DAMAGED)}")
        filter_ = subscription(self._core.namespace.topic(queue.topic), expression)
        at = self.min_offset(queue) if start is None else start
        end = self.max_offset(queue) if stop is None else stop
        is_alone = False
        while at < end:
            result = self.pull(queue, at, group=group, expression=filter_.expression,
                               expression_type=filter_.kind, max_count=1 if is_alone else 32)
            if result.next_offset <= at:
                return
            bad: list[DamagedMessage[bytes]] = []
            messages: list[ReceivedMessage[Any]] = []
            stopped: DamagedMessage[Any] | None = None
            if result.status is PullStatus.FOUND:
                messages = messages_of(result, queue, filter_.tags, None, bad, at)
            begin, at, was_alone, is_alone = at, result.next_offset, is_alone, False
            if bad:
                messages, at, stopped, is_alone, _ = sort_out(
                    damaged, result, messages, bad, "a read", was_alone=was_alone)
            yield from (each for each in messages if begin <= each.offset < end)
            if stopped is not None and stopped.offset < end:
                raise Undecodable(f"{stopped!r} is damaged: {stopped.damage}")

    def pull_soon(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_s: float = 0.0, attempt: int = 0, max_bytes: int = PULL_BYTES,
    ) -> ThreadFuture[PullResult]:
        """Pull messages from one queue without waiting; a failed pull is not tried again.

        :param hold_s: how long the broker may hold the request until a message arrives.
        :param attempt: the number of the attempt, from 0; later attempts also ask slaves, in turn.
        :param max_bytes: how many bytes to ask for; the broker has its own limits.
        :returns: a future of the result, or of the errors of :meth:`pull`.
        """
        check_pull(queue, offset, group, max_count, expression)
        hold_ms = int(milliseconds(hold_s, "hold_s"))
        header = pull_header(queue, offset, group, max_count=max_count, expression=expression,
                             expression_type=expression_type, hold_ms=hold_ms,
                             max_bytes=max_bytes)
        self._loop.check_process()
        future: ThreadFuture[PullResult] = running_future()
        self._loop.post(self._begin_pull, queue, header, future, attempt, hold_ms)
        return future

    def _begin_pull(
        self, queue: MessageQueue, header: PullMessageRequestHeader,
        future: ThreadFuture[PullResult], attempt: int, hold_ms: int,
    ) -> None:
        if self._core.is_closed:
            future.set_exception(Closed("the client is closed"))
        else:
            self._queries.begin_pull(queue, header, lambda outcome: finish(future, outcome),
                                    attempt=attempt, hold_ms=hold_ms)


@contextmanager
def closing_on_error(parts: Parts[Client]) -> Iterator[None]:
    """Close the client of a producer or consumer that cannot be made, unless it is shared."""
    try:
        yield
    except BaseException:
        if parts.is_own:
            parts.client.close()
        raise
