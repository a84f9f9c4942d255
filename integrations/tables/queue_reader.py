"""Pulls the messages of one range of offsets in a task and converts them to record batches.

The difficulty is to read fast and still to notice every message that is missing. Brokers return few
messages for each pull (32 by default, and 8 if they must be read from disk), so a reader that waits
for each response spends most of its time waiting. The reader therefore keeps several pulls in
flight, each for its own offsets, and learns from the responses how many messages the broker
returns. Responses are processed in the order of their offsets. If a response ends early, the
requests that follow it are dropped and sent again from the first missing offset, so no message is
skipped. If a subscription expression filters the messages, the end of a pull is unknown until its
response arrives, so only one pull is in flight.

A read of a range either delivers the same rows each time or fails, because Spark may run a task
again. After a failed request, the reader continues with the first offset that it has not received.

Source: PullAPIWrapper.processPullResult, MQPullConsumer @5.3.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import NoRoute, ProtocolError, Undecodable
from twistmq.client.base.messages import MessageQueue, PullResult, PullStatus
from twistmq.client.base.namespace import Namespace
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.blocking.client import Client
from twistmq.integrations.tables.availability import (
    BUSY_CODES,
    Availability,
    Deletions,
    Look,
    Patience,
    Verdict,
    is_denied,
    is_passing,
)
from twistmq.integrations.tables.columns import COLUMNS, Column
from twistmq.integrations.tables.connection import ClientSettings, offset_at
from twistmq.integrations.tables.damaged_records import parts_of, record_without_body
from twistmq.integrations.tables.data_loss import report_loss
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.logical_offsets import with_logical_offsets
from twistmq.integrations.tables.offsets import Mark, queue_name
from twistmq.integrations.tables.ranges import QueueRange
from twistmq.integrations.tables.record_batches import BatchBuilder, BodyUnreadable, RowFilter
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import (
    BrokerError,
    MessageIllegal,
    RemotingError,
    RequestRefused,
    StoreDamaged,
)
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.plain_record import queue_offset_of
from twistmq.protocol.properties import INNER_NUM
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    StoredMessage,
    decode_record,
)
from twistmq.protocol.topic_names import subscription_tags

__all__ = ["BATCH_BYTES", "Last", "QueueReader", "ReadFailed", "ReadPlan", "read_range",
           "wanted_tags"]

#: The approximate rows of a record batch, and its bytes unless a plan has another number. Larger
#: batches do not fit the CPU cache.
BATCH_ROWS: Final = 8192
BATCH_BYTES: Final = 8 << 20
#: The largest number of pulls in flight.
PULLS_MAX: Final = 32
#: The number of messages that the first pulls request, which is the default limit of brokers.
_FIRST_COUNT: Final = 32
#: The number of full responses after which pulls request more messages. Each time a pull has
#: requested too many, four times as many full responses are needed.
_GROW_AFTER: Final = 64
#: The byte limit of a pull, so high that only the limit of the broker counts.
_PULL_BYTES: Final = 1 << 30
#: The remark with which a broker reports queue entries whose messages were removed.
_REMOVED: Final = "MESSAGE_WAS_REMOVING"
_PARSE_FAILED: Final = frozenset({
    ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.FILTER_DATA_NOT_EXIST})
#: In the remark of a broker that does not support SQL92. Source: PullMessageProcessor @5.3.3.
_NO_SQL: Final = "does not support consumer to filter"
#: The largest number of messages in an inner batch.
_BATCH_MAX: Final = 99_999
_TAGS_COLUMN: Final = next(column for column in COLUMNS if column.name == "tags")


#: Spark shows its lines in the standard error of the worker.
_LOG: Final = logging.getLogger("twistmq.tables")


#: The offset and the mark of a message.
Last = tuple[int, Mark]


class ReadFailed(ShortError, RuntimeError):
    """A range cannot be read; the text names topic, queue, offset and cause."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The parameters that all tasks of a query share; Spark pickles them for the tasks."""

    settings: ClientSettings
    columns: tuple[Column, ...]
    group: str
    expression: str = "*"
    expression_type: str = "TAG"
    pull_batch_size: int = 256
    fail_on_data_loss: bool = True
    #: The treatment of a damaged message: "fail", "skip" or "deliver".
    damaged: str = "fail"
    #: The names of brokers that a new query waits for, and of brokers that were removed for good.
    brokers: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: The approximate bytes of a record batch.
    batch_bytes: int = BATCH_BYTES


def _message_count(record: StoredMessage) -> int:
    """Return the number of messages that a record contains.

    :raises StoreDamaged, Undecodable, MessageIllegal: when neither the property nor the body of the
        record gives this number.
    """
    if not record.sys_flag & SYS_INNER_BATCH:
        return 1
    count = whole_number(record.properties_map().get(INNER_NUM, ""), _BATCH_MAX)
    if count:
        return count
    if not record.sys_flag & SYS_NEED_UNWRAP:
        return 1
    return len(decode_batch(decompress(record.body, record.sys_flag)))


def wanted_tags(expression: str, expression_type: str) -> list[str] | None:
    """Return the tags of a tag expression; None if it selects all messages or is not one.

    Brokers compare only the hashes of tags, so the reader itself must drop messages that have
    another tag with the same hash.
    """
    if expression_type.upper() != "TAG" or expression.strip() in ("", "*"):
        return None
    return subscription_tags(expression)


def read_range(plan: ReadPlan, part: QueueRange,
               check: Callable[[Client], None] | None = None,
               last: Last | None = None) -> Iterator[Any]:
    """Read a range.

    :param check: called with the client of the task after the last row.
    :param last: the last message that the queue had when the read was planned, if it is known.
        Messages that have replaced lost ones since then are not read.
    :returns: record batches with the rows in the order of the queue.
    :raises DataLoss, ReadFailed, BodyUnreadable: with the queue and the offset in the text.
    """
    reader = QueueReader(plan, part)
    try:
        if last is not None:
            part = reader.without_replaced(last)
            yield from _unreplaced(plan, part, reader, last)
        else:
            rows = _Rows(plan, part, reader)
            for offset, result in reader.results():
                yield from rows.add(offset, result)
            yield from rows.flush()
        if check is not None:
            check(reader.client)
    finally:
        reader.close()


def _unreplaced(
    plan: ReadPlan, part: QueueRange, reader: QueueReader, last: Last
) -> Iterator[Any]:
    """Read the batches of a range whose topic may be created again or lose its end at any time.

    Spark keeps the rows that it has received, and a master ``local[N]`` runs a task only once.
    Therefore each batch is held back until a check after its read shows that the queue still has
    the same content. If the content may be different, the batch is dropped, and the range is read
    again from the first row of the batch up to the present end of the content.

    :param last: the last message that the queue had when the range was planned.
    """
    start = part.start
    while True:
        rows = _Rows(plan, part, reader)
        waiting: list[Any] = []
        after = start
        is_kept = True
        for offset, result in reader.results():
            # The reader continues after the rows that wait here, so a loss is reported from there.
            if waiting:
                is_kept = reader.is_kept(last)
                if not is_kept:
                    break
                yield from waiting
                start = after
            waiting = list(rows.add(offset, result))
            after = result.next_offset
        if is_kept:
            waiting += rows.flush()
            if not waiting or reader.is_kept(last):
                yield from waiting
                return
        part = reader.read_again(start, last)


class _Rows:
    """Converts the responses to the pulls of a range to record batches."""

    def __init__(self, plan: ReadPlan, part: QueueRange, reader: QueueReader) -> None:
        self._plan = plan
        self._part = part
        self._reader = reader
        self._tags = wanted_tags(plan.expression, plan.expression_type)
        self._names = [column.name for column in plan.columns]
        columns = list(plan.columns)
        if self._tags is not None and "tags" not in self._names:
            columns.append(_TAGS_COLUMN)
        self._builder = BatchBuilder(
            columns, RowFilter(offset_begin=part.start, offset_end=part.end))
        self._named = Namespace(plan.settings.namespace)
        #: The queue with the name of the topic as it is in the records.
        self._queue = MessageQueue(self._named.topic(part.queue.topic), part.queue.broker_name,
                                   part.queue.queue_id)
        #: The responses whose records are in the builder.
        self._pending: list[tuple[int, PullResult]] = []

    def add(self, offset: int, result: PullResult) -> Iterator[Any]:
        """Add a response; :returns: the batches that are complete.

        :param offset: the offset that was requested.
        """
        builder = self._builder
        try:
            starts = builder.add(result.body, self._part.broker_name)
        except StoreDamaged:
            yield from self.flush()
            yield from self._apart(offset, result)
            return
        self._reader.check_whole(offset, result, starts)
        self._pending.append((offset, result))
        if (builder.record_count >= BATCH_ROWS
                or builder.byte_count >= self._plan.batch_bytes):
            yield from self.flush()

    def flush(self) -> Iterator[Any]:
        """Build the batches of the records that were added and not yet delivered."""
        if not self._builder.record_count:
            return
        pending, self._pending = self._pending, []
        try:
            batch = self._built()
        except (StoreDamaged, BodyUnreadable):
            # Few responses have such a record: they are decoded again, one record at a time.
            for offset, result in pending:
                yield from self._apart(offset, result)
            return
        # While the caller works on the batch, the responses do not have to stay in memory.
        del pending
        yield batch

    def _apart(self, offset: int, result: PullResult, *, is_alone: bool = False) -> Iterator[Any]:
        """Build the batches of a response that contains a damaged record.

        :param is_alone: whether only one message was requested.
        """
        for piece in parts_of(result, self._queue, offset, "body" in self._names):
            if isinstance(piece, bytes):
                self._builder.add(piece, self._part.broker_name)
                yield self._built()
            elif piece.is_cut and piece.offset + 1 < result.next_offset and not is_alone:
                # The next record cannot be found reliably, so each message is pulled separately.
                at = piece.offset
                while at < min(result.next_offset, self._part.end):
                    one = self._reader.pull_alone(at)
                    yield from self._apart(at, one, is_alone=True)
                    at = max(one.next_offset, at + 1)
            else:
                yield from self._damaged(piece)

    def _damaged(self, message: DamagedMessage[Any]) -> Iterator[Any]:
        """Skip, deliver or refuse a damaged message, as the option ``damaged`` requires.

        :raises BodyUnreadable: when the option is "fail".
        """
        if not self._part.start <= message.offset < self._part.end or (
                self._tags is not None and message.record.properties
                and message.tags not in self._tags):
            return
        text = (f"{queue_name(self._part.queue)}, offset {message.offset} (commit log offset "
                f"{message.record.physical_offset}) is damaged: {message.damage}")
        if self._plan.damaged == "fail":
            raise BodyUnreadable(
                f"{text}. With the option damaged=skip, all other messages are read")
        _LOG.error("%s; %s", text, "skipped" if self._plan.damaged == "skip" else "delivered")
        if self._plan.damaged == "skip":
            return
        import pyarrow as pa

        from twistmq.integrations.tables.arrow_arrays import text_array

        self._builder.add(record_without_body(message), self._part.broker_name)
        batch = self._built(is_filtered=False)
        for name in ("body", "damage"):
            at = batch.schema.get_field_index(name)
            if at >= 0:
                field = batch.schema.field(at)
                batch = batch.set_column(at, field, pa.nulls(1, field.type) if name == "body"
                                         else text_array([message.damage]))
        yield batch

    def _built(self, *, is_filtered: bool = True) -> Any:
        """Build the batch of the records in the builder.

        :param is_filtered: whether messages with unwanted tags are left out.
        """
        batch = self._builder.batch()
        if self._named.name and "topic" in self._names:
            batch = _renamed(batch, self._named)
        if self._tags is None:
            return batch
        if not is_filtered:
            return batch.select(self._names)
        import pyarrow.compute as pc

        from twistmq.integrations.tables.arrow_arrays import text_array

        mask = pc.is_in(batch.column(self._builder.schema.get_field_index("tags")),
                        value_set=text_array(self._tags))
        return batch.filter(mask).select(self._names)

def _renamed(batch: Any, named: Namespace) -> Any:
    """Return the batch with the names that its topics have inside a namespace."""
    from twistmq.integrations.tables.arrow_arrays import text_array

    at = batch.schema.get_field_index("topic")
    topics = batch.column(at).dictionary_encode()
    inside = text_array(named.without(topic) for topic in topics.dictionary.to_pylist())
    return batch.set_column(at, batch.schema.field(at), inside.take(topics.indices))


@dataclass(slots=True)
class _Pull:
    """A pull in flight that requests ``count`` messages from ``offset`` on."""

    offset: int
    count: int
    pending: Future[PullResult]


class QueueReader:
    """Pulls one range.

    :param plan: the parameters of the query.
    :param part: the range.
    """

    def __init__(self, plan: ReadPlan, part: QueueRange) -> None:
        self._plan = plan
        self._part = part
        self._queue = part.queue
        self._client = self.client = plan.settings.client()
        #: Whether all messages of the queue are wanted, so that none may be missing.
        self._takes_all = plan.expression_type.upper() == "TAG" and plan.expression in ("", "*")
        #: Whether the first message is known to exist. With an expression, the responses to pulls
        #: cannot show that it was removed.
        self._has_begun = self._takes_all
        #: The first offset that has not been received.
        self._position = part.start
        self._pulls: deque[_Pull] = deque()
        #: The first offset that no pull has requested.
        self._next_ask = part.start
        #: The messages that a pull requests, as learnt from the responses, and the number of full
        #: responses since that number changed.
        self._count = min(plan.pull_batch_size, _FIRST_COUNT)
        self._whole = 0
        self._grow_after = _GROW_AFTER
        #: The failures in total; after each failure, the next server of the broker is asked.
        self._attempt = 0
        self._patience = Patience(plan.settings.wait_s, plan.settings.retry_wait_s)
        self._deletions = Deletions(plan.settings.deletion_check_s)

    def close(self) -> None:
        self._client.close()

    def results(self) -> Iterator[tuple[int, PullResult]]:
        """Pull; :returns: the responses with messages, in order, each with its requested offset.

        A response may contain messages before and after the range.
        """
        while self._position < self._part.end:
            try:
                if not self._has_begun:
                    self._begin()
                    continue
                pull = self._ask()
                result = with_logical_offsets(pull.pending.result())
                assert pull.offset == self._position, (pull.offset, self._position)
                if self._attempt:
                    self._check_end(result)
            except (RemotingError, NoRoute) as error:
                self._unreached(error)
                continue
            except RequestRefused as error:
                self._refused(error)
                continue
            except (ProtocolError, Undecodable) as error:
                raise ReadFailed(f"{self._position_text(self._position)}: {error}") from None
            if self._patience.failures:
                self._patience.end()
            if result.status is PullStatus.FOUND and result.next_offset > pull.offset:
                yield pull.offset, result
                self._advance(pull, result.next_offset)
            else:
                self._skip(pull.offset, result)

    # --- replaced messages

    def without_replaced(self, last: Last) -> QueueRange:
        """Exclude from the range the messages that have replaced lost ones.

        :param last: the last message that the queue had when the range was planned.
        :returns: the remaining range.
        :raises DataLoss: when messages are excluded and failOnDataLoss is true.
        """
        part = self._part
        end = max(min(self._kept_end(last), part.end), part.start)
        if self._position == part.end:
            return part
        if end < part.end:
            self._lost(end, f"the message at offset {last[0]} is not the one that was there when "
                       "the read was planned: the topic was created again or lost its end",
                       part.end)
            self._part = replace(part, end=end)
        self._begin_at(part.start)
        return self._part

    def is_kept(self, last: Last) -> bool:
        """Whether the queue still has the content for which the remaining range was planned."""
        part = self._part
        return max(self._kept_end(last), part.start) >= part.end

    def read_again(self, start: int, last: Last) -> QueueRange:
        """Start again at an offset of the range, without the messages that have been replaced.

        :returns: the part of the range that remains.
        :raises DataLoss: as :meth:`without_replaced`.
        """
        self._part = replace(self._part, start=start)
        self._begin_at(start)
        return self.without_replaced(last)

    def _kept_end(self, last: Last) -> int:
        """Find the offset up to which the queue has kept its messages since the plan was made.

        :param last: the last message that the queue had at that time.
        :raises ReadFailed: when no server answers this question within ``serverWaitMs``.
        """
        offset, mark = last
        while True:
            try:
                end = offset + 1 if self._has(offset, mark) else offset_at(
                    self._client, self._queue, mark[1] + 1)
            except (RemotingError, NoRoute) as error:
                is_gone = self._unreached(error)
            except RequestRefused as error:
                is_gone = self._refused(error)
            else:
                if self._patience.failures:
                    self._patience.end()
                return end
            if is_gone:
                # The loss has been reported.
                return self._part.end

    def _has(self, offset: int, mark: Mark) -> bool:
        """Whether the message at an offset has this mark.

        :raises RemotingError: when it does not, and the response came from a slave.
        """
        result = self._client.pull_soon(
            self._queue, offset, group=self._plan.group, max_count=1, max_bytes=1,
            attempt=self._attempt).result()
        if result.status is PullStatus.FOUND and result.next_offset == offset + 1:
            try:
                record = decode_record(result.body, 0, False)
            except StoreDamaged:
                # The read of the message reports the damage.
                return True
            if (record.physical_offset, record.store_timestamp) == mark:
                return True
        if not self._is_from_master():
            raise RemotingError(f"a slave of broker {self._queue.broker_name} has another message "
                                f"at offset {offset} or none, and its master is away")
        return False

    # --- requests

    def _begin(self) -> None:
        """Check, without the expression, whether the first message of the range exists.

        The response to a pull with an expression does not distinguish removed messages from
        messages that the expression excludes.
        """
        offset = self._position
        # If the message exists, one message is enough. After a loss, a pull passes over as many
        # removed messages as the broker allows.
        count = 1 if offset == self._part.start else self._plan.pull_batch_size
        result = with_logical_offsets(self._client.pull_soon(
            self._queue, offset, group=self._plan.group, max_count=count, attempt=self._attempt,
            max_bytes=1).result())
        if self._attempt:
            self._check_end(result)
        if self._patience.failures:
            self._patience.end()
        if result.status is not PullStatus.FOUND:
            self._skip(offset, result)
            return
        self._has_begun = True
        with contextlib.suppress(StoreDamaged):
            first = decode_record(result.body, 0, False).queue_offset
            if first > offset:
                self._lost(offset, f"the next message there is {first}", first)
                self._begin_at(first)

    def _ask(self) -> _Pull:
        """Send as many pulls as may be in flight; :returns: the pull whose response comes next."""
        depth = 1
        # After a failure only one pull is in flight, so that the reader receives all messages
        # before the one that causes the failure.
        if self._takes_all and not self._patience.failures:
            depth = min(max(2 * self._plan.pull_batch_size // self._count, 2), PULLS_MAX)
        # Half of the pulls are sent at once, so that the thread of the client wakes up only once.
        room = depth if len(self._pulls) <= depth // 2 else 0
        while len(self._pulls) < room and self._next_ask < self._part.end:
            count = min(self._count, self._part.end - self._next_ask)
            self._pulls.append(self._pull(self._next_ask, count))
            self._next_ask += count
        return self._pulls.popleft()

    def _pull(self, offset: int, count: int) -> _Pull:
        plan = self._plan
        return _Pull(offset, count, self._client.pull_soon(
            self._queue, offset, group=plan.group, max_count=count, expression=plan.expression,
            expression_type=plan.expression_type, attempt=self._attempt, max_bytes=_PULL_BYTES))

    def pull_alone(self, offset: int) -> PullResult:
        """Pull one message; :raises ReadFailed: when that fails."""
        plan = self._plan
        while True:
            try:
                return with_logical_offsets(self._client.pull(
                    self._queue, offset, group=plan.group, max_count=1,
                    expression=plan.expression, expression_type=plan.expression_type))
            except BrokerError as error:
                if not is_passing(error) or not self._patience.pause(
                        f"{self._position_text(offset)}: {error}"):
                    raise ReadFailed(f"{self._position_text(offset)}: {error}") from None

    def _begin_at(self, offset: int) -> None:
        """Continue at an offset, and drop the responses that are still expected."""
        self._position = self._next_ask = offset
        self._pulls.clear()

    # --- responses

    def _skip(self, offset: int, result: PullResult) -> None:
        """Continue after a response without messages."""
        after = result.next_offset
        until, why = self._part.end, f"the queue ends at {result.max_offset}"
        if result.status is PullStatus.NO_MATCHED_MESSAGE and after > offset:
            if not self._takes_all and result.remark != _REMOVED:
                self._begin_at(after)
                return
            until, why = after, f"messages up to {after} are removed"
        elif result.status is PullStatus.OFFSET_MOVED and after > offset:
            until, why = after, f"the queue begins at {result.min_offset}"
        if not self._is_from_master():
            self._failed(RemotingError(f"a slave of broker {self._queue.broker_name} reports that "
                                       f"{why}, and its master is away"))
            return
        self._lost(offset, why, until)
        self._begin_at(until)

    def _is_from_master(self) -> bool:
        """Whether the responses to the pulls of this attempt come from a master."""
        routes = self._client._core.routes
        ids = sorted(routes.brokers.get(routes.broker_of(self._queue), ()))
        return bool(ids) and ids[self._attempt % len(ids)] == MASTER_ID

    def _check_end(self, result: PullResult) -> None:
        """Check that the responding server has the whole range.

        :raises RemotingError: when it is a slave that has only a part of the range.
        """
        if result.max_offset < self._part.end and not self._is_from_master():
            raise RemotingError(f"a slave of broker {self._queue.broker_name} has the queue only "
                                f"up to {result.max_offset}, and its master is away")

    def _advance(self, pull: _Pull, behind: int) -> None:
        """Continue after the messages of a response, and adapt the size of the next pulls."""
        if self._takes_all and behind == pull.offset + pull.count:
            self._position = behind
            self._whole += 1
            if self._whole >= self._grow_after and self._count < self._plan.pull_batch_size:
                self._whole, self._count = 0, min(self._count * 4, self._plan.pull_batch_size)
            return
        if self._takes_all and behind < pull.offset + pull.count:
            self._whole, self._count = 0, behind - pull.offset
            self._grow_after *= 4
        self._begin_at(behind)

    def check_whole(self, offset: int, result: PullResult, starts: Sequence[int]) -> None:
        """Check that a response contains all messages of its offsets.

        :param offset: the offset that was requested.
        :param starts: the position of each record in the response.
        :raises DataLoss: when a message is missing and failOnDataLoss is true.
        """
        # Nearly every response has one message for each offset, so few responses are walked.
        if not self._takes_all or (
                len(starts) == result.next_offset - offset
                and queue_offset_of(result.body, starts[0]) == offset
                and queue_offset_of(result.body, starts[-1]) == result.next_offset - 1):
            return
        position = 0
        while position < len(result.body):
            try:
                record = decode_record(result.body, position, False)
                message_count = _message_count(record)
            except (StoreDamaged, Undecodable, MessageIllegal):
                # The batch that is built from this response reports the damage.
                return
            if record.queue_offset > offset:
                self._lost(offset, f"the next message there is {record.queue_offset}",
                           record.queue_offset)
            offset = max(offset, record.queue_offset + message_count)
            position += record.size
        if offset < result.next_offset:
            self._lost(offset, "the broker has skipped it", result.next_offset)

    # --- failures

    def _position_text(self, offset: int) -> str:
        return f"{queue_name(self._queue)}, offset {offset}"

    def _lost(self, offset: int, why: str, until: int) -> None:
        """Report that the offsets before ``until`` are lost.

        :raises DataLoss: when failOnDataLoss is true.
        """
        part = self._part
        first, after = max(offset, part.start), min(until, part.end)
        if first < after:
            report_loss(f"{self._position_text(offset)} is not there: {why}, and the range to read "
                        f"is {part.start} to {part.end}", self._plan.fail_on_data_loss,
                        f"{after - first} offsets are skipped, {first} to {after - 1}")

    def _unreached(self, error: Exception) -> bool:
        """Handle a server that does not answer; :returns: whether its broker was
        removed for good.
        """
        if self._queue.broker_name in self._plan.removed:
            return self._without_topic()
        self._failed(error)
        return False

    def _refused(self, error: RequestRefused) -> bool:
        """Handle a request that a server refused.

        :returns: whether the remaining range is lost because the topic was deleted.
        :raises ReadFailed: when another try does not help.
        """
        if error.response_code in BUSY_CODES:
            self._failed(error if self._is_from_master() else RemotingError(
                f"{error} (a slave, which gives messages only with slaveReadEnable=true)"))
            return False
        if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
            return self._without_topic()
        plan = self._plan
        is_sql = plan.expression_type.upper() != "TAG"
        option = ""
        if is_denied(error):
            option = "option accessKey: "
        elif error.response_code in _PARSE_FAILED or (
                is_sql and error.response_code == ResponseCode.SYSTEM_ERROR):
            option = f"option subExpression: {plan.expression!r} ({plan.expression_type}): "
        # Brokers support SQL92 only with a setting that is off by default.
        hint = (" (it needs the broker's setting enablePropertyFilter=true)"
                if is_sql and _NO_SQL in str(error) else "")
        raise ReadFailed(
            f"{option}{self._position_text(self._position)}: {error}{hint}") from None

    def _without_topic(self) -> bool:
        """Find out whether the topic was deleted or its broker was removed.

        :returns: whether that is the case.
        """
        look = Look(self._client, self._plan.group, self._plan.removed)
        try:
            verdict = look.standing(self._queue, is_refused=True)
        except (RemotingError, RequestRefused) as error:
            verdict = Verdict(Availability.AWAY, str(error))
        verdict = self._deletions.judge(self._queue, verdict)
        if verdict.standing is Availability.GONE:
            self._lost(self._position, verdict.reason, self._part.end)
            self._begin_at(self._part.end)
            return True
        self._failed(RuntimeError(verdict.reason),
                     is_checking=verdict.standing is Availability.CHECKING)
        return False

    def _failed(self, error: Exception, *, is_checking: bool = False) -> None:
        """Wait, and then pull again from the first missing offset.

        :param is_checking: whether the wait is for a second check of a topic that seems deleted.
        :raises ReadFailed: when the time for retries is over.
        """
        patience, settings = self._patience, self._plan.settings
        self._attempt += 1
        if not patience.pause(f"{self._position_text(self._position)}: {error}",
                              least_tries=settings.retries, is_checking=is_checking):
            raise ReadFailed(
                f"{self._position_text(self._position)}: {error}, tried {patience.failures} times "
                f"within {patience.waited_s:.1f} s (options serverWaitMs, fetchOffset.numRetries)"
            ) from None
        # The broker may have another address now. If the route is unknown, the old one is used.
        with contextlib.suppress(BrokerError):
            self._client.route(self._queue.topic, again=True)
        self._begin_at(self._position)
