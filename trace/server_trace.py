"""Records of sends and consumption, made by the broker for clients that do not trace themselves.

The broker knows different facts than a client, so its records differ in these points:

- ``Pub``: there is one record for each message, also in a batch. ``time_ms`` is the client's born
  timestamp. ``cost_ms`` is the time from there to the store timestamp, measured with two clocks and
  never below 0. ``success`` states whether the message was stored; a flush that is too late does
  not count as a failure. A refused send also has a record, without success and without an offset
  message id, while clients do not write one.
- ``SubBefore``: the message leaves the broker in the answer to a pull. All messages of a pull have
  the same ``request_id``.
- ``SubAfter``: ``time_ms`` is the time at which the broker noticed, within a second, that the
  group's offset had passed the message. ``cost_ms`` is the time from the delivery until then, so it
  includes the client's commit interval of five seconds. A message that was sent back is FAILED. A
  message that the group's offset has not passed within ``trace.consume_timeout`` is TIME_OUT. A
  broadcast group commits no offsets: its messages have SUCCESS and a cost of 0 immediately.

Records are not made while a request is handled. The request only puts the necessary facts into a
buffer. A periodic task writes them into the trace topic, at most 5,000 records a second, so that a
busy broker spends a limited part of its time on traces. While the buffer is full, new records are
dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from twistmq.broker.api import MessageRecord, decode_record, hookimpl, parse_properties
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.requests import RecordMaker, is_stored
from twistmq.broker.api.topics import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.api.wire import PERM_READ_WRITE, offset_message_id
from twistmq.broker.api.wire import properties as names
from twistmq.protocol.trace_records import ContextCode, MessageType, Pub, SubBefore, TraceRecord
from twistmq.trace.deliveries import Deliveries, Delivery
from twistmq.trace.pages import Page, Pages
from twistmq.trace.tracing_clients import (
    TRACE_GROUP_PREFIX,
    ClientKey,
    TracingClients,
    Verdict,
    client_key,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, ConsumeContext, SendBatch

__all__ = ["ServerTrace"]

#: Interval of writes, ms; and the interval while the buffer holds more than one write.
PERIOD_MS: Final = 1000
PERIOD_BUSY_MS: Final = 20
#: Records written at a time; this takes a millisecond or two on the reactor.
WRITE_MAX: Final = 100
#: Interval at which drops are logged and idle clients are forgotten, ms.
LOG_PERIOD_MS: Final = 60_000
#: Size of the cache that records whether a topic is traced.
_TOPICS_MAX: Final = 4096
#: Part of the properties of a message whose sender does not want a trace.
_NO_TRACE: Final = f"{names.TRACE_ON}\x01false".encode()


class Sent(NamedTuple):
    """The facts of a send, kept until its record is written."""

    group: str
    topic: str
    born_timestamp: int
    store_timestamp: int
    properties: str
    body_length: int
    #: The place where it is stored; -1 if it was refused.
    physical_offset: int


class ServerTrace:
    """The plugin that is registered while the broker traces."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        settings = broker.settings
        self._broker = broker
        self._topics = frozenset(filter(None, settings.text("trace.topics").split(";")))
        self._trace_topic = settings.text("msgTraceTopicName")
        #: Caches which topics are traced, because requests need this for each topic.
        self._traced_topics: dict[str, bool] = {}
        self._region = settings.text("regionId")
        self._maker = RecordMaker(
            self._region, "true" if settings.flag("traceOn") else "false", broker.cluster_name,
            broker.unique_ids)
        self._buffer_max = settings.int("trace.buffer_max")
        #: Waiting records, as (client, its address and port, record or facts).
        self._buffer: deque[tuple[ClientKey, bytes, Sent | TraceRecord]] = deque()
        #: Waiting records of clients for which no decision was made yet.
        self._watched: deque[tuple[ClientKey, bytes, Sent | TraceRecord]] = deque()
        self.clients = TracingClients()
        self.deliveries = Deliveries(self._buffer_max)
        self.written = self.dropped = 0
        self._dropped_logged = 0
        self._logged_ms = broker.steady.now_ms()
        self._looked_ms = 0
        #: Whether the last write reached its limit.
        self._is_behind = False

    # --- calls from requests

    def _wants(self, topic: str) -> bool:
        is_traced = self._traced_topics.get(topic)
        if is_traced is None:
            is_traced = topic in self._topics if self._topics else (
                topic[:1] != "%" and not self._broker.topic_config.is_system_topic(topic))
            if len(self._traced_topics) >= _TOPICS_MAX:
                self._traced_topics.clear()
            if topic in self._broker.topic_config.table:
                # A refused client may use any name, so only existing topics are cached.
                self._traced_topics[topic] = is_traced
        return is_traced

    @property
    def _waiting(self) -> int:
        return len(self._buffer) + len(self._watched)

    def _keep(self, client: ClientKey, host: bytes, entry: Sent | TraceRecord) -> None:
        if self._waiting >= self._buffer_max:
            self.dropped += 1
        else:
            self._buffer.append((client, host, entry))

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        last_topic = last_group = None
        is_trace = wants_topic = False
        channel: object = None
        host = b""
        # The room is computed once; with ``_keep`` it would be computed for each record.
        buffer, room, dropped = self._buffer, self._buffer_max - self._waiting, 0
        records_of, all_stored = batch.records, batch.all_stored
        for index, (topic, group, properties) in enumerate(batch.outlines):
            request = batch.requests[index]
            if request.channel is not channel:
                channel, host = request.channel, request.channel.remote_host
                last_topic = None
            if topic != last_topic or group != last_group:
                last_topic, last_group = topic, group
                is_trace = topic == self._trace_topic or group.startswith(TRACE_GROUP_PREFIX)
                wants_topic = not is_trace and self._wants(topic)
                client = client_key(host, group, False)
            records = records_of[index]
            if is_trace:
                self.clients.traced(
                    host, (record.body for record in records), self._broker.steady.now_ms())
            elif not wants_topic or _NO_TRACE in properties:
                continue
            elif room <= 0:
                dropped += len(records) or 1
            elif records:
                stored = all_stored or is_stored(batch.replies[index])
                kept = records[:room]
                dropped += len(records) - len(kept)
                room -= len(kept)
                buffer.extend([(client, host, Sent(
                    group, topic, record.born_timestamp,
                    record.store_timestamp if stored else request.now_ms, record.properties,
                    len(record.body), record.physical_offset if stored else -1))
                    for record in kept])
            else:
                room -= 1
                header = request.header
                buffer.append((client, host, Sent(
                    group, topic, header.born_timestamp, request.now_ms,
                    header.properties or "", len(request.body), -1)))
        self.dropped += dropped

    @hookimpl
    def after_consume(self, context: ConsumeContext) -> None:
        group, topic = context.group, context.topic
        is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        if not is_retry and not self._wants(topic):
            return
        if self._waiting >= self._buffer_max:
            self.dropped += len(context.messages)
            return
        broker = self._broker
        members = broker.clients.consumer_group(group)
        is_broadcast = members is not None and members.is_broadcast
        host, now_ms = context.channel.remote_host, broker.now_ms()
        client = client_key(host, group, True)
        request_id = broker.unique_ids.make(now_ms)
        for data in context.messages:
            try:
                message = decode_record(data, 0, False)
            except StoreDamaged:
                # The reader of the message logs the damage. A trace would need its message id.
                continue
            properties = message.properties_map()
            if is_retry and not self._wants(properties.get(names.RETRY_TOPIC, "")):
                continue
            message_id = properties.get(names.UNIQ_KEY) or offset_message_id(
                message.store_host, message.physical_offset)
            keys = properties.get(names.KEYS)
            self._keep(client, host, SubBefore(
                now_ms, self._region, client.group, request_id, message_id,
                message.reconsume_times, keys))
            delivery = Delivery(host, group, request_id, message_id, keys, now_ms)
            if is_broadcast:
                self._keep(client, host, delivery.ended(now_ms, ContextCode.SUCCESS))
            elif not self.deliveries.add(topic, context.queue_id, message.queue_offset, delivery):
                self.dropped += 1

    @hookimpl
    def before_append(self, records: Sequence[MessageRecord]) -> None:
        """Detect messages that are sent back, stored in a group's retry or dead-letter topic."""
        if not self.deliveries.count:
            return
        for record in records:
            topic = record.topic
            for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
                if topic.startswith(prefix) and record.keys:
                    self.deliveries.sent_back(topic.removeprefix(prefix), record.keys[0])

    # --- writing to the trace topic

    def period_ms(self) -> int:
        return (PERIOD_BUSY_MS if self._is_behind or len(self._buffer) >= WRITE_MAX
                else PERIOD_MS)

    def write(self, now_ms: int, max_count: int = WRITE_MAX) -> None:
        """Write waiting records; records of watched clients wait for the decision on the client."""
        steady_ms = self._broker.steady.now_ms()
        if steady_ms - self._looked_ms >= PERIOD_MS:
            self._looked_ms = steady_ms
            self._record_consumed(now_ms)
        self._append(self._take_pages(now_ms, steady_ms, max_count), now_ms)
        if steady_ms - self._logged_ms >= LOG_PERIOD_MS:
            self._report_drops(steady_ms)

    def _record_consumed(self, now_ms: int) -> None:
        timeout_ms = self._broker.settings.int("trace.consume_timeout")
        for host, ended in self.deliveries.ended(
            self._broker.consumer_offset.query, now_ms, timeout_ms
        ):
            assert ended.group is not None
            self._keep(client_key(host, ended.group, True), host, ended)

    def write_all(self, now_ms: int) -> None:
        """Write all records of all clients when tracing ends."""
        steady_ms = self._broker.steady.now_ms()
        self._buffer.extendleft(reversed(self._watched))
        self._watched.clear()
        while self._buffer:
            pages = Pages()
            for _ in range(min(len(self._buffer), WRITE_MAX)):
                client, host, entry = self._buffer.popleft()
                if self._verdict(client, entry, now_ms, steady_ms) is not Verdict.SKIP:
                    pages.add(host, self._record(entry))
            self._append(pages, now_ms)

    def _verdict(
        self, client: ClientKey, entry: Sent | TraceRecord, now_ms: int, steady_ms: int
    ) -> Verdict:
        """Decide whether to write a record, by its client and the time of its activity."""
        activity_ms = entry.store_timestamp if isinstance(entry, Sent) else entry.time_ms or 0
        return self.clients.verdict(client, steady_ms, now_ms - activity_ms)

    def _take_pages(self, now_ms: int, steady_ms: int, remaining_count: int) -> Pages:
        """Remove the records for this write from the buffer."""
        pages = Pages()
        watched = self._watched
        while watched and remaining_count > 0:
            client, host, entry = watched[0]
            verdict = self._verdict(client, entry, now_ms, steady_ms)
            if verdict is Verdict.WAIT:
                break
            watched.popleft()
            if verdict is Verdict.RECORD:
                pages.add(host, self._record(entry))
                remaining_count -= 1
        for _ in range(min(len(self._buffer), 4 * WRITE_MAX)):
            if remaining_count <= 0:
                break
            client, host, entry = self._buffer.popleft()
            verdict = self._verdict(client, entry, now_ms, steady_ms)
            if verdict is Verdict.WAIT:
                watched.append((client, host, entry))
            elif verdict is Verdict.RECORD:
                pages.add(host, self._record(entry))
                remaining_count -= 1
        self._is_behind = remaining_count <= 0
        return pages

    def _record(self, entry: Sent | TraceRecord) -> TraceRecord:
        if not isinstance(entry, Sent):
            return entry
        properties = parse_properties(entry.properties)
        kind = MessageType.NORMAL
        if properties.get(names.TRAN_MSG) == "true":
            kind = MessageType.TRANSACTION_HALF
        elif names.DELAY in properties:
            kind = MessageType.DELAY
        stored = entry.physical_offset >= 0
        offset_id = offset_message_id(
            self._broker.store_host, entry.physical_offset) if stored else ""
        return Pub(
            entry.born_timestamp, self._region, entry.group, entry.topic,
            properties.get(names.UNIQ_KEY) or offset_id, properties.get(names.TAGS),
            properties.get(names.KEYS), self._broker.broker_address, entry.body_length,
            max(entry.store_timestamp - entry.born_timestamp, 0), kind, offset_id, stored)

    def _append(self, pages: Pages, now_ms: int) -> None:
        closed = pages.close()
        if not closed:
            return
        broker = self._broker
        config = broker.topic_config.create_in_send_back(self._trace_topic, 1, PERM_READ_WRITE, 0)
        queue_id = broker.random.randrange(max(config.write_queue_nums, 1))
        records = [self._message(page, queue_id, now_ms) for page in closed]
        refusals = broker.append(records)
        for index, page in enumerate(closed):
            if index in refusals:
                self.dropped += len(page.parts)
            else:
                self.written += len(page.parts)
        broker.stats.messages_put(
            [record for index, record in enumerate(records) if index not in refusals])

    def _message(self, page: Page, queue_id: int, now_ms: int) -> MessageRecord:
        return self._maker.make(
            self._trace_topic, queue_id, page.body, {names.KEYS: " ".join(page.keys)}, "", 0, 0, 0,
            now_ms, page.host, self._broker.store_host, now_ms)

    # --- reports

    def _report_drops(self, steady_ms: int) -> None:
        self._logged_ms = steady_ms
        self.clients.forget_idle(steady_ms)
        dropped, self._dropped_logged = self.dropped - self._dropped_logged, self.dropped
        if dropped:
            self.log.warn("{count} trace records were dropped: the buffer of {limit} records was "
                          "full, or the store refused them", count=dropped, limit=self._buffer_max)

    def runtime_info(self) -> Mapping[str, str]:
        return {"traceRecordsWritten": str(self.written),
                "traceRecordsDropped": str(self.dropped),
                "traceRecordsWaiting": str(self._waiting),
                "traceDeliveriesWaiting": str(self.deliveries.count)}
