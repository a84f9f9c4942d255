"""Futures of sends: as those of the standard library, which its functions take."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, InvalidStateError, as_completed, wait

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.futures import RunningFuture, finish, running_future


class FutureTests(SynchronousTestCase):
    """In one thread and in two."""

    def test_a_result_is_there_at_once(self) -> None:
        """And the future has made no lock for it."""
        future: RunningFuture[int] = RunningFuture()
        self.assertFalse(future.done())
        finish(future, 5)
        self.assertTrue(future.done())
        self.assertEqual(future.result(), 5)
        self.assertIsNone(future.exception())
        self.assertNotIn("_condition", vars(future))

    def test_it_cannot_be_cancelled(self) -> None:
        """It is under way."""
        future = running_future()
        self.assertTrue(future.running())
        self.assertFalse(future.cancel())
        finish(future, 5)
        self.assertFalse(future.running())
        self.assertFalse(future.cancelled())

    def test_an_error_is_raised(self) -> None:
        """By ``result``; ``exception`` returns it."""
        future = running_future()
        finish(future, ValueError("no"))
        self.assertIsInstance(future.exception(), ValueError)
        self.assertRaises(ValueError, future.result)
        self.assertRaises(InvalidStateError, future.set_exception, ValueError("again"))

    def test_a_result_that_does_not_come_in_time_is_an_error(self) -> None:
        """It may come later."""
        future = running_future()
        self.assertRaises(TimeoutError, future.result, 0.001)
        self.assertRaises(TimeoutError, future.exception, 0.001)
        finish(future, 1)
        self.assertEqual(future.result(0), 1)

    def test_a_thread_waits_for_the_result(self) -> None:
        """It is woken when the result comes."""
        future = running_future()
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(future.result(30)))
        thread.start()
        finish(future, "there")
        thread.join(30)
        self.assertEqual(found, ["there"])

    def test_callbacks_are_called_once(self) -> None:
        """Those from before the result, and those from after it."""
        future = running_future()
        called: list[object] = []
        future.add_done_callback(called.append)
        finish(future, 1)
        future.add_done_callback(called.append)
        self.assertEqual(called, [future, future])

    def test_functions_of_the_standard_library_wait_for_it(self) -> None:
        """``wait``, ``as_completed`` and asyncio."""
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
        """Each of many futures is waited for while it ends."""
        for number in range(300):
            future = running_future()
            thread = threading.Thread(target=finish, args=(future, number))
            thread.start()
            self.assertEqual(future.result(30), number)
            thread.join(30)
