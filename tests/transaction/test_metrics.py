"""The number of open half messages by topic, and its file."""

from __future__ import annotations

import json

from twisted.logger import LogEvent, Logger

from tests.kernel_case import run_all
from tests.transaction.case import COMMIT, TransactionTestCase
from twistmq.transaction.metrics import TransactionMetrics

PATH = "/store/config/transactionMetrics"


class MetricsTests(TransactionTestCase):
    """The file ``config/transactionMetrics``."""

    def test_the_metrics_file_has_apaches_form(self) -> None:
        """The file has Apache's form; a task and a stop save it, and a start reads it."""
        half = self.half()
        self.half(b"2", topic="U")
        run_all(self.box, "save the counts of open half messages")
        saved = json.loads(self.disk.read_file(PATH))
        now_ms = self.box.now_ms
        self.assertEqual(saved, {
            "dataVersion": {"counter": 2, "stateVersion": 0, "timestamp": now_ms},
            "transactionCount": {"T": {"count": 1, "timeStamp": now_ms},
                                 "U": {"count": 1, "timeStamp": now_ms}}})
        self.must_end(half, COMMIT)
        self.restart()
        self.assertEqual([self.service.metrics.count(topic) for topic in "TUV"], [0, 1, 0])

    def test_topic_is_deleted(self) -> None:
        """A deleted topic disappears at the next save, and after its half message is ended."""
        half, other = self.half(), self.half(b"2", topic="U")
        self.must_end(self.half(b"3"), COMMIT)
        self.box.kernel.topic_config.delete("T")
        run_all(self.box, "save the counts of open half messages")
        self.assertEqual(list(self.service.metrics.saved.transaction_count), ["U"])
        self.assertEqual(dict(self.service.metrics.ends), {})
        self.end(half, COMMIT)
        self.must_end(other, COMMIT)
        run_all(self.box, "save the counts of open half messages")
        self.assertEqual(list(json.loads(self.disk.read_file(PATH))["transactionCount"]), ["U"])
        self.assertEqual(dict(self.service.metrics.ends), {("U", COMMIT): 1})

    def test_apaches_file(self) -> None:
        """A file of Apache's broker can be read."""
        self.box.stop()
        self.disk.write_file(PATH, b'{"dataVersion":{"counter":11,"stateVersion":0,"timestamp":17},'
                             b'"transactionCount":{"orders":{"count":-3,"timeStamp":16}}}')
        self.box = self.start()
        self.assertEqual(self.service.metrics.count("orders"), -3)

    def test_damaged_file(self) -> None:
        """A damaged file does not prevent a start."""
        self.box.stop()
        self.disk.write_file(PATH, b"{")
        self.box = self.start()
        self.assertEqual(self.service.metrics.count("T"), 0)
        self.half()
        self.assertEqual(self.service.metrics.count("T"), 1)

    def test_not_saved(self) -> None:
        """A save that fails is repeated at the next one; only the first failure is logged."""
        events: list[LogEvent] = []
        self.patch(TransactionMetrics, "log", Logger(observer=events.append))
        self.half()
        self.disk.fail_sync_in = 1
        for _ in range(3):
            run_all(self.box, "save the counts of open half messages")
        self.assertEqual(len(events), 1)
        self.disk.fail_sync_in = None
        run_all(self.box, "save the counts of open half messages")
        self.assertEqual(json.loads(self.disk.read_file(PATH))["transactionCount"]["T"]["count"], 1)
