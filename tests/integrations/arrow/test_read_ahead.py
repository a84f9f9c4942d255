"""A stream is read some steps ahead of its consumer, on a thread that ends with it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.arrow.read_ahead import read_ahead

#: How long a step may take that is done at once, seconds.
AT_ONCE_S = 10.0


class Stream:
    """A generator of numbers that tells of its steps."""

    def __init__(self, error: Exception | None = None, length: int = 3) -> None:
        self.error = error
        self.length = length
        self.steps: list[tuple[int, str]] = []
        self.is_closed = threading.Event()
        self.has_step = threading.Semaphore(0)

    def batches(self) -> Generator[int, None, None]:
        """Yield 0, 1, 2 and so on, or raise the error after them."""
        try:
            for number in range(self.length):
                self.steps.append((number, threading.current_thread().name))
                self.has_step.release()
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed.set()


    def ahead(self, bytes_max: int = 1, size: int = 1) -> Iterator[int]:
        """Read ahead numbers that all have the same size."""
        return read_ahead(self.batches(), lambda _: size, bytes_max)

    def await_steps(self, count: int) -> None:
        """Wait until the thread has made that many more steps."""
        for _ in range(count):
            assert self.has_step.acquire(timeout=AT_ONCE_S), "a step is missing"


class ReadAheadTests(SynchronousTestCase):
    """The function read_ahead()."""

    def test_the_next_step_is_made_while_the_consumer_works(self) -> None:
        """The steps run on the thread, which begins with the first step of the consumer."""
        stream = Stream()
        ahead = stream.ahead()
        self.assertEqual(stream.steps, [])
        self.assertEqual(next(ahead), 0)
        stream.await_steps(2)
        self.assertEqual(stream.steps, [(0, "twistmq-arrow"), (1, "twistmq-arrow")])
        self.assertEqual(list(ahead), [1, 2])
        self.assertTrue(stream.is_closed.wait(AT_ONCE_S))

    def test_the_bytes_that_wait_are_limited(self) -> None:
        """Each step of the consumer makes room for one more; the last one may exceed the limit."""
        stream = Stream(length=20)
        ahead = stream.ahead(bytes_max=10, size=4)
        self.assertEqual(next(ahead), 0)
        # 1, 2 and 3 wait and have twelve bytes.
        stream.await_steps(4)
        self.assertFalse(stream.has_step.acquire(timeout=0.02))
        self.assertEqual(next(ahead), 1)
        stream.await_steps(1)
        self.assertFalse(stream.has_step.acquire(timeout=0.02))
        self.assertEqual(len(stream.steps), 5)
        self.assertEqual(list(ahead), list(range(2, 20)))

    def test_an_error_is_raised_in_its_place(self) -> None:
        """The consumer gets all batches before the error."""
        for bytes_max in (1, 100):
            stream = Stream(ValueError("lost"))
            numbers: list[int] = []

            def read(ahead: Iterator[int], numbers: list[int]) -> None:
                for number in ahead:
                    numbers.append(number)

            self.assertEqual(str(self.assertRaises(
                ValueError, read, stream.ahead(bytes_max), numbers)), "lost")
            self.assertEqual(numbers, [0, 1, 2])
            self.assertTrue(stream.is_closed.wait(AT_ONCE_S))

    def test_a_dropped_stream_is_closed(self) -> None:
        """The generator ends on its thread, so that its connections are closed."""
        stream = Stream(length=20)
        ahead = stream.ahead()
        next(ahead)
        stream.await_steps(2)
        del ahead
        self.assertTrue(stream.is_closed.wait(AT_ONCE_S))
        self.assertLess(len(stream.steps), 4)
