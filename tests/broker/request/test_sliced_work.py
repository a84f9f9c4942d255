"""Long work in slices, and replies that may be there already."""

from __future__ import annotations

from collections.abc import Generator

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.messages import Reply
from twistmq.broker.request.sliced_work import (
    CONTINUE_PERIOD_MS,
    IDLE_PERIOD_MS,
    SLICE_MS,
    SlicedWork,
    now_or_later,
)


class SlicedWorkTests(SynchronousTestCase):
    """SlicedWork."""

    def setUp(self) -> None:
        self.now_ms = 0
        self.slices = SlicedWork(lambda: self.now_ms)
        self.done: list[str] = []

    def work(self, name: str, steps: int) -> Generator[None, None, str]:
        """Work of steps of a millisecond."""
        for _ in range(steps):
            self.now_ms += 1
            yield
        self.done.append(name)
        return name

    def test_short_work(self) -> None:
        """It is done at once."""
        self.assertEqual(self.successResultOf(self.slices.run(self.work("a", SLICE_MS - 1))), "a")
        self.assertEqual(self.slices.period_ms(), IDLE_PERIOD_MS)

    def test_long_work_takes_turns(self) -> None:
        """No step holds the reactor for more than a slice, and the short overtakes the long."""
        long = self.slices.run(self.work("long", 10 * SLICE_MS))
        short = self.slices.run(self.work("short", SLICE_MS + 1))
        self.assertEqual(self.slices.period_ms(), CONTINUE_PERIOD_MS)
        while self.slices.period_ms() == CONTINUE_PERIOD_MS:
            before = self.now_ms
            self.slices.step(self.now_ms)
            self.assertLessEqual(self.now_ms - before, SLICE_MS)
        self.assertEqual(self.done, ["short", "long"])
        self.assertEqual([self.successResultOf(each) for each in (long, short)],
                         ["long", "short"])

    def test_work_that_fails_fails_its_deferred(self) -> None:
        """Work that fails fails its Deferred, at once or later."""
        def failing(steps: int) -> Generator[None, None, str]:
            yield from self.work("x", steps)
            raise ValueError(steps)
        self.failureResultOf(self.slices.run(failing(1)), ValueError)
        later = self.slices.run(failing(2 * SLICE_MS))
        self.assertNoResult(later)
        self.slices.finish()
        self.failureResultOf(later, ValueError)


class NowOrLaterTests(SynchronousTestCase):
    """now_or_later."""

    def test_a_value_is_returned_and_a_deferred_is_waited_for(self) -> None:
        """What is there is returned or raised; what is not is waited for."""
        reply = Reply()
        self.assertIs(now_or_later(succeed(reply)), reply)
        self.assertRaises(ValueError, now_or_later, fail(ValueError()))
        waiting: Deferred[Reply] = Deferred()
        self.assertIs(now_or_later(waiting), waiting)
        waiting.callback(reply)
        self.assertIs(self.successResultOf(waiting), reply)
