"""The numbers of single families, on a kernel with a clock of the test."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import count_any, count_put
from twistmq.broker.observe.metrics import MetricFamily
from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins.metrics import (
    Plugin,
    broker_families,
    lag_families,
    process_families,
    queue_lag_families,
)
from twistmq.protocol.bodies import ConsumerData, ConsumeType, SubscriptionData
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.run_to_completion import run_to_completion

Values = dict[str, dict[tuple[str, ...], object]]


def values(families: list[MetricFamily]) -> Values:
    """Return the values of a family by the values of the labels."""
    return {family.name: dict(family.samples) for family in families}


class FamiliesTestCase(SynchronousTestCase):
    """A kernel without plugins."""

    def setUp(self) -> None:
        self.box = KernelBox()
        self.addCleanup(self.box.stop)
        self.kernel = self.box.kernel

    def sends(self, body: bytes) -> None:
        """Store a message in queue 0 of T."""
        header = send_header("T", self.box.now_ms)
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        self.assertEqual(reply.code, 0, msg=reply.remark)

    def lag(self) -> Values:
        return values(run_to_completion(lag_families.collecting(self.kernel)))

    def joins(self, group: str, *topics: str, version: int = 479) -> None:
        """Register a consumer."""
        peer = self.box.peer()
        self.kernel.clients.register_consumer(
            ConsumerData(group_name=group, consume_type=ConsumeType.CONSUME_PASSIVELY,
                         subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")
                                                for topic in topics]),
            Client("c", peer, "JAVA", version, self.box.now_ms, self.box.now_ms), notify=False)


class LagTests(FamiliesTestCase):
    """The lag of a group."""

    def test_a_new_group(self) -> None:
        """A group that has consumed nothing yet has no lag."""
        self.sends(b"1")
        self.joins("g", "T")
        labels = ("g", "T", "false", "false")
        self.assertEqual({name: rows[labels] for name, rows in self.lag().items()}, dict.fromkeys((
            "rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency_milliseconds",
            "rocketmq_consumer_inflight_messages",
            "rocketmq_consumer_queueing_latency_milliseconds",
            "rocketmq_consumer_ready_messages"), 0))

    def test_committed_pulled_and_left(self) -> None:
        """The page has the committed, pulled and remaining messages, and the age of the oldest."""
        for number in range(6):
            self.sends(b"%d" % number)
            self.box.now_ms += 100
        self.joins("g", "T", "no such topic", "%RETRY%g")
        offsets = self.kernel.consumer_offset
        offsets.commit("here", "g", "T", 0, 2)
        offsets.pulled("g", "T", 0, 5)
        rows = self.lag()
        labels = ("g", "T", "false", "false")
        self.assertEqual(set(rows["rocketmq_consumer_lag_messages"]), {labels})
        self.assertEqual([rows[f"rocketmq_consumer_{name}"][labels] for name in (
            "lag_messages", "inflight_messages", "ready_messages", "lag_latency_milliseconds",
            "queueing_latency_milliseconds")], [4, 3, 1, 400, 100])

    def test_groups_without_members(self) -> None:
        """Groups without members are left out, because their subscriptions are unknown."""
        self.sends(b"1")
        self.kernel.consumer_offset.commit("here", "g", "T", 0, 0)
        self.assertEqual(set().union(*self.lag().values()), set())

    def test_the_lag_scan_pauses_after_each_queue(self) -> None:
        """The scan of lags pauses after each queue."""
        self.sends(b"1")
        self.joins("g", "T")
        count = sum(1 for _ in lag_families.collecting(self.kernel))
        config = self.kernel.topic_config.get("T")
        assert config is not None
        self.assertEqual(count, config.write_queue_nums)


class QueueLagTests(FamiliesTestCase):
    """What groups have not consumed, queue by queue."""

    def setUp(self) -> None:
        super().setUp()
        self.kernel.settings.add_rows(Plugin.register_settings())
        for number in range(5):
            self.sends(b"%d" % number)

    def rows(self) -> Values:
        return values(run_to_completion(queue_lag_families.collecting(self.kernel)))

    def commit(self, group: str, offset: int, topic: str = "T", queue_id: int = 0) -> None:
        self.kernel.consumer_offset.commit("here", group, topic, queue_id, offset)

    def test_a_group_without_members_has_its_lag(self) -> None:
        """All queues with an offset are there, also one that is empty; groups that are not, too."""
        self.commit("g", 2)
        self.commit("g", 0, queue_id=1)
        self.commit("h", 5)
        self.commit("h", 9, topic="no such topic")
        self.commit("CID_RMQ_SYS_TRANS", 0)
        self.commit("g", 0, topic="SCHEDULE_TOPIC_XXXX")
        self.assertEqual(self.rows(), {
            "twistmq_consumer_queue_lag_messages": {
                ("g", "T", "0"): 3, ("g", "T", "1"): 0, ("h", "T", "0"): 0},
            "twistmq_consumer_queue_lag_queues_left_out": {(): 0}})

    def test_an_offset_outside_the_queue(self) -> None:
        """An offset beyond the end means a lag of 0, and one below 0 counts from the beginning."""
        self.commit("ahead", 9)
        self.commit("below", -1)
        self.assertEqual(self.rows()["twistmq_consumer_queue_lag_messages"],
                         {("ahead", "T", "0"): 0, ("below", "T", "0"): 5})

    def test_the_number_of_series_is_bounded(self) -> None:
        """The largest lags are kept, and the others are counted; 0 turns the metrics off."""
        for number in range(6):
            self.commit(f"g{number}", number)
        self.kernel.settings.update({"metrics.queue_lag_max": "2"})
        self.assertEqual(self.rows(), {
            "twistmq_consumer_queue_lag_messages": {("g0", "T", "0"): 5, ("g1", "T", "0"): 4},
            "twistmq_consumer_queue_lag_queues_left_out": {(): 4}})
        self.kernel.settings.update({"metrics.queue_lag_max": "0"})
        self.assertEqual(self.rows(), {})

    def test_a_slave_leaves_the_lag_to_its_master(self) -> None:
        """A sum over both brokers counts a message once; a slave that stands in has the lag."""
        self.commit("g", 2)
        identity = self.kernel.identity
        identity.set_role("SLAVE", 1)
        self.assertEqual(self.rows(), {})
        identity.is_acting = True
        self.assertEqual(self.rows()["twistmq_consumer_queue_lag_messages"], {("g", "T", "0"): 3})

    def test_the_scan_pauses(self) -> None:
        """Thousands of offsets are read and written in slices."""
        for number in range(2000):
            self.commit(f"g{number}", 0)
        pauses = sum(1 for _ in queue_lag_families.collecting(self.kernel))
        self.assertEqual(pauses, 8)


class BrokerTests(FamiliesTestCase):
    """The messages in and out, and the connections."""

    def test_traffic_is_counted_by_topic_without_retries(self) -> None:
        """Traffic is counted by topic, without retries and dead letters; system
        topics are marked.
        """
        stats = self.kernel.stats
        count_put(stats, {"T": (2, 20), "%RETRY%g": (1, 1), "%DLQ%g": (1, 1),
                          "SCHEDULE_TOPIC_XXXX": (3, 30)})
        stats.messages_got("g", "T", 5, 50)
        stats.messages_got("CID_RMQ_SYS_TRANS", "T", 1, 10)
        stats.dead_letter("g", "T")
        rows = values(list(broker_families.collect(self.kernel)))
        self.assertEqual(rows["rocketmq_messages_in"], {
            ("T", "false"): 2, ("SCHEDULE_TOPIC_XXXX", "true"): 3})
        self.assertEqual(rows["rocketmq_throughput_in"], {
            ("T", "false"): 20, ("SCHEDULE_TOPIC_XXXX", "true"): 30})
        self.assertEqual(rows["rocketmq_messages_out"], {
            ("T", "g", "false", ""): 5, ("T", "CID_RMQ_SYS_TRANS", "true", ""): 1})
        self.assertEqual(rows["rocketmq_send_to_dlq_messages"], {("T", "g", "false"): 1})

    def test_apart_from_pulls(self) -> None:
        """Pulls are excluded; retries count under their topic if their pulls do not."""
        stats = self.kernel.stats
        count_any(stats)
        stats.messages_got("g", "T", 5, 50)
        stats.messages_got("g", "%RETRY%g", 1, 10)
        stats.messages_popped("g", "T", 2, 20)
        stats.messages_popped("g", "T", 3, 40, retry_topic="%RETRY%g_T")
        stats.messages_popped("h", "T", 1, 10)
        stats.messages_popped("CID_RMQ_SYS_TRANS", "T", 1, 10)
        rows = values(list(broker_families.collect(self.kernel)))
        self.assertEqual(rows["rocketmq_messages_out"], {
            ("T", "g", "false", ""): 5, ("T", "g", "false", "false"): 2,
            ("T", "g", "false", "true"): 3, ("T", "h", "false", "false"): 1,
            ("T", "CID_RMQ_SYS_TRANS", "true", "false"): 1})
        self.assertEqual(rows["rocketmq_throughput_out"]["T", "g", "false", ""], 50)
        self.assertEqual(rows["rocketmq_throughput_out"]["T", "g", "false", "true"], 40)

    def test_a_clients_version_by_apaches_name(self) -> None:
        """A client's version by Apache's name, a snapshot's too."""
        for number, version in enumerate((479, 478, 411, 195, 194, 63, 0, 611, 612)):
            self.joins(f"g{number}", "T", version=version)
        rows = values(list(broker_families.collect(self.kernel)))["rocketmq_consumer_connections"]
        self.assertEqual([labels[2] for labels in rows], [
            "v5_3_3", "v5_3_3_snapshot", "v4_9_9", "v3_9_1", "194", "63", "0", "v5_9_9",
            "higher_version"])
        self.assertEqual({(labels[1], *labels[3:]) for labels in rows},
                         {("java", "push", "remoting", "false")})

    def test_storage_families_show_unflushed_bytes_and_message_age(self) -> None:
        """The families show the bytes that are not flushed, and the age of the oldest message."""
        self.sends(b"1")
        self.box.now_ms += 5000
        rows = values(list(broker_families.collect(self.kernel)))
        place = ("local", "disk")
        behind = rows["rocketmq_storage_flush_behind_bytes"][place]
        log = self.kernel.store.commit_log
        self.assertEqual(behind, log.max_offset - log.flushed_offset)
        self.assertGreater(behind, 0)
        self.assertEqual(rows["rocketmq_storage_message_reserve_time_milliseconds"][place], 5000)


class ProcessTests(FamiliesTestCase):
    """The figures of the process."""

    def test_process_figures_are_read_at_each_scrape(self) -> None:
        """Each figure that the process has is read at each scrape."""
        self.kernel.figures["reactor_stalls"] = lambda: 7
        rows = values(list(process_families.collect(self.kernel)))
        self.assertEqual(rows["twistmq_reactor_stalls"], {(): 7})
        self.assertEqual(rows["twistmq_held_pulls"], {(): 0})
        self.assertNotIn("twistmq_connections", rows)
