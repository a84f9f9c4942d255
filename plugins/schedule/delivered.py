"""Finds delayed messages that a lost master delivered after its last copied offsets.

A slave copies its master's offsets four times a second while its log grows. When the slave
continues alone, the master may already have delivered some of the messages that are due after those
offsets. Such deliveries are in the messages' own topics, in the slave's copy of the log.

This search does not exist at Apache, whose slaves deliver these messages again.
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

#: The number of messages that one step of the search looks at.
_LOOK_COUNT: Final = 64
#: The number of queue entries that are read at once.
_READ_COUNT: Final = 32
_MARK: Final = DELAY_MARK.encode()

#: Identifies a delivery: topic, queue, born timestamp, key, level, consume attempts, body hash.
_Key = tuple[str, int, int, str | None, str | None, int, int]


class Delivered:
    """The deliveries that another broker made, as this broker finds them in its log."""

    log = Logger()

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        #: Deliveries in the log that no offset accounts for.
        self._deliveries: Counter[_Key] = Counter()
        #: For each level the queue offset after the last message that may have been delivered.
        self._ends: dict[int, int] = {}
        self._search: Iterator[None] | None = None

    def look_for(self, offsets: Mapping[int, int], now_ms: int) -> None:
        """Start a search for deliveries of the messages that are due now.

        :param offsets: for each level the first message that may not have been delivered.
        """
        self._deliveries.clear()
        self._ends.clear()
        self._search = self._looking(dict(offsets), now_ms)

    def look_on(self) -> bool:
        """Look at some more messages; :returns: whether the search must continue."""
        if self._search is None:
            return False
        try:
            for _ in range(_LOOK_COUNT):
                next(self._search)
        except StopIteration:
            self._search = None
            if count := self._deliveries.total():
                self.log.info("{count} delayed messages were delivered by the master after its "
                              "last copied offsets", count=count)
        except BrokerError as error:
            self._search = None
            self.log.error("the last delayed messages that the master delivered may be delivered "
                           "twice: {error}", error=str(error))
        return self._search is not None

    def has(self, level: int, queue_offset: int, record: MessageRecord) -> bool:
        """Whether a message of a level was delivered; each delivery is reported only once.

        :param record: the record that would be stored for the message.
        """
        if queue_offset >= self._ends.get(level, 0):
            return False
        key = _key(record)
        if self._deliveries[key] <= 0:
            del self._deliveries[key]
            return False
        self._deliveries[key] -= 1
        return True

    # --- the search, one message per step

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
        # The same queues also contain deliveries that the offsets do account for.
        for level, offset in offsets.items():
            yield from self._take_away(level, offset, first_ms, targets)

    def _waiting(self, level: int, offset: int) -> Iterator[tuple[int, int, MessageRecord]]:
        """Read messages of a level from an offset: (queue offset, due ms, record to deliver)."""
        for queue_offset, log_offset, due_ms in self._entries(SCHEDULE_TOPIC, level - 1, offset):
            data = self._store.look_message(log_offset)
            if data is None:
                continue
            try:
                record = due_record(decode_record(data))
            except BrokerError:
                # The delivery itself will log the fault of this message.
                continue
            yield queue_offset, due_ms, record

    def _entries(
        self, topic: str, queue_id: int, offset: int
    ) -> Iterator[tuple[int, int, int]]:
        """Read entries of a queue from an offset: (queue offset, log offset, tags code)."""
        while entries := self._store.queues.entries(topic, queue_id, offset, _READ_COUNT):
            for log_offset, _, tags_code in entries:
                yield offset, log_offset, tags_code
                offset += 1

    def _count(self, topic: str, queue_id: int, first_ms: int) -> Iterator[None]:
        """Count the delayed messages that were stored in a queue since a given time."""
        begin = self._store.reader.offset_by_time(topic, queue_id, first_ms)
        for _, log_offset, _ in self._entries(topic, queue_id, begin):
            data = self._store.look_message(log_offset)
            if data is not None and _MARK in data:
                try:
                    self._deliveries[_key(decode_record(data))] += 1
                except StoreDamaged as error:
                    self.log.error("a message of {topic}-{queue_id}, at {place} of the commit log, "
                                   "cannot be read: if it is a delivered delayed message, it may "
                                   "be delivered twice: {error}",
                                   topic=topic, queue_id=queue_id, place=log_offset,
                                   error=str(error))
            yield

    def _take_away(
        self, level: int, offset: int, first_ms: int, targets: set[tuple[str, int]]
    ) -> Iterator[None]:
        """Discount the deliveries of messages before an offset that were due since a time."""
        min_offset = self._store.queues.min_offset(SCHEDULE_TOPIC, level - 1)
        for earlier_offset in range(offset - 1, min_offset - 1, -1):
            waiting = next(self._waiting(level, earlier_offset), None)
            if waiting is None or waiting[0] != earlier_offset:
                # This message is damaged or gone; earlier ones may have been delivered as well.
                yield
                continue
            if waiting[1] < first_ms:
                return
            record = waiting[2]
            if (record.topic, record.queue_id) in targets:
                self._deliveries[_key(record)] -= 1
            yield


def _key(message: StoredMessage | MessageRecord) -> _Key:
    properties = parse_properties(message.properties)
    return (message.topic, message.queue_id, message.born_timestamp,
            properties.get(names.UNIQ_KEY), properties.get(names.DELAY), message.reconsume_times,
            hash(bytes(message.body)))
