"""Finds timed messages that another broker has delivered while they are still in this wheel.

A slave that stood in for this master reports which messages it delivered: the ones that it had
entered and that were due before a given time. A lost master cannot report its deliveries of the
last half second; they are searched for in the copy of its log.

Source: BrokerPreOnlineService.syncMetadataReverse @5.3.3; the search is specific to twistmq.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, MessageRecord, StoredMessage, decode_record
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.broker.api.wire import properties as names

if TYPE_CHECKING:
    from twistmq.broker.api.store import MessageStore

__all__ = ["Delivered"]

#: Occurs in the properties of every message that has waited for a time.
_MARK: Final = f"{names.TIMER_OUT_MS}\1".encode()
#: The number of messages of the log that one step of the search looks at.
_LOOK_COUNT: Final = 16

#: Identifies a delivery: topic, queue, born timestamp, key, time, number of rolls, body hash.
_Key = tuple[str, int, int, str | None, str | None, str | None, int]


class Delivered:
    """The deliveries that other brokers made of this broker's messages.

    :param slot_on_slave: returns the slot of a message as a slave enters it, Unix ms.
    """

    log = Logger()

    def __init__(
        self, store: MessageStore,
        slot_on_slave: Callable[[StoredMessage, Mapping[str, str]], int],
    ) -> None:
        self._store = store
        self._slot_on_slave = slot_on_slave
        #: A queue offset of the timer topic and a time: messages before both are delivered.
        self._queue_offset = self._read_ms = 0
        #: How often each delivery was found in the log.
        self._deliveries: Counter[_Key] = Counter()
        self._messages: Iterator[tuple[int, int]] | None = None
        #: Messages that were delivered elsewhere, and not here, since the start.
        self.count = 0

    @property
    def is_searching(self) -> bool:
        """Whether :meth:`look_on` has more to search."""
        return self._messages is not None

    def take(self, queue_offset: int, read_ms: int) -> None:
        """Note that another broker has delivered the messages before this offset and this time.

        :param read_ms: a time, Unix ms.
        """
        self._queue_offset, self._read_ms = queue_offset, read_ms

    def look_from(self, position: int) -> None:
        """Start a search for deliveries in the commit log from a position on."""
        self._deliveries.clear()
        self._messages = self._store.raw.messages(max(position, self._store.commit_log.min_offset))

    def look_on(self) -> bool:
        """Search the next messages of the log; :returns: whether the search must continue."""
        if self._messages is None:
            return False
        try:
            for _ in range(_LOOK_COUNT):
                log_offset, size = next(self._messages)
                self._look(log_offset, size)
        except StopIteration:
            self._messages = None
        except BrokerError as error:
            self._messages = None
            self.log.error("the last timed messages that the master delivered may be delivered "
                           "twice: {error}", error=str(error))
        return self._messages is not None

    def _look(self, log_offset: int, size: int) -> None:
        data = self._store.look_message(log_offset, size)
        if data is None or _MARK not in data:
            return
        try:
            message = decode_record(data)
        except StoreDamaged as error:
            self.log.error("the message at {place} of the commit log cannot be read, so it may be "
                           "delivered twice if it was a timed message: {error}", place=log_offset,
                           error=str(error))
            return
        properties = message.properties_map()
        # The timer topic holds messages that arrived, and messages that were rolled into it.
        if message.topic != TIMER_TOPIC or names.TIMER_ROLL_TIMES in properties:
            self._deliveries[_key(message, properties)] += 1

    def has(
        self, message: StoredMessage, properties: Mapping[str, str], record: MessageRecord
    ) -> bool:
        """Whether a message of the timer topic was delivered; a delivery is reported only once.

        :param properties: the message's properties, parsed.
        :param record: the record that would be stored.
        """
        if message.queue_offset < self._queue_offset and (
                self._slot_on_slave(message, properties) < self._read_ms):
            self.count += 1
            return True
        if not self._deliveries:
            return False
        key = _key(record, properties)
        if not self._deliveries[key]:
            del self._deliveries[key]
            return False
        self._deliveries[key] -= 1
        self.count += 1
        return True


def _key(message: StoredMessage | MessageRecord, properties: Mapping[str, str]) -> _Key:
    return (message.topic, message.queue_id, message.born_timestamp,
            properties.get(names.UNIQ_KEY), properties.get(names.TIMER_OUT_MS),
            properties.get(names.TIMER_ROLL_TIMES), hash(bytes(message.body)))
