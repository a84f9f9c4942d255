"""Delivers delayed messages and keeps an offset for each delay level.

A delayed message has to wait in the store until its time comes, and the broker must find the due
messages without looking at all the waiting ones. Each level therefore has its own queue in the
schedule topic. All messages of one queue wait equally long, so they are due in the order in which
they were stored, and a look at a queue can stop at the first message that is not due. The tags code
of a queue entry holds the time at which its message is due.

The progress of a level is its next queue offset. It is saved only once the delivered messages are
settled, so that neither a loss of power nor another master can remove a message that the saved
offset already counts. After a crash a message may be delivered twice, but no message is lost.

Source: ScheduleMessageService, DeliverDelayedMessageTimerTask, RunningStats @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import (
    BrokerError,
    MessageRecord,
    ResponseCode,
    StoreError,
    decode_record,
    format_properties,
    parse_properties,
)
from twistmq.broker.api.bodies import DataVersion, DelayOffsetSerializeWrapper
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.observe import Outage
from twistmq.broker.api.requests import SettledProgress
from twistmq.broker.api.topics import SCHEDULE_TOPIC
from twistmq.broker.api.wire import indexes_with
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.schedule.delivered import Delivered
from twistmq.plugins.schedule.levels import DelayLevels
from twistmq.plugins.schedule.records import (
    DELAY_MARK,
    delay_level,
    delay_record,
    due_record,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twistmq.broker.api import Broker

__all__ = ["ScheduleService"]

#: The time between two looks at the levels, ms.
#: Source: ScheduleMessageService.DELAY_FOR_A_WHILE is 100.
LOOK_PERIOD_MS: Final = 50
#: The number of messages of one level in a batch, and the size in bytes that ends a batch early.
BATCH_COUNT: Final = 64
BATCH_BYTES: Final = 4 * 1024 * 1024
#: The time from a failure to store messages on other brokers to the next attempt, ms.
_AGAIN_MS: Final = 1000
#: The data version is incremented once per this number of deliveries.
#: Source: delayOffsetUpdateVersionStep.
VERSION_STEP: Final = 200


class ScheduleService:
    """The delayed messages of one broker.

    :raises SettingsError: when messageDelayLevel is not valid.
    """

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.levels = DelayLevels(broker.settings.text("messageDelayLevel"))
        #: The next queue offset of each level.
        self.offsets: dict[int, int] = {}
        self.data_version = DataVersion(timestamp=broker.now_ms())
        self._progress: SettledProgress[dict[int, int]] = SettledProgress(broker.store, {})
        broker.store.log_cut.on_cut.append(self._go_back)
        self._file = broker.store.config_file("delayOffset.json")
        self._outage = Outage()
        #: For each level the queue offsets that were delivered beyond the next queue offset.
        self._ahead: dict[int, set[int]] = {}
        self._delivered = 0
        #: The deliveries of a master that this broker followed, and whether it follows one now.
        self._by_master = Delivered(broker.store)
        self._follows = False
        #: Whether the records that are appended at the moment are due.
        self._delivering = False
        self._has_more = False
        #: Levels whose last delivery failed. A failure is logged only once.
        self._failing: set[int] = set()
        #: Levels whose due messages are being stored on other brokers, and for levels where that
        #: failed the time of the next attempt, ms on the clock for durations.
        self._escaping: set[int] = set()
        self._again_ms: dict[int, int] = {}
        #: The offset of dispatch at the last round if no message was due then, otherwise -1.
        self._seen_end = -1
        #: The time at which the next message is due, Unix ms; None if no message waits.
        self._next_due_ms: int | None = None

    # --- into the schedule topic

    def before_append(self, records: Sequence[MessageRecord]) -> dict[int, BrokerError] | None:
        """Redirect delayed records to the schedule topic; :returns: the refusals."""
        if self._delivering:
            return None
        refusals: dict[int, BrokerError] = {}
        for index in indexes_with(records, DELAY_MARK):
            try:
                delay_record(records[index], self.levels.max_level)
            except BrokerError as error:
                refusals[index] = error
        return refusals

    def tags_code(self, record: MessageRecord) -> int:
        """Return the time at which a record of the schedule topic is due, Unix ms."""
        try:
            level = delay_level(parse_properties(record.properties))
        except BrokerError:
            level = 0
        if level <= 0:
            # This is not a delayed message; its queue determines how long it waits.
            level = record.queue_id + 1
        return self.levels.due_ms(level, record.store_timestamp)

    # --- out of the schedule topic

    def look_period_ms(self) -> int:
        """Return the time until the next round, which is short while due messages remain."""
        return 1 if self._has_more else LOOK_PERIOD_MS

    def rest_ms(self) -> int | None:
        """Return how long :meth:`deliver` has nothing to do unless something happens, ms.

        :returns: 0 when it has work; None while no message waits.
        """
        broker = self._broker
        if not broker.delivers:
            return None
        if self._follows or self._seen_end != broker.store.dispatch.offset:
            return 0
        next_ms = self._next_due_ms
        return None if next_ms is None else max(next_ms - broker.now_ms(), 0)

    def deliver(self, now_ms: int) -> None:
        """Deliver the messages that are due, at most one batch of each level."""
        self._has_more = False
        self._seen_end, self._next_due_ms = -1, None
        if not self._broker.delivers:
            return
        if self._follows:
            self._follows = False
            self._by_master.look_for(
                {level: self._corrected_offset(level) for level in self.levels.lengths_ms}, now_ms)
        if self._by_master.look_on():
            self._has_more = True
            return
        seen_end = self._broker.store.dispatch.offset
        for level in self.levels.lengths_ms:
            if level in self._escaping or self._deliver_level(level, now_ms):
                seen_end = -1
        self._seen_end = seen_end

    def _deliver_level(self, level: int, now_ms: int) -> bool:
        """Deliver a batch of a level; :returns: whether any message was due."""
        offset = self._corrected_offset(level)
        if offset == self._broker.store.queues.max_offset(SCHEDULE_TOPIC, level - 1):
            return False
        due, next_offset = self._due(level, offset, now_ms)
        if next_offset == offset:
            return False
        # Messages that need no delivery cost no time, so the next round may follow at once.
        self._has_more |= not due
        if self._broker.is_slave:
            self._escape(level, offset, due, next_offset)
        else:
            self._settle(level, due, next_offset, self._append([record for _, record in due]))
        return True

    def _escape(
        self, level: int, offset: int, due: list[tuple[int, MessageRecord]], next_offset: int
    ) -> None:
        """Store the due messages on other brokers, as a slave that stands in for its master."""
        escape, steady = self._broker.escape, self._broker.steady
        if escape is None or steady.now_ms() < self._again_ms.get(level, 0):
            return
        records = [record for _, record in due]
        for record in records:
            # The broker that stores the message must not delay it again.
            properties = parse_properties(record.properties)
            properties.pop(names.DELAY, None)
            record.properties = format_properties(properties)
        self._escaping.add(level)

        def done(refusals: dict[int, BrokerError]) -> None:
            self._escaping.discard(level)
            if refusals:
                self._again_ms[level] = steady.now_ms() + _AGAIN_MS
            # A master that returned in the meantime may have reported a different offset.
            if self.offsets.get(level, 0) == offset:
                self._settle(level, due, next_offset, refusals)

        def failed(failure: Failure) -> None:
            self._escaping.discard(level)
            self.log.failure("delayed messages cannot be stored on other brokers", failure)

        escape(records).addCallback(done).addErrback(failed)

    def _settle(
        self, level: int, due: Sequence[tuple[int, MessageRecord]], next_offset: int,
        refusals: dict[int, BrokerError],
    ) -> None:
        """Record which messages were delivered and which ones have to be tried again."""
        retried = [due[index][0] for index, error in refusals.items() if not _is_final(error)]
        self._log_refusals(level, due, refusals, bool(retried))
        ahead = self._ahead.setdefault(level, set())
        if retried:
            ahead.update(queue_offset for index, (queue_offset, _) in enumerate(due)
                         if queue_offset not in retried and queue_offset > retried[0])
            next_offset = retried[0]
        else:
            self._has_more |= len(due) == BATCH_COUNT
        self._ahead[level] = {each for each in ahead if each >= next_offset}
        self._set_offset(level, next_offset)

    def _corrected_offset(self, level: int) -> int:
        """Return the saved offset of a level, corrected to the range of its queue."""
        offset = self.offsets.get(level, 0)
        store, queue_id = self._broker.store, level - 1
        min_offset = store.queues.min_offset(SCHEDULE_TOPIC, queue_id)
        max_offset = store.queues.max_offset(SCHEDULE_TOPIC, queue_id)
        if min_offset <= offset <= max_offset:
            return offset
        corrected = min_offset if offset < min_offset else (
            self._first_waiting(level, min_offset, max_offset))
        if corrected != offset:
            what, count = (
                ("removed before they were due", min_offset - offset) if offset < min_offset else
                ("not due yet and wait again", max_offset - corrected))
            self.log.error("delay level {number} continues at {corrected}: the saved offset was "
                           "{offset}, its queue has {least} to {most}; {count} messages are {what}",
                           number=level, corrected=corrected, offset=offset, least=min_offset,
                           most=max_offset, count=count, what=what)
            self._set_offset(level, corrected)
        return corrected

    def _first_waiting(self, level: int, least: int, end: int) -> int:
        """Find the first message of a level that is not due, and so cannot have been delivered.

        A saved offset lies beyond the end of the queue when the store was replaced by an older copy
        or by a new store. All messages of a queue wait equally long, so they are due in the order
        of the queue. Differs from Apache, which continues at the end of the queue.

        :returns: the queue offset of that message, or ``end`` when all messages are due.
        """
        store, now_ms = self._broker.store, self._broker.now_ms()
        latest_ms = now_ms + self.levels.lengths_ms[level]
        first, last = least, end
        while first < last:
            middle = (first + last) // 2
            entries = store.queues.entries(SCHEDULE_TOPIC, level - 1, middle, 1)
            if entries and now_ms < entries[0][2] <= latest_ms:
                last = middle
            else:
                first = middle + 1
        return first

    def _due(
        self, level: int, offset: int, now_ms: int
    ) -> tuple[list[tuple[int, MessageRecord]], int]:
        """Read the messages of a level that are due.

        :returns: the queue offset and record of each, and the queue offset after the last one.
        """
        store = self._broker.store
        length_ms = self.levels.lengths_ms[level]
        ahead = self._ahead.get(level, ())
        due: list[tuple[int, MessageRecord]] = []
        remaining_bytes = BATCH_BYTES
        entries = store.queues.entries(SCHEDULE_TOPIC, level - 1, offset, BATCH_COUNT)
        for log_offset, size, due_ms in entries:
            # A message that is due later than its level allows was stored by a wrong clock.
            if now_ms < due_ms <= now_ms + length_ms or (due and size > remaining_bytes):
                self._next_due_ms = min(due_ms, self._next_due_ms or due_ms)
                break
            remaining_bytes -= size
            if offset not in ahead:
                try:
                    data = store.look_message(log_offset)
                    if data is None:
                        raise StoreDamaged("it is not in the commit log")
                    record = due_record(decode_record(data))
                    record.queue_id = self._broker.topic_config.shown_queue(
                        record.topic, record.queue_id)
                    if self._broker.topic_config.is_deleted(record.topic, log_offset):
                        self.log.info(
                            "message {offset} of delay level {number} is not delivered: its topic "
                            "{topic} was deleted", offset=offset, number=level, topic=record.topic)
                    elif self._by_master.has(level, offset, record):
                        self._ahead.setdefault(level, set()).add(offset)
                    else:
                        due.append((offset, record))
                except BrokerError as error:
                    self.log.error(
                        "message {offset} of {topic}-{queue_id}, of delay level {number}, at "
                        "{place} of the commit log, cannot be delivered: {error}", offset=offset,
                        topic=SCHEDULE_TOPIC, queue_id=level - 1, number=level, place=log_offset,
                        error=str(error))
            offset += 1
        return due, offset

    def _append(self, records: Sequence[MessageRecord]) -> dict[int, BrokerError]:
        if not records:
            return {}
        self._delivering = True
        try:
            refusals = self._broker.append(records)
        finally:
            self._delivering = False
        self._broker.stats.messages_put(
            [record for index, record in enumerate(records) if index not in refusals])
        return refusals

    def _log_refusals(
        self, level: int, due: Sequence[tuple[int, MessageRecord]],
        refusals: dict[int, BrokerError], is_failing: bool,
    ) -> None:
        """Log once that a level is blocked, and log each message that is given up."""
        for index, error in refusals.items():
            if _is_final(error):
                self.log.error("message {offset} of delay level {number} is given up: {error}",
                               offset=due[index][0], number=level, error=str(error))
            elif level not in self._failing:
                self.log.warn("delay level {number} is blocked at {offset} and will be tried "
                              "again: {error}",
                              number=level, offset=due[index][0], error=str(error))
                self._failing.add(level)
        if not is_failing:
            self._failing.discard(level)

    # --- the progress of each level

    def load(self) -> None:
        """Load the saved offsets; :raises StoreDamaged: when they cannot be read."""
        self._file.load_rows(DelayOffsetSerializeWrapper, self._take_saved)

    def _take_saved(self, saved: DelayOffsetSerializeWrapper, _: bytes) -> None:
        self.offsets.update(saved.offset_table)
        self._progress.reset(dict(self.offsets))
        if saved.data_version is not None:
            self.data_version.assign(saved.data_version)

    def take(self, body: bytes) -> None:
        """Adopt the offsets of this slave's master; the next save writes them to disk.

        :raises WireError: when the body cannot be decoded.
        """
        master_offsets = DelayOffsetSerializeWrapper.decode(body)
        self._follow(master_offsets.offset_table)
        if master_offsets.data_version is not None:
            self.data_version.assign(master_offsets.data_version)

    def _follow(self, offsets: Mapping[int, int]) -> None:
        """Continue at offsets after which more messages may have been delivered."""
        self.offsets = dict(offsets)
        self._progress.reset(dict(offsets))
        self._ahead.clear()
        self._follows = True

    def _go_back(self) -> None:
        """Return to the settled offsets after a cut, which may have removed deliveries."""
        self._follow(self._progress.settled)

    def take_back(self, body: bytes) -> None:
        """Adopt the offsets of a slave that stood in for this master, where they are higher.

        :raises WireError: when the body cannot be decoded.
        """
        slave_offsets = DelayOffsetSerializeWrapper.decode(body)
        for level, offset in slave_offsets.offset_table.items():
            self.offsets[level] = max(offset, self.offsets.get(level, 0))

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        """Return the offsets of all levels, as a slave receives them."""
        return DelayOffsetSerializeWrapper(
            self._progress.agreed_value(self.offsets), self.data_version)

    def save(self) -> Deferred[None] | None:
        """Flush the delivered messages, and save the offsets as far as they are settled."""
        self._progress.note(dict(self.offsets))
        durable = self._broker.store.flush.flushed(self._broker.store.commit_log.max_offset)
        if durable is None:
            self._write()
            return None
        return durable.addCallbacks(
            lambda _: self._write(),
            lambda failure: self._not_saved(failure.getErrorMessage()))

    def _write(self) -> None:
        settled = DelayOffsetSerializeWrapper(self._progress.settled, self.data_version)
        try:
            self._file.save(settled.encode_pretty().decode())
        except (StoreError, OSError) as error:
            self._not_saved(str(error))
        else:
            self._outage.ends()

    def _not_saved(self, error: str) -> None:
        if self._outage.begins():
            self.log.error("delayOffset.json cannot be saved: {error}", error=error)

    def _set_offset(self, level: int, offset: int) -> None:
        self.offsets[level] = offset
        self._progress.note(dict(self.offsets))
        self._delivered += 1
        if self._delivered % VERSION_STEP == 0:
            self.data_version.next_version(self._broker.now_ms())

    def runtime_info(self) -> dict[str, str]:
        """Return the offset of each level and the end of its queue, for the runtime table."""
        store = self._broker.store
        return {
            f"scheduleMessageOffset_{level}":
                f"{offset},{store.queues.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self.offsets.items()
        }


def _is_final(error: BrokerError) -> bool:
    """Whether a message can never be stored, as opposed to a failure that may pass."""
    return error.response_code == ResponseCode.MESSAGE_ILLEGAL
