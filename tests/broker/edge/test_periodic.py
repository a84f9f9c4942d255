"""Periodic tasks on a clock."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge.periodic import PeriodicService
from twistmq.broker.net.factory import StallWatch
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.protocol.errors import StoreDamaged


class PeriodicTests(SynchronousTestCase):
    """Tasks that run repeatedly."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.stalls = StallWatch()
        self.runs: list[int] = []

    def start(
        self, run: Callable[[int], Deferred[None] | None], first_ms: int = 1000,
        period_ms: int | Callable[[], int] = 500,
    ) -> PeriodicService:
        """Start one task."""
        task = PeriodicTask("task", first_ms, period_ms, run)
        service = PeriodicService(self.clock, self.now_ms, self.clock.seconds, [task], self.stalls)
        service.startService()
        return service

    def now_ms(self) -> int:
        return round(self.clock.seconds() * 1000)

    def run_until(self, end_ms: int) -> None:
        while self.now_ms() < end_ms:
            self.clock.advance(0.1)
            self.clock.rightNow = round(self.clock.rightNow, 1)

    def test_first_and_period(self) -> None:
        """The first run follows its own delay, the others the period."""
        self.start(self.runs.append)
        self.run_until(2200)
        self.assertEqual(self.runs, [1000, 1500, 2000])

    def test_period_that_changes(self) -> None:
        """A period that is a function is called before each wait."""
        periods = iter([300, 800, 10_000])
        self.start(self.runs.append, period_ms=lambda: next(periods))
        self.run_until(3000)
        self.assertEqual(self.runs, [1000, 1300, 2100])

    def test_tasks_run_together(self) -> None:
        """Tasks of several services run at the same times, and a short period is kept."""
        self.clock.advance(0.013)
        times: list[int] = []
        for first_ms, period_ms in ((50, 50), (97, 50), (120, 100), (7, 10_000)):
            self.start(lambda _: times.append(self.now_ms()), first_ms, period_ms)
        for _ in range(290):
            self.clock.advance(0.001)
        self.assertEqual(times[0], 20)
        self.assertEqual({time % 50 for time in times[1:]}, {0})
        self.assertEqual(times.count(200), 3)

    def test_store_that_cannot_be_read(self) -> None:
        """One line without a traceback is logged, until a run succeeds."""
        events: list[LogEvent] = []
        self.patch(PeriodicService, "log", Logger(observer=events.append))

        def read(now_ms: int) -> None:
            self.runs.append(now_ms)
            if len(self.runs) != 4:
                raise StoreDamaged("the file is gone")

        self.start(read)
        self.run_until(2300)
        self.assertEqual((len(self.runs), len(events)), (3, 1))
        self.assertNotIn("log_failure", events[0])
        self.assertIn("the file is gone", formatEvent(events[0]))
        self.run_until(4300)
        self.assertEqual((len(self.runs), len(events)), (7, 2))

    def test_one_that_raises_runs_again(self) -> None:
        """An error is logged, and the task runs in the next period."""
        def broken(now_ms: int) -> None:
            self.runs.append(now_ms)
            raise ZeroDivisionError("broken")

        self.start(broken)
        self.run_until(2200)
        self.assertEqual(self.runs, [1000, 1500, 2000])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 3)

    def test_one_that_waits(self) -> None:
        """While its Deferred waits the task is not run again; its failure ends nothing."""
        waiting: list[Deferred[None]] = []

        def run(now_ms: int) -> Deferred[None]:
            self.runs.append(now_ms)
            waiting.append(Deferred())
            return waiting[-1]

        self.start(run)
        self.run_until(2200)
        self.assertEqual(self.runs, [1000])
        waiting[0].errback(ZeroDivisionError("broken"))
        self.run_until(3000)
        self.assertEqual(self.runs, [1000, 2700])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_coroutine_and_other_answers(self) -> None:
        """A coroutine is awaited; other results end the run immediately."""
        waiting: Deferred[None] = Deferred()

        async def coroutine(now_ms: int) -> None:
            self.runs.append(now_ms)
            await waiting

        self.start(coroutine)  # type: ignore[arg-type]
        self.start(lambda now_ms: self.runs.append(-now_ms) or 7)  # type: ignore[func-returns-value]
        self.run_until(2000)
        self.assertEqual(self.runs, [1000, -1000, -1500, -2000])
        waiting.callback(None)
        self.run_until(2500)
        self.assertEqual(sorted(self.runs[4:]), [-2500, 2500])

    def test_period_that_raises(self) -> None:
        """A period that raises an error is logged, and the task runs again a minute later."""
        def period() -> int:
            raise ZeroDivisionError("broken")

        self.start(self.runs.append, period_ms=period)
        self.run_until(62_000)
        self.assertEqual(self.runs, [1000, 61_000])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_no_task_runs_after_the_stop(self) -> None:
        """After the stop no task runs, even if a Deferred fires then."""
        waiting: Deferred[None] = Deferred()
        service = self.start(lambda now_ms: waiting)
        other = self.start(self.runs.append)
        self.run_until(1200)
        other.stopService()
        service.stopService()
        waiting.callback(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.run_until(3000)
        self.assertEqual(self.runs, [1000])

    def test_a_task_that_holds_the_reactor_is_seen(self) -> None:
        """A task that blocks the reactor is logged."""
        self.start(lambda now_ms: self.clock.advance(0.05))
        self.clock.advance(1)
        self.assertEqual(self.stalls.count, 1)
