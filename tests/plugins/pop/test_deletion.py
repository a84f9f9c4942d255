"""A topic is deleted together with the state of its pops."""

from __future__ import annotations

from tests.plugins.pop.case import RETRY_TOPIC, PopTestCase
from twistmq.plugins.pop.names import pop_retry_topic
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader

RETRY_V2 = pop_retry_topic("T", "g", True)
#: Of a group that has no offset in T, and of another topic.
OTHERS = (pop_retry_topic("T", "stranger", False), pop_retry_topic("U", "g", False), "%RETRY%g")


class DeletionTests(PopTestCase):
    """The request DELETE_TOPIC_IN_BROKER."""

    settings = {"enablePopMessageThreshold": "true"}  # noqa: RUF012

    def delete(self, topic: str = "T") -> None:
        reply = self.box.ask(RequestCode.DELETE_TOPIC_IN_BROKER,
                             DeleteTopicRequestHeader(topic=topic))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def test_retry_topics(self) -> None:
        """Both forms of the retry topics are deleted, for groups that have offsets in the topic."""
        self.send_some(2, 1)
        self.pop()
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"0", b"1"])
        self.assertEqual(self.offset(topic=RETRY_TOPIC), 0)
        table = self.box.kernel.topic_config
        for topic in (RETRY_V2, *OTHERS):
            table.update(TopicConfig(topic, 1, 1, 6), {})
        self.delete()
        self.assertEqual([topic for topic in ("T", RETRY_TOPIC, RETRY_V2, *OTHERS)
                          if table.get(topic) is not None], list(OTHERS))
        self.assertEqual(self.stored(RETRY_TOPIC), [])
        self.assertEqual([self.offset(topic=topic) for topic in ("T", RETRY_TOPIC)], [-1, -1])

    def test_a_topic_created_again_is_popped_from_its_first_message(self) -> None:
        """A topic of the same name is popped from its first message on."""
        self.send_some(3, 1)
        self.pop()
        self.pop(group="in_order", order=True)
        service = self.service
        self.assertGreater(service.state.in_flight.count(("T", "g", 0)), 0)
        self.delete()
        self.assertEqual(service.state.in_flight.count(("T", "g", 0)), 0)
        for number in range(5):
            self.send(b"new %d" % number)
        for order, group in ((False, "g"), (True, "in_order")):
            self.assertEqual([each.body for each in self.pop(group=group, order=order)],
                             [b"new %d" % number for number in range(5)], msg=group)
        self.run_task("save the pops of ordered groups")
        saved = self.disk.read_file("/store/config/consumerOrderInfo.json")
        self.assertIn(b'"T@in_order"', saved)
        self.delete()
        self.run_task("save the pops of ordered groups")
        saved = self.disk.read_file("/store/config/consumerOrderInfo.json")
        self.assertNotIn(b'"T@in_order"', saved)

    def test_of_a_retry_topic(self) -> None:
        """The deletion of a retry topic deletes no other topic."""
        self.send_some(1, 1)
        self.pop()
        self.pass_time(8000)
        self.delete(RETRY_TOPIC)
        self.assertIsNone(self.box.kernel.topic_config.get(RETRY_TOPIC))
        self.assertIsNotNone(self.box.kernel.topic_config.get("T"))
