"""A reactor on a virtual clock that waits as Twisted's reactors do."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock

__all__ = ["WaitingClock"]


class WaitingClock(Clock):
    """A clock that works like a reactor: it runs the calls that are due, and waits for the next."""

    running = True

    def __init__(self) -> None:
        super().__init__()
        #: The number of waits that ended.
        self.waits = 0
        #: The time at which a wait ends at the latest.
        self.end_seconds = 0.0

    def timeout(self) -> float | None:
        """Return the time until the next call, seconds; None without calls."""
        times = [call.getTime() for call in self.getDelayedCalls()]
        return max(min(times) - self.seconds(), 0.0) if times else None

    def doIteration(self, delay: float | None) -> None:
        """Let the time of the wait pass, or the rest of :meth:`run_for`."""
        self.waits += 1
        rest = max(self.end_seconds - self.seconds(), 0.0)
        self.rightNow += rest if delay is None else min(delay, rest)

    def run_for(self, seconds: float) -> None:
        """Run the loop for some time."""
        self.end_seconds = self.seconds() + seconds
        while self.seconds() < self.end_seconds - 1e-9:
            self.advance(0)
            self.doIteration(self.timeout())
        self.advance(0)

    def happen(self, work: Callable[[], object]) -> None:
        """Do work as the reactor does at an event: within the loop, before the next wait."""
        work()
        self.end_seconds = self.seconds()
        self.doIteration(0)
