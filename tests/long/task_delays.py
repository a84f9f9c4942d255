"""Delay tasks of Celery, Taskiq and Dramatiq across restarts of their workers and of the broker.

    python -m tests.long.task_delays [celery] [taskiq] [dramatiq] [--delay 600] [--tasks 20]

The tasks are sent with the delay, and a worker of each library waits for them. After a third of the
delay all workers and the servers are killed by -9, after two thirds the workers are killed and the
servers stopped by SIGTERM; each time they are started again at once. A line for each library says
how long after its time each task began. The exit status is 1 if a task is lost, or ran twice, or
began before its time.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.servers import servers
from tests.long.task_workers import LIBRARIES, Application, Worker

__all__ = ["report"]

#: How long after its time a task may begin, seconds.
_LATE_S: Final = 60.0


def report(application: Application, count: int, delay_s: float) -> bool:
    """Print how the tasks of a library ran; :returns: whether that is as it should be."""
    times = {(note.word, note.number): note.time for note in application.read_notes()}
    begun = [note for note in application.notes if note.word == "begin"]
    early = sum(note.time < times["send", note.number] + delay_s for note in begun)
    late = [note.time - times["sent", note.number] - delay_s for note in begun]
    ended = {note.number for note in application.notes if note.word == "end"}
    twice = sum(each > 1 for each in Counter(note.number for note in begun).values())
    between = f", {min(late):.2f} to {max(late):.2f} s after their time" if late else ""
    print(f"{application.library.name}: {len(ended)} of {count} tasks with a delay of "
          f"{delay_s:g} s ran{between}: {early} early, {count - len(ended)} lost, {twice} twice",
          flush=True)
    return len(ended) == count and not early and not twice


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=", ".join(LIBRARIES))
    parser.add_argument("--delay", type=float, default=600, help="seconds")
    parser.add_argument("--tasks", type=int, default=20)
    args = parser.parse_args()
    if unknown := set(args.libraries) - set(LIBRARIES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        running = stack.enter_context(servers(folder / "data"))
        applications = [Application(LIBRARIES[name], folder / name, running.namesrv)
                        for name in args.libraries or LIBRARIES]
        workers: list[Worker] = []
        stack.callback(lambda: [worker.kill() for worker in workers])
        for application in applications:
            application.send(args.tasks, args.delay)
        begin = time.monotonic()

        def has_all() -> bool:
            return all(len({note.number for note in application.read_notes()
                            if note.word == "end"}) == args.tasks
                       for application in applications)

        for part, how in ((1, signal.SIGKILL), (2, signal.SIGTERM), (3, None)):
            workers += [application.start_worker() for application in applications]
            end = begin + args.delay * part / 3 + (_LATE_S if how is None else 0)
            while time.monotonic() < end and not has_all():
                time.sleep(0.5)
            if how is not None:
                while workers:
                    workers.pop().kill()
                running.stop(how)
                running.start()
        # A task that ran twice would begin again when its message is no longer hidden.
        time.sleep(10)
        passed = [report(application, args.tasks, args.delay) for application in applications]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
