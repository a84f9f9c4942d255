"""The transaction service of one broker: it accepts half messages, ends and checks them.

The progress of the checks is stored as consumer offsets of the group CID_RMQ_SYS_TRANS in the half
topic and the op topic, as in Apache's store. An offset is committed only when nothing can undo the
progress: the copy of each passed half message must be settled.

Source: TransactionalMessageServiceImpl, TransactionalMessageBridge,
TransactionalMessageCheckService, TransactionalOpBatchService @5.3.3.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.api import ITransactionService, MessageRecord, Reply, ResponseCode
from twistmq.broker.api.requests import DeferredReply, SettledProgress
from twistmq.broker.api.topics import HALF_TOPIC, OP_HALF_TOPIC
from twistmq.broker.api.wire import properties as names
from twistmq.transaction.check import HalfQueue
from twistmq.transaction.half_message import make_half
from twistmq.transaction.metrics import TransactionMetrics
from twistmq.transaction.ops import OpBatches
from twistmq.transaction.questions import Questions
from twistmq.transaction.recent import RecentHalves

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, SendBatch
    from twistmq.transaction.end import End

__all__ = ["SYSTEM_GROUP", "TransactionService"]

#: The group whose offsets record the progress of checks. Source: MixAll.CID_SYS_RMQ_TRANS.
SYSTEM_GROUP: Final = "CID_RMQ_SYS_TRANS"
#: The number of remembered ends, so that a transaction ended twice is delivered once.
ENDED_COUNT: Final = 16_384


@implementer(ITransactionService)
class TransactionService:
    """The half messages of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.metrics = TransactionMetrics(broker)
        self.batches = OpBatches(broker)
        #: Half messages of the sends in progress, with their properties as text and parsed. Stored
        #: messages are counted, and kept for a while.
        self._prepared: dict[MessageRecord, tuple[str, dict[str, str]]] = {}
        #: Searched first for the half message when a transaction ends.
        self.recent = RecentHalves()
        #: (half queue, queue offset of the original half message) to the outcome.
        self._ended: OrderedDict[tuple[int, int], int] = OrderedDict()
        self.questions = Questions(broker)
        self._queues: dict[int, HalfQueue] = {}
        #: Queues whose check is running or still to come; None between two checks.
        self._checking: list[HalfQueue] | None = None
        #: The offsets of the checks, by topic and queue id.
        self._progress: SettledProgress[Mapping[tuple[str, int], int]] = SettledProgress(
            broker.store, {})
        broker.store.log_cut.on_cut.append(self._log_cut)

    # --- new half messages

    def prepare(self, record: MessageRecord, properties: Mapping[str, str]) -> None:
        fields = make_half(record, properties)
        self._prepared[record] = record.properties, fields

    def sends_handled(self, batch: SendBatch) -> None:
        """Count the half messages among a batch of sends that were stored or refused."""
        if not self._prepared:
            return
        prepared, self._prepared = self._prepared, {}
        counts: dict[str, int] = {}
        for records, answer in zip(batch.records, batch.replies, strict=True):
            reply = answer.reply if isinstance(answer, DeferredReply) else answer
            if isinstance(reply, Reply) and reply.code == ResponseCode.SUCCESS:
                for record in records:
                    if record not in prepared:
                        continue
                    text, fields = prepared[record]
                    topic = fields[names.REAL_TOPIC]
                    counts[topic] = counts.get(topic, 0) + 1
                    if record.properties == text and record.topic == HALF_TOPIC:
                        # No other plugin has changed the message.
                        self.recent.keep(record, fields)
        self.metrics.add(counts)

    # --- ends of transactions

    def how_ended(self, key: tuple[int, int]) -> int | None:
        """Return the outcome of a recent transaction: commit or rollback.

        :param key: the half queue, and the queue offset of the original half message.
        """
        return self._ended.get(key)

    def ended(self, ends: Iterable[End]) -> None:
        """Note that half messages were committed or rolled back and need no further checks."""
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        hows: list[tuple[str, int]] = []
        for key, offset, log_offset, topic, how, _ in ends:
            queue_id, origin = key
            self.recent.drop(log_offset)
            closed_offsets = offsets[queue_id]
            closed_offsets.append(offset)
            if offset != origin:
                closed_offsets.append(origin)
            hows.append((topic, how))
            self._ended[key] = how
        counts: Counter[str] = Counter()
        for (topic, how), count in Counter(hows).items():
            self.metrics.ends[topic, how] += count
            counts[topic] -= count
        while len(self._ended) > ENDED_COUNT:
            self._ended.popitem(last=False)
        for queue_id, closed_offsets in offsets.items():
            self.batches.add(queue_id, closed_offsets)
        self.metrics.add(counts)

    def write_ends(self, now_ms: int) -> None:
        """Write the waiting ends as op messages."""
        if not self._broker.is_slave:
            self.batches.write()

    # --- the check

    def period_ms(self) -> int:
        """Return the time until the check continues, or the next one begins."""
        if self._checking is not None:
            return 1
        return max(self._broker.settings.int("transactionCheckInterval"), 1)

    def step(self, now_ms: int) -> Deferred[None] | None:
        """Start or continue a check; at its end, wait until its results are durable."""
        broker = self._broker
        if broker.is_slave and not broker.delivers:
            self._forget_checks()
            return None
        checking = self._begin() if self._checking is None else self._checking
        # A check that raises is abandoned until the next one.
        self._checking = None
        while checking:
            has_more, waiting = checking[0].step(), checking[0].waiting
            if waiting is not None:
                return self._escaping(checking, waiting)
            if has_more:
                self._checking = checking
                return None
            checking.pop(0)
        progress = self.set_progress()
        if progress is None:
            return None
        # After a crash before the save, messages that were put back would be checked twice.
        return progress.addCallback(lambda _: broker.saves.save(broker.consumer_offset))

    def _forget_checks(self) -> None:
        """Forget how far the checks are; they continue at the committed offsets."""
        self._queues.clear()
        self.questions.clear()
        self._checking = None
        self._progress.reset({})

    def role_changed(self) -> None:
        """Leave the checks to the new master, even if this broker soon becomes a master again."""
        if self._broker.is_slave:
            self._forget_checks()

    def _log_cut(self) -> None:
        """Forget all half messages and ends that the log may no longer contain.

        A transaction whose end was removed is checked again.
        """
        self._forget_checks()
        self._ended.clear()
        self.recent.clear()
        self.batches.clear()

    def _escaping(self, checking: list[HalfQueue], waiting: Deferred[None]) -> Deferred[None]:
        """Continue after another broker's answer; the master may ask for progress at any time."""

        def answered(_: None) -> Deferred[None] | None:
            self._checking = checking
            return self.set_progress()

        return waiting.addCallback(answered)

    def _begin(self) -> list[HalfQueue]:
        """Start a check of every half queue."""
        config = self._broker.topic_config.get(HALF_TOPIC)
        queues = [self._queue(queue_id)
                  for queue_id in range(config.read_queue_nums if config else 0)]
        for queue in queues:
            queue.begin()
        return queues

    def _queue(self, queue_id: int) -> HalfQueue:
        queue = self._queues.get(queue_id)
        if queue is None:
            offset, op_offset = self._saved_offsets(queue_id)
            queue = self._queues[queue_id] = HalfQueue(
                self._broker, self.batches, self.metrics, self.questions, queue_id, offset,
                op_offset)
        return queue

    def _saved_offsets(self, queue_id: int) -> tuple[int, int]:
        """Return the saved offsets of a check in the half queue and in its op queue.

        They are corrected to the ranges of the queues. An offset beyond its queue belongs to
        another store: then both queues are read from the beginning, so that no half message is
        forgotten.
        """
        topics = (HALF_TOPIC, OP_HALF_TOPIC)
        queues = self._broker.store.queues
        saved = [self._broker.consumer_offset.query(SYSTEM_GROUP, topic, queue_id)
                 for topic in topics]
        is_of_another = any(offset > queues.max_offset(topic, queue_id)
                            for topic, offset in zip(topics, saved, strict=True))
        offsets = []
        for topic, offset in zip(topics, saved, strict=True):
            min_offset = queues.min_offset(topic, queue_id)
            offsets.append(min_offset if is_of_another else max(min_offset, offset))
            if offset not in (-1, offsets[-1]):
                what, count = (("gone", min_offset - offset) if offset < min_offset else
                               ("read again", queues.max_offset(topic, queue_id) - min_offset))
                self.log.error("checks of {topic}-{queue_id} continue at {offset}: the saved "
                               "offset was {saved}, the queue has {least} to {most}; {count} "
                               "messages are {what}",
                               topic=topic, queue_id=queue_id, offset=offsets[-1], saved=offset,
                               least=min_offset, most=queues.max_offset(topic, queue_id),
                               count=count, what=what)
        return offsets[0], offsets[1]

    def set_progress(self) -> Deferred[None] | None:
        """Flush the stored copies, and commit the offsets of the checks as far as they are settled.

        :returns: fires when this is done or failed; None if it was done at once.
        """
        offsets = {(topic, queue.queue_id): offset for queue in self._queues.values()
                   for topic, offset in ((HALF_TOPIC, queue.offset),
                                         (OP_HALF_TOPIC, queue.ops.consume(queue.offset)))}
        if not self._changed(offsets):
            return None
        self._progress.note(offsets)
        durable = self._broker.store.flush.flushed(
            self._broker.store.commit_log.max_offset) or succeed(None)
        return durable.addCallbacks(
            lambda _: self._set_offsets(self._changed(self._progress.settled)),
            lambda failure: self.log.error("the progress of transaction checks cannot be saved: "
                                           "{error}",
                                           error=failure.getErrorMessage()))

    def _changed(self, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return the offsets that are not committed yet."""
        table = self._broker.consumer_offset
        return {key: offset for key, offset in offsets.items()
                if table.query(SYSTEM_GROUP, *key) != offset}

    def _set_offsets(self, offsets: Mapping[tuple[str, int], int]) -> None:
        broker = self._broker
        for (topic, queue_id), offset in offsets.items():
            broker.consumer_offset.commit(
                broker.broker_address, SYSTEM_GROUP, topic, queue_id, offset)

    # --- stop

    def stop(self) -> Deferred[None] | None:
        """Write the pending ends and set the offsets of the checks, which the kernel saves."""
        if self._broker.is_slave:
            return None
        self.batches.write()
        self.metrics.save()
        return self.set_progress()
