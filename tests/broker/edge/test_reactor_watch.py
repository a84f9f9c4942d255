"""The watch over a reactor that is idle."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.broker.edge.waiting_clock import WaitingClock
from twistmq.broker.edge.reactor_watch import IDLE_SECONDS, ROUNDS_MAX, ReactorWatch


class Rests:
    """An object with resting tasks, which counts the calls of the watch."""

    def __init__(self, watch: ReactorWatch) -> None:
        self.watch = watch
        self.checks = self.ended = 0

    def check(self) -> None:
        self.checks += 1

    def end_rests(self) -> None:
        self.ended += 1


class ReactorWatchTests(SynchronousTestCase):
    """The watch on a virtual clock."""

    def setUp(self) -> None:
        self.clock = WaitingClock()
        watch = ReactorWatch.find(self.clock, self.clock.seconds)
        assert watch is not None
        self.watch = watch
        self.rests = Rests(watch)

    def test_checks_come_before_waits(self) -> None:
        """One check comes before each wait, and only while something rests."""
        self.watch.begin(self.rests)
        self.watch.begin(self.rests)
        for _ in range(3):
            self.clock.doIteration(0)
        self.assertEqual((self.rests.checks, self.clock.waits), (3, 3))
        self.watch.end(self.rests)
        self.watch.end(self.rests)
        self.clock.doIteration(0)
        self.assertEqual((self.rests.checks, self.clock.waits), (3, 4))
        self.assertNotIn("doIteration", vars(self.clock))

    def test_a_check_that_makes_a_call_earlier(self) -> None:
        """The wait ends with the call."""
        call = self.clock.callLater(10, lambda: None)
        self.rests.check = lambda: call.reset(1)  # type: ignore[method-assign]
        self.watch.begin(self.rests)
        self.clock.run_for(0.5)
        self.clock.end_seconds = 100.0
        self.clock.doIteration(10)
        self.assertAlmostEqual(self.clock.seconds(), 1.5)
        self.clock.doIteration(0)
        self.assertAlmostEqual(self.clock.seconds(), 1.5)

    def test_several_objects(self) -> None:
        """All services of a process share the watch, and end their rests in any order."""
        self.assertIs(ReactorWatch.find(self.clock, self.clock.seconds), self.watch)
        other = Rests(self.watch)
        self.watch.begin(self.rests)
        self.watch.begin(other)
        self.watch.end(self.rests)
        self.clock.doIteration(0)
        self.assertEqual((self.rests.checks, other.checks), (0, 1))
        self.watch.end(other)
        self.assertNotIn("doIteration", vars(self.clock))

    def test_a_check_that_fails(self) -> None:
        """The reactor still waits, and the object is not checked again."""
        other = Rests(self.watch)
        self.rests.check = lambda: 1 // 0  # type: ignore[assignment, method-assign, return-value]
        self.watch.begin(self.rests)
        self.watch.begin(other)
        for _ in range(2):
            self.clock.doIteration(0)
        self.assertEqual((self.clock.waits, other.checks), (2, 2))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_busy(self) -> None:
        """More waits than an idle reactor makes end all rests, and forbid others for a while."""
        self.watch.begin(self.rests)
        for _ in range(ROUNDS_MAX):
            self.clock.doIteration(0)
        self.assertEqual((self.rests.checks, self.rests.ended), (ROUNDS_MAX, 0))
        self.assertTrue(self.watch.is_idle)
        self.clock.doIteration(0)
        self.assertEqual((self.rests.checks, self.rests.ended), (ROUNDS_MAX, 1))
        self.assertFalse(self.watch.is_idle)
        self.assertNotIn("doIteration", vars(self.clock))
        self.clock.advance(IDLE_SECONDS)
        self.assertTrue(self.watch.is_idle)

    def test_a_rate_that_is_not_busy(self) -> None:
        """The count of the waits begins again each second."""
        self.watch.begin(self.rests)
        for _ in range(5 * ROUNDS_MAX):
            self.clock.advance(1.1 * IDLE_SECONDS / ROUNDS_MAX)
            self.clock.doIteration(0)
        self.assertEqual((self.rests.checks, self.rests.ended), (5 * ROUNDS_MAX, 0))

    def test_other_reactors(self) -> None:
        """A reactor that does not wait by a step of its own has no watch."""
        self.assertIs(ReactorWatch.find(Clock(), self.clock.seconds), None)
        other = AsyncioSelectorReactor.__new__(AsyncioSelectorReactor)
        self.assertIs(ReactorWatch.find(other, self.clock.seconds), None)


class RealReactorTests(TestCase):
    """The watch over the reactor of the tests."""

    async def test_checks(self) -> None:
        """They are called before the reactor waits."""
        from twisted.internet.task import deferLater

        watch = ReactorWatch.find(reactor, lambda: 0.0)
        assert watch is not None
        rests = Rests(watch)
        watch.begin(rests)
        self.addCleanup(watch.end, rests)
        await deferLater(reactor, 0.001, lambda: None)  # type: ignore[arg-type]
        self.assertGreater(rests.checks, 0)
        watch.end(rests)
        before = rests.checks
        await deferLater(reactor, 0.001, lambda: None)  # type: ignore[arg-type]
        self.assertEqual(rests.checks, before)
