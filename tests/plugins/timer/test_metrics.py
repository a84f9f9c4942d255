"""The number of waiting messages by topic."""

from __future__ import annotations

import json
from pathlib import Path

from tests.plugins.timer.case import TimerTestCase
from twistmq.plugins.timer.metrics import TimerMetricsSerializeWrapper
from twistmq.protocol.codes import RequestCode

GOLDEN = Path(__file__).parents[2] / "golden" / "store-edges" / "config" / "timermetrics"
FILE = "/store/config/timermetrics"


class TimerMetricsTests(TimerTestCase):
    """The numbers follow the messages, also over a stop."""

    def test_a_file_of_apaches_broker_is_read(self) -> None:
        """A file of Apache's broker is read."""
        saved = TimerMetricsSerializeWrapper.decode_saved(GOLDEN.read_bytes())
        self.assertEqual(set(json.loads(saved.encode_standard())),
                         {"dataVersion", "timingCount"})

    def test_waiting_messages_are_counted_over_a_restart(self) -> None:
        """The numbers are kept over a restart, and are sent to a slave."""
        for number in range(3):
            self.send(b"%d" % number, TIMER_DELAY_MS="4500")
        self.send(b"other", "U", TIMER_DELAY_MS="4500")
        self.turn()
        self.restart()
        told = TimerMetricsSerializeWrapper.decode(
            self.box.ask(RequestCode.GET_TIMER_METRICS).body)
        self.assertEqual({topic: metric.count for topic, metric in told.timing_count.items()},
                         {"T": 3, "U": 1})
        self.assertEqual(told.timing_count["T"].time_stamp, self.box.now_ms)
        self.turns(6000)
        self.assertEqual(self.service.metrics.count("T"), 0)
        self.assertEqual(self.service.metrics.count("never"), 0)

    def test_topics_that_are_gone(self) -> None:
        """Deleted topics are removed when none of their messages waits; system topics remain."""
        for topic in ("gone", "waits", "rmq_sys_x", "TBW102"):
            self.service.metrics.add(topic, 1)
        self.service.metrics.add("gone", -1)
        self.run_task("forget the counts of deleted topics")
        self.assertEqual(set(self.service.metrics.saved.timing_count),
                         {"rmq_sys_x", "TBW102", "waits"})
        self.assertEqual(set(self.service.metrics.reported()), {"rmq_sys_x", "TBW102"})

    def test_damaged_file(self) -> None:
        """The damage is logged, and the waiting messages are counted in the timer log."""
        self.send(b"waits", TIMER_DELAY_MS="4500")
        self.send(b"other", "U", TIMER_DELAY_MS="4500")
        self.turn()
        self.box.stop()
        self.disk.write_file(FILE, b"{")
        self.box = self.start()
        self.assertEqual({topic: metric.count for topic, metric
                          in self.service.metrics.saved.timing_count.items()}, {"T": 1, "U": 1})

    def test_wrong_counts_end_with_the_last_message(self) -> None:
        """A wrong count that a crash of another broker left ends with the last message."""
        self.service.metrics.add("T", -3)
        self.send(b"waits", TIMER_DELAY_MS="4500")
        self.turns(6000)
        self.assertEqual(self.service.metrics.saved.timing_count["T"].count, 0)
