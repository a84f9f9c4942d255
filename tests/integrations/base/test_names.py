"""Names of topics for queues, and keys of messages."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.base.names import queue_topic, search_keys
from twistmq.protocol.topic_names import topic_fault


class NameTests(SynchronousTestCase):
    """Topics of queues."""

    def test_a_plain_name_is_kept(self) -> None:
        """It follows the prefix."""
        self.assertEqual(queue_topic("dramatiq", "default"), "dramatiq-default")

    def test_each_name_gives_a_valid_topic(self) -> None:
        """Whatever characters it has, and however long it is."""
        for name in ("a.b", "celery@host.celery.pidbox", "Aufträge", "a b", "~", "%", "x" * 500):
            topic = queue_topic("kombu", name)
            self.assertIsNone(topic_fault(topic), topic)
            # A retry topic has the name of the group as well.
            self.assertLessEqual(len(f"%RETRY%{topic}_{topic}"), 127)

    def test_no_two_queues_share_a_topic(self) -> None:
        """Neither do two long names with the same beginning."""
        names = ("a.b", "a_b", "a-b", "a%2Eb", "a~b", "x" * 100, "x" * 101)
        self.assertEqual(len({queue_topic("kombu", name) for name in names}), len(names))


class KeyTests(SynchronousTestCase):
    """Ids of tasks as keys."""

    def test_an_id_is_a_key_if_it_can_be_one(self) -> None:
        """Neither spaces nor other characters than those of ASCII, and not too long."""
        self.assertEqual(search_keys("t-17"), ["t-17"])
        for task_id in (None, "", "two words", "x" * 200, 17, "ä", "a\n"):
            self.assertEqual(search_keys(task_id), [])
