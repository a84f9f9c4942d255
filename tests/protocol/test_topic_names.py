"""The names of topics and groups."""

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
    """The remarks of Apache's broker about the name of a topic."""

    def test_good_names(self) -> None:
        """A name has letters, digits and four other characters, up to 127 of them."""
        for name in ("T", "a-b_c%d|9", "%RETRY%group", "x" * 127):
            self.assertIsNone(topic_fault(name), name)

    def test_invalid_topic_names_have_apaches_remarks(self) -> None:
        """The first remark that applies to a blank, invalid or too long name is returned."""
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
    """The errors of invalid group names."""

    def test_good_names(self) -> None:
        """A group name has the same characters as a topic name, up to 248 of them."""
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
    """The names that belong to the broker."""

    def test_system_topics(self) -> None:
        """Names and prefixes count; a user's topic never does, whatever it looks like."""
        for topic in ("TBW102", "CHECKPOINT_TOPIC", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything"):
            self.assertTrue(is_system_topic(topic), topic)
        for topic in ("T", "tbw102", "%RETRY%G", "RMQ_SYS_OTHER", "my_rmq_sys_"):
            self.assertFalse(is_system_topic(topic), topic)

    def test_topics_nobody_sends_to(self) -> None:
        """System topics do, except the trace topic, the template and the benchmark's topic."""
        self.assertTrue(all(map(is_system_topic, topic_names.SEND_FORBIDDEN_TOPICS)))
        self.assertIn("rmq_sys_wheel_timer", topic_names.SEND_FORBIDDEN_TOPICS)
        self.assertEqual(
            topic_names.SYSTEM_TOPICS - topic_names.SEND_FORBIDDEN_TOPICS,
            {"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"})

    def test_system_groups(self) -> None:
        """Names and prefixes count."""
        for group in ("TOOLS_CONSUMER", "CID_ONSAPI_PULL", "CID_RMQ_SYS_anything"):
            self.assertTrue(is_system_group(group), group)
        self.assertFalse(is_system_group("CID_mine"))

    def test_topics_of_a_group(self) -> None:
        """The topics of its retries and its dead letters are returned."""
        self.assertEqual(retry_topic("G"), "%RETRY%G")
        self.assertEqual(dlq_topic("G"), "%DLQ%G")
