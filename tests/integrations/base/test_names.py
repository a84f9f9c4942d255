"""Names of topics for queues, and keys of messages."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.base.names import queue_topic, search_keys
from twistmq.protocol.topic_names import topic_fault


class NameTests(SynchronousTestCase):
    """Topics of queues."""

    def test_a_plain_name_is_kept(self) -> None:
        """The name of the queue follows the prefix unchanged."""
        self.assertEqual(queue_topic("dramatiq", "default"), "dramatiq-default")

    def test_each_name_gives_a_valid_topic(self) -> None:
        """The topic is valid for names with any characters and of any length."""
        for name in ("a.b", "celery@host.celery.pidbox", "Aufträge", "a b", "~", "%", "x" * 500):
            topic = queue_topic("kombu", name)
            self.assertIsNone(topic_fault(topic), topic)
            # A retry topic has the name of the group as well.
            self.assertLessEqual(len(f"%RETRY%{topic}_{topic}"), 127)

    def test_no_two_queues_share_a_topic(self) -> None:
        """Two long names with the same beginning have different topics too."""
        names = ("a.b", "a_b", "a-b", "a%2Eb", "a~b", "x" * 100, "x" * 101)
        self.assertEqual(len({queue_topic("kombu", name) for name in names}), len(names))


class KeyTests(SynchronousTestCase):
    """Ids of tasks as keys."""

    def test_an_id_is_a_key_if_it_can_be_one(self) -> None:
        """An id that is too long, or has a space or a character beyond ASCII, cannot be a key."""
        self.assertEqual(search_keys("t-17"), ["t-17"])
        for task_id in (None, "", "two words", "x" * 200, 17, "ä", "a\n"):
            self.assertEqual(search_keys(task_id), [])
