"""Iterations that are left, cancelled, closed and killed at each of their steps.

The moments are the steps of the simulator, at which something arrives or a time is over, and the
ends of the program's waits, before the program runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.event_loop.memory_shell import InContext, MemoryShell, consumer_of
from twistmq.client import Closed, Message
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.testing import MemoryCluster

#: Messages, which come in three parts.
COUNT: Final = 9
#: When all are sent, ms.
ALL_SENT_MS: Final = 3500
#: Tasks of a client that has no consumer, or lately had one.
OF_CLIENT: Final = {"heartbeats", "routes"}
#: How long a program may go on after its last message was sent, ms.
END_MS: Final = 60_000


#: A coroutine function of an iteration.
Program = Callable[["Iteration"], Coroutine[Any, Any, None]]


class Failure(Exception):
    """An error of the program."""


class Iteration:
    """A program that iterates over messages and leaves its loop after the last one.

    :param leave_after: the number of messages after which it leaves; with ``fails`` by an error.
    :param program: the method of this class that is run.
    """

    def __init__(
        self, leave_after: int = COUNT, *, fails: bool = False, program: Program | None = None,
        brokers: int = 1,
    ) -> None:
        self.cluster = MemoryCluster(brokers=brokers)
        self.cluster.create_topic("T", 2)
        producer = self.cluster.producer()
        for part in range(3):
            self.cluster.call_later(1500 + 700 * part, self._send, producer.sender, part)
        client = self.client = self.cluster.client()
        self.shell = MemoryShell(client)
        self.consumer = consumer_of(self.shell, start="first")
        self.leave_after, self.fails = leave_after, fails
        self.begun: list[int] = []
        #: Those whose turn of the loop ended.
        self.finished: list[int] = []
        self.task: Task[None] = client.engine.tasks.spawn(
            InContext((program or Iteration.program)(self)))
        self.steps = 0

    @staticmethod
    def _send(sender: Any, part: int) -> None:
        for number in range(3 * part, 3 * part + 3):
            sender.begin(sender.prepare(Message("T", b"%d" % number)), lambda _: None)

    async def program(self) -> None:
        """The program, which closes its consumer."""
        async with self.consumer:
            await self.iterate()

    async def iterate(self) -> None:
        """The loop of the program."""
        async for message in self.consumer:
            self.begun.append(int(message.body))
            await self.shell.sleep(40)
            if len(self.begun) == self.leave_after:
                if self.fails:
                    raise Failure
                break
            self.finished.append(int(message.body))

    async def program_after(self, first: Task[None]) -> None:
        """The program once more, with the same consumer, after the first was cancelled."""
        await self.client.engine.tasks.all_of([first])
        self.begun = list(self.finished)
        await self.program()

    def step(self) -> None:
        """Run until the next event."""
        self.steps += 1
        self.cluster._step(self.cluster.now_ms + END_MS)

    def run(self, steps: int | None = None) -> bool:
        """Run some steps, or to the end; :returns: whether the program ended."""
        end_ms = self.cluster.now_ms + END_MS
        while not self.task.is_done and (steps is None or steps > 0):
            if self.cluster.now_ms > end_ms:
                raise AssertionError("the program hangs")
            self.step()
            steps = steps if steps is None else steps - 1
        return self.task.is_done


class IterationTests(SynchronousTestCase):
    """One program is run many times."""

    def check_end(self, one: Iteration, error: type[BaseException] | None, *,
                  commits: bool = True) -> None:
        """Check that the program ended, nothing remains, and another member gets the rest.

        :param commits: whether the finished messages may not come again.
        """
        one.run()
        self.assertIsInstance(one.task.error, error or type(None))
        # A close that was cancelled goes on by itself.
        tasks = one.client.engine.tasks.tasks
        one.cluster.wait_for(lambda: {task.name for task in tasks} <= OF_CLIENT)
        self.assertEqual(one.client.core.members, [])
        one.client.close()
        counts = one.client.engine.debug_counts()
        self.assertEqual((counts["tasks"], counts["connections"], counts["waiting"]), (0, 0, 0))
        self.assertEqual(one.client.pipes, {})
        one.cluster.advance(max(ALL_SENT_MS - one.cluster.now_ms, 0))
        expected = set(range(COUNT))
        rest: list[int] = []
        other = one.cluster.member("g", "T", start="first")
        while messages := other.take(wait_ms=1000):
            rest += [int(message.body) for message in messages]
        self.assertEqual(set(rest) | set(one.finished), expected)
        if commits:
            self.assertEqual(sorted(rest), sorted(expected - set(one.finished)))

    def moments(
        self, act: Callable[[Iteration], object], program: Program = Iteration.program,
        brokers: int = 1,
    ) -> list[Iteration]:
        """Do something at each moment of a program, each time to a new one."""
        whole = Iteration(program=program, brokers=brokers)
        whole.run()
        self.assertEqual(sorted(whole.begun), list(range(COUNT)))
        self.assertGreater(min(whole.steps, whole.shell.ends), 15)
        found = []
        for number in range(whole.steps):
            one = Iteration(program=program, brokers=brokers)
            if one.run(number):
                break
            act(one)
            found.append(one)
        for number in range(1, whole.shell.ends + 1):
            one = Iteration(program=program, brokers=brokers)
            one.shell.on_end = lambda end, number=number, one=one: (  # type: ignore[misc]
                act(one) if end == number else None)
            while one.shell.ends < number and not one.run(1):
                pass
            found.append(one)
        return found

    def test_a_loop_that_is_left_leaves_nothing(self) -> None:
        """It is left by ``break`` or an error at each message, which is delivered again."""
        for fails in (False, True):
            for count in range(1, COUNT + 1):
                one = Iteration(count, fails=fails)
                self.check_end(one, Failure if fails else None)
                self.assertEqual(len(one.finished), count - 1)

    def test_a_cancelled_program_leaves_nothing(self) -> None:
        """It is cancelled at each step, including the close, which then continues by itself."""
        ended = 0
        for one in self.moments(lambda one: one.task.cancel()):
            one.run()
            ended += one.task.error is None
            self.check_end(one, Cancelled if one.task.error is not None else None)
        # A wait that ended with the program cannot be cancelled.
        self.assertLessEqual(ended, 1)

    def test_a_cancelled_iteration_leaves_the_consumer_usable(self) -> None:
        """The next iteration gets the unfinished messages of the first."""
        def again(one: Iteration) -> None:
            first = one.task
            one.task = one.client.engine.tasks.spawn(InContext(one.program_after(first)))
            first.cancel()

        for one in self.moments(again, Iteration.iterate):
            self.check_end(one, None)

    def test_a_close_ends_the_iteration(self) -> None:
        """Another coroutine closes the consumer, at each moment."""
        def close(one: Iteration) -> None:
            async def run() -> None:
                await one.consumer.close()

            one.client.engine.tasks.spawn(InContext(run()), "closing")

        for one in self.moments(close):
            one.run()
            self.check_end(one, Closed if one.task.error is not None else None)

    def test_a_lost_broker_neither_ends_the_iteration_nor_stops_it(self) -> None:
        """The connection to one of two brokers is cut at each moment."""
        for one in self.moments(lambda one: one.client.cut("10.0.0.1:10911"), brokers=2):
            one.run()
            self.assertEqual(set(one.begun), set(range(COUNT)))
            self.check_end(one, None, commits=False)
