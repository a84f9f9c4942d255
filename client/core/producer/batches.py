"""Automatic batching: messages wait a few milliseconds for others that can go in one request.

Messages of one topic, tag, queue and kind of waiting go together. A batch is sent when it is full
or its time has come, and counts for the bound on all of them until its answer is there. Over the
bound messages are not taken: they go alone.

Source: ProduceAccumulator, DefaultMQProducer.canBatch @5.3.3. Differs from Apache: a message that
would make a batch longer than its bound begins the next one. Apache's batch may grow beyond the
length that brokers take.
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
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["Accumulator", "Batch", "BatchKey", "may_be_batched"]

#: Properties of messages that go alone: those with a delay or a time, and parts of transactions.
_ALONE: Final = frozenset(
    {DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, PGROUP})
#: Bytes of a batch, how long it waits (ms), and bytes of all batches: Apache's defaults, and the
#: highest that Apache allows.
BATCH_BYTES: Final = 32 << 10
BATCH_BYTES_MAX: Final = 2 << 20
LINGER_MS: Final = 10
LINGER_MS_MAX: Final = 30_000
TOTAL_BYTES: Final = 32 << 20


def may_be_batched(topic: str, properties: Mapping[str, str]) -> bool:
    """Whether brokers take a message as a part of a batch."""
    return _ALONE.isdisjoint(properties) and not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


class BatchKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The parts that are the same in all messages of a batch."""

    topic: str
    #: Whether the broker answers when they are stored as safely as it is set up to.
    waits: bool = True
    tag: str | None = None
    #: The queue that the caller chose; None: any of the topic.
    queue: MessageQueue | None = None


T = TypeVar("T")


class Batch(Generic[T]):
    """Messages that go in one request."""

    __slots__ = ("byte_count", "due_ms", "items", "key", "shared")

    def __init__(self, key: BatchKey, due_ms: float) -> None:
        self.key = key
        #: When it is sent at the latest, by the steady clock.
        self.due_ms = due_ms
        self.items: list[T] = []
        self.byte_count = 0
        #: The caller's own.
        self.shared: Any = None


class Accumulator(Generic[T]):
    """The batches that are being filled.

    The caller polls: :meth:`due` at the time :meth:`due_ms`. It calls :meth:`ended` for each batch
    once its request has ended.

    :param batch_bytes: of one batch; one message alone may have more.
    :param linger_ms: how long a batch waits.
    :param total_bytes: of all batches, filled or under way; about one batch may go over it.
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
        #: By key, in the order of their times.
        self._open: OrderedDict[BatchKey, Batch[T]] = OrderedDict()
        #: Bytes of all batches, filled or under way.
        self.byte_count = 0

    @property
    def has_room(self) -> bool:
        """Whether another message may be added; one that may not goes alone."""
        return self.byte_count < self._total_bytes

    def fits(self, key: BatchKey, size: int) -> Batch[T] | None:
        """The batch that takes a message of so many bytes without becoming full, if there is one.

        The caller adds the item and its bytes, those of this object too.
        """
        batch = self._open.get(key)
        return batch if batch is not None and batch.byte_count + size < self._batch_bytes else None

    def add(self, key: BatchKey, item: T, size: int, now_ms: float) -> list[Batch[T]]:
        """Add a message; the batches to send now, which are full.

        :param size: its bytes in the request.
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
        """When :meth:`due` is to be called; None while no batch waits."""
        for batch in self._open.values():
            return batch.due_ms
        return None

    def due(self, now_ms: float) -> list[Batch[T]]:
        """The batches whose time has come."""
        found: list[Batch[T]] = []
        waiting = self._open
        while waiting and next(iter(waiting.values())).due_ms <= now_ms:
            found.append(waiting.popitem(last=False)[1])
        return found

    def flush(self) -> list[Batch[T]]:
        """All batches, whether their time has come or not."""
        found = list(self._open.values())
        self._open.clear()
        return found

    def ended(self, batch: Batch[T]) -> None:
        """The request of a batch has ended, well or not."""
        self.byte_count -= batch.byte_count
