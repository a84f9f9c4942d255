"""``twistmq spark export --continuous`` as a process: it is killed, restarted and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.peer import SHORT_LIVED
from tests.interop.servers import MAIN, wait_until
from tests.spark_bridge.session import WAIT_SECONDS, missing_for_spark
from twistmq.broker.testing.in_process_broker import RunningBroker, running_broker
from twistmq.client import Producer
from twistmq.spark_bridge.export_folder import counted_files


class ContinuousTests(SynchronousTestCase):
    """A job that runs until it is stopped."""

    def setUp(self) -> None:
        missing_for_spark()
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()
        self.sent = 0

    @contextlib.contextmanager
    def job(self, namesrv: str, log: str) -> Iterator[Any]:
        """Start the command in its own session; it is killed at the end if it still runs."""
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", MAIN, "spark", "export", "-n", namesrv, "--continuous",
                 "--interval", "0.5", "--batch", "100", "--master", "local[2]", "--topic", "orders",
                 "-o", str(self.folder / "out"), "--conf", "spark.sql.shuffle.partitions=2",
                 "--conf", f"spark.driver.extraJavaOptions={' '.join(SHORT_LIVED)}"],
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def send(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            producer.send("orders", b"%d" % self.sent)
            self.sent += 1

    def written(self) -> Counter[int]:
        """Return the numbers in all files, by a reader that ignores Spark's log."""
        return self.numbers((self.folder / "out/messages").rglob("*.parquet"))

    def done(self) -> Counter[int]:
        """The numbers in the files of micro-batches that are done."""
        return self.numbers(counted_files(self.folder / "out/messages"))

    @staticmethod
    def numbers(paths: Iterable[Path]) -> Counter[int]:
        import pyarrow.parquet as pq

        found: Counter[int] = Counter()
        for path in paths:
            # What is being written has no end yet, and may be renamed meanwhile.
            with contextlib.suppress(OSError, ValueError):
                found.update(int(body.as_py())
                             for body in pq.ParquetFile(path).read(["body"])["body"])
        return found

    def wait_for(self, process: Any, count: int, numbers: Callable[[], Counter[int]]) -> None:
        wait_until(f"{count} messages are written", lambda: (
            len(numbers()) >= count or process.poll() is not None), WAIT_SECONDS)
        self.assertIsNone(process.poll())

    def run_and_stop(
        self, broker: RunningBroker, producer: Producer, log: str, stop: Callable[[int], None],
    ) -> None:
        """Export existing and new messages until it is stopped."""
        with self.job(broker.namesrv_address, log) as process:
            # A micro-batch that is stopped takes its files with it, and is done again.
            self.wait_for(process, self.sent, self.done)
            self.send(producer, 30)
            self.wait_for(process, self.sent, self.done)
            stop(process.pid)
            status = process.wait(WAIT_SECONDS)
        text = (self.folder / log).read_text()
        self.assertEqual(status, 0, msg=text)
        self.assertRegex(text, r"table +rows +files +size +rows/s\nmessages +\d+")
        self.assertNotIn("Traceback", text)

    def test_a_stop_signal_to_all_processes_ends_the_job(self) -> None:
        """A service manager sends the signal to all of them."""
        with running_broker() as broker, Producer(broker.namesrv_address) as producer:
            self.send(producer, 400)
            self.run_and_stop(broker, producer, "all", lambda pid: os.killpg(pid, signal.SIGTERM))
        self.assertEqual(self.written(), Counter(range(self.sent)))

    def long_killed_and_stopped(self) -> None:
        """It is killed while it writes, and the next one continues; then only the command is
        stopped.
        """
        with running_broker() as broker, Producer(broker.namesrv_address) as producer:
            self.send(producer, 400)
            with self.job(broker.namesrv_address, "killed") as process:
                self.wait_for(process, 100, self.written)
            self.run_and_stop(broker, producer, "one", lambda pid: os.kill(pid, signal.SIGTERM))
        self.assertEqual(self.written(), Counter(range(self.sent)))
