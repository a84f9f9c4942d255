"""A streaming query is killed and restarted: each message is in its output once.

`python -m tests.long.spark` does it at ten random points.
"""

from __future__ import annotations

import os
from typing import Any

from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import WAIT_SECONDS, begun, spark_session
from tests.spark_bridge.stream_job import Job, committed_files, kill_workers, start_query
from tests.spark_bridge.test_stream_source import StreamCase
from twistmq.spark_bridge.export_job import STARTS


class KillTests(StreamCase):
    """Workers, and the driver with all that belongs to it."""

    counts = (300, 300, 300, 300)
    rows = 150

    def start_again(self) -> Any:
        """Start the query; workers that were killed while they were idle fail a start or two."""
        for _ in range(10):
            try:
                return start_query(spark_session(), self.box.options["nameServer"], "orders",
                                   self.output, self.checkpoint, self.rows)
            except Exception as error:
                self.assertIn("Python worker", str(error))
        return self.fail("the query does not start")

    def finish(self) -> None:
        """Run the query to its end; it may fail because of the kill, and is then restarted."""
        for _ in range(10):
            query = self.start_again()
            try:
                if query.awaitTermination(int(WAIT_SECONDS)):
                    return
            except Exception as error:
                self.assertIn("Python worker", str(error))
        self.fail("the query does not end")

    def test_workers_are_killed_in_mid_query(self) -> None:
        """Workers are killed in mid-query, twice."""
        for files in (1, 3):
            query = begun(self.start_again,
                          lambda _, files=files: committed_files(self.output) >= files)
            self.assertGreater(kill_workers(os.getpid()), 0)
            query.stop()
        self.finish()
        self.assertEqual(self.written(), sorted(self.sent))

    def test_the_driver_is_killed_in_mid_query(self) -> None:
        """Another driver continues from the checkpoint."""
        for _ in range(STARTS):
            # One whose worker was too slow for Spark ends before.
            job = Job(self.box.options["nameServer"], "orders", self.output, self.checkpoint,
                      self.rows)
            self.addCleanup(job.kill)
            wait_until("a micro-batch", lambda job=job: (
                committed_files(self.output) >= 2 or job.status() is not None), WAIT_SECONDS)
            job.kill()
            if committed_files(self.output) >= 2:
                break
        self.assertGreaterEqual(committed_files(self.output), 2)
        self.assertLess(committed_files(self.output), 1200 // self.rows)
        self.finish()
        self.assertEqual(self.written(), sorted(self.sent))
