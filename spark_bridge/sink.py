"""The sinks: rows are messages, acknowledged by brokers before their task ends well.

A task that fails is run again by Spark, so a message is there at least once; the option
``idempotenceKey`` marks what is sent twice. Rows of a partition that name a queue or a sharding key
stay in their order: of one queue there is one such send under way at a time.
"""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from twistmq.broker.client.blocking_client import BlockingClient
from twistmq.broker.client.blocking_cluster import PendingRequest
from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import BrokerError, RemotingError, RequestRefused
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.properties import java_string_hash
from twistmq.client.core.unique_id import process_ids
from twistmq.spark_bridge.connection import client_settings
from twistmq.spark_bridge.options import Options
from twistmq.spark_bridge.rows import OutgoingRow, RowError, RowReader, check_schema

__all__ = ["BatchWriter", "RowsSent", "Sender", "StreamWriter", "WriteFailed"]

#: The group, where none is named.
_GROUP: Final = "spark-rocketmq-sink"
#: Bytes of bodies in a batch at most: brokers take 4 MiB, but a smaller batch is acknowledged
#: sooner.
_BATCH_BYTES: Final = 1 << 20
#: A refusal after which the same message may be taken.
_TRY_AGAIN: Final = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


class WriteFailed(RuntimeError):
    """Rows could not be sent; the text names partition, row, topic and cause."""


@dataclass(slots=True)
class RowsSent(WriterCommitMessage):
    """The result of a task, once all its rows are acknowledged."""

    rows: int


@dataclass(slots=True)
class _Sending:
    """Rows under way to a queue, as one request."""

    rows: list[OutgoingRow]
    queue: MessageQueue
    #: Whether the rows named the queue.
    is_fixed: bool
    pending: PendingRequest | None


class Sender:
    """Sends the rows of one task.

    :param options: of the sink.
    :param client: the task's own.
    :param place: what errors begin with, such as "partition 3".
    """

    def __init__(self, options: Options, client: BlockingClient, place: str) -> None:
        self._client = client
        self._place = place
        self._group = options.text("group") or _GROUP
        self._batch_size = options.integer("batchSize")
        self._window = options.integer("sendWindow")
        self._waits = options.flag("waitStoreOK")
        #: Rows that wait for their batch to fill, by topic and the queue they named.
        self._waiting: dict[tuple[str, MessageQueue | None], list[OutgoingRow]] = {}
        self._bytes: dict[tuple[str, MessageQueue | None], int] = {}
        self._sent: deque[_Sending] = deque()
        self._turn = random.randrange(1 << 16)
        self.acknowledged = 0

    def send(self, rows: Iterable[OutgoingRow]) -> None:
        """Send rows; :raises WriteFailed: when one, sent before perhaps, is not taken."""
        for row in rows:
            queue = self._queue_of(row)
            key = (row.message.topic, queue)
            size = len(row.message.body)
            if not row.fits_batch:
                self._flush(key)
                self._begin([row], queue)
                continue
            waiting = self._waiting.setdefault(key, [])
            if self._bytes.get(key, 0) + size > _BATCH_BYTES:
                self._flush(key)
                waiting = self._waiting.setdefault(key, [])
            waiting.append(row)
            self._bytes[key] = self._bytes.get(key, 0) + size
            if len(waiting) >= self._batch_size:
                self._flush(key)

    def finish(self) -> None:
        """Send what waits, and wait for all; :raises WriteFailed: as :meth:`send`."""
        for key in list(self._waiting):
            self._flush(key)
        while self._sent:
            self._settle(self._sent.popleft())

    # --- where to

    def _queue_of(self, row: OutgoingRow) -> MessageQueue | None:
        """The queue that a row names; None when it names none."""
        if row.queue_id is None and row.sharding_key is None:
            return None
        queues = self._queues([row])
        if row.queue_id is not None:
            for queue in queues:
                if queue.queue_id == row.queue_id:
                    return queue
            raise self._error(row, f"column queueId: the topic has no queue {row.queue_id}")
        # As Java's SelectMessageQueueByHash chooses.
        assert row.sharding_key is not None
        return queues[abs(java_string_hash(row.sharding_key)) % len(queues)]

    def _queues(self, rows: list[OutgoingRow]) -> list[MessageQueue]:
        topic = rows[0].message.topic
        try:
            queues = self._client.write_queues(topic)
        except BrokerError as error:
            raise self._error(rows[0], str(error)) from None
        if not queues:
            raise self._error(rows[0], "the topic has no queue that can be written to")
        return queues

    def _next_queue(self, rows: list[OutgoingRow]) -> MessageQueue:
        queues = self._queues(rows)
        self._turn += 1
        return queues[self._turn % len(queues)]

    # --- sending

    def _flush(self, key: tuple[str, MessageQueue | None]) -> None:
        rows = self._waiting.pop(key, None)
        self._bytes.pop(key, None)
        if rows:
            self._begin(rows, key[1])

    def _begin(self, rows: list[OutgoingRow], queue: MessageQueue | None) -> None:
        is_fixed = queue is not None
        while self._sent and (len(self._sent) >= self._window or (is_fixed and any(
                one.queue == queue for one in self._sent))):
            self._settle(self._sent.popleft())
        sending = _Sending(rows, queue or self._next_queue(rows), is_fixed, None)
        try:
            sending.pending = self._client.begin_send(_payload(rows), sending.queue,
                                                      group=self._group)
        except RemotingError:
            # It is sent again when its turn to be waited for comes.
            sending.pending = None
        self._sent.append(sending)

    def _settle(self, sending: _Sending) -> None:
        """Wait until rows are acknowledged, and send them again when they are not."""
        why = "no connection"
        if sending.pending is not None:
            refused = self._end(sending.pending, len(sending.rows))
            if refused is None:
                return
            why = str(refused)
            if _is_final(refused):
                self._each(sending, refused)
                return
        self._again(sending, why)

    def _end(self, pending: PendingRequest, count: int) -> Exception | None:
        """Wait for the answer to rows, and count them; :returns: why they are not acknowledged."""
        try:
            result = self._client.end_send(pending)
        except (RemotingError, RequestRefused) as error:
            return error
        if result.is_safe or not self._waits:
            self.acknowledged += count
            return None
        return RemotingError(f"stored, but {ResponseCode(result.code).name}")

    def _again(self, sending: _Sending, why: str) -> None:
        """Send rows again, elsewhere where they named no queue."""
        rows = sending.rows
        for _ in range(self._client.retries):
            time.sleep(self._client.retry_wait_s)
            self._client.forget_route(rows[0].message.topic)
            queue = sending.queue
            if not sending.is_fixed:
                others = [one for one in self._queues(rows)
                          if one.broker_name != sending.queue.broker_name]
                queue = random.choice(others) if others else self._next_queue(rows)
            try:
                pending = self._client.begin_send(_payload(rows), queue, group=self._group)
            except RemotingError as error:
                why = str(error)
                continue
            refused = self._end(pending, len(rows))
            if refused is None:
                return
            why = str(refused)
            if _is_final(refused):
                break
        raise self._error(rows[0], f"{why}, tried {self._client.retries + 1} times", len(rows))

    def _each(self, sending: _Sending, refusal: Exception) -> None:
        """A batch is refused for good: find the row it is for."""
        if len(sending.rows) == 1:
            raise self._error(sending.rows[0], str(refusal))
        for row in sending.rows:
            self._settle(_Sending([row], sending.queue, sending.is_fixed,
                                  self._client.begin_send(row.message, sending.queue,
                                                          group=self._group)))

    def _error(self, row: OutgoingRow, why: str, count: int = 1) -> WriteFailed:
        which = f"row {row.index}" if count == 1 else f"{count} rows from row {row.index} on"
        return WriteFailed(f"{self._place}, {which}, topic {row.message.topic}: {why}")


def _is_final(error: Exception) -> bool:
    """Whether rows that were refused so would be refused again."""
    return isinstance(error, RequestRefused) and error.response_code not in _TRY_AGAIN


def _payload(rows: list[OutgoingRow]) -> Any:
    return rows[0].message if len(rows) == 1 else [row.message for row in rows]


def _unique_id_maker() -> Any:
    """A function that makes the next unique id of this process."""
    try:
        address = socket.inet_aton(socket.gethostbyname(socket.gethostname()))
    except OSError:
        address = bytes((127, 0, 0, 1))
    maker = process_ids(address)
    return lambda: maker.make(time.time_ns() // 1_000_000)


def _write(options: Options, batches: Iterator[Any]) -> RowsSent:
    """The work of a task on its rows."""
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    batch_id = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    place = f"partition {partition}"
    with client_settings(options).client() as client:
        sender = Sender(options, client, place)
        reader = RowReader(options, _unique_id_maker(), f"{batch_id or 0}:{partition}")
        for batch in batches:
            try:
                sender.send(reader.rows(batch))
            except RowError as error:
                raise WriteFailed(f"{place}, {error}") from None
        sender.finish()
        return RowsSent(sender.acknowledged)


class _Writer:
    """The common part of Spark's two kinds of writers."""

    def __init__(self, options: Options, schema: Any) -> None:
        check_schema(schema, options)
        client_settings(options)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, iterator)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: brokers have acknowledged every row."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be taken back: what is there is there again when the batch is run again."""
