"""Light queues: one record in several queues, namely its own and the queues that its sender names.

A message with the property ``INNER_MULTI_DISPATCH`` names topics that begin with ``%LMQ%``. Each of
these topics has one plain queue with the id 0, which needs no configuration, and thousands of such
queues cost little.

    INNER_MULTI_DISPATCH       names, separated by commas, from the sender
    INNER_MULTI_QUEUE_OFFSET   the record's offset in each of them, in this order, from the broker

The record is stored in the log once, with the offsets in its properties, and each queue gets an
entry for it, so recovery makes the same entries again. Records of retry topics, system topics and
batch topics are in no light queue.

Source: LmqDispatch, MultiDispatchUtils, ConsumeQueue.multiDispatchLmqQueue @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from twistmq.broker.errors import LightQueuesFull
from twistmq.broker.store.batch_queue import BatchQueue
from twistmq.broker.store.consume_queue import OFFSET_MAX, ConsumeQueue
from twistmq.broker.store.queue_table import QueueTable
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    parse_properties,
    with_property,
)
from twistmq.protocol.record import MessageRecord
from twistmq.protocol.topic_names import (
    LMQ_PREFIX,
    allows_light_queues,
    can_be_directory,
    is_light,
)

__all__ = ["LIGHT_QUEUE_ID", "LightQueues", "light_entries"]

#: The id of the only queue of a light topic. Source: MixAll.LMQ_QUEUE_ID.
LIGHT_QUEUE_ID = 0
_SEPARATOR = ","
#: The number of digits of the highest offset.


class LightQueues:
    """Enters records into the light queues of one store.

    :param count_max: the maximum number of light queues.
    """

    def __init__(self, queues: QueueTable, count_max: int) -> None:
        self._queues = queues
        self._count_max = count_max
        #: The number of light queues. It may be too high, because removed queues are not subtracted
        #: at once.
        self._count = 0
        #: The queues that assigned offsets in the current append.
        self._assigned: list[ConsumeQueue] = []

    # --- offsets, while records are encoded

    def begin(self) -> None:
        """Begin an append."""
        self._assigned.clear()

    def undo(self) -> None:
        """Release the offsets that a failed append had assigned."""
        for queue in self._assigned:
            queue.next_offset -= 1
        self._assigned.clear()

    def assign(self, record: MessageRecord, queue: ConsumeQueue) -> None:
        """Assign the offsets of a record in the light queues that it names.

        :param queue: the record's own queue.
        :raises MessageIllegal: when it names a topic that is not a light one.
        :raises LightQueuesFull: when there would be too many light queues.
        """
        if INNER_MULTI_DISPATCH not in record.properties or isinstance(queue, BatchQueue) or (
            not allows_light_queues(record.topic)
        ):
            return
        names = parse_properties(record.properties).get(INNER_MULTI_DISPATCH, "").rstrip(_SEPARATOR)
        if not names.strip():
            return
        offsets: dict[str, int] = {}
        for name in names.split(_SEPARATOR):
            if not is_light(name):
                # Differs from Apache, whose dispatch never gets past such a record.
                raise MessageIllegal(
                    f"{INNER_MULTI_DISPATCH} names {name!r}, which does not begin with "
                    f"{LMQ_PREFIX}")
            if name not in offsets:
                light = self._queues.find(name, LIGHT_QUEUE_ID) or self._make(name)
                offsets[name] = light.next_offset
                light.next_offset += 1
                self._assigned.append(light)
        record.properties = with_property(
            record.properties, INNER_MULTI_QUEUE_OFFSET,
            _SEPARATOR.join(str(offsets[name]) for name in names.split(_SEPARATOR)))

    def _make(self, name: str) -> ConsumeQueue:
        if self._count >= self._count_max:
            self._count = sum(map(is_light, self._queues.by_topic))
        if self._count >= self._count_max:
            raise LightQueuesFull(f"there are {self._count} light queues")
        self._count += 1
        return self._queues.make(name, LIGHT_QUEUE_ID)

    # --- entries, when records are dispatched

    def expand(self, records: Sequence[MessageRecord]) -> Sequence[MessageRecord]:
        """Insert after each record one more record for each of its entries in light queues."""
        if not any(INNER_MULTI_QUEUE_OFFSET in record.properties for record in records):
            return records
        expanded: list[MessageRecord] = []
        for record in records:
            expanded.append(record)
            if record.enters_queue and not self._queues.is_batch(record.topic, record.queue_id):
                expanded += [_entry_of(record, name, offset)
                             for name, offset in light_entries(record.topic, record.properties)]
        return expanded


def light_entries(topic: str, properties: str) -> list[tuple[str, int]]:
    """List the light queues of a stored record, with its offset in each."""
    if INNER_MULTI_QUEUE_OFFSET not in properties or not allows_light_queues(topic):
        return []
    fields = parse_properties(properties)
    names = fields.get(INNER_MULTI_DISPATCH, "").rstrip(_SEPARATOR).split(_SEPARATOR)
    offsets = fields.get(INNER_MULTI_QUEUE_OFFSET, "").rstrip(_SEPARATOR).split(_SEPARATOR)
    if len(names) != len(offsets):
        return []
    entries = {name: int(offset) for name, offset in zip(names, offsets, strict=True)
               if is_light(name) and can_be_directory(name) and _is_offset(offset)}
    return list(entries.items())


def _is_offset(text: str) -> bool:
    """Return whether a text is a valid queue offset."""
    return whole_number(text, OFFSET_MAX) is not None


def _entry_of(record: MessageRecord, name: str, offset: int) -> MessageRecord:
    """Make a record for an entry in a light queue, without keys, which the index already has."""
    entry = MessageRecord(
        name, LIGHT_QUEUE_ID, record.body, record.properties, record.born_timestamp,
        record.born_host, record.store_host, [], record.tags_code, record.flag, record.sys_flag,
        record.reconsume_times)
    entry.queue_offset = offset
    entry.physical_offset = record.physical_offset
    entry.size = record.size
    entry.store_timestamp = record.store_timestamp
    entry.next_offset = record.next_offset
    return entry
