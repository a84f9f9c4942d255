"""Work that is done soon."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.soon import Soon


class SoonTests(SynchronousTestCase):
    """Work that ends immediately, and work that the test ends."""

    def setUp(self) -> None:
        self.began = 0
        self.running: Deferred[None] = succeed(None)
        self.soon = Soon(self.work, "the work")

    async def work(self) -> None:
        self.began += 1
        await self.running

    def test_work_that_ends_at_once_is_done_at_each_question(self) -> None:
        """Nothing remains that would prevent the next run."""
        for number in range(1, 4):
            self.successResultOf(self.soon.ask())
            self.assertEqual((self.began, self.soon.is_running), (number, False))

    def test_questions_during_the_work_share_one_more(self) -> None:
        """Requests since the work began cause one more run."""
        running = self.running = Deferred()
        first = self.soon.ask()
        others = [self.soon.ask() for _ in range(3)]
        joined = self.soon.ask(again=False)
        self.assertEqual(self.began, 1)
        again = self.running = Deferred()
        running.callback(None)
        self.successResultOf(first)
        self.successResultOf(joined)
        self.assertEqual(self.began, 2)
        for each in others:
            self.assertNoResult(each)
        again.callback(None)
        for each in others:
            self.successResultOf(each)
        self.assertEqual((self.began, self.soon.is_running), (2, False))

    def test_work_that_fails_is_logged_and_done_again(self) -> None:
        """A failure, now or later, does not prevent the next run."""
        self.running = Deferred()
        waiting = self.soon.ask()
        self.running.errback(OSError("the first"))
        self.successResultOf(waiting)

        async def fail() -> None:
            self.began += 1
            raise OSError("the second")

        self.soon = Soon(fail, "the work")
        self.successResultOf(self.soon.ask())
        self.successResultOf(self.soon.ask())
        self.assertEqual(self.began, 3)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 3)

    def test_a_question_by_who_was_answered(self) -> None:
        """It causes one more run, and not an endless wait."""
        for again in (True, False):
            began, second = self.began, list[Deferred[None]]()
            self.soon.ask().addCallback(
                lambda _, again=again, second=second: second.append(self.soon.ask(again=again)))
            self.successResultOf(second[0])
            self.assertEqual(self.began, began + 2)
