"""The broker writes trace records for clients that do not write their own."""

from __future__ import annotations

from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import error_lines, flip
from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.plugins import orderly, retry, schedule
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.bodies import ConsumerData, MessageModel
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.query import QueryMessageRequestHeader
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.record import StoredMessage, decode_record
from twistmq.protocol.trace_records import (
    ContextCode,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_records,
    encode_records,
)
from twistmq.trace import plugin
from twistmq.trace.server_trace import WRITE_MAX
from twistmq.trace.tracing_clients import WATCH_MS

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
#: After so long a client that was seen for the first time is decided on.
DECIDED_MS = WATCH_MS + 1000
PLUGINS: list[tuple[str, object]] = [
    ("orderly", orderly.Plugin), ("retry", retry.Plugin), ("schedule", schedule.Plugin),
    ("trace", plugin.Plugin)]


class TraceTestCase(SynchronousTestCase):
    """A kernel that traces, a producer and a consumer."""

    def setUp(self) -> None:
        self.start()

    def start(self, **settings: str) -> None:
        self.disk = FaultyDisk()
        named = {name.replace("_", ".", 1): value for name, value in settings.items()}
        self.box = KernelBox(PLUGINS, {"trace.server": "true", **named}, self.disk)
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        self.producer, self.consumer = self.box.peer(), self.box.peer()

    def send(self, topic: str = "T", body: bytes = b"body", *, code: int = ResponseCode.SUCCESS,
             **fields: Any) -> RemotingCommand:
        fields.setdefault("properties", {"UNIQ_KEY": "u1"})
        header = send_header(topic, self.box.now_ms - 3, **fields)
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, body, self.producer)
        self.assertEqual(reply.code, code, msg=reply.remark)
        return reply

    def pull(self, topic: str = "T", offset: int = 0, group: str = "g") -> list[StoredMessage]:
        reply = self.box.ask(RequestCode.PULL_MESSAGE, pull_header(topic, offset, group=group),
                             peer=self.consumer)
        return records_of(reply.body)

    def commit(self, offset: int, topic: str = "T", group: str = "g") -> None:
        self.box.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=0, commit_offset=offset),
            peer=self.consumer)

    def let_pass(self, elapsed_ms: int = DECIDED_MS) -> None:
        """Let time pass as the broker's periodic task sees it, a second at a time."""
        while elapsed_ms > 0:
            step_ms = min(elapsed_ms, 1000)
            elapsed_ms -= step_ms
            self.box.now_ms += step_ms
            for task in self.kernel.periodic_tasks:
                if task.name in ("write trace records", "deliver delayed messages"):
                    task.run(self.box.now_ms + self.box.jump_ms)

    def messages(self) -> list[StoredMessage]:
        """Return the messages of the trace topic."""
        found = self.kernel.store.get_message(TRACE_TOPIC, 0, 0, 32).messages
        return [decode_record(data) for data in found]

    def records(self) -> list[TraceRecord]:
        decoded = [decode_records(message.body) for message in self.messages()]
        self.assertEqual(sum(each.bad_count for each in decoded), 0)
        return [record for each in decoded for record in each.records]

    def info(self) -> dict[str, int]:
        return {name: int(value) for name, value in self.kernel.hooks.runtime_info().items()
                if name.startswith("trace")}

    def watch(self) -> None:
        """Let the clients be decided on."""
        self.send("First")
        self.pull("First")
        self.let_pass()
        self.skipped = len(self.records())
        self.assertEqual(self.skipped, 2)

    def new(self) -> list[TraceRecord]:
        """Return the records after those of :meth:`watch`, without the consumption of First."""
        return self.records()[self.skipped:]


class SentTests(TraceTestCase):
    """The records of sends."""

    def test_a_send_is_recorded_as_a_client_would(self) -> None:
        """A record has every field that the broker knows, in a message of the client's format."""
        self.send(tag="red", keys="k1 k2", properties={"UNIQ_KEY": "u1"})
        reply = self.send(body=b"longer", properties={"UNIQ_KEY": "u2"})
        begin_ms = self.box.now_ms
        self.let_pass()
        first, second = self.records()
        place = reply.header(SendMessageResponseHeader).msg_id
        self.assertEqual(second, Pub(
            begin_ms - 3, "DefaultRegion", "test_producer", "T", "u2", None, None,
            "127.0.0.1:10911", 6, 3, MessageType.NORMAL, place, True))
        assert isinstance(first, Pub)
        self.assertEqual((first.message_id, first.tags, first.keys), ("u1", "red", "k1 k2"))
        [message] = self.messages()
        self.assertEqual(message.born_host, self.producer.remote_host)
        properties = message.properties_map()
        self.assertEqual(len(properties.pop("UNIQ_KEY")), 32)
        self.assertEqual(properties, {
            "KEYS": "u1 k1 k2 u2", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster"})

    def test_clock_goes_back(self) -> None:
        """A client that is watched is decided on in its time, and records are written."""
        self.send()
        self.let_pass(1000)
        self.box.jump_ms = -3_600_000
        self.let_pass()
        self.assertEqual(len(self.records()), 1)

    def test_found_by_id_and_key(self) -> None:
        """The trace message is in the index under the message's id and keys."""
        self.send(keys="k1")
        self.let_pass()
        for key in ("u1", "k1"):
            header = QueryMessageRequestHeader(
                topic=TRACE_TOPIC, key=key, max_num=9, begin_timestamp=0, end_timestamp=2**60)
            reply = self.box.ask(RequestCode.QUERY_MESSAGE, header)
            self.assertEqual(len(records_of(reply.body)), 1, msg=key)

    def test_kinds_of_messages(self) -> None:
        """The record of a delayed message gives its type, and the topic to which it was sent."""
        self.send(properties={"UNIQ_KEY": "u1", "DELAY": "3"})
        self.let_pass()
        [record] = self.records()
        assert isinstance(record, Pub)
        self.assertEqual((record.message_type, record.topic), (MessageType.DELAY, "T"))

    def test_a_batch(self) -> None:
        """Each message of a batch has a record."""
        body = encode_batch([(0, b"a", "UNIQ_KEY\x01u1\x02"), (0, b"bc", "UNIQ_KEY\x01u2\x02")])
        header = send_header("T", self.box.now_ms)
        header.batch = True
        self.box.ask(RequestCode.SEND_BATCH_MESSAGE, header, body, self.producer)
        self.let_pass()
        self.assertEqual([(record.message_id, record.body_length) for record in self.records()
                          if isinstance(record, Pub)], [("u1", 1), ("u2", 2)])

    def test_a_refused_message(self) -> None:
        """A refused message has a record with the client's names, without success and offset."""
        self.send("no/topic", code=ResponseCode.INVALID_PARAMETER)
        self.let_pass()
        [record] = self.records()
        assert isinstance(record, Pub)
        self.assertEqual((record.topic, record.message_id, record.success,
                          record.offset_message_id), ("no/topic", "u1", False, ""))

    def test_a_message_that_cannot_be_stored(self) -> None:
        """A message that the store refuses has a record as well."""
        self.disk.room_bytes = 0
        self.send(code=ResponseCode.SERVICE_NOT_AVAILABLE)
        self.disk.room_bytes = None
        self.let_pass()
        [record] = self.records()
        assert isinstance(record, Pub)
        self.assertEqual((record.message_id, record.success), ("u1", False))

    def test_sync_flush(self) -> None:
        """A send that waits for a flush is recorded as successful."""
        self.start(flushDiskType="SYNC_FLUSH")
        self.send()
        self.let_pass()
        [record] = self.records()
        assert isinstance(record, Pub)
        self.assertTrue(record.success)

    def test_what_is_not_traced(self) -> None:
        """Topics of the broker, and messages whose producer forbids tracing, are not traced."""
        self.send("broker-a")
        self.send(TRACE_TOPIC, b"junk")
        self.send(properties={"UNIQ_KEY": "u1", "TRACE_ON": "false"})
        self.let_pass()
        self.assertEqual([message.body for message in self.messages()], [b"junk"])

    def test_chosen_topics(self) -> None:
        """Only the topics of ``trace.topics`` are traced."""
        self.start(trace_topics="T;U")
        for topic in ("T", "V", "U"):
            self.send(topic)
        self.let_pass()
        self.assertEqual([record.topic for record in self.records() if isinstance(record, Pub)],
                         ["T", "U"])


class ConsumedTests(TraceTestCase):
    """The records of pulls and of the consumption after them."""

    def setUp(self) -> None:
        super().setUp()
        self.watch()

    def test_a_consumption_is_recorded_by_delivery_and_offset(self) -> None:
        """SubBefore when it leaves, SubAfter when the group's offset is past it."""
        self.send(keys="k")
        [message] = self.pull()
        begin_ms = self.box.now_ms
        self.let_pass(2000)
        self.commit(1)
        self.let_pass(1000)
        _, before, after = self.new()
        assert isinstance(before, SubBefore) and isinstance(after, SubAfter)
        self.assertEqual(before, SubBefore(
            begin_ms, "DefaultRegion", "g", before.request_id, "u1", 0, "k"))
        self.assertEqual(after, SubAfter(
            before.request_id, "u1", 3000, True, "k", ContextCode.SUCCESS, begin_ms + 3000, "g"))
        self.assertEqual({each.born_host for each in self.messages()},
                         {self.producer.remote_host, self.consumer.remote_host})
        self.assertEqual(message.reconsume_times, 0)

    def test_a_damaged_message_is_not_traced(self) -> None:
        """The other messages of the pull are traced."""
        for name in ("u1", "u2", "u3"):
            self.send(properties={"UNIQ_KEY": name})
        flip(self.box, "T", 0, 1, "properties")
        with capturedLogs() as events:
            self.box.ask(RequestCode.PULL_MESSAGE, pull_header("T", 0, group="g"),
                         peer=self.consumer)
        self.assertEqual(error_lines(events), [])
        self.let_pass(1000)
        self.assertEqual([record.message_id for record in self.new()
                          if isinstance(record, SubBefore)], ["u1", "u3"])

    def test_one_request_id_a_pull(self) -> None:
        """The messages of one pull share a request id."""
        for name in ("u1", "u2"):
            self.send(properties={"UNIQ_KEY": name})
        self.pull()
        self.let_pass(1000)
        before = [record for record in self.new() if isinstance(record, SubBefore)]
        self.assertEqual([record.message_id for record in before], ["u1", "u2"])
        self.assertEqual(len({record.request_id for record in before}), 1)

    def test_sent_back_and_tried_again(self) -> None:
        """The first try failed; the second is of the same message, and is counted."""
        self.send()
        [message] = self.pull()
        self.box.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset, group="g", delay_level=1, origin_topic="T"),
            peer=self.consumer)
        self.commit(1)
        self.let_pass(3000)
        self.assertEqual([each.reconsume_times for each in self.pull("%RETRY%g")], [1])
        self.commit(1, "%RETRY%g")
        self.let_pass(1000)
        tries = [record.retry_times for record in self.new() if isinstance(record, SubBefore)]
        codes = [record.context_code for record in self.new() if isinstance(record, SubAfter)]
        self.assertEqual((tries, codes), ([0, 1], [ContextCode.FAILED, ContextCode.SUCCESS]))

    def test_a_group_that_commits_nothing_here_has_consumed(self) -> None:
        """For a group that commits no offset here, a delivered message counts as consumed."""
        self.kernel.clients.register_consumer(
            ConsumerData("g", message_model=MessageModel.BROADCASTING),
            Client("c", self.consumer, "JAVA", 479, self.box.now_ms, self.box.now_ms), notify=False)
        self.send()
        self.pull()
        self.let_pass(1000)
        after = self.new()[-1]
        assert isinstance(after, SubAfter)
        self.assertEqual((after.success, after.cost_ms), (True, 0))

    def test_chosen_topics(self) -> None:
        """A retry belongs to the topic the message was first sent to."""
        self.start(trace_topics="U")
        self.send("U")
        self.send("T")
        self.pull("U")
        self.pull("T")
        self.let_pass()
        found = [type(record) for record in self.records()]
        self.assertEqual(found, [Pub, SubBefore])


class OtherTopicTests(TraceTestCase):
    """The setting ``msgTraceTopicName``."""

    def test_records_go_to_the_topic_that_is_named(self) -> None:
        """Records are written to the configured topic only, and its own messages are not traced."""
        self.start(msgTraceTopicName="Traces")
        self.send()
        self.let_pass()
        found = [decode_record(data)
                 for data in self.kernel.store.get_message("Traces", 0, 0, 32).messages]
        self.assertEqual([len(decode_records(each.body).records) for each in found], [1])
        self.assertEqual(self.messages(), [])
        self.send("Traces", b"not a trace")
        self.let_pass()
        self.assertEqual(self.info()["traceRecordsWritten"], 1)


class TracedByClientTests(TraceTestCase):
    """Clients that write their own traces."""

    def trace(self, *records: TraceRecord, group: str = "_INNER_TRACE_PRODUCER-x-PRODUCE-1",
              topic: str = TRACE_TOPIC) -> None:
        """A client sends its records, from another connection."""
        header = send_header(topic, self.box.now_ms)
        header.producer_group = group
        self.box.ask(RequestCode.SEND_MESSAGE_V2, header, encode_records(records))

    def pub(self) -> Pub:
        return Pub(1, "R", "test_producer", "T", "u1", None, None, None, 4, 1, 0, "o", True)

    def test_nothing_comes_twice(self) -> None:
        """Records from before the client's first own record are dropped, as later ones are."""
        self.kernel.topic_config.create_in_send_back(TRACE_TOPIC, 1, 6, 0)
        self.send()
        self.let_pass(4000)
        self.trace(self.pub())
        self.send()
        self.let_pass()
        self.assertEqual(self.records(), [self.pub()])
        self.assertEqual(self.info()["traceRecordsWaiting"], 0)

    def test_a_program_that_began_earlier_is_recorded(self) -> None:
        """A program of the same address and group that traces cannot have traced an older send."""
        self.send()
        self.box.now_ms += WATCH_MS + 2000
        self.send(properties={"UNIQ_KEY": "u2"})
        self.trace(self.pub(), topic="MyTraces")
        self.let_pass()
        self.assertEqual([record.message_id for record in self.records()
                          if isinstance(record, Pub)], ["u1"])

    def test_trace_topic_of_its_own(self) -> None:
        """A producer with a trace topic of its own is recognised by its group."""
        self.send()
        self.trace(self.pub(), topic="MyTraces")
        self.let_pass()
        self.assertEqual(self.records(), [])

    def test_its_consumer_does_not(self) -> None:
        """A group's producer and consumer are decided on apart."""
        self.send()
        self.trace(self.pub(), topic="MyTraces")
        self.pull()
        self.let_pass()
        self.assertEqual([type(record) for record in self.records()], [SubBefore])


class BoundTests(TraceTestCase):
    """The limits of memory."""

    def waiting_and_dropped(self) -> tuple[int, int]:
        info = self.info()
        return info["traceRecordsWaiting"], info["traceRecordsDropped"]

    def test_a_batch_that_is_too_much(self) -> None:
        """As many messages of a large batch are recorded as the limit permits."""
        self.start(trace_buffer_max="3")
        header = send_header("T", self.box.now_ms)
        header.batch = True
        body = encode_batch([(0, b"x", f"UNIQ_KEY\x01u{number}\x02") for number in range(5)])
        self.box.ask(RequestCode.SEND_BATCH_MESSAGE, header, body, self.producer)
        self.assertEqual(self.waiting_and_dropped(), (3, 2))

    def test_a_read_that_is_too_much(self) -> None:
        """Sends of one read share the room, one that is refused among them."""
        self.start(trace_buffer_max="3")
        frames = [encode_request(RequestCode.SEND_MESSAGE_V2, number, send_header(topic, 0), b"x")
                  for number, topic in enumerate(("T", "T", "no/topic", "T", "no/topic"))]
        replies = self.kernel.dispatcher.execute(
            self.producer, FrameDecoder().feed(b"".join(frames)), self.box.now_ms)
        self.assertEqual(len(replies), 5)
        self.assertEqual(self.waiting_and_dropped(), (3, 2))

    def test_sends_of_several_connections(self) -> None:
        """Each send is recorded with the host of its own connection."""
        dispatcher = self.kernel.dispatcher
        dispatcher.execute_together([
            dispatcher.read_head(peer, FrameDecoder().feed(encode_request(
                RequestCode.SEND_MESSAGE_V2, 1, send_header("T", 0), b"x")), self.box.now_ms)[0]
            for peer in (self.producer, self.consumer)])
        self.let_pass()
        self.assertEqual([message.born_host for message in self.messages()],
                         [self.producer.remote_host, self.consumer.remote_host])

    def test_records_beyond_it_are_dropped_and_counted(self) -> None:
        """Records above the limit are dropped and counted; one log line reports them."""
        self.start(trace_buffer_max="3")
        for _ in range(5):
            self.send()
        self.assertEqual(self.info(), {
            "traceRecordsWritten": 0, "traceRecordsDropped": 2, "traceRecordsWaiting": 3,
            "traceDeliveriesWaiting": 0})
        with capturedLogs() as events:
            self.let_pass(180_000)
        self.assertEqual([event["count"] for event in events
                          if "trace records were dropped" in event["log_format"]], [2])
        self.assertEqual(len(self.records()), 3)
        self.assertEqual(self.info()["traceRecordsWritten"], 3)

    def test_deliveries_beyond_the_limit_have_no_sub_after(self) -> None:
        """Deliveries above the limit have no SubAfter record."""
        self.start(trace_buffer_max="8")
        for number in range(12):
            self.send(properties={"UNIQ_KEY": f"u{number}"})
        self.assertEqual(self.info()["traceRecordsDropped"], 4)
        self.let_pass()
        self.pull()
        self.assertEqual(self.info()["traceDeliveriesWaiting"], 8)
        self.assertEqual(self.info()["traceRecordsWaiting"], 8)
        self.assertGreater(self.info()["traceRecordsDropped"], 4)

    def test_many_records_are_written_fast_when_their_client_is_decided_on(self) -> None:
        """The records that waited for the decision are written without long pauses."""
        for number in range(3 * WRITE_MAX):
            self.send(properties={"UNIQ_KEY": f"u{number}"})
        task = next(task for task in self.kernel.periodic_tasks
                    if task.name == "write trace records")
        assert callable(task.period_ms)
        periods = []
        self.let_pass(WATCH_MS)
        while self.info()["traceRecordsWaiting"]:
            periods.append(task.period_ms())
            self.box.now_ms += periods[-1]
            task.run(self.box.now_ms)
        self.assertLess(sum(periods), 1500)
        self.assertEqual(self.info()["traceRecordsWritten"], 3 * WRITE_MAX)

    def test_records_of_clients_that_are_watched_count(self) -> None:
        """Records that wait for the decision about their client count towards the limit."""
        self.start(trace_buffer_max="3")
        for _ in range(2):
            self.send()
        self.let_pass(1000)
        for _ in range(3):
            self.send()
        self.assertEqual(self.waiting_and_dropped(), (3, 2))

    def test_a_pull_that_is_too_much(self) -> None:
        """The messages of a pull that is too large are counted as dropped."""
        self.start(trace_buffer_max="3")
        for _ in range(3):
            self.send()
        self.assertEqual(len(self.pull()), 3)
        self.assertEqual(self.waiting_and_dropped(), (3, 3))

    def test_full_disk(self) -> None:
        """Records that cannot be stored are dropped, and the next ones are written."""
        self.send()
        self.let_pass(WATCH_MS)
        self.disk.room_bytes = 0
        self.let_pass(1000)
        self.assertEqual(self.info()["traceRecordsDropped"], 1)
        self.disk.room_bytes = None
        self.send()
        self.let_pass(1000)
        self.assertEqual(len(self.records()), 1)

    def test_a_little_at_a_time(self) -> None:
        """A long buffer is written in steps, soon one after the other."""
        self.start()
        self.watch()
        for _ in range(250):
            self.send()
        [task] = [task for task in self.kernel.periodic_tasks
                  if task.name == "write trace records"]
        assert callable(task.period_ms)
        self.assertEqual(task.period_ms(), 20)
        waiting = []
        for _ in range(3):
            task.run(self.box.now_ms)
            waiting.append(self.info()["traceRecordsWaiting"])
        self.assertEqual(waiting, [150, 50, 0])
        self.assertEqual(task.period_ms(), 1000)


class SwitchTests(TraceTestCase):
    """The switch of the trace."""

    def hooks(self) -> tuple[int, int]:
        hooks = self.kernel.hooks
        return len(hooks.after_send), len(hooks.after_consume)

    def test_off_costs_nothing(self) -> None:
        """While the trace is off, no hook for sends and pulls is registered and no topic is
        created.
        """
        self.start(trace_server="false")
        self.assertEqual(self.hooks(), (0, 0))
        self.send()
        self.let_pass()
        self.assertNotIn(TRACE_TOPIC, self.kernel.topic_config.table)
        self.assertEqual(self.info(), {})

    def test_while_the_broker_runs(self) -> None:
        """The trace can be switched while the broker runs; the end writes waiting records."""
        self.start(trace_server="false")
        self.kernel.settings.update({"trace.server": "true"})
        self.assertEqual(self.hooks(), (1, 1))
        self.send()
        self.kernel.settings.update({"longPollingEnable": "false"})
        self.assertEqual(self.info()["traceRecordsWaiting"], 1)
        self.kernel.settings.update({"trace.server": "false"})
        self.assertEqual(self.hooks(), (0, 0))
        self.assertEqual(len(self.records()), 1)

    def test_a_stop_writes_the_waiting_records(self) -> None:
        """A broker that stops writes the records that wait."""
        self.send()
        self.box.plugin(plugin.Plugin).on_stop()
        self.assertEqual(len(self.records()), 1)

    def test_a_slave_writes_nothing(self) -> None:
        """A slave writes no records."""
        self.send()
        self.kernel.set_role("SLAVE", 1)
        self.let_pass()
        self.assertEqual(self.records(), [])
        self.kernel.set_role("ASYNC_MASTER", 0)
