"""Subscriptions that change while a member runs."""

from __future__ import annotations

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
        """Return the subscriptions of each heartbeat."""
        found = [HeartbeatData.decode(command.body).consumer_data_set
                 for _, command in box.requests if command.code == RequestCode.HEART_BEAT]
        return [{each.topic: each for each in data[0].subscription_data_set}
                for data in found if data]

    def test_a_changed_expression_is_told_by_a_heartbeat_at_once(self) -> None:
        """It has a newer version, tags as Java's hashes, and SQL92 by its own type."""
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
        """No message is lost, and the member does not wait half a minute."""
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
