"""Messages that were popped.

mypyc compiles this module, because only a compiled class can be derived from a compiled one.

Source: MessageExt, ExtraInfoUtil @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from twistmq.client.base.received_message import ReceivedMessage
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import StoredMessage

if TYPE_CHECKING:
    from twistmq.client.core.connection.tasks import Future
    from twistmq.client.core.pop.receipts import Receipt

__all__ = ["PoppedMessage"]

T = TypeVar("T")


class PoppedMessage(ReceivedMessage[T]):
    """A message that was popped.

    :param line: the queue that has the message, perhaps a retry queue, with its name at brokers.
    :param expires_ms: when its receipt ceases to be valid, by the monotonic clock.
    """

    __slots__ = ("changing", "expires_ms", "is_ending", "is_received", "line", "receipt",
                 "requested_invisible_ms")

    def __init__(
        self, record: StoredMessage, queue: MessageQueue, offset: int, topic: str,
        decode: Callable[[ReceivedMessage[T]], T] | None, receipt: Receipt, line: MessageQueue,
        expires_ms: float,
    ) -> None:
        super().__init__(record, queue, offset, topic, decode)
        self.receipt = receipt
        self.line = line
        self.expires_ms = expires_ms
        #: The invisible time in the last request for it, in ms.
        self.requested_invisible_ms = 0.0
        #: Whether the program received it, and extends its invisible time itself.
        self.is_received = False
        #: Whether the program acknowledged it and its broker has not answered yet.
        self.is_ending = False
        #: A change of the invisible time in flight.
        self.changing: Future[None] | None = None

    def _arguments(self) -> tuple[object, ...]:
        return (*super()._arguments(), self.receipt, self.line, self.expires_ms)
