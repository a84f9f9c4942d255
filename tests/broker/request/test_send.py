"""The requests SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker import hookimpl
from twistmq.broker.plugin.interfaces import ITransactionService
from twistmq.broker.remoting.messages import Handled, Reply, Request, UnmadeReplies
from twistmq.broker.request.acknowledgement import Stage
from twistmq.broker.request.send import SendRequests
from twistmq.broker.request.send_context import SendBatch
from twistmq.broker.testing.conversation import read_commands
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.frame import JSON, FrameDecoder, encode_frame
from twistmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.properties import format_properties
from twistmq.protocol.record import MessageRecord, StoredMessage, host_bytes


def batch_body(*messages: tuple[int, bytes, Mapping[str, str]]) -> bytes:
    """The body of a batch of (flag, body, properties), as clients make it."""
    parts = []
    for flag, body, fields in messages:
        text = format_properties(dict(fields)).encode()
        inner = b"".join((bytes(8), flag.to_bytes(4, "big"), len(body).to_bytes(4, "big"), body,
                          len(text).to_bytes(2, "big"), text))
        parts.append((len(inner) + 4).to_bytes(4, "big") + inner)
    return b"".join(parts)


#: Properties of a plain message, which has a unique key from its client.
PLAIN = {"UNIQ_KEY": "U"}


class SendTestCase(SynchronousTestCase):
    """A test with a kernel."""

    settings: Mapping[str, str] = {}
    plugins: list[tuple[str, object]] = []  # noqa: RUF012

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = KernelBox(self.plugins, self.settings, self.disk)
        self.addCleanup(self.box.stop)

    def send(
        self, topic: str = "T", body: bytes = b"x", code: int = RequestCode.SEND_MESSAGE_V2,
        changes: Mapping[str, Any] | None = None, **fields: Any
    ) -> RemotingCommand:
        """Send; :returns: the reply."""
        header = send_header(topic, self.box.now_ms, **fields)
        for name, value in (changes or {}).items():
            setattr(header, name, value)
        return self.box.ask(code, header, body)

    def sent(self, *arguments: Any, **fields: Any) -> SendMessageResponseHeader:
        """Send a message that must be stored."""
        reply = self.send(*arguments, **fields)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        return reply.header(SendMessageResponseHeader)

    def refused(self, *arguments: Any, **fields: Any) -> tuple[int, str]:
        """Send a message that must be refused; :returns: the code and the remark."""
        before = self.box.kernel.store.commit_log.max_offset
        reply = self.send(*arguments, **fields)
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, before)
        self.assertEqual(reply.fields(), {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
        return reply.code, reply.remark or ""

    def messages(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        reply = self.box.ask(RequestCode.PULL_MESSAGE, pull_header(topic, queue_id=queue_id))
        return records_of(reply.body)


class StoredTests(SendTestCase):
    """Messages that are stored."""

    def test_the_reply_says_where_the_message_is(self) -> None:
        """The response has the queue, the offset and the unique key of the message."""
        self.sent(queue_id=2)
        header = self.sent(queue_id=2, properties={"UNIQ_KEY": "0A0A"})
        self.assertEqual((header.queue_id, header.queue_offset), (2, 1))
        self.assertEqual(header.transaction_id, "0A0A")
        self.assertEqual((header.msg_region, header.trace_on), ("DefaultRegion", True))
        self.assertEqual(parse_offset_message_id(header.msg_id), (
            "127.0.0.1", 10911, self.messages(queue_id=2)[1].physical_offset))

    def test_body_flags_times_and_addresses_are_the_clients(self) -> None:
        """Body, flags, times and addresses are the client's; a compressed body is unchanged."""
        peer = self.box.peer()
        header = send_header("T", 123_456)
        header.sys_flag, header.flag, header.reconsume_times = 1, 7, 3
        self.box.send(peer, RequestCode.SEND_MESSAGE_V2, header, b"\x78\x9c not really zlib")
        [message] = self.messages()
        self.assertEqual(message.body, b"\x78\x9c not really zlib")
        self.assertEqual((message.sys_flag, message.flag, message.reconsume_times), (1, 7, 3))
        self.assertEqual((message.born_timestamp, message.born_host),
                         (123_456, peer.remote_host))
        self.assertEqual((message.store_timestamp, message.store_host),
                         (self.box.now_ms, host_bytes("127.0.0.1", 10911)))
        self.assertEqual((message.queue_offset, message.topic), (0, "T"))

    def test_stored_properties_are_the_clients_and_the_brokers(self) -> None:
        """The broker adds and removes some properties; all others are the client's.

        A property without a value is lost, as in Apache's broker.
        """
        self.sent(tag="tag", keys="k1 k2", properties={
            "WAIT": "true", "1ST_POP_TIME": "5", "POP_CK": "check point", "größe": "ü",
            "empty": "", "MSG_REGION": "forged", "CLUSTER": "forged"})
        [message] = self.messages()
        fields = message.properties_map()
        unique_key = fields.pop("UNIQ_KEY")
        self.assertEqual(len(unique_key), 32)
        self.assertEqual(fields, {
            "TAGS": "tag", "KEYS": "k1 k2", "WAIT": "true", "1ST_POP_TIME": "5", "größe": "ü",
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"})

    def test_unique_keys_differ(self) -> None:
        """A message without a unique key gets one."""
        keys = {self.sent().transaction_id for _ in range(100)}
        self.assertEqual(len(keys), 100)
        self.assertEqual([m.properties_map()["UNIQ_KEY"] in keys for m in self.messages()],
                         [True] * 32)

    def test_the_header_with_long_names_does_the_same(self) -> None:
        """The header with long names has the same effect."""
        header = SendMessageRequestHeader(
            producer_group="g", topic="T", default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=1, sys_flag=0, born_timestamp=1, flag=0, properties="TAGS\x01a\x02")
        reply = self.box.ask(RequestCode.SEND_MESSAGE, header, b"x")
        self.assertEqual(reply.header(SendMessageResponseHeader).queue_id, 1)
        self.assertEqual(self.messages(queue_id=1)[0].properties_map()["TAGS"], "a")

    def test_a_one_way_send_is_stored_and_not_answered(self) -> None:
        """A one-way send is stored and not answered."""
        reply = self.box.send(self.box.peer(), RequestCode.SEND_MESSAGE_V2, send_header("T", 1),
                              b"x", oneway=True)
        self.assertIsNone(reply)
        self.assertEqual(len(self.messages()), 1)

    def test_broker_chooses_the_queue(self) -> None:
        """A negative queue id lets the broker choose among the existing queues."""
        chosen = {self.sent(queue_id=-1).queue_id for _ in range(200)}
        self.assertEqual(chosen, {0, 1, 2, 3})

    def test_empty_body(self) -> None:
        """A message may have an empty body."""
        self.sent(body=b"")
        self.assertEqual(self.messages()[0].body, b"")

    def test_stored_messages_are_counted_and_refused_ones_are_not(self) -> None:
        """Stored messages are counted, and refused ones are not."""
        self.sent()
        self.refused(queue_id=99)
        sums = self.box.kernel.stats.sums("TOPIC_PUT", "T")
        self.assertEqual((sums.count, sums.size), (1, self.messages()[0].size))


class RefusedTests(SendTestCase):
    """Each refusal has Apache's code and remark."""

    def test_invalid_and_forbidden_topic_names_are_refused(self) -> None:
        """Invalid names and forbidden topics are refused."""
        for topic in ("", "a b", "a/b", "größe", "x" * 128):
            code, remark = self.refused(topic)
            self.assertEqual(code, ResponseCode.INVALID_PARAMETER, msg=repr(topic))
            self.assertTrue(remark, msg=repr(topic))
        self.sent("x" * 127)
        self.assertEqual(self.refused("SCHEDULE_TOPIC_XXXX"), (
            ResponseCode.NO_PERMISSION,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."))

    def test_queue_id(self) -> None:
        """The topic does not have the queue."""
        self.sent(queue_id=3)
        code, remark = self.refused(queue_id=4)
        self.assertEqual(code, ResponseCode.INVALID_PARAMETER)
        self.assertIn("request queueId[4] is illegal, ", remark)

    def test_read_queue(self) -> None:
        """A queue that is only read is written too: a topic that shrinks is drained so."""
        self.sent()
        self.box.kernel.topic_config.update(TopicConfig("T", 4, 2), {})
        self.assertEqual(self.sent(queue_id=3, properties=PLAIN).queue_id, 3)

    def test_a_topic_that_changes(self) -> None:
        """The next send to it uses the new number of queues."""
        for count in (4, 2, 4):
            self.box.kernel.topic_config.update(TopicConfig("T", count, count), {})
            self.assertEqual(
                self.sent(queue_id=count - 1, properties=PLAIN).queue_id, count - 1)
            self.assertEqual(self.refused(queue_id=count, properties=PLAIN)[0],
                             ResponseCode.INVALID_PARAMETER)

    def test_a_message_has_at_most_so_many_keys(self) -> None:
        """A message has at most so many keys: each is an item of the index."""
        keys = " ".join(f"k{number}" for number in range(1023))
        self.sent(properties={"UNIQ_KEY": "U", "KEYS": keys})
        self.assertEqual(
            self.refused(properties={"UNIQ_KEY": "U", "KEYS": keys + " more"}),
            (ResponseCode.MESSAGE_ILLEGAL, "the message has 1025 keys, more than 1024"))

    def test_body_and_properties_have_their_limits(self) -> None:
        """Body and properties have their limits; just below them all is well."""
        limit = 4 * 1024 * 1024
        remark = ("the message is illegal, maybe msg body or properties length not matched. msg "
                  f"body length limit {limit}B, msg properties length limit 32KB.")
        self.assertEqual(self.refused(body=bytes(limit + 1)),
                         (ResponseCode.MESSAGE_ILLEGAL, remark))
        self.assertEqual(self.refused(properties={"long": "x" * 32_768}),
                         (ResponseCode.MESSAGE_ILLEGAL, remark))
        self.sent(properties={"long": "x" * 32_000})

    def test_full_disk(self) -> None:
        """A full disk has the code 14; reads continue, and sends when there is room again."""
        self.sent(body=b"1")
        self.disk.room_bytes = 0
        code, remark = self.refused(body=b"2")
        self.assertEqual(code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertIn("the broker's disk is full [CL:  0.10", remark)
        self.assertEqual([m.body for m in self.messages()], [b"1"])
        self.disk.room_bytes = None
        self.assertEqual(self.sent(body=b"3").queue_offset, 1)
        self.assertEqual([m.body for m in self.messages()], [b"1", b"3"])

    def test_stopped_store(self) -> None:
        """A store that does not run answers as a full one."""
        self.sent()
        self.box.kernel.store._running = False
        self.assertEqual(self.refused()[0], ResponseCode.SERVICE_NOT_AVAILABLE)

    def test_missing_field(self) -> None:
        """The refusal has the name of the missing field."""
        reply = self.box.send(self.box.peer(), RequestCode.SEND_MESSAGE_V2, None, b"x",
                              extra_fields={"a": "g", "b": "T"})
        assert reply is not None
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("`c`", reply.remark or "")


class AutoCreationTests(SendTestCase):
    """Topics that sends create."""

    def test_from_the_template(self) -> None:
        """The topic copies the template, with the client's number of queues at most."""
        for wanted, queues in ((4, 4), (100, 8)):
            topic = f"wanted_{wanted}"
            self.sent(topic, changes={"default_topic_queue_nums": wanted})
            config = self.box.kernel.topic_config.table[topic]
            self.assertEqual((config.read_queue_nums, config.write_queue_nums), (queues, queues))
            self.assertEqual(config.perm, 6)

    def test_from_a_topic_that_is_no_template(self) -> None:
        """A default topic that is unknown, or may not be inherited, creates no topic."""
        self.sent("T")
        for default in ("unknown", "T"):
            code, remark = self.refused("new", changes={"default_topic": default})
            self.assertEqual(code, ResponseCode.TOPIC_NOT_EXIST)
            self.assertTrue(remark.startswith("topic[new] not exist, apply first please!"))

    def test_retry_topic(self) -> None:
        """A retry topic is created where the template does not: with one queue."""
        self.sent("%RETRY%group", changes={"default_topic": "unknown"})
        config = self.box.kernel.topic_config.table["%RETRY%group"]
        self.assertEqual((config.read_queue_nums, config.perm), (1, 6))

    def test_name_servers_are_told(self) -> None:
        """A new topic is registered once, and saved."""
        told: list[int] = []
        self.box.host.on_topic_change.append(lambda: told.append(1))
        self.sent("new")
        self.sent("new")
        self.assertEqual(len(told), 1)
        self.box.kernel.saves.step(self.box.now_ms)
        self.assertIn(b'"new"', self.disk.read_file("/store/config/topics.json"))


    def test_answered_when_it_is_saved(self) -> None:
        """An acknowledged message can be read after a kill, because its topic is saved."""
        jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

        def in_thread(job: Callable[[], None]) -> Deferred[None]:
            jobs.append((job, Deferred()))
            return jobs[-1][1]

        self.patch(self.box.kernel.saves, "_in_thread", in_thread)
        peer = self.box.peer()
        decoder = FrameDecoder()
        frames = [encode_request(RequestCode.SEND_MESSAGE_V2, number, send_header(topic, 1), b"x")
                  for number, topic in enumerate(("new", "a b", "new"), 1)]
        replies = self.box.kernel.dispatcher.execute(
            peer, decoder.feed(b"".join(frames)), self.box.now_ms)
        self.assertEqual([decode_command(FrameDecoder().feed(each)[0]).code for each in replies],
                         [ResponseCode.INVALID_PARAMETER])
        self.assertEqual(len(self.messages("new")), 2)
        [(job, done)] = jobs
        job()
        self.assertIn(b'"new"', self.disk.read_file("/store/config/topics.json"))
        self.assertEqual(peer.written, [])
        done.callback(None)
        self.assertEqual([(reply.opaque, reply.code) for reply in self.box.late_replies(peer)],
                         [(1, ResponseCode.SUCCESS), (3, ResponseCode.SUCCESS)])
        self.sent("new")

    def test_cannot_be_saved(self) -> None:
        """The message is stored in spite of it, and the topic exists until the broker ends."""
        disk = self.disk
        self.patch(disk, "write_file_atomically", lambda *_, **__: disk.read_file("/none"))
        self.sent("new")
        self.assertEqual(len(self.messages("new")), 1)
        self.assertEqual(self.box.kernel.saves.unsaved, [self.box.kernel.topic_config])


class NoAutoCreationTests(SendTestCase):
    """A broker that creates no topics."""

    settings = {"autoCreateTopicEnable": "false"}  # noqa: RUF012

    def test_an_unknown_topic_is_refused(self) -> None:
        """An unknown topic is refused; a topic that an administrator has created is not."""
        self.assertEqual(self.refused("new")[0], ResponseCode.TOPIC_NOT_EXIST)
        self.box.kernel.topic_config.table["new"] = TopicConfig("new", 4, 4)
        self.sent("new")

    def test_a_deleted_topic_is_unknown_again(self) -> None:
        """This is so even for sends of plain messages, which found it just before."""
        topics = self.box.kernel.topic_config
        for _ in range(2):
            topics.update(TopicConfig("gone", 4, 4), {})
            self.sent("gone", properties=PLAIN)
            topics.delete("gone")
            self.assertEqual(self.refused("gone", properties=PLAIN)[0],
                             ResponseCode.TOPIC_NOT_EXIST)


class ReadOnlyBrokerTests(SendTestCase):
    """A broker whose permission excludes writing."""

    settings = {"brokerPermission": "4"}  # noqa: RUF012

    def test_order_topics(self) -> None:
        """Only ordered topics are refused; producers of others see the permission in the route."""
        self.box.kernel.topic_config.table["T"] = TopicConfig("T", 4, 4)
        self.box.kernel.topic_config.table["O"] = TopicConfig("O", 4, 4, order=True)
        self.sent("T")
        self.assertEqual(self.refused("O"), (
            ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending message is forbidden"))


class BatchTests(SendTestCase):
    """A client's batch: several messages in one request."""

    def send_batch(self, *messages: tuple[int, bytes, Mapping[str, str]], topic: str = "T",
                   **properties: str) -> RemotingCommand:
        return self.send(topic, batch_body(*messages), code=RequestCode.SEND_BATCH_MESSAGE,
                         changes={"batch": True}, properties=properties)

    def test_an_independent_encoder_and_the_decoder_agree(self) -> None:
        """The decoder reads the output of an encoder of the test."""
        body = batch_body((1, b"one", {"a": "b"}), (0, b"", {}))
        self.assertEqual([tuple(row) for row in decode_batch(body)],
                         [(1, b"one", "a\x01b\x02"), (0, b"", "")])

    def test_each_message_of_a_batch_is_a_record_with_its_id(self) -> None:
        """Each message is a record with its own properties; the response lists all ids."""
        reply = self.send_batch(
            (1, b"1", {"TAGS": "a", "UNIQ_KEY": "U1", "WAIT": "true"}),
            (2, b"2", {"UNIQ_KEY": "U2", "KEYS": "k"}), (3, b"3", {"UNIQ_KEY": "U3"}),
            UNIQ_KEY="U1,U2,U3")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        header = reply.header(SendMessageResponseHeader)
        stored = self.messages()
        self.assertEqual([(m.flag, m.body, m.queue_offset) for m in stored],
                         [(1, b"1", 0), (2, b"2", 1), (3, b"3", 2)])
        behind = self.send_batch((0, b"4", {}), (0, b"5", {})).header(SendMessageResponseHeader)
        self.assertEqual((header.queue_offset, behind.queue_offset), (0, 3))
        self.assertEqual([m.properties_map()["UNIQ_KEY"] for m in stored], ["U1", "U2", "U3"])
        self.assertEqual(stored[0].properties_map()["WAIT"], "true")
        self.assertEqual(header.transaction_id, "U1,U2,U3")
        self.assertEqual([parse_offset_message_id(text)[2] for text in header.msg_id.split(",")],
                         [m.physical_offset for m in stored])
        self.assertEqual(self.box.kernel.stats.sums("TOPIC_PUT", "T").count, 5)

    def test_a_batch_lies_in_the_queue_that_its_sender_names(self) -> None:
        """The batch is in the queue that its sender names, and the response has that queue."""
        reply = self.send("T", batch_body((0, b"1", {}), (0, b"2", {})),
                          code=RequestCode.SEND_BATCH_MESSAGE, changes={"batch": True}, queue_id=2)
        header = reply.header(SendMessageResponseHeader)
        self.assertEqual((header.queue_id, header.queue_offset), (2, 0))
        self.assertEqual([message.body for message in self.messages(queue_id=2)], [b"1", b"2"])

    def test_all_or_none(self) -> None:
        """A message that is too large refuses its whole batch, and no other request."""
        reply = self.send_batch((0, b"1", {}), (0, b"2", {"long": "x" * 32_760}))
        self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.messages(), [])

    def test_the_size_limit_holds_for_the_whole_batch(self) -> None:
        """The limit is for the sum of all messages, and not for each message."""
        messages = [(0, b"%d" % number, {}) for number in range(3)]
        size = len(batch_body(*messages))
        self.box.settings.update({"maxMessageSize": str(size - 1)})
        self.assertEqual(self.send_batch(*messages).code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.messages(), [])
        self.box.settings.update({"maxMessageSize": str(size)})
        self.assertEqual(self.send_batch(*messages).code, ResponseCode.SUCCESS)
        self.assertEqual([m.body for m in self.messages()], [b"0", b"1", b"2"])

    def test_batches_to_retry_topics(self) -> None:
        """Batches to retry topics, without messages, and of broken bytes."""
        reply = self.send_batch((0, b"1", {}), topic="%RETRY%g")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group %RETRY%g"))
        self.assertEqual(self.send_batch().code, ResponseCode.MESSAGE_ILLEGAL)
        good = batch_body((0, b"1", {}))
        for body in (good[:-1], good + b"\0", b"\xff" * 40, bytes(40)):
            reply = self.send("T", body, code=RequestCode.SEND_BATCH_MESSAGE,
                              changes={"batch": True})
            self.assertNotEqual(reply.code, ResponseCode.SUCCESS, msg=repr(body))
        self.assertEqual(self.messages(), [])


class PipelineTests(SendTestCase):
    """Sends that arrive in one read."""

    def test_one_append(self) -> None:
        """They are stored by one write in order, and each has its own response."""
        calls: list[int] = []
        self.box.kernel.store.dispatch.on_dispatch.append(
            lambda records: calls.append(len(records)))
        rows = [("T", b"1"), ("a b", b"bad name"), ("T", b"2"), ("U", b"3"),
                ("T", bytes(5 * 1024 * 1024)), ("T", b"4")]
        frames = [encode_request(RequestCode.SEND_MESSAGE_V2, opaque, send_header(topic, 1), body)
                  for opaque, (topic, body) in enumerate(rows)]
        decoder = FrameDecoder()
        replies = self.box.kernel.dispatcher.execute(
            self.box.peer(), decoder.feed(b"".join(frames)), self.box.now_ms)
        answers = [decode_command(FrameDecoder().feed(reply)[0]) for reply in replies]
        self.assertEqual([(a.opaque, a.code) for a in answers], [
            (0, 0), (1, ResponseCode.INVALID_PARAMETER), (2, 0), (3, 0),
            (4, ResponseCode.MESSAGE_ILLEGAL), (5, 0)])
        self.assertEqual(calls, [4])
        self.assertEqual([m.body for m in self.messages()], [b"1", b"2", b"4"])
        self.assertEqual([m.body for m in self.messages("U")], [b"3"])

    def test_a_header_that_cannot_be_read_parts_them(self) -> None:
        """Sends before and behind it are stored, and it is answered with an error."""
        frames = [encode_request(RequestCode.SEND_MESSAGE_V2, opaque, send_header("T", 1), body)
                  for opaque, body in enumerate((b"0", b"1", b"2"))]
        self.sent()
        broken = encode_frame(JSON, b'{"code":310,"opaque":9,"extFields":{]}', b"")
        replies = self.box.kernel.dispatcher.execute(
            self.box.peer(), FrameDecoder().feed(b"".join([*frames[:2], broken, frames[2]])),
            self.box.now_ms)
        answers = [decode_command(FrameDecoder().feed(reply)[0]) for reply in replies]
        self.assertEqual(sorted((a.opaque, a.code) for a in answers), [
            (0, 0), (1, 0), (2, 0), (9, ResponseCode.SYSTEM_ERROR)])
        self.assertEqual([m.body for m in self.messages()], [b"x", b"0", b"1", b"2"])

    def test_other_requests_come_between_sends_in_their_order(self) -> None:
        self.sent()
        pull = encode_request(RequestCode.PULL_MESSAGE, 5, pull_header("T"))
        send = [encode_request(code, opaque, send_header("T", 1), b"%d" % opaque)
                for opaque, code in ((1, RequestCode.SEND_MESSAGE_V2),
                                     (2, RequestCode.SEND_MESSAGE_V2))]
        replies = self.box.kernel.dispatcher.execute(
            self.box.peer(), FrameDecoder().feed(b"".join([send[0], pull, send[1]])),
            self.box.now_ms)
        answers = {a.opaque: a for a in (
            decode_command(FrameDecoder().feed(reply)[0]) for reply in replies)}
        self.assertEqual(sorted(answers), [1, 2, 5])
        self.assertEqual([m.body for m in records_of(answers[5].body)], [b"x", b"1"])

    def test_new_topics_are_saved_once(self) -> None:
        """Whatever the number of new topics, the table is saved and registered once."""
        told: list[int] = []
        self.box.host.on_topic_change.append(lambda: told.append(1))
        frames = [encode_request(RequestCode.SEND_MESSAGE_V2, number, send_header(f"T{number}", 1))
                  for number in range(20)]
        replies = self.box.kernel.dispatcher.execute(
            self.box.peer(), FrameDecoder().feed(b"".join(frames)), self.box.now_ms)
        self.assertEqual(len(replies), 20)
        self.assertEqual(len(told), 1)
        self.box.kernel.saves.step(self.box.now_ms)
        self.assertIn(b'"T19"', self.disk.read_file("/store/config/topics.json"))


@implementer(ITransactionService)
class Transactions:
    """A service that stores half messages in its own topic."""

    def prepare(self, record: MessageRecord, properties: Mapping[str, str]) -> None:
        record.topic, record.queue_id = "HALF", 0
        record.properties += f"REAL\x01{properties['PGROUP']}\x02"


class TransactionTests(SendTestCase):
    """Half messages are passed to the plugin that handles them."""

    plugins = [("transactions", types.SimpleNamespace(  # noqa: RUF012
        provide_transaction_service=hookimpl(lambda: Transactions())))]
    half = {"TRAN_MSG": "true", "PGROUP": "g"}  # noqa: RUF012

    def test_a_half_message_is_where_the_service_puts_it(self) -> None:
        """The service chooses the place of a half message; it does not get other messages."""
        self.box.kernel.topic_config.table["HALF"] = TopicConfig("HALF", 1, 1)
        reply = self.sent(body=b"half", properties=self.half, changes={"queue_id": 3})
        self.assertEqual(reply.queue_id, 3)
        reply = self.sent(body=b"whole", properties={"TRAN_MSG": "false"})
        self.assertEqual(reply.queue_id, 0)
        self.assertEqual([m.body for m in self.messages()], [b"whole"])
        [message] = self.messages("HALF")
        self.assertEqual((message.body, message.properties_map()["REAL"]), (b"half", "g"))

    def test_retried_message(self) -> None:
        """A delayed retry of a message that once was half is a whole one."""
        self.sent("%RETRY%g", b"again", properties={**self.half, "DELAY": "3"},
                  changes={"reconsume_times": 1})
        self.assertEqual([m.body for m in self.messages("%RETRY%g")], [b"again"])


class UnclaimedTests(SendTestCase):
    """A property that no plugin handles causes a refusal."""

    no_timers = (ResponseCode.SYSTEM_ERROR,
                 "accurate timer message is not enabled, timerWheelEnable is false")
    no_levels = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                 "no plugin of this broker delays messages by level")

    def test_each_way_to_ask_for_a_time_has_apaches_refusal(self) -> None:
        """Each of the three properties for a time has Apache's refusal."""
        for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
            self.assertEqual(self.refused(properties={name: "30"}), self.no_timers, msg=name)

    def test_an_unclaimed_delay_level_is_refused(self) -> None:
        """A delay level is refused as well; 0, negative values and invalid numbers are not."""
        for level in ("3", "19", "x"):
            self.assertEqual(self.refused(properties={"DELAY": level}), self.no_levels, msg=level)
        for level in ("0", "-1"):
            self.sent(properties={"DELAY": level})
        self.assertEqual(self.refused(properties={"DELAY": "0", "TIMER_DELAY_MS": "1"}),
                         self.no_timers)

    def test_a_delivered_timed_message_is_an_ordinary_one(self) -> None:
        """A message that was delivered by a timer is an ordinary one, and so is a retry."""
        self.sent(properties={"TIMER_DELAY_SEC": "30", "TIMER_OUT_MS": "7"})
        self.sent("%RETRY%g", properties={"DELAY": "3"})

    def test_the_batchs_properties_count(self) -> None:
        """The properties of the batch and of each message count; all are refused together."""
        for common, own in (({"DELAY": "1"}, {}), ({}, {"DELAY": "1"})):
            code, _ = self.refused(
                body=batch_body((0, b"1", {}), (0, b"2", own)), properties=common,
                code=RequestCode.SEND_BATCH_MESSAGE, changes={"batch": True})
            self.assertEqual(code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


class ClaimedTests(SendTestCase):
    """A plugin claims the properties it has a meaning for."""

    plugins = [  # noqa: RUF012
        ("one", types.SimpleNamespace(claim_properties=hookimpl(lambda: ["DELAY"]))),
        ("two", types.SimpleNamespace(claim_properties=hookimpl(lambda: {"TIMER_DELAY_MS"})))]

    def test_claimed_properties_are_accepted_and_a_level_wins_over_a_time(self) -> None:
        """A property that a plugin handles is accepted; a level takes precedence over a time."""
        self.sent(properties={"DELAY": "3"})
        self.sent(properties={"TIMER_DELAY_MS": "3"})
        self.sent(properties={"DELAY": "3", "TIMER_DELAY_SEC": "30"})
        self.assertEqual(self.refused(properties={"TIMER_DELAY_SEC": "30"}),
                         UnclaimedTests.no_timers)


class NoTransactionTests(SendTestCase):
    """A broker whose settings refuse half messages."""

    settings = {"rejectTransactionMessage": "true"}  # noqa: RUF012

    def test_apaches_code_and_remark(self) -> None:
        """The code and the remark are Apache's."""
        self.assertEqual(self.refused(properties={"TRAN_MSG": "true"}), (
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] sending transaction message is forbidden"))


class SendHookTests(SendTestCase):
    """The hooks ``before_send`` and ``after_send``."""

    def setUp(self) -> None:
        self.plugins = [("plugin", self)]
        self.before: list[list[tuple[str, int]]] = []
        self.after: list[list[int | None]] = []
        super().setUp()

    @hookimpl
    def before_send(self, batch: SendBatch) -> Mapping[int, BrokerError]:
        self.before.append([(request.header.topic, len(records)) for request, records in
                            zip(batch.requests, batch.records, strict=True)])
        return {index: RequestRefused(ResponseCode.NO_PERMISSION, "not to this topic")
                for index, request in enumerate(batch.requests)
                if request.header.topic == "secret"}

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        self.after.append([reply.code if isinstance(reply, Reply) else None
                           for reply in batch.replies])

    def test_hooks_see_requests_with_records_then_replies(self) -> None:
        """They get each request with its records, then its reply; a refusal is the response."""
        self.sent("T")
        self.assertEqual(self.refused("secret"),
                         (ResponseCode.NO_PERMISSION, "not to this topic"))
        self.refused("a b")
        self.assertEqual(self.before, [[("T", 1)], [("secret", 1)], [("a b", 0)]])
        self.assertEqual(self.after, [[0], [ResponseCode.NO_PERMISSION],
                                      [ResponseCode.INVALID_PARAMETER]])

    def test_batches_and_sends_of_one_read_have_hooks_too(self) -> None:
        """A batch is one request with all its records; sends of one read are passed together."""
        header = send_header("T", 1)
        header.batch = True
        frames = [encode_request(RequestCode.SEND_BATCH_MESSAGE, 1, header,
                                 batch_body((0, b"1", {}), (0, b"2", {})))]
        frames += [encode_request(RequestCode.SEND_MESSAGE_V2, number, send_header(topic, 1), b"x")
                   for number, topic in ((2, "T"), (3, "secret"))]
        for read in (frames[:1], frames[1:]):
            self.box.kernel.dispatcher.execute(
                self.box.peer(), FrameDecoder().feed(b"".join(read)), self.box.now_ms)
        self.assertEqual(self.before, [[("T", 2)], [("T", 1), ("secret", 1)]])
        self.assertEqual(self.after, [[0], [0, ResponseCode.NO_PERMISSION]])

    def test_after_send_sees_refusals_of_the_store(self) -> None:
        """``after_send`` also gets the refusals of the store."""
        self.box.kernel.set_role("SLAVE", 1)
        self.refused("T")
        self.assertEqual(self.after, [[ResponseCode.SERVICE_NOT_AVAILABLE]])

    def test_reply_that_waits(self) -> None:
        """A reply that waits for a replica is a Deferred in ``after_send``."""
        self.box.kernel.acknowledgement.stages.append(
            Stage(lambda offset: Deferred(), ResponseCode.FLUSH_SLAVE_TIMEOUT))
        peer = self.box.peer()
        self.box.send(peer, RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x")
        self.assertEqual(self.after, [[None]])

    def test_a_stage_that_refuses_is_the_reply(self) -> None:
        """Each send of a batch gets the refusal, without an offset."""
        refusal: Deferred[None] = Deferred()
        self.box.kernel.acknowledgement.stages.append(
            Stage(lambda offset: refusal, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        peers = [self.box.peer() for _ in range(2)]
        for peer in peers:
            self.box.send(peer, RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x")
            refusal.errback(RequestRefused(1, "in-sync replicas not enough"))
            [reply] = self.box.late_replies(peer)
            self.assertEqual((reply.code, reply.remark), (1, "in-sync replicas not enough"))
            self.assertNotIn(b"msgId", bytes(reply.ext_fields))
            refusal = Deferred()


class HeaderTests(SynchronousTestCase):
    """The common fields of the two headers."""

    def test_same_attributes(self) -> None:
        """A handler reads both in the same way."""
        self.assertEqual(SendMessageRequestHeader.__struct_fields__,
                         SendMessageRequestHeaderV2.__struct_fields__)


class InnerBatchTests(SendTestCase):
    """Batches for a topic with batch queues."""

    def setUp(self) -> None:
        super().setUp()
        self.box.kernel.topic_config.update(
            TopicConfig("B", 2, 2, 6), {"+queue.type": "BatchCQ"})

    def batch(self, *bodies: bytes) -> bytes:
        """Return the body of a batch."""
        return batch_body(*[(0, body, {"UNIQ_KEY": f"K{number}"})
                            for number, body in enumerate(bodies)])

    def stored(self, offset: int = 0) -> StoredMessage:
        """Return the record at an offset."""
        header = pull_header("B", offset)
        header.max_msg_nums = 1
        (record,) = records_of(self.box.ask(RequestCode.PULL_MESSAGE, header).body)
        return record

    def test_a_batch_stays_one_record(self) -> None:
        """It has a flag by which a client splits it, and the number of its messages."""
        body = self.batch(b"a", b"bb", b"c")
        header = self.sent("B", body, RequestCode.SEND_BATCH_MESSAGE, {"batch": True},
                           properties={"UNIQ_KEY": "BATCH", "KEYS": "k"})
        self.assertEqual((header.batch_uniq_id, header.transaction_id, header.queue_offset),
                         ("BATCH", "BATCH", 0))
        record = self.stored(2)
        self.assertEqual(
            (record.sys_flag & 0xC0, record.queue_offset, record.body), (0xC0, 0, body))
        fields = record.properties_map()
        self.assertEqual((fields["INNER_NUM"], fields["INNER_BASE"], fields["UNIQ_KEY"]),
                         ("3", "0", "BATCH"))
        header = self.sent("B", b"single", properties={"UNIQ_KEY": "S"})
        self.assertEqual((header.batch_uniq_id, header.queue_offset), (None, 3))
        self.assertEqual(self.box.kernel.store.queues.max_offset("B", 0), 4)

    def test_a_batch_without_a_key_is_taken_apart(self) -> None:
        """This is the same as in a plain queue."""
        header = self.sent("B", self.batch(b"a", b"b"), RequestCode.SEND_BATCH_MESSAGE,
                           {"batch": True}, properties={})
        self.assertEqual((header.batch_uniq_id, header.msg_id.count(",")), (None, 1))
        self.assertEqual(self.stored(1).body, b"b")

    def test_a_batch_made_by_the_client(self) -> None:
        """Its flag marks it as a batch; the number of its messages must be right."""
        body = self.batch(b"a", b"b")
        self.sent("B", body, changes={"sys_flag": 0xC0},
                  properties={"UNIQ_KEY": "K", "INNER_NUM": "2", "INNER_BASE": "70"})
        self.assertEqual(self.stored(1).properties_map()["INNER_BASE"], "0")
        for wrong in ({"INNER_NUM": "3"}, {"INNER_NUM": "x"}):
            code, _ = self.refused("B", body, changes={"sys_flag": 0xC0}, properties=wrong)
            self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        code, _ = self.refused("B", b"no batch", changes={"sys_flag": 0x80})
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)

    def test_what_says_it_is_a_batch_and_is_not(self) -> None:
        """The property without the flag, and the flag in a plain topic, as Apache refuses them."""
        code, _ = self.refused("B", b"x", properties={"UNIQ_KEY": "K", "INNER_NUM": "1"})
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        self.sent("T", b"x")
        code, _ = self.refused("T", self.batch(b"a"), changes={"sys_flag": 0x80})
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)

    def test_statistics_count_messages(self) -> None:
        """The statistics of the topic and of the store count messages, not records."""
        self.sent("B", self.batch(b"a", b"b", b"c"), RequestCode.SEND_BATCH_MESSAGE,
                  {"batch": True}, properties={"UNIQ_KEY": "BATCH"})
        self.assertEqual(self.box.kernel.store.stats.put_messages, 3)
        self.assertEqual(self.box.kernel.stats.sums("TOPIC_PUT", "B").count, 3)


class Watching:
    """A plugin that looks at the replies of sends, or changes one."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.remark: str | None = None

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        for answer in batch.replies:
            assert isinstance(answer, Reply)
            self.codes.append(answer.code)
            if self.remark is not None:
                answer.remark = self.remark


class RepliesTests(SendTestCase):
    """Replies are created only for a plugin that needs them."""

    def setUp(self) -> None:
        self.watching = Watching()
        self.plugins = [("watching", self.watching)]
        super().setUp()

    def test_a_plugin_sees_them(self) -> None:
        self.sent()
        self.sent()
        self.assertEqual(self.watching.codes, [0, 0])

    def test_a_change_of_a_plugin_is_sent(self) -> None:
        self.watching.remark = "seen"
        self.assertEqual(self.send().remark, "seen")


class UnmadeTests(SendTestCase):
    """No plugin needs replies."""

    def handled(self, *topics: str) -> Sequence[Handled]:
        handler = self.box.kernel.dispatcher.handlers[RequestCode.SEND_MESSAGE_V2]
        assert handler.handle_batch is not None
        peer = self.box.peer()
        return handler.handle_batch([
            Request(RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque), send_header(topic, 1),
                    peer, self.box.now_ms)
            for opaque, topic in enumerate(topics)])

    def test_plain_sends_have_replies_without_objects(self) -> None:
        self.sent()
        self.assertIsInstance(self.handled("T", "T"), UnmadeReplies)

    def test_a_plugin_that_asks_whether_all_are_stored_has_none_made(self) -> None:
        """It gets the same answer as from each reply."""
        asked: list[bool] = []

        @hookimpl
        def after_send(batch: SendBatch) -> None:
            asked.append(batch.all_stored)

        self.box.stop()
        self.box = KernelBox([("asking", types.SimpleNamespace(after_send=after_send))], {},
                             self.disk)
        self.sent()
        self.assertIsInstance(self.handled("T", "T"), UnmadeReplies)
        self.handled("T", "a b")
        self.box.kernel.acknowledgement.stages.append(
            Stage(lambda offset: Deferred(), ResponseCode.FLUSH_SLAVE_TIMEOUT))
        self.handled("T")
        self.disk.room_bytes = 0
        self.handled("T")
        self.assertEqual(asked, [True, True, False, True, False])

    def test_a_refused_send_has_an_object_of_its_own(self) -> None:
        self.sent()
        codes = [answer.code for answer in self.handled("T", "a b") if isinstance(answer, Reply)]
        self.assertEqual(codes, [0, ResponseCode.INVALID_PARAMETER])

    def test_a_full_disk_refuses_each(self) -> None:
        self.sent()
        self.disk.room_bytes = 0
        codes = [answer.code for answer in self.handled("T", "T") if isinstance(answer, Reply)]
        self.assertEqual(codes, [ResponseCode.SERVICE_NOT_AVAILABLE] * 2)


class JoinedSendTests(SendTestCase):
    """A batch with the sends of several connections."""

    def setUp(self) -> None:
        super().setUp()
        self.peers = [self.box.peer() for _ in range(2)]
        self.sent()

    def execute(self, *sends: Sequence[tuple[str, bytes, int]]) -> list[list[RemotingCommand]]:
        """Send (topic, body, flag) by each connection; :returns: the replies to each."""
        dispatcher, runs = self.box.kernel.dispatcher, []
        for peer, own in zip(self.peers, sends, strict=True):
            frames = FrameDecoder().feed(b"".join(
                encode_request(RequestCode.SEND_MESSAGE_V2, opaque, send_header(topic, 1), body,
                               oneway=bool(flag))
                for opaque, (topic, body, flag) in enumerate(own)))
            head = dispatcher.read_head(peer, frames, self.box.now_ms)
            self.assertEqual(dispatcher.joined_code(head, len(frames)), RequestCode.SEND_MESSAGE_V2)
            runs.append(head[0])
        return [read_commands(b"".join(ready)) for ready in dispatcher.execute_together(runs)]

    def offsets(self, replies: Sequence[RemotingCommand]) -> list[tuple[int, int]]:
        return [(reply.opaque, reply.header(SendMessageResponseHeader).queue_offset)
                for reply in replies]

    def test_each_has_its_own_host_and_reply(self) -> None:
        """Each record has the address of its connection; one-way sends have no reply."""
        first, second = self.execute([("T", b"a", 0), ("T", b"b", 1), ("T", b"c", 0)],
                                     [("T", b"d", 0)])
        self.assertEqual(self.offsets(first), [(0, 1), (2, 3)])
        self.assertEqual(self.offsets(second), [(0, 4)])
        self.assertEqual([message.born_host for message in self.messages()[1:]],
                         [self.peers[0].remote_host] * 3 + [self.peers[1].remote_host])

    def test_replies_that_wait(self) -> None:
        """Each connection gets its replies when all messages are safe, and refusals
        with reasons.
        """
        for code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            for flag in (0, 1):
                safe: Deferred[ResponseCode | None] = Deferred()
                stage = Stage(lambda offset, safe=safe: safe,  # type: ignore[misc]
                              ResponseCode.FLUSH_SLAVE_TIMEOUT)
                self.box.kernel.acknowledgement.stages[:] = [stage]
                before = self.messages()[-1].queue_offset
                self.assertEqual(
                    self.execute([("T", b"a", 0), ("T", b"b", flag)], [("T", b"c", 0)]), [[], []])
                self.assertEqual([peer.written for peer in self.peers], [[], []])
                if code == ResponseCode.SUCCESS:
                    safe.callback(None)
                else:
                    safe.errback(RequestRefused(code, "late"))
                found = [read_commands(b"".join(peer.written)) for peer in self.peers]
                self.assertEqual(
                    [[reply.opaque for reply in replies] for replies in found],
                    [[0] if flag else [0, 1], [0]])
                if code == ResponseCode.SUCCESS:
                    self.assertEqual(self.offsets(found[1]), [(0, before + 3)])
                self.assertEqual({reply.code for reply in found[0] + found[1]}, {code})
                self.assertEqual([peer.held_bytes for peer in self.peers], [0, 0])
                for peer in self.peers:
                    peer.written.clear()

    def test_a_send_that_is_refused(self) -> None:
        """The refusal goes to its own connection; the messages of the others are stored."""
        first, second = self.execute([("T", b"a", 0), ("a b", b"b", 0)], [("T", b"c", 0)])
        self.assertEqual([reply.code for reply in first], [0, ResponseCode.INVALID_PARAMETER])
        self.assertEqual(self.offsets(second), [(0, 2)])

    def test_a_send_that_fails(self) -> None:
        """An error during one connection's sends refuses only those."""
        made = SendRequests.records

        def broken(sends: SendRequests, request: Request[Any]) -> list[MessageRecord]:
            if request.body == b"bad":
                raise ValueError("broken")
            return made(sends, request)

        self.patch(SendRequests, "records", broken)
        first, second = self.execute([("New", b"bad", 0), ("T", b"a", 0)], [("T", b"c", 0)])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)
        self.assertEqual([reply.code for reply in first], [ResponseCode.SYSTEM_ERROR] * 2)
        self.assertEqual(self.offsets(second), [(0, 1)])
        self.assertEqual([message.body for message in self.messages()], [b"x", b"c"])

    def test_a_full_disk(self) -> None:
        """All sends are refused."""
        self.disk.room_bytes = 0
        self.assertEqual(
            [[reply.code for reply in replies]
             for replies in self.execute([("T", b"a", 0)], [("T", b"c", 0)])],
            [[ResponseCode.SERVICE_NOT_AVAILABLE]] * 2)
