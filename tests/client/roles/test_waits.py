"""Methods that wait, in the form for threads, and the threads of their parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import PopConsumer, Producer, PullConsumer
from twistmq.client.roles.waits import ForThreads, waits


class Role(ForThreads):
    """A class with a method that waits twice; its core fails on request."""

    def __init__(self) -> None:
        self.steps: list[object] = []
        self.error: BaseException | None = None

    def _run(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a function of the core, which here never waits."""
        if self.error is not None:
            raise self.error
        try:
            make().send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("it waits")

    async def double(self, number: int) -> int:
        """A function of the core."""
        self.steps.append(number)
        return 2 * number

    @waits
    async def four_times(self, number: int) -> int:
        """Call the core twice."""
        try:
            twice = await self._call(self.double, number)
            return await self._call(self.double, twice)
        except BaseException as error:
            self.steps.append(type(error))
            raise
        finally:
            self.steps.append("end")

    @waits
    async def nothing(self) -> str:
        """Wait for nothing."""
        return "nothing"


class Heir(Role):
    """A subclass of a program."""


class BlockingTests(SynchronousTestCase):
    """One thread, which runs the core as well."""

    def test_the_value_of_each_step_comes_back_to_the_method(self) -> None:
        """The method continues after each function of the core, and returns its own value."""
        role = Role()
        self.assertEqual(role.four_times(3), 12)
        self.assertEqual(role.steps, [3, 6, "end"])
        self.assertEqual(role.nothing(), "nothing")

    def test_an_error_of_a_step_is_raised_at_the_wait(self) -> None:
        """An interruption is raised as well, so that the method can undo its first steps."""
        for error in (ValueError("no"), KeyboardInterrupt()):
            role = Role()
            role.error = error
            self.assertRaises(type(error), role.four_times, 1)
            self.assertEqual(role.steps, [type(error), "end"])

    def test_an_heir_has_the_same_methods(self) -> None:
        """A method is wrapped once."""
        self.assertIs(Heir.four_times, Role.four_times)
        self.assertEqual(Heir().four_times(1), 4)

    def test_no_method_of_the_style_for_threads_is_a_coroutine_function(self) -> None:
        """A call would return a coroutine that never runs."""
        for kind in (Producer, PullConsumer, PopConsumer):
            for name, function in inspect.getmembers(kind, inspect.isfunction):
                if not name.startswith("_"):
                    self.assertFalse(inspect.iscoroutinefunction(function), msg=name)
                    self.assertFalse(hasattr(function, "waits"), msg=name)
