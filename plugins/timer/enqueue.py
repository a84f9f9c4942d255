"""Enters messages from the timer topic into the timer log and the timer wheel.

A timed message is stored in the timer topic first, like any other message, and only entered from
there into the wheel. A message and the recall of it can therefore be entered long after they were
stored. To keep a timely recall effective, a tick that is over is delivered only when all messages
stored until its end have been entered, however late that is.

The wheel covers a limited time. A message that is due further ahead than the roll window is entered
for half of the window, or all of it. When that time comes, it is stored in the timer topic once
more and entered again; this is called rolling.

Source: TimerMessageStore.enqueue, doEnqueue, TimerEnqueuePutService @5.3.3.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, MessageRecord, StoreError, decode_record
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.broker.api.wire import java_string_hash
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.timer.delivery import Delivery
from twistmq.plugins.timer.entered import UNKNOWN, is_in_log, offset_after_last
from twistmq.plugins.timer.log_unit import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT_SIZE,
    LogUnit,
)
from twistmq.plugins.timer.records import ENTERED_NEVER, due_ms_of, due_record

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, StoredMessage
    from twistmq.plugins.timer.delivered import Delivered
    from twistmq.plugins.timer.metrics import TimerMetrics
    from twistmq.plugins.timer.pending_recalls import PendingRecalls
    from twistmq.plugins.timer.slot_chooser import SlotChooser
    from twistmq.plugins.timer.timer_log import TimerLog
    from twistmq.plugins.timer.wheel import TimerWheel

__all__ = ["Enqueue"]

#: The number of messages that are entered together.
BATCH_COUNT: Final = 128


class Enqueue:
    """Enters the messages of one broker.

    :param delivered: the messages that other brokers have delivered.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, wheel: TimerWheel, timer_log: TimerLog, metrics: TimerMetrics,
        delivery: Delivery, rolling: SlotChooser, delivered: Delivered, recalls: PendingRecalls,
    ) -> None:
        self._broker = broker
        self._wheel = wheel
        self._timer_log = timer_log
        self._metrics = metrics
        self._delivery = delivery
        self._rolling = rolling
        self._delivered = delivered
        self._recalls = recalls
        #: Tick and key of the recalls of the batch that is being entered, as in ``recalls``.
        self._batch_recalls: set[tuple[int, str]] = set()
        #: The queue offset of the next message.
        self.offset = 0
        #: The tick that began most recently, Unix ms.
        self.write_ms = 0
        #: Ticks before this one are over and all of their messages are entered, Unix ms.
        self.ready_ms = 0
        #: (tick, queue offset): the tick is over, and messages before the offset must be entered.
        self._ends: deque[tuple[int, int]] = deque()
        #: Places of messages that are already in the log, though they are not before ``offset``.
        self.known_log_offsets: set[int] = set()
        #: Messages entered or delivered since the start.
        self.count = 0
        #: Messages that were already due and could not be stored.
        self._late: list[MessageRecord] = []
        self._is_failing = False
        #: Messages before this queue offset count as delivered if they were due before this time,
        #: Unix ms; and the number of such messages.
        self._passed_end = self._passed_ms = self._passed_count = 0
        #: The position of the first unit whose message the store has lost; None without one.
        self._lost_position: int | None = None
        #: Ticks before this one had been delivered at the start, Unix ms.
        self._saved_read_ms = 0

    @property
    def is_whole(self) -> bool:
        """Whether all messages before ``offset`` are finished."""
        return not self._late

    def begin(self, offset: int, known_log_offsets: set[int], read_ms: int, now_ms: int) -> None:
        """Continue after a start, or at an earlier progress.

        :param read_ms: ticks before this one are delivered.
        """
        self.offset = offset
        self.known_log_offsets = known_log_offsets
        self._late = []
        self.advance(now_ms)
        self._saved_read_ms = read_ms
        # The clock may have been set back since the last stop.
        self.ready_ms = min(read_ms, self.write_ms)
        # This must precede further stores, which could make the queue as long as the offset.
        self.correct_offset()
        self.forget_lost()

    def advance(self, now_ms: int) -> None:
        """Note which ticks are over; a clock that is set back has no effect."""
        tick_ms = self._wheel.floor_ms(now_ms)
        if tick_ms > self.write_ms:
            self.write_ms = tick_ms
            self._ends.append((tick_ms, self._broker.store.queues.max_offset(TIMER_TOPIC, 0)))

    def note_ready(self, *, is_stopped: bool = False) -> None:
        """Find out which ticks can be delivered.

        :param is_stopped: whether entering is switched off, so that no tick waits for it.
        """
        while self._ends and (is_stopped or self._ends[0][1] <= self.offset):
            self.ready_ms = max(self.ready_ms, self._ends.popleft()[0])

    @property
    def backlog(self) -> int:
        """The number of messages that wait to be entered."""
        return max(self._broker.store.queues.max_offset(TIMER_TOPIC, 0) - self.offset, 0)

    def step(self, now_ms: int) -> bool:
        """Enter a batch; :returns: whether there may be more messages."""
        if self._late:
            self.store_late()
            return not self._late
        topics: list[str] = []
        late: list[MessageRecord] = []
        units = self._enter(BATCH_COUNT, now_ms, topics, late)
        if units is None:
            return False
        for (_, unit), topic in zip(units, topics, strict=True):
            self._metrics.add(topic, unit.change)
        self._late = late
        self._late = self._delivery.append(late)
        return not self._late

    def store_late(self) -> None:
        """Store the messages that were already due."""
        self._late = self._delivery.append(self._late)

    def follow(self, end: int, now_ms: int) -> bool:
        """Enter a batch of messages that the master has entered; the master delivered the due ones.

        The counts of waiting messages are copied from the master separately.

        :param end: the queue offset before which the master has entered all messages.
        :returns: whether there may be more messages.
        """
        self._late = []
        self.write_ms = self._wheel.floor_ms(now_ms)
        count = min(BATCH_COUNT, end - self.offset)
        return count > 0 and self._enter(count, now_ms, [], []) is not None

    def go_on(self, now_ms: int) -> None:
        """Continue after this slave became a master: ticks before ``ready_ms`` are delivered."""
        self._ends.clear()
        self.write_ms = min(self.write_ms, self._wheel.floor_ms(now_ms) - self._wheel.tick_ms)
        self.advance(now_ms)

    def _enter(
        self, count: int, now_ms: int, topics: list[str], late: list[MessageRecord]
    ) -> list[tuple[int, LogUnit]] | None:
        """Enter messages into the log and the wheel.

        :param topics: receives the real topic of each unit.
        :param late: receives the records to store at once, because they are due now.
        :returns: position and unit of the messages that got one; None if there was nothing to
            enter, or if the log cannot be written.
        """
        self.correct_offset()
        self.forget_lost()
        entries = self._broker.store.queues.entries(TIMER_TOPIC, 0, self.offset, count)
        if not entries:
            return None
        self._batch_recalls.clear()
        units: list[tuple[int, LogUnit]] = []
        lasts: dict[int, int] = {}
        position = self._timer_log.next_position(self._timer_log.end)
        for queue_offset, (log_offset, size, _) in enumerate(entries, self.offset):
            if self.known_log_offsets and log_offset in self.known_log_offsets:
                self.known_log_offsets.discard(log_offset)
                continue
            try:
                unit = self._unit(log_offset, size, now_ms, topics, late)
            except BrokerError as error:
                self.log.error("message {offset} of {topic}-0, at {place} of the commit log, is "
                               "skipped: {error}", offset=queue_offset, topic=TIMER_TOPIC,
                               place=log_offset, error=str(error))
                continue
            if unit is not None:
                slot_ms = self._wheel.floor_ms(unit.slot_ms)
                previous = lasts.get(slot_ms, self._wheel.last_position(slot_ms))
                lasts[slot_ms] = position
                units.append((position, unit._replace(previous=previous)))
                position = self._timer_log.next_position(position + UNIT_SIZE)
        if not self._write(units):
            return None
        for position, unit in units:
            self._wheel.add(position, unit)
        for tick_ms, key in self._batch_recalls:
            self._recalls.add(tick_ms, key)
        self.count += len(entries)
        self.offset += len(entries)
        self._note_passed()
        return units

    def _unit(
        self, log_offset: int, size: int, now_ms: int, topics: list[str], late: list[MessageRecord]
    ) -> LogUnit | None:
        """Make the unit of a message, without its predecessor; None if the message gets no unit.

        :param topics: receives the message's real topic, if it gets a unit.
        :param late: receives the record to store, if it is due now.
        :raises BrokerError: when the message does not exist, or its properties are not valid.
        """
        data = self._broker.store.look_message(log_offset)
        if data is None or len(data) != size:
            raise StoreDamaged("it is not in the commit log")
        message = decode_record(data)
        properties = message.properties_map()
        due_ms = due_ms_of(properties)
        if self._passed_end and self._is_passed(message, due_ms):
            return None
        if due_ms < self.ready_ms:
            if names.TIMER_DEL_UNIQKEY not in properties:
                record = due_record(message, properties, ENTERED_NEVER, now_ms)
                record.queue_id = self._broker.topic_config.shown_queue(
                    record.topic, record.queue_id)
                if not self._delivered.has(message, properties, record):
                    late.append(record)
            return None
        magic = MAGIC_DEFAULT
        is_slave = self._broker.is_slave
        write_ms, ahead_ms, is_rolled = (
            self._rolling.of_slave(message, due_ms) if is_slave
            else self._rolling.of_master(self.write_ms, due_ms))
        if is_rolled:
            magic |= MAGIC_ROLL
            if is_slave and write_ms + ahead_ms < self.ready_ms:
                # The message was rolled already, and is in the timer topic again.
                return None
        key = properties.get(names.TIMER_DEL_UNIQKEY)
        if key is not None:
            magic |= MAGIC_DELETE
            recall = self._wheel.floor_ms(due_ms), key
            if self._recalls.has(*recall) or recall in self._batch_recalls:
                return None
            self._batch_recalls.add(recall)
        topic = properties.get(names.REAL_TOPIC, "")
        topics.append(topic)
        return LogUnit(-1, magic, write_ms, ahead_ms, log_offset, size, java_string_hash(topic))

    def _write(self, units: list[tuple[int, LogUnit]]) -> bool:
        """Write units to the log; a failure is logged once, and the write is tried again."""
        try:
            if units:
                self._timer_log.write(units)
        except StoreError as error:
            if not self._is_failing:
                self.log.warn("timed messages cannot be written to the timer log and will be tried "
                              "again: {error}", error=str(error))
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    def correct_offset(self) -> None:
        """Move an offset that lies outside of the queue into its range, without skipping a message.

        The queue may begin after the offset, because old messages were removed, or end before it;
        see ``entered``. The offset stays if the queue will reach it when the rest of the log is
        dispatched, because messages that are entered again are delivered twice. Otherwise
        :meth:`forget_lost` must follow before anything is entered or delivered.
        """
        store = self._broker.store
        min_offset = store.queues.min_offset(TIMER_TOPIC, 0)
        max_offset = store.queues.max_offset(TIMER_TOPIC, 0)
        if min_offset <= self.offset <= max_offset:
            return
        if self.offset < min_offset:
            self.log.error("{count} messages of {topic}-0 were removed before they were entered: "
                           "timed messages continue at {least}, where the queue begins, instead "
                           "of {offset}",
                           count=min_offset - self.offset, topic=TIMER_TOPIC, least=min_offset,
                           offset=self.offset)
            self.offset = min_offset
            return
        if is_in_log(store, self._timer_log, self.offset - 1):
            return
        next_offset, self._lost_position = offset_after_last(store, self._timer_log)
        corrected = max(min_offset, next_offset)
        if next_offset == UNKNOWN:
            # Nothing shows which messages were entered: due ones count as delivered up to the time
            # that was saved.
            self._passed_end, self._passed_count = max_offset, 0
            self._passed_ms = max(self._saved_read_ms, self.ready_ms)
        self.log.error("timed messages continue at {corrected}: the saved offset was {offset}, the "
                       "timer topic has {least} to {most}; {count} messages are entered again",
                       corrected=corrected, offset=self.offset, least=min_offset, most=max_offset,
                       count=max_offset - corrected)
        self.offset = corrected

    @property
    def has_lost(self) -> bool:
        """Whether :meth:`forget_lost` has work."""
        return self._lost_position is not None

    def forget_lost(self) -> None:
        """Forget the units of lost messages, which would deliver whatever takes their places.

        Blocks. No other thread may use the timer log.
        """
        position, self._lost_position = self._lost_position, None
        if position is None:
            return
        waiting = set(self._wheel.slots)
        self._wheel.forget()
        counts: Counter[int] = Counter()
        for at, unit in self._timer_log.units(self._timer_log.begin, position):
            if self._wheel.floor_ms(unit.slot_ms) in waiting:
                self._wheel.add(at, unit)
                counts[unit.topic_hash] += unit.change
        self._metrics.recount(counts)
        self._recalls.clear()
        self._timer_log.truncate(position)

    def _is_passed(self, message: StoredMessage, due_ms: int) -> bool:
        """Whether a message counts as delivered after the offset was corrected."""
        if message.queue_offset >= self._passed_end or due_ms >= self._passed_ms:
            return False
        self._passed_count += 1
        return True

    def _note_passed(self) -> None:
        """Log how many messages counted as delivered, once all of them are passed."""
        if self._passed_end and self.offset >= self._passed_end:
            self.log.error("{count} messages of {topic}-0 that were due before {ms} are not "
                           "delivered again: neither timer log nor check point mentions them",
                           count=self._passed_count, topic=TIMER_TOPIC, ms=self._passed_ms)
            self._passed_end = 0
