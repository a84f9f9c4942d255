"""Responses that are made in slices."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.long_answers import (
    CONNECTION_ANSWERS_MAX,
    CONNECTIONS_MAX,
    LongAnswers,
    Work,
)
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.scheduling.scheduler import (
    CONTINUE_PERIOD_MS,
    IDLE_PERIOD_MS,
    SLICE_MS,
    Scheduler,
)
from twistmq.broker.testing.kernel import Peer
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused


class LongAnswersTests(SynchronousTestCase):
    """Short work is answered at once, and long work does not delay others."""

    def setUp(self) -> None:
        self.now_ms = 1000
        self.scheduler = Scheduler(lambda: self.now_ms)
        self.answers = LongAnswers(self.scheduler)
        self.peers = [Peer(number, 40_000 + number) for number in range(3)]

    def work(self, steps: int, cost_ms: int, remark: str = "done") -> Work:
        for _ in range(steps):
            self.now_ms += cost_ms
            yield
        return Reply(remark=remark)

    def step(self) -> int:
        """Run one slice; :returns: how long it took."""
        before = self.now_ms
        self.scheduler.step(self.now_ms)
        return self.now_ms - before

    def test_work_that_fits_into_a_slice_is_answered_at_once(self) -> None:
        """Work that fits into a slice is answered at once."""
        reply = self.answers.answer(self.work(SLICE_MS - 1, 1), self.peers[0])
        assert isinstance(reply, Reply)
        self.assertEqual(reply.remark, "done")
        self.assertEqual(self.scheduler.period_ms(), IDLE_PERIOD_MS)
        self.assertEqual(self.step(), 0)

    def test_work_that_does_not_fit_goes_on_in_slices_until_it_is_done(self) -> None:
        """Other work continues in slices until it is complete."""
        waiting = self.answers.answer(self.work(3 * SLICE_MS - 1, 1), self.peers[0])
        assert waiting is not None and not isinstance(waiting, Reply)
        self.assertNoResult(waiting)
        self.assertEqual(self.scheduler.period_ms(), CONTINUE_PERIOD_MS)
        self.assertEqual(self.step(), SLICE_MS)
        self.assertNoResult(waiting)
        self.assertEqual(self.step(), SLICE_MS - 1)
        self.assertEqual(self.successResultOf(waiting).remark, "done")
        self.assertEqual(self.scheduler.period_ms(), IDLE_PERIOD_MS)

    def test_long_works_take_turns(self) -> None:
        """Long works take turns; later ones do not get a slice earlier."""
        first = self.answers.answer(self.work(3 * SLICE_MS - 1, 1, "first"), self.peers[0])
        before = self.now_ms
        second = self.answers.answer(self.work(SLICE_MS - 1, 1, "second"), self.peers[1])
        self.assertEqual(self.now_ms, before)
        self.step()
        self.step()
        assert not isinstance(first, Reply) and first is not None
        assert not isinstance(second, Reply) and second is not None
        self.assertNoResult(first)
        self.assertEqual(self.successResultOf(second).remark, "second")
        self.step()
        self.assertEqual(self.successResultOf(first).remark, "first")

    def test_work_that_fails_later_refuses_its_own_request_and_no_other(self) -> None:
        """An error in a later slice refuses only its own request."""

        def failing() -> Work:
            yield from self.work(SLICE_MS, 1)
            raise RequestRefused(1, "gone meanwhile")

        waiting = self.answers.answer(failing(), self.peers[0])
        after = self.answers.answer(self.work(1, 1), self.peers[1])
        self.step()
        self.step()
        assert waiting is not None and not isinstance(waiting, Reply)
        assert after is not None and not isinstance(after, Reply)
        self.assertEqual(str(self.failureResultOf(waiting, RequestRefused).value), "gone meanwhile")
        self.assertEqual(self.successResultOf(after).remark, "done")

    def waiting(self, number: int, remark: str = "done", steps: int = 3) -> Deferred[Any]:
        """Return an answer for connection ``number`` that takes this number of slices less one
        step.
        """
        answer = self.answers.answer(
            self.work(steps * SLICE_MS - 1, 1, remark), self.peers[number])
        assert isinstance(answer, Deferred)
        return answer

    def test_many_questions_of_one_connection_do_not_keep_anothers_waiting(self) -> None:
        """Many requests of one connection do not delay the requests of another connection."""
        many = [self.waiting(0) for _ in range(10)]
        other = self.waiting(1, steps=2)
        for _ in range(5):
            self.assertLessEqual(self.step(), SLICE_MS)
        self.assertEqual(self.successResultOf(other).remark, "done")
        self.assertNoResult(many[1])
        for _ in range(29):
            self.step()
        for answer in many:
            self.assertEqual(self.successResultOf(answer).remark, "done")
        self.assertEqual(self.scheduler.period_ms(), IDLE_PERIOD_MS)

    def test_asker_that_left(self) -> None:
        """Work for a client that left is dropped, unless it is needed for itself."""
        gone, other = self.waiting(0), self.waiting(1, steps=1)
        done: list[bool] = []

        def removal() -> Work:
            yield from self.work(SLICE_MS, 1)
            done.append(True)
            return Reply()

        wanted = self.answers.answer(removal(), self.peers[2], is_wanted=True)
        self.peers[0].active = self.peers[2].active = False
        before = self.now_ms
        self.step()
        self.assertIsNone(self.successResultOf(gone))
        self.assertEqual(self.now_ms - before, SLICE_MS)
        self.assertEqual(self.successResultOf(other).remark, "done")
        self.step()
        self.assertEqual(done, [True])
        assert isinstance(wanted, Deferred)
        self.successResultOf(wanted)

    def test_short_work_behind_a_long_reply_shares_its_slice(self) -> None:
        """Work that waits after a long response shares its last slice if it fits."""
        first = self.waiting(0, steps=2)
        rest = [self.waiting(0, steps=0) for _ in range(100)]
        self.step()
        for answer in (first, *rest):
            self.assertEqual(self.successResultOf(answer).remark, "done")
        self.assertEqual(self.scheduler.period_ms(), IDLE_PERIOD_MS)

    def test_too_many_connections(self) -> None:
        """Answers are being made for so many connections."""
        for number in range(CONNECTIONS_MAX):
            self.peers.append(Peer(len(self.peers), 40_000 + number))
        for number in range(CONNECTIONS_MAX):
            self.waiting(number)
        error = self.assertRaises(RequestRefused, self.waiting, CONNECTIONS_MAX)
        self.assertEqual(error.response_code, ResponseCode.SYSTEM_BUSY)
        self.waiting(0)

    def test_too_many_replies_of_one_connection_do_not_block_the_rest(self) -> None:
        """So many answers of one connection wait; others still have theirs made."""
        answers = [self.waiting(0) for _ in range(CONNECTION_ANSWERS_MAX)]
        error = self.assertRaises(RequestRefused, self.waiting, 0)
        self.assertEqual(error.response_code, ResponseCode.SYSTEM_BUSY)
        self.waiting(1)
        while not answers[0].called:
            self.step()
        self.waiting(0)
