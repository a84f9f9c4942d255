"""A program that is the command line of twistmq, with a wall clock that can be shifted.

    python shifted_clock.py FILE WORDS...

FILE contains the number of seconds by which the wall clock of the process is ahead of the clock of
the host. The process reads it at each SIGRTMIN, so the clock jumps while the process runs. The
steady clock does not change. This module imports nothing from the tests, so it runs with the Python
of any installation.
"""

from __future__ import annotations

import signal
import sys
import time


class ShiftedClock:
    """The wall clock of this process."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._time, self._time_ns = time.time, time.time_ns
        self._shift_ns = 0

    def read_shift(self, *_: object) -> None:
        """Read by how much the clock is ahead."""
        with open(self._file) as file:
            self._shift_ns = int(float(file.read()) * 1e9)

    def time(self) -> float:
        """Return the time of the wall clock, Unix s."""
        return self._time() + self._shift_ns / 1e9

    def time_ns(self) -> int:
        """Return the time of the wall clock, Unix ns."""
        return self._time_ns() + self._shift_ns


def main() -> int:
    """The command line."""
    file, *words = sys.argv[1:]
    clock = ShiftedClock(file)
    # Modules that take the functions by name must find these.
    time.time, time.time_ns = clock.time, clock.time_ns
    from twistmq.tools.command_line import main as command_line

    signal.signal(signal.SIGRTMIN, clock.read_shift)
    sys.argv = ["twistmq", *words]
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
