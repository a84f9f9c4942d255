"""Statistics: sums, windows that slide, days."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.statistics import WINDOWS_SECONDS, BrokerStats, Sums, Window

START_MS = 1_700_000_000_000
TOPIC = ("TOPIC_PUT", "T")


def run(stats: BrokerStats, begin_s: int, end_s: int, messages_a_second: int = 0) -> None:
    """Let seconds pass: messages come after each sample."""
    for second in range(begin_s, end_s):
        stats.sample(START_MS + second * 1000)
        if messages_a_second:
            stats.messages_put({"T": (messages_a_second, messages_a_second * 10)})


class SumsTests(SynchronousTestCase):
    """What was counted since the start."""

    def test_by_topic_and_group(self) -> None:
        """What goes in counts for its topic and the broker, what goes out for its group too."""
        stats = BrokerStats()
        stats.messages_put({"T": (2, 20)})
        stats.messages_put({"U": (1, 5)})
        stats.messages_got("g", "T", 4, 40)
        stats.messages_got("h", "T", 1, 10)
        stats.message_sent_back("g", "T")
        self.assertEqual(stats.sums("TOPIC_PUT", "T"), Sums(2, 20))
        self.assertEqual(stats.sums("BROKER_PUT"), Sums(3, 25))
        self.assertEqual(stats.sums("GROUP_GET", "T", "g"), Sums(4, 40))
        self.assertEqual(stats.sums("BROKER_GET"), Sums(5, 50))
        self.assertEqual(stats.sums("GROUP_SEND_BACK", "T", "g"), Sums(1, 0))
        self.assertEqual((stats.put_total, stats.get_total), (3, 5))

    def test_nothing_counted(self) -> None:
        """A name nobody used has zeros everywhere."""
        stats = BrokerStats()
        self.assertEqual(stats.sums("TOPIC_PUT", "no"), Sums(0, 0))
        self.assertEqual(stats.window(60, START_MS, "TOPIC_PUT", "no").tps, 0.0)

    def test_forget_topic(self) -> None:
        """A deleted topic's counts go, in and out; others and the broker's stay."""
        stats = BrokerStats()
        for topic in ("T", "U"):
            stats.messages_put({topic: (1, 1)})
            stats.messages_got("g", topic, 1, 1)
        stats.forget_topic("T")
        self.assertEqual(stats.sums("TOPIC_PUT", "T").count, 0)
        self.assertEqual(stats.sums("GROUP_GET", "T", "g").count, 0)
        self.assertEqual(stats.sums("TOPIC_PUT", "U").count, 1)
        self.assertEqual(stats.put_total, 2)

    def test_forget_group(self) -> None:
        """A deleted group's counts go in all topics; a topic of the group's name stays."""
        stats = BrokerStats()
        stats.messages_put({"g": (1, 1)})
        for group in ("g", "h"):
            stats.messages_got(group, "T", 1, 1)
        stats.forget_group("g")
        self.assertEqual(stats.sums("GROUP_GET", "T", "g").count, 0)
        self.assertEqual(stats.sums("GROUP_GET", "T", "h").count, 1)
        self.assertEqual(stats.sums("TOPIC_PUT", "g").count, 1)

    def test_forgotten_while_a_sample_is_due(self) -> None:
        """A topic can be deleted and used again between two samples."""
        stats = BrokerStats()
        stats.messages_put({"T": (5, 5)})
        stats.forget_topic("T")
        stats.messages_put({"T": (1, 1)})
        run(stats, 0, 20)
        self.assertEqual(stats.sums(*TOPIC), Sums(1, 1))
        self.assertEqual(stats.window(10, START_MS + 20_000, *TOPIC).count, 0)


class WindowTests(SynchronousTestCase):
    """Rates of the last 10, 60 and 600 seconds."""

    def test_steady(self) -> None:
        """A constant rate is told by every window, in messages and bytes."""
        stats = BrokerStats()
        run(stats, 0, 700, 5)
        now_ms = START_MS + 699_000
        for seconds in WINDOWS_SECONDS:
            window = stats.window(seconds, now_ms, *TOPIC)
            self.assertLess(abs(window.tps - 5), 0.6, str(seconds))
            self.assertLess(abs(window.bytes_per_second - 50), 6, str(seconds))

    def test_each_window_forgets_at_its_time(self) -> None:
        """What stopped leaves the short window first and the long one last."""
        stats = BrokerStats()
        run(stats, 0, 60, 10)
        for second, counted in ((65, (True, True, True)), (75, (False, True, True)),
                                (135, (False, False, True)), (725, (False, False, False))):
            run(stats, 60, second)
            now_ms = START_MS + second * 1000
            counts = [stats.window(seconds, now_ms, *TOPIC).count for seconds in WINDOWS_SECONDS]
            self.assertEqual(tuple(count > 0 for count in counts), counted, f"{second}: {counts}")

    def test_topic_that_is_new(self) -> None:
        """Its first messages count at once, over the time since the sample before them."""
        stats = BrokerStats()
        run(stats, 0, 100)
        stats.messages_put({"T": (30, 300)})
        window = stats.window(10, START_MS + 101_000, *TOPIC)
        self.assertEqual((window.count, window.size), (30, 300))
        self.assertEqual(window.seconds, 2.0)

    def test_broker_that_is_new(self) -> None:
        """Before the first sample there is no rate; after it, it is over the time since then."""
        stats = BrokerStats()
        stats.messages_put({"T": (7, 70)})
        self.assertEqual(stats.window(60, START_MS, *TOPIC), Window(0, 0, 0.0))
        stats.sample(START_MS)
        stats.messages_put({"T": (20, 200)})
        self.assertEqual(stats.topic_put_tps("T", START_MS + 10_000), 2.0)
        self.assertEqual(stats.topic_put_tps("T", START_MS + 120_000), 20 / 60)

    def test_burst_after_silence(self) -> None:
        """What was silent for an hour is over the window, not over the hour."""
        stats = BrokerStats()
        run(stats, 0, 5, 1)
        run(stats, 5, 3600)
        stats.messages_put({"T": (100, 1000)})
        self.assertEqual(stats.window(10, START_MS + 3_600_000, *TOPIC).tps, 10.0)

    def test_group(self) -> None:
        """A group's rate is by topic."""
        stats = BrokerStats()
        stats.messages_got("g", "T", 1, 1)
        stats.sample(START_MS)
        stats.messages_got("g", "T", 60, 60)
        stats.messages_got("g", "U", 6, 6)
        self.assertEqual(stats.group_get_tps("g", "T", START_MS + 60_000), 1.0)

    def test_clock_set_back(self) -> None:
        """Samples go on when the clock goes back, and no rate is negative."""
        stats = BrokerStats()
        run(stats, 1000, 1100, 3)
        for second in range(30):
            stats.sample(START_MS + second * 1000)
            stats.messages_put({"T": (3, 3)})
            for seconds in WINDOWS_SECONDS:
                window = stats.window(seconds, START_MS + second * 1000, *TOPIC)
                self.assertGreaterEqual(window.tps, 0.0)
        self.assertLess(abs(stats.window(10, START_MS + 29_000, *TOPIC).tps - 3), 0.6)

    def test_memory_is_bounded(self) -> None:
        """A busy topic keeps about a kilobyte however long it is busy."""
        def size(item: object) -> int:
            samples = item.samples  # type: ignore[attr-defined]
            return sum(map(sys.getsizeof, samples))

        stats = BrokerStats()
        run(stats, 0, 2000, 1)
        item, = [item for key, item in stats._items.items() if key == TOPIC]
        self.assertLess(size(item), 1500)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=60))
    def test_against_a_list(self, steps: list[tuple[int, int]]) -> None:
        """A window holds all that came within it, and nothing older than a step before it."""
        stats = BrokerStats()
        stats.messages_put({"T": (1, 1)})
        came: list[tuple[int, int]] = []
        second = 0
        stats.sample(START_MS)
        for idle, count in steps:
            for _ in range(idle):
                second += 1
                stats.sample(START_MS + second * 1000)
            if count:
                stats.messages_put({"T": (count, count)})
                came.append((second, count))
            for seconds in WINDOWS_SECONDS:
                counted = stats.window(seconds, START_MS + second * 1000, *TOPIC).count
                inside = sum(n for at, n in came if at > second - seconds)
                step = seconds // 10
                around = sum(n for at, n in came if at >= second - seconds - step)
                self.assertLessEqual(inside, counted)
                self.assertLessEqual(counted, around)


class DayTests(SynchronousTestCase):
    """Totals at midnight."""

    def test_two_midnights(self) -> None:
        """Each midnight makes today's morning yesterday's."""
        stats = BrokerStats()
        stats.messages_put({"T": (5, 5)})
        stats.messages_got("g", "T", 3, 3)
        stats.record_day()
        stats.messages_put({"T": (2, 2)})
        self.assertEqual((stats.put_yesterday_morning, stats.put_today_morning), (0, 5))
        self.assertEqual((stats.get_yesterday_morning, stats.get_today_morning), (0, 3))
        stats.record_day()
        self.assertEqual((stats.put_yesterday_morning, stats.put_today_morning), (5, 7))
        self.assertEqual((stats.get_yesterday_morning, stats.get_today_morning), (3, 3))
