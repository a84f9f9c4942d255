"""Subscriptions that change while a member runs, and members that subscribe to different things."""

from __future__ import annotations

import logging

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.core.consumer.subscriptions import sql, subscription
from twistmq.protocol.bodies import HeartbeatData, SubscriptionData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.properties import java_string_hash

GATED = ResponseCode.SUBSCRIPTION_NOT_LATEST


class GatedBroker(GroupBroker):
    """Refuses pulls of a newer subscription than the last heartbeat had, as brokers do.

    ``takes_beats`` says whether heartbeats are kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takes_beats = True
        self.gated: list[RemotingCommand] = []

    def __call__(self, command: RemotingCommand) -> Answer:
        """See ``GroupBroker``."""
        if command.code == RequestCode.HEART_BEAT and not self.takes_beats:
            return ResponseCode.SUCCESS, None, b"", None
        if command.code == RequestCode.PULL_MESSAGE:
            header = command.header(PullMessageRequestHeader)
            known = self.subscriptions["g"].get(header.topic)
            if known is None or header.sub_version > known.sub_version:
                self.gated.append(command)
                return GATED, None, b"", "the consumer's subscription not latest"
        return super().__call__(command)


class ChangeTests(SynchronousTestCase):
    """A member that changes its subscriptions."""

    def beats(self, box: GroupBox) -> list[dict[str, SubscriptionData]]:
        """The subscriptions of each heartbeat."""
        found = [HeartbeatData.decode(command.body).consumer_data_set
                 for _, command in box.requests if command.code == RequestCode.HEART_BEAT]
        return [{each.topic: each for each in data[0].subscription_data_set}
                for data in found if data]

    def test_a_changed_expression_is_told_by_a_heartbeat_at_once(self) -> None:
        """With a newer version, tags as Java's hashes, and SQL92 by its own kind."""
        broker = GatedBroker()
        for number in range(40):
            broker.put("T", number % 4, b"%d" % number, "ab"[number % 2])
        box = GroupBox(broker)
        box.start()
        box.take_all()
        for wanted in ("a || c", sql("level > 3")):
            before = self.beats(box)[-1]["T"].sub_version
            count = len(self.beats(box))
            box.member.subscribe(subscription("T", wanted))
            box.advance(50)
            beats = self.beats(box)
            self.assertEqual(len(beats), count + 1)
            told = beats[-1]["T"]
            self.assertGreater(told.sub_version, before)
            if wanted == "a || c":
                self.assertEqual((told.sub_string, told.tags_set, told.code_set), (
                    "a || c", {"a", "c"}, {java_string_hash("a"), java_string_hash("c")}))
            else:
                self.assertEqual((told.sub_string, told.expression_type, told.tags_set), (
                    "level > 3", "SQL92", set()))
        box.cut(BROKER)
        box.advance(3_000)
        self.assertEqual(broker.gated, [])

    def test_a_pull_behind_the_version_gate_has_the_subscription_told_again(self) -> None:
        """No message is lost meanwhile, and none is waited half a minute for."""
        broker = GatedBroker()
        box = GroupBox(broker)
        box.start()
        broker.takes_beats = False
        box.member.subscribe(subscription("T", "a"))
        box.cut(BROKER)
        box.advance(5_000)
        self.assertGreater(len(broker.gated), 4)
        broker.put("T", 1, b"7", "a")
        broker.takes_beats = True
        begin_ms = box.clock.now_ms
        while not (found := box.take_all()):
            box.advance(100)
            self.assertLess(box.clock.now_ms - begin_ms, 5_000)
        self.assertEqual(found, [7])


class DifferenceTests(SynchronousTestCase):
    """Two members of one group."""

    def setUp(self) -> None:
        """Start a member beside another one."""
        self.broker = GroupBroker()
        self.box = GroupBox(self.broker, expression="a")
        self.box.start()
        self.broker.members["g"].add("10.0.0.2@zzz")

    def warnings(self, milliseconds: float) -> list[str]:
        """The warnings of some time."""
        with self.assertLogs("twistmq.client", logging.WARNING) as found:
            logging.getLogger("twistmq.client").warning("one at least")
            self.box.advance(milliseconds)
        return [record.getMessage() for record in found.records[1:]]

    def other(self, wanted: str, topic: str = "T") -> None:
        """Let the broker have a newer subscription, which the other member told."""
        version = self.box.clock.wall_ms() + 10_000_000
        self.broker.subscriptions["g"] = {topic: subscription(topic, wanted).data(version)}
        self.broker.refusals[RequestCode.HEART_BEAT] = ResponseCode.SYSTEM_BUSY

    def subscription_check(self, milliseconds: float) -> list[str]:
        """The warnings of differences."""
        return [each for each in self.warnings(milliseconds) if "another member" in each]

    def test_another_expression_is_warned_of_once(self) -> None:
        """The text has both expressions."""
        self.assertEqual(self.subscription_check(130_000), [])
        self.other("b")
        [text] = self.subscription_check(300_000)
        self.assertIn("'b'", text)
        self.assertIn("'a'", text)

    def test_what_another_member_sent_is_one_printable_line(self) -> None:
        """It forges no line of the log."""
        self.other("b")
        self.broker.subscriptions["g"]["T"].expression_type = "TAG\n\x1b[2J forged"
        [text] = self.subscription_check(300_000)
        self.assertIn("TAG \\x1b[2J forged 'b'", text)

    def test_a_topic_that_the_other_does_not_read_is_warned_of(self) -> None:
        """Its queues are shared among both."""
        self.other("a", "U")
        [text] = self.subscription_check(300_000)
        self.assertIn("does not read topic T", text)

    def test_equal_members_and_a_single_one_are_not(self) -> None:
        """A single one does not even ask, and a member that is not alone asks once a minute."""
        self.box.requests.clear()
        self.other("a")
        self.assertEqual(self.subscription_check(600_000), [])
        asked = [command for _, command in self.box.requests
                 if command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST]
        self.assertIn(len(asked), (9, 10, 11))
        self.broker.members["g"].discard("10.0.0.2@zzz")
        self.box.advance(30_000)
        self.box.requests.clear()
        self.other("b")
        self.assertEqual(self.subscription_check(600_000), [])

    def test_unsubscribing_beside_another_member_is_warned_of(self) -> None:
        """As long as the other one reads the topic, this one's share is read by neither."""
        self.box.notify()
        self.box.advance(2_000)
        with self.assertLogs("twistmq.client", logging.WARNING) as found:
            self.box.member.unsubscribe("T")
        self.assertIn("no longer reads topic T", found.output[0])
        self.box.advance(2_000)
        self.assertEqual(self.box.member.assigned_queues, {})
        alone = GroupBox()
        alone.start()
        with self.assertNoLogs("twistmq.client", logging.WARNING):
            alone.member.unsubscribe("T")
            alone.advance(2_000)
