"""Samples of numbers that move, taken when pages are made and kept in memory for charts.

A page that shows a number adds it to a series, such as the lag of a group. Nothing is asked for the
sake of a chart, so a series grows while its page is open in a browser, and ends with the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

__all__ = ["Chart", "Key", "Sample", "SampleTable", "line_chart", "rate_chart"]

#: The samples of a series, an hour of a page that is loaded every five seconds; and the series.
SAMPLES_MAX: Final = 720
SERIES_MAX: Final = 200
#: The time between two samples at least, ms: several browsers may show the same page.
_DISTANCE_MS: Final = 2_000

#: The name of a series: its kind, such as "group", and the name of the object.
Key = tuple[str, str]
#: Its time, Unix ms, and the values.
Sample = tuple[int, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the same times.

    :param times: Unix ms, in ascending order.
    :param series: by name, a value for each time; None: it is unknown.
    """

    title: str
    times: Sequence[int]
    series: Mapping[str, Sequence[float | None]]

    @property
    def latest(self) -> dict[str, float | None]:
        """The last value of each line."""
        return {name: values[-1] if values else None for name, values in self.series.items()}

    def as_text(self) -> str:
        """Return the JSON for the script that draws the chart."""
        return msgspec.json.encode(self).decode()


class SampleTable:
    """All series of a cluster; threads may use it at the same time.

    :param now_ms: the clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        #: The series that was used for the longest time ago comes first.
        self._series: dict[Key, deque[Sample]] = {}

    def add(self, key: Key, *values: float) -> list[Sample]:
        """Add a sample of a series; :returns: all its samples, with their times in Unix ms."""
        now_ms = self._now_ms()
        with self._lock:
            series = self._series.pop(key, None) or deque(maxlen=SAMPLES_MAX)
            if len(self._series) >= SERIES_MAX:
                self._series.pop(next(iter(self._series)))
            self._series[key] = series
            if series and now_ms < series[-1][0]:
                series.clear()  # The clock was set back.
            if not series or now_ms - series[-1][0] >= _DISTANCE_MS:
                series.append((now_ms, values))
            return list(series)

    def samples_of(self, key: Key) -> list[Sample]:
        """Return the samples of a series without adding one."""
        with self._lock:
            return list(self._series.get(key, ()))


def line_chart(title: str, samples: Sequence[Sample], **positions: int) -> Chart:
    """Return the chart of some values of samples.

    :param positions: the position of the value in a sample, by the name of its line.
    """
    return Chart(title, [at_ms for at_ms, _ in samples], {
        name: [values[at] for _, values in samples] for name, at in positions.items()})


def rate_chart(title: str, samples: Sequence[Sample], **positions: int) -> Chart:
    """Return the chart of the changes of counters per second; see :func:`line_chart`.

    A counter that goes back, because a topic was made again, has no rate.
    """
    chart = line_chart(title, samples, **positions)
    return Chart(title, chart.times, {name: _rates(chart.times, points)
                                      for name, points in chart.series.items()})


def _rates(times: Sequence[int], points: Sequence[float | None]) -> list[float | None]:
    """Return the change of a counter per second before each of its values."""
    rates: list[float | None] = [None] * min(len(points), 1)
    for at in range(1, len(points)):
        change = (points[at] or 0) - (points[at - 1] or 0)
        rates.append(None if change < 0 else change / ((times[at] - times[at - 1]) / 1000))
    return rates
