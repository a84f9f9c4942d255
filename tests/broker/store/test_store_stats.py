"""The statistics that tools read."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.store_stats import StoreStats


class StoreStatsTests(SynchronousTestCase):
    """The class StoreStats."""

    def setUp(self) -> None:
        """Create statistics that begin at 1 s."""
        self.stats = StoreStats(1000)

    def test_puts_and_gets(self) -> None:
        """Puts and gets have their counts, sizes and longest times."""
        self.stats.put(2, 300, 0)
        self.stats.put(1, 100, 15)
        self.stats.count_read(32, 3)
        self.stats.count_read(0, 1)
        info = self.stats.runtime_info(91_061_000)
        self.assertEqual(info["putMessageTimesTotal"], "3")
        self.assertEqual(info["putMessageSizeTotal"], "400")
        self.assertEqual(info["putMessageAverageSize"], str(400 / 3))
        self.assertEqual(info["putMessageEntireTimeMax"], "15")
        self.assertEqual(info["getMessageEntireTimeMax"], "3")
        self.assertEqual((self.stats.get_found, self.stats.get_miss), (1, 1))
        self.assertEqual(info["runtime"], "[ 1 days, 1 hours, 17 minutes, 40 seconds ]")

    def test_each_time_is_counted_in_its_class(self) -> None:
        """Each time is in its class; the upper end of a class does not belong to it."""
        for elapsed_ms in (0, 1, 9, 10, 49, 50, 99, 100, 999, 1000, 9999, 10_000, 99_999):
            self.stats.put(1, 1, elapsed_ms)
        self.assertEqual(
            self.stats.runtime_info(0)["putMessageDistributeTime"],
            "[<=0ms]:1 [0~10ms]:2 [10~50ms]:2 [50~100ms]:2 [100~200ms]:1 [200~500ms]:0 "
            "[500ms~1s]:1 [1~2s]:1 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:2",
        )

    def test_over_ten_seconds(self) -> None:
        """The averages over ten seconds, a minute and ten minutes need enough samples."""
        self.assertEqual(self.stats.runtime_info(0)["putTps"], "  ")
        self.assertEqual(self.stats.runtime_info(0)["getTotalTps"], "0.0 0.0 0.0")
        for second in range(61):
            self.stats.sample(second * 1000)
            self.stats.put(5 if second < 50 else 10, 1, 0)
            self.stats.count_read(32, 0)
            self.stats.count_read(0, 0)
        info = self.stats.runtime_info(0)
        self.assertEqual(info["putTps"], f"10.0 {(50 * 5 + 10 * 10) / 60} ")
        self.assertEqual(info["getFoundTps"], "1.0 1.0 ")
        self.assertEqual(info["getTotalTps"], "2.0 2.0 0.0")
        self.assertEqual(info["getTransferredTps"], "32.0 32.0 ")

    def test_the_time_99_and_99_9_of_a_hundred_did_not_exceed(self) -> None:
        """The time 99 and 99.9 of a hundred did not exceed, in its class."""
        self.assertEqual(self.stats.runtime_info(0)["putLatency99"], "0.00")
        for _ in range(990):
            self.stats.put(1, 1, 3)
        for _ in range(10):
            self.stats.put(1, 1, 72)
        info = self.stats.runtime_info(0)
        self.assertEqual((info["putLatency99"], info["putLatency999"]), ("3.00", "70.00"))

    def test_the_classes_of_a_past_minute_are_cleared_a_minute_later(self) -> None:
        """The classes of a minute are kept for one more minute."""
        self.stats.put(1, 1, 0)
        for second in range(60):
            self.stats.sample(second * 1000)
        self.assertIn("[<=0ms]:1", self.stats.runtime_info(0)["putMessageDistributeTime"])
        for second in range(60):
            self.stats.sample(second * 1000)
        self.assertIn("[<=0ms]:0", self.stats.runtime_info(0)["putMessageDistributeTime"])
        self.assertEqual(self.stats.put_messages, 1)
