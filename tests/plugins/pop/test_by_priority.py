"""Pops from topics of the type PRIORITY return the highest priority first."""

from __future__ import annotations

from tests.plugins.pop.case import PopTestCase
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.properties import PRIORITY


class ByPriorityTests(PopTestCase):
    """The topic P has four queues."""

    def setUp(self) -> None:
        super().setUp()
        self.make_topic()

    def make_topic(self) -> None:
        self.assertEqual(self.box.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic="P", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG", order=False,
            attributes="+message.type=PRIORITY")).code, ResponseCode.SUCCESS)

    def set_factor(self, percent: str) -> int:
        return self.box.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                            SubscriptionGroupConfig(
                                "g", attributes={"+priority.factor": percent}).encode()).code

    def send_all(self) -> None:
        for number in range(8):
            self.send(b"%d" % number, "P", **{PRIORITY: str(number % 4)})

    def popped(self, **how: object) -> list[bytes]:
        return [each.body for each in self.pop(topic="P", **how)]

    def test_the_highest_priority_comes_first(self) -> None:
        """A message of a higher priority overtakes the ones that wait."""
        self.send_all()
        self.assertEqual(self.popped(count=3), [b"3", b"7", b"2"])
        self.send(b"urgent", "P", **{PRIORITY: "9"})
        self.assertEqual(self.popped(), [b"urgent", b"6", b"1", b"5", b"0", b"4"])

    def test_the_order_can_be_reversed(self) -> None:
        """With priorityOrderAsc=false the first queue has the highest priority."""
        self.restart(priorityOrderAsc="false")
        self.send_all()
        self.assertEqual(self.popped(count=3), [b"0", b"4", b"1"])

    def test_a_group_may_take_from_any_queue(self) -> None:
        """With the factor 0, pops begin at any queue, so that low priorities are not starved."""
        self.assertEqual(self.set_factor("0"), ResponseCode.SUCCESS)
        firsts = set()
        for _ in range(30):
            self.send_all()
            firsts.add(self.popped(count=1)[0])
        self.assertGreater(len(firsts), 2)

    def test_the_factor_is_a_percentage(self) -> None:
        """A larger number is refused."""
        self.assertEqual(self.set_factor("101"), ResponseCode.SYSTEM_ERROR)

    def test_retries_wait_for_higher_priorities(self) -> None:
        """By default, a pop looks for retries only if the queues have too few messages."""
        for chance, first in (("0", b"new"), ("100", b"old")):
            self.restart(popFromRetryProbabilityForPriority=chance,
                         popFromRetryProbability=str(100 - int(chance)))
            group = f"g{chance}"
            self.send(b"old", "P", **{PRIORITY: "1"})
            self.popped(group=group)
            self.pass_time(8000)
            self.send(b"new", "P", **{PRIORITY: "1"})
            self.assertEqual(self.popped(count=1, group=group), [first], msg=chance)

    def test_other_topics_begin_anywhere(self) -> None:
        """A topic of another type has no priorities, whatever properties its messages have."""
        firsts = set()
        for _ in range(30):
            for number in range(4):
                self.send(b"%d" % number, "T", **{PRIORITY: str(number)})
            firsts.add(self.pop(count=1)[0].body)
        self.assertGreater(len(firsts), 2)
