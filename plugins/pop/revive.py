"""A queue of the revive topic: matches check points and acknowledgements, and retries the rest.

A popped message must come back if its consumer does not acknowledge it in time, even if the broker
crashed in between. A timer per message would need state on disk that is updated in place. Instead,
each pop writes a check point and each acknowledgement writes a message, and both are delivered to
the revive topic by the timers at about the time when the popped messages become visible again. This
class reads one queue of that topic in order and collects the acknowledgements of each open check
point. Once everything that was due before a check point's revive time has been read, the set of
acknowledgements is complete. The messages without one are stored in the group's retry topic. The
progress is an ordinary consumer offset of the revive group. It moves on only when the retries are
durable, so a crash can repeat retries but does not lose any.

Source: PopReviveService @5.3.3.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, MessageRecord, decode_record, format_properties
from twistmq.broker.api.errors import StoreDamaged, WireError
from twistmq.broker.api.wire import properties as names
from twistmq.broker.api.wire import record_again, whole_number
from twistmq.plugins.pop.check_point import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CK_TAG,
    CheckPoint,
    PointKey,
    decode_ack,
)
from twistmq.plugins.pop.names import REVIVE_GROUP, is_retry, normal_topic, pop_retry_topic
from twistmq.plugins.pop.rescue import rescue

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, StoredMessage
    from twistmq.plugins.pop.state import PopState

__all__ = ["ReviveQueue"]

#: The number of entries that are read at once.
_READ_COUNT: Final = 64
#: No more entries are read while this many check points are open.
_OPEN_MAX: Final = 20_000
#: The maximum number of messages stored again at once, and the number of bytes after which no more
#: are added.
_BATCH_COUNT: Final = 64
_BATCH_BYTES: Final = 1024 * 1024
#: The maximum number of check points that are completed at once.
_DONE_COUNT: Final = 256
#: An entry that was due this much later than a check point's messages became visible proves that
#: everything due before them has arrived in the revive topic, ms.
#: Source: PopReviveService.mergeAndRevive.
_SURE_MS: Final = 2000
#: Delays until a message that could not be stored is tried again, increasing each time, ms.
#: Source: PopReviveService.ckRewriteIntervalsInSeconds.
_AGAIN_MS: Final = tuple(seconds * 1000 for seconds in (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200))


class ReviveQueue:
    """One queue of the revive topic and the progress made in it."""

    log = Logger()

    def __init__(self, broker: Broker, state: PopState, queue_id: int) -> None:
        self._broker = broker
        self._state = state
        self.queue_id = queue_id
        self._topic = state.records.topic
        #: The next entry to read; None until the start offset is known.
        self._next: int | None = None
        self._open: OrderedDict[PointKey, CheckPoint] = OrderedDict()
        #: Acknowledgements that arrived before their check point, because timed messages are late:
        #: the messages they name, and the time at which these become visible, Unix ms.
        self._early: dict[PointKey, tuple[list[int], int]] = {}
        #: All messages that were due before this time are in the queue and were read; Unix ms.
        self._known_ms = 0
        #: A time before which all due messages were delivered, Unix ms, and the end of the log
        #: behind these deliveries; None: none waits to be readable.
        self._delivered: tuple[int, int] | None = None
        #: (required durable end of the commit log, consumer offset to commit then).
        self._unsaved: deque[tuple[int, int]] = deque()
        self._saved = -1
        #: The end of the retries stored last in the commit log.
        self._stored_to = 0
        self._is_failing = False

    @property
    def waits(self) -> bool:
        """Whether finished work waits to become durable."""
        return bool(self._unsaved)

    @property
    def backlog(self) -> int:
        """The number of messages in the queue that are not processed yet; 0 if it is unknown."""
        if self._next is None:
            return 0
        return max(self._end() - self._done() - 1, 0)

    def late_ms(self, now_ms: int) -> int:
        """Return how long the first open check point is overdue, ms."""
        first = next(iter(self._open.values()), None)
        if first is not None:
            due_ms = first.revive_time
        elif self._next is not None and self._next < self._end():
            due_ms = self._broker.store.reader.store_time(self._topic, self.queue_id, self._next)
        else:
            return 0
        return max(now_ms - due_ms, 0) if due_ms > 0 else 0

    def reset(self) -> None:
        """Forget everything, because another broker may have continued the work in this queue."""
        self._next = None
        self._open.clear()
        self._early.clear()
        self._unsaved.clear()
        self._known_ms = 0
        self._delivered = None

    # --- reading

    def step(self) -> bool:
        """Read some entries and store some retries; :returns: whether more can be done now."""
        has_read = self._read()
        has_revived = self._revive()
        self._note_progress()
        return has_read or has_revived

    def _begin(self) -> int:
        """Return the offset after the last entry that the previous broker finished."""
        saved = self._broker.consumer_offset.query(REVIVE_GROUP, self._topic, self.queue_id)
        # The saved offset names the last finished message, not the next one.
        offset = self._corrected(saved + 1)
        self._saved = offset - 1
        return offset

    def _corrected(self, offset: int) -> int:
        """Return where to continue if an offset is outside the queue; no message is skipped."""
        queues = self._broker.store.queues
        min_offset = queues.min_offset(self._topic, self.queue_id)
        max_offset = queues.max_offset(self._topic, self.queue_id)
        if offset < min_offset:
            self.log.error("{count} messages of {topic}-{queue_id} were removed before they were "
                           "read: the popped messages that they name are not delivered again. "
                           "Reading continues at {least}, the beginning, instead of {offset}",
                           count=min_offset - offset, topic=self._topic, queue_id=self.queue_id,
                           least=min_offset, offset=offset)
            return min_offset
        if offset > max_offset:
            self.log.error("{topic}-{queue_id} is read from its beginning at {least}, {count} "
                           "messages: the saved offset {offset} is beyond its end, which is {most}",
                           topic=self._topic, queue_id=self.queue_id, least=min_offset,
                           count=max_offset - min_offset, offset=offset, most=max_offset)
            return min_offset
        return offset

    def _read(self) -> bool:
        """Read the next entries; :returns: whether there were any."""
        store = self._broker.store
        if self._next is None:
            self._next = self._begin()
        if len(self._open) >= _OPEN_MAX:
            return False
        # Taken before reading: messages delivered during the read are due later than this.
        delivered_ms = self._readable_ms()
        offset = self._corrected(self._next)
        entries = store.queues.entries(self._topic, self.queue_id, offset, _READ_COUNT)
        for log_offset, size, _ in entries:
            data = store.look_message(log_offset)
            try:
                if data is None:
                    raise WireError("it is not in the commit log")
                self._take(decode_record(data), offset)
            except BrokerError as error:
                self._take_damaged(log_offset, size, offset, error)
            offset += 1
        self._next = offset
        if offset >= store.queues.max_offset(self._topic, self.queue_id):
            self._known_ms = max(self._known_ms, delivered_ms)
        if self._early:
            self._forget_early()
        return bool(entries)

    def _readable_ms(self) -> int:
        """Return a time before which all due messages were delivered and are readable, Unix ms.

        Where replicas have a say, a delivery is readable a moment after it was stored.

        :returns: 0 while they are not readable yet.
        """
        store = self._broker.store
        if self._delivered is None:
            self._delivered = self._state.delivered_ms(), store.commit_log.max_offset
        delivered_ms, end = self._delivered
        if store.dispatch.offset < end:
            return 0
        self._delivered = None
        return delivered_ms

    def _take(self, message: StoredMessage, offset: int) -> None:
        """:raises WireError: when the message is not valid."""
        properties = message.properties_map()
        due_ms = whole_number(properties.get(names.TIMER_DELIVER_MS, "")) or 0
        self._take_body(properties.get(names.TAGS), message.body, offset, due_ms)
        self._known_ms = max(self._known_ms, min(due_ms, message.store_timestamp) - _SURE_MS)

    def _take_body(self, tag: str | None, body: bytes, offset: int, due_ms: int) -> None:
        """:raises WireError: when the body is not valid."""
        name = self._broker.broker_name
        if tag == CK_TAG:
            self._take_point(CheckPoint.decode(body, name), offset)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            ack = decode_ack(body, name, tag == BATCH_ACK_TAG)
            self._state.counts.count_read(ack.key, "ACK", self.queue_id)
            point = self._open.get(ack.key)
            if point is not None:
                self._acknowledge(point, ack.offsets)
            elif due_ms >= self._known_ms and len(self._early) < _OPEN_MAX:
                self._early.setdefault(ack.key, ([], due_ms))[0].extend(ack.offsets)
        else:
            raise WireError(f"a revive topic has no messages with the tag {tag!r}")

    def _take_point(self, point: CheckPoint, offset: int) -> None:
        point.revive_offset = offset
        # A check point that arrives twice after a crash keeps the acknowledgements of the first.
        self._open.setdefault(point.key, point)
        self._state.counts.count_read(point.key, "CK", self.queue_id)
        early = self._early.pop(point.key, None)
        if early is not None:
            self._acknowledge(point, early[0])

    def _take_damaged(
        self, log_offset: int, size: int, offset: int, error: BrokerError
    ) -> None:
        """Recover the readable parts of a damaged record, and log the losses."""
        rescued = rescue(self._broker, self._topic, log_offset, size)
        self.log.error("message {offset} of {topic}-{queue_id}, at {place} of the commit log, is "
                       "damaged: {error}; {text}", offset=offset, topic=self._topic,
                       queue_id=self.queue_id, place=log_offset, error=str(error),
                       text=rescued.text)
        try:
            for tag, body in rescued.bodies:
                self._take_body(tag, body, offset, self._known_ms)
        except WireError as fault:
            self.log.error("message {offset} of {topic}-{queue_id} has no valid content: {error}",
                           offset=offset, topic=self._topic, queue_id=self.queue_id,
                           error=str(fault))
        if rescued.point is not None:
            self._take_point(rescued.point, offset)

    @staticmethod
    def _acknowledge(point: CheckPoint, offsets: Iterable[int]) -> None:
        for offset in offsets:
            point.acknowledge(offset)

    def _forget_early(self) -> None:
        """Forget acknowledgements whose check point will not arrive."""
        for key in [key for key, (_, due_ms) in self._early.items() if due_ms < self._known_ms]:
            del self._early[key]

    # --- storing retries

    def _revive(self) -> bool:
        """Store the retries that are due; :returns: whether there may be more."""
        records: list[MessageRecord] = []
        owners: list[tuple[CheckPoint, int]] = []
        done: list[CheckPoint] = []
        size = 0
        for point in self._open.values():
            # The check points become visible approximately in the order of the queue.
            if point.revive_time >= self._known_ms:
                break
            if len(records) >= _BATCH_COUNT or size >= _BATCH_BYTES or len(done) >= _DONE_COUNT:
                break
            for offset in point.open_offsets():
                record = self._retry_record(point, offset)
                if record is not None:
                    records.append(record)
                    owners.append((point, offset))
                    size += len(record.body)
            done.append(point)
        if not done:
            return False
        if records and not self._store(records, owners):
            return False
        for point in done:
            del self._open[point.key]
        return True

    def _retry_record(self, point: CheckPoint, offset: int) -> MessageRecord | None:
        """Return the retry of a message; None if the message is gone or no group should get it."""
        broker, key = self._broker, point.key
        normal = normal_topic(key.topic, key.group)
        log_offset = broker.store.queues.commit_log_offset(key.topic, key.queue_id, offset)
        # A broker for which this one stands in has a different commit log.
        is_younger = 0 <= point.log_end <= log_offset and key.broker_name == broker.broker_name
        data = None if log_offset < 0 or is_younger else broker.store.look_message(log_offset)
        if data is None and not is_younger and log_offset >= broker.store.commit_log.min_offset:
            self.log.error("message {offset} of {topic}-{queue_id} at {place} of the commit log is "
                           "damaged and is not delivered to {group} again: no record begins "
                           "there",
                           offset=offset, topic=key.topic, queue_id=key.queue_id, place=log_offset,
                           group=key.group)
            return None
        if data is None:
            self.log.info("message {offset} of {topic}-{queue_id} no longer exists and is not "
                          "delivered to {group} again", offset=offset, topic=key.topic,
                          queue_id=key.queue_id, group=key.group)
            return None
        # A topic whose configuration was lost when the broker was killed still has its queues.
        topics = broker.store.queues.ids_by_topic()
        if (broker.topic_config.get(normal) is None and normal not in topics) or (
                broker.subscription_group.find(key.group) is None):
            self.log.warn("topic {topic} or group {group} no longer exists: its popped messages "
                          "are not revived", topic=normal, group=key.group)
            return None
        try:
            message = decode_record(data)
        except StoreDamaged as error:
            # Differs from Apache, which stores a copy in which the damage cannot be detected.
            self.log.error("message {offset} of {topic}-{queue_id} at {place} of the commit log is "
                           "damaged and is not delivered to {group} again: {error}", offset=offset,
                           topic=key.topic, queue_id=key.queue_id, place=log_offset,
                           group=key.group, error=str(error))
            return None
        properties = message.properties_map()
        # Differs from Apache, which delays the retry of such a message again.
        properties.pop(names.DELAY, None)
        if message.reconsume_times == 0:
            properties.pop(names.FIRST_POP_TIME, None)
        properties.setdefault(names.FIRST_POP_TIME, str(key.pop_time))
        record = record_again(message, properties)
        record.properties = format_properties(properties)
        record.topic = key.topic if is_retry(key.topic) else pop_retry_topic(
            key.topic, key.group, self._state.settings.retry_v2)
        record.queue_id = 0
        record.born_host = record.store_host = broker.store_host
        record.reconsume_times = min(record.reconsume_times + 1, 2**31 - 1)
        record.prepared_transaction_offset = 0
        return record

    def _store(
        self, records: list[MessageRecord], owners: list[tuple[CheckPoint, int]]
    ) -> bool:
        """Store retries; :returns: False when they have to be stored later."""
        broker, state = self._broker, self._state
        refusals: dict[int, BrokerError] = {}
        for index, (record, (point, _)) in enumerate(zip(records, owners, strict=True)):
            try:
                state.make_retry_topic(record.topic, point.key.group)
            except BrokerError as error:
                refusals[index] = error
        indexes = [index for index in range(len(records)) if index not in refusals]
        for number, refusal in broker.append([records[index] for index in indexes]).items():
            refusals[indexes[number]] = refusal
        for index, (point, _) in enumerate(owners):
            state.counts.retry(point.key, refusals.get(index))
        if len(refusals) == len(records) and any(each.retriable for each in refusals.values()):
            # A full disk refuses every message, so none of them was stored.
            return self._must_wait(next(iter(refusals.values())))
        self._is_failing = False
        for index, (record, (point, offset)) in enumerate(zip(records, owners, strict=True)):
            if index in refusals:
                self._put_again(point, offset, refusals[index])
                continue
            self._stored_to = max(self._stored_to, record.next_offset)
            key = point.key
            state.in_flight.remove((key.topic, key.group, key.queue_id), 1, key.pop_time)
        broker.stats.messages_put(
            [record for index, record in enumerate(records) if index not in refusals])
        for topic, group in {(normal_topic(point.key.topic, point.key.group), point.key.group)
                             for point, _ in owners}:
            state.hold.wake_any(topic, group)
            state.notified.wake_any(topic, group)
        return True

    def _must_wait(self, error: BrokerError) -> bool:
        if not self._is_failing:
            self.log.error("popped messages that were not acknowledged cannot be stored again: "
                           "{error}",
                           error=str(error))
        self._is_failing = True
        return False

    def _put_again(self, point: CheckPoint, offset: int, error: BrokerError) -> None:
        """Store a new check point for a message whose retry cannot be stored now.

        Differs from Apache, where the new time of a message that became visible long ago is over
        at once.
        """
        broker, times = self._broker, point.put_times
        if times >= len(_AGAIN_MS) and broker.settings.flag("skipWhenCKRePutReachMaxTimes"):
            self.log.error("message {offset} of {key} is given up: {error}", offset=offset,
                           key=point.key, error=str(error))
            return
        visible_ms = broker.now_ms() + _AGAIN_MS[min(times, len(_AGAIN_MS) - 1)]
        again = CheckPoint(point.key._replace(start_offset=offset), [offset],
                           visible_ms - point.key.pop_time, times + 1, point.log_end)
        record = self._state.records.check_point(again, self.queue_id)
        for refusal in self._state.records.store([record]).values():
            self.log.error("message {offset} of {key} is lost to its group: {error}",
                           offset=offset, key=point.key, error=str(refusal))
            return
        self._stored_to = max(self._stored_to, record.next_offset)
        self.log.warn("message {offset} of {key} cannot be revived and will be tried again: "
                      "{error}",
                      offset=offset,
                      key=point.key, error=str(error))

    # --- progress

    def _end(self) -> int:
        return self._broker.store.queues.max_offset(self._topic, self.queue_id)

    def _done(self) -> int:
        """Return the offset of the last entry that is finished."""
        assert self._next is not None
        first = next(iter(self._open.values()), None)
        return (self._next if first is None else first.revive_offset) - 1

    def _note_progress(self) -> None:
        done = self._done()
        if done > (self._unsaved[-1][1] if self._unsaved else self._saved):
            self._unsaved.append((self._stored_to, done))

    def save_settled(self) -> None:
        """Commit the finished and settled progress as a consumer offset."""
        settled = self._broker.store.settled_offset
        done = -1
        while self._unsaved and self._unsaved[0][0] <= settled:
            done = self._unsaved.popleft()[1]
        if done >= 0:
            self._saved = done
            self._broker.consumer_offset.commit(
                self._broker.broker_address, REVIVE_GROUP, self._topic, self.queue_id, done)
