"""A producer that keeps messages instead of sending them, for unit tests of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from twistmq.client.base.errors import Closed, OptionError, RequestTimeout
from twistmq.client.base.messages import (
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
    message_list,
    message_of,
)
from twistmq.client.core.connection.client import ClientCore, ClientOptions
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.replies import prepare_request
from twistmq.client.core.producer.transactions import prepare_half
from twistmq.client.roles.parts import build_producer, divide
from twistmq.client.shell.clock import SystemClock
from twistmq.client.shell.options import CLIENT, PRODUCER, NameServers, time_out_ms, values_of
from twistmq.protocol.record import MAGIC_V1, StoredMessage

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.blocking.client import Client
    from twistmq.client.shell.arguments import MessageArguments, ProducerArguments

__all__ = ["RecordedTransaction", "RecordingProducer"]

#: The number of queues of each topic.
_QUEUES: Final = 4


class RecordedTransaction:
    """Has the methods of a transaction of ``Producer``."""

    def __init__(self, message_id: str, keep: Callable[[], SendResult]) -> None:
        self.id = message_id
        self._keep = keep
        self._is_rolled_back = False

    def rollback(self) -> None:
        """Mark the message to be dropped at the end of the block."""
        self._is_rolled_back = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and not self._is_rolled_back:
            self._keep()


class RecordingProducer:
    """Has the methods of ``Producer``, connects to nothing, and keeps the messages.

        producer = RecordingProducer()
        bill(order, producer)
        assert [message.body for message in producer.messages] == [b"paid"]

    ``messages`` contains the messages that were sent, in order and unchanged. Each message is
    checked and encoded as in ``Producer``. ``error``, when it is set, is raised by each send.
    ``reply`` makes the body of the reply to a request; None means that no reply arrives.

    :param name_servers: is not used, because no name server is asked for routes; nor is ``client``.
    :param options: the options of ``Producer``, which are checked in the same way.
    """

    def __init__(
        self, name_servers: NameServers = None, *, client: Client | None = None,
        **options: Unpack[ProducerArguments]
    ) -> None:
        mine, others = divide(PRODUCER, options)
        values = values_of(CLIENT, others, {row.name for row in PRODUCER})
        core = ClientCore(ClientOptions(
            name_servers=(), client_id="127.0.0.1@recording", namespace=values["namespace"],
            timeout_ms=values["timeout_s"] * 1000), SystemClock(), lambda bound: 0)
        self._sender = build_producer(core, mine)
        self.messages: list[Message] = []
        self.error: Exception | None = None
        self.reply: Callable[[Message], bytes] | None = None
        #: The timed messages, by the handle in their result.
        self._timed: dict[str, Message] = {}
        self._offsets: dict[MessageQueue, int] = {}
        self._numbers = count()
        self._is_closed = False

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
        """The queues to which a topic can be sent."""
        return [MessageQueue(topic, "broker-a", number) for number in range(_QUEUES)]

    def send(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> SendResult:
        """Keep a message.

        :raises OptionError: when the message cannot be sent to any broker.
        """
        new_message = message_of(topic, body, message, queue)
        return self._keep([new_message], self._sender.prepare(new_message), queue)

    def send_soon(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> Future[SendResult]:
        """Keep a message; :returns: a future that is done.

        :raises OptionError: when the message cannot be sent to any broker.
        """
        new_message = message_of(topic, body, message, queue)
        return self._soon([new_message], self._sender.prepare(new_message), queue)

    def _soon(
        self, messages: Sequence[Message], ready: OutgoingMessage, queue: MessageQueue | None
    ) -> Future[SendResult]:
        future: Future[SendResult] = Future()
        try:
            future.set_result(self._keep(messages, ready, queue))
        except Exception as error:
            if error is not self.error:
                raise
            future.set_exception(error)
        return future

    def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Keep messages; :returns: the result of each message, in order."""
        return [self.send(message) for message in message_list(messages)]

    def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> SendResult:
        """Keep messages of one topic, in one queue.

        :raises OptionError: when they do not fit into one batch.
        """
        messages = message_list(messages)
        return self._keep(messages, self._sender.prepare_batch(messages), queue)

    def send_batch_soon(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> Future[SendResult]:
        """Keep messages of one topic; :returns: a future that is done."""
        messages = message_list(messages)
        return self._soon(messages, self._sender.prepare_batch(messages), queue)

    def request(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        timeout_s: float | None = None, **message: Unpack[MessageArguments],
    ) -> ReceivedMessage[Any]:
        """Keep a message; :returns: the reply that ``reply`` makes for it.

        :raises RequestTimeout: immediately, if ``reply`` is None.
        """
        new_message = message_of(topic, body, message, queue)
        timeout_ms = time_out_ms(timeout_s, self._sender.options.timeout_ms)
        ready, _ = prepare_request(self._sender, new_message, timeout_ms)
        result = self._keep([new_message], ready, queue)
        if self.reply is None:
            raise RequestTimeout(f"topic {new_message.topic}: no reply")
        record = StoredMessage(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0,
                               self.reply(new_message), new_message.topic, "")
        return ReceivedMessage(record, result.queue, 0, new_message.topic)

    def recall(self, result: SendResult) -> None:
        """Drop a message with a delayed delivery.

        :raises OptionError: when the message is not timed, or has already been dropped.
        """
        if not isinstance(result, SendResult):
            raise OptionError(f"{result!r} is not the result of a send, which a recall needs")
        message = self._timed.pop(result.recall_handle or "", None)
        if message is None:
            raise OptionError(f"the message {result.id} cannot be recalled")
        self.messages = [each for each in self.messages if each is not message]

    def transaction(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> RecordedTransaction:
        """A message that is kept when the block ends, unless it is rolled back or an error is
        raised.

        :raises OptionError: when the message cannot be sent, or the option ``on_check`` is not set.
        """
        new_message = message_of(topic, body, message, queue)
        ready = prepare_half(self._sender, new_message)
        return RecordedTransaction(ready.ids, lambda: self._keep([new_message], ready, queue))

    def send_oneway(
        self, topic: str | Message, body: Any = b"", *, queue: MessageQueue | None = None,
        **message: Unpack[MessageArguments],
    ) -> None:
        """Keep a message."""
        self.send(topic, body, queue=queue, **message)

    def flush(self, timeout_s: float | None = None) -> None:
        """Return at once, because nothing is in flight."""

    def close(self) -> None:
        """Refuse further messages; a second call does nothing."""
        self._is_closed = True

    def _keep(
        self, messages: Sequence[Message], ready: OutgoingMessage, queue: MessageQueue | None
    ) -> SendResult:
        if self._is_closed:
            raise Closed("the producer is closed")
        if self.error is not None:
            raise self.error
        number = next(self._numbers)
        if queue is None:
            queue = self.queues(messages[0].topic)[number % _QUEUES]
        offset = self._offsets.get(queue, 0)
        self._offsets[queue] = offset + len(messages)
        self.messages += messages
        handle = ready.ids if messages[0].is_timed else None
        if handle is not None:
            self._timed[handle] = messages[0]
        return SendResult(ready.ids, f"{number:032X}", queue, offset, recall_handle=handle)
