# ^The speed of Spark's reads and writes here in rows a second, compared with the maximum.
"""How fast Spark reads and writes topics here: rows a second, beside what would be the most.

  spark_bench.py [--messages 2000000] [--size 1024] [--queues 8] [--writes 200000] [--rounds 2]
                 [--name-server HOST:PORT] [--set pullBatchSize=256 ...]

Starts `twistmq up` of this installation over a temporary folder, or takes the cluster of
--name-server (Apache's: tests/interop/peer.py), fills a topic and prints a table:

  default columns   all columns that are there by default, with properties and what is made of them
  pruned            the columns that are fields of the record, body included
  ceiling           a source whose tasks yield one batch they hold already, of the default columns
  tasks alone       what the tasks of "default columns" do, in two processes without Spark
  consumer loop     one process that pulls 32 at a time and decodes each record
  write             a DataFrame of bodies of the same size to another topic

Reads go to Spark's noop sink on local[2]; the best of the rounds counts. What is read is compared
with what was sent: rows, the sum of the CRCs of the bodies, the offsets. Broker and Spark share the
machine, on which nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_servers
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.broker.testing.raw_client import records_of
from twistmq.client import Client, Message, Producer
from twistmq.client.blocking.connection import Connection
from twistmq.integrations.tables.columns import DERIVED_COLUMNS, default_columns
from twistmq.integrations.tables.options import BATCH_READ, Options
from twistmq.integrations.tables.queue_reader import read_range
from twistmq.integrations.tables.ranges import QueueRange
from twistmq.integrations.tables.topic_read import read_plan
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.spark_bridge.spark_schema import spark_schema

TOPIC, WRITTEN = "SparkBench", "SparkBenchWritten"
BATCH, PORT = 64, 32_500
#: Rows of the batch that the ceiling yields again and again, and what the consumer loop reads.
CEILING_ROWS, LOOP_MESSAGES = 8192, 200_000


def body_of(number: int, size: int) -> bytes:
    """Return a body that differs from all others and cannot be compressed much."""
    return (b"%020d" % number + bytes((number * step) & 0xFF for step in range(1, 65)) * (
        size // 64 + 1))[:size]


def fill_some(name_server: str, broker: str, queue_ids: range, count: int, size: int,
              sums: Any) -> None:
    """Send so many messages to each of some queues; adds the CRCs to the shared sum."""
    total = 0
    with Producer(name_server, timeout_s=30) as producer:
        for queue_id in queue_ids:
            queue, window = MessageQueue(TOPIC, broker, queue_id), []
            for begin in range(0, count, BATCH):
                batch = []
                for number in range(begin, min(begin + BATCH, count)):
                    body = body_of(queue_id * count + number, size)
                    total += zlib.crc32(body) & 0x7FFFFFFF
                    batch.append(Message(TOPIC, body, properties={
                        "UNIQ_KEY": f"7F00000100002A{queue_id:06X}{number:012X}", "TAGS": "bench",
                        "KEYS": f"order-{number}", "WAIT": "true"}))
                window.append(producer.send_batch_soon(batch, queue))
                if len(window) >= 8:
                    window.pop(0).result()
            for pending in window:
                pending.result()
    with sums.get_lock():
        sums.value += total


def in_two(target: Callable[..., None], *arguments: tuple[Any, ...]) -> float:
    """Run processes, each with its arguments; :returns: seconds."""
    begin = time.monotonic()
    processes = [multiprocessing.Process(target=target, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit("a process of the benchmark failed")
    return time.monotonic() - begin


def make_topic(name_server: str, topic: str, queues: int) -> str:
    """Make a topic on the only broker there is; :returns: the broker's name."""
    with Client(name_server) as client:
        route = client.route("TBW102")
        data = route.broker_datas[0]
        assert data.broker_name is not None
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues,
            perm=6, topic_filter_type="SINGLE_TAG")
        with Connection(data.broker_addrs[0]) as connection:
            reply = connection.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            if reply.code:
                raise SystemExit(f"the topic cannot be made: {reply.remark}")
        return data.broker_name


class ReadyMade(DataSource):
    """A source whose tasks yield one record batch repeatedly."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> Any:
        return spark_schema(default_columns())

    def reader(self, schema: Any) -> DataSourceReader:
        return ReadyMadeReader(dict(self.options))


class ReadyMadeReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(int(self.options["queues"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        options = Options({"nameServer": self.options["nameserver"], "subscribe": TOPIC},
                          BATCH_READ)
        part = QueueRange(TOPIC, self.options["broker"], partition.value, 0, CEILING_ROWS)
        batches = list(read_range(read_plan(options, tuple(default_columns())), part))
        left = int(self.options["rows"])
        while left > 0:
            for batch in batches:
                yield batch.slice(0, left) if left < batch.num_rows else batch
                left -= min(batch.num_rows, left)


def read_some(name_server: str, broker: str, queue_ids: range, count: int,
              given: dict[str, str]) -> None:
    """Read some messages as tasks do."""
    options = Options({"nameServer": name_server, "subscribe": TOPIC, **given}, BATCH_READ)
    for queue_id in queue_ids:
        part = QueueRange(TOPIC, broker, queue_id, 0, count)
        rows = sum(batch.num_rows for batch in read_range(
            read_plan(options, tuple(default_columns())), part))
        assert rows == count, (rows, count)


def consumer_loop(name_server: str, broker: str, count: int) -> float:
    """Pull and decode, one pull after the other; :returns: messages a second."""
    begin, found, offset = time.monotonic(), 0, 0
    with Client(name_server) as client:
        queue = MessageQueue(TOPIC, broker, 0)
        while found < count:
            result = client.pull(queue, offset, group="bench")
            found += len([record.body for record in records_of(result.body)])
            offset = result.next_offset
    return found / (time.monotonic() - begin)


class Bench:
    """The table of one cluster."""

    def __init__(self, arguments: argparse.Namespace, name_server: str) -> None:
        self.arguments = arguments
        self.options = {"nameServer": name_server}
        self.given = dict(one.split("=", 1) for one in arguments.set)
        self.each = arguments.messages // arguments.queues
        self.rows = self.each * arguments.queues
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self.broker = make_topic(name_server, TOPIC, arguments.queues)
        make_topic(name_server, WRITTEN, arguments.queues)

    def halves(self) -> list[range]:
        middle = (self.arguments.queues + 1) // 2
        return [range(middle), range(middle, self.arguments.queues)]

    def fill(self) -> None:
        sums = multiprocessing.Value("q", 0)
        seconds = in_two(fill_some, *(
            (self.options["nameServer"], self.broker, half, self.each, self.arguments.size, sums)
            for half in self.halves()))
        self.crc_sum = sums.value
        self.say("filled by clients", self.rows / seconds, f"{self.rows} messages")

    def say(self, what: str, rate: float, note: str = "") -> None:
        print(f"{what:<20} {rate:>10,.0f} rows/s  {note}", flush=True)

    def best(self, what: str, rows: int, run: Callable[[], object]) -> None:
        rates = []
        for _ in range(self.arguments.rounds):
            begin = time.monotonic()
            run()
            rates.append(rows / (time.monotonic() - begin))
        self.say(what, max(rates), "rounds: " + ", ".join(f"{rate:,.0f}" for rate in rates))

    def run(self) -> None:
        self.fill()
        name_server = self.options["nameServer"]
        self.say("consumer loop", consumer_loop(
            name_server, self.broker, min(LOOP_MESSAGES, self.each)))
        self.best("tasks alone", self.rows, lambda: in_two(read_some, *(
            (name_server, self.broker, half, self.each, self.given) for half in self.halves())))
        session = SparkSession.builder.master("local[2]").config(
            "spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").config(
            "spark.driver.memory", "1g").config("spark.log.level", "OFF").getOrCreate()
        try:
            self.run_spark(session)
        finally:
            session.stop()

    def run_spark(self, session: Any) -> None:
        def noop(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        def read(**options: str) -> Any:
            return session.read.format("rocketmq").options(
                **self.options, subscribe=TOPIC, **self.given, **options).load()

        session.dataSource.register(ReadyMade)
        ready = session.read.format("ready_made").options(
            **self.options, broker=self.broker, queues=str(self.arguments.queues),
            rows=str(self.each)).load()
        pruned = ",".join(column.name for column in default_columns()
                          if column.name not in DERIVED_COLUMNS)
        self.check(read(columns="queueId,queueOffset,bodyCRC,body"))
        self.best("ceiling", self.rows, lambda: noop(ready))
        self.best("default columns", self.rows, lambda: noop(read()))
        self.best("pruned", self.rows, lambda: noop(read(columns=pruned)))
        writes = self.arguments.writes
        frame = session.range(0, writes, 1, 2).selectExpr(
            f"encode(rpad(string(id), {self.arguments.size}, 'abcdefgh'), 'UTF-8') AS body")
        self.best("write", writes, lambda: frame.write.format("rocketmq").options(
            **self.options, topic=WRITTEN).mode("append").save())
        back = session.read.format("rocketmq").options(
            **self.options, subscribe=WRITTEN, columns="queueOffset").load().count()
        assert back == writes * self.arguments.rounds, (back, writes)

    def check(self, frame: Any) -> None:
        """Compare the rows with the sent messages."""
        [row] = frame.agg(
            sql.count("*").alias("rows"), sql.sum("bodyCRC").alias("crcs"),
            sql.sum(sql.crc32("body").bitwiseAND(0x7FFFFFFF)).alias("bodies"),
            sql.max("queueOffset").alias("last"),
            sql.count_distinct("queueId", "queueOffset").alias("places")).collect()
        found = (row.rows, row.crcs, row.bodies, row.last, row.places)
        expected = (self.rows, self.crc_sum, self.crc_sum, self.each - 1, self.rows)
        if found != expected:
            raise SystemExit(f"read {found}, sent {expected}")
        print(f"read as sent: {row.rows} rows, CRCs sum up to {row.crcs}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--writes", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--name-server", default="")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE")
    arguments = parser.parse_args()
    if arguments.name_server:
        Bench(arguments, arguments.name_server).run()
        return
    with tempfile.TemporaryDirectory(prefix="twistmq-spark-bench-") as folder:
        server = bench_servers.Twistmq(
            "twistmq", str(Path(sys.executable).with_name("twistmq")), Path(folder), PORT)
        server.start()
        try:
            Bench(arguments, f"127.0.0.1:{PORT}").run()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
