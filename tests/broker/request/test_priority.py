"""Messages with a priority: their queues, and the attributes that decide."""

from __future__ import annotations

from tests.broker.request.test_send import SendTestCase
from twistmq.broker.request.priority import is_priority_topic, priority_factor
from twistmq.protocol.properties import PRIORITY, TRAN_MSG


class PriorityTests(SendTestCase):
    """The topic T has eight queues."""

    def queue_of(self, priority: str, queue_id: int = 1, **properties: str) -> int | None:
        return self.sent(queue_id=queue_id, properties={PRIORITY: priority, **properties}).queue_id

    def test_the_priority_is_the_queue(self) -> None:
        """The queue of the client does not count; the last queue has all higher priorities."""
        self.sent()
        count = self.box.kernel.topic_config.table["T"].write_queue_nums
        for priority, queue_id in (("0", 0), ("3", 3), ("+2", 2), (str(count), count - 1),
                                   (str(2**31 - 1), count - 1)):
            self.assertEqual(self.queue_of(priority), queue_id, msg=priority)
        message = self.messages(queue_id=3)[0]
        self.assertEqual(message.properties_map()[PRIORITY], "3")

    def test_a_text_that_is_no_priority_stays(self) -> None:
        """Such a message goes to the queue of the client, and keeps the property."""
        for text in ("-1", "high", str(2**31), "1.5", "٣"):
            self.assertEqual(self.queue_of(text), 1, msg=text)
        for message in self.messages(queue_id=1):
            self.assertIn(PRIORITY, message.properties_map())

    def test_a_sharding_key_drops_the_priority(self) -> None:
        """Messages with one sharding key stay in one queue."""
        for more in ({}, {"UNIQ_KEY": "U"}):
            self.assertEqual(self.queue_of("3", __SHARDINGKEY="k", **more), 1)
        for message in self.messages(queue_id=1):
            fields = message.properties_map()
            self.assertNotIn(PRIORITY, fields)
            self.assertEqual(fields["__SHARDINGKEY"], "k")

    def test_only_a_true_transaction_drops_it(self) -> None:
        """A property with another value does not make a half message."""
        self.assertEqual(self.queue_of("3", **{TRAN_MSG: "false"}), 3)


class AttributeTests(SendTestCase):
    """The attributes of topics and groups."""

    def test_the_type_of_a_topic(self) -> None:
        """Queues are priorities only in topics of the type PRIORITY."""
        self.assertTrue(is_priority_topic({"message.type": "PRIORITY"}))
        self.assertFalse(is_priority_topic({"message.type": "NORMAL"}))
        self.assertFalse(is_priority_topic({}))

    def test_the_factor_of_a_group(self) -> None:
        """Without the attribute every pop begins with the highest priority."""
        self.assertEqual([priority_factor(each) for each in (
            {}, {"priority.factor": "0"}, {"priority.factor": "7"}, {"priority.factor": "x"})],
            [100, 0, 7, 100])
