"""SentTopics keeps no topic and no queue that the tables have changed."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.request.sent_topics import SentTopics
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.protocol.bodies import TopicConfig, TopicFilterType


class SentTopicsTests(SynchronousTestCase):
    """The class SentTopics."""

    def setUp(self) -> None:
        self.table = {"T": TopicConfig("T", 4, 2), "M": TopicConfig(
            "M", 4, 4, topic_filter_type=TopicFilterType.MULTI_TAG)}
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.asked: list[tuple[str, int]] = []
        self.topics = SentTopics(self.table, TopicFilterType.MULTI_TAG, self.find)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        self.asked.append((topic, queue_id))
        return self.queues.get((topic, queue_id))

    def queue_count(self, topic: str) -> int | None:
        sent = self.topics.get(topic)
        return None if sent is None else sent.queue_count

    def test_queues_that_take_plain_messages(self) -> None:
        """A topic has as many queues as are written or read; special topics have none."""
        self.assertEqual([self.queue_count(name) for name in ("T", "M", "unknown")], [4, 0, None])

    def test_a_topic_that_changes_is_looked_at_again(self) -> None:
        """A deleted topic, or one that was created again, is read again as well."""
        found = [self.queue_count("T")]
        for config in (TopicConfig("T", 8, 8), None, TopicConfig("T", 1, 2)):
            if config is None:
                del self.table["T"]
            else:
                self.table["T"] = config
            self.topics.forget("T")
            found.append(self.queue_count("T"))
        self.assertEqual(found, [4, 8, None, 2])

    def test_a_queue_is_asked_for_until_it_is_there_and_again_when_it_is_gone(self) -> None:
        """In between the table of queues is not asked."""
        sent = self.topics.get("T")
        assert sent is not None
        self.assertIsNone(self.topics.queue(sent, 3))
        first = self.queues["T", 3] = ConsumeQueue("T", 3)
        for _ in range(3):
            self.assertIs(self.topics.queue(sent, 3), first)
        self.assertEqual(self.asked, [("T", 3)] * 2)
        first.is_removed = True
        second = self.queues["T", 3] = ConsumeQueue("T", 3)
        self.assertIs(self.topics.queue(sent, 3), second)

    def test_queues_beyond_those_that_are_kept(self) -> None:
        """The store finds them."""
        self.table["W"] = TopicConfig("W", 1000, 1000)
        sent = self.topics.get("W")
        assert sent is not None
        self.assertEqual(sent.queue_count, 1000)
        self.assertIsNone(self.topics.queue(sent, 999))
        self.assertEqual(self.asked, [])
