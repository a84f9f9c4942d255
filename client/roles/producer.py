"""The methods that producers of all styles share, besides the sends that do not wait."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from twistmq.client.base.argument_checks import check_text
from twistmq.client.base.messages import (
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
    message_of,
)
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.recalls import recall
from twistmq.client.core.producer.replies import prepare_request, request
from twistmq.client.core.producer.sender import Sender
from twistmq.client.core.producer.transactions import prepare_half
from twistmq.client.roles.waits import waits
from twistmq.client.shell.options import time_out_ms

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import MessageArguments

__all__ = ["BaseProducer"]

P = ParamSpec("P")
T = TypeVar("T")


class BaseProducer:
    """A producer."""

    #: The core of the producer, and its client's.
    _sender: Sender
    _queries: Queries
    _is_closed: bool

    # --- what the style supplies

    @abstractmethod
    async def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function of the core."""

    @abstractmethod
    def _check_open(self) -> None:
        """:raises Closed: when the producer is closed."""

    # --- the methods

    def __repr__(self) -> str:
        return f"<{self._sender!r}{', closed' if self._is_closed else ''}>"

    @property
    def group(self) -> str:
        """The producer group."""
        return self._sender.options.group

    @waits
    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a topic can be sent."""
        check_text(topic, "topic")
        return await self._call(self._queries.write_queues, topic)

    @waits
    async def send(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> SendResult:
        """Send a message and wait until it is stored; :class:`Message` has the parameters.

        If the wait is cancelled or interrupted, the message stays in flight and may be stored.

        :raises SendFailed: when all attempts failed. It is also of the class of its attempts, such
            as :class:`TopicMissing` or ``TimeoutError``, if they all failed alike.
        :raises RequestRefused: when a broker refuses the message and it is not tried again.
        :raises OptionError: when the message cannot be sent to any broker.
        """
        timeout_ms = time_out_ms(timeout_s, self._sender.options.timeout_ms)
        ready = self._prepare(message_of(topic, body, message, queue))
        return await self._call(self._sender.send, ready, queue, timeout_ms=timeout_ms)

    @waits
    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: either all are stored, or none."""
        self._check_open()
        ready = self._sender.prepare_batch(messages)
        return await self._call(self._sender.send, ready, queue)

    @waits
    async def send_oneway(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> None:
        """Send a message without a response: the program does not learn whether it is stored.

        :raises NoRoute: when no broker takes the topic.
        """
        ready = self._prepare(message_of(topic, body, message, queue))
        await self._call(self._sender.send_oneway, ready, queue)

    @waits
    async def request(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> ReceivedMessage[Any]:
        """Send a message and wait for its consumer's reply, see ``reply`` of consumers.

        :param timeout_s: how long to wait for the reply; None: the producer's time-out.
        :returns: the reply; its ``body`` is the one that the consumer gave.
        :raises RequestTimeout: when the reply does not arrive in time.
        :raises SendFailed, RequestRefused, OptionError: as :meth:`send`.
        """
        self._check_open()
        timeout_ms = time_out_ms(timeout_s, self._sender.options.timeout_ms)
        ready = prepare_request(self._sender, message_of(topic, body, message, queue), timeout_ms)
        return await self._call(request, self._sender, ready, queue, timeout_ms)

    @waits
    async def recall(self, result: SendResult) -> None:
        """Cancel a message with a delayed delivery, given the result of its send.

        :raises OptionError: when the broker returned no recall handle for it.
        :raises RequestRefused: when the broker refuses the recall, for example because it is too
            late.
        """
        self._check_open()
        await self._call(recall, self._sender, result)

    def _prepare(self, message: Message) -> OutgoingMessage:
        """Check and encode a message."""
        self._check_open()
        return self._sender.prepare(message)

    def _prepare_half(self, message: Message) -> OutgoingMessage:
        """Check and encode the half message of a transaction."""
        self._check_open()
        return prepare_half(self._sender, message)
