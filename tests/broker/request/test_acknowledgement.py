"""The chain of acknowledgement: stages, each of which can delay a reply."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreCut
from twistmq.broker.request.acknowledgement import Acknowledgement, Stage
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused, StoreError

TIMEOUT_MS = 5000


class FakeStage:
    """A replica, or a disk, that is safe up to an offset the test moves."""

    def __init__(self) -> None:
        self.offset = 0
        self.waiting: list[tuple[int, Deferred[None]]] = []

    def __call__(self, offset: int) -> Deferred[None] | None:
        if offset <= self.offset:
            return None
        done: Deferred[None] = Deferred()
        self.waiting.append((offset, done))
        return done

    def reach(self, offset: int) -> None:
        self.offset = offset
        ready = [done for wanted, done in self.waiting if wanted <= offset]
        self.waiting = [row for row in self.waiting if row[0] > offset]
        for done in ready:
            done.callback(None)


def acknowledgement(
    flush: FakeStage | None = None, *stages: Stage, clock: Callable[[], int] | None = None
) -> Acknowledgement:
    """Return a chain over a store that has only the needed parts."""
    settings = types.SimpleNamespace(
        sync_flush=flush is not None, sync_flush_timeout_ms=TIMEOUT_MS)
    store: Any = types.SimpleNamespace(
        settings=settings, flush=types.SimpleNamespace(flushed=flush))
    chain = Acknowledgement(store, clock or (lambda: 0))
    chain.stages += stages
    return chain


class AcknowledgementTests(SynchronousTestCase):
    """A reply waits until its messages are as safe as the settings demand."""

    def setUp(self) -> None:
        self.now_ms = 0
        self.flush, self.replica = FakeStage(), FakeStage()
        self.chain = acknowledgement(
            self.flush, Stage(self.replica, ResponseCode.FLUSH_SLAVE_TIMEOUT),
            clock=lambda: self.now_ms)

    def wait(self, offset: int, now_ms: int) -> Deferred[ResponseCode] | None:
        self.now_ms = now_ms
        return self.chain.wait(offset)

    def expire(self, now_ms: int) -> None:
        self.now_ms = now_ms
        # The wall clock says nothing.
        self.chain.expire(0)

    def test_async_flush(self) -> None:
        """Under ASYNC_FLUSH there is no stage, so nothing waits."""
        chain = acknowledgement()
        self.assertEqual(chain.stages, [])
        self.assertIsNone(chain.wait(10**12))

    def test_all_are_safe(self) -> None:
        """Messages that every stage has already do not wait."""
        self.flush.offset = self.replica.offset = 100
        self.assertIsNone(self.wait(100, 0))

    def test_one_after_the_other(self) -> None:
        """The second stage begins when the first is complete; then the answer is SUCCESS."""
        answer = self.wait(100, 0)
        assert answer is not None
        self.assertEqual(self.replica.waiting, [])
        self.flush.reach(99)
        self.assertNoResult(answer)
        self.flush.reach(100)
        self.assertNoResult(answer)
        self.assertEqual([offset for offset, _ in self.replica.waiting], [100])
        self.replica.reach(100)
        self.assertEqual(self.successResultOf(answer), ResponseCode.SUCCESS)

    def test_second_stage_is_there_first(self) -> None:
        """A replica that is faster than the disk causes no wait."""
        answer = self.wait(100, 0)
        assert answer is not None
        self.replica.reach(100)
        self.flush.reach(100)
        self.assertEqual(self.successResultOf(answer), ResponseCode.SUCCESS)

    def test_stage_that_is_late(self) -> None:
        """The first stage that is too late gives its code; later results change nothing."""
        early, late = self.wait(100, 1000), self.wait(200, 1001)
        assert early is not None and late is not None
        self.expire(1000 + TIMEOUT_MS - 1)
        self.assertNoResult(early)
        self.expire(1000 + TIMEOUT_MS)
        self.assertEqual(self.successResultOf(early), ResponseCode.FLUSH_DISK_TIMEOUT)
        self.flush.reach(200)
        self.assertNoResult(late)
        self.expire(1001 + TIMEOUT_MS)
        self.assertEqual(self.successResultOf(late), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self.replica.reach(200)
        self.expire(10**9)

    def test_time_is_counted_from_the_start(self) -> None:
        """The time-out applies to the whole chain, in whatever order its stages begin."""
        first = self.wait(100, 0)
        second = self.wait(50, 3000)
        assert first is not None and second is not None
        self.flush.reach(50)
        self.flush.reach(100)
        self.expire(TIMEOUT_MS)
        self.assertEqual(self.successResultOf(first), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self.assertNoResult(second)
        self.replica.reach(50)
        self.assertEqual(self.successResultOf(second), ResponseCode.SUCCESS)

    def test_stage_that_fails(self) -> None:
        """A disk or a replica that fails is answered as one that is late: it is not safe."""
        answer = self.wait(100, 0)
        assert answer is not None
        [(_, done)] = self.flush.waiting
        done.errback(StoreError("the disk fails"))
        self.assertEqual(self.successResultOf(answer), ResponseCode.FLUSH_DISK_TIMEOUT)
        self.assertEqual(self.replica.waiting, [])

    def test_a_stage_has_its_own_time(self) -> None:
        """The time of a stage is counted from the append, like the times of the other stages."""
        chain = acknowledgement(
            self.flush, Stage(self.replica, ResponseCode.FLUSH_SLAVE_TIMEOUT, lambda: 3000),
            clock=lambda: self.now_ms)
        self.chain = chain
        slow_disk, slow_replica = self.wait(100, 0), self.wait(50, 0)
        assert slow_disk is not None and slow_replica is not None
        self.flush.reach(50)
        self.expire(2999)
        self.assertNoResult(slow_replica)
        self.expire(3000)
        self.assertEqual(self.successResultOf(slow_replica), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self.assertNoResult(slow_disk)
        self.expire(4000)
        self.flush.reach(100)
        self.assertNoResult(slow_disk)
        self.expire(4000)
        self.assertEqual(self.successResultOf(slow_disk), ResponseCode.FLUSH_SLAVE_TIMEOUT)

    def test_a_replica_in_time_counts_though_the_disk_was_slower_than_its_time(self) -> None:
        """The replica stage begins late, and the replica has the message by then."""
        self.chain = acknowledgement(
            self.flush, Stage(self.replica, ResponseCode.FLUSH_SLAVE_TIMEOUT, lambda: 3000),
            clock=lambda: self.now_ms)
        answer = self.wait(100, 0)
        assert answer is not None
        self.replica.reach(100)
        self.expire(4500)
        self.flush.reach(100)
        self.assertEqual(self.successResultOf(answer), ResponseCode.SUCCESS)

    def test_a_stage_that_says_its_own_code(self) -> None:
        """The message is stored, but the missing replica is known at once."""
        known: Deferred[ResponseCode] = Deferred()
        later = FakeStage()
        chain = acknowledgement(
            None, Stage(lambda offset: known, ResponseCode.FLUSH_SLAVE_TIMEOUT),
            Stage(later, ResponseCode.FLUSH_DISK_TIMEOUT))
        answer = chain.wait(100)
        assert answer is not None
        known.callback(ResponseCode.SLAVE_NOT_AVAILABLE)
        self.assertEqual(self.successResultOf(answer), ResponseCode.SLAVE_NOT_AVAILABLE)
        self.assertEqual(later.waiting, [])

    def test_a_stage_that_refuses(self) -> None:
        """A message that does not count as stored is refused with the stage's code and remark."""
        known: Deferred[None] = Deferred()
        chain = acknowledgement(
            None, Stage(lambda offset: known, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        answer = chain.wait(100)
        assert answer is not None
        known.errback(RequestRefused(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"))
        error = self.failureResultOf(answer, RequestRefused).value
        self.assertEqual((error.response_code, str(error)),
                         (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"))
        chain.expire(0)

    def test_a_message_that_is_cut_is_refused(self) -> None:
        """Otherwise a client would take it for a late flush of a stored message."""
        answer = self.wait(100, 0)
        assert answer is not None
        self.flush.waiting.pop()[1].errback(StoreCut("it was removed"))
        error = self.failureResultOf(answer, RequestRefused).value
        self.assertEqual((error.response_code, str(error)),
                         (ResponseCode.SYSTEM_ERROR, "it was removed"))
        self.assertEqual(self.replica.waiting, [])

    def test_only_mandatory_stages_count_for_messages_that_do_not_wait(self) -> None:
        """Such a message skips the flush, and waits for each mandatory stage."""
        first, second = FakeStage(), FakeStage()
        chain = acknowledgement(
            self.flush, Stage(first, ResponseCode.SYSTEM_ERROR, is_mandatory=True),
            Stage(self.replica, ResponseCode.FLUSH_SLAVE_TIMEOUT),
            Stage(second, ResponseCode.SYSTEM_ERROR, is_mandatory=True))
        answer = chain.wait(100, only_mandatory=True)
        assert answer is not None
        first.reach(100)
        self.assertNoResult(answer)
        second.reach(100)
        self.assertEqual(self.successResultOf(answer), ResponseCode.SUCCESS)
        self.assertEqual((self.flush.waiting, self.replica.waiting), ([], []))
        self.assertTrue(chain.has_mandatory)
        self.assertFalse(self.chain.has_mandatory)
        self.assertIsNone(self.chain.wait(100, only_mandatory=True))

    def test_waits_that_ended_are_forgotten(self) -> None:
        """Waits that have ended are removed, in whatever order they ended."""
        answers = [self.wait(offset, offset) for offset in range(1, 1001)]
        self.flush.reach(500)
        self.replica.reach(500)
        self.expire(0)
        self.assertEqual(len(self.chain._waiting), 500)
        self.expire(10**9)
        self.assertEqual(self.chain._waiting, [])
        codes = [self.successResultOf(answer) for answer in answers if answer is not None]
        self.assertEqual(codes, [ResponseCode.SUCCESS] * 500
                         + [ResponseCode.FLUSH_DISK_TIMEOUT] * 500)
