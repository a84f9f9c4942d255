"""The line between the threads of a blocking consumer and the client's thread."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.errors import Closed
from twistmq.client.blocking.feeder import Feeder, Results
from twistmq.client.core.connection.tasks import Future, Scheduler
from twistmq.client.core.consumer.assigned_queues import Batch


class StillClock:
    """A clock that stands still."""

    def monotonic_ms(self) -> float:
        """Return 0."""
        return 0.0

    def wall_ms(self) -> int:
        """Return 0."""
        return 0


class Messages:
    """A member with one queue of numbers that records the requested counts."""

    def __init__(self, count: int, *, in_order: bool) -> None:
        self.tasks = Scheduler(StillClock())
        self.options = SimpleNamespace(in_order=in_order)
        self.left = list(range(count))
        self.released: list[int] = []
        self.more: Future[None] = Future()

    def take(self, most: int) -> Batch[Any] | None:
        """Take the next numbers."""
        taken, self.left = self.left[:most], self.left[most:]
        return Batch(cast(Any, "queue"), cast(Any, taken)) if taken else None

    def release(self, assigned: object, messages: list[int]) -> None:
        """Take numbers back."""
        self.released += messages

    async def ready(self) -> None:
        """Wait without end."""
        await self.more
        raise Closed("the test ends")


class FeederTests(SynchronousTestCase):
    """A line for two workers."""

    def feed(self, count: int, size: int, *, in_order: bool = False) -> None:
        """Start to feed, with so many messages."""
        self.member = Messages(count, in_order=in_order)
        self.lines: SimpleQueue[Batch[Any] | None] = SimpleQueue()
        self.feeder: Feeder[Any] = Feeder(cast(Any, self.member), self.lines, 2, size)
        self.feeder.start()
        self.member.tasks.run()

    def taken(self) -> list[int]:
        """Return the messages of the next batch."""
        batch = self.lines.get_nowait()
        assert batch is not None
        return cast("list[int]", batch.messages)

    def test_messages_of_a_queue_go_to_several_workers(self) -> None:
        """Each of the two workers gets one batch, which has the configured size."""
        self.feed(9, 2)
        self.assertEqual([self.taken(), self.taken()], [[0, 1], [2, 3]])
        self.assertTrue(self.lines.empty())

    def test_messages_of_a_queue_in_order_go_to_one_worker(self) -> None:
        """They are one batch."""
        self.feed(4, 3, in_order=True)
        self.assertEqual([self.taken(), self.taken()], [[0, 1, 2], [3]])

    def test_a_full_line_is_filled_again_when_half_of_it_is_taken(self) -> None:
        """The worker that sees this wakes the feeder."""
        self.feed(5, 1)
        self.assertFalse(self.feeder.is_needed)
        self.taken()
        self.assertTrue(self.feeder.is_needed)
        self.feeder.wake()
        self.member.tasks.run()
        self.assertEqual(self.lines.qsize(), 2)

    def test_what_is_in_the_line_at_the_end_waits_again(self) -> None:
        """No worker has taken them."""
        self.feed(5, 1)
        self.feeder.stop()
        self.member.tasks.run()
        self.assertEqual(self.member.released, [0, 1])


class ResultsTests(SynchronousTestCase):
    """The results of two queues."""

    def setUp(self) -> None:
        """Create a member that records results, and an engine that runs on request."""
        self.told: list[tuple[Any, ...]] = []
        self.posted: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.results: Results[Any] = Results(
            cast(Any, self), lambda function, *arguments: self.posted.append(
                (function, arguments)))

    def succeed(self, assigned: str, messages: list[int]) -> None:
        """Report messages as processed."""
        self.told.append(("succeed", assigned, messages))

    def fail(self, assigned: str, messages: list[int]) -> None:
        """Report messages as failed."""
        self.told.append(("fail", assigned, messages))

    def run_posted(self) -> None:
        """Run the posted functions."""
        posted, self.posted = self.posted, []
        for function, arguments in posted:
            function(*arguments)

    def test_messages_that_were_processed_meanwhile_are_told_at_once(self) -> None:
        """Those of each queue are reported together, before anything that was posted later."""
        for assigned, number in (("a", 1), ("b", 2), ("a", 3)):
            self.results.post(self.succeed, assigned, [number])
        self.results.post(self.fail, "a", [4])
        self.assertEqual(len(self.posted), 2)
        self.run_posted()
        self.assertEqual(self.told, [
            ("succeed", "a", [1, 3]), ("succeed", "b", [2]), ("fail", "a", [4])])

    def test_later_results_are_posted_again(self) -> None:
        """No result waits for others."""
        for number in (1, 2):
            self.results.post(self.succeed, "a", [number])
            self.run_posted()
        self.assertEqual(self.told, [("succeed", "a", [1]), ("succeed", "a", [2])])
