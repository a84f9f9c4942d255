"""A queue of the revive topic: check points meet their acknowledgements, the rest is stored again.

Messages delivered there by timers are read in order. When all that was acknowledged before a
check point's messages became visible is known, those that were not are stored in the group's topic
of retries, and the consumer offset of the revive group follows once they are durable. After a
crash it goes on from there: what was stored again since comes again.

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
from twistmq.broker.api.wire import record_again
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

#: Entries that are read at once.
_READ_COUNT: Final = 64
#: Check points that are known and not done, from which on no more are read.
_OPEN_MAX: Final = 20_000
#: Messages that are stored again at once, and their bytes after which no more are.
_BATCH_COUNT: Final = 64
_BATCH_BYTES: Final = 1024 * 1024
#: Check points that are done with at once.
_DONE_COUNT: Final = 256
#: An entry of the revive topic tells that all before it is there, when it was due so much later
#: than a check point's messages became visible, ms. Source: PopReviveService.mergeAndRevive.
_SURE_MS: Final = 2000
#: When a message that could not be stored is tried again: each time later, ms.
#: Source: PopReviveService.ckRewriteIntervalsInSeconds.
_AGAIN_MS: Final = tuple(seconds * 1000 for seconds in (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200))


class ReviveQueue:
    """One queue and how far it is worked off."""

    log = Logger()

    def __init__(self, broker: Broker, state: PopState, queue_id: int) -> None:
        self._broker = broker
        self._state = state
        self.queue_id = queue_id
        self._topic = state.records.topic
        #: The next entry to read; None: it is not known yet where to begin.
        self._next: int | None = None
        self._open: OrderedDict[PointKey, CheckPoint] = OrderedDict()
        #: Acknowledgements that came before their check point did: while timed messages are behind.
        #: The message they name, and the time it becomes visible, Unix ms.
        self._early: dict[PointKey, tuple[list[int], int]] = {}
        #: Messages due before this time are in the queue, and read; Unix ms.
        self._known_ms = 0
        #: (where the log has to be durable to, consumer offset from then on).
        self._unsaved: deque[tuple[int, int]] = deque()
        self._saved = -1
        #: Up to here the log holds what was stored again.
        self._stored_to = 0
        self._is_failing = False

    @property
    def waits(self) -> bool:
        """Whether what is done has to become durable."""
        return bool(self._unsaved)

    @property
    def behind(self) -> int:
        """Messages of the queue that are not done with; 0: who knows."""
        if self._next is None:
            return 0
        return max(self._end() - self._done() - 1, 0)

    def late_ms(self, now_ms: int) -> int:
        """How long the first open check point is overdue, ms."""
        first = next(iter(self._open.values()), None)
        if first is not None:
            due_ms = first.revive_time
        elif self._next is not None and self._next < self._end():
            due_ms = self._broker.store.reader.store_time(self._topic, self.queue_id, self._next)
        else:
            return 0
        return max(now_ms - due_ms, 0) if due_ms > 0 else 0

    def reset(self) -> None:
        """Forget all: another broker may have gone on here meanwhile."""
        self._next = None
        self._open.clear()
        self._early.clear()
        self._unsaved.clear()
        self._known_ms = 0

    # --- reading

    def step(self) -> bool:
        """Read some, store some again; :returns: whether there is more to do now."""
        has_read = self._read()
        has_revived = self._revive()
        self._note_progress()
        return has_read or has_revived

    def _begin(self) -> int:
        """The offset behind the last one that the previous broker finished."""
        saved = self._broker.consumer_offset.query(REVIVE_GROUP, self._topic, self.queue_id)
        # It is the offset of the last message that is done, not of the next.
        offset = self._corrected(saved + 1)
        self._saved = offset - 1
        return offset

    def _corrected(self, offset: int) -> int:
        """Where to go on when an offset is not in the range of the queue; nothing is skipped."""
        queues = self._broker.store.queues
        least = queues.min_offset(self._topic, self.queue_id)
        most = queues.max_offset(self._topic, self.queue_id)
        if offset < least:
            self.log.error("{count} messages of {topic}-{queue_id} are gone before they were read: "
                           "popped messages that they name are not delivered again. It is read on "
                           "at {least}, where it begins, after {offset}", count=least - offset,
                           topic=self._topic, queue_id=self.queue_id, least=least, offset=offset)
            return least
        if offset > most:
            self.log.error("{topic}-{queue_id} is read from its beginning at {least}, {count} "
                           "messages: the saved offset {offset} is beyond its end, which is {most}",
                           topic=self._topic, queue_id=self.queue_id, least=least,
                           count=most - least, offset=offset, most=most)
            return least
        return offset

    def _read(self) -> bool:
        """Read the next entries; :returns: whether there were any."""
        store = self._broker.store
        if self._next is None:
            self._next = self._begin()
        if len(self._open) >= _OPEN_MAX:
            return False
        # Before it is read: what is delivered meanwhile is later than this.
        delivered_ms = self._state.delivered_ms()
        offset = self._corrected(self._next)
        entries = store.queues.entries(self._topic, self.queue_id, offset, _READ_COUNT)
        for place, size, _ in entries:
            data = store.look_message(place)
            try:
                if data is None:
                    raise WireError("it is not in the commit log")
                self._take(decode_record(data), offset)
            except BrokerError as error:
                self._take_damaged(place, size, offset, error)
            offset += 1
        self._next = offset
        if offset >= store.queues.max_offset(self._topic, self.queue_id):
            self._known_ms = max(self._known_ms, delivered_ms)
        if self._early:
            self._forget_early()
        return bool(entries)

    def _take(self, message: StoredMessage, offset: int) -> None:
        """:raises WireError: when a message has no meaning."""
        properties = message.properties_map()
        due_text = properties.get(names.TIMER_DELIVER_MS, "")
        due_ms = int(due_text) if due_text.isdecimal() and len(due_text) < 19 else 0
        self._take_body(properties.get(names.TAGS), message.body, offset, due_ms)
        self._known_ms = max(self._known_ms, min(due_ms, message.store_timestamp) - _SURE_MS)

    def _take_body(self, tag: str | None, body: bytes, offset: int, due_ms: int) -> None:
        """:raises WireError: when it has no meaning."""
        name = self._broker.broker_name
        if tag == CK_TAG:
            self._take_point(CheckPoint.decode(body, name), offset)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            ack = decode_ack(body, name, tag == BATCH_ACK_TAG)
            self._state.counts.got(ack.key, "ACK", self.queue_id)
            known = self._open.get(ack.key)
            if known is not None:
                self._acknowledge(known, ack.offsets)
            elif due_ms >= self._known_ms and len(self._early) < _OPEN_MAX:
                self._early.setdefault(ack.key, ([], due_ms))[0].extend(ack.offsets)
        else:
            raise WireError(f"its tag {tag!r} is not one of a revive topic")

    def _take_point(self, point: CheckPoint, offset: int) -> None:
        point.revive_offset = offset
        # One that comes twice, after a crash, has the acknowledgements of the first.
        self._open.setdefault(point.key, point)
        self._state.counts.got(point.key, "CK", self.queue_id)
        early = self._early.pop(point.key, None)
        if early is not None:
            self._acknowledge(point, early[0])

    def _take_damaged(
        self, place: int, size: int, offset: int, error: BrokerError
    ) -> None:
        """Take what can be known of a record that cannot be read, and say what is lost."""
        found = rescue(self._broker, self._topic, place, size)
        self.log.error("message {offset} of {topic}-{queue_id}, at {place} of the commit log, is "
                       "damaged: {error}; {text}", offset=offset, topic=self._topic,
                       queue_id=self.queue_id, place=place, error=str(error), text=found.text)
        try:
            for tag, body in found.bodies:
                self._take_body(tag, body, offset, self._known_ms)
        except WireError as fault:
            self.log.error("message {offset} of {topic}-{queue_id} says nothing: {error}",
                           offset=offset, topic=self._topic, queue_id=self.queue_id,
                           error=str(fault))
        if found.point is not None:
            self._take_point(found.point, offset)

    @staticmethod
    def _acknowledge(point: CheckPoint, offsets: Iterable[int]) -> None:
        for offset in offsets:
            point.acknowledge(offset)

    def _forget_early(self) -> None:
        """Forget acknowledgements whose check point is not going to come."""
        for key in [key for key, (_, due_ms) in self._early.items() if due_ms < self._known_ms]:
            del self._early[key]

    # --- storing again

    def _revive(self) -> bool:
        """Store again what is due; :returns: whether there may be more."""
        records: list[MessageRecord] = []
        owners: list[tuple[CheckPoint, int]] = []
        done: list[CheckPoint] = []
        size = 0
        for point in self._open.values():
            # They become visible in the order of the queue, nearly.
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
        """The retry of a message; None when it is gone, or no group is to get it."""
        broker, key = self._broker, point.key
        normal = normal_topic(key.topic, key.group)
        place = broker.store.queues.commit_log_offset(key.topic, key.queue_id, offset)
        # Another broker, which this one stands in for, has a log of its own.
        is_younger = 0 <= point.log_end <= place and key.broker_name == broker.broker_name
        data = None if place < 0 or is_younger else broker.store.look_message(place)
        if data is None and not is_younger and place >= broker.store.commit_log.min_offset:
            self.log.error("message {offset} of {topic}-{queue_id} at {place} of the commit log is "
                           "damaged, {group} does not get it again: no record begins there",
                           offset=offset, topic=key.topic, queue_id=key.queue_id, place=place,
                           group=key.group)
            return None
        if data is None:
            self.log.info("message {offset} of {topic}-{queue_id} is gone, {group} does not get it "
                          "again", offset=offset, topic=key.topic, queue_id=key.queue_id,
                          group=key.group)
            return None
        # A topic that a kill made forgotten has its queues.
        topics = broker.store.queues.ids_by_topic()
        if (broker.topic_config.get(normal) is None and normal not in topics) or (
                broker.subscription_group.find(key.group) is None):
            self.log.warn("topic {topic} or group {group} is gone: its popped messages are not "
                          "revived",
                          topic=normal, group=key.group)
            return None
        try:
            message = decode_record(data)
        except StoreDamaged as error:
            # Differs from Apache, which stores a copy: nobody could see that it is damaged.
            self.log.error("message {offset} of {topic}-{queue_id} at {place} of the commit log is "
                           "damaged, {group} does not get it again: {error}", offset=offset,
                           topic=key.topic, queue_id=key.queue_id, place=place, group=key.group,
                           error=str(error))
            return None
        properties = message.properties_map()
        # Differs from Apache, which delays such a message again.
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
        """Store retries; :returns: False when that has to wait."""
        broker, state = self._broker, self._state
        refusals: dict[int, BrokerError] = {}
        for index, (record, (point, _)) in enumerate(zip(records, owners, strict=True)):
            try:
                state.make_retry_topic(record.topic, point.key.group)
            except BrokerError as error:
                refusals[index] = error
        left = [index for index in range(len(records)) if index not in refusals]
        for number, refusal in broker.append([records[index] for index in left]).items():
            refusals[left[number]] = refusal
        for index, (point, _) in enumerate(owners):
            state.counts.retry(point.key, refusals.get(index))
        if len(refusals) == len(records) and any(each.retriable for each in refusals.values()):
            # A disk that is full is full for all: none of them is stored.
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
        """A message cannot be stored now: it gets a check point of its own, for later.

        Differs from Apache, where the time of a message that became visible long ago is over at
        once.
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

    # --- how far it has come

    def _end(self) -> int:
        return self._broker.store.queues.max_offset(self._topic, self.queue_id)

    def _done(self) -> int:
        """Offset of the last message that is done with."""
        assert self._next is not None
        first = next(iter(self._open.values()), None)
        return (self._next if first is None else first.revive_offset) - 1

    def _note_progress(self) -> None:
        done = self._done()
        if done > (self._unsaved[-1][1] if self._unsaved else self._saved):
            self._unsaved.append((self._stored_to, done))

    def save_durable(self) -> None:
        """Make a consumer offset of what is done and durable."""
        durable = self._broker.store.commit_log.flushed_offset
        done = -1
        while self._unsaved and self._unsaved[0][0] <= durable:
            done = self._unsaved.popleft()[1]
        if done >= 0:
            self._saved = done
            self._broker.consumer_offset.commit(
                self._broker.broker_address, REVIVE_GROUP, self._topic, self.queue_id, done)
