"""Statistics: sums, sliding windows and days."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from tests.kernel_case import count_put
from twistmq.broker.observe.statistics import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    WINDOWS_SECONDS,
    BrokerStats,
    Sums,
    Window,
)
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.testing.store import message

START_MS = 1_700_000_000_000
TOPIC = ("TOPIC_PUT", "T")


def run(stats: BrokerStats, begin_s: int, end_s: int, messages_a_second: int = 0) -> None:
    """Let seconds pass: messages come after each sample."""
    for second in range(begin_s, end_s):
        stats.sample(START_MS + second * 1000)
        if messages_a_second:
            count_put(stats, {"T": (messages_a_second, messages_a_second * 10)})


class SumsTests(SynchronousTestCase):
    """The sums since the start."""

    def test_by_topic_and_group(self) -> None:
        """Messages in count for the topic and the broker, messages out also for the group."""
        stats = BrokerStats(START_MS)
        count_put(stats, {"T": (2, 20)})
        count_put(stats, {"U": (1, 5)})
        stats.messages_got("g", "T", 4, 40)
        stats.messages_got("h", "T", 1, 10)
        stats.message_sent_back("g", "T")
        stats.dead_letter("g", "T")
        self.assertEqual(stats.sums("TOPIC_PUT", "T"), Sums(2, 20))
        self.assertEqual(stats.sums("BROKER_PUT"), Sums(3, 25))
        self.assertEqual(stats.sums("GROUP_GET", "T", "g"), Sums(4, 40))
        self.assertEqual(stats.sums("BROKER_GET"), Sums(5, 50))
        self.assertEqual(stats.sums("GROUP_SEND_BACK", "T", "g"), Sums(1, 0))
        self.assertEqual(stats.all_sums("SNDBCK2DLQ_TIMES"), [(("T", "g"), Sums(1, 0))])
        self.assertEqual(stats.all_sums("GROUP_GET"), [
            (("T", "g"), Sums(4, 40)), (("T", "h"), Sums(1, 10))])
        self.assertEqual((stats.put_total, stats.get_total), (3, 5))

    def test_names_of_nothing(self) -> None:
        """Invalid names count for the broker only, and have no key."""
        stats = BrokerStats(START_MS)
        count_put(stats, {"T": (2, 20)})
        stats.is_known = lambda key: key[1] == "T" and key[2:] in ((), ("g",))
        stats.messages_put([message("no")])
        for topic, group in (("no", "g"), ("T", "no")):
            stats.messages_got(group, topic, 1, 1)
            stats.messages_popped(group, topic, 1, 1)
            stats.message_sent_back(group, topic)
            stats.dead_letter(group, topic)
        stats.sample(START_MS + 1000)
        for table in ("GROUP_GET", "GROUP_SEND_BACK", "SNDBCK2DLQ_TIMES"):
            self.assertEqual(stats.all_sums(table), [])
        self.assertEqual(stats.all_sums("TOPIC_PUT"), [(("T",), Sums(2, 20))])
        self.assertEqual(stats.popped_sums(), {})
        self.assertEqual((stats.put_total, stats.get_total), (3, 4))
        stats.messages_popped("g", "T", 1, 1)
        self.assertEqual(len(stats.popped_sums()), 1)

    def test_beyond_the_bound_only_known_keys_are_counted(self) -> None:
        """The number of keys is limited; existing keys continue to count."""
        stats = BrokerStats(START_MS)
        stats.items_max = 2
        for topic in "TUV" * 2:
            count_put(stats, {topic: (1, 1)})
        counted = dict(stats.all_sums("TOPIC_PUT"))
        self.assertLess(len(counted), 3)
        self.assertEqual(counted[("T",)].count, 2)
        self.assertEqual(stats.put_total, 6)
        stats.forget_topic("T")
        count_put(stats, {"V": (1, 1)})
        self.assertEqual(stats.sums("TOPIC_PUT", "V").count, 1)

    def test_popped_messages_are_counted_apart_within_those_got(self) -> None:
        """Popped messages are counted separately, and are part of all messages out."""
        stats = BrokerStats(START_MS)
        stats.messages_got("g", "T", 4, 40)
        for _ in range(2):
            stats.messages_popped("g", "T", 2, 20)
        stats.messages_popped("g", "T", 1, 10, retry_topic="%RETRY%g_T")
        self.assertEqual(stats.popped_sums(), {
            ("T", "g", False): Sums(4, 40), ("T", "g", True): Sums(1, 10)})
        self.assertEqual(stats.sums("GROUP_GET", "T", "g"), Sums(8, 80))
        self.assertEqual(stats.sums("GROUP_GET", "%RETRY%g_T", "g"), Sums(1, 10))
        self.assertEqual(stats.sums("BROKER_GET"), Sums(9, 90))

    def test_forget_popped(self) -> None:
        """They are removed with the topic or the group."""
        stats = BrokerStats(START_MS)
        for group, topic in (("g", "T"), ("h", "T"), ("g", "U"), ("h", "U")):
            stats.messages_popped(group, topic, 1, 1)
        stats.forget_topic("T")
        stats.forget_group("h")
        self.assertEqual(list(stats.popped_sums()), [("U", "g", False)])

    def test_nothing_counted(self) -> None:
        """A name without counts has zeros everywhere."""
        stats = BrokerStats(START_MS)
        self.assertEqual(stats.sums("TOPIC_PUT", "no"), Sums(0, 0))
        self.assertEqual(stats.window(60, START_MS, "TOPIC_PUT", "no").tps, 0.0)

    def test_forget_topic(self) -> None:
        """The counts of a deleted topic are removed; those of others and of the broker remain."""
        stats = BrokerStats(START_MS)
        for topic in ("T", "U"):
            count_put(stats, {topic: (1, 1)})
            stats.messages_got("g", topic, 1, 1)
        stats.forget_topic("T")
        self.assertEqual(stats.sums("TOPIC_PUT", "T").count, 0)
        self.assertEqual(stats.sums("GROUP_GET", "T", "g").count, 0)
        self.assertEqual(stats.sums("TOPIC_PUT", "U").count, 1)
        self.assertEqual(stats.put_total, 2)

    def test_a_queue_keeps_what_counts_its_topic(self) -> None:
        """Unless it is forgotten, or the record went to another topic."""
        stats = BrokerStats(START_MS)
        queue = ConsumeQueue(message().topic, 0)

        def put(topic: str) -> None:
            record = message(topic=topic)
            record.queue = queue
            stats.messages_put([record])

        for _ in range(3):
            put(queue.topic)
        kept = queue.put_item
        self.assertIsNotNone(kept)
        put("Elsewhere")
        self.assertEqual(stats.sums("TOPIC_PUT", queue.topic).count, 3)
        self.assertEqual(stats.sums("TOPIC_PUT", "Elsewhere").count, 1)
        stats.forget_topic(queue.topic)
        put(queue.topic)
        self.assertIsNot(queue.put_item, kept)
        self.assertEqual(stats.sums("TOPIC_PUT", queue.topic).count, 1)
        self.assertEqual(stats.sums("BROKER_PUT").count, 5)

    def test_forget_group(self) -> None:
        """The counts of a deleted group are removed in all topics; a topic of that name keeps its
        own.
        """
        stats = BrokerStats(START_MS)
        count_put(stats, {"g": (1, 1)})
        for group in ("g", "h"):
            stats.messages_got(group, "T", 1, 1)
        stats.forget_group("g")
        self.assertEqual(stats.sums("GROUP_GET", "T", "g").count, 0)
        self.assertEqual(stats.sums("GROUP_GET", "T", "h").count, 1)
        self.assertEqual(stats.sums("TOPIC_PUT", "g").count, 1)

    def test_forgotten_while_a_sample_is_due(self) -> None:
        """A topic can be deleted and used again between two samples."""
        stats = BrokerStats(START_MS)
        count_put(stats, {"T": (5, 5)})
        stats.forget_topic("T")
        count_put(stats, {"T": (1, 1)})
        run(stats, 0, 20)
        self.assertEqual(stats.sums(*TOPIC), Sums(1, 1))
        self.assertEqual(stats.window(10, START_MS + 20_000, *TOPIC).count, 0)


class WindowTests(SynchronousTestCase):
    """Rates of the last ten seconds, minute, ten minutes, hour and day."""

    def test_every_window_shows_a_constant_rate(self) -> None:
        """Every window has the constant rate in messages and bytes."""
        stats = BrokerStats(START_MS)
        run(stats, 0, 700, 5)
        now_ms = START_MS + 699_000
        for seconds in WINDOWS_SECONDS:
            window = stats.window(seconds, now_ms, *TOPIC)
            self.assertLess(abs(window.tps - 5), 0.6, str(seconds))
            self.assertLess(abs(window.bytes_per_second - 50), 6, str(seconds))

    def test_each_window_forgets_at_its_time(self) -> None:
        """Counts that end leave the short window first and the long one last."""
        stats = BrokerStats(START_MS)
        run(stats, 0, 60, 10)
        for second, counted in ((65, (True, True, True)), (75, (False, True, True)),
                                (135, (False, False, True)), (725, (False, False, False))):
            run(stats, 60, second)
            now_ms = START_MS + second * 1000
            counts = [stats.window(seconds, now_ms, *TOPIC).count for seconds in WINDOWS_SECONDS]
            self.assertEqual(tuple(count > 0 for count in counts), (*counted, True, True),
                             f"{second}: {counts}")

    def test_hours_and_days(self) -> None:
        """The windows of an hour and a day forget within a tenth of their lengths."""
        stats = BrokerStats(START_MS)
        run(stats, 0, 60, 10)
        run(stats, 60, 4000)
        counts = [stats.window(seconds, START_MS + 4_000_000, *TOPIC).count
                  for seconds in (HOUR_SECONDS, DAY_SECONDS)]
        self.assertEqual(counts, [0, 600])
        for second in range(4000, 100_000, 600):
            run(stats, second, second + 1)
        self.assertEqual(stats.window(DAY_SECONDS, START_MS + 100_000_000, *TOPIC).count, 0)

    def test_a_message_put_is_a_request(self) -> None:
        """A stored message is a request; a pull is one, whatever it returns; sums
        of all are none.
        """
        stats = BrokerStats(START_MS)
        run(stats, 0, 1)
        count_put(stats, {"T": (5, 50)})
        stats.messages_got("g", "T", 3, 30)
        stats.messages_got("g", "T", 4, 40)
        now_ms = START_MS + 10_000
        self.assertEqual(
            [stats.window(MINUTE_SECONDS, now_ms, *key).requests
             for key in (TOPIC, ("GROUP_GET", "T", "g"), ("BROKER_PUT",), ("BROKER_GET",))],
            [5, 2, 0, 0])
        self.assertTrue(stats.has(*TOPIC))
        self.assertFalse(stats.has("TOPIC_PUT", "U"))

    def test_topic_that_is_new(self) -> None:
        """The first messages count immediately, over the time since the sample before them."""
        stats = BrokerStats(START_MS)
        run(stats, 0, 100)
        count_put(stats, {"T": (30, 300)})
        window = stats.window(10, START_MS + 101_000, *TOPIC)
        self.assertEqual((window.count, window.size), (30, 300))
        self.assertEqual(window.seconds, 2.0)

    def test_broker_that_is_new(self) -> None:
        """Messages before the first sample count over the time since the start."""
        stats = BrokerStats(START_MS)
        count_put(stats, {"T": (7, 70)})
        self.assertEqual(stats.window(60, START_MS, *TOPIC), Window(7, 70, 0.0, 7))
        self.assertEqual(stats.window(60, START_MS + 500, *TOPIC), Window(7, 70, 0.5, 7))
        run(stats, 1, 4)
        count_put(stats, {"T": (13, 130)})
        self.assertEqual(stats.topic_put_tps("T", START_MS + 10_000), 2.0)
        self.assertEqual(stats.topic_put_tps("T", START_MS + 60_000), 20 / 60)

    def test_burst_after_silence(self) -> None:
        """Messages after an hour of silence count over the window, and not over the hour."""
        stats = BrokerStats(START_MS)
        run(stats, 0, 5, 1)
        run(stats, 5, 3600)
        count_put(stats, {"T": (100, 1000)})
        self.assertEqual(stats.window(10, START_MS + 3_600_000, *TOPIC).tps, 10.0)

    def test_a_groups_rate_is_by_topic(self) -> None:
        """The rate of a group is by topic."""
        stats = BrokerStats(START_MS)
        stats.messages_got("g", "T", 60, 60)
        stats.messages_got("g", "U", 6, 6)
        self.assertEqual(stats.group_get_tps("g", "T", START_MS + 60_000), 1.0)

    def test_clock_set_back(self) -> None:
        """Samples continue if the clock goes back, and no rate is negative."""
        stats = BrokerStats(START_MS)
        run(stats, 1000, 1100, 3)
        for second in range(30):
            stats.sample(START_MS + second * 1000)
            count_put(stats, {"T": (3, 3)})
            for seconds in WINDOWS_SECONDS:
                window = stats.window(seconds, START_MS + second * 1000, *TOPIC)
                self.assertGreaterEqual(window.tps, 0.0)
        self.assertLess(abs(stats.window(10, START_MS + 29_000, *TOPIC).tps - 3), 0.6)

    def test_memory_is_bounded(self) -> None:
        """A busy topic uses about two kilobytes, however long it is busy."""
        def size(item: object) -> int:
            samples = item.samples  # type: ignore[attr-defined]
            return sum(map(sys.getsizeof, samples))

        stats = BrokerStats(START_MS)
        run(stats, 0, 2000, 1)
        item, = [item for key, item in stats._items.items() if key == TOPIC]
        for second in range(2000, 200_000, 500):
            run(stats, second, second + 1, 1)
        self.assertLess(size(item), 2700)

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=60))
    def test_against_a_list(self, steps: list[tuple[int, int]]) -> None:
        """A window has all counts within it, and none older than one step before it."""
        stats = BrokerStats(START_MS)
        count_put(stats, {"T": (1, 1)})
        came = [(0, 1)]
        second = 0
        for idle, count in steps:
            for _ in range(idle):
                second += 1
                stats.sample(START_MS + second * 1000)
            if count:
                count_put(stats, {"T": (count, count)})
                came.append((second, count))
            for seconds in WINDOWS_SECONDS:
                counted = stats.window(seconds, START_MS + second * 1000, *TOPIC).count
                inside = sum(n for at, n in came if at > second - seconds)
                step = seconds // 10
                around = sum(n for at, n in came if at >= second - seconds - step)
                self.assertLessEqual(inside, counted)
                self.assertLessEqual(counted, around)


class DayTests(SynchronousTestCase):
    """The totals at midnight."""

    def test_two_midnights(self) -> None:
        """Each midnight moves the values of today to yesterday."""
        stats = BrokerStats(START_MS)
        count_put(stats, {"T": (5, 5)})
        stats.messages_got("g", "T", 3, 3)
        stats.record_day()
        count_put(stats, {"T": (2, 2)})
        self.assertEqual((stats.put_yesterday_morning, stats.put_today_morning), (0, 5))
        self.assertEqual((stats.get_yesterday_morning, stats.get_today_morning), (0, 3))
        stats.record_day()
        self.assertEqual((stats.put_yesterday_morning, stats.put_today_morning), (5, 7))
        self.assertEqual((stats.get_yesterday_morning, stats.get_today_morning), (3, 3))
