"""A program that is the command line of twistmq and writes down the long turns of its reactor.

    python reactor_turns.py FILE MS WORDS...

A turn is the time between two waits of the reactor for events. The reactor serves no client until
the turn ends. Each turn that is longer than MS adds a line to FILE with seven values: the time at
which the turn ended (Unix s), its length and the processor time of the reactor's thread (ms), how
often the thread waited, for example for a disk, how often it lost its core to another thread, the
time of garbage collections in it (ms), and what the turn ran: the innermost functions at one moment
and more in the second half of MS and after it, with commas between the moments. Functions that are
compiled are not named.
This module imports nothing from the tests, so it runs with the Python of any installation.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

#: The first look at a turn, as a part of the limit, and the time between further looks, s.
_FIRST_LOOK: Final = 0.6
_LOOK_SECONDS: Final = 0.002
#: The functions that are named at one moment, and the moments of one turn.
_DEPTH: Final = 6
_LOOKS_MAX: Final = 8


class TurnLooks:
    """Records which functions the main thread runs while a turn is long.

    A timer's signal interrupts the turn, so a thread that waits for its core is not needed.

    :param limit: from which time on a turn is long, s.
    :param timer: the timer, and its signal.
    """

    def __init__(
        self, limit: float, timer: tuple[int, int] = (signal.ITIMER_REAL, signal.SIGALRM)
    ) -> None:
        self._limit = limit
        self._timer = timer[0]
        #: What was seen of the present turn, or of the last one.
        self.seen: list[str] = []
        signal.signal(timer[1], self._look)

    def begin(self) -> None:
        """Note that a turn begins."""
        self.seen.clear()
        signal.setitimer(self._timer, self._limit * _FIRST_LOOK, _LOOK_SECONDS)

    def end(self) -> str:
        """Note that the turn ends; :returns: what was seen, without a space."""
        signal.setitimer(self._timer, 0)
        return ",".join(self.seen) or "-"

    def _look(self, _: int, frame: FrameType | None) -> None:
        if len(self.seen) < _LOOKS_MAX:
            self.seen.append("<".join(_names(frame)))


def _names(frame: FrameType | None) -> list[str]:
    """Return the innermost functions, such as ``ledger.read``."""
    names: list[str] = []
    while frame is not None and len(names) < _DEPTH:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return names


class TimedCollections:
    """Measures the garbage collections in one thread, in the seconds of ``time.perf_counter``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0
        self._thread = threading.get_ident()
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._begin = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._begin


class TimedPoller:
    """A poller of the reactor that measures the time between its polls."""

    def __init__(self, inner: Any, out: IO[str], limit_ms: float) -> None:
        self._inner, self._out, self._limit = inner, out, limit_ms / 1000
        self._begin = 0.0
        self._cpu = 0.0
        self._switches = 0, 0
        self._collections = TimedCollections()
        self._looks = TurnLooks(self._limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, *arguments: Any) -> Any:
        """Write down the turn that ends, and wait for events."""
        length = time.perf_counter() - self._begin
        seen = self._looks.end()
        if self._begin and length > self._limit:
            cpu = time.thread_time() - self._cpu
            waits, losses = self._counts()
            self._out.write(f"{time.time():.3f} {length * 1000:.1f} {cpu * 1000:.1f} "
                            f"{waits - self._switches[0]} {losses - self._switches[1]} "
                            f"{self._collections.seconds * 1000:.1f} {seen}\n")
            self._out.flush()
        events = self._inner.poll(*arguments)
        self._switches = self._counts()
        self._collections.seconds = 0.0
        self._cpu = time.thread_time()
        self._begin = time.perf_counter()
        self._looks.begin()
        return events

    def _counts(self) -> tuple[int, int]:
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_nvcsw, usage.ru_nivcsw


def main() -> int:
    """The command line."""
    file, limit_ms, *words = sys.argv[1:]
    from twisted.internet import reactor

    from twistmq.tools.command_line import main as command_line

    sys.argv = ["twistmq", *words]
    with open(file, "a") as out:
        # The reactor offers no other place between two turns.
        reactor._poller = TimedPoller(  # type: ignore[attr-defined]
            reactor._poller, out, float(limit_ms))  # type: ignore[attr-defined]
        return command_line()


if __name__ == "__main__":
    sys.exit(main())
