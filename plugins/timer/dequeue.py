"""Delivers the slots of the wheel one after another, each when its tick is over.

The units of a slot form a chain, the newest first. The chain is first followed to its end, and then
the messages are stored in the order in which they arrived. This way all recalls of the slot are
known before the first message is stored.

Source: TimerMessageStore.dequeue, TimerDequeueGetMessageService, TimerDequeuePutMessageService
@5.3.3.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, MessageRecord, StoredMessage, decode_record
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.timer.log_unit import LogUnit
from twistmq.plugins.timer.records import delete_key, due_ms_of, due_record, rolled_record

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.timer.delivered import Delivered
    from twistmq.plugins.timer.delivery import Delivery
    from twistmq.plugins.timer.metrics import TimerMetrics
    from twistmq.plugins.timer.pending_recalls import PendingRecalls
    from twistmq.plugins.timer.timer_log import TimerLog
    from twistmq.plugins.timer.wheel import TimerWheel

__all__ = ["Dequeue"]

#: The number of messages that are stored together, and the size in bytes that ends a batch early.
BATCH_COUNT: Final = 64
BATCH_BYTES: Final = 4 * 1024 * 1024
#: The number of units of a chain that are read in one step.
_WALK_COUNT: Final = 256


class Dequeue:
    """Delivers the messages of one broker."""

    log = Logger()

    def __init__(
        self, broker: Broker, wheel: TimerWheel, timer_log: TimerLog, metrics: TimerMetrics,
        delivery: Delivery, delivered: Delivered, recalls: PendingRecalls,
    ) -> None:
        self._broker = broker
        self._wheel = wheel
        self._timer_log = timer_log
        self._metrics = metrics
        self._delivery = delivery
        self._delivered = delivered
        self._recalls = recalls
        self._done_ms = 0
        #: The number of slots that were delivered since the start, here or by another broker.
        self.finished_count = 0
        #: The slot that is being delivered; it yields whether to continue at once.
        self._work: Generator[bool, None, None] | None = None

    @property
    def read_ms(self) -> int:
        """Slots before this time have been delivered, Unix ms."""
        next_ms = self._wheel.next_ms
        return self._done_ms if next_ms is None else min(self._done_ms, next_ms)

    @property
    def is_within_slot(self) -> bool:
        """Whether the delivery of a slot has begun and is not finished."""
        return self._work is not None

    def has_due(self, ready_ms: int) -> bool:
        """Whether a slot is being delivered, or the next one is over; see :meth:`step`."""
        next_ms = self._wheel.next_ms
        return self._work is not None or (next_ms is not None and next_ms < ready_ms)

    def begin(self, read_ms: int) -> None:
        """Continue after a start."""
        self._done_ms = read_ms

    def begin_again(self) -> None:
        """Begin the slot that is being delivered again, because its chain has changed."""
        self._work = None

    def pass_to(self, read_ms: int) -> None:
        """Forget slots before a time, because another broker has delivered them."""
        self._work = None
        while (next_ms := self._wheel.next_ms) is not None and next_ms < read_ms:
            self._finish(next_ms)
        self._done_ms = read_ms

    def step(self, ready_ms: int) -> bool:
        """Do a part of the due work; :returns: whether more is left.

        :param ready_ms: ticks before this one are over and may be delivered.
        """
        next_ms = self._wheel.next_ms
        if self._work is None:
            if next_ms is None or next_ms >= ready_ms:
                self._done_ms = max(self._done_ms, ready_ms)
                return False
            self._work = self._slot(next_ms)
        try:
            return next(self._work)
        except StopIteration:
            self._work = None
            return True
        except BaseException:
            # The slot begins again; messages that it has already stored are delivered twice.
            self._work = None
            raise

    def _slot(self, time_ms: int) -> Generator[bool, None, None]:
        """Deliver a slot."""
        positions: array[int] = array("q")
        #: The keys of recalled messages.
        deletions: set[str] = set()
        #: For each real topic the number that the slot's units add to the waiting messages.
        counts: Counter[str] = Counter()
        for _ in self._walk(self._wheel.last_position(time_ms), positions, deletions, counts):
            yield True
        positions.reverse()
        begin = 0
        while begin < len(positions):
            records, begin = self._batch(positions, begin, deletions, counts)
            while records:
                records = self._delivery.append(records)
                if records:
                    yield False
            yield True
        # Counted only at the end, so that a slot that begins again is not counted twice.
        for topic, count in counts.items():
            if count and topic:
                self._metrics.add(topic, -count)
        self._finish(time_ms)
        if self._wheel.next_ms is None:
            self._metrics.nothing_waits()
        self._done_ms = max(self._done_ms, time_ms + self._wheel.tick_ms)

    def _finish(self, time_ms: int) -> None:
        """Note that a slot is finished."""
        self._wheel.finish(time_ms)
        self.finished_count += 1
        self._recalls.forget(time_ms)

    def _walk(
        self, position: int, positions: array[int], deletions: set[str], counts: Counter[str]
    ) -> Generator[None, None, None]:
        """Follow a chain; yields from time to time.

        :param positions: receives the positions of units of messages, the newest first.
        :param deletions: receives the keys that the other units recall; ``counts`` counts these
            units.
        """
        count = 0
        while position >= self._timer_log.begin and position >= 0:
            unit = self._timer_log.unit(position)
            if unit is None or unit.previous >= position:
                self.log.error("the timer log has no unit at {position}: earlier messages of its "
                               "slot are not delivered", position=position)
                return
            if not unit.takes_back:
                positions.append(position)
            else:
                topic = None
                try:
                    properties = self._message(unit).properties_map()
                    topic = properties.get(names.REAL_TOPIC, "")
                    deletions.add(properties[names.TIMER_DEL_UNIQKEY])
                except (BrokerError, KeyError) as error:
                    self.log.error("the recall message of {topic}-0 at {place} of the commit log "
                                   "recalls nothing: {error}", topic=TIMER_TOPIC,
                                   place=unit.log_offset, error=str(error))
                counts[self._counted_as(topic, unit)] += unit.change
            position = unit.previous
            count += 1
            if count % _WALK_COUNT == 0:
                yield

    def _batch(
        self, positions: array[int], begin: int, deletions: set[str], counts: Counter[str]
    ) -> tuple[list[MessageRecord], int]:
        """Read the next messages.

        :param counts: counts them by topic, whether or not they are delivered.
        :returns: the records to store, and the index at which to continue.
        """
        records: list[MessageRecord] = []
        remaining_bytes = BATCH_BYTES
        end = min(begin + BATCH_COUNT, len(positions))
        for index in range(begin, end):
            unit = self._timer_log.unit(positions[index])
            assert unit is not None
            if records and unit.message_size > remaining_bytes:
                return records, index
            remaining_bytes -= unit.message_size
            topic = None
            try:
                message = self._message(unit)
                properties = message.properties_map()
                topic = properties.get(names.REAL_TOPIC, "")
                record = self._record(unit, message, properties, deletions)
                if record is not None and not self._delivered.has(message, properties, record):
                    records.append(record)
            except BrokerError as error:
                self.log.error("the timed message of {topic}-0 at {place} of the commit log cannot "
                               "be delivered: {error}", topic=TIMER_TOPIC, place=unit.log_offset,
                               error=str(error))
            counts[self._counted_as(topic, unit)] += unit.change
        return records, end

    def _record(
        self, unit: LogUnit, message: StoredMessage, properties: dict[str, str],
        deletions: set[str],
    ) -> MessageRecord | None:
        """Make the record to store; None when the message is not delivered.

        :param properties: the message's properties, parsed; changed to the ones of the record.
        :raises BrokerError: when they do not name the message's topic and queue.
        """
        topic, now_ms = properties.get(names.REAL_TOPIC, ""), self._broker.now_ms()
        if unit.is_rolled:
            recalled = properties.get(names.TIMER_DEL_UNIQKEY)
            if recalled is not None:
                self._recalls.discard(self._wheel.floor_ms(due_ms_of(properties)), recalled)
        elif deletions and delete_key(topic, properties.get(names.UNIQ_KEY, "")) in deletions:
            return None
        # This also applies to a message that goes on waiting: it would seem to be newer afterwards.
        if self._broker.topic_config.is_deleted(topic, unit.log_offset):
            self.log.info("the timed message at {place} is not delivered: its topic {topic} was "
                          "deleted", place=unit.log_offset, topic=topic)
            return None
        if unit.is_rolled:
            return rolled_record(message, properties, unit.write_ms, now_ms)
        record = due_record(message, properties, unit.write_ms, now_ms)
        record.queue_id = self._broker.topic_config.shown_queue(topic, record.queue_id)
        return record

    def _counted_as(self, topic: str | None, unit: LogUnit) -> str:
        """The topic under which a unit was counted; :param topic: None if it cannot be read."""
        return self._metrics.topic_of(unit.topic_hash) if topic is None else topic

    def _message(self, unit: LogUnit) -> StoredMessage:
        """:raises StoreDamaged: when the message does not exist."""
        data = self._broker.store.look_message(unit.log_offset)
        if data is None or len(data) != unit.message_size:
            raise StoreDamaged("it is not in the commit log")
        return decode_record(data)
