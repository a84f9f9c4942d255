"""A flow control that raises errors."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.net.isolated_flow_control import IsolatedFlowControl
from twistmq.protocol.frame import JSON

FRAMES = [(JSON, b"a", b""), (JSON, b"b", b"")]


class Broken:
    """Raises an error in every method."""

    rejects = True

    def __getattr__(self, name: str) -> Any:
        def raises(*arguments: object) -> None:
            raise ZeroDivisionError(name)

        return raises


class Strict:
    """Refuses the second request."""

    rejects = False

    def _sort(self, frames: Any, *arguments: object) -> Any:
        return frames[:1], [b"no"]

    arrived = due = reject = _sort


class IsolatedFlowControlTests(SynchronousTestCase):
    """The calls of the connections."""

    def test_passed_on(self) -> None:
        """The answers of a working flow control are used."""
        control = IsolatedFlowControl(Strict())  # type: ignore[arg-type]
        self.assertFalse(control.rejects)
        for answer in (control.arrived(FRAMES, 0, None), control.due(FRAMES, 0, None),  # type: ignore[arg-type]
                       control.reject(FRAMES)):
            self.assertEqual(answer, (FRAMES[:1], [b"no"]))

    def test_an_exception_lets_all_pass_and_is_logged_at_a_rate(self) -> None:
        """An error lets all requests pass; the log has a limited number of lines."""
        control = IsolatedFlowControl(Broken())  # type: ignore[arg-type]
        self.assertTrue(control.rejects)
        for _ in range(25):
            control.begin_round(None)  # type: ignore[arg-type]
            for answer in (control.arrived(FRAMES, 0, None), control.due(FRAMES, 0, None),  # type: ignore[arg-type]
                           control.reject(FRAMES)):
                self.assertEqual(answer, (FRAMES, ()))
        self.assertEqual(control.fault_count, 100)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 7)
