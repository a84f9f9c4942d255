"""The pages ACCEPTANCE.md: the rows of a list, each with its tests.

A row is *shown* (all that it asks for), *part* (tests show something, and what is missing is
said), or *open*.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Row", "faults", "rows"]

TESTS = Path(__file__).resolve().parent
_ROW = re.compile(r"^\| (\d+) [^|]+\| (shown|part|open) \| ([^|]*)\| ([^|]*)\|$")
#: Speed is not tested: a benchmark shows it.
_BENCH = re.compile(r"`(bench/\w+(?:\.py)?)`")


class Row(NamedTuple):
    """A row of the page.

    :param tests: files below ``tests/`` and names of functions in them.
    """

    number: int
    state: str
    tests: list[tuple[str, str]]
    missing: str


def rows(page: Path) -> list[Row]:
    """Return the rows of a page, in order."""
    found = []
    for line in page.read_text().splitlines():
        match = _ROW.match(line)
        if match is not None:
            tests = [(path, name) for path, name in re.findall(r"`([\w/.]+)::(\w+)`", match[3])]
            tests += [(path, "main") for path in _BENCH.findall(match[3])]
            found.append(Row(int(match[1]), match[2], tests, match[4].strip()))
    return found


def faults(page: Path, count: int) -> list[str]:
    """Return the faults of a page that must have a number of rows.

    A shown row has tests and misses nothing, a part has both, an open one has no tests; each test
    is a function of its file.
    """
    found = rows(page)
    wrong = [] if [row.number for row in found] == list(range(1, count + 1)) else [
        "the numbers of the rows"]
    for row in found:
        if bool(row.tests) != (row.state != "open"):
            wrong.append(f"{row.number}: {row.state} with {len(row.tests)} tests")
        if row.state != "open" and bool(row.missing) != (row.state == "part"):
            wrong.append(f"{row.number}: {row.state}, missing: {row.missing!r}")
        wrong += [f"{row.number}: there is no {path}::{name}" for path, name in row.tests
                  if name not in _names_of(TESTS / path)]
    return wrong


@cache
def _names_of(path: Path) -> frozenset[str]:
    """Return the names of the functions in a file of tests; empty if the file does not exist."""
    if not path.exists():
        return frozenset()
    return frozenset(
        node.name for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
