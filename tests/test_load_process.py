"""A program of a load runs its rounds in one process, and its figures are divided by messages."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.bench.load_process import LoadProcess, medians_in_turn

#: Its rounds cost 4, 3, 2, 2, 3, 4, 5 s of CPU for 1,000 messages; one of them fails in each round.
PROGRAM: Final = """
import json, sys
costs = iter([4, 3, 2, 2, 3, 4, 5])
for line in sys.stdin:
    print("a line that the program's libraries print")
    print(json.dumps({"messages": 1000, "seconds": float(line), "cpu": next(costs), "failed": 1}),
          flush=True)
"""


class LoadProcessTests(SynchronousTestCase):
    """The class LoadProcess, and processes that run in turn."""

    def load(self, program: str = PROGRAM) -> LoadProcess:
        """Return a process of a program in Python."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return LoadProcess([sys.executable, "-c", program], Path(folder.name))

    def test_a_round_gives_its_figures_for_a_message(self) -> None:
        """A round reports messages a second, and its CPU in microseconds a message."""
        with self.load() as load:
            self.assertEqual(load.round(2),
                             {"rate": 500, "cpu": 4000, "failed": 0.001, "p50": 0})
            self.assertEqual(load.round(4)["rate"], 250)

    def test_a_program_that_ends_is_named_with_its_errors(self) -> None:
        """The benchmark ends with what the program said."""
        with self.assertRaises(SystemExit) as caught, self.load("raise OSError('lost')") as load:
            load.round(2)
        self.assertIn("OSError: lost", str(caught.exception))
        self.assertIn("status 1", str(caught.exception))

    def test_rounds_count_when_all_processes_are_warm(self) -> None:
        """A process that needs no warm-up runs the rounds that count only."""
        said = io.StringIO()
        with self.load() as ours, self.load() as other, contextlib.redirect_stdout(said):
            found = medians_in_turn("async", {"ours": ours, "other": other}, rounds=3, seconds=2,
                                    cold=["other"])
        self.assertIn("warm-up async: warm after 4 rounds", said.getvalue())
        self.assertEqual({name: values["cpu"] for name, values in found.items()},
                         {"ours": 4000, "other": 3000})
        self.assertEqual({name: (values["cpu lowest"], values["cpu highest"])
                          for name, values in found.items()},
                         {"ours": (3000, 5000), "other": (2000, 4000)})
        self.assertEqual({name: round(values["failed"], 6) for name, values in found.items()},
                         {"ours": 0.003, "other": 0.003})
