"""What went in and out, by topic and group: sliding windows of 10, 60 and 600 seconds, and days.

Counting is one addition a batch; a periodic task samples the sums, and a rate is the difference
of two samples. Sans-IO: the time of a sample is passed in.

Source: BrokerStatsManager, StatsItem, BrokerStats @5.3.3 (names of the tables are Apache's).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["SAMPLE_PERIOD_MS", "WINDOWS_SECONDS", "BrokerStats", "Sums", "Window"]

#: The windows a rate can be asked for, seconds.
WINDOWS_SECONDS: Final = (10, 60, 600)
#: How often sums are to be sampled, ms.
SAMPLE_PERIOD_MS: Final = 1000


@dataclass(slots=True)
class Sums:
    """Messages and bytes since the start."""

    count: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What passed in a window."""

    count: int
    size: int
    seconds: float

    @property
    def tps(self) -> float:
        """Messages a second."""
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.size / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class _Item:
    """The sums of one key and their samples: (time in ms, count, size), oldest first."""

    sums: Sums = field(default_factory=Sums)
    #: One a second for the short window, one each 10 s for the others.
    fine: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=61))
    coarse: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=61))

    def window(self, seconds: int, now_ms: int) -> Window:
        """What passed since the sample that is at most so old; the oldest when none is."""
        samples = self.fine if seconds <= 60 else self.coarse
        since = now_ms - seconds * 1000
        for time_ms, count, size in samples:
            if time_ms >= since:
                return Window(self.sums.count - count, self.sums.size - size,
                              (now_ms - time_ms) / 1000)
        return Window(0, 0, 0.0)


Key = tuple[str, ...]


class BrokerStats:
    """The statistics of one broker."""

    def __init__(self) -> None:
        #: By (TOPIC_PUT, topic), (GROUP_GET, topic, group), (BROKER_PUT,), (BROKER_GET,),
        #: (GROUP_SEND_BACK, topic, group).
        self._items: dict[Key, _Item] = {}
        self._last_coarse_ms = 0
        self.put_yesterday_morning = self.put_today_morning = 0
        self.get_yesterday_morning = self.get_today_morning = 0
        #: When each queue's consumer was how far behind, ms: (group, topic, queue) to (age, time).
        self.fall_behind_ms: dict[tuple[str, str, int], tuple[int, int]] = {}

    # --- counting

    def _add(self, key: Key, count: int, size: int) -> None:
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item()
        item.sums.count += count
        item.sums.size += size

    def messages_put(self, topic: str, count: int, size: int) -> None:
        self._add(("TOPIC_PUT", topic), count, size)
        self._add(("BROKER_PUT",), count, size)

    def messages_got(self, group: str, topic: str, count: int, size: int) -> None:
        self._add(("GROUP_GET", topic, group), count, size)
        self._add(("BROKER_GET",), count, size)

    def message_sent_back(self, group: str, topic: str) -> None:
        self._add(("GROUP_SEND_BACK", topic, group), 1, 0)

    # --- asking

    def sums(self, *key: str) -> Sums:
        item = self._items.get(key)
        return item.sums if item else Sums()

    def window(self, seconds: int, now_ms: int, *key: str) -> Window:
        """What passed in the last ``seconds`` (one of WINDOWS_SECONDS)."""
        item = self._items.get(key)
        return item.window(seconds, now_ms) if item else Window(0, 0, 0.0)

    def topic_put_tps(self, topic: str, now_ms: int) -> float:
        return self.window(60, now_ms, "TOPIC_PUT", topic).tps

    def group_get_tps(self, group: str, topic: str, now_ms: int) -> float:
        return self.window(60, now_ms, "GROUP_GET", topic, group).tps

    @property
    def put_total(self) -> int:
        return self.sums("BROKER_PUT").count

    @property
    def get_total(self) -> int:
        return self.sums("BROKER_GET").count

    # --- periodic

    def sample(self, now_ms: int) -> None:
        """Take a sample of all sums; to be called every SAMPLE_PERIOD_MS."""
        coarse = now_ms - self._last_coarse_ms >= 10_000
        if coarse:
            self._last_coarse_ms = now_ms
        for item in self._items.values():
            sample = (now_ms, item.sums.count, item.sums.size)
            item.fine.append(sample)
            if coarse:
                item.coarse.append(sample)

    def record_day(self) -> None:
        """Begin a day: what was today's becomes yesterday's."""
        self.put_yesterday_morning = self.put_today_morning
        self.get_yesterday_morning = self.get_today_morning
        self.put_today_morning = self.put_total
        self.get_today_morning = self.get_total

    # --- deletion

    def forget_topic(self, topic: str) -> None:
        """Drop everything counted for a topic."""
        for key in [key for key in self._items if len(key) > 1 and key[1] == topic]:
            del self._items[key]

    def forget_group(self, group: str) -> None:
        """Drop everything counted for a group."""
        for key in [key for key in self._items if len(key) > 2 and key[2] == group]:
            del self._items[key]
