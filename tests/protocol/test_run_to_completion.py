"""Work that could pause, run without pauses."""

from __future__ import annotations

from collections.abc import Generator

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.run_to_completion import run_to_completion


class PausesTests(SynchronousTestCase):
    """The result of the work."""

    def test_all_steps_run_and_the_result_is_returned(self) -> None:
        """All steps run, and the result of the work is returned."""
        steps: list[int] = []

        def working() -> Generator[None, None, str]:
            for number in range(3):
                steps.append(number)
                yield
            return "done"

        self.assertEqual((run_to_completion(working()), steps), ("done", [0, 1, 2]))

    def test_an_exception_of_the_work_is_raised(self) -> None:
        """An error of the work is raised."""
        def working() -> Generator[None, None, None]:
            yield
            raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, run_to_completion, working())
