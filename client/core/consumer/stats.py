"""Statistics of a consumer for the last minute, by topic, which ``consumerStatus`` shows.

Source: ConsumerStatsManager, StatsItem, ConsumeStatus @5.3.3. Differs from Apache: the time of a
handler starts when its message is handed out, and includes the wait for a free worker.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["MemberStats", "SlidingSum", "TopicStats"]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
#: The number of parts of a span: a sum is exact to one of them.
_PARTS: Final = 6


class _Part:
    """The events of one part of the span."""

    __slots__ = ("events", "number", "total")

    def __init__(self, number: int, events: int, total: float) -> None:
        self.number = number
        self.events = events
        self.total = total


class SlidingSum:
    """Counts events and sums up their values, over the last span of time.

    :param span_ms: the span in ms.
    """

    __slots__ = ("_parts", "_span_ms")

    def __init__(self, span_ms: int = MINUTE_MS) -> None:
        self._span_ms = span_ms
        #: For each part of time its number, events and sum of values; the newest is the last.
        self._parts: deque[_Part] = deque()

    def add(self, now_ms: float, count: int, value: float = 0.0) -> None:
        """Count events.

        :param now_ms: the time by the monotonic clock.
        :param value: the sum of their values.
        """
        number = int(now_ms * _PARTS // self._span_ms)
        parts = self._parts
        if parts and parts[-1].number == number:
            part = parts[-1]
            part.events += count
            part.total += value
        else:
            parts.append(_Part(number, count, value))
            self._forget(number)

    def _forget(self, number: int) -> None:
        while self._parts and self._parts[0].number <= number - _PARTS:
            self._parts.popleft()

    def count(self, now_ms: float) -> int:
        """Return the number of events."""
        self._forget(int(now_ms * _PARTS // self._span_ms))
        return sum(part.events for part in self._parts)

    def rate(self, now_ms: float) -> float:
        """Return the number of events per second."""
        return self.count(now_ms) * 1000 / self._span_ms

    def mean(self, now_ms: float) -> float:
        """Return the mean of the values; 0.0 without an event."""
        count = self.count(now_ms)
        return sum(part.total for part in self._parts) / count if count else 0.0


class TopicStats:
    """The statistics of one topic."""

    __slots__ = ("failed", "failed_in_hour", "handled", "pulled", "pulls", "succeeded")

    def __init__(self) -> None:
        #: The pulls that found messages, with their duration in ms; and the messages.
        self.pulls = SlidingSum()
        self.pulled = SlidingSum()
        #: The results of handlers, with the ms since the message was handed out.
        self.handled = SlidingSum()
        #: The messages by result.
        self.succeeded = SlidingSum()
        self.failed = SlidingSum()
        self.failed_in_hour = SlidingSum(HOUR_MS)

    def table(self, now_ms: float) -> dict[str, float]:
        """Return the fields of Apache's ConsumeStatus: ms, and messages per second."""
        return {
            "pullRT": self.pulls.mean(now_ms), "pullTPS": self.pulled.rate(now_ms),
            "consumeRT": self.handled.mean(now_ms),
            "consumeOKTPS": self.succeeded.rate(now_ms),
            "consumeFailedTPS": self.failed.rate(now_ms),
            "consumeFailedMsgs": self.failed_in_hour.count(now_ms)}


class MemberStats:
    """The statistics of a member, by topic."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}

    def _of(self, topic: str) -> TopicStats:
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def pulled(self, topic: str, now_ms: float, count: int, duration_ms: float) -> None:
        """Count a pull that found messages."""
        stats = self._of(topic)
        stats.pulls.add(now_ms, 1, duration_ms)
        stats.pulled.add(now_ms, count)

    def handled(
        self, topic: str, now_ms: float, count: int, duration_ms: float, *, is_success: bool
    ) -> None:
        """Count messages that have a result."""
        stats = self._of(topic)
        stats.handled.add(now_ms, 1, duration_ms)
        if is_success:
            stats.succeeded.add(now_ms, count)
        else:
            stats.failed.add(now_ms, count)
            stats.failed_in_hour.add(now_ms, count)
