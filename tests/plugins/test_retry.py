"""Messages that are sent back, and messages that were tried too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import TOPIC_ROWS_KEPT, TOPIC_ROWS_SIZE_MAX
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import orderly, retry, schedule
from twistmq.protocol.bodies import (
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.log_rate import EVENTS_A_MINUTE
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import StoredMessage, decode_record
from twistmq.protocol.topic_names import SCHEDULE_TOPIC

RETRY, DLQ = "%RETRY%g", "%DLQ%g"
#: How long the first try waits, and each that follows, ms: the delay levels from the third on.
LADDER_MS = tuple(seconds * 1000 for seconds in (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200))


class RetryTestCase(SynchronousTestCase):
    """A test with a kernel, a group g and a message in the topic T."""

    settings: Mapping[str, str] = {}
    plugins: list[tuple[str, object]] = [  # noqa: RUF012
        ("orderly", orderly.Plugin), ("retry", retry.Plugin), ("schedule", schedule.Plugin)]

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = KernelBox(self.plugins, self.settings, self.disk)
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        self.set_group()
        header = send_header("T", self.box.now_ms, tag="red", keys="k")
        self.assertEqual(self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"body").code, 0)
        [self.message] = self.stored("T")

    def set_group(self, **fields: Any) -> None:
        self.kernel.subscription_group.update(SubscriptionGroupConfig("g", **fields), {})

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        found = self.kernel.store.get_message(topic, queue_id, 0, 32).messages
        return [decode_record(data) for data in found]

    def let_pass(self, elapsed_ms: int) -> None:
        self.box.now_ms += elapsed_ms
        for task in self.kernel.periodic_tasks:
            if task.name == "deliver delayed messages":
                task.run(self.box.now_ms)

    def back(self, message: StoredMessage | None = None, level: int = 0, version: int = 479,
             **fields: Any) -> RemotingCommand:
        """Send a message back; :returns: the reply."""
        fields.setdefault("offset", (message or self.message).physical_offset)
        fields.setdefault("group", "g")
        header = ConsumerSendMsgBackRequestHeader(
            delay_level=level, origin_topic="T", origin_msg_id="0", **fields)
        frame = encode_request(RequestCode.CONSUMER_SEND_MSG_BACK, 1, header)
        frame = frame.replace(b'"version":479', b'"version":%3d' % version)
        [reply] = self.kernel.dispatcher.execute(
            self.box.peer(), FrameDecoder().feed(frame), self.box.now_ms)
        return decode_command(FrameDecoder().feed(reply)[0])

    def assert_back(self, *arguments: Any, **fields: Any) -> None:
        reply = self.back(*arguments, **fields)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))


class SendBackTests(RetryTestCase):
    """The request CONSUMER_SEND_MSG_BACK."""

    def test_each_retry_comes_later_and_the_last_is_a_dead_letter(self) -> None:
        """Each retry has a longer delay than the one before, from ten seconds on; after the
        sixteenth the message is a dead letter.
        """
        message = self.message
        for tries, wait_ms in enumerate(LADDER_MS, 1):
            self.assert_back(message)
            self.let_pass(wait_ms - 1)
            self.assertEqual(len(self.stored(RETRY)), tries - 1)
            self.let_pass(1)
            message = self.stored(RETRY)[-1]
            self.assertEqual((len(self.stored(RETRY)), message.reconsume_times), (tries, tries))
        self.assertEqual((tries, self.stored(DLQ)), (16, []))
        self.assert_back(message)
        [dead] = self.stored(DLQ)
        self.assertEqual((dead.body, dead.reconsume_times), (b"body", 17))
        self.let_pass(LADDER_MS[-1])
        self.assertEqual(len(self.stored(RETRY)), 16)

    def test_most_tries_a_record_can_say(self) -> None:
        """A message with 2**31 - 1 tries becomes a dead letter with the same number."""
        header = send_header("T", self.box.now_ms)
        header.reconsume_times = 2**31 - 1
        self.assertEqual(self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"old").code, 0)
        self.assert_back(self.stored("T")[-1])
        [dead] = self.stored("%DLQ%g")
        self.assertEqual((dead.body, dead.reconsume_times), (b"old", 2**31 - 1))

    def test_the_next_try_is_the_same_message_and_says_where_it_comes_from(self) -> None:
        """The retry is the same message, and names its original topic."""
        self.assert_back()
        self.let_pass(10_000)
        [first] = self.stored(RETRY)
        self.assert_back(first)
        self.let_pass(30_000)
        second = self.stored(RETRY)[1]
        for message in (first, second):
            self.assertEqual(
                (message.body, message.born_timestamp, message.born_host),
                (b"body", self.message.born_timestamp, self.message.born_host))
            properties = message.properties_map()
            self.assertEqual(
                [properties[name] for name in
                 ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "WAIT", "TAGS", "UNIQ_KEY")],
                ["T", offset_message_id(self.message.store_host, self.message.physical_offset),
                 "false", "red", self.message.properties_map()["UNIQ_KEY"]])
        self.assertEqual(self.kernel.stats.sums("GROUP_SEND_BACK", "T", "g").count, 2)
        # Each is stored for its level, and again when it is due.
        self.assertEqual([self.kernel.stats.sums("TOPIC_PUT", topic).count
                          for topic in (SCHEDULE_TOPIC, RETRY)], [2, 2])

    def test_level_of_the_client(self) -> None:
        """A client may choose the level."""
        self.assert_back(level=1)
        self.let_pass(1000)
        self.assertEqual(len(self.stored(RETRY)), 1)

    def test_once_the_tries_are_used_up(self) -> None:
        """After the last try, or when the client asks for it, a message becomes a dead letter."""
        self.set_group(retry_max_times=1)
        self.assert_back(level=1)
        self.let_pass(1000)
        [tried] = self.stored(RETRY)
        self.assert_back(tried)
        self.assert_back(level=-1)
        dead = self.stored(DLQ)
        self.assertEqual([each.reconsume_times for each in dead], [2, 1])
        self.let_pass(10 * 3_600_000)
        self.assertEqual((len(self.stored(RETRY)), len(self.stored(DLQ))), (1, 2))
        config = self.kernel.topic_config.get(DLQ)
        assert config is not None
        self.assertEqual((config.write_queue_nums, config.perm), (1, 6))
        self.assertEqual(self.kernel.stats.sums("SNDBCK2DLQ_TIMES", "T", "g").count, 2)

    def test_lines_of_the_log(self) -> None:
        """Dead letters do not fill the log, however many they are."""
        with capturedLogs() as events:
            for _ in range(200):
                self.assert_back(level=-1)
                header = send_header(RETRY, self.box.now_ms)
                header.reconsume_times, header.max_reconsume_times = 3, 2
                self.assertEqual(self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"").code, 0)
        lines = [str(event["log_format"]) for event in events]
        self.assertEqual([len([line for line in lines if words in line])
                          for words in ("goes to {dlq}", "goes to the dead letters")],
                         [EVENTS_A_MINUTE] * 2)

    def test_tries_of_the_client(self) -> None:
        """The client's maximum number of tries is used, if its version is new enough to send it."""
        self.assert_back(max_reconsume_times=0)
        self.assertEqual(len(self.stored(DLQ)), 1)
        self.assert_back(max_reconsume_times=0, version=120)
        self.assertEqual(len(self.stored(DLQ)), 1)

    def test_a_group_without_retry_queues_has_its_messages_taken(self) -> None:
        """A message that a group without retry queues sends back is accepted and not stored."""
        self.set_group(retry_queue_nums=0)
        end = self.kernel.store.commit_log.max_offset
        self.assert_back()
        self.assertEqual(self.kernel.store.commit_log.max_offset, end)

    def set_retry_queues(self, topic_queues: int, group_queues: int) -> None:
        """Give the retry topic and the group different numbers of queues, as by two requests."""
        self.kernel.topic_config.update(TopicConfig(RETRY, topic_queues, topic_queues, 6), {})
        self.set_group(retry_queue_nums=group_queues)

    def test_retries_go_to_queues_that_the_topic_has(self) -> None:
        """The retry is stored in a queue of the route, whichever number is larger."""
        for topic_queues, group_queues, expected in ((1, 4, {0}), (4, 2, {0, 1}), (2, 3, {0, 1})):
            self.set_retry_queues(topic_queues, group_queues)
            before = [len(self.stored(RETRY, number)) for number in range(5)]
            for _ in range(24):
                self.assert_back(level=1)
            self.let_pass(1000)
            counts = [len(self.stored(RETRY, number)) - before[number] for number in range(5)]
            self.assertEqual(sum(counts), 24)
            self.assertLessEqual({number for number in range(5) if counts[number]}, expected)
            self.kernel.store.delete_topic(RETRY)

    def test_a_retry_that_waits_while_its_queue_goes(self) -> None:
        """It is delivered to a queue that the topic still has."""
        self.set_retry_queues(8, 8)
        for _ in range(24):
            self.assert_back(level=1)
        self.kernel.topic_config.update(TopicConfig(RETRY, 2, 2, 6), {})
        self.let_pass(1000)
        counts = [len(self.stored(RETRY, number)) for number in range(8)]
        self.assertEqual((sum(counts), sum(counts[2:])), (24, 0))
        self.assertTrue(all(counts[:2]))

    def test_a_retry_topic_without_a_queue_refuses_retries_and_takes_dead_letters(self) -> None:
        """The client keeps a message that cannot be stored; a dead letter can be stored."""
        self.set_retry_queues(0, 4)
        reply = self.back()
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.NO_PERMISSION, "the topic[%RETRY%g] has no queue for a retry"))
        self.assert_back(level=-1)
        self.assertEqual(len(self.stored(DLQ)), 1)

    def test_each_refusal_has_apaches_code_and_words(self) -> None:
        """The refusals have the codes and texts of Apache's broker."""
        self.kernel.topic_config.update(TopicConfig("%RETRY%deaf", 1, 1, 4), {})
        self.kernel.subscription_group.update(SubscriptionGroupConfig("deaf"), {})
        for fields, code, remark in (
            ({"group": "deaf"}, ResponseCode.NO_PERMISSION,
             "the topic[%RETRY%deaf] sending message is forbidden"),
            ({"offset": 7_777_777}, ResponseCode.SYSTEM_ERROR,
             "look message by offset failed, 7777777"),
            ({"offset": -1}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, -1"),
        ):
            reply = self.back(**fields)
            self.assertEqual((reply.code, reply.remark), (code, remark))
        self.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.back().remark, "no master available along with 127.0.0.1")

    def test_full_disk(self) -> None:
        """The response is an error, so the client keeps the message and tries again."""
        self.disk.room_bytes = 0
        self.assertEqual(self.back().code, ResponseCode.SYSTEM_ERROR)
        self.disk.room_bytes = None
        self.assert_back()


    def test_full_of_ordinary_topics(self) -> None:
        """A first retry and a first dead letter can still create their topics."""
        table = self.kernel.topic_config
        table.rows_size = TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT
        self.assertEqual(self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
            "another", self.box.now_ms), b"").code, ResponseCode.SYSTEM_ERROR)
        self.assert_back()
        self.assert_back(level=-1)
        self.assertIn(RETRY, table.table)
        self.assertIn(DLQ, table.table)


class SafeTests(RetryTestCase):
    """A message that was accepted is not lost."""

    settings = {"flushDiskType": "SYNC_FLUSH"}  # noqa: RUF012

    def test_waits_for_the_disk(self) -> None:
        """Under SYNC_FLUSH the client is told if a message may be lost, and sends it again."""
        self.assert_back()
        self.disk.fail_sync_in = 1
        reply = self.back()
        self.assertEqual(reply.code, ResponseCode.FLUSH_DISK_TIMEOUT)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_forgotten_dead_letters(self) -> None:
        """A topic that was lost by a kill is created again if it has dead letters."""
        self.assert_back(level=-1)
        self.kernel.topic_config.create_in_send_back("%DLQ%empty", 1, 6, 0)
        self.kernel.store.close()
        self.disk.forget_locks()
        self.disk.remove("/store/config/topics.json")
        self.box = KernelBox(self.plugins, self.settings, self.disk)
        self.addCleanup(self.box.stop)
        config = self.box.kernel.topic_config.get(DLQ)
        assert config is not None
        self.assertEqual((config.write_queue_nums, config.perm), (1, 6))
        self.assertIsNone(self.box.kernel.topic_config.get("%DLQ%empty"))
        self.assertEqual([each.body for each in self.box.stored(DLQ, 0)], [b"body"])


    def test_retries_in_queues_that_no_route_showed(self) -> None:
        """A start gives the topic the queues of unread retries, and no others."""
        self.kernel.topic_config.update(TopicConfig(RETRY, 4, 4, 6), {})
        for queue_id in range(4):
            header = send_header(RETRY, self.box.now_ms, queue_id=queue_id)
            reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"retry")
            self.assertEqual(reply.code, 0)
        self.kernel.consumer_offset.commit("peer", "g", RETRY, 3, 1)
        self.kernel.topic_config.update(TopicConfig(RETRY, 1, 1, 6), {})
        self.box.stop()
        self.box = KernelBox(self.plugins, self.settings, self.disk)
        self.addCleanup(self.box.stop)
        config = self.box.kernel.topic_config.table[RETRY]
        self.assertEqual((config.read_queue_nums, config.write_queue_nums), (3, 3))


class NoGroupTests(RetryTestCase):
    """Groups that are not created automatically, and a broker without the write permission."""

    settings = {"autoCreateSubscriptionGroup": "false"}  # noqa: RUF012

    def test_unknown_group(self) -> None:
        """An unknown group is refused by its name, also where a client sends to its topic."""
        reply = self.back(group="nobody")
        self.assertEqual(reply.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertIn("subscription group not exist, nobody \nSee ", str(reply.remark))
        header = send_header("%RETRY%nobody", self.box.now_ms)
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"x")
        self.assertEqual(reply.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertNotIn("%RETRY%nobody", self.kernel.topic_config.table)


class WithoutScheduleTests(RetryTestCase):
    """A broker without delays."""

    plugins = [("retry", retry.Plugin)]  # noqa: RUF012

    def test_without_delays_a_retry_comes_at_once(self) -> None:
        """A message that is sent back is delivered again immediately."""
        self.assert_back()
        self.assertEqual(len(self.stored(RETRY)), 1)


class ResendTests(RetryTestCase):
    """Messages that clients send to a retry topic themselves."""

    def resend(self, tries: int, most: int | None = None, level: str = "1") -> None:
        """Send to the retry topic, as a client does that could not send back."""
        header = send_header(RETRY, self.box.now_ms, properties={"DELAY": level})
        header.reconsume_times, header.max_reconsume_times = tries, most
        self.assertEqual(self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"again").code, 0)

    def test_a_message_tried_too_often_is_a_dead_letter(self) -> None:
        """A message with more tries than permitted becomes a dead letter immediately."""
        self.resend(2, 2)
        self.assertEqual(len(self.stored(SCHEDULE_TOPIC)), 1)
        self.resend(3, 2)
        self.resend(17)
        self.assertEqual((len(self.stored(SCHEDULE_TOPIC)), len(self.stored(DLQ))), (1, 2))
        self.let_pass(1000)
        self.assertEqual(len(self.stored(RETRY)), 1)

    def test_among_other_sends_of_one_read(self) -> None:
        """Each message of the read has its own result; an unknown group is refused."""
        frames = []
        for number, (topic, tries) in enumerate(
                (("T", 0), (RETRY, 1), (RETRY, 99), ("%RETRY%a b", 0), (RETRY, 17))):
            header = send_header(topic, self.box.now_ms)
            header.reconsume_times = tries
            frames.append(encode_request(
                RequestCode.SEND_MESSAGE_V2, number, header, b"%d" % number))
        replies = self.kernel.dispatcher.execute(
            self.box.peer(), FrameDecoder().feed(b"".join(frames)), self.box.now_ms)
        codes = [decode_command(FrameDecoder().feed(reply)[0]).code for reply in replies]
        self.assertEqual([code == 0 for code in codes], [True, True, True, False, True])
        self.assertEqual([[each.body for each in self.stored(topic)]
                          for topic in ("T", RETRY, DLQ)],
                         [[b"body", b"0"], [b"1"], [b"2", b"4"]])

    def test_forged_origin(self) -> None:
        """An invalid name is not counted; the group's own topic is counted for all such names."""
        for origin in ("no1", "no2", "n" * 30_000, "T"):
            header = send_header(RETRY, self.box.now_ms, properties={"RETRY_TOPIC": origin})
            header.reconsume_times = 99
            self.assertEqual(self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"x").code, 0)
            self.assert_back(self.stored(DLQ)[-1])
        for table, times in (("SNDBCK2DLQ_TIMES", 2), ("GROUP_SEND_BACK", 1)):
            self.assertEqual(
                {key: sums.count for key, sums in self.kernel.stats.all_sums(table)},
                {(RETRY, "g"): 3 * times, ("T", "g"): times})

    def test_a_group_that_holds_locks_gets_a_dead_letter(self) -> None:
        """A message of a group with locks becomes a dead letter, because it was
        retried in place.
        """
        body = LockBatchRequestBody("g", "client", mq_set=(MessageQueue("T", "broker-a", 0),))
        self.assertEqual(self.box.ask(RequestCode.LOCK_BATCH_MQ, body=body.encode()).code, 0)
        self.resend(0)
        self.assertEqual(len(self.stored(DLQ)), 1)
        self.box.now_ms += 61_000
        self.resend(0)
        self.assertEqual(len(self.stored(DLQ)), 1)
