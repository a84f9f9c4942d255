"""Reads the next batches of a stream on a thread while the consumer works on an earlier one.

DuckDB, Polars and pyarrow convert a batch without the lock of the interpreter, so the conversion
and the read of the next batches use two processors. A consumer that writes to a file works in
bursts: it takes many batches quickly, and then none until their rows are written. Several batches
are therefore read ahead. Their bytes are limited, so a slow consumer does not fill the memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

__all__ = ["read_ahead"]

T = TypeVar("T")


def read_ahead(batches: Generator[T, None, None], size_of: Callable[[T], int],
               bytes_max: int) -> Iterator[T]:
    """Yield what a generator yields; it runs on a thread of its own, some steps ahead.

    The thread starts with the first step of the consumer. It closes the generator when the consumer
    drops the iterator, after the step in progress.

    :param size_of: returns the size of a batch in bytes.
    :param bytes_max: the thread makes no step while batches of that many bytes wait for the
        consumer. The last of these batches may exceed the limit.
    :raises Exception: what the generator raises, in its place of the stream.
    """
    waiting = _WaitingBatches(size_of, bytes_max)

    def run() -> None:
        while waiting.has_room():
            try:
                waiting.put(next(batches, None))
            except Exception as error:
                waiting.put(error)
        batches.close()

    # A program that ends does not wait for a read of a broker that hangs.
    threading.Thread(target=run, name="twistmq-arrow", daemon=True).start()
    try:
        while (batch := waiting.get()) is not None:
            if isinstance(batch, Exception):
                raise batch
            yield batch
    finally:
        waiting.close()


class _WaitingBatches(Generic[T]):
    """The batches between the thread that reads them and their consumer.

    :param size_of: returns the size of a batch in bytes.
    :param bytes_max: the bytes from which on there is no room for another batch.
    """

    def __init__(self, size_of: Callable[[T], int], bytes_max: int) -> None:
        self._size_of = size_of
        self._bytes_max = bytes_max
        #: The garbage collector may close an iterator while its thread holds the lock, so the lock
        #: is the reentrant one that a condition has by default.
        self._change = threading.Condition()
        #: Each batch with its size. The last element may be an error, or None at the end.
        self._outcomes: deque[tuple[T | Exception | None, int]] = deque()
        self._bytes = 0
        #: Whether the stream has ended, or the consumer wants no more of it.
        self._is_closed = False

    def has_room(self) -> bool:
        """Wait until there is room for a batch.

        :returns: whether another batch is wanted.
        """
        with self._change:
            self._change.wait_for(lambda: self._is_closed or self._bytes < self._bytes_max)
            return not self._is_closed

    def put(self, outcome: T | Exception | None) -> None:
        """Append a batch, an error, or None at the end of the stream."""
        if outcome is None or isinstance(outcome, Exception):
            is_last, size = True, 0
        else:
            is_last, size = False, self._size_of(outcome)
        with self._change:
            self._outcomes.append((outcome, size))
            self._bytes += size
            self._is_closed |= is_last
            self._change.notify()

    def get(self) -> T | Exception | None:
        """Wait for the next outcome, and remove it."""
        with self._change:
            self._change.wait_for(lambda: self._outcomes)
            outcome, size = self._outcomes.popleft()
            self._bytes -= size
            self._change.notify()
            return outcome

    def close(self) -> None:
        """Drop the batches that wait, and end the thread."""
        with self._change:
            self._is_closed = True
            self._outcomes.clear()
            self._change.notify()
