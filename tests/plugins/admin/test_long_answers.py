"""Answers made in slices."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import RequestRefused
from twistmq.broker.remoting import Reply
from twistmq.plugins.admin.long_answers import (
    CONTINUE_PERIOD_MS,
    IDLE_PERIOD_MS,
    SLICE_MS,
    LongAnswers,
    Work,
)


class LongAnswersTests(SynchronousTestCase):
    """What is short is answered at once, what is long does not hold up others."""

    def setUp(self) -> None:
        self.now_ms = 1000
        self.answers = LongAnswers(lambda: self.now_ms)

    def work(self, steps: int, cost_ms: int, remark: str = "done") -> Work:
        for _ in range(steps):
            self.now_ms += cost_ms
            yield
        return Reply(remark=remark)

    def step(self) -> int:
        """Run one slice; :returns: how long it took."""
        before = self.now_ms
        self.answers.step(self.now_ms)
        return self.now_ms - before

    def test_short(self) -> None:
        """Work that fits into a slice is answered at once."""
        reply = self.answers.answer(self.work(SLICE_MS - 1, 1))
        assert isinstance(reply, Reply)
        self.assertEqual(reply.remark, "done")
        self.assertEqual(self.answers.period_ms(), IDLE_PERIOD_MS)
        self.assertEqual(self.step(), 0)

    def test_long(self) -> None:
        """Work that does not fit goes on in slices until it is done."""
        waiting = self.answers.answer(self.work(3 * SLICE_MS - 1, 1))
        assert waiting is not None and not isinstance(waiting, Reply)
        self.assertNoResult(waiting)
        self.assertEqual(self.answers.period_ms(), CONTINUE_PERIOD_MS)
        self.assertEqual(self.step(), SLICE_MS)
        self.assertNoResult(waiting)
        self.assertEqual(self.step(), SLICE_MS - 1)
        self.assertEqual(self.successResultOf(waiting).remark, "done")
        self.assertEqual(self.answers.period_ms(), IDLE_PERIOD_MS)

    def test_several(self) -> None:
        """Long works take turns; what comes while they wait does not get a slice in front."""
        first = self.answers.answer(self.work(3 * SLICE_MS - 1, 1, "first"))
        before = self.now_ms
        second = self.answers.answer(self.work(SLICE_MS - 1, 1, "second"))
        self.assertEqual(self.now_ms, before)
        self.step()
        self.step()
        assert not isinstance(first, Reply) and first is not None
        assert not isinstance(second, Reply) and second is not None
        self.assertNoResult(first)
        self.assertEqual(self.successResultOf(second).remark, "second")
        self.step()
        self.assertEqual(self.successResultOf(first).remark, "first")

    def test_failure(self) -> None:
        """Work that fails later refuses its own request and no other."""

        def failing() -> Work:
            yield from self.work(SLICE_MS, 1)
            raise RequestRefused(1, "gone meanwhile")

        waiting = self.answers.answer(failing())
        after = self.answers.answer(self.work(1, 1))
        self.step()
        self.step()
        assert waiting is not None and not isinstance(waiting, Reply)
        assert after is not None and not isinstance(after, Reply)
        self.assertEqual(str(self.failureResultOf(waiting, RequestRefused).value), "gone meanwhile")
        self.assertEqual(self.successResultOf(after).remark, "done")
