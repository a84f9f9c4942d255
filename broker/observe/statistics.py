"""Counts of messages by topic and group, over sliding windows of up to a day and whole days.

Every stored and every fetched message is counted here, so counting has to be cheap: it consists of
a few additions. Rates are not computed while counting. Instead, a periodic task takes samples of
the sums that have changed since its last run, and a rate is the difference between a sum and an
earlier sample of it. An idle key costs nothing, and an active key takes about two kilobytes. The
module performs no I/O: the time of a sample is passed in. It is typed, so that mypyc can compile
it.

Source: BrokerStatsManager, StatsItem, BrokerStats @5.3.3 (names of the tables are Apache's).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from twistmq.broker.constants import STATISTICS_MAX
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.protocol.record import MessageRecord

__all__ = ["DAY_SECONDS", "HOUR_SECONDS", "MINUTE_SECONDS", "SAMPLE_PERIOD_MS",
           "WINDOWS_SECONDS", "BrokerStats", "Sums", "Window"]

MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400
#: The windows for which rates are available, seconds.
WINDOWS_SECONDS: Final = (10, MINUTE_SECONDS, 600, HOUR_SECONDS, DAY_SECONDS)
#: The time between two samples of the sums, ms.
SAMPLE_PERIOD_MS: Final = 1000
#: A window moves in steps of a tenth of its length: this number of samples and one more cover it.
_STEPS: Final = 10
#: The length of a sample, which consists of Unix ms, messages, bytes and requests.
_WIDTH: Final = 4
_ALL_WINDOWS: Final = (1 << len(WINDOWS_SECONDS)) - 1


@dataclass(frozen=True)
class Sums:
    """Messages and bytes since the start."""

    count: int = 0
    size: int = 0


@dataclass(frozen=True)
class Window:
    """The count and the rate of a window."""

    count: int
    size: int
    seconds: float
    #: The number of requests; 0 if they are not counted.
    requests: int = 0

    @property
    def tps(self) -> float:
        """The number of messages a second."""
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.size / self.seconds if self.seconds > 0 else 0.0


class _Item:
    """The sums of one key, and their samples for each window, oldest first."""

    __slots__ = ("count", "is_forgotten", "requests", "samples", "size", "unsampled")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.requests = 0
        self.samples = tuple(array("q") for _ in WINDOWS_SECONDS)
        #: A bit for each window that has no sample of the current sums.
        self.unsampled = 0
        #: Whether the item was dropped, so that it is no longer read.
        self.is_forgotten = False

    def sample(self, index: int, time_ms: int) -> None:
        """Take a sample of the sums for a window."""
        samples = self.samples[index]
        samples.extend((time_ms, self.count, self.size, self.requests))
        if len(samples) > (_STEPS + 1) * _WIDTH:
            del samples[:_WIDTH]
        self.unsampled &= ~(1 << index)

    def window(self, index: int, now_ms: int) -> Window:
        """Return the growth since the newest sample that is at least as old as the window.

        If no sample is that old, the oldest one is used: a new key has a shorter window.
        """
        samples = self.samples[index]
        if not samples:
            return Window(0, 0, 0.0)
        since_ms = now_ms - WINDOWS_SECONDS[index] * 1000
        at = len(samples) - _WIDTH
        while at > 0 and samples[at] > since_ms:
            at -= _WIDTH
        begin_ms = max(samples[at], since_ms)
        return Window(self.count - samples[at + 1], self.size - samples[at + 2],
                      (now_ms - begin_ms) / 1000, self.requests - samples[at + 3])


Key = tuple[str, ...]


def _anything(key: Key) -> bool:
    """The default of ``is_known``: every key is counted."""
    return True


class BrokerStats:
    """The statistics of one broker.

    :param now_ms: the time at which counting begins, Unix ms; it is the time of a first, empty
        sample.
    :param is_known: returns whether the topic and the group of a key exist. It is needed because
        senders choose these names and write them into the properties of their messages.
    """

    def __init__(self, now_ms: int, is_known: Callable[[Key], bool] = _anything) -> None:
        #: By (TOPIC_PUT, topic), (GROUP_GET, topic, group), (BROKER_PUT,), (BROKER_GET,),
        #: (GROUP_SEND_BACK, topic, group), (SNDBCK2DLQ_TIMES, topic, group).
        self._items: dict[Key, _Item] = {}
        self.is_known = is_known
        #: The largest number of keys with their own counters.
        self.items_max = STATISTICS_MAX
        #: Counts for all keys that do not exist or exceed the limit.
        self._others = _Item()
        #: The fetched messages and bytes that were popped: by topic, group, and whether it was a
        #: retry.
        self._popped: dict[tuple[str, str, bool], list[int]] = {}
        #: For each window, the items that need a sample, and the time of the last samples, Unix ms.
        self._unsampled: tuple[list[_Item], ...] = tuple([] for _ in WINDOWS_SECONDS)
        self._sampled_ms = [now_ms] * len(WINDOWS_SECONDS)
        self.put_yesterday_morning = self.put_today_morning = 0
        self.get_yesterday_morning = self.get_today_morning = 0

    # --- counting

    def _add(self, key: Key, count: int, size: int, requests: int) -> None:
        self._add_to(self._item(key), count, size, requests)

    def _item(self, key: Key) -> _Item:
        """Return the item of a key, or the common item if the key is not counted separately."""
        item = self._items.get(key)
        return self._new_item(key) if item is None else item

    def _add_to(self, item: _Item, count: int, size: int, requests: int) -> None:
        item.count += count
        item.size += size
        item.requests += requests
        if item.unsampled != _ALL_WINDOWS:
            self._want_samples(item)

    def _want_samples(self, item: _Item) -> None:
        for index, unsampled in enumerate(self._unsampled):
            if not item.unsampled >> index & 1:
                unsampled.append(item)
        item.unsampled = _ALL_WINDOWS

    def _new_item(self, key: Key) -> _Item:
        """Begin to count a key; its earlier samples are zero.

        :returns: the common item, if the key does not get its own counters.
        """
        if not self._is_counted(key):
            return self._others
        item = self._items[key] = _Item()
        for index, time_ms in enumerate(self._sampled_ms):
            item.sample(index, time_ms)
        return item

    def _is_counted(self, key: Key) -> bool:
        """Return whether a new key gets its own counters."""
        if len(key) == 1:
            return True
        return len(self._items) < self.items_max and self.is_known(key)

    def messages_put(self, records: Sequence[MessageRecord]) -> None:
        """Count stored messages under their topics; each message counts as a request."""
        total_count = total_size = 0
        for record in records:
            queue = record.queue
            if isinstance(queue, ConsumeQueue) and queue.topic is record.topic:
                last_item = queue.put_item
                if isinstance(last_item, _Item) and not last_item.is_forgotten:
                    item = last_item
                else:
                    item = self._item(("TOPIC_PUT", record.topic))
                    if item is not self._others:
                        queue.put_item = item
            else:
                item = self._item(("TOPIC_PUT", record.topic))
            count = record.message_count
            self._add_to(item, count, record.size, count)
            total_count += count
            total_size += record.size
        if total_count:
            self._add(("BROKER_PUT",), total_count, total_size, 0)

    def messages_got(self, group: str, topic: str, count: int, size: int) -> None:
        self._add(("GROUP_GET", topic, group), count, size, 1)
        self._add(("BROKER_GET",), count, size, 0)

    def messages_popped(
        self, group: str, topic: str, count: int, size: int, *, retry_topic: str | None = None
    ) -> None:
        """Count the messages of a pop, which are fetched messages as well.

        :param retry_topic: the retry topic of the group from which the messages were popped; None:
            they were not retries.
        """
        self.messages_got(group, retry_topic or topic, count, size)
        key = topic, group, retry_topic is not None
        sums = self._popped.get(key)
        if sums is None:
            if ("GROUP_GET", retry_topic or topic, group) not in self._items:
                return
            sums = self._popped[key] = [0, 0]
        sums[0] += count
        sums[1] += size

    def message_sent_back(self, group: str, topic: str) -> None:
        self._add(("GROUP_SEND_BACK", topic, group), 1, 0, 1)

    def dead_letter(self, group: str, topic: str) -> None:
        """Count a message that a group has given up.

        :param topic: the original topic of the message.
        """
        self._add(("SNDBCK2DLQ_TIMES", topic, group), 1, 0, 1)

    # --- asking

    def has(self, *key: str) -> bool:
        """Return whether anything was counted under a key."""
        return key in self._items

    def sums(self, *key: str) -> Sums:
        item = self._items.get(key)
        return Sums(item.count, item.size) if item else Sums()

    def all_sums(self, table: str) -> list[tuple[Key, Sums]]:
        """Return the sums of a table since the start, each with the remaining part of its key."""
        return [(key[1:], Sums(item.count, item.size)) for key, item in self._items.items()
                if key[0] == table]

    def popped_sums(self) -> dict[tuple[str, str, bool], Sums]:
        """Return the sums of popped messages by topic, group and whether they were retries."""
        return {key: Sums(count, size) for key, (count, size) in self._popped.items()}

    def window(self, seconds: int, now_ms: int, *key: str) -> Window:
        """Return the count and the rate of the last ``seconds``, one of WINDOWS_SECONDS."""
        item = self._items.get(key)
        if item is None:
            return Window(0, 0, 0.0)
        return item.window(WINDOWS_SECONDS.index(seconds), now_ms)

    def topic_put_tps(self, topic: str, now_ms: int) -> float:
        return self.window(MINUTE_SECONDS, now_ms, "TOPIC_PUT", topic).tps

    def group_get_tps(self, group: str, topic: str, now_ms: int) -> float:
        return self.window(MINUTE_SECONDS, now_ms, "GROUP_GET", topic, group).tps

    @property
    def put_total(self) -> int:
        return self.sums("BROKER_PUT").count

    @property
    def get_total(self) -> int:
        return self.sums("BROKER_GET").count

    # --- periodic

    def sample(self, now_ms: int) -> None:
        """Take samples of the changed sums; called every SAMPLE_PERIOD_MS."""
        for index, seconds in enumerate(WINDOWS_SECONDS):
            if 0 <= now_ms - self._sampled_ms[index] < seconds * 1000 // _STEPS:
                continue
            self._sampled_ms[index] = now_ms
            unsampled = self._unsampled[index]
            for item in unsampled:
                item.sample(index, now_ms)
            unsampled.clear()

    def record_day(self) -> None:
        """Begin a new day: the figures of today become the figures of yesterday."""
        self.put_yesterday_morning = self.put_today_morning
        self.get_yesterday_morning = self.get_today_morning
        self.put_today_morning = self.put_total
        self.get_today_morning = self.get_total

    # --- deletion

    def forget_topic(self, topic: str) -> None:
        """Drop all counters of a topic."""
        self._forget(1, topic)

    def forget_group(self, group: str) -> None:
        """Drop all counters of a group."""
        self._forget(2, group)

    def _forget(self, position: int, name: str) -> None:
        for key in [key for key in self._items if key[position:position + 1] == (name,)]:
            self._items.pop(key).is_forgotten = True
        for popped in [key for key in self._popped if key[position - 1] == name]:
            del self._popped[popped]
