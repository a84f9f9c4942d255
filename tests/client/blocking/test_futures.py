"""The futures of sends behave like futures of the standard library."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, InvalidStateError, as_completed, wait

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.blocking.futures import (
    Outcomes,
    RunningFuture,
    SharedFuture,
    finish,
    running_future,
)


class FutureTests(SynchronousTestCase):
    """The future in one thread and in two."""

    def test_a_result_is_there_at_once(self) -> None:
        """The future has not created a lock."""
        future: RunningFuture[int] = RunningFuture()
        self.assertFalse(future.done())
        finish(future, 5)
        self.assertTrue(future.done())
        self.assertEqual(future.result(), 5)
        self.assertIsNone(future.exception())
        self.assertNotIn("_condition", vars(future))

    def test_it_cannot_be_cancelled(self) -> None:
        """The message is in flight."""
        future = running_future()
        self.assertTrue(future.running())
        self.assertFalse(future.cancel())
        finish(future, 5)
        self.assertFalse(future.running())
        self.assertFalse(future.cancelled())

    def test_an_error_is_raised(self) -> None:
        """``result`` raises it; ``exception`` returns it."""
        future = running_future()
        finish(future, ValueError("no"))
        self.assertIsInstance(future.exception(), ValueError)
        self.assertRaises(ValueError, future.result)
        self.assertRaises(InvalidStateError, future.set_exception, ValueError("again"))

    def test_a_result_that_does_not_come_in_time_is_an_error(self) -> None:
        """The result may arrive later."""
        future = running_future()
        self.assertRaises(TimeoutError, future.result, 0.001)
        self.assertRaises(TimeoutError, future.exception, 0.001)
        finish(future, 1)
        self.assertEqual(future.result(0), 1)

    def test_a_thread_waits_for_the_result(self) -> None:
        """The thread is woken by the result."""
        future = running_future()
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(future.result(30)))
        thread.start()
        finish(future, "there")
        thread.join(30)
        self.assertEqual(found, ["there"])

    def test_callbacks_are_called_once(self) -> None:
        """They may be added before or after the result."""
        future = running_future()
        called: list[object] = []
        future.add_done_callback(called.append)
        finish(future, 1)
        future.add_done_callback(called.append)
        self.assertEqual(called, [future, future])

    def test_functions_of_the_standard_library_wait_for_it(self) -> None:
        """``wait``, ``as_completed`` and ``asyncio.wrap_future`` work with such a future."""
        futures = [running_future() for _ in range(3)]
        finish(futures[0], 0)
        done, waiting = wait(futures, 30, FIRST_COMPLETED)
        self.assertEqual((done, waiting), ({futures[0]}, set(futures[1:])))
        timer = threading.Thread(target=lambda: [finish(each, 1) for each in futures[1:]])
        timer.start()
        self.assertEqual(set(as_completed(futures, 30)), set(futures))
        timer.join(30)

        async def ask() -> object:
            future = running_future()
            wrapped = asyncio.wrap_future(future)
            finish(future, 7)
            return await wrapped

        self.assertEqual(asyncio.run(ask()), 7)

    def test_no_result_is_lost_between_threads(self) -> None:
        """A thread waits for each of many futures while it ends."""
        for number in range(300):
            future = running_future()
            thread = threading.Thread(target=finish, args=(future, number))
            thread.start()
            self.assertEqual(future.result(30), number)
            thread.join(30)


class SharedTests(SynchronousTestCase):
    """The futures of one batch."""

    def setUp(self) -> None:
        """Create three futures, and count how often their results are made."""
        self.outcomes: Outcomes[str] = Outcomes()
        self.futures = [SharedFuture(self.outcomes, index) for index in range(3)]
        self.made = 0

    def end(self, error: Exception | None = None) -> None:
        """End the batch."""
        def make() -> list[str]:
            self.made += 1
            return ["a", "b", "c"]

        self.outcomes.finish(make, error)

    def test_results_are_made_when_one_is_asked_for(self) -> None:
        """They are made once, and no future has created a lock."""
        self.assertFalse(any(each.done() for each in self.futures))
        self.end()
        self.assertTrue(all(each.done() for each in self.futures))
        self.assertEqual([each.exception() for each in self.futures], [None] * 3)
        self.assertEqual(self.made, 0)
        for _ in range(2):
            self.assertEqual([each.result() for each in self.futures], ["a", "b", "c"])
        self.assertEqual(self.made, 1)
        self.assertFalse(any("_condition" in vars(each) for each in self.futures))

    def test_an_error_is_that_of_all(self) -> None:
        """It is raised or returned, and threads that wait get it, too."""
        called: list[object] = []
        self.futures[2].add_done_callback(called.append)
        self.end(ValueError("no"))
        for each in self.futures:
            self.assertRaises(ValueError, each.result)
            self.assertIsInstance(each.exception(), ValueError)
            self.assertFalse(each.running())
        self.assertEqual((called, self.made), ([self.futures[2]], 0))

    def test_a_call_back_finds_all_of_them_done(self) -> None:
        """The others have results although they were not called back yet."""
        seen: list[str] = []

        def look(_: object) -> None:
            self.assertEqual(len(wait(self.futures, 0).done), 3)
            seen.extend(other.result(0) for other in self.futures)

        for each in self.futures:
            each.add_done_callback(look)
        self.end()
        self.assertEqual(seen, ["a", "b", "c"] * 3)
        self.futures[0].add_done_callback(lambda future: seen.append(future.result(0)))
        self.assertEqual(seen[9:], ["a"])

    def test_they_time_out_run_and_cannot_be_cancelled(self) -> None:
        """They behave as single futures do."""
        first = self.futures[0]
        self.assertTrue(first.running())
        self.assertFalse(first.cancel())
        self.assertRaises(TimeoutError, first.result, 0.001)
        self.assertRaises(TimeoutError, first.exception, 0.001)
        self.assertIn("running", repr(first))
        self.end()
        self.assertEqual(first.result(0), "a")
        self.assertIn("finished", repr(self.futures[1]))

    def test_threads_that_wait_are_woken(self) -> None:
        """One thread waits in ``result``, and one in ``wait``."""
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda: found.append(self.futures[0].result(10))),
            threading.Thread(target=lambda: found.append(len(wait(self.futures[1:], 10).done)))]
        for thread in threads:
            thread.start()
        while len(self.outcomes.watched) < 3 or not self.futures[2]._waiters:
            threads[0].join(0.001)
        self.end()
        for thread in threads:
            thread.join(30)
        self.assertCountEqual(found, ["a", 2])

    def test_functions_of_the_standard_library_wait_for_them(self) -> None:
        """``wait``, ``as_completed`` and asyncio, and with one that failed."""
        failed: Outcomes[str] = Outcomes()
        other = SharedFuture(failed, 0)
        failed.finish(tuple, ValueError("no"))
        done, waiting = wait([*self.futures, other], 0)
        self.assertEqual((done, waiting), ({other}, set(self.futures)))
        timer = threading.Thread(target=self.end)
        timer.start()
        self.assertEqual(set(as_completed(self.futures, 30)), set(self.futures))
        timer.join(30)
        self.assertEqual(wait([*self.futures, other], 0).not_done, set())

        async def ask() -> list[str]:
            outcomes: Outcomes[str] = Outcomes()
            pair = [asyncio.wrap_future(SharedFuture(outcomes, index)) for index in range(2)]
            outcomes.finish(lambda: ["x", "y"])
            return [await each for each in pair]

        self.assertEqual(asyncio.run(ask()), ["x", "y"])

    def test_no_result_is_lost_between_threads(self) -> None:
        """A thread waits for each of many futures while its batch ends."""
        for number in range(300):
            outcomes: Outcomes[int] = Outcomes()
            future = SharedFuture(outcomes, 0)
            thread = threading.Thread(
                target=outcomes.finish, args=(lambda number=number: [number],))
            thread.start()
            self.assertEqual(future.result(30), number)
            thread.join(30)
