"""A check for any task library, in which ``kill -9`` ends workers that are running tasks.

Each task appends a line "begin NUMBER PID" to a file, waits, and appends "end NUMBER PID".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until

__all__ = ["KilledWorkersCase"]

ROOT: Final = Path(__file__).resolve().parents[2]


class KilledWorkersCase(SynchronousTestCase):
    """Workers in separate processes."""

    #: Processes start slowly on a busy machine.
    timeout = 300

    def run_and_kill(self, code: str, kills: int, count: int, threads: int) -> None:
        """Kill workers one after another, and check what has run in the end.

        :param code: the program of a worker; the first argument is the name of the file.
        :param kills: how many workers are killed; another one does the rest.
        :param count: the number of tasks, which were sent before.
        :param threads: how many tasks a worker runs at once.
        """
        path = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        path.write_text("")

        def lines(word: str) -> list[list[str]]:
            return [line.split()[1:] for line in path.read_text().splitlines()
                    if line.startswith(word)]

        program = path.with_suffix(".py")
        program.write_text(code)
        killed = []
        for number in range(kills + 1):
            worker = subprocess.Popen(
                [sys.executable, str(program), str(path)],
                env={**os.environ, "PYTHONPATH": str(ROOT)})
            try:
                if number == kills:
                    wait_until("all tasks", lambda: len(
                        {task for task, _ in lines("end")}) == count, seconds=120)
                    continue
                wait_until("some tasks", lambda pid=str(worker.pid): len(
                    [task for task, by in lines("end") if by == pid]) >= 2 * threads)
                killed.append(str(worker.pid))
            finally:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
        begun = Counter(task for task, _ in lines("begin"))
        ended = Counter(task for task, _ in lines("end"))
        self.assertEqual(set(ended), {str(number) for number in range(count)})
        # Only the tasks that a killed worker was running, or had just finished, have run again.
        twice = {task for task, times in begun.items() if times > 1}
        last = {pid: {task for task, by in lines("begin") if by == pid} for pid in killed}
        for task in twice:
            self.assertTrue(any(task in tasks for tasks in last.values()), task)
        self.assertLessEqual(sum(begun.values()) - count, 2 * threads * kills)
