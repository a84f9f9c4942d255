"""Automatic batching: messages wait a few milliseconds for others that fit into one request.

Messages with the same topic, tag, queue and ``wait_stored`` go together. A batch is sent when it is
full or due, and counts toward the limit on all batches until its response arrives. When the limit
is exceeded, messages are not added to batches but sent alone.

Source: ProduceAccumulator, DefaultMQProducer.canBatch @5.3.3. Differs from Apache: a message that
would make a batch longer than its limit begins the next batch. Apache's batch may grow beyond the
length that brokers accept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.properties import (
    DELAY,
    PGROUP,
    PRIORITY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["Accumulator", "Batch", "BatchKey", "may_be_batched"]

#: Properties of messages that are sent alone: delayed or timed messages, parts of transactions, and
#: messages with a priority, which determines the queue.
_ALONE: Final = frozenset(
    {DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, PGROUP, PRIORITY})
#: The bytes of a batch, how long it waits (ms), and the bytes of all batches: Apache's defaults,
#: and the highest values that Apache allows.
BATCH_BYTES: Final = 32 << 10
BATCH_BYTES_MAX: Final = 2 << 20
LINGER_MS: Final = 10
LINGER_MS_MAX: Final = 30_000
TOTAL_BYTES: Final = 32 << 20


def may_be_batched(topic: str, properties: Mapping[str, str]) -> bool:
    """Whether brokers accept a message as a part of a batch."""
    return _ALONE.isdisjoint(properties) and not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


class BatchKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The attributes that all messages of a batch have in common."""

    topic: str
    #: Whether the broker answers only after they are stored as safely as it is configured to.
    waits: bool = True
    tag: str | None = None
    #: The queue that the caller chose; None: any queue of the topic.
    queue: MessageQueue | None = None


T = TypeVar("T")


class Batch(Generic[T]):
    """The messages of one request."""

    __slots__ = ("byte_count", "due_ms", "items", "key", "shared")

    def __init__(self, key: BatchKey, due_ms: float) -> None:
        self.key = key
        #: When it is sent at the latest, by the monotonic clock.
        self.due_ms = due_ms
        self.items: list[T] = []
        self.byte_count = 0
        #: Data of the caller.
        self.shared: Any = None


class Accumulator(Generic[T]):
    """The batches that are being filled.

    The caller polls: it calls :meth:`due` at the time :meth:`due_ms`, and :meth:`ended` for each
    batch after its request has ended.

    :param batch_bytes: the maximum size of a batch; a single message may exceed it.
    :param linger_ms: how long a batch waits.
    :param total_bytes: the limit on all batches, filled or in flight; about one batch may exceed
        it.
    """

    def __init__(
        self, batch_bytes: int = BATCH_BYTES, linger_ms: float = LINGER_MS,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        if not 0 < batch_bytes <= BATCH_BYTES_MAX:
            raise ValueError(f"batch_bytes is {batch_bytes}: 1 to {BATCH_BYTES_MAX}")
        if not 0 < linger_ms <= LINGER_MS_MAX:
            raise ValueError(f"linger_ms is {linger_ms}: over 0, to {LINGER_MS_MAX}")
        if total_bytes <= 0:
            raise ValueError(f"total_bytes is {total_bytes}: at least 1")
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._total_bytes = total_bytes
        #: The open batches by key, in the order of their times.
        self._open: OrderedDict[BatchKey, Batch[T]] = OrderedDict()
        #: The bytes of all batches, filled or in flight.
        self.byte_count = 0

    @property
    def has_room(self) -> bool:
        """Whether another message may be added; otherwise it is sent alone."""
        return self.byte_count < self._total_bytes

    def fits(self, key: BatchKey, size: int) -> Batch[T] | None:
        """Return the batch that takes a message of this size without becoming full, if any.

        The caller adds the item and its bytes, also to the bytes of this object.
        """
        batch = self._open.get(key)
        return batch if batch is not None and batch.byte_count + size < self._batch_bytes else None

    def add(self, key: BatchKey, item: T, size: int, now_ms: float) -> list[Batch[T]]:
        """Add a message; :returns: the full batches to send now.

        :param size: its size in the request, in bytes.
        """
        self.byte_count += size
        full: list[Batch[T]] = []
        batch = self._open.get(key)
        if batch is not None and batch.byte_count + size > self._batch_bytes:
            full.append(self._open.pop(key))
            batch = None
        if batch is None:
            batch = self._open[key] = Batch(key, now_ms + self._linger_ms)
        batch.items.append(item)
        batch.byte_count += size
        if batch.byte_count >= self._batch_bytes:
            full.append(self._open.pop(key))
        return full

    def due_ms(self) -> float | None:
        """Return when :meth:`due` has to be called; None while no batch waits."""
        for batch in self._open.values():
            return batch.due_ms
        return None

    def due(self, now_ms: float) -> list[Batch[T]]:
        """Return the batches whose time has come."""
        batches: list[Batch[T]] = []
        waiting = self._open
        while waiting and next(iter(waiting.values())).due_ms <= now_ms:
            batches.append(waiting.popitem(last=False)[1])
        return batches

    def flush(self) -> list[Batch[T]]:
        """Return all batches, even if their time has not come."""
        batches = list(self._open.values())
        self._open.clear()
        return batches

    def ended(self, batch: Batch[T]) -> None:
        """Note that the request of a batch has ended, with success or not."""
        self.byte_count -= batch.byte_count
