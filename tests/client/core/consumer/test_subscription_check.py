"""Members of a group with different subscriptions."""

from __future__ import annotations

import logging

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.group_box import GroupBox, GroupBroker
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.protocol.codes import RequestCode, ResponseCode


class DifferenceTests(SynchronousTestCase):
    """Two members of one group."""

    def setUp(self) -> None:
        """Start a member beside another one."""
        self.broker = GroupBroker()
        self.box = GroupBox(self.broker, expression="a")
        self.box.start()
        self.broker.members["g"].add("10.0.0.2@zzz")

    def warnings(self, milliseconds: float) -> list[str]:
        """Return the warnings of some time."""
        with self.assertLogs("twistmq.client", logging.WARNING) as found:
            logging.getLogger("twistmq.client").warning("one at least")
            self.box.advance(milliseconds)
        return [record.getMessage() for record in found.records[1:]]

    def other(self, wanted: str, topic: str = "T") -> None:
        """Let the broker have a newer subscription of the other member."""
        version = self.box.clock.wall_ms() + 10_000_000
        self.broker.subscriptions["g"] = {topic: subscription(topic, wanted).data(version)}
        self.broker.refusals[RequestCode.HEART_BEAT] = ResponseCode.SYSTEM_BUSY

    def subscription_check(self, milliseconds: float) -> list[str]:
        """Return the warnings about differences."""
        return [each for each in self.warnings(milliseconds) if "another member" in each]

    def test_another_expression_is_warned_of_once(self) -> None:
        """The text has both expressions."""
        self.assertEqual(self.subscription_check(130_000), [])
        self.other("b")
        [text] = self.subscription_check(300_000)
        self.assertIn("'b'", text)
        self.assertIn("'a'", text)

    def test_what_another_member_sent_is_one_printable_line(self) -> None:
        """It cannot forge a line of the log."""
        self.other("b")
        self.broker.subscriptions["g"]["T"].expression_type = "TAG\n\x1b[2J forged"
        [text] = self.subscription_check(300_000)
        self.assertIn("TAG \\x1b[2J forged 'b'", text)

    def test_a_topic_that_the_other_does_not_read_is_warned_of(self) -> None:
        """Its queues are shared among both members."""
        self.other("a", "U")
        [text] = self.subscription_check(300_000)
        self.assertIn("does not read topic T", text)

    def test_equal_members_and_a_single_one_are_not(self) -> None:
        """A single member sends no request, and others send one a minute."""
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
        """While the other member reads the topic, the share of this member has no reader."""
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
