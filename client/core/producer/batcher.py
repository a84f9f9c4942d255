"""Puts messages that no caller waits for into batches, and reports to each its own result.

Messages that brokers do not accept in a batch, messages with a sharding key and compressed messages
are sent alone. If a batch has only one message, this message is sent without a batch. A batch is
retried like any send; if it finally fails, each of its messages fails.

:class:`BatchSender` decides when batches are sent. :class:`Batcher` is the implementation for
event loops; ``twistmq.client.blocking.thread_batcher`` has the one for threads, which fill batches
themselves.

Source: ProduceAccumulator, SendResult splitting in AggregationKey.sendAsync @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from twistmq.client.base.messages import SendResult
from twistmq.client.core.connection.tasks import Scheduler, Timer
from twistmq.client.core.producer.batches import Accumulator, Batch, BatchKey
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.protocol.bodies import MessageQueue

__all__ = ["AGAIN_MS", "BatchSender", "Batcher", "Begin", "OnSent", "results_of"]

OnSent = Callable[[SendResult | Exception], object]
_Waiting = tuple[OutgoingMessage, OnSent]

T = TypeVar("T")

#: The delay before batches that a thread is currently filling are checked again, in ms.
AGAIN_MS: Final = 10


class Begin(Protocol):
    """Sends a message."""

    def __call__(
        self, message: OutgoingMessage, on_done: OnSent, queue: MessageQueue | None = None
    ) -> object:
        """Send, and call back with the result or the error."""


class BatchSender(Generic[T]):
    """Sends the batches of a producer that are full or due.

    Batches of one key are sent in the order in which they were begun.

    :param tasks: the clock and timers.
    :param accumulator: the batches that are being filled.
    """

    def __init__(self, tasks: Scheduler, accumulator: Accumulator[T]) -> None:
        self._tasks = tasks
        self._accumulator = accumulator
        #: The batches that are full and have not been sent.
        self._full: list[Batch[T]] = []
        #: Whether the timer is set for the first batch that is not full.
        self._is_planned = False
        self._timer: Timer | None = None

    def send(self, batch: Batch[T]) -> None:
        """Send a batch; called in the engine, without the lock."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send all batches now; called in the engine."""
        self._send_some(self._accumulator.flush)

    def send_due(self) -> None:
        """Send the batches that are full or due, and plan the next call; called in the engine."""
        self._send_some(lambda: self._accumulator.due(self._tasks.now_ms))

    def enter(self) -> bool:
        """Acquire the accumulator, for batches that threads fill.

        :returns: False when that is not possible now.
        """
        return True

    def leave(self) -> None:
        """Release the accumulator."""

    def _send_some(self, take_batches: Callable[[], list[Batch[T]]]) -> None:
        if not self.enter():
            self._tasks.call_later(AGAIN_MS, self._send_some, take_batches)
            return
        try:
            # The full batches were begun first.
            batches, self._full = self._full, []
            batches += take_batches()
            due_ms = self._accumulator.due_ms()
            self._is_planned = due_ms is not None
        finally:
            self.leave()
        self._plan(due_ms)
        for batch in batches:
            self.send(batch)

    def _plan(self, due_ms: float | None) -> None:
        """Set the timer, unless it is already set for an earlier time."""
        timer = self._timer
        if timer is not None and timer.is_pending:
            if due_ms is not None and timer.due_ms <= due_ms:
                return
            timer.cancel()
        self._timer = None if due_ms is None else self._tasks.call_later(
            due_ms - self._tasks.now_ms, self.send_due)


class Batcher(BatchSender[_Waiting]):
    """The batches of a producer, filled in the engine.

    :param tasks: the clock and timers.
    :param begin: sends a message or a batch.
    :param join: makes a request, see ``Preparer.join``.
    """

    def __init__(
        self, tasks: Scheduler, begin: Begin,
        join: Callable[[str, Sequence[OutgoingMessage], bool], tuple[OutgoingMessage, list[str]]],
    ) -> None:
        super().__init__(tasks, Accumulator())
        self._begin = begin
        self._join = join

    def add(self, message: OutgoingMessage, on_done: OnSent, queue: MessageQueue | None) -> None:
        """Put a message into a batch, or send it alone when it cannot be in one."""
        if not message.may_be_batched or not self._accumulator.has_room:
            self._begin(message, on_done, queue)
            return
        key = BatchKey(message.topic, message.waits, message.tag, queue)
        full = self._accumulator.add(key, (message, on_done), message.size, self._tasks.now_ms)
        self._full += full
        if full or not self._is_planned:
            self.send_due()

    def send(self, batch: Batch[_Waiting]) -> None:
        """Send a batch, and report to each message its own result."""
        items = batch.items

        def done(outcome: SendResult | Exception) -> None:
            self._accumulator.ended(batch)
            results: Sequence[SendResult | Exception] = (
                [outcome] * len(items) if isinstance(outcome, Exception)
                else results_of(outcome, ids))
            for (_, on_done), result in zip(items, results, strict=True):
                on_done(result)

        key = batch.key
        request, ids = self._join(key.topic, [message for message, _ in items], key.waits)
        self._begin(request, done, key.queue)


def results_of(result: SendResult, ids: Sequence[str]) -> Sequence[SendResult]:
    """Return the results of the messages of a batch, in order.

    :param result: the result of the batch.
    :param ids: the unique id of each message.
    """
    count = len(ids)
    if count == 1:
        return [result]
    offset_ids = result.offset_id.split(",")
    if len(offset_ids) != count:
        # A queue of whole batches returns one offset id for all messages.
        offset_ids = [result.offset_id] * count
    return [
        SendResult(unique, offset_id, result.queue, offset, result.code, result.transaction_id,
                   result.recall_handle, result.region, result.is_traced)
        for offset, (unique, offset_id) in enumerate(
            zip(ids, offset_ids, strict=True), result.offset)]
