"""Records of what clients send and consume, made by the broker for clients that do not trace.

A broker knows these facts of each, where a client would write something else:

- ``Pub``: one record a message, also in a batch. ``time_ms`` is the client's born timestamp,
  ``cost_ms`` from there to the store timestamp, by two clocks, never below 0. ``success`` is
  whether it was stored; a flush that comes too late does not count. A send that is refused leaves
  a record too, without success and without an offset message id: clients write none.
- ``SubBefore``: the message leaves in the answer to a pull. ``request_id`` is one for all
  messages of the pull.
- ``SubAfter``: ``time_ms`` is when the broker noticed, within a second, that the group's offset
  went past the message; ``cost_ms`` is from the delivery to that, so it includes the client's
  habit of committing every five seconds. A message that was sent back is FAILED, one that is not
  past the group's offset within ``trace.consume_timeout`` is TIME_OUT. A group in broadcasting
  mode commits nothing: it has SUCCESS and a cost of 0 at once.

Nothing of this is done in a request: that puts what is needed into a buffer, which a periodic task
writes into the trace topic, 5,000 records a second at most, so that a busy broker gives a bounded
part of its time to traces. A record that comes while the buffer is full is dropped and counted.
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
from twistmq.trace.deliveries import Deliveries, Delivery
from twistmq.trace.pages import Page, Pages
from twistmq.trace.records import ContextCode, MessageType, Pub, SubBefore, TraceRecord
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

#: How often the buffer is written, ms; and when it holds more than one time writes.
PERIOD_MS: Final = 1000
PERIOD_BUSY_MS: Final = 20
#: Records that are written at a time: the reactor is held for a millisecond or two.
WRITE_MAX: Final = 100
#: How often drops are logged and idle clients are forgotten, ms.
LOG_PERIOD_MS: Final = 60_000
#: Topics in the cache of whether they are traced.
_TOPICS_MAX: Final = 4096
#: In the properties of a message whose sender wants no trace of it.
_NO_TRACE: Final = f"{names.TRACE_ON}\x01false".encode()


class Sent(NamedTuple):
    """The facts of a send, kept until its record is written."""

    group: str
    topic: str
    born_timestamp: int
    store_timestamp: int
    properties: str
    body_length: int
    #: Where it is stored; -1: it was refused.
    physical_offset: int


class ServerTrace:
    """The plugin that is registered while the broker traces."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        settings = broker.settings
        self._broker = broker
        self._topics = frozenset(filter(None, settings.text("trace.topics").split(";")))
        self._trace_topic = settings.text("msgTraceTopicName")
        #: The topics looked up so far: requests ask for each.
        self._wanted: dict[str, bool] = {}
        self._region = settings.text("regionId")
        self._maker = RecordMaker(
            self._region, "true" if settings.flag("traceOn") else "false", broker.cluster_name,
            broker.unique_ids)
        self._most = settings.int("trace.buffer_max")
        #: Records that wait: the client, its address and port, what to write.
        self._buffer: deque[tuple[ClientKey, bytes, Sent | TraceRecord]] = deque()
        #: The same of clients that are not decided on.
        self._watched: deque[tuple[ClientKey, bytes, Sent | TraceRecord]] = deque()
        self.clients = TracingClients()
        self.deliveries = Deliveries(self._most)
        self.written = self.dropped = 0
        self._dropped_logged = 0
        self._logged_ms = broker.steady.now_ms()
        self._looked_ms = 0

    # --- what requests bring

    def _wants(self, topic: str) -> bool:
        known = self._wanted.get(topic)
        if known is None:
            known = topic in self._topics if self._topics else (
                topic[:1] != "%" and not self._broker.topic_config.is_system_topic(topic))
            if len(self._wanted) >= _TOPICS_MAX:
                self._wanted.clear()
            if topic in self._broker.topic_config.table:
                # A refused client may name anything.
                self._wanted[topic] = known
        return known

    @property
    def _waiting(self) -> int:
        return len(self._buffer) + len(self._watched)

    def _keep(self, client: ClientKey, host: bytes, entry: Sent | TraceRecord) -> None:
        if self._waiting >= self._most:
            self.dropped += 1
        else:
            self._buffer.append((client, host, entry))

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        last_topic = last_group = None
        is_trace = wanted = False
        channel: object = None
        host = b""
        # Counted once: with ``_keep`` it would be for each record.
        buffer, room, dropped = self._buffer, self._most - self._waiting, 0
        records_of, all_stored = batch.records, batch.all_stored
        for index, (topic, group, properties) in enumerate(batch.outlines):
            request = batch.requests[index]
            if request.channel is not channel:
                channel, host = request.channel, request.channel.remote_host
                last_topic = None
            if topic != last_topic or group != last_group:
                last_topic, last_group = topic, group
                is_trace = topic == self._trace_topic or group.startswith(TRACE_GROUP_PREFIX)
                wanted = not is_trace and self._wants(topic)
                client = client_key(host, group, False)
            records = records_of[index]
            if is_trace:
                self.clients.traced(
                    host, (record.body for record in records), self._broker.steady.now_ms())
            elif not wanted or _NO_TRACE in properties:
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
        if self._waiting >= self._most:
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
                # Its reader logs what is wrong with it. It has no id that a trace could name.
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
        """A message to a group's retries or dead letters was sent back."""
        if not self.deliveries.count:
            return
        for record in records:
            topic = record.topic
            for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
                if topic.startswith(prefix) and record.keys:
                    self.deliveries.sent_back(topic.removeprefix(prefix), record.keys[0])

    # --- into the trace topic

    def period_ms(self) -> int:
        return PERIOD_BUSY_MS if len(self._buffer) >= WRITE_MAX else PERIOD_MS

    def write(self, now_ms: int, most: int = WRITE_MAX) -> None:
        """Write records that wait, those of watched clients once they are decided on."""
        steady_ms = self._broker.steady.now_ms()
        if steady_ms - self._looked_ms >= PERIOD_MS:
            self._looked_ms = steady_ms
            self._look_for_consumed(now_ms)
        self._append(self._taken(steady_ms, most), now_ms)
        if steady_ms - self._logged_ms >= LOG_PERIOD_MS:
            self._look_back(steady_ms)

    def _look_for_consumed(self, now_ms: int) -> None:
        timeout_ms = self._broker.settings.int("trace.consume_timeout")
        for host, ended in self.deliveries.ended(
            self._broker.consumer_offset.query, now_ms, timeout_ms
        ):
            assert ended.group is not None
            self._keep(client_key(host, ended.group, True), host, ended)

    def write_all(self, now_ms: int) -> None:
        """Write all records of all clients; at the end."""
        steady_ms = self._broker.steady.now_ms()
        self._buffer.extendleft(reversed(self._watched))
        self._watched.clear()
        while self._buffer:
            pages = Pages()
            for _ in range(min(len(self._buffer), WRITE_MAX)):
                client, host, entry = self._buffer.popleft()
                if self.clients.verdict(client, steady_ms) is not Verdict.SKIP:
                    pages.add(host, self._record(entry))
            self._append(pages, now_ms)

    def _taken(self, steady_ms: int, most: int) -> Pages:
        """Take the records to write now out of the buffer."""
        pages = Pages()
        watched = self._watched
        while watched and most > 0:
            client, host, entry = watched[0]
            verdict = self.clients.verdict(client, steady_ms)
            if verdict is Verdict.WAIT:
                break
            watched.popleft()
            if verdict is Verdict.RECORD:
                pages.add(host, self._record(entry))
                most -= 1
        for _ in range(min(len(self._buffer), 4 * WRITE_MAX)):
            if most <= 0:
                break
            client, host, entry = self._buffer.popleft()
            verdict = self.clients.verdict(client, steady_ms)
            if verdict is Verdict.WAIT:
                watched.append((client, host, entry))
            elif verdict is Verdict.RECORD:
                pages.add(host, self._record(entry))
                most -= 1
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

    # --- what is told of it

    def _look_back(self, steady_ms: int) -> None:
        self._logged_ms = steady_ms
        self.clients.forget_idle(steady_ms)
        dropped, self._dropped_logged = self.dropped - self._dropped_logged, self.dropped
        if dropped:
            self.log.warn("{count} trace records were dropped: the buffer of {most} records was "
                          "full, or the store refused them", count=dropped, most=self._most)

    def runtime_info(self) -> Mapping[str, str]:
        return {"traceRecordsWritten": str(self.written),
                "traceRecordsDropped": str(self.dropped),
                "traceRecordsWaiting": str(self._waiting),
                "traceDeliveriesWaiting": str(self.deliveries.count)}
