"""Statistics by topic and group."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import count_any, count_put
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import admin
from twistmq.protocol.bodies import BrokerStatsData, BrokerStatsItem
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.admin import ViewBrokerStatsDataRequestHeader


class StatsTests(SynchronousTestCase):
    """The request 315."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)
        self.stats = self.box.kernel.stats
        self.stats.sample(self.box.now_ms)

    def ask(self, name: str, key: str) -> RemotingCommand:
        return self.box.ask(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader(
            stats_name=name, stats_key=key))

    def data(self, name: str, key: str) -> BrokerStatsData:
        reply = self.ask(name, key)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return BrokerStatsData.decode(reply.body)

    def sample(self, seconds: int) -> None:
        """Let time pass, sampled as the broker does it."""
        for _ in range(seconds):
            self.box.now_ms += 1000
            self.stats.sample(self.box.now_ms)

    def test_the_minute_forgets_before_hour_and_day(self) -> None:
        """After a minute the counts remain in the hour and the day."""
        count_put(self.stats, {"T": (40, 4000)})
        self.sample(90)
        count_put(self.stats, {"T": (20, 1000)})
        self.sample(10)
        found = self.data("TOPIC_PUT_NUMS", "T")
        self.assertEqual(found.stats_minute, BrokerStatsItem(20, 20 / 60, 1.0))
        self.assertEqual(found.stats_hour, BrokerStatsItem(60, 60 / 100, 1.0))
        self.assertEqual(found.stats_day, found.stats_hour)
        self.assertEqual(self.data("TOPIC_PUT_SIZE", "T").stats_hour,
                         BrokerStatsItem(5000, 50.0, 5000 / 60))

    def test_an_hour_ends(self) -> None:
        """After an hour the counts remain only in the day."""
        count_put(self.stats, {"T": (40, 4000)})
        self.sample(4200)
        found = self.data("TOPIC_PUT_NUMS", "T")
        self.assertEqual((found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum),
                         (0, 0, 40))

    def test_the_key_is_topic_group(self) -> None:
        """The key is topic@group; a pull counts several messages."""
        count_any(self.stats)
        self.stats.messages_got("g", "T", 8, 800)
        self.stats.messages_got("g", "T", 4, 200)
        self.stats.message_sent_back("g", "T")
        self.sample(10)
        self.assertEqual(self.data("GROUP_GET_NUMS", "T@g").stats_minute,
                         BrokerStatsItem(12, 1.2, 6.0))
        self.assertEqual(self.data("GROUP_GET_SIZE", "T@g").stats_minute,
                         BrokerStatsItem(1000, 100.0, 500.0))
        self.assertEqual(self.data("SNDBCK_PUT_NUMS", "T@g").stats_minute.sum, 1)

    def test_the_key_is_the_clusters_name(self) -> None:
        """The key is the cluster's name; requests are not counted."""
        count_put(self.stats, {"T": (3, 30), "U": (2, 20)})
        self.stats.messages_got("g", "T", 8, 800)
        self.sample(10)
        self.assertEqual(self.data("BROKER_PUT_NUMS", "DefaultCluster").stats_minute,
                         BrokerStatsItem(5, 0.5, 0.0))
        self.assertEqual(self.data("BROKER_GET_NUMS", "DefaultCluster").stats_minute.sum, 8)

    def test_nothing_counted(self) -> None:
        """Statistics that do not exist are refused with Apache's remark."""
        count_put(self.stats, {"T": (1, 1)})
        for name, key in (("TOPIC_PUT_NUMS", "nope"), ("GROUP_GET_NUMS", "T"), ("NOPE", "T"),
                          ("GROUP_GET_NUMS", "T@g"), ("BROKER_PUT_NUMS", "T"),
                          ("BROKER_GET_NUMS", "DefaultCluster")):
            reply = self.ask(name, key)
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist"))
