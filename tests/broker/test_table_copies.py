"""Tables that are copied from another broker, as a slave does."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.request.topic_config import TopicConfigTable
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import WireError
from twistmq.protocol.run_to_completion import run_to_completion

T = TypeVar("T")


def done(work: Generator[None, None, T]) -> T:
    """Return the result of work in slices."""
    return run_to_completion(work)


class CopyTests(SynchronousTestCase):
    """A slave, and the tables of its master."""

    def setUp(self) -> None:
        self.master = KernelBox()
        self.disk = MemoryDisk()
        self.slave = KernelBox(disk=self.disk)
        for box in (self.master, self.slave):
            self.addCleanup(lambda box=box: box.stop())
        for topic in ("A", "B"):
            self.master.kernel.topic_config.update(TopicConfig(topic, 4, 4), {})

    def copy_topics(self) -> None:
        table = self.master.kernel.topic_config
        done(self.slave.kernel.replacing_topics(dict(table.table), table.data_version))

    def copy_groups(self) -> None:
        table = self.master.kernel.subscription_group
        done(self.slave.kernel.replacing_groups(
            dict(table.table), table.forbidden, table.data_version))

    def test_topics_and_their_version_become_the_masters(self) -> None:
        """Additions, changes and deletions are copied; equal rows are not written again."""
        ours, theirs = self.slave.kernel.topic_config, self.master.kernel.topic_config
        entered: list[str] = []
        enter = TopicConfigTable._enter

        def entering(table: TopicConfigTable, config: TopicConfig) -> None:
            if table is ours:
                entered.append(config.topic_name)
            enter(table, config)

        self.patch(TopicConfigTable, "_enter", entering)
        self.copy_topics()
        self.assertEqual(sorted(entered), ["A", "B"])
        self.assertEqual((ours.table, ours.data_version), (theirs.table, theirs.data_version))
        ours.persist()
        entered.clear()
        self.copy_topics()
        self.assertEqual((entered, ours.dirty), ([], False))
        theirs.update(TopicConfig("A", 8, 8, attributes={}), {})
        theirs.delete("B")
        self.copy_topics()
        self.assertEqual((entered, ours.dirty), (["A"], True))
        self.assertEqual((ours.table, ours.data_version), (theirs.table, theirs.data_version))
        self.assertEqual(ours.rows, theirs.rows)
        self.assertEqual(ours.rows_size, theirs.rows_size)

    def test_a_topic_that_the_master_has_not_goes_with_its_queues(self) -> None:
        """Its offsets are deleted too; system topics remain."""
        kernel = self.slave.kernel
        self.slave.ask(RequestCode.SEND_MESSAGE_V2, send_header("Old", self.slave.now_ms), b"x")
        kernel.consumer_offset.commit("peer", "g", "Old", 0, 1)
        self.assertIn("Old", kernel.store.queues.ids_by_topic())
        system = sorted(kernel.topic_config.system_topics)
        done(kernel.replacing_topics({}, DataVersion(0, 7, 9)))
        self.assertEqual(sorted(kernel.topic_config.table), system)
        self.assertNotIn("Old", kernel.store.queues.ids_by_topic())
        self.assertEqual(kernel.consumer_offset.table, {})
        self.assertEqual(kernel.topic_config.data_version, DataVersion(0, 7, 9))

    def test_a_topic_that_the_master_has_not_named_does_not_count_as_deleted(self) -> None:
        """Only a topic that it had at the last copy was deleted, for the messages before."""
        topics = self.slave.kernel.topic_config
        for named_before in ((), ("A",)):
            self.copy_topics()
            done(self.slave.kernel.replacing_topics(
                {}, DataVersion(0, 7, 9), named_before=named_before, log_end=100))
            for topic in ("A", "B"):
                self.assertNotIn(topic, topics.table)
                self.assertEqual(topics.is_deleted(topic, 99), topic in named_before)

    def test_a_message_after_the_deletion_shows_that_the_topic_was_made_again(self) -> None:
        """The topic counts as deleted no longer, also for messages before."""
        topics = self.slave.kernel.topic_config
        self.copy_topics()
        done(self.slave.kernel.replacing_topics(
            {}, DataVersion(0, 7, 9), named_before=("A", "B"), log_end=100))
        self.assertFalse(topics.is_deleted("A", 100))
        self.assertFalse(topics.is_deleted("A", 99))
        self.assertTrue(topics.is_deleted("B", 99))

    def test_the_copy_is_saved_with_the_masters_version(self) -> None:
        """The next start has both."""
        self.copy_topics()
        self.slave.kernel.topic_config.persist()
        saved = TopicConfigSerializeWrapper.decode_saved(
            self.disk.read_file("/store/config/topics.json"))
        self.assertEqual(saved.data_version, self.master.kernel.topic_config.data_version)
        self.assertIn("A", saved.topic_config_table)

    def test_a_topic_that_cannot_be_is_refused_with_all(self) -> None:
        """An invalid body changes nothing."""
        table = self.slave.kernel.topic_config
        before, version = dict(table.table), table.data_version.encode()
        for name, config in (("a/b", TopicConfig("a/b")), ("A", TopicConfig("B")),
                             ("", TopicConfig(""))):
            work = self.slave.kernel.replacing_topics(
                {"New": TopicConfig("New"), name: config}, DataVersion(0, 1, 1))
            self.assertRaises(WireError, done, work)
        self.assertEqual((table.table, table.data_version.encode()), (before, version))

    def test_groups_masks_and_their_version_become_the_masters(self) -> None:
        """System groups remain; if an older master has no masks, those of the slave remain."""
        ours, theirs = self.slave.kernel.subscription_group, self.master.kernel.subscription_group
        theirs.update(SubscriptionGroupConfig("g", retry_max_times=3), {})
        theirs.forbid("g", "A", 2, forbidden=True)
        ours.update(SubscriptionGroupConfig("old"), {})
        ours.forbid("old", "A", 2, forbidden=True)
        self.copy_groups()
        self.assertEqual((ours.table, ours.forbidden, ours.data_version),
                         (theirs.table, theirs.forbidden, theirs.data_version))
        self.assertEqual(ours.rows_size, theirs.rows_size)
        ours.persist()
        self.copy_groups()
        self.assertFalse(ours.dirty)
        done(self.slave.kernel.replacing_groups({}, None, DataVersion(0, 1, 1)))
        self.assertNotIn("g", ours.table)
        self.assertTrue(ours.table)
        work = self.slave.kernel.replacing_groups(
            {"x": SubscriptionGroupConfig("y")}, None, DataVersion())
        self.assertRaises(WireError, done, work)

    def test_offsets_are_merged(self) -> None:
        """A master's offsets are copied; those of a slave count only if they are larger."""
        table = self.slave.kernel.consumer_offset
        table.commit("peer", "g", "A", 0, 10)
        table.commit("peer", "g", "A", 1, 10)
        size = table.size_bytes
        theirs = {"A@g": {0: 5, 1: 12, 2: 3}, "B@g": {0: 1}}
        self.assertEqual(done(table.merging(theirs, larger_wins=True)), 3)
        self.assertEqual(table.table, {"A@g": {0: 10, 1: 12, 2: 3}, "B@g": {0: 1}})
        self.assertGreater(table.size_bytes, size)
        self.assertEqual(done(table.merging(theirs, larger_wins=False)), 1)
        self.assertEqual(table.query("g", "A", 0), 5)
        table.persist()
        self.assertEqual(done(table.merging(theirs, larger_wins=False)), 0)
        self.assertFalse(table.dirty)
        table.take_version(DataVersion(0, 5, 5))
        self.assertTrue(table.dirty)
        table.persist()
        before = table.size_bytes
        table.load()
        self.assertEqual((table.size_bytes, table.data_version), (before, DataVersion(0, 5, 5)))
        self.assertRaises(WireError, done, table.merging({"A@g": {2**31: 1}}, larger_wins=True))
