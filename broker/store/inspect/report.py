"""The findings of a check: one line per disagreement, up to a limit, and a summary of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path

__all__ = ["Report"]


class Report:
    """Collects disagreements and prints them line by line.

    :param root: the store; paths are shown relative to it.
    :param say: prints a line.
    :param limit: the number of lines that are printed; further ones are only counted.
    """

    def __init__(self, root: Path, say: Callable[[str], None], limit: int) -> None:
        #: Counts by name: objects that were checked, and oddities that are not faults.
        self.counts: Counter[str] = Counter()
        self.problems = 0
        self.notes: list[str] = []
        self._root = root
        self._say = say
        self._limit = limit
        self._lines = 0
        self._runs: dict[Hashable, list[int]] = {}
        self._locations: dict[Hashable, str] = {}

    def problem(
        self,
        path: Path,
        position: int | None,
        expected: str,
        actual: str,
        run: Hashable = None,
    ) -> None:
        """Report a disagreement.

        :param position: the position in the file, in bytes; None when it concerns the whole file.
        :param run: of the problems with an equal value, the first one is printed and later ones
            are only counted; None: the problem is printed.
        """
        self.problems += 1
        if run is not None and run in self._runs:
            self._runs[run][0] += 1
            return
        location = self.shown(path) if position is None else f"{self.shown(path)} byte {position}"
        if run is not None:
            self._runs[run] = [0]
            self._locations[run] = location
        self._line(f"{location}: expected {expected}, found {actual}")

    def note(self, text: str) -> None:
        """Add a text to the summary that is not a disagreement."""
        self.notes.append(text)

    def shown(self, path: Path) -> str:
        """Return a path as it is printed."""
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def finish(self) -> None:
        """Print how many lines were left out."""
        for run, (count,) in self._runs.items():
            if count:
                self._line(f"{self._locations[run]}: the same {count} more times behind it")
        if self._lines > self._limit:
            self._say(f"and {self._lines - self._limit} more")

    def table(self) -> list[str]:
        """Return the summary: notes, then one line with a number and a name for each count."""
        rows = [(count, name) for name, count in self.counts.items() if count]
        rows.append((self.problems, "problems"))
        width = max(len(str(count)) for count, _ in rows)
        return [*self.notes, *(f"{count:>{width}}  {name}" for count, name in rows)]

    def _line(self, text: str) -> None:
        self._lines += 1
        if self._lines <= self._limit:
            self._say(text)
