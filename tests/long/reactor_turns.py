"""A program that is the command line of twistmq and writes down the long turns of its reactor.

    python reactor_turns.py FILE MS WORDS...

A turn is the time between two waits of the reactor for events. The reactor serves no client until
the turn ends. Each turn that is longer than MS adds a line to FILE with six values: the time at
which the turn ended (Unix s), its length and the processor time of the reactor's thread (ms), how
often the thread waited, for example for a disk, how often it lost its core to another thread, and
the time of garbage collections in it (ms).
This module imports nothing from the tests, so it runs with the Python of any installation.
"""

from __future__ import annotations

import gc
import resource
import sys
import threading
import time
from typing import IO, Any


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, *arguments: Any) -> Any:
        """Write down the turn that ends, and wait for events."""
        length = time.perf_counter() - self._begin
        if self._begin and length > self._limit:
            cpu = time.thread_time() - self._cpu
            waits, losses = self._counts()
            self._out.write(f"{time.time():.3f} {length * 1000:.1f} {cpu * 1000:.1f} "
                            f"{waits - self._switches[0]} {losses - self._switches[1]} "
                            f"{self._collections.seconds * 1000:.1f}\n")
            self._out.flush()
        events = self._inner.poll(*arguments)
        self._switches = self._counts()
        self._collections.seconds = 0.0
        self._cpu = time.thread_time()
        self._begin = time.perf_counter()
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
