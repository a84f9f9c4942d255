"""Puts messages that nothing waits for into batches, and tells each of them its own result.

Messages that brokers do not take in a batch, those of a sharding key and compressed ones go alone.
Of a batch with one message that message is sent. A batch is tried again like any send; when it
fails for good, each of its messages fails.

Source: ProduceAccumulator, SendResult splitting in AggregationKey.sendAsync @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twistmq.broker.wire.bodies import MessageQueue
from twistmq.client.core.batches import Accumulator, Batch, BatchKey
from twistmq.client.core.outgoing import Outgoing
from twistmq.client.core.tasks import Scheduler, Timer
from twistmq.client.messages import SendResult

__all__ = ["Batching", "OnSent", "results_of"]

OnSent = Callable[[SendResult | Exception], object]
_Waiting = tuple[Outgoing, OnSent]


class _Begin(Protocol):
    """Sends a message."""

    def __call__(
        self, message: Outgoing, on_done: OnSent, queue: MessageQueue | None = None
    ) -> object:
        """Send, and call back with the result or the error."""


class Batching:
    """The batches of a producer.

    :param tasks: its clock and timers.
    :param begin: sends a message or a batch.
    :param join: makes a batch of messages.
    """

    def __init__(
        self, tasks: Scheduler, begin: _Begin, join: Callable[[Sequence[Outgoing]], Outgoing]
    ) -> None:
        self._tasks = tasks
        self._begin = begin
        self._join = join
        self._batches: Accumulator[_Waiting] = Accumulator()
        self._timer: Timer | None = None

    def add(self, message: Outgoing, on_done: OnSent, queue: MessageQueue | None) -> None:
        """Let a message wait for others, or send it alone when it cannot be in a batch."""
        if not message.may_be_batched or not self._batches.has_room:
            self._begin(message, on_done, queue)
            return
        key = BatchKey(message.topic, message.waits, message.tag, queue)
        full = self._batches.add(key, (message, on_done), message.size, self._tasks.now_ms)
        if full or self._timer is None:
            self._send(full)

    def flush(self) -> None:
        """Send all batches now."""
        self._send(self._batches.flush())

    def _due(self) -> None:
        self._timer = None
        self._send(self._batches.due(self._tasks.now_ms))

    def _send(self, batches: list[Batch[_Waiting]]) -> None:
        for batch in batches:
            self._send_one(batch)
        due_ms = self._batches.due_ms()
        if self._timer is None:
            if due_ms is not None:
                self._timer = self._tasks.later(due_ms - self._tasks.now_ms, self._due)
        elif due_ms is None:
            self._timer.cancel()
            self._timer = None

    def _send_one(self, batch: Batch[_Waiting]) -> None:
        items = batch.items

        def done(outcome: SendResult | Exception) -> None:
            self._batches.ended(batch)
            results: Sequence[SendResult | Exception] = (
                [outcome] * len(items) if isinstance(outcome, Exception)
                else results_of(outcome, [message.ids for message, _ in items]))
            for (_, on_done), result in zip(items, results, strict=True):
                on_done(result)

        ready = [message for message, _ in items]
        self._begin(ready[0] if len(ready) == 1 else self._join(ready), done, batch.key.queue)


def results_of(result: SendResult, ids: Sequence[str]) -> Sequence[SendResult]:
    """The results of the messages of a batch, in order.

    :param result: of the batch.
    :param ids: the unique id of each message.
    """
    count = len(ids)
    if count == 1:
        return [result]
    places = result.offset_id.split(",")
    if len(places) != count:
        # A queue of whole batches has one place for all of them.
        places = [result.offset_id] * count
    return [
        SendResult(unique, place, result.queue, offset, result.code, result.transaction_id,
                   result.recall_handle, result.region, result.is_traced)
        for offset, (unique, place) in enumerate(zip(ids, places, strict=True), result.offset)]
