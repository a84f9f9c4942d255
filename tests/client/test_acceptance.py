"""ACCEPTANCE.md: every row of the list, and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS / "client/ACCEPTANCE.md"
ROW = re.compile(r"^\| (\d+) [^|]+\| (shown|part|open) \| ([^|]*)\| ([^|]*)\|$")
#: Speed is not tested: a benchmark shows it.
BENCH = re.compile(r"`(bench/\w+\.py)`")


def rows() -> list[tuple[int, str, list[tuple[str, str]], str]]:
    """Number, state, tests and missing of each row."""
    found = []
    for line in PAGE.read_text().splitlines():
        match = ROW.match(line)
        if match is not None:
            tests = [(path, name) for path, name in re.findall(r"`([\w/.]+)::(\w+)`", match[3])]
            tests += [(path, "main") for path in BENCH.findall(match[3])]
            found.append((int(match[1]), match[2], tests, match[4].strip()))
    return found


def names_of(path: Path) -> set[str]:
    """The names of the functions in a file of tests."""
    return {node.name for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


class AcceptanceTests(SynchronousTestCase):
    """The table is true as far as a test can tell."""

    def test_every_row_is_there_once(self) -> None:
        """There are forty."""
        self.assertEqual([number for number, _, _, _ in rows()], list(range(1, 41)))

    def test_each_state_has_what_it_needs(self) -> None:
        """A shown row has tests and misses nothing; an open one has no tests."""
        for number, state, tests, missing in rows():
            self.assertEqual(bool(tests), state != "open", msg=str(number))
            if state != "open":
                self.assertEqual(bool(missing), state == "part", msg=str(number))

    def test_every_test_exists(self) -> None:
        """Each is a function of its file."""
        gone = [f"{number}: {path}::{name}" for number, _, tests, _ in rows()
                for path, name in tests
                if not (TESTS / path).exists() or name not in names_of(TESTS / path)]
        self.assertEqual(gone, [])
