"""Delayed messages that a lost master has delivered, though its copied offsets do not say so.

A slave copies its master's offsets four times a second. When it goes on alone, the messages that
are due already may have been delivered: those are in their topics, in its copy of the log.

The search is ours; Apache's slaves deliver them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import (
    BrokerError,
    MessageRecord,
    StoredMessage,
    decode_record,
    parse_properties,
)
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import SCHEDULE_TOPIC
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.schedule.records import DELAY_MARK, due_record

if TYPE_CHECKING:
    from twistmq.broker.api.store import MessageStore

__all__ = ["Delivered"]

#: Messages that are looked at in one go.
_LOOK_COUNT: Final = 64
#: Entries of a queue that are read at once.
_READ_COUNT: Final = 32
_MARK: Final = DELAY_MARK.encode()

#: The marks of one delivery: topic, queue, birth, key, level, times consumed, body.
_Key = tuple[str, int, int, str | None, str | None, int, int]


class Delivered:
    """The deliveries of another broker, for one broker."""

    log = Logger()

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        #: Deliveries in the log that no offset counts.
        self._found: Counter[_Key] = Counter()
        #: By level the queue offset behind what may be delivered.
        self._ends: dict[int, int] = {}
        self._search: Iterator[None] | None = None

    def look_for(self, offsets: Mapping[int, int], now_ms: int) -> None:
        """Look for deliveries of messages that are due now.

        :param offsets: by level the first message that may not be delivered.
        """
        self._found.clear()
        self._ends.clear()
        self._search = self._looking(dict(offsets), now_ms)

    def look_on(self) -> bool:
        """Look at some more messages; :returns: whether there are more."""
        if self._search is None:
            return False
        try:
            for _ in range(_LOOK_COUNT):
                next(self._search)
        except StopIteration:
            self._search = None
            if count := self._found.total():
                self.log.info("{count} delayed messages were delivered by the master after its "
                              "last copied offsets", count=count)
        except BrokerError as error:
            self._search = None
            self.log.error("delayed messages that the master delivered last may come twice: "
                           "{error}", error=str(error))
        return self._search is not None

    def has(self, level: int, queue_offset: int, record: MessageRecord) -> bool:
        """Whether a message of a level is delivered; it counts as delivered once.

        :param record: that would be stored.
        """
        if queue_offset >= self._ends.get(level, 0):
            return False
        key = _key(record)
        if self._found[key] <= 0:
            del self._found[key]
            return False
        self._found[key] -= 1
        return True

    # --- the search, a message a step

    def _looking(self, offsets: dict[int, int], now_ms: int) -> Iterator[None]:
        first_ms = now_ms
        targets: set[tuple[str, int]] = set()
        for level, offset in offsets.items():
            end = offset
            for queue_offset, due_ms, record in self._waiting(level, offset):
                if due_ms > now_ms:
                    break
                first_ms = min(first_ms, due_ms)
                targets.add((record.topic, record.queue_id))
                end = queue_offset + 1
                yield
            self._ends[level] = end
        for topic, queue_id in targets:
            yield from self._count(topic, queue_id, first_ms)
        # Deliveries that the offsets count are in the same queues.
        for level, offset in offsets.items():
            yield from self._take_away(level, offset, first_ms, targets)

    def _waiting(self, level: int, offset: int) -> Iterator[tuple[int, int, MessageRecord]]:
        """Messages of a level from an offset on: (queue offset, due ms, record to deliver)."""
        for queue_offset, place, due_ms in self._entries(SCHEDULE_TOPIC, level - 1, offset):
            data = self._store.look_message(place)
            if data is None:
                continue
            try:
                record = due_record(decode_record(data))
            except BrokerError:
                # The delivery says what is wrong with it.
                continue
            yield queue_offset, due_ms, record

    def _entries(
        self, topic: str, queue_id: int, offset: int
    ) -> Iterator[tuple[int, int, int]]:
        """Entries of a queue from an offset on: (queue offset, place, tags code)."""
        while entries := self._store.queues.entries(topic, queue_id, offset, _READ_COUNT):
            for place, _, tags_code in entries:
                yield offset, place, tags_code
                offset += 1

    def _count(self, topic: str, queue_id: int, first_ms: int) -> Iterator[None]:
        """Count the delayed messages that were stored in a queue since a time."""
        begin = self._store.reader.offset_by_time(topic, queue_id, first_ms)
        for _, place, _ in self._entries(topic, queue_id, begin):
            data = self._store.look_message(place)
            if data is not None and _MARK in data:
                try:
                    self._found[_key(decode_record(data))] += 1
                except StoreDamaged as error:
                    self.log.error("a message of {topic}-{queue_id}, at {place} of the commit log, "
                                   "cannot be read: the delayed message that it was may come "
                                   "twice: {error}", topic=topic, queue_id=queue_id, place=place,
                                   error=str(error))
            yield

    def _take_away(
        self, level: int, offset: int, first_ms: int, targets: set[tuple[str, int]]
    ) -> Iterator[None]:
        """Take away the deliveries of messages before an offset that were due since a time."""
        least = self._store.queues.min_offset(SCHEDULE_TOPIC, level - 1)
        for before in range(offset - 1, least - 1, -1):
            found = next(self._waiting(level, before), None)
            if found is None or found[0] != before:
                # This one is damaged or gone: those before it may have been delivered as well.
                yield
                continue
            if found[1] < first_ms:
                return
            record = found[2]
            if (record.topic, record.queue_id) in targets:
                self._found[_key(record)] -= 1
            yield


def _key(message: StoredMessage | MessageRecord) -> _Key:
    properties = parse_properties(message.properties)
    return (message.topic, message.queue_id, message.born_timestamp,
            properties.get(names.UNIQ_KEY), properties.get(names.DELAY), message.reconsume_times,
            hash(bytes(message.body)))
