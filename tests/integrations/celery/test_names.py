"""Names of topics for exchanges."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.celery.names import exchange_topic, queue_topic
from twistmq.protocol.topic_names import topic_fault


class NameTests(SynchronousTestCase):
    """The topics of exchanges."""

    def test_the_default_exchange_has_a_topic(self) -> None:
        """The exchange has a topic although its own name is empty."""
        self.assertEqual(exchange_topic("kombu", ""), "kombu_x-")

    def test_each_name_gives_a_valid_topic(self) -> None:
        """The topic of an exchange is never the topic of a queue."""
        for name in ("a.b", "celery@host.celery.pidbox", "Aufträge", "x" * 500):
            topic = exchange_topic("kombu", name)
            self.assertIsNone(topic_fault(topic), topic)
            self.assertNotEqual(topic, queue_topic("kombu", name))
