"""Messages that were popped.

mypyc compiles this module, because only a compiled class can be derived from a compiled one.

Source: MessageExt, ExtraInfoUtil @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.record import StoredMessage
from twistmq.client.received_message import ReceivedMessage

if TYPE_CHECKING:
    from twistmq.client.core.receipts import Receipt
    from twistmq.client.core.tasks import Future

__all__ = ["PoppedMessage"]

T = TypeVar("T")


class PoppedMessage(ReceivedMessage[T]):
    """A message that was popped.

    :param line: the queue that has it: perhaps one of retries, named as at brokers.
    :param expires_ms: when its receipt is worth nothing any more; steady clock.
    """

    __slots__ = ("changing", "expires_ms", "hidden_ms", "is_ending", "is_received", "line",
                 "receipt")

    def __init__(
        self, record: StoredMessage, queue: MessageQueue, offset: int, topic: str,
        decode: Callable[[ReceivedMessage[T]], T] | None, receipt: Receipt, line: MessageQueue,
        expires_ms: float,
    ) -> None:
        super().__init__(record, queue, offset, topic, decode)
        self.receipt = receipt
        self.line = line
        self.expires_ms = expires_ms
        #: For how long it was to be hidden when that was asked for last.
        self.hidden_ms = 0.0
        #: Whether the program asked for it, and hides it for longer itself.
        self.is_received = False
        #: Whether the program acknowledged it, and its broker has not answered.
        self.is_ending = False
        #: A change of the invisible time that is under way.
        self.changing: Future[None] | None = None

    def _arguments(self) -> tuple[object, ...]:
        return (*super()._arguments(), self.receipt, self.line, self.expires_ms)
