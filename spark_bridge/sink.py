"""The sinks of batches and streams: each row becomes a message that a broker acknowledges.

A task ends successfully only after brokers have acknowledged all its rows. Spark runs a failed task
again, so each message is delivered at least once. The option ``idempotenceKey`` gives each row a
mark by which a consumer recognizes a message that was sent twice. The marks of a stream begin with
the id of its query, which is stored in its checkpoint. The marks of a batch begin with a random id.
Rows of a partition that name a queue or a sharding key keep their order, because each queue has
only one such send in flight.
"""

from __future__ import annotations

import math
import random
import socket
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from twistmq.client.base.messages import SendResult
from twistmq.client.blocking.client import Client
from twistmq.client.blocking.producer import Producer
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.queue_selector import RoundRobin, by_hash
from twistmq.client.core.producer.sender import RETRY_CODES
from twistmq.client.core.producer.unique_id import process_ids
from twistmq.integrations.tables.availability import (
    PAUSE_MAX_S,
    Look,
    Patience,
    is_denied,
    is_passing,
    reach_name_server,
)
from twistmq.integrations.tables.connection import client_settings
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.options import OptionError, Options
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RemotingError, RequestRefused
from twistmq.protocol.flags import PERM_WRITE
from twistmq.protocol.properties import UNIQ_KEY, format_properties
from twistmq.spark_bridge.rows import OutgoingRow, RowError, RowReader, check_schema
from twistmq.spark_bridge.spark_api import DataSourceStreamArrowWriter

__all__ = ["BatchWriter", "RowsSent", "Sender", "StreamWriter", "WriteFailed"]

#: The producer group if the options name none.
_GROUP: Final = "spark-rocketmq-sink"
#: The local property in which Spark passes the id of its query to a task.
_QUERY_ID: Final = "sql.streaming.queryId"
#: The largest number of body bytes in a batch. Brokers accept 4 MiB, but a smaller batch keeps the
#: wait for its acknowledgement short.
_BATCH_BYTES: Final = 1 << 20
#: The limit of the producer on unacknowledged bytes. It is out of reach, because the window of the
#: sink is the limit that counts.
_BYTES_MAX: Final = 1 << 40
#: The response codes of a master that has stored a message but has no confirmation from its slave.
_WITHOUT_SLAVE: Final = frozenset({
    ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE})
#: How long a topic or a queue may be unknown while other brokers are registered. A restarted name
#: server learns of a topic when its broker registers again, which happens every 30 s.
_REGISTRATION_S: Final = 40.0
#: The longest pause before rows that lack the copy on a slave are sent again. It is long because
#: each try stores the rows once more.
_SLAVE_PAUSE_MAX_S: Final = 15.0


class WriteFailed(ShortError, RuntimeError):
    """Rows could not be sent; the text names the partition, the row, the topic and the cause."""


@dataclass(slots=True)
class RowsSent(WriterCommitMessage):
    """The result of a task after all its rows were acknowledged."""

    rows: int


@dataclass(slots=True)
class _PendingSend:
    """Rows that were sent to a queue in one request."""

    rows: list[OutgoingRow]
    queue: MessageQueue
    #: Whether the rows named the queue.
    is_fixed: bool
    pending: Future[SendResult]
    #: The time at which it was sent, by the monotonic clock.
    sent_s: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a send failed."""

    why: str
    #: The refusal, if it is final.
    refusal: RequestRefused | None = None
    #: Whether the broker, its slave or a name server is away.
    is_away: bool = False
    #: Whether the rows are stored, but not as safely as required.
    is_stored: bool = False
    #: Whether another try may help.
    has_tries: bool = True


class Sender:
    """Sends the rows of one task.

    :param options: the options of the sink.
    :param client: the client of the task.
    :param partition_name: the beginning of error texts, such as "partition 3".
    """

    def __init__(self, options: Options, client: Client, partition_name: str) -> None:
        self._client = client
        self._partition_name = partition_name
        self._batch_size = options.integer("batchSize")
        self._window = options.integer("sendWindow")
        self._producer = Producer(
            client=client, group=options.text("group") or _GROUP, timeout_s=client.timeout_s,
            compress_over=0, in_flight_max=self._window + 1, in_flight_bytes_max=_BYTES_MAX)
        self._waits = options.flag("waitStoreOK")
        #: Rows that wait until their batch is full, by topic and by the queue that they named.
        self._waiting: dict[tuple[str, MessageQueue | None], list[OutgoingRow]] = {}
        self._bytes: dict[tuple[str, MessageQueue | None], int] = {}
        self._sent: deque[_PendingSend] = deque()
        #: The queues of each topic, as the task found them first or after a failure.
        self._topic_queues: dict[str, list[MessageQueue]] = {}
        self._wait_s = options.integer("serverWaitMs") / 1000
        #: The last time at which a send succeeded after a wait for its broker.
        self._back_s = 0.0
        self._choice = RoundRobin(random.randrange(1 << 16))
        self.acknowledged = 0

    def send(self, rows: Iterable[OutgoingRow]) -> None:
        """Send rows; :raises WriteFailed: when one of them, or of earlier rows, was not accepted.
        """
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
        """Send the waiting rows and wait for all acknowledgements.

        :raises WriteFailed: when a row was not accepted.
        """
        for key in list(self._waiting):
            self._flush(key)
        while self._sent:
            self._settle(self._sent.popleft())

    # --- the choice of a queue

    def _queue_of(self, row: OutgoingRow) -> MessageQueue | None:
        """The queue that a row names; None when it names none."""
        if row.queue_id is None:
            if row.sharding_key is None:
                return None
            return by_hash(self._queues([row]), row.sharding_key)
        patience: Patience | None = None
        while True:
            for queue in self._queues([row], again=patience is not None):
                if queue.queue_id == row.queue_id:
                    if patience is not None:
                        patience.end()
                    return queue
            # The broker that has this queue may not have registered yet.
            patience = patience or self._patience(_REGISTRATION_S)
            why = f"column queueId: the topic has no queue {row.queue_id}"
            if not patience.pause(f"topic {row.message.topic}: {why}", least_tries=1):
                raise self._error(row, why)

    def _queues(self, rows: list[OutgoingRow], *, again: bool = False) -> list[MessageQueue]:
        """Return the queues of the topic of the rows.

        :param again: ask a name server even if the queues are known.
        """
        topic = rows[0].message.topic
        queues = self._topic_queues.get(topic)
        if queues is None or again:
            queues = self._topic_queues[topic] = self._asked_queues(rows[0])
        return queues

    def _asked_queues(self, row: OutgoingRow) -> list[MessageQueue]:
        """Ask for the queues of a row's topic, and wait while its brokers are away."""
        topic, away, unknown = row.message.topic, self._patience(), self._patience(_REGISTRATION_S)
        while True:
            patience: Patience | None = None
            try:
                queues = self._client.write_queues(topic, again=True)
            except BrokerError as error:
                why = str(error)
                if self._is_away(topic, error):
                    patience = away
                elif _is_unknown(error):
                    patience = unknown
            else:
                if queues:
                    away.end()
                    unknown.end()
                    return queues
                why = "the topic has no queue that can be written to"
                if any(each.perm & PERM_WRITE for each in self._client.route(topic).queue_datas):
                    patience = away
            # An unknown topic is looked up at least twice, because its broker may have registered
            # between the look-ups of the topic and of the brokers.
            if patience is None or not patience.pause(
                    f"topic {topic}: {why}", least_tries=int(patience is unknown)):
                raise self._error(row, why)

    def _is_away(self, topic: str, error: BrokerError) -> bool:
        """Whether the error of a route request means that servers are away.

        An unknown topic counts as away if this task knew it before or if no broker is registered.
        """
        if not _is_unknown(error):
            return is_passing(error)
        try:
            return topic in self._topic_queues or not Look(self._client, _GROUP).registered()
        except BrokerError as failure:
            return is_passing(failure)

    def _patience(self, wait_max_s: float = math.inf) -> Patience:
        return Patience(min(self._wait_s, wait_max_s), self._client._options.retry_wait_ms / 1000)

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
        self._sent.append(self._send(
            rows, queue or self._choice.choose(self._queues(rows)), is_fixed))

    def _send(self, rows: list[OutgoingRow], queue: MessageQueue, is_fixed: bool) -> _PendingSend:
        future = self._producer._send_ready(self._ready(rows), queue)
        return _PendingSend(rows, queue, is_fixed, future, time.monotonic())

    def _ready(self, rows: list[OutgoingRow]) -> OutgoingMessage:
        """Encode rows as one request."""
        topic = self._client._core.namespace.topic(rows[0].message.topic)
        ids = [row.message.properties.get(UNIQ_KEY, "") for row in rows]
        parts = [(row.message.flag, row.message.body,
                  format_properties(cast("dict[str, str]", row.message.properties)))
                 for row in rows]
        if len(rows) > 1:
            return self._producer._sender.preparer.batch(topic, parts, ids, self._waits)
        [(flag, body, properties)] = parts
        return OutgoingMessage(topic, body, properties, ids[0], flag=flag,
                        sys_flag=rows[0].message.sys_flag, waits=self._waits)

    def _settle(self, sending: _PendingSend) -> None:
        """Wait until rows are acknowledged, and send them again if they are not."""
        failure = self._outcome(sending)
        rows, queue, patience = sending.rows, sending.queue, self._patience()
        retries = self._client._options.retries
        while failure is not None:
            if failure.refusal is not None:
                self._each(sending, failure.refusal)
                return
            if not failure.has_tries:
                raise self._error(rows[0], failure.why, len(rows))
            # A request that was sent before its broker came back is repeated without a pause.
            is_late = patience.failures == 0 and sending.sent_s < self._back_s
            if not is_late and not patience.pause(
                    f"topic {rows[0].message.topic}: {failure.why}", least_tries=retries,
                    is_away=failure.is_away,
                    pause_max_s=_SLAVE_PAUSE_MAX_S if failure.is_stored else PAUSE_MAX_S):
                raise self._error(rows[0], f"{failure.why}, tried {patience.failures} times",
                                  len(rows))
            queues = self._queues(rows, again=True)
            if not sending.is_fixed:
                queue = self._choice.choose(queues, {queue.broker_name})
            sending = self._send(rows, queue, sending.is_fixed)
            failure = self._outcome(sending)
        if patience.failures:
            self._back_s = time.monotonic()
            patience.end()

    def _outcome(self, sending: _PendingSend) -> _Failure | None:
        """Wait for the response to a send; :returns: the failure, or None."""
        try:
            result = sending.pending.result()
        except RequestRefused as error:
            if is_denied(error):
                return _Failure(f"option accessKey: {error}", has_tries=False)
            is_final = error.response_code not in RETRY_CODES
            return _Failure(str(error), error if is_final else None, is_passing(error))
        except BrokerError as error:
            return _Failure(str(error), is_away=is_passing(error))
        if self._waits and not result.safe:
            return _Failure(f"stored, but {ResponseCode(result.code).name}",
                            is_away=result.code in _WITHOUT_SLAVE, is_stored=True)
        self.acknowledged += len(sending.rows)
        return None

    def _each(self, sending: _PendingSend, refusal: RequestRefused) -> None:
        """Find the row for which a batch was refused, by sending each row separately."""
        if len(sending.rows) == 1:
            raise self._error(sending.rows[0], str(refusal))
        for row in sending.rows:
            self._settle(self._send([row], sending.queue, sending.is_fixed))

    def _error(self, row: OutgoingRow, why: str, count: int = 1) -> WriteFailed:
        which = f"row {row.index}" if count == 1 else f"{count} rows from row {row.index} on"
        return WriteFailed(f"{self._partition_name}, {which}, topic {row.message.topic}: {why}")


def _is_unknown(error: BrokerError) -> bool:
    """Whether a name server answered that it does not know the topic."""
    return isinstance(error, RequestRefused) and (
        error.response_code == ResponseCode.TOPIC_NOT_EXIST)


def _unique_id_maker() -> Any:
    """Return a function that makes the next unique id of this process."""
    try:
        address = socket.inet_aton(socket.gethostbyname(socket.gethostname()))
    except OSError:
        address = bytes((127, 0, 0, 1))
    maker = process_ids(address)
    return lambda: maker.make(time.time_ns() // 1_000_000)


def _write(options: Options, batches: Iterator[Any], job: str) -> RowsSent:
    """Send the rows of a task.

    :param job: the beginning of the marks of the option idempotenceKey; "" for the id of the query.
    """
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    batch_id = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if not job:
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        job = query or uuid.uuid4().hex
    partition_name = f"partition {partition}"
    with client_settings(options).client() as client:
        sender = Sender(options, client, partition_name)
        reader = RowReader(options, _unique_id_maker(), f"{job}:{batch_id or 0}:{partition}")
        for batch in batches:
            try:
                sender.send(reader.rows(batch))
            except RowError as error:
                raise WriteFailed(f"{partition_name}, {error}") from None
        sender.finish()
        return RowsSent(sender.acknowledged)


class _Writer:
    """The common part of the batch writer and the stream writer."""

    def __init__(self, options: Options, schema: Any) -> None:
        check_schema(schema, options)
        client_settings(options)
        self._options = options
        #: Spark makes one writer for each job on the driver and gives the tasks copies of it.
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, iterator, self._job)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame.

    If no name server answers before the first row is written, the write fails at once.
    """

    def __init__(self, options: Options, schema: Any) -> None:
        super().__init__(options, schema)
        with client_settings(options).client() as client:
            try:
                reach_name_server(client)
            except RemotingError as error:
                raise OptionError(f"option nameServer: {error}") from None


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, options: Options, schema: Any) -> None:
        super().__init__(options, schema)
        # The id of the query gives a micro-batch the same marks if it is run again after a restart.
        self._job = ""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because brokers have already acknowledged all rows."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing, because stored messages cannot be withdrawn.

        If the batch is run again, its messages are stored again.
        """
