# ^Run a program when it is its turn to start; as many start at a time as there are cores.
"""Run a program when it is its turn to start; at most as many start at once as there are cores.

    turn.py java -cp ... Main

Java compiles and loads classes in its first seconds, with all the cores it can get. When a dozen
start at once, none has its first reply within the three seconds that Apache's clients wait. So a
program starts when fewer than that many others are starting: of this user, in whichever test
process. It no longer starts when it took two seconds of processor time, when all of its threads
sleep, when it has ended, and after twenty seconds. A program that waited for twenty seconds starts
without a turn, so no test waits for ever for another.

The program keeps the process's number, input and output: another process holds the turn. Python
itself starts in a hundredth of a second by `python3 -I -S turn.py`, without packages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

#: Processor time after which a program no longer starts.
START_SECONDS: Final = 2.0
#: How long a program waits for its turn, and how long it has it at most.
PATIENCE_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.1
#: All threads of a program sleep when they do so this often, one poll after the other.
ASLEEP_POLLS: Final = 3


def take_turn() -> int | None:
    """Wait for a turn; :returns: the descriptor whose lock it is, or None after so long a wait."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    name = f"twistmq-test-starts-{os.getuid()}"
    while time.monotonic() < deadline:
        for number in range(len(os.sched_getaffinity(0))):
            path = Path(tempfile.gettempdir()) / f"{name}-{number}"
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
            else:
                return lock
        time.sleep(POLL_SECONDS)
    return None


def cpu_seconds(process: int) -> float:
    """Processor time of a process; :raises OSError: when it has ended."""
    fields = fields_of(Path(f"/proc/{process}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_asleep(process: int) -> bool:
    """Whether no thread runs, could run or waits for a disk."""
    try:
        return all(fields_of(path)[0] in "SZ"
                   for path in Path(f"/proc/{process}/task").glob("*/stat"))
    except OSError:  # A thread has just ended.
        return False


def fields_of(stat: Path) -> list[str]:
    """Return Linux's fields of a process or thread after its name, which may have blanks."""
    return stat.read_text().rpartition(")")[2].split()


def hold_turn(process: int) -> None:
    """Return when a process no longer starts."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    asleep = 0
    with contextlib.suppress(OSError):  # It has ended.
        while (cpu_seconds(process) < START_SECONDS and asleep < ASLEEP_POLLS
               and time.monotonic() < deadline):
            time.sleep(POLL_SECONDS)
            asleep = asleep + 1 if is_asleep(process) else 0


def leave_keeper() -> None:
    """Leave a process that keeps the turn until this program has started.

    It has no part of this one's input and output: who reads those waits for their end.
    """
    process = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        hold_turn(process)
    os._exit(0)


def main() -> None:
    """The command line."""
    command = sys.argv[1:]
    if not command or command[0] in ("-h", "--help"):
        sys.exit(__doc__)
    if take_turn() is not None:
        leave_keeper()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
