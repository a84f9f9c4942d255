"""The requests PULL_MESSAGE and LITE_PULL_MESSAGE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.request.test_filters import Equals
from twistmq.broker import hookimpl
from twistmq.broker.constants import OFFSETS_BYTES_MAX
from twistmq.broker.request.consume_context import ConsumeContext
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.headers.pull import (
    PullForbiddenResponseHeader,
    PullMessageResponseHeader,
)

COMMIT = 1


class PullTestCase(SynchronousTestCase):
    """A kernel with five messages in T, queue 0: tags a, b, a, b, a."""

    settings: Mapping[str, str] = {}
    disk_of_test = FaultyDisk
    plugins: list[tuple[str, object]] = []  # noqa: RUF012

    def setUp(self) -> None:
        self.disk = self.disk_of_test()
        self.box = KernelBox(self.plugins, self.settings, self.disk)
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel
        for number in range(5):
            self.send(str(number).encode(), tag="ab"[number % 2], properties={"n": str(number)})

    def send(self, body: bytes, topic: str = "T", **fields: Any) -> None:
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2,
                             send_header(topic, self.box.now_ms, **fields), body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def pull(
        self, topic: str = "T", offset: int = 0, code: int = RequestCode.PULL_MESSAGE,
        changes: Mapping[str, Any] | None = None, **fields: Any
    ) -> RemotingCommand:
        """Pull; :returns: the reply."""
        header = pull_header(topic, offset, **fields)
        for name, value in (changes or {}).items():
            setattr(header, name, value)
        return self.box.ask(code, header)

    def bodies(self, *arguments: Any, **fields: Any) -> list[bytes]:
        """Return the bodies of the messages that a pull returns."""
        reply = self.pull(*arguments, **fields)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        return [message.body for message in records_of(reply.body)]

    def offsets(self, *arguments: Any, **fields: Any) -> tuple[int, str | None, int, int, int]:
        """Return (code, remark, next offset, minimum offset, maximum offset) of a
        pull's response.
        """
        reply = self.pull(*arguments, **fields)
        header = reply.header(PullMessageResponseHeader)
        return (reply.code, reply.remark, header.next_begin_offset, header.min_offset,
                header.max_offset)

    def heartbeat(
        self, group: str = "G", expression: str = "*", version: int = 1,
        model: MessageModel = MessageModel.CLUSTERING, topic: str = "T",
    ) -> None:
        """Send a heartbeat with the subscription of a member of a group."""
        subscription = SubscriptionData(topic, expression, sub_version=version)
        data = ConsumerData(group, message_model=model, subscription_data_set=(subscription,))
        body = HeartbeatData("client", consumer_data_set=(data,)).encode()
        reply = self.box.ask(RequestCode.HEART_BEAT, None, body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)


class ReadTests(PullTestCase):
    """The messages of a pull, and the next offset."""

    def test_from_an_offset(self) -> None:
        """Messages are returned from the offset on, up to the requested number."""
        self.assertEqual(self.bodies(), [b"0", b"1", b"2", b"3", b"4"])
        self.assertEqual(self.bodies(offset=3), [b"3", b"4"])
        self.assertEqual(self.bodies(offset=1, max_count=2), [b"1", b"2"])
        self.assertEqual(self.offsets(offset=1, max_count=2),
                         (ResponseCode.SUCCESS, "FOUND", 3, 0, 5))

    def test_lite_pull(self) -> None:
        """The other code has the same response."""
        self.assertEqual(self.bodies(code=RequestCode.LITE_PULL_MESSAGE, offset=4), [b"4"])

    def test_outside_the_queue(self) -> None:
        """Offsets without a message have Apache's codes, statuses and corrections."""
        for name, arguments, expected in (
            ("the end", ("T", 5), (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5, 0, 5)),
            ("beyond", ("T", 6), (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY",
                                  5, 0, 5)),
            ("far beyond", ("T", 2**62), (ResponseCode.PULL_OFFSET_MOVED,
                                          "OFFSET_OVERFLOW_BADLY", 5, 0, 5)),
            ("below", ("T", -1), (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0, 0, 5)),
        ):
            self.assertEqual(self.offsets(*arguments), expected, msg=name)

    def test_empty_queue(self) -> None:
        """A queue without messages can be waited for from 0; other offsets are moved there."""
        self.assertEqual(self.offsets(queue_id=1)[0], ResponseCode.PULL_NOT_FOUND)
        code, _, next_begin, minimum, maximum = self.offsets(queue_id=1, offset=7)
        self.assertEqual((code, next_begin, minimum, maximum),
                         (ResponseCode.PULL_OFFSET_MOVED, 0, 0, 0))

    def test_an_operators_reset_is_answered_once(self) -> None:
        """An operator's reset is answered once, by the offset to go on from."""
        self.kernel.consumer_offset.reset("test_consumer", "T", 0, 2)
        self.assertEqual(self.offsets(offset=5),
                         (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", 2, 0, 5))
        self.assertEqual(self.bodies(offset=2), [b"2", b"3", b"4"])

    def test_a_pull_can_say_how_far_its_group_is(self) -> None:
        """A pull can commit the offset of its group; without the flag it does not."""
        self.pull(changes={"commit_offset": 3})
        self.assertEqual(self.kernel.consumer_offset.query("test_consumer", "T", 0), -1)
        self.pull(changes={"commit_offset": 3, "sys_flag": 4 | COMMIT})
        self.assertEqual(self.kernel.consumer_offset.query("test_consumer", "T", 0), 3)
        self.kernel.set_role("SLAVE", 1)
        self.pull(changes={"commit_offset": 4, "sys_flag": 4 | COMMIT})
        self.assertEqual(self.kernel.consumer_offset.query("test_consumer", "T", 0), 4)

    def test_commit_of_what_never_was(self) -> None:
        """An offset outside the queue, or above the limit, is not committed; the
        pull is answered.
        """
        table = self.kernel.consumer_offset
        for offset in (-1, 6, 2**63 - 1):
            self.assertEqual(self.bodies(offset=4, changes={
                "commit_offset": offset, "sys_flag": 4 | COMMIT}), [b"4"])
        self.assertEqual(self.offsets(offset=9, changes={
            "commit_offset": 9, "sys_flag": 4 | COMMIT})[0], ResponseCode.PULL_OFFSET_MOVED)
        table.size_bytes = OFFSETS_BYTES_MAX
        self.pull(changes={"commit_offset": 5, "sys_flag": 4 | COMMIT})
        self.assertEqual(table.table, {})
        table.size_bytes = 0
        self.pull(changes={"commit_offset": 5, "sys_flag": 4 | COMMIT})
        self.assertEqual(table.query("test_consumer", "T", 0), 5)

    def test_a_slave_answers_at_the_end_of_a_queue_as_a_master(self) -> None:
        """It holds the pull, or answers that nothing was found."""
        self.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.offsets(offset=5),
                         (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5, 0, 5))
        self.assertEqual(self.bodies(), [b"0", b"1", b"2", b"3", b"4"])

    def test_a_slave_moves_no_consumer(self) -> None:
        """It may lag, so a consumer outside its queue asks again with the same offset."""
        self.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.offsets(offset=149), (
            ResponseCode.PULL_RETRY_IMMEDIATELY, "OFFSET_OVERFLOW_BADLY", 149, 0, 5))
        self.assertEqual(self.offsets(offset=7, queue_id=1), (
            ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MESSAGE_IN_QUEUE", 7, 0, 0))
        self.assertEqual(self.offsets(offset=0, queue_id=1)[0], ResponseCode.PULL_NOT_FOUND)
        self.kernel.consumer_offset.reset("test_consumer", "T", 0, 2)
        self.assertEqual(self.offsets(offset=5), (
            ResponseCode.PULL_RETRY_IMMEDIATELY, "OFFSET_RESET", 2, 0, 5))

    def test_a_slave_that_checks_offsets_moves_consumers(self) -> None:
        """The setting offsetCheckInSlave asks for it."""
        self.box.stop()
        self.box = KernelBox(self.plugins, {"offsetCheckInSlave": "true"}, self.disk)
        self.kernel = self.box.kernel
        self.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.offsets(offset=149), (
            ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5, 0, 5))

    def test_messages_out_are_counted_by_group_and_topic(self) -> None:
        """Delivered messages are counted by group and topic."""
        self.bodies(group="G")
        self.pull(group="G", offset=5)
        self.assertEqual(self.kernel.stats.sums("GROUP_GET", "T", "G").count, 5)


class LittleMemoryDisk(FaultyDisk):
    """A disk on a machine so small that most messages are not in memory."""

    def physical_memory_bytes(self) -> int:
        """40 percent of it are two messages."""
        return 1000


class NextBrokerTests(PullTestCase):
    """The broker that a consumer should ask next, if slaves may be read."""

    settings: Mapping[str, str] = {"slaveReadEnable": "true"}
    disk_of_test = LittleMemoryDisk

    def setUp(self) -> None:
        super().setUp()
        self.kernel.subscription_group.update(SubscriptionGroupConfig(
            "G", broker_id=2, which_broker_when_consume_slowly=3), {})

    def next_broker(self, offset: int) -> int | None:
        """Return the broker id in the response to a pull."""
        reply = self.pull(offset=offset, group="G", max_count=1)
        return reply.header(PullMessageResponseHeader).suggest_which_broker_id

    def test_far_behind(self) -> None:
        """The group's broker for slow consumers: these messages are read from disk."""
        self.assertEqual([self.next_broker(offset) for offset in (0, 1)], [3, 3])

    def test_caught_up(self) -> None:
        """The response suggests the broker id of the group's setting."""
        self.assertEqual([self.next_broker(offset) for offset in (4, 5)], [2, 2])

    def test_the_master_is_suggested_where_slaves_are_not_read(self) -> None:
        """If slaves are not read, the master is suggested in every case."""
        self.start()
        self.assertEqual([self.next_broker(offset) for offset in (0, 4)], [0, 0])
        self.box.settings.update({"slaveReadEnable": "true"})
        self.assertEqual([self.next_broker(offset) for offset in (0, 4)], [3, 2])

    def start(self, **settings: str) -> None:
        """Start again with other settings."""
        self.box.stop()
        self.box = KernelBox(self.plugins, settings, self.disk)
        self.kernel = self.box.kernel

    def test_a_slave_sends_consumers_back(self) -> None:
        """It keeps consumers that are far behind, and sends the others to the group's broker."""
        self.kernel.set_role("SLAVE", 3)
        self.assertEqual([self.next_broker(offset) for offset in (0, 4, 5)], [3, 2, 2])

    def test_how_far_is_far(self) -> None:
        """accessMessageInMemoryMaxRatio is the share of the memory that holds messages."""
        self.start(slaveReadEnable="true", accessMessageInMemoryMaxRatio="100")
        self.assertEqual([self.next_broker(offset) for offset in (1, 4)], [2, 2])
        self.start(slaveReadEnable="true", accessMessageInMemoryMaxRatio="1")
        self.assertEqual([self.next_broker(offset) for offset in (1, 3)], [3, 3])

    def test_a_pull_that_waited_is_told_as_well(self) -> None:
        """The response to a pull that waited has it as well."""
        peer = self.box.peer()
        self.assertIsNone(self.box.send(peer, RequestCode.PULL_MESSAGE, pull_header(
            "T", 5, group="G", hold_ms=15_000)))
        self.send(b"5")
        [reply] = self.box.late_replies(peer)
        self.assertEqual(reply.header(PullMessageResponseHeader).suggest_which_broker_id, 2)


class SubscriptionTests(PullTestCase):
    """The subscription in a pull, and the subscription of its group from a heartbeat."""

    def test_messages_of_other_tags_do_not_come(self) -> None:
        """Messages with other tags are not returned; the offset passes them."""
        self.assertEqual(self.bodies(expression="a"), [b"0", b"2", b"4"])
        self.assertEqual(self.bodies(expression="a || b"), [b"0", b"1", b"2", b"3", b"4"])
        self.assertEqual(self.offsets(expression="c"), (
            ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 5, 0, 5))

    def test_parse_failed(self) -> None:
        """The expression is invalid."""
        reply = self.pull(expression="||")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"))

    def test_of_the_group(self) -> None:
        """A pull without a subscription uses that of its group."""
        own = {"sys_flag": 0, "sub_version": 1}
        reply = self.pull(group="G", changes=own)
        self.assertEqual(reply.code, ResponseCode.SUBSCRIPTION_NOT_EXIST)
        self.assertIn("the consumer's group info not exist", reply.remark or "")
        self.heartbeat(expression="b")
        self.assertEqual(self.bodies(group="G", changes=own), [b"1", b"3"])
        reply = self.pull(group="G", changes={"sys_flag": 0, "sub_version": 2})
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"))
        self.send(b"other", "other_topic")
        reply = self.pull("other_topic", group="G", changes=own)
        self.assertEqual(reply.code, ResponseCode.SUBSCRIPTION_NOT_EXIST)
        self.assertIn("the consumer's subscription not exist", reply.remark or "")

    def test_class_filter(self) -> None:
        """The broker ignores the old class filter, so all messages are returned."""
        self.assertEqual(len(self.bodies(expression="a", changes={"sys_flag": 4 | 8})), 5)
        self.heartbeat(expression="a")
        of_group = {"sys_flag": 0, "sub_version": 1}
        self.assertEqual(len(self.bodies(group="G", changes=of_group)), 3)
        self.assertEqual(len(self.bodies(group="G", changes=of_group | {"sys_flag": 8})), 5)

    def test_unknown_language(self) -> None:
        """No plugin provides the language."""
        reply = self.pull(expression="n > 1", expression_type="SQL92")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92"))


class LanguageTests(PullTestCase):
    """The filter language of a plugin."""

    settings = {"enablePropertyFilter": "true"}  # noqa: RUF012

    def setUp(self) -> None:
        self.plugins = [("plugin", self)]
        super().setUp()

    @hookimpl
    def register_filter_languages(self) -> Mapping[str, Any]:
        return {"EQUALS": Equals(), "BROKEN": _Broken()}

    def test_records_are_asked(self) -> None:
        """The properties of the records decide which messages are returned."""
        self.assertEqual(self.bodies(expression="n=3", expression_type="EQUALS"), [b"3"])
        self.assertEqual(self.offsets(expression="n=9", expression_type="EQUALS"), (
            ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 5, 0, 5))
        self.assertEqual(self.pull(expression="n", expression_type="EQUALS").code,
                         ResponseCode.SUBSCRIPTION_PARSE_FAILED)

    def test_language_that_raises(self) -> None:
        """Only the pulls of its own consumers fail."""
        reply = self.pull(expression="x", expression_type="BROKEN")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(len(self.bodies()), 5)


class _Broken:
    """A language whose matching raises an error."""

    def compile(self, expression: str) -> Any:
        return lambda properties: 1 // 0


class PropertyFilterOffTests(LanguageTests):
    """enablePropertyFilter is false unless it is set."""

    settings = {}  # noqa: RUF012

    def test_records_are_asked(self) -> None:
        """A language is refused though a plugin brought it."""
        reply = self.pull(expression="n=3", expression_type="EQUALS")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by EQUALS"))

    test_language_that_raises = test_records_are_asked


class ForbiddenTests(PullTestCase):
    """Pulls that are not allowed, with Apache's codes, remarks and kinds."""

    def forbidden(self, **arguments: Any) -> tuple[int | None, str | None]:
        """(kind, remark) of a pull that is answered NO_PERMISSION."""
        reply = self.pull(**arguments)
        self.assertEqual(reply.code, ResponseCode.NO_PERMISSION)
        return reply.header(PullForbiddenResponseHeader).forbidden_type, reply.remark

    def test_a_group_that_may_not_consume(self) -> None:
        """The group may not consume."""
        self.kernel.subscription_group.table["G"] = SubscriptionGroupConfig(
            "G", consume_enable=False)
        self.assertEqual(self.forbidden(group="G"),
                         (2, "subscription group no permission, G"))

    def test_a_topic_without_read_permission_is_refused(self) -> None:
        """The topic has no permission to read."""
        self.kernel.topic_config.table["T"].perm = 2
        self.assertEqual(self.forbidden(), (3, "the topic[T] pulling message is forbidden"))

    def test_a_group_that_may_not_broadcast(self) -> None:
        """The group may not broadcast."""
        self.kernel.subscription_group.table["G"] = SubscriptionGroupConfig(
            "G", consume_broadcast_enable=False)
        self.heartbeat(model=MessageModel.BROADCASTING)
        self.assertEqual(self.forbidden(group="G", changes={"sys_flag": 0}), (
            4, "the consumer group[G] can not consume by broadcast way"))

    def test_a_group_that_may_not_read_this_topic(self) -> None:
        """The group may not read this topic."""
        self.heartbeat()
        self.kernel.subscription_group.forbidden["G"] = {"T": 1 << 2}
        self.assertEqual(self.forbidden(group="G", changes={"sys_flag": 0}), (
            5, "the consumer group[G] is forbidden for topic[T]"))

    def test_topics_and_queues_that_are_not_there(self) -> None:
        """Topics and queues that are not there, groups that cannot be."""
        reply = self.pull("unknown")
        self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertIn("topic[unknown] not exist, apply first please!", reply.remark or "")
        for queue_id in (-1, 4):
            reply = self.pull(queue_id=queue_id)
            self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
            self.assertTrue((reply.remark or "").startswith(
                f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[4] "
                "consumer:[/"))
        reply = self.pull(group="a b")
        self.assertEqual(reply.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertIn("subscription group [a b] does not exist, ", reply.remark or "")


class ClosedBrokerTests(PullTestCase):
    """brokerPermission without reading, and litePullMessageEnable=false."""

    settings = {"litePullMessageEnable": "false"}  # noqa: RUF012

    def test_lite_pull(self) -> None:
        """Lite pulls are refused, and other pulls are not."""
        reply = self.pull(code=RequestCode.LITE_PULL_MESSAGE)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] for lite pull consumer is forbidden"))
        self.assertEqual(len(self.bodies()), 5)

    def test_write_only(self) -> None:
        """A broker that only accepts messages refuses pulls."""
        box = KernelBox(settings={"brokerPermission": "2"})
        self.addCleanup(box.stop)
        reply = box.ask(RequestCode.PULL_MESSAGE, pull_header("T"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] pulling message is forbidden"))
        self.assertEqual(reply.header(PullForbiddenResponseHeader).forbidden_type, 1)


class NoGroupCreationTests(PullTestCase):
    """The setting autoCreateSubscriptionGroup=false."""

    settings = {"autoCreateSubscriptionGroup": "false"}  # noqa: RUF012

    def test_unknown_group(self) -> None:
        """Only groups that were created may pull."""
        self.assertEqual(self.pull().code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.kernel.subscription_group.table["made"] = SubscriptionGroupConfig("made")
        self.assertEqual(len(self.bodies(group="made")), 5)


class ConsumeHookTests(PullTestCase):
    """The hooks ``before_consume`` and ``after_consume``."""

    def setUp(self) -> None:
        self.plugins = [("plugin", self)]
        self.before: list[tuple[str, str, int, int]] = []
        self.after: list[tuple[int, int]] = []
        super().setUp()

    @hookimpl
    def before_consume(self, context: ConsumeContext) -> BrokerError | None:
        self.before.append((context.group, context.topic, context.queue_id, context.offset))
        if context.group == "late":
            return RequestRefused(ResponseCode.SYSTEM_BUSY, "come back tomorrow")
        return None

    @hookimpl
    def after_consume(self, context: ConsumeContext) -> None:
        self.after.append((context.message_count, context.size_bytes))

    def test_hooks_see_the_consumer_and_the_messages(self) -> None:
        """They get the consumer and the messages; without messages only the first one runs."""
        size = len(self.pull(offset=3).body)
        self.pull(offset=5)
        self.assertEqual(self.before, [("test_consumer", "T", 0, 3), ("test_consumer", "T", 0, 5)])
        self.assertEqual(self.after, [(2, size)])

    def test_a_refusal_is_the_answer(self) -> None:
        """A refusal is the response."""
        reply = self.pull(group="late")
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SYSTEM_BUSY, "come back tomorrow"))
        self.assertEqual(self.after, [])
