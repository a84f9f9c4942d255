"""A driver of Spark that runs queries and batches for the fault harness.

    python job.py CONFIG

It runs in an environment that has PySpark and the product, and not its tests. CONFIG is JSON: the
name server, a folder, and the seconds between two micro-batches. A line of JSON on the standard
input is a command: ``{"query": name, "kind": "parquet" or "topic", "options": {...}, ...}`` starts
a stream, ``{"batch": number, "options": {...}}`` reads a batch. Lines on the standard output that
begin with ``@@`` are JSON, too: what has started, ended or been read. The log of the bridge goes to
the standard error. The end of the input ends the process.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any

#: The words of Spark's error when a Python worker took too long to start.
NO_WORKER = "Python worker failed to connect back"
#: Tries to start a query whose worker was late: on a busy machine many are.
STARTS = 100


class Driver:
    """A session, and the queries that run in it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self.queries: dict[str, tuple[Any, dict[str, Any], int]] = {}
        #: The streams that have told of their progress.
        self.begun: set[str] = set()
        #: The streams that are to start, and which try that is.
        self.waiting: list[tuple[dict[str, Any], int]] = []
        self._lock = threading.Lock()
        self.spark = self._session()

    def _session(self) -> Any:
        from pyspark.sql import SparkSession

        os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
        builder = SparkSession.builder.master("local[2]")
        folder = os.path.join(self.config["folder"], "spark")
        for key, value in {
                "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
                "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "768m",
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.log.level": "OFF", "spark.python.authenticate.socketTimeout": "60s",
                "spark.local.dir": folder,
                "spark.sql.warehouse.dir": folder}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def say(self, **event: Any) -> None:
        """Send a text to the harness."""
        with self._lock:
            print("@@" + json.dumps(event), flush=True)

    def read_commands(self) -> None:
        """Read commands until the harness ends, and then end as well."""
        for line in sys.stdin:
            self.commands.put(json.loads(line))
        os._exit(0)

    def run(self) -> None:
        """Execute commands and watch the queries; never returns."""
        threading.Thread(target=self.read_commands, daemon=True).start()
        batches: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._batches, args=(batches,), daemon=True).start()
        self.say(event="ready")
        while True:
            try:
                command = self.commands.get(timeout=0.2)
            except queue.Empty:
                pass
            else:
                if "batch" in command:
                    batches.put(command)
                else:
                    self.waiting.append((command, 1))
            self.look()
            # One after the other: Spark gives a Python worker ten seconds to start.
            if self.waiting and self.begun >= self.queries.keys():
                self.start(*self.waiting.pop(0))

    # --- streams

    def start(self, command: dict[str, Any], tries: int) -> None:
        """Start a stream."""
        frame = self.spark.readStream.format("rocketmq").options(
            nameServer=self.config["nameServer"], bodyFormat="string",
            **command["options"]).load()
        if command["kind"] == "topic":
            writer = frame.select("body").writeStream.format("rocketmq").options(
                nameServer=self.config["nameServer"], **command["sink"])
        else:
            writer = frame.select(
                "topic", "brokerName", "queueId", "queueOffset", "body").coalesce(
                1).writeStream.format("parquet").option("path", command["output"])
        query = writer.option("checkpointLocation", command["checkpoint"]).trigger(
            processingTime=f"{self.config['seconds']} seconds").start()
        self.queries[command["query"]] = query, command, tries

    def look(self) -> None:
        """Report the queries that have begun or ended."""
        for name, (query, command, tries) in list(self.queries.items()):
            if query.isActive:
                if name not in self.begun and query.lastProgress:
                    self.begun.add(name)
                    self.say(event="begun", query=name)
                continue
            del self.queries[name]
            self.begun.discard(name)
            error = str(query.exception())
            if NO_WORKER in error and tries < STARTS:
                self.say(event="late", query=name)
                self.waiting.insert(0, (command, tries + 1))
            else:
                self.say(event="ended", query=name, error=error)

    # --- batches

    def _batches(self, batches: queue.Queue[dict[str, Any]]) -> None:
        while True:
            command = batches.get()
            for tries in range(1, STARTS + 1):
                begin = time.time()
                try:
                    rows = self._batch(command["options"])
                except Exception as error:
                    if NO_WORKER in str(error) and tries < STARTS:
                        continue
                    self.say(event="batch", batch=command["batch"], begin=begin, error=str(error))
                else:
                    self.say(event="batch", batch=command["batch"], begin=begin, rows=rows)
                break

    def _batch(self, options: dict[str, str]) -> list[list[Any]]:
        frame = self.spark.read.format("rocketmq").options(
            nameServer=self.config["nameServer"], bodyFormat="string", **options).load()
        return [list(row) for row in frame.select(
            "topic", "brokerName", "queueId", "queueOffset", "body").coalesce(1).collect()]


if __name__ == "__main__":
    Driver(json.loads(sys.argv[1])).run()
