"""Counts of the store for tools: messages put and got, how long it took, rates.

The names and the text of the figures are those `mqadmin brokerStatus` prints. Rates are made of a
sample each second; the owner of the store calls ``sample``.

Source: StoreStatsService @5.3.3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

__all__ = ["StoreStats"]

#: Upper ends of the time classes in ms, exclusive, and what the tools call them.
_CLASS_ENDS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
_CLASS_NAMES: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]",
    "[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)
#: Upper ends of the finer classes percentiles are made of, in ms.
_FINE_ENDS_MS: Final = (
    *range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10),
    *range(250, 501, 50), *range(600, 1001, 100), *range(2000, 10001, 1000),
)
#: Samples kept: ten minutes of one a second, and the one before.
_SAMPLES_MAX: Final = 601
#: Windows of the rates, in samples.
_WINDOWS: Final = (10, 60, 600)
#: Samples after which the time classes start over.
_CLASS_SAMPLES: Final = 60


class StoreStats:
    """Counts since the store was made."""

    __slots__ = (
        "_class_samples", "_classes", "_fine", "_last_classes", "_last_fine", "_samples",
        "boot_ms", "get_found", "get_miss", "get_time_max_ms", "put_failed", "put_messages",
        "put_size", "put_time_max_ms", "slow_put_ms", "transferred",
    )

    def __init__(self, now_ms: int) -> None:
        self.boot_ms = now_ms
        #: Messages stored, their bytes as stored, appends that failed, longest append in ms.
        self.put_messages = 0
        self.put_size = 0
        self.put_failed = 0
        self.put_time_max_ms = 0
        #: The longest append since who watches for slow ones set it to 0.
        self.slow_put_ms = 0
        #: Reads that found something and that did not, messages they returned, longest in ms.
        self.get_found = 0
        self.get_miss = 0
        self.transferred = 0
        self.get_time_max_ms = 0
        self._classes = [0] * len(_CLASS_NAMES)
        self._last_classes = [0] * len(_CLASS_NAMES)
        self._fine = [0] * (len(_FINE_ENDS_MS) + 1)
        self._last_fine = [0] * (len(_FINE_ENDS_MS) + 1)
        self._class_samples = 0
        #: (time, put, found, miss, transferred) of each sample.
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SAMPLES_MAX)

    def put(self, count: int, size: int, elapsed_ms: int) -> None:
        """Count an append of ``count`` messages, ``size`` bytes."""
        self.put_messages += count
        self.put_size += size
        if elapsed_ms <= 0:
            self._classes[0] += count
            self._fine[0] += count
            return
        self._classes[bisect_right(_CLASS_ENDS_MS, elapsed_ms)] += count
        self._fine[bisect_right(_FINE_ENDS_MS, elapsed_ms)] += count
        if elapsed_ms > self.slow_put_ms:
            self.slow_put_ms = elapsed_ms
            self.put_time_max_ms = max(self.put_time_max_ms, elapsed_ms)

    def got(self, count: int, elapsed_ms: int) -> None:
        """Count a read that returned ``count`` messages."""
        if count:
            self.get_found += 1
            self.transferred += count
        else:
            self.get_miss += 1
        if elapsed_ms > self.get_time_max_ms:
            self.get_time_max_ms = elapsed_ms

    def sample(self, now_ms: int) -> None:
        """Take the sample of a second."""
        self._samples.append(
            (now_ms, self.put_messages, self.get_found, self.get_miss, self.transferred)
        )
        self._class_samples += 1
        if self._class_samples >= _CLASS_SAMPLES:
            self._class_samples = 0
            self._last_classes, self._last_fine = self._classes, self._fine
            self._classes = [0] * len(_CLASS_NAMES)
            self._fine = [0] * (len(_FINE_ENDS_MS) + 1)

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """List the figures under the names of the tools."""
        total = self.put_messages or 1
        return {
            "bootTimestamp": str(self.boot_ms),
            "runtime": _format_runtime(now_ms - self.boot_ms),
            "putMessageEntireTimeMax": str(self.put_time_max_ms),
            "putMessageTimesTotal": str(self.put_messages),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(self.put_size),
            "putMessageDistributeTime": self._distribution(),
            "putMessageAverageSize": str(self.put_size / total),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self.get_time_max_ms),
            "putTps": self._rates(1),
            "getFoundTps": self._rates(2),
            "getMissTps": self._rates(3),
            "getTotalTps": self._rates(2, 3, unknown="0.0"),
            "getTransferredTps": self._rates(4),
            "putLatency99": f"{self._percentile(0.99):.2f}",
            "putLatency999": f"{self._percentile(0.999):.2f}",
        }

    def _distribution(self) -> str:
        """Messages by how long their append took, of the last whole minute and this one."""
        counts = [a + b for a, b in zip(self._last_classes, self._classes, strict=True)]
        return " ".join(
            f"{name}:{count}" for name, count in zip(_CLASS_NAMES, counts, strict=True)
        )

    def _rates(self, *columns: int, unknown: str = "") -> str:
        """Rates a second over each window, apart by blanks.

        :param unknown: stands for a window that is not full yet.
        """
        rates = []
        for window in _WINDOWS:
            if len(self._samples) > window:
                before, last = self._samples[-window - 1], self._samples[-1]
                count = sum(last[column] - before[column] for column in columns)
                rates.append(str(count * 1000 / max(1, last[0] - before[0])))
            else:
                rates.append(unknown)
        return " ".join(rates)

    def _percentile(self, part: float) -> float:
        """Time in ms that this part of the appends did not exceed."""
        counts = [a + b for a, b in zip(self._last_fine, self._fine, strict=True)]
        wanted = sum(counts) * part
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if count and seen >= wanted:
                return float(_FINE_ENDS_MS[index - 1]) if index else 0.0
        return 0.0


def _format_runtime(elapsed_ms: int) -> str:
    """Say how long, as the tools expect it."""
    seconds, _ = divmod(elapsed_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


assert len(_CLASS_NAMES) == len(_CLASS_ENDS_MS) + 1
assert list(_FINE_ENDS_MS) == sorted(set(_FINE_ENDS_MS))
