"""Programs that load a server in rounds, and their figures.

A program of a load reads its standard input: each line is the length of a round in seconds, and its
answer is one line of JSON with the messages, seconds, CPU seconds and failures of the round. The
program ends with its input. Because a process lives from its first round to its last, it is warmed
up once, however many rounds count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.bench.warm_up import ROUND_SECONDS, warm_up

__all__ = ["LoadProcess", "Values", "medians_in_turn"]

Values = dict[str, float]
#: A round has failed when it takes this many seconds longer than it should.
SECONDS_MAX = 300.0


class LoadProcess:
    """A program of a load, from its start to the end of the ``with`` block.

    :param home: the home of the program, because clients keep files there.
    """

    def __init__(self, command: Sequence[str | Path], home: Path) -> None:
        self.command = command
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, "HOME": str(home)})

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def round(self, seconds: float) -> Values:
        """Run a round.

        :returns: messages a second (``rate``), CPU in us a message (``cpu``), failures a message
            (``failed``), and the median time of a send in us where the load measures it (``p50``).
        :raises SystemExit: when the program ended, or gave no figures in time.
        """
        assert self._process.stdin and self._process.stdout
        watch = threading.Timer(seconds + SECONDS_MAX, self._process.kill)
        watch.start()
        said = []
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                said.append(line)
                if line.startswith("{"):
                    return _figures(json.loads(line))
        except BrokenPipeError:
            pass
        finally:
            watch.cancel()
        self._errors.seek(0)
        raise SystemExit(f"{self.command} ended with status {self._process.wait()}\n"
                         f"{''.join(said)[-2000:]}{self._errors.read()[-2000:]}")


def _figures(values: Values) -> Values:
    """Divide what a round measured by its messages and seconds."""
    count = max(values["messages"], 1)
    return {"rate": count / values["seconds"], "cpu": values["cpu"] / count * 1e6,
            "failed": values["failed"] / count, "p50": values.get("p50", 0)}


def medians_in_turn(
    load: str, running: Mapping[str, LoadProcess], rounds: int, seconds: float,
    cold: Sequence[str] = (), warmed_by: Callable[[Values], Values] = lambda values: {
        "us": values["cpu"]},
) -> dict[str, Values]:
    """Warm up processes, and run them in turn; each round begins with another process.

    :param rounds: so many of each count.
    :param seconds: the length of a round that counts.
    :param cold: the names of those that need no warm-up.
    :param warmed_by: what falls while a process or its server gets warm, of a round's figures.
    :returns: by name, the medians, and the lowest and highest CPU; failures are summed.
    """
    warm_up(load, {name: (lambda process=process: warmed_by(process.round(ROUND_SECONDS)))
                   for name, process in running.items() if name not in cold})
    done: dict[str, list[Values]] = {name: [] for name in running}
    order = list(running)
    for number in range(rounds):
        first = number % len(order)
        for name in order[first:] + order[:first]:
            done[name].append(running[name].round(seconds))
    return {name: {key: statistics.median(each[key] for each in found) for key in found[0]}
            | {"failed": sum(each["failed"] for each in found),
               "cpu lowest": min(each["cpu"] for each in found),
               "cpu highest": max(each["cpu"] for each in found)}
            for name, found in done.items()}
