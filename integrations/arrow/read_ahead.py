"""Reads the next batch of a stream on a thread while the consumer works on the last one.

DuckDB, Polars and pyarrow convert a batch without the lock of the interpreter, so the conversion
and the read of the next batch use two processors. One batch is read ahead, and not more: a slow
consumer does not fill the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["read_ahead"]

T = TypeVar("T")


def read_ahead(batches: Generator[T, None, None]) -> Iterator[T]:
    """Yield what a generator yields; it runs on a thread of its own, one step ahead.

    The thread starts with the first step of the consumer. It closes the generator when the consumer
    drops the iterator, after the step in progress.

    :raises Exception: what the generator raises, in its place of the stream.
    """
    #: True asks for a step, and False ends the thread.
    asked: SimpleQueue[bool] = SimpleQueue()
    #: A batch, the error, or None at the end.
    outcomes: SimpleQueue[T | Exception | None] = SimpleQueue()

    def run() -> None:
        while asked.get():
            try:
                outcomes.put(next(batches, None))
            except Exception as error:
                outcomes.put(error)
        batches.close()

    # A program that ends does not wait for a read of a broker that hangs.
    threading.Thread(target=run, name="twistmq-arrow", daemon=True).start()
    try:
        asked.put(True)
        while (batch := outcomes.get()) is not None:
            if isinstance(batch, Exception):
                raise batch
            asked.put(True)
            yield batch
    finally:
        asked.put(False)
