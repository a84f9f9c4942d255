"""A stream is read one step ahead of its consumer, on a thread that ends with it."""

from __future__ import annotations

import threading
from collections.abc import Generator

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.arrow.read_ahead import read_ahead

#: How long a step may take that is done at once, seconds.
AT_ONCE_S = 10.0


class Stream:
    """A generator of numbers that tells of its steps."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.steps: list[tuple[int, str]] = []
        self.is_closed = threading.Event()
        self.has_step = threading.Semaphore(0)

    def batches(self) -> Generator[int, None, None]:
        """Yield 0, 1 and 2, or raise the error after them."""
        try:
            for number in range(3):
                self.steps.append((number, threading.current_thread().name))
                self.has_step.release()
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed.set()


class ReadAheadTests(SynchronousTestCase):
    """The function read_ahead()."""

    def test_the_next_step_is_made_while_the_consumer_works(self) -> None:
        """One step is made ahead, and not more; it runs on the thread."""
        stream = Stream()
        ahead = read_ahead(stream.batches())
        self.assertEqual(stream.steps, [])
        self.assertEqual(next(ahead), 0)
        for _ in range(2):
            self.assertTrue(stream.has_step.acquire(timeout=AT_ONCE_S))
        self.assertEqual(stream.steps, [(0, "twistmq-arrow"), (1, "twistmq-arrow")])
        self.assertEqual(list(ahead), [1, 2])
        self.assertTrue(stream.is_closed.wait(AT_ONCE_S))

    def test_an_error_is_raised_in_its_place(self) -> None:
        """The consumer gets all batches before the error."""
        stream = Stream(ValueError("lost"))
        found: list[int] = []

        def read() -> None:
            for batch in read_ahead(stream.batches()):
                found.append(batch)

        self.assertEqual(str(self.assertRaises(ValueError, read)), "lost")
        self.assertEqual(found, [0, 1, 2])
        self.assertTrue(stream.is_closed.wait(AT_ONCE_S))

    def test_a_dropped_stream_is_closed(self) -> None:
        """The generator ends on its thread, so that its connections are closed."""
        stream = Stream()
        ahead = read_ahead(stream.batches())
        next(ahead)
        del ahead
        self.assertTrue(stream.is_closed.wait(AT_ONCE_S))
        self.assertLess(len(stream.steps), 3)
