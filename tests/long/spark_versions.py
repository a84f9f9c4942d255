"""Run the essentials of the Spark bridge on several versions of PySpark.

    python -m tests.long.spark_versions [--pyspark 4.0,4.1,4.2,4.3] [--python PATH ...]

For each version an environment is made with this checkout and the newest PySpark of that version;
``--python`` names interpreters of environments that exist instead, which must be able to import
twistmq. In each a broker and Spark run, and rows are compared: a batch that is written and read, a
stream with small micro-batches from topic to topic that is stopped and goes on over its checkpoint,
a stream that reads all that is there and ends, traces, store files, an export, a stream that waits
for more offsets, and the error of a wrong option. Prints a line for each; ends with status 1 when
anything differs. Needs Java 17.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Bound on the essentials of one version, on a busy machine.
SECONDS = 900
#: How often a query is started that had no worker in time, and the text of that error.
STARTS, NO_WORKER = 5, "Python worker failed to connect back"
#: Rows in each part of the stream, and in a micro-batch at most.
ROWS, ROWS_OF_A_BATCH = 150, 70


class Essentials:
    """The part that runs in its own environment: a broker, a Spark session, and comparisons."""

    def __init__(self, spark: Any, broker: Any, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.options = {"nameServer": broker.namesrv_address}
        self.differ = 0

    def compare(self, what: str, found: Any, wanted: Any) -> None:
        """Print whether something is as it should be."""
        same = found == wanted
        self.differ += not same
        print(f"  {what}: {'the same' if same else f'DIFFERS: {found!r} is not {wanted!r}'}",
              flush=True)

    def bodies(self, topic: str) -> list[str]:
        """Return the bodies of a topic, sorted."""
        frame = self.spark.read.format("rocketmq").options(
            **self.options, subscribe=topic, bodyFormat="string", columns="body").load()
        return sorted(row.body for row in frame.collect())

    def write(self, topic: str, begin: int, end: int) -> None:
        """Write rows whose bodies are numbers."""
        self.spark.range(begin, end).selectExpr(
            "cast(id AS string) AS body", "concat('t', id % 3) AS tags",
            "array(concat('k', id)) AS keys", "map('n', cast(id AS string)) AS properties",
        ).write.format("rocketmq").options(**self.options, topic=topic).mode("append").save()

    def batch(self) -> None:
        """Write a batch and read it."""
        self.write("versions_in", 0, ROWS)
        frame = self.spark.read.format("rocketmq").options(
            **self.options, subscribe="versions_in", bodyFormat="string").load()
        rows = sorted((int(row.body), row.tags, row.keys, row.properties["n"])
                      for row in frame.collect())
        self.compare("batch write and read", rows, [
            (number, f"t{number % 3}", [f"k{number}"], str(number)) for number in range(ROWS)])

    def _query(self, **trigger: Any) -> Any:
        """Return a stream from topic to topic."""
        frame = self.spark.readStream.format("rocketmq").options(
            **self.options, subscribe="versions_in", startingOffsets="earliest",
            maxOffsetsPerTrigger=str(ROWS_OF_A_BATCH)).load()
        return frame.selectExpr("body", "tags").writeStream.format("rocketmq").options(
            **self.options, topic="versions_out",
            checkpointLocation=str(self.folder / "checkpoint")).trigger(**trigger).start()

    def _run(self, wanted: int) -> int:
        """Run the stream until so many rows are there; :returns: rows of the largest batch."""
        sizes: dict[int, int] = {}
        end = time.monotonic() + SECONDS / 4
        for start in range(1, STARTS + 1):
            query = self._query(processingTime="0 seconds")
            while query.isActive and time.monotonic() < end and sum(sizes.values()) < wanted:
                time.sleep(0.2)
                sizes.update({each["batchId"]: each["numInputRows"]
                              for each in query.recentProgress})
            query.stop()
            error = query.exception()
            if error is None:
                break
            # On a busy machine Spark waits too little for its worker.
            if NO_WORKER not in str(error) or start == STARTS:
                raise SystemExit(str(error))
        return max(sizes.values(), default=0)

    def _to_its_end(self) -> bool:
        """Run the stream until it ends by itself; :returns: whether it ended in time."""
        for start in range(1, STARTS + 1):
            query = self._query(availableNow=True)
            try:
                return bool(query.awaitTermination(SECONDS // 4))
            except Exception as error:
                if NO_WORKER not in str(error) or start == STARTS:
                    raise
        return False

    def streams(self) -> None:
        """Run micro-batches, a restart from the checkpoint, and a query that ends by itself."""
        self.compare("rows of the largest micro-batch", self._run(ROWS), ROWS_OF_A_BATCH)
        self.write("versions_in", ROWS, 2 * ROWS)
        self.compare("the same after a restart", self._run(ROWS), ROWS_OF_A_BATCH)
        self.write("versions_in", 2 * ROWS, 3 * ROWS)
        # A PySpark before 4.2 ends such a query after one micro-batch.
        runs = 1 if has_read_limits() else -(-ROWS // ROWS_OF_A_BATCH)
        for _ in range(runs):
            self.compare("availableNow ends", self._to_its_end(), True)
        self.compare("readStream and writeStream", self.bodies("versions_out"),
                     sorted(map(str, range(3 * ROWS))))

    def traces(self) -> None:
        """Read the traces of the broker, in both ways."""
        from twistmq.client import Producer

        def traced(format_name: str, **options: str) -> list[tuple[str, str]]:
            frame = self.spark.read.format(format_name).options(**self.options, **options).load()
            return sorted((row.traceType, row.topic)
                          for row in frame.where("topic = 'versions_traced'").collect())

        with Producer(self.broker.namesrv_address) as producer:
            producer.send("versions_traced", b"1")
        end = time.monotonic() + 60
        while not traced("rocketmq_trace") and time.monotonic() < end:
            time.sleep(0.5)
        self.compare("rocketmq_trace", traced("rocketmq_trace"), [("Pub", "versions_traced")])
        self.compare("traceView", traced("rocketmq", traceView="true", subscribe=(
            "RMQ_SYS_TRACE_TOPIC")), [("Pub", "versions_traced")])

    def store(self) -> None:
        """Read the files of the broker."""
        [log] = (self.folder / "data").rglob("commitlog")
        frame = self.spark.read.format("rocketmq_store").options(topics="versions_in").load(
            str(log))
        self.compare("rocketmq_store", frame.count(), 3 * ROWS)

    def export(self) -> None:
        """Export in several micro-batches, and then without new messages."""
        from twistmq.spark_bridge.export_job import ExportJob
        from twistmq.spark_bridge.export_plan import ExportPlan

        plan = ExportPlan(self.options, ("versions_in",), False, str(self.folder / "export"),
                          batch_messages=2 * ROWS_OF_A_BATCH)
        for wanted in (3 * ROWS, 0):
            [table] = ExportJob(plan, self.spark, lambda *_: None).run()
            self.compare("rows of an export", table.rows, wanted)
        frame = self.spark.read.parquet(plan.path("messages"))
        self.compare("rows in its files", frame.select("body").distinct().count(), 3 * ROWS)

    def fewest(self) -> None:
        """A stream that waits for more offsets after its first micro-batch, and its lag."""
        from twistmq.client import Client
        from twistmq.spark_bridge.lag import query_lag

        query = self.spark.readStream.format("rocketmq").options(
            **self.options, subscribe="versions_in", startingOffsets="earliest",
            minOffsetsPerTrigger=str(4 * ROWS), maxTriggerDelay="1h").load().writeStream.format(
            "noop").start()
        query.processAllAvailable()
        self.write("versions_in", 3 * ROWS, 3 * ROWS + 5)
        time.sleep(3)
        rows = sum(each["numInputRows"] for each in query.recentProgress)
        self.compare("rows of a stream that waits", rows, 3 * ROWS)
        with Client(self.broker.namesrv_address) as client:
            last = [each for each in query.recentProgress if each["numInputRows"]][-1]
            lag = query_lag(last, client)
            self.compare("its lag", lag and lag.total, 5)
        query.stop()

    def wrong_option(self) -> None:
        """Use an unknown option, and check the error."""
        try:
            self.spark.read.format("rocketmq").options(
                **self.options, subscribe="versions_in", startingOffset="earliest").load().count()
        except Exception as error:
            named = "there is no such option; startingOffsets is one" in str(error)
            self.compare("the error of a wrong option names it", named, True)
        else:
            self.compare("a wrong option is refused", False, True)


def has_read_limits() -> bool:
    """Return whether this PySpark asks a stream for bounded micro-batches."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def run_here() -> int:
    """Run the essentials in this environment; :returns: the status."""
    import pyspark
    from pyspark.sql import SparkSession

    from twistmq.broker.testing import running_broker

    print(f"PySpark {pyspark.__version__}", flush=True)
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="twistmq-spark-") as name, \
            running_broker({"brokerName": "broker-a", "trace.server": "true"},
                           data=Path(name, "data")) as broker:
        builder = SparkSession.builder.master("local[2]")
        for key, value in {
                "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
                "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g",
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                "spark.log.level": "OFF", "spark.local.dir": name,
                "spark.sql.warehouse.dir": name}.items():
            builder = builder.config(key, value)
        run = Essentials(builder.getOrCreate(), broker, Path(name))
        try:
            for part in (run.batch, run.streams, run.traces, run.store, run.export, run.fewest,
                         run.wrong_option):
                part()
        finally:
            run.spark.stop()
    print(f"PySpark {pyspark.__version__}: {run.differ} differ", flush=True)
    return 1 if run.differ else 0


def environment(version: str, folder: Path) -> Path:
    """Make an environment with a version of PySpark and this checkout; :returns: its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
         f"{ROOT}[spark]", f"pyspark=={version}.*"],
        check=True, env={**os.environ, "TWISTMQ_PURE": "1"})
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pyspark", default="4.0,4.1,4.2,4.3", help="versions, with commas")
    parser.add_argument("--python", action="append", default=[], type=Path,
                        help="an interpreter to use instead of new environments")
    parser.add_argument("--here", action="store_true", help="use this interpreter only")
    args = parser.parse_args()
    if args.here:
        return run_here()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="twistmq-versions-") as name:
        pythons = iter(args.python) if args.python else (
            environment(version, Path(name) / version) for version in args.pyspark.split(","))
        for python in pythons:
            # Not as a module: an environment has the product, and not its tests.
            done = subprocess.run([python, __file__, "--here"], timeout=SECONDS, check=False)
            failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
