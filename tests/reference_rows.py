"""Reads REFERENCE_ROWS.md: the test of each row of behaviour, or the reason for its absence.

    python -m tests.reference_rows      counts, and what is wrong; the exit status is 1 then

A test exists when it is one that trial and pytest collect: a method ``test_...`` of a TestCase of
the module. Modules are imported for that, none of their tests is run.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest import TestCase

__all__ = ["LATER", "PAGE", "Page", "Row", "fault_of_test", "faults_of", "read_page"]

PAGE: Final = Path(__file__).with_name("REFERENCE_ROWS.md")
#: The subjects a row may wait for; there is none at present.
LATER: Final[frozenset[str]] = frozenset()
_PART: Final = re.compile(r"## (\w+): .+ \((\d+) rows\)")
_ROW: Final = re.compile(r"\| (\d+) \| (.*?) \| (.*?) \|")
_TEST: Final = re.compile(r"`([\w/]+)\.py::(\w+)(?:::(\w+))?`")


@dataclass(frozen=True)
class Row:
    """One row; ``shown`` is the text of its last column."""

    part: str
    number: int
    shown: str

    @property
    def kind(self) -> str:
        """``later``, ``not``, or ``tests``."""
        word = self.shown.partition(":")[0]
        return word if word in ("later", "not") else "tests"


@dataclass(frozen=True)
class Page:
    """All rows, and the number of rows that each part states."""

    rows: tuple[Row, ...]
    sizes: dict[str, int]


def read_page(text: str) -> Page:
    """Read the page; text that is neither the name of a part nor a row is ignored."""
    rows: list[Row] = []
    sizes: dict[str, int] = {}
    part = ""
    for line in text.splitlines():
        if found := _PART.fullmatch(line):
            part = found[1]
            sizes[part] = int(found[2])
        elif found := _ROW.fullmatch(line):
            rows.append(Row(part, int(found[1]), found[3].strip()))
    return Page(tuple(rows), sizes)


def faults_of(page: Page) -> list[str]:
    """Return the faults of a page, a line for each."""
    faults = []
    for part, size in page.sizes.items():
        numbers = [row.number for row in page.rows if row.part == part]
        if numbers != list(range(1, size + 1)):
            odd = set(range(1, size + 1)).symmetric_difference(numbers)
            faults.append(f"{part}: {len(numbers)} rows of {size}, look at {sorted(odd)}")
    for row in page.rows:
        faults += [f"{row.part} {row.number}: {fault}" for fault in _faults_of_row(row)]
    return faults


def _faults_of_row(row: Row) -> list[str]:
    if row.kind == "later":
        subject = row.shown.partition(":")[2].strip()
        return [] if subject in LATER else [f"no such subject: {subject!r}"]
    if row.kind == "not":
        return [] if row.shown.partition(":")[2].strip() else ["no reason"]
    tests = _TEST.findall(row.shown)
    rest = _TEST.sub("", row.shown).replace(",", "").strip()
    if not tests or rest:
        return [f"neither tests nor a reason: {rest!r}"]
    return [fault for test in tests if (fault := fault_of_test(*test))]


def fault_of_test(path: str, class_name: str, method: str = "") -> str:
    """Why a test would not be collected; empty when it would."""
    try:
        module = import_module("tests." + path.replace("/", "."))
    except ImportError as error:
        return f"{path}: {error}"
    case = getattr(module, class_name, None)
    if not (isinstance(case, type) and issubclass(case, TestCase)):
        return f"no TestCase: {path} {class_name}"
    names = [name for name in dir(case) if name.startswith("test_")]
    if not names or (method and method not in names):
        return f"no test: {path} {class_name} {method}"
    return ""


def main() -> int:
    page = read_page(PAGE.read_text())
    for part, size in page.sizes.items():
        kinds = Counter(row.kind for row in page.rows if row.part == part)
        print(f"{part:10} {size:3} rows: {kinds['tests']:3} with tests, {kinds['later']:3} later, "
              f"{kinds['not']:2} not")
    faults = faults_of(page)
    print("\n".join(faults or ["none is missing"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
