"""Limits for log lines that would repeat endlessly, about requests, peers and lasting failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    # The client uses this module too, and must not load Twisted.
    from twisted.logger import Logger
    from twisted.python.failure import Failure

__all__ = ["EVENTS_A_MINUTE", "LINES_A_MINUTE", "LimitedLines", "LimitedLog", "LineRate", "Outage",
           "lines_left_out"]

#: The number of lines that are written in a minute; further lines are only counted.
LINES_A_MINUTE: Final = 10
#: The same limit for lines that do not report a fault, such as the arrival of a client.
EVENTS_A_MINUTE: Final = 100
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


def lines_left_out(count: int) -> str:
    """Return the end of a line that reports the lines before it; "" if none was left out."""
    return f" ({count} more since the last line)" if count else ""


class LimitedLines:
    """Writes the lines of one kind to a logger of Python's ``logging``, a few lines a minute.

    A line after lines that were left out ends with their number.

    :param log: writes a line, such as ``logging.getLogger("twistmq.client").warning``.
    :param lines_max: the number of lines that are written in a minute.
    """

    def __init__(self, log: Callable[..., object], lines_max: int = LINES_A_MINUTE) -> None:
        self._log = log
        self._rate = LineRate(lines_max)

    def write(self, now_ms: float, text: str, *values: object) -> None:
        """Write a line, or only count it.

        :param text: the line, with a place such as ``%s`` for each value.
        """
        left_out = self._rate.left_out(int(now_ms))
        if left_out is not None:
            self._log(text + "%s", *values, lines_left_out(left_out))


class LimitedLog:
    """Limits the log lines that requests and connections cause, with a LineRate for each kind.

    All lines with the same text are one kind, whatever their values are. A text must not contain
    what a peer has sent, because the rate of each text is kept.

    :param lines_max: the number of lines of one text about a fault that are written in a minute.
    """

    def __init__(self, log: Logger, lines_max: int = LINES_A_MINUTE) -> None:
        self._log = log
        self._lines_max = lines_max
        self._rates: dict[str, LineRate] = {}

    def info(self, now_ms: int, text: str, **values: object) -> None:
        """Write a line that does not report a fault."""
        limited = self._limited(now_ms, text, EVENTS_A_MINUTE)
        if limited is not None:
            self._log.info(limited, **values)

    def warn(self, now_ms: int, text: str, **values: object) -> None:
        limited = self._limited(now_ms, text)
        if limited is not None:
            self._log.warn(limited, **values)

    def error(self, now_ms: int, text: str, **values: object) -> None:
        limited = self._limited(now_ms, text)
        if limited is not None:
            self._log.error(limited, **values)

    def failure(
        self, now_ms: int, text: str, failure: Failure | None = None, **values: Any
    ) -> None:
        """Write a line with the stack of a failure, or of the exception that is being handled."""
        limited = self._limited(now_ms, text, LINES_A_MINUTE)
        if limited is not None:
            self._log.failure(limited, failure, **values)

    def _limited(self, now_ms: int, text: str, lines_max: int | None = None) -> str | None:
        """Return the text to write now; None: the line is only counted."""
        rate = self._rates.get(text)
        if rate is None:
            rate = self._rates[text] = LineRate(lines_max or self._lines_max)
        left_out = rate.left_out(now_ms)
        if not left_out:
            return text if left_out == 0 else None
        return f"{text} ({left_out} such lines were left out before)"


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
