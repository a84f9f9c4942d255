# ^The age of a message when a streaming query has its row.
"""How old a message is when a streaming query has its row.

  stream_latency.py [--seconds 60] [--warm-up 20] [--rate 200] [--size 1024] [--queues 4]
                    [--name-server HOST:PORT]

Starts `twistmq up` of this installation over a temporary folder, or takes the cluster of
--name-server (Apache's: tests/interop/peer.py). A process sends so many messages a second, each
with the time of its send; a query on local[2] reads them by `foreachBatch` with the default
trigger. Of each row it is noted how long ago its message was sent when the batch is in the hands of
the program. What comes in the warm-up does not count: Spark compiles what it runs.

Broker, producer and Spark share the machine. The exit status is 1 when a message does not come,
comes twice, or p95 is not below two seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench_servers
from pyspark.sql import SparkSession
from spark_bench import make_topic

from twistmq.client import Producer

TOPIC, PORT = "StreamLatency", 32_700
REACH_SECONDS = 2.0
#: How long the last rows are waited for, seconds.
LAST_SECONDS = 30.0


def produce(name_server: str, count: int, rate: float, size: int) -> None:
    """Send at a rate; each body begins with its number and when it was sent, Unix seconds."""
    with Producer(name_server) as producer:
        begin = time.monotonic()
        for number in range(count):
            time.sleep(max(begin + number / rate - time.monotonic(), 0))
            body = f"{number} {time.time():.6f} ".encode().ljust(size, b".")
            producer.send(TOPIC, body)


class Rows:
    """The rows, and their times."""

    def __init__(self) -> None:
        #: By number: when it was sent, and how old it was, seconds.
        self.found: dict[int, tuple[float, float]] = {}
        self.twice = self.batches = 0

    def take(self, frame: Any, number: int) -> None:
        """Return the function for ``foreachBatch``."""
        rows = frame.collect()
        now = time.time()
        self.batches += bool(rows)
        for row in rows:
            count, sent, _ = bytes(row.body).split(b" ", 2)
            self.twice += int(count) in self.found
            self.found[int(count)] = (float(sent), now - float(sent))

    def ages(self, since: float) -> list[float]:
        """Return the ages of messages that were sent after ``since``, in order, seconds."""
        return sorted(age for sent, age in self.found.values() if sent >= since)


def session() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
        "spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "1g").config(
        "spark.log.level", "OFF").getOrCreate()


def measure(name_server: str, arguments: argparse.Namespace) -> bool:
    """Measure; :returns: whether all is right."""
    make_topic(name_server, TOPIC, arguments.queues)
    spark, rows = session(), Rows()
    with tempfile.TemporaryDirectory(prefix="twistmq-stream-") as folder:
        query = spark.readStream.format("rocketmq").options(
            nameServer=name_server, subscribe=TOPIC, startingOffsets="earliest",
            columns="queueId,queueOffset,storeTimestamp,body").load().writeStream.foreachBatch(
            rows.take).option("checkpointLocation", folder).start()
        count = int((arguments.warm_up + arguments.seconds) * arguments.rate)
        producer = multiprocessing.get_context("spawn").Process(
            target=produce, args=(name_server, count, arguments.rate, arguments.size))
        begin = time.time()
        producer.start()
        producer.join()
        ends = time.monotonic() + LAST_SECONDS
        while len(rows.found) < count and query.isActive and time.monotonic() < ends:
            time.sleep(0.1)
        query.stop()
    spark.stop()
    return report(rows, rows.ages(begin + arguments.warm_up), count)


def report(rows: Rows, ages: Sequence[float], count: int) -> bool:
    def part(of: float) -> float:
        return ages[int(of * (len(ages) - 1))] if ages else 0.0

    p95 = part(0.95)
    print("| messages | lost | twice | micro-batches | p50, ms | p95, ms | p99, ms | most, ms |\n"
          "| --- |" + " --- |" * 7)
    print(f"| {len(ages):,} | {count - len(rows.found)} | {rows.twice} | {rows.batches} | "
          + " | ".join(f"{1000 * part(of):,.0f}" for of in (0.5, 0.95, 0.99, 1)) + " |")
    return bool(ages) and len(rows.found) == count and not rows.twice and p95 < REACH_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--rate", type=float, default=200, help="messages a second")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--name-server", default="")
    arguments = parser.parse_args()
    if arguments.name_server:
        return 0 if measure(arguments.name_server, arguments) else 1
    with tempfile.TemporaryDirectory(prefix="twistmq-stream-latency-") as folder:
        server = bench_servers.Twistmq(
            "twistmq", str(Path(sys.executable).with_name("twistmq")), Path(folder), PORT)
        server.start()
        try:
            return 0 if measure(f"127.0.0.1:{PORT}", arguments) else 1
        finally:
            server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
