"""The findings of a check: one line a disagreement, up to a limit, and the summary's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path

__all__ = ["Report"]


class Report:
    """Takes disagreements and says them line by line.

    :param root: the store; paths are shown from there on.
    :param say: takes each line.
    :param limit: lines that are said; the others are counted.
    """

    def __init__(self, root: Path, say: Callable[[str], None], limit: int) -> None:
        #: Counts by name: things looked at, and oddities that are no faults.
        self.counts: Counter[str] = Counter()
        self.problems = 0
        self.notes: list[str] = []
        self._root = root
        self._say = say
        self._limit = limit
        self._lines = 0
        self._runs: dict[Hashable, list[int]] = {}
        self._places: dict[Hashable, str] = {}

    def problem(
        self,
        path: Path,
        position: int | None,
        expected: str,
        found: str,
        run: Hashable = None,
    ) -> None:
        """Report a disagreement.

        :param position: byte of the file; None when it is about the whole file.
        :param run: those with an equal one are like each other: the first is said, the others are
            counted.
        """
        self.problems += 1
        if run is not None and run in self._runs:
            self._runs[run][0] += 1
            return
        place = self.shown(path) if position is None else f"{self.shown(path)} byte {position}"
        if run is not None:
            self._runs[run] = [0]
            self._places[run] = place
        self._line(f"{place}: expected {expected}, found {found}")

    def note(self, text: str) -> None:
        """Say in the summary what is no disagreement."""
        self.notes.append(text)

    def shown(self, path: Path) -> str:
        """A path as it is printed."""
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def finish(self) -> None:
        """Say how many lines were not said."""
        for run, (count,) in self._runs.items():
            if count:
                self._line(f"{self._places[run]}: the same {count} more times behind it")
        if self._lines > self._limit:
            self._say(f"and {self._lines - self._limit} more")

    def table(self) -> list[str]:
        """The summary: notes, then a number and what it counts on each line."""
        rows = [(count, name) for name, count in self.counts.items() if count]
        rows.append((self.problems, "problems"))
        width = max(len(str(count)) for count, _ in rows)
        return [*self.notes, *(f"{count:>{width}}  {name}" for count, name in rows)]

    def _line(self, text: str) -> None:
        self._lines += 1
        if self._lines <= self._limit:
            self._say(text)
