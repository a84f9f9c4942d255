"""The scheduler of the client's core."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import HandClock
from twistmq.client.core.connection.tasks import Cancelled, Future, Scheduler


class SchedulerTests(SynchronousTestCase):
    """Tasks, timers and futures run by a clock that the test sets."""

    def setUp(self) -> None:
        """Create a scheduler."""
        self.clock = HandClock()
        self.tasks = Scheduler(self.clock)

    def test_a_task_ends_with_the_result_of_its_coroutine(self) -> None:
        """A task awaits a future and ends with the result of its coroutine."""
        future: Future[int] = Future()

        async def add() -> int:
            return 1 + await future

        task = self.tasks.spawn(add())
        self.tasks.run()
        self.assertFalse(task.is_done)
        future.set_result(2)
        self.tasks.run()
        self.assertEqual(task.result(), 3)
        self.assertEqual(self.tasks.tasks, set())

    def test_a_sleep_ends_at_its_time_and_not_before(self) -> None:
        """``run`` returns the time of the next timer."""
        task = self.tasks.spawn(self._sleep(50))
        self.assertEqual(self.tasks.run(), self.clock.now_ms + 50)
        self.clock.now_ms += 49
        self.tasks.run()
        self.assertFalse(task.is_done)
        self.clock.now_ms += 1
        self.assertIsNone(self.tasks.run())
        self.assertTrue(task.is_done)

    async def _sleep(self, delay_ms: float) -> None:
        await self.tasks.sleep(delay_ms)

    def test_a_cancelled_task_runs_its_finally_and_keeps_no_wait(self) -> None:
        """The wait raises an error; the awaited event may still occur."""
        future: Future[int] = Future()
        ended = []

        async def wait() -> None:
            try:
                await future
            finally:
                ended.append("finally")

        task = self.tasks.spawn(wait())
        self.tasks.run()
        task.cancel()
        self.tasks.run()
        self.assertEqual(ended, ["finally"])
        self.assertIsInstance(task.error, Cancelled)
        future.set_result(1)
        self.tasks.run()

    def test_waiting_within_a_time_raises_and_leaves_the_future(self) -> None:
        """``within`` gives up at its time; the future can still be awaited."""
        future: Future[int] = Future()

        async def wait() -> int:
            return await self.tasks.wait_for(10, future, lambda: TimeoutError("late"))

        task = self.tasks.spawn(wait())
        self.tasks.run()
        self.clock.now_ms += 10
        self.tasks.run()
        self.assertIsInstance(task.error, TimeoutError)
        self.assertFalse(future.is_done)

    def test_an_error_without_a_waiter_is_reported(self) -> None:
        """``on_failure`` gets the error of a task for which nothing waits."""
        failed = []
        self.tasks.on_failure = lambda task, error: failed.append((task.name, str(error)))

        async def fail() -> None:
            raise ValueError("no")

        self.tasks.spawn(fail(), "one")
        self.tasks.run()
        self.tasks.spawn(fail(), "two").when_done(lambda _: None)
        self.tasks.run()
        self.assertEqual(failed, [("one", "no")])

    def test_an_error_is_not_reported_while_all_of_them_are_waited_for(self) -> None:
        """This is so even if the task fails before the tasks that were started earlier."""
        failed = []
        self.tasks.on_failure = lambda task, error: failed.append(str(error))

        async def fail() -> None:
            await self.tasks.sleep(10)
            raise ValueError("no")

        waiting = self.tasks.spawn(self.tasks.all_of(
            [self.tasks.spawn(self._sleep(50)), self.tasks.spawn(fail())]))
        self.tasks.run()
        for _ in range(2):
            self.clock.now_ms += 30
            self.tasks.run()
        self.assertIsInstance(waiting.result()[1], ValueError)
        self.assertEqual(failed, [])

    def test_cancelled_timers_do_not_pile_up(self) -> None:
        """Timers that are cancelled long before their time are cleared out."""
        for _ in range(10_000):
            self.tasks.call_later(60_000, self.fail).cancel()
        self.assertLess(len(self.tasks._timers), 2_000)
        self.assertEqual(self.tasks.timer_count, 0)

    def test_all_of_has_a_result_or_an_error_of_each(self) -> None:
        """One failure does not hide the other results."""
        futures: list[Future[int]] = [Future(), Future()]
        task = self.tasks.spawn(self.tasks.all_of(futures))
        self.tasks.run()
        futures[1].set_error(ValueError("no"))
        self.tasks.run()
        self.assertFalse(task.is_done)
        futures[0].set_result(7)
        self.tasks.run()
        self.assertEqual([str(outcome) for outcome in task.result()], ["7", "no"])
