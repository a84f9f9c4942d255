"""Names of topics for queues and exchanges."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.celery.names import exchange_topic, queue_topic
from twistmq.protocol.topic_names import topic_fault


class NameTests(SynchronousTestCase):
    """Topics of queues and exchanges."""

    def test_a_plain_name_is_kept(self) -> None:
        """It follows the prefix."""
        self.assertEqual(queue_topic("kombu", "celery"), "kombu-celery")
        self.assertEqual(exchange_topic("kombu", ""), "kombu_x-")

    def test_each_name_gives_a_valid_topic(self) -> None:
        """Whatever characters it has, and however long it is."""
        for name in ("a.b", "celery@host.celery.pidbox", "Aufträge", "a b", "~", "%", "x" * 500):
            for topic in (queue_topic("kombu", name), exchange_topic("kombu", name)):
                self.assertIsNone(topic_fault(topic), topic)
                # A retry topic has the name of the group as well.
                self.assertLessEqual(len(f"%RETRY%{topic}_{topic}"), 127)

    def test_no_two_queues_share_a_topic(self) -> None:
        """Neither do a queue and an exchange, nor two long names with the same beginning."""
        names = ("a.b", "a_b", "a-b", "a%2Eb", "a~b", "x" * 100, "x" * 101)
        topics = {make("kombu", name) for name in names for make in (queue_topic, exchange_topic)}
        self.assertEqual(len(topics), 2 * len(names))
