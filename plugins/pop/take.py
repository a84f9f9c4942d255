"""Takes messages from queues for one pop.

A pop goes through the queues it may take from until it has enough messages. The messages taken
from a queue are covered by a check point before a client receives them.

Source: PopMessageProcessor.popMsgFromTopic, popMsgFromQueue, getPopOffset @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import decode_record, format_properties
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.headers import PopMessageRequestHeader
from twistmq.broker.api.store import GetMessageResult, GetMessageStatus, MessageFilter
from twistmq.broker.api.topics import is_light
from twistmq.broker.api.wire import (
    PHYSICAL_OFFSET_POSITION,
    QUEUE_OFFSET_POSITION,
    encode_record,
    record_again,
)
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.pop.check_point import CheckPoint, PointKey
from twistmq.plugins.pop.names import Receipt, is_retry, retry_mark
from twistmq.plugins.pop.offsets import SETTLED, QueueKey

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.pop.offsets import TakenRange
    from twistmq.plugins.pop.state import PopState

__all__ = ["Attempt", "Taker"]

#: In this mode a new group begins with the oldest message, in others with the newest.
#: Source: ConsumeInitMode.
INIT_MIN: Final = 0
_MOVED: Final = (GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY,
                 GetMessageStatus.OFFSET_FOUND_NULL)
#: No message is found there, but the queue continues after it.
_PASSED: Final = (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.OFFSET_FOUND_NULL,
                  GetMessageStatus.MESSAGE_WAS_REMOVING, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE)


@dataclass(slots=True, eq=False)
class Part:
    """The messages that one pop takes from one queue."""

    key: QueueKey
    result: GetMessageResult
    offsets: list[int]
    start_offset: int


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt to take messages."""

    header: PopMessageRequestHeader
    #: Unix ms.
    pop_time: int
    #: ORDER_REVIVE_QUEUE if the group keeps order.
    revive_queue: int
    message_filter: MessageFilter | None
    parts: list[Part] = field(default_factory=list)
    count: int = 0
    #: The number of messages that remain in the queues.
    rest: int = 0
    #: Whether a filter has to examine more entries before it is known that no message matches.
    has_more_to_look_at: bool = False
    #: Earlier deliveries of messages of an ordered group, as text for the reply.
    order_counts: list[str] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """The number of messages that are still wanted."""
        return self.header.max_msg_nums - self.count


class Taker:
    """Takes messages for the pops of one broker."""

    def __init__(self, broker: Broker, state: PopState) -> None:
        self._broker = broker
        self._state = state

    # --- start offsets

    def peek_offset(self, key: QueueKey) -> int:
        """Return the offset of the next pop of a queue, if nothing changes it before then."""
        topic, group, queue_id = key
        offset = self._broker.consumer_offset.query(group, topic, queue_id)
        if offset < 0:
            offset = self._broker.store.queues.min_offset(topic, queue_id)
        return max(offset, self._state.offsets.latest(key))

    def _offset(self, key: QueueKey, init_mode: int) -> int:
        """Return the offset for a pop of a queue; a new group gets a consumer offset."""
        topic, group, queue_id = key
        table = self._broker.consumer_offset
        reset = table.take_reset_offset(topic, group, queue_id)
        if reset is not None:
            self._state.orders.clear(key)
            self._state.offsets.clear(key)
            table.commit("pop", group, topic, queue_id, reset)
            return reset
        offset = table.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first_offset(topic, queue_id, init_mode)
            table.commit("pop", group, topic, queue_id, offset)
        return max(offset, self._state.offsets.latest(key))

    def _first_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        store = self._broker.store
        least = store.queues.min_offset(topic, queue_id)
        if init_mode == INIT_MIN or is_retry(topic):
            return least
        if (self._broker.settings.flag("initPopOffsetByCheckMsgInMem") and least <= 0
                and store.reader.is_in_memory(topic, queue_id, 0)):
            return 0
        return max(store.queues.max_offset(topic, queue_id) - 1, 0)

    # --- taking

    def take_topic(self, attempt: Attempt, topic: str, first_queue: int) -> None:
        """Take from all queues of a topic, starting at any of them."""
        config = self._broker.topic_config.get(topic)
        if config is not None:
            count = config.read_queue_nums
            for index in range(count):
                self.take_queue(attempt, topic, (first_queue + index) % count)

    def take_by_priority(self, attempt: Attempt, topic: str) -> None:
        """Take from the queues of a topic in the order of their priority.

        Source: PopMessageProcessor.popMsgFromTopic @5.5.0.
        """
        config = self._broker.topic_config.get(topic)
        if config is not None:
            queues = range(config.read_queue_nums)
            highest_first = self._broker.settings.flag("priorityOrderAsc")
            for queue_id in reversed(queues) if highest_first else queues:
                self.take_queue(attempt, topic, queue_id)

    def take_queue(self, attempt: Attempt, topic: str, queue_id: int) -> None:
        """Take as many messages from a queue as are still wanted."""
        header, state, store = attempt.header, self._state, self._broker.store
        key = topic, header.consumer_group, queue_id
        offset = self._offset(key, header.init_mode)
        rest = store.queues.max_offset(topic, queue_id) - offset
        if header.order:
            if state.orders.is_blocked(
                    key, header.attempt_id, header.invisible_time, attempt.pop_time):
                return
            state.in_flight.clear(key)
        elif state.in_flight.is_too_many(key):
            attempt.rest += rest
            return
        if attempt.remaining <= 0 or not rest:
            attempt.rest += rest
            return
        wants = self._filter_of(attempt, topic)
        result = store.get_message(topic, queue_id, offset, attempt.remaining, wants)
        if result.status in _MOVED:
            # The contents of the queue changed since the group was there last.
            state.offsets.clear(key)
            offset = result.next_begin_offset
            self._broker.consumer_offset.commit(
                "pop", header.consumer_group, topic, queue_id, offset)
            result = store.get_message(topic, queue_id, offset, attempt.remaining, wants)
        attempt.rest += max(result.max_offset - result.next_begin_offset, 0)
        if result.messages:
            self._add_part(attempt, key, offset, result)
        elif result.status in _PASSED and result.next_begin_offset > offset:
            attempt.has_more_to_look_at |= result.next_begin_offset < result.max_offset
            if header.order:
                self._broker.consumer_offset.commit(
                    "pop", header.consumer_group, topic, queue_id, result.next_begin_offset)
            else:
                state.offsets.take(key, result.next_begin_offset, SETTLED)

    def _filter_of(self, attempt: Attempt, topic: str) -> MessageFilter | None:
        """Return the group's filter for a topic; retries are filtered like their topic.

        Differs from Apache: bitmaps stored with the queue entries of retries are not consulted.
        """
        header = attempt.header
        if attempt.message_filter is None or topic == header.topic:
            return attempt.message_filter
        return self._broker.filters.make_filter(header.exp_type, header.exp)

    def _add_part(
        self, attempt: Attempt, key: QueueKey, offset: int, result: GetMessageResult
    ) -> None:
        header = attempt.header
        offsets = self._offsets_of(key, offset, result)
        attempt.parts.append(Part(key, result, offsets, offset))
        attempt.count += len(result.messages)
        if header.order:
            topic, group, queue_id = key
            counts = self._state.orders.popped(
                key, header.attempt_id, attempt.pop_time, header.invisible_time, offsets)
            mark = retry_mark(topic)
            attempt.order_counts += [f"{mark} qo{queue_id}%{each} {count}"
                                     for each, count in counts.items()]
            least = min(counts.values()) if len(counts) == len(offsets) else 0
            attempt.order_counts.append(f"{mark} {queue_id} {least}")
            self._broker.consumer_offset.commit("pop", group, topic, queue_id, offset)

    def _offsets_of(self, key: QueueKey, offset: int, result: GetMessageResult) -> list[int]:
        """Return the queue offsets of the messages that were read."""
        topic, _, queue_id = key
        begin, end = QUEUE_OFFSET_POSITION, QUEUE_OFFSET_POSITION + 8
        if not is_light(topic):
            return [int.from_bytes(each[begin:end], "big") for each in result.messages]
        # A record contains its offset in the queue of its original topic.
        entries = self._broker.store.queues.entries(
            topic, queue_id, offset, result.next_begin_offset - offset)
        queue_offsets = {
            log_offset: offset + index for index, (log_offset, _, _) in enumerate(entries)}
        begin, end = PHYSICAL_OFFSET_POSITION, PHYSICAL_OFFSET_POSITION + 8
        return [queue_offsets[int.from_bytes(each[begin:end], "big")] for each in result.messages]

    # --- check points

    def cover(self, attempt: Attempt) -> None:
        """Create the check points of the messages that were taken.

        :raises BrokerError: when they cannot be stored; then no messages are taken.
        """
        if attempt.header.order:
            return
        state, header = self._state, attempt.header
        points: list[tuple[Part, CheckPoint]] = []
        log_end = self._broker.store.commit_log.max_offset
        for part in attempt.parts:
            topic, group, queue_id = part.key
            point = CheckPoint(
                PointKey(topic, group, queue_id, part.start_offset, attempt.pop_time,
                         self._broker.broker_name), part.offsets, header.invisible_time,
                log_end=log_end)
            points.append((part, point))
        is_kept = [state.accepts(part.key, point, attempt.pop_time) for part, point in points]
        records = [state.records.check_point(point, attempt.revive_queue)
                   for (_, point), kept in zip(points, is_kept, strict=True) if not kept]
        if records:
            # All or none are stored, so that a pop is never covered in part.
            for error in state.records.store(records, [0] * len(records)).values():
                raise error
        stored = iter(records)
        for (part, point), kept in zip(points, is_kept, strict=True):
            safe_from = None if kept else next(stored).next_offset
            taken_range: TakenRange = state.offsets.take(
                part.key, part.result.next_begin_offset, safe_from)
            if kept:
                state.buffer.add(point, attempt.revive_queue, taken_range, attempt.pop_time)

    # --- results

    def messages(self, attempt: Attempt) -> list[bytes]:
        """Return the taken messages in the form in which they are sent."""
        messages: list[bytes] = []
        for part in attempt.parts:
            if part.key[0] == attempt.header.topic or self._state.settings.actual_retry_topic:
                messages += part.result.messages
            else:
                messages += [self._under_its_topic(attempt, part, index)
                             for index in range(len(part.offsets))]
        return messages

    def _under_its_topic(self, attempt: Attempt, part: Part, index: int) -> bytes:
        """Return a retry under the name of its topic and with its receipt, as a client expects."""
        try:
            message = decode_record(part.result.messages[index])
        except StoreDamaged:
            # The client detects the damage, and still receives the other messages.
            return part.result.messages[index]
        properties = message.properties_map()
        receipt = Receipt(part.start_offset, attempt.pop_time, attempt.header.invisible_time,
                          attempt.revive_queue, self._broker.broker_name)
        properties.setdefault(names.POP_CK, receipt.text(
            message.topic, part.key[2], part.offsets[index]))
        record = record_again(message, properties)
        record.topic = attempt.header.topic
        record.properties = format_properties(properties)
        record.queue_offset = message.queue_offset
        record.physical_offset = message.physical_offset
        record.store_timestamp = message.store_timestamp
        return encode_record(record)
