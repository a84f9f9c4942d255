"""Spark's source and sink with Apache's broker."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

from tests.interop.clients import JavaTestCase
from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import run_to_end, spark_session
from tests.spark_bridge.test_availability import Later
from tests.spark_bridge.test_stream_source import Driver
from tests.spark_bridge.topics import pa, schema_of
from twistmq.client import Client, Message, Producer
from twistmq.protocol.bodies import MessageQueue
from twistmq.spark_bridge.source import RocketMQDataSource

BROKER = "broker-peer"


class SparkTests(JavaTestCase):
    """Apache's name server and broker of 5.3.3."""

    def setUp(self) -> None:
        super().setUp()
        spark_session()
        namesrv = self.start_apache().namesrv_address
        self.options = {"nameServer": namesrv}
        self.client = Client(namesrv, timeout_s=20)
        self.producer = Producer(client=self.client, timeout_s=20)
        self.addCleanup(self.client.close)

    def wait_for(self, topic: str, count: int) -> None:
        """Wait until the queues have so many messages: the broker answers sends before that."""
        wait_until(f"{count} messages in {topic}", lambda: sum(
            self.client.max_offset(queue) for queue in self.client.write_queues(topic)) >= count)

    def read(self, **options: str) -> list[Any]:
        frame = spark_session().read.format("rocketmq").options(**self.options, **options).load()
        return sorted(frame.collect(), key=lambda row: (row.queueId, row.queueOffset))

    def test_spark_reads_a_topic_by_tag_and_property_then_the_rest(self) -> None:
        """Spark reads all messages, those with a tag, those with a property, and later the rest."""
        sent = []
        for number in range(400):
            message = Message("orders", b"%d" % number, properties={
                "TAGS": "even" if number % 2 == 0 else "odd", "KEYS": f"k{number}",
                "n": str(number), "UNIQ_KEY": f"U{number}"})
            result = self.producer.send(
                message, queue=MessageQueue("orders", BROKER, number % 4))
            sent.append((result.queue.queue_id, result.offset, message.body,
                         result.offset_id))
        self.wait_for("orders", 400)
        rows = self.read(subscribe="orders", minPartitions="6")
        self.assertEqual([(row.queueId, row.queueOffset, bytes(row.body), row.offsetMsgId)
                          for row in rows], sorted(sent))
        self.assertEqual({(row.brokerName, row.msgId, row["keys"][0]) for row in rows},
                         {(BROKER, f"U{number}", f"k{number}") for number in range(400)})
        rows = self.read(subscribe="orders", subExpression="odd")
        self.assertEqual(sorted(int(row.body) for row in rows), list(range(1, 400, 2)))
        rows = self.read(subscribe="orders", subExpression="n >= 390", subExpressionType="SQL92")
        self.assertEqual(sorted(int(row.body) for row in rows), list(range(390, 400)))
        self.stream()

    def stream(self) -> None:
        """The same in micro-batches, with offsets that mqadmin shows."""
        for _ in range(2):
            stream = spark_session().readStream.format("rocketmq").options(
                **self.options, subscribe="orders", startingOffsets="earliest", group="spark_shown",
                commitGroupOffsets="true", maxOffsetsPerTrigger="150").load()
            writer = stream.select("queueId", "queueOffset", "body").writeStream.format(
                "parquet").option("checkpointLocation", str(self.folder / "checkpoint")).trigger(
                availableNow=True)
            run_to_end(lambda writer=writer: writer.start(str(self.folder / "output")))
            self.producer.send("orders", b"400", queue=MessageQueue("orders", BROKER, 0))
            self.wait_for("orders", 401)
        rows = spark_session().read.parquet(str(self.folder / "output")).collect()
        self.assertEqual(sorted(int(row.body) for row in rows), list(range(401)))
        self.assertEqual(sum(self.client.group_offset(
            "spark_shown", MessageQueue("orders", BROKER, queue_id)) or 0
            for queue_id in range(4)), 400)

    def test_rows_to_a_topic_that_apaches_broker_makes(self) -> None:
        """Rows to a topic that Apache's broker makes, and back."""
        frame = spark_session().range(2000).selectExpr(
            "string(id) AS body", "concat('t', id % 3) AS tags", "array(concat('k', id)) AS keys",
            "concat('s', id % 5) AS shardingKey", "cast(id AS int) AS flag",
            "if(id % 100 = 7, 1, null) AS delayLevel")
        frame.write.format("rocketmq").options(**self.options, topic="made").mode("append").save()
        self.wait_for("made", 2000)
        rows = self.read(subscribe="made", bodyFormat="string",
                         columns="queueId,queueOffset,body,tags,keys,shardingKey,flag")
        at_once = [row for row in frame.collect() if row.delayLevel is None]
        self.assertEqual(
            sorted((row.flag, row.body, row.tags, row["keys"], row.shardingKey) for row in rows
                   if row.flag % 100 != 7),
            [(row.flag, row.body, row.tags, row["keys"], row.shardingKey) for row in at_once])
        for key in range(5):
            of_key = [row for row in rows if row.shardingKey == f"s{key}" and row.flag % 100 != 7]
            self.assertEqual(len({row.queueId for row in of_key}), 1)


class RestartTests(JavaTestCase):
    """Apache's broker is stopped or killed, and started again, while it is read and written.

    The sources and the sink are called as Spark calls them.
    """

    def setUp(self) -> None:
        super().setUp()
        self.peer = self.start_apache()
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(  # type: ignore[method-assign]
            record.getMessage())
        logger = logging.getLogger("twistmq")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

    def source(self, **options: Any) -> RocketMQDataSource:
        return RocketMQDataSource({name.lower(): str(value) for name, value in {
            "nameServer": self.peer.namesrv_address, **options}.items()})

    def write(self, begin: int, end: int) -> None:
        """Write rows whose bodies are numbers, each to the queue that it names."""
        writer: Any = self.source(topic="rs", batchSize=8).writer(
            schema_of(body="binary", queueId="int"), False)
        pickle.loads(pickle.dumps(writer)).write(iter([pa.RecordBatch.from_pylist(
            [{"body": b"%d" % number, "queueId": number % 4} for number in range(begin, end)],
            pa.schema([("body", pa.binary()), ("queueId", pa.int32())]))]))

    def batch(self) -> Callable[[], list[int]]:
        """Plan a batch; :returns: its reader."""
        source = self.source(subscribe="rs", failOnDataLoss="false")
        reader: Any = source.reader(source.schema())
        tasks, parts = pickle.loads(pickle.dumps(reader)), reader.partitions()
        return lambda: sorted(int(row["body"]) for part in parts for batch in tasks.read(part)
                              for row in batch.to_pylist())

    def while_away(self, work: Callable[[], Any], kill: bool) -> Any:
        """Stop the broker, do something until it waits, and start the broker again."""
        self.lines.clear()
        self.peer.stop_one("broker", kill=kill)
        later = Later(work)
        wait_until("a warning", lambda: any("waiting for up to" in line for line in self.lines)
                   or later.is_over)
        self.assertFalse(later.is_over)
        self.peer.start_broker()
        return later.result()

    def test_everything_waits_for_the_broker(self) -> None:
        """A batch, a stream and a write lose nothing during a stop and a kill."""
        with Client(self.peer.namesrv_address, timeout_s=20) as client:
            Producer(client=client, timeout_s=20).send("rs", b"0", queue=MessageQueue("rs", BROKER,
                                                                                      0))
        self.write(1, 200)
        driver = Driver(None, source=self.source(
            subscribe="rs", startingOffsets="earliest", failOnDataLoss="false",
            maxOffsetsPerTrigger=60))
        driver.begin()
        driver.batch()
        self.assertEqual(self.while_away(self.batch(), False), list(range(200)))
        self.while_away(driver.batch, True)
        # The write may be repeated in part, by Spark too: a row is there once at least.
        self.while_away(lambda: self.write(200, 260), False)
        while driver.batch():
            pass
        driver.stop()
        found = [int(row[2]) for row in driver.rows()]
        self.assertEqual(sorted(set(found)), list(range(260)))
        self.assertEqual(sorted(found)[:200], list(range(200)))
        self.assertEqual([line for line in self.lines if "skipped" in line], [])
