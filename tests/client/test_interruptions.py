"""A signal interrupts the main thread at each line of a call; no thread may then wait for ever.

A trace function stands for the handler. It is called before each line of the interrupted code, also
of the standard library, and has another thread finish what that code waits for.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from functools import partial
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.blocking.futures import Outcomes, RunningFuture, SharedFuture
from twistmq.client.blocking.loop import Loop
from twistmq.client.blocking.thread_in_flight_limit import ThreadInFlightLimit
from twistmq.client.core.producer.unique_id import UniqueIds
from twistmq.client.shell.flag import Flag

#: How long anything may take that is done at once, seconds.
AT_ONCE_S = 10.0


class Interruption:
    """Calls a handler in this thread before the line of a number, from 0."""

    def __init__(self, line: int, handler: Callable[[], object]) -> None:
        self._left = line
        self._handler = handler
        self.has_come = False

    def run(self, function: Callable[[], object]) -> object:
        """Call a function that is interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return function()
        finally:
            sys.settrace(before)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and not self.has_come:
            self._left -= 1
            if self._left < 0:
                self.has_come = True
                sys.settrace(None)
                self._handler()
        return self._trace


def on_thread(function: Callable[[], object]) -> bool:
    """Call a function on another thread; :returns: whether it ended at once."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(AT_ONCE_S)
    return not thread.is_alive()


class FutureTests(SynchronousTestCase):
    """Futures that the client's thread finishes in the middle of a step of the main thread."""

    #: What a program does with a future that will have the result 7.
    USES: ClassVar[dict[str, Callable[[Any], object]]] = {
        "result": lambda future: future.result(AT_ONCE_S),
        "exception": lambda future: (future.exception(AT_ONCE_S), future.result())[1],
        "wait": lambda future: wait([future], AT_ONCE_S).done.pop().result(0),
        "first": lambda future: wait(
            [future], AT_ONCE_S, FIRST_COMPLETED).done.pop().result(0),
        "as_completed": lambda future: next(iter(as_completed([future], AT_ONCE_S))).result(0),
    }

    def pair(self, kind: str) -> tuple[Any, Callable[[], None]]:
        """Return a future, and the function that gives it the result 7."""
        if kind == "shared":
            outcomes: Outcomes[int] = Outcomes()
            return SharedFuture(outcomes, 0), lambda: outcomes.finish(lambda: [7])
        future: RunningFuture[int] = RunningFuture()
        return future, lambda: future.set_result(7)

    def interrupt_each_line(
        self, use: Callable[[Any], object], kind: str, handler: Callable[[Any], object]
    ) -> int:
        """Interrupt each line of a use, and finish the future there.

        :param handler: is called with the future once it is finished.
        :returns: the number of lines.
        """
        line = 0
        while True:
            future, end = self.pair(kind)
            ended: list[bool] = []

            def interrupted(future: Any = future, end: Any = end, ended: Any = ended) -> None:
                ended.append(on_thread(end))
                handler(future)

            interruption = Interruption(line, interrupted)
            # Without an interruption something else finishes it.
            timer = threading.Timer(0.05, lambda i=interruption, end=end: i.has_come or end())
            timer.start()
            self.assertEqual(interruption.run(partial(use, future)), 7, msg=f"line {line}")
            timer.cancel()
            timer.join()
            if not interruption.has_come:
                return line
            self.assertEqual(ended, [True], msg=f"line {line}")
            line += 1

    def test_each_line_of_a_wait(self) -> None:
        """The thread that finishes the future continues, and the wait ends with the result."""
        for kind, names in (("alone", self.USES), ("shared", ("result", "as_completed"))):
            for name in names:
                lines = self.interrupt_each_line(self.USES[name], kind, lambda future: None)
                self.assertGreater(lines, 3, msg=name)

    def test_a_handler_that_waits_for_the_same_future(self) -> None:
        """It gets the result, and so does the interrupted code."""
        for name, kind in (("result", "alone"), ("wait", "shared")):
            self.interrupt_each_line(
                self.USES[name], kind,
                lambda future: self.assertEqual(future.result(AT_ONCE_S), 7))

    def test_each_line_of_a_call_back(self) -> None:
        """It is called once, wherever the future is finished."""
        for kind in ("alone", "shared"):
            called: list[int] = []

            def use(future: Any, called: list[int] = called) -> object:
                called.clear()
                future.add_done_callback(lambda done: called.append(done.result(0)))
                value = future.result(AT_ONCE_S)
                self.assertEqual(called, [7])
                return value

            self.assertGreater(self.interrupt_each_line(use, kind, lambda future: None), 5)


class RoomTests(SynchronousTestCase):
    """The room of a producer, which a signal handler uses in the middle of a send."""

    def test_each_line_of_a_send(self) -> None:
        """A message that ended while the thread was stuck is counted exactly once."""
        for line in range(1000):
            room = ThreadInFlightLimit(10, 1 << 20)
            for _ in range(3):
                room.take(1)
            with room.lock:
                self.assertTrue(on_thread(lambda room=room: [room.give(1) for _ in range(3)]))
            interruption = Interruption(line, lambda room=room: room.take(1))
            interruption.run(lambda room=room: room.take(1))
            if not interruption.has_come:
                break
            self.assertEqual(room.count, 2, msg=f"line {line}")
        self.assertGreater(line, 5)


class LoopTests(SynchronousTestCase):
    """The client's thread, which a handler waits for."""

    def test_each_line_of_a_call(self) -> None:
        """A handler that posts a function and waits for it is served at once.

        The thread has no timer: a post that does not wake it would be served never.
        """
        loop = Loop()
        uses: list[Callable[[], object]] = [
            lambda: loop.post(int), lambda: loop.call_in_loop(lambda: 7)]
        for use in uses:
            line = 0
            while True:
                served: list[bool] = []

                def handler(served: list[bool] = served) -> None:
                    done = Flag()
                    loop.post(done.set)
                    served.append(done.wait(AT_ONCE_S))

                interruption = Interruption(line, handler)
                # It is asleep, unless something is posted.
                loop.call_in_loop(int)
                interruption.run(use)
                if not interruption.has_come:
                    break
                self.assertEqual(served, [True], msg=f"line {line}")
                line += 1
            self.assertGreater(line, 3)

    def test_posts_of_other_threads_wake_the_thread_once(self) -> None:
        """A thread that posts while another one wakes the client's thread leaves that to it."""
        loop = Loop()
        held, counted = threading.Event(), []
        is_held = threading.Event()
        loop.post(lambda: (is_held.set(), held.wait(AT_ONCE_S)))
        self.assertTrue(is_held.wait(AT_ONCE_S))
        loop._is_awake = False  # as after a turn
        out = loop._wake_out

        class Out:
            """A socket; another thread runs while it writes."""

            def send(self, data: bytes) -> int:
                counted.append(threading.get_ident())
                if len(counted) < 5:
                    on_thread(partial(loop.post, counted.copy))
                return out.send(data)

        loop._wake_out = Out()  # type: ignore[assignment]
        try:
            self.assertTrue(on_thread(partial(loop.post, counted.copy)))
            self.assertEqual(len(counted), 1)
            # A handler may have interrupted the main thread here, and wait for the other thread.
            loop._is_awake = False
            loop.post(counted.copy)
            self.assertEqual(len(counted), 5)
        finally:
            loop._wake_out = out
            held.set()

    def test_each_line_of_a_flag(self) -> None:
        """A handler sets the flag that the code waits for."""
        line = 0
        while True:
            flag = Flag()
            interruption = Interruption(line, flag.set)
            timer = threading.Timer(
                0.05, lambda i=interruption, flag=flag: i.has_come or flag.set())
            timer.start()
            self.assertTrue(interruption.run(lambda flag=flag: flag.wait(AT_ONCE_S)))
            timer.cancel()
            timer.join()
            if not interruption.has_come:
                break
            line += 1
        self.assertGreater(line, 5)

    def test_a_flag_that_is_not_set_in_time(self) -> None:
        """It may be set later; nothing of the wait remains."""
        flag = Flag()
        self.assertFalse(flag.wait(0.001))
        self.assertFalse(flag.wait(-1))
        self.assertEqual(flag._sleepers, [])
        flag.set()
        flag.set()
        self.assertTrue(flag.is_set() and flag.wait() and flag.wait(0))

    def test_each_line_of_an_id(self) -> None:
        """The client's thread makes ids of batches, each of them once."""
        line, made = 0, set()
        while True:
            ids = UniqueIds(bytes(4))
            found: list[str] = []
            interruption = Interruption(line, lambda ids=ids, found=found: on_thread(
                lambda: found.append(ids.make(1_700_000_000_000))))
            found.append(str(interruption.run(lambda ids=ids: ids.make(1_700_000_000_000))))
            if not interruption.has_come:
                break
            self.assertEqual(len(found), 2, msg=f"line {line}")
            self.assertFalse(made & set(found) or found[0] == found[1])
            made |= set(found)
            line += 1
        self.assertGreater(line, 10)
