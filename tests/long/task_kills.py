"""Kill workers of Celery, Taskiq and Dramatiq by -9 in the middle of their tasks, and count.

    python -m tests.long.task_kills [celery] [taskiq] [dramatiq] [--tasks 10000] [--kills 20]
        [--seed 1]

All tasks are sent before the first worker starts. A worker runs four tasks at once; at a random
moment all of its processes get SIGKILL, and the next worker starts. Celery acknowledges late here,
as the two others do always. Of each of its workers, one process of the pool is killed before, which
the worker survives. In the end:

* no task is lost, and none became a dead letter;
* a task ran again only if a process that ran it was killed in the middle of it, or before the
  broker had the acknowledgement of its end.

A line for each library has the counts; the exit status is 1 if one of these rules is broken, or if
no kill met a running task.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.interop.servers import servers, wait_until
from tests.long.task_workers import INVISIBLE_S, LIBRARIES, Application, Library, Note

__all__ = ["Kill", "Runs", "kill_workers"]

#: How long a worker may take to run its part, seconds.
_PATIENCE_S: Final = 180.0
#: How long before a kill a task may have ended without being acknowledged, seconds.
_ACKNOWLEDGED_S: Final = 1.0


@dataclass(frozen=True)
class Kill:
    """The kill of a worker, or of one process of its pool.

    :param pid: None: all processes.
    """

    life: int
    time: float
    pid: int | None = None

    def meets(self, run: Run) -> bool:
        """Whether it killed the process of a run."""
        return run.life == self.life and self.pid in (None, run.pid)


@dataclass
class Run:
    """One run of a task; ``end`` is None if it was killed."""

    life: int
    pid: int
    end: float | None = None


@dataclass
class Runs:
    """The runs of all tasks, and which of them were repetitions.

    :param notes: what the tasks have written.
    """

    notes: Iterable[Note]
    count: int
    kills: list[Kill]
    lost: list[int] = field(default_factory=list)
    #: The tasks that ran more than once.
    repeated: list[int] = field(default_factory=list)
    #: Of the runs that were repeated, those that were cut, and the seconds from the end of each
    #: other one to its kill.
    cut_count: int = 0
    late_s: list[float] = field(default_factory=list)
    #: The tasks that ran again although no kill was the reason.
    unexplained: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        runs: defaultdict[int, list[Run]] = defaultdict(list)
        for note in self.notes:
            if note.word == "begin":
                runs[note.number].append(Run(note.life, note.pid))
            elif note.word == "end":
                run = next(each for each in reversed(runs[note.number])
                           if (each.life, each.pid) == (note.life, note.pid))
                run.end = note.time
        self.lost = [number for number in range(self.count)
                     if all(run.end is None for run in runs[number])]
        for number, several in runs.items():
            if len(several) > 1:
                self.repeated.append(number)
                explained = [self._explain(run) for run in several[:-1]]
                if not all(explained):
                    self.unexplained.append(number)

    def _explain(self, run: Run) -> bool:
        """Whether a kill is the reason why the task of a run ran again."""
        for kill in self.kills:
            if not kill.meets(run):
                continue
            if run.end is None:
                self.cut_count += 1
                return True
            if 0 <= kill.time - run.end <= _ACKNOWLEDGED_S:
                self.late_s.append(kill.time - run.end)
                return True
        return False


def kill_workers(application: Application, count: int, kills: int, chance: random.Random,
                 ) -> list[Kill]:
    """Let workers run the tasks that were sent, and kill them; :returns: the kills."""
    made: list[Kill] = []
    each = count / (kills + 1)

    def ended_by(life: int) -> int:
        return sum(note.word == "end" and note.life == life for note in application.read_notes())

    for number in range(kills + 1):
        worker = application.start_worker()
        life = worker.life
        try:
            if number == kills:
                wait_until("all tasks", lambda: len(
                    {note.number for note in application.read_notes() if note.word == "end"}
                ) == count, _PATIENCE_S)
                _wait_for_repetitions(application)
                return made
            share = round(each * chance.uniform(0.3, 1))
            if application.library.replaces_processes:
                wait_until("some tasks", lambda life=life, share=share:
                           ended_by(life) >= share // 2, _PATIENCE_S)
                pid = next(note.pid for note in reversed(application.notes) if note.life == life)
                os.kill(pid, signal.SIGKILL)
                made.append(Kill(life, time.time(), pid))
            wait_until("some tasks", lambda life=life, share=share: ended_by(life) >= share,
                       _PATIENCE_S)
            # The moment is what is random here; nothing waits for it.
            time.sleep(chance.uniform(0, 0.05))
        except AssertionError as error:
            raise SystemExit(f"{application.library.name}: {error}\n"
                             f"{application.end_of_log()}") from None
        finally:
            worker.kill()
        made.append(Kill(life, time.time()))
    raise AssertionError("the last worker returns")


def _wait_for_repetitions(application: Application) -> None:
    """Wait until the queue is empty and each hidden message would have come again."""
    wait_until("all acknowledgements", lambda: not application.unfinished_count(), _PATIENCE_S)
    last, since = 0, time.monotonic()
    while time.monotonic() - since < 3 * INVISIBLE_S:
        if len(application.read_notes()) > last:
            last, since = len(application.notes), time.monotonic()
        time.sleep(0.2)


def check(library: Library, count: int, kills: int, seed: int) -> bool:
    """Print the counts of one library; :returns: whether they are as they should be."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twistmq-") as name, servers(
            Path(name) / "data") as running:
        application = Application(library, Path(name) / "work", running.namesrv)
        application.send(count)
        made = kill_workers(application, count, kills, random.Random(seed))
        runs = Runs(application.read_notes(), count, made)
        dead = application.dead_letter_count()
    whole = sum(kill.pid is None for kill in made)
    single = len(made) - whole
    processes = f" and {single} processes of their pools" if single else ""
    late = f" at most {max(runs.late_s) * 1000:.0f} ms" if runs.late_s else ""
    print(f"{library.name}: {count:,} tasks, {whole} workers{processes} killed in "
          f"{time.monotonic() - begin:.0f} s: {len(runs.lost)} lost, {dead} dead letters, "
          f"{len(runs.repeated)} ran again: {runs.cut_count} runs were cut by a kill, "
          f"{len(runs.late_s)} had ended{late} before it, {len(runs.unexplained)} unexplained",
          flush=True)
    for what, numbers in (("lost", runs.lost), ("unexplained", runs.unexplained)):
        for number in numbers[:5]:
            print(f"{what}: " + "; ".join(" ".join(map(str, note)) for note in application.notes
                                          if note.number == number))
    return not (runs.lost or dead or runs.unexplained) and runs.cut_count > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=", ".join(LIBRARIES))
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if unknown := set(args.libraries) - set(LIBRARIES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    passed = [check(LIBRARIES[name], args.tasks, args.kills, args.seed)
              for name in args.libraries or LIBRARIES]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
