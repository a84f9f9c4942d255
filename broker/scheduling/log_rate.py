"""Limits log lines that would repeat endlessly, about clients and lasting failures."""

from __future__ import annotations

from typing import Final

__all__ = ["LINES_A_MINUTE", "LineRate", "Outage"]

#: Lines that are written of each minute, before the others are only counted.
LINES_A_MINUTE: Final = 10
_MINUTE_MS: Final = 60_000


class LineRate:
    """Decides whether a line of one kind is written: a few a minute, then only their number.

    :param lines_max: how many are written of a minute.
    """

    def __init__(self, lines_max: int = LINES_A_MINUTE) -> None:
        self._lines_max = lines_max
        self._begin_ms = 0
        self._lines = 0

    def left_out(self, now_ms: int) -> int | None:
        """Ask for one line.

        :returns: how many were left out since one was written last; None: this one is, too.
        """
        left = 0
        if not 0 <= now_ms - self._begin_ms < _MINUTE_MS:
            left = max(0, self._lines - self._lines_max)
            self._begin_ms, self._lines = now_ms, 0
        self._lines += 1
        return left if self._lines <= self._lines_max else None


class Outage:
    """Something that fails each time it is tried: a line when that begins is enough."""

    def __init__(self) -> None:
        self._repeats = False

    def begins(self) -> bool:
        """It failed; :returns: whether it had not failed the time before."""
        begins, self._repeats = not self._repeats, True
        return begins

    def ends(self) -> None:
        """It did not fail."""
        self._repeats = False
