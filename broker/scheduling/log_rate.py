"""Limits for log lines that would repeat endlessly, about clients and lasting failures."""

from __future__ import annotations

from typing import Final

__all__ = ["LINES_A_MINUTE", "LineRate", "Outage"]

#: The number of lines that are written in a minute; further lines are only counted.
LINES_A_MINUTE: Final = 10
_MINUTE_MS: Final = 60_000


class LineRate:
    """Decides whether to write a line of one kind: a few lines a minute, then only their number.

    :param lines_max: the number of lines that are written in a minute.
    """

    def __init__(self, lines_max: int = LINES_A_MINUTE) -> None:
        self._lines_max = lines_max
        self._begin_ms = 0
        self._lines = 0

    def left_out(self, now_ms: int) -> int | None:
        """Ask whether to write a line.

        :returns: the number of lines that were left out since the last written one; None: this line
            is left out as well.
        """
        left_out_count = 0
        if not 0 <= now_ms - self._begin_ms < _MINUTE_MS:
            left_out_count = max(0, self._lines - self._lines_max)
            self._begin_ms, self._lines = now_ms, 0
        self._lines += 1
        return left_out_count if self._lines <= self._lines_max else None


class Outage:
    """An operation that fails at every attempt; only the first failure needs a log line."""

    def __init__(self) -> None:
        self._repeats = False

    def begins(self) -> bool:
        """Record a failure; return whether the previous attempt did not fail."""
        begins, self._repeats = not self._repeats, True
        return begins

    def ends(self) -> None:
        """Record a success."""
        self._repeats = False
