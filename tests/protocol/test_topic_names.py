"""Names of topics and groups."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol import topic_names
from twistmq.protocol.topic_names import (
    dlq_topic,
    group_fault,
    is_system_group,
    is_system_topic,
    retry_topic,
    topic_fault,
)

_ILLEGAL = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


class TopicFaultTests(SynchronousTestCase):
    """What Apache's broker says of a topic's name."""

    def test_good_names(self) -> None:
        """Letters, digits and four signs, up to 127 of them."""
        for name in ("T", "a-b_c%d|9", "%RETRY%group", "x" * 127):
            self.assertIsNone(topic_fault(name), name)

    def test_invalid_topic_names_have_apaches_remarks(self) -> None:
        """Blank, illegal, too long: the remarks are Apache's, the first that holds is told."""
        blank = "The specified topic is blank."
        for name, fault in (
            ("", blank), (" \t\n", blank), ("a b", f"The specified topic {_ILLEGAL}"),
            ("a.b", f"The specified topic {_ILLEGAL}"), ("ä", f"The specified topic {_ILLEGAL}"),
            ("T\n", f"The specified topic {_ILLEGAL}"),
            ("x" * 128, "The specified topic is longer than topic max length."),
            ("*" * 128, f"The specified topic {_ILLEGAL}"),
        ):
            self.assertEqual(topic_fault(name), fault, repr(name))


class GroupFaultTests(SynchronousTestCase):
    """What is wrong with a group's name."""

    def test_good_names(self) -> None:
        """The same letters as a topic's, up to 248 of them."""
        for name in ("G", "MQ_INST_1%GID|x-y", "g" * 248):
            self.assertIsNone(group_fault(name), name)

    def test_invalid_group_names_have_their_reasons(self) -> None:
        """A blank, an invalid and a too long group name are refused with different texts."""
        blank = "the specified group is blank"
        for name, fault in (
            ("", blank), ("  ", blank), ("a*b", f"the specified group {_ILLEGAL}"),
            ("٣", f"the specified group {_ILLEGAL}"),
            ("g" * 249, "the specified group is longer than 248"),
        ):
            self.assertEqual(group_fault(name), fault, repr(name))


class SystemNameTests(SynchronousTestCase):
    """What is the broker's own."""

    def test_system_topics(self) -> None:
        """By name or by prefix; a user's topic is none, whatever it looks like."""
        for topic in ("TBW102", "CHECKPOINT_TOPIC", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything"):
            self.assertTrue(is_system_topic(topic), topic)
        for topic in ("T", "tbw102", "%RETRY%G", "RMQ_SYS_OTHER", "my_rmq_sys_"):
            self.assertFalse(is_system_topic(topic), topic)

    def test_topics_nobody_sends_to(self) -> None:
        """They are system topics; the trace topic, the template and the benchmark's are not."""
        self.assertTrue(all(map(is_system_topic, topic_names.SEND_FORBIDDEN_TOPICS)))
        self.assertIn("rmq_sys_wheel_timer", topic_names.SEND_FORBIDDEN_TOPICS)
        self.assertEqual(
            topic_names.SYSTEM_TOPICS - topic_names.SEND_FORBIDDEN_TOPICS,
            {"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"})

    def test_system_groups(self) -> None:
        """By name or by prefix."""
        for group in ("TOOLS_CONSUMER", "CID_ONSAPI_PULL", "CID_RMQ_SYS_anything"):
            self.assertTrue(is_system_group(group), group)
        self.assertFalse(is_system_group("CID_mine"))

    def test_topics_of_a_group(self) -> None:
        """Where its retries and its dead letters go."""
        self.assertEqual(retry_topic("G"), "%RETRY%G")
        self.assertEqual(dlq_topic("G"), "%DLQ%G")
