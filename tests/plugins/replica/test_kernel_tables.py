"""The broker's own tables on a slave that becomes a master while it copies them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.api import Broker
from twistmq.broker.request.consumer_offset import ConsumerOffsetTable
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.broker.store.config_file import ConfigFile
from twistmq.plugins.replica.commits import Commits
from twistmq.plugins.replica.kernel_tables import KernelTable, kernel_tables
from twistmq.protocol.bodies import (
    DataVersion,
    LmqConsumerOffsetSerializeWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)


class PromotionTests(SynchronousTestCase):
    """What the clients of a new master change is newer than a copy that has not ended."""

    def setUp(self) -> None:
        self.now_ms = 0
        scheduler = Scheduler(lambda: self.now_ms)
        self.lane = scheduler.lane()
        self.offsets = ConsumerOffsetTable(cast(ConfigFile, None), lambda: self.now_ms)
        self.topics: list[str] = []
        self.saves = 0
        self.broker = SimpleNamespace(
            is_slave=True, slices=self.lane, consumer_offset=self.offsets,
            topic_config=SimpleNamespace(dirty=True, data_version=DataVersion()),
            subscription_group=SimpleNamespace(data_version=DataVersion()),
            replacing_topics=self.replacing_topics, topics_changed=self.count_save)

    def count_save(self) -> None:
        self.saves += 1

    def replacing_topics(self, topics: Any, version: DataVersion, **_: object) -> Any:
        for name in topics:
            self.topics.append(name)
            yield

    def table(self, name: str) -> KernelTable:
        commits = SimpleNamespace(join=lambda _: succeed(None), has_kept=False)
        tables = kernel_tables(cast(Broker, self.broker), cast(Commits, commits))
        return next(each for each in tables if each.table.name == name)

    def take_behind_other_work(self, table: KernelTable, body: bytes, *, is_slave: bool) -> None:
        """Begin to apply a copy, whose slices wait for other work, and change the role."""
        held = [True]

        def other_work() -> Any:
            while held:
                self.now_ms += 1000
                yield

        self.lane.run(other_work())
        taking = table.table.take(body)
        assert isinstance(taking, Deferred)
        self.assertNoResult(taking)
        self.broker.is_slave = is_slave
        held.clear()
        self.lane.finish()
        self.successResultOf(taking)

    def test_offsets(self) -> None:
        """A commit of the new master is not moved back by the copy."""
        version = DataVersion()
        version.next_version(7)
        body = LmqConsumerOffsetSerializeWrapper(
            offset_table={"T@g": {0: 3}}, data_version=version).encode()
        table = self.table("consumer offsets")
        self.take_behind_other_work(table, body, is_slave=True)
        self.assertEqual(self.offsets.query("g", "T", 0), 3)
        self.assertEqual(self.offsets.data_version, version)
        self.broker.is_slave = True
        self.offsets.commit("peer", "g", "T", 0, 9)
        before = self.offsets.data_version.encode()
        self.take_behind_other_work(table, body, is_slave=False)
        self.assertEqual(self.offsets.query("g", "T", 0), 9)
        self.assertEqual(self.offsets.data_version.encode(), before)

    def test_topics(self) -> None:
        """The new master keeps its topics; what was applied before is saved."""
        body = TopicConfigSerializeWrapper(
            topic_config_table={"T": TopicConfig("T", 4, 4)}, data_version=DataVersion()).encode()
        table = self.table("topics")
        self.take_behind_other_work(table, body, is_slave=True)
        self.assertEqual((self.topics, self.saves), (["T"], 1))
        self.broker.is_slave = True
        self.take_behind_other_work(table, body, is_slave=False)
        self.assertEqual((self.topics, self.saves), (["T"], 2))

    def test_a_master(self) -> None:
        """A copy that arrives after the change of the role is dropped."""
        self.broker.is_slave = False
        body = LmqConsumerOffsetSerializeWrapper(offset_table={"T@g": {0: 3}}).encode()
        taking = self.table("consumer offsets").table.take(body)
        assert isinstance(taking, Deferred)
        self.successResultOf(taking)
        self.assertEqual(self.offsets.query("g", "T", 0), -1)
