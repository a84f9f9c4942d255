"""Statistics of the store for tools: messages stored and read, durations and rates.

The names and the text of the figures are those that `mqadmin brokerStatus` prints. Rates are
computed from one sample per second; the owner of the store calls ``sample``.

Source: StoreStatsService @5.3.3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

__all__ = ["StoreStats"]

#: The exclusive upper ends of the time classes in ms, and the names that tools use for them.
_CLASS_ENDS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
_CLASS_NAMES: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]",
    "[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)
#: The upper ends of the finer classes from which percentiles are computed, in ms.
_FINE_ENDS_MS: Final = (
    *range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10),
    *range(250, 501, 50), *range(600, 1001, 100), *range(2000, 10001, 1000),
)
#: The number of samples kept: ten minutes at one sample per second, and the previous one.
_SAMPLES_MAX: Final = 601
#: The windows of the rates, in samples.
_WINDOWS: Final = (10, 60, 600)
#: The number of samples after which the time classes start over.
_CLASS_SAMPLES: Final = 60


class StoreStats:
    """The statistics since the store was created."""

    __slots__ = (
        "_class_samples", "_classes", "_fine", "_last_classes", "_last_fine", "_samples",
        "boot_ms", "get_found", "get_miss", "get_time_max_ms", "put_failed", "put_messages",
        "put_size", "put_time_max_ms", "slow_put_ms", "transferred",
    )

    def __init__(self, now_ms: int) -> None:
        self.boot_ms = now_ms
        #: The number of stored messages, their size in the log, the number of failed appends, and
        #: the longest append in ms.
        self.put_messages = 0
        self.put_size = 0
        self.put_failed = 0
        self.put_time_max_ms = 0
        #: The longest append in ms since the watcher of slow appends set this value to 0.
        self.slow_put_ms = 0
        #: The number of reads that found messages and of reads that did not, the number of messages
        #: returned, and the longest read in ms.
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
        """Count an append of ``count`` messages and ``size`` bytes."""
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

    def count_read(self, count: int, elapsed_ms: int) -> None:
        """Count a read that returned ``count`` messages."""
        if count:
            self.get_found += 1
            self.transferred += count
        else:
            self.get_miss += 1
        if elapsed_ms > self.get_time_max_ms:
            self.get_time_max_ms = elapsed_ms

    def sample(self, now_ms: int) -> None:
        """Take the sample of one second."""
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
        """Return the figures under the names that tools use."""
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
        """The number of messages by append time, for the previous and the current minute."""
        counts = [a + b for a, b in zip(self._last_classes, self._classes, strict=True)]
        return " ".join(
            f"{name}:{count}" for name, count in zip(_CLASS_NAMES, counts, strict=True)
        )

    def _rates(self, *columns: int, unknown: str = "") -> str:
        """The rates per second over each window, separated by blanks.

        :param unknown: the text for a window that is not full yet.
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
        """Return the time in ms that this fraction of the appends did not exceed."""
        counts = [a + b for a, b in zip(self._last_fine, self._fine, strict=True)]
        rank = sum(counts) * part
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if count and seen >= rank:
                return float(_FINE_ENDS_MS[index - 1]) if index else 0.0
        return 0.0


def _format_runtime(elapsed_ms: int) -> str:
    """Format a duration as the tools expect it."""
    seconds, _ = divmod(elapsed_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


assert len(_CLASS_NAMES) == len(_CLASS_ENDS_MS) + 1
assert list(_FINE_ENDS_MS) == sorted(set(_FINE_ENDS_MS))
