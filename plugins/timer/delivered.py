"""Timed messages that another broker has delivered, though the wheel here has them still.

A slave that stood in for this master says which it delivered: those that it had entered and that
were due before a time. A master that is lost says nothing of its last half second; its deliveries
are looked for in the copy of its log.

Source: BrokerPreOnlineService.syncMetadataReverse @5.3.3; the search is ours.
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

#: Stands in the properties of each message that has waited for a time.
_MARK: Final = f"{names.TIMER_OUT_MS}\1".encode()
#: Messages of the log that are looked at in one go.
_LOOK_COUNT: Final = 64

#: The marks of one delivery: topic, queue, birth, keys, time, times rolled, body.
_Key = tuple[str, int, int, str | None, str | None, str | None, int]


class Delivered:
    """The deliveries of others, for one broker.

    :param slot_on_slave: the slot of a message as a slave enters it, Unix ms.
    """

    log = Logger()

    def __init__(
        self, store: MessageStore,
        slot_on_slave: Callable[[StoredMessage, Mapping[str, str]], int],
    ) -> None:
        self._store = store
        self._slot_on_slave = slot_on_slave
        #: A queue offset of the timer topic and a time: what is before both is delivered.
        self._queue_offset = self._read_ms = 0
        #: How often each was found in the log.
        self._found: Counter[_Key] = Counter()
        self._messages: Iterator[tuple[int, int]] | None = None
        #: Messages that were delivered elsewhere, and not here, since the start.
        self.count = 0

    def take(self, queue_offset: int, read_ms: int) -> None:
        """Another broker has delivered what is before both.

        :param read_ms: Unix ms.
        """
        self._queue_offset, self._read_ms = queue_offset, read_ms

    def look_from(self, position: int) -> None:
        """Look for deliveries in the commit log from a place on."""
        self._found.clear()
        self._messages = self._store.raw.messages(max(position, self._store.commit_log.min_offset))

    def look_on(self) -> bool:
        """Look at some more of the log; :returns: whether there is more."""
        if self._messages is None:
            return False
        try:
            for _ in range(_LOOK_COUNT):
                place, size = next(self._messages)
                self._look(place, size)
        except StopIteration:
            self._messages = None
        except BrokerError as error:
            self._messages = None
            self.log.error("timed messages that the master delivered last may come twice: {error}",
                           error=str(error))
        return self._messages is not None

    def _look(self, place: int, size: int) -> None:
        data = self._store.look_message(place, size)
        if data is None or _MARK not in data:
            return
        try:
            message = decode_record(data)
        except StoreDamaged as error:
            self.log.error("the message at {place} of the commit log cannot be read: the timed "
                           "message that it was may come twice: {error}", place=place,
                           error=str(error))
            return
        properties = message.properties_map()
        # In the timer topic are those that came, and those that were put there again.
        if message.topic != TIMER_TOPIC or names.TIMER_ROLL_TIMES in properties:
            self._found[_key(message, properties)] += 1

    def has(
        self, message: StoredMessage, properties: Mapping[str, str], record: MessageRecord
    ) -> bool:
        """Whether a message of the timer topic is delivered; it counts as delivered once.

        :param properties: the message's, parsed.
        :param record: that would be stored.
        """
        if message.queue_offset < self._queue_offset and (
                self._slot_on_slave(message, properties) < self._read_ms):
            self.count += 1
            return True
        if not self._found:
            return False
        key = _key(record, properties)
        if not self._found[key]:
            del self._found[key]
            return False
        self._found[key] -= 1
        self.count += 1
        return True


def _key(message: StoredMessage | MessageRecord, properties: Mapping[str, str]) -> _Key:
    return (message.topic, message.queue_id, message.born_timestamp,
            properties.get(names.UNIQ_KEY), properties.get(names.TIMER_OUT_MS),
            properties.get(names.TIMER_ROLL_TIMES), hash(bytes(message.body)))
