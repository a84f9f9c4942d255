"""Periodic tasks on a clock."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.edge.waiting_clock import WaitingClock
from twistmq.broker.edge.periodic import PeriodicService
from twistmq.broker.edge.reactor_watch import ROUNDS_MAX
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


class RestTests(SynchronousTestCase):
    """Tasks of an idle process."""

    def setUp(self) -> None:
        self.clock = WaitingClock()
        self.clock.advance(0.013)
        self.runs: list[int] = []
        #: The time for which the task has nothing to do from now on, ms; None: for any time.
        self.rest_ms: int | None = None
        self.asked = 0

    def now_ms(self) -> int:
        return round(self.clock.seconds() * 1000)

    def start(
        self, period_ms: int | Callable[[], int] = 50,
        run: Callable[[int], Deferred[None] | None] | None = None,
    ) -> PeriodicService:
        """Start one task that may rest; it begins after 50 ms."""
        def rest_ms() -> int | None:
            self.asked += 1
            return self.rest_ms

        task = PeriodicTask("task", 50, period_ms, run or self.runs.append, rest_ms)
        service = PeriodicService(self.clock, self.now_ms, self.clock.seconds, [task],
                                  StallWatch())
        service.startService()
        return service

    def set_rest(self, rest_ms: int | None) -> None:
        self.rest_ms = rest_ms

    def test_a_task_without_work_rests(self) -> None:
        """It still runs each second, and the process wakes up for nothing else."""
        service = self.start()
        self.clock.run_for(10)
        self.assertEqual(self.runs, [50, *range(1000, 10_001, 1000)])
        self.assertLess(self.clock.waits, 15)
        service.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertNotIn("doIteration", vars(self.clock))

    def test_work_comes(self) -> None:
        """It waits no longer than without a rest, and the task then runs each period."""
        self.start()
        self.clock.run_for(2.3)
        self.clock.happen(lambda: self.set_rest(0))
        came_ms = self.now_ms()
        self.runs.clear()
        self.clock.run_for(1)
        self.assertLessEqual(self.runs[0], came_ms + 50)
        self.assertGreaterEqual(len(self.runs), 19)
        self.runs.clear()
        self.rest_ms = None
        self.clock.run_for(3)
        self.assertLessEqual(len(self.runs), 5)

    def test_work_of_a_timer(self) -> None:
        """Work that another timer makes is noticed as well."""
        self.start()
        self.clock.callLater(2.6, self.set_rest, 0)
        self.clock.run_for(2.9)
        self.assertLessEqual(next(time for time in self.runs if time >= 2613), 2663)

    def test_the_period_of_hasty_work(self) -> None:
        """The period is computed when the work comes."""
        self.start(lambda: 50 if self.rest_ms is None else 8)
        self.clock.run_for(2.3)
        self.clock.happen(lambda: self.set_rest(0))
        came_ms = self.now_ms()
        self.clock.run_for(0.1)
        self.assertLessEqual(next(time for time in self.runs if time >= came_ms), came_ms + 8)

    def test_work_at_a_time(self) -> None:
        """A rest of a known length ends in time, never earlier and not a period later."""
        due_ms = 720

        def rest_ms() -> int:
            return max(due_ms - self.now_ms(), 0)

        runs: list[int] = []
        tasks = [PeriodicTask("steady", 50, 50, lambda _: runs.append(self.now_ms()), rest_ms),
                 PeriodicTask("exact", 50, lambda: 50, self.runs.append, rest_ms)]
        service = PeriodicService(self.clock, self.now_ms, self.clock.seconds, tasks, StallWatch())
        service.startService()
        self.addCleanup(service.stopService)
        self.clock.run_for(0.72)
        self.assertEqual([len(runs), len(self.runs)], [1, 2])
        self.assertEqual(self.runs[1], due_ms + 1)
        self.clock.run_for(0.05)
        self.assertEqual(runs[1], 750)

    def test_a_rest_becomes_shorter(self) -> None:
        """An event that brings the end of a rest forward, such as another deadline, counts."""
        self.start(lambda: 50)
        self.clock.run_for(2.1)
        self.clock.happen(lambda: self.set_rest(200))
        came_ms = self.now_ms()
        self.rest_ms = None
        self.runs.clear()
        self.clock.run_for(0.5)
        self.assertEqual(self.runs, [came_ms + 201])

    def test_a_busy_reactor(self) -> None:
        """Its tasks do not rest, so its waits cost nothing more."""
        self.start()
        self.clock.run_for(2)
        self.asked = 0
        self.runs.clear()
        for _ in range(500):
            self.clock.happen(lambda: None)
            self.clock.run_for(0.002)
        self.assertLessEqual(self.asked, 2 * ROUNDS_MAX + 2)
        self.assertGreaterEqual(len(self.runs), 15)
        self.clock.run_for(2)
        self.runs.clear()
        self.clock.run_for(5)
        self.assertLessEqual(len(self.runs), 6)

    def test_a_run_that_fails(self) -> None:
        """The task runs again after its period, as a task without rests does."""
        def fail(now_ms: int) -> None:
            self.runs.append(now_ms)
            raise RuntimeError("no")

        self.start(run=fail)
        self.clock.run_for(0.5)
        self.assertGreaterEqual(len(self.runs), 10)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), len(self.runs))

    def test_a_rest_that_cannot_be_computed(self) -> None:
        """The fault is logged once, and the task runs each period."""
        def rest_ms() -> int:
            raise RuntimeError("no rest")

        task = PeriodicTask("task", 50, 50, self.runs.append, rest_ms)
        service = PeriodicService(self.clock, self.now_ms, self.clock.seconds, [task],
                                  StallWatch())
        service.startService()
        self.clock.run_for(0.5)
        self.assertGreaterEqual(len(self.runs), 10)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_a_run_that_waits(self) -> None:
        """The rest begins when the Deferred has fired."""
        waiting: Deferred[None] = Deferred()

        def run(now_ms: int) -> Deferred[None]:
            self.runs.append(now_ms)
            return waiting

        self.start(run=run)
        self.clock.run_for(1.5)
        self.clock.happen(lambda: waiting.callback(None))
        self.clock.run_for(2)
        self.assertEqual(self.runs, [50, 2000, 3000])
