"""The sinks: acknowledged, repeated and refused rows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import ScriptedServer, answer, route_body
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import spark_session
from tests.spark_bridge.test_source import SourceCase
from tests.spark_bridge.topics import pa, schema_of
from twistmq.client import Client, Message
from twistmq.integrations.tables.options import BATCH_WRITE, Options
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.spark_bridge.rows import OutgoingRow
from twistmq.spark_bridge.sink import Sender, WriteFailed
from twistmq.spark_bridge.source import RocketMQDataSource


def rows_of(topic: str, bodies: list[bytes], *, queue_id: int | None = None,
            key: str | None = None) -> list[OutgoingRow]:
    return [OutgoingRow(index, Message(topic, body), queue_id, key, True)
            for index, body in enumerate(bodies)]


class SenderTests(SynchronousTestCase):
    """Tests with a broker that fails."""

    def setUp(self) -> None:
        #: What to do with the next sends: a response code, or None to end the connection.
        self.failures: list[int | None] = []
        #: Bodies that were taken, by broker, and a body that never is.
        self.taken: dict[str, list[bytes]] = {"a": [], "b": []}
        self.poison = b"poison"
        self.brokers = {name: ScriptedServer(lambda request, name=name: self.answer(name, request))
                        for name in self.taken}
        self.name_server = ScriptedServer(lambda request: answer(request, body=route_body(
            {name: {0: server.address} for name, server in self.brokers.items()}, 2)))
        for server in (self.name_server, *self.brokers.values()):
            self.addCleanup(server.close)

    def answer(self, name: str, request: RemotingCommand) -> bytes | None:
        if request.code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            return answer(request)
        header = request.header(SendMessageRequestHeaderV2)
        bodies = ([body for _, body, _ in decode_batch(request.body)] if header.batch
                  else [request.body])
        code = self.failures.pop(0) if self.failures else ResponseCode.SUCCESS
        if code is None:
            raise ConnectionError
        if self.poison in bodies:
            return answer(request, ResponseCode.MESSAGE_ILLEGAL, remark="poison")
        if code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT):
            self.taken[name] += bodies
        return answer(request, code, SendMessageResponseHeader(
            msg_id="0A", queue_id=header.queue_id, queue_offset=0), remark="not now")

    def sent(self, rows: list[OutgoingRow], **options: str) -> int:
        """Send rows; :returns: how many are acknowledged."""
        with Client(self.name_server.address, retry_wait_s=0.01) as client:
            sender = Sender(Options(options, BATCH_WRITE), client, "partition 3")
            sender.send(rows)
            sender.finish()
            return sender.acknowledged

    def all_taken(self) -> list[bytes]:
        return [*self.taken["a"], *self.taken["b"]]

    def test_all_rows_arrive_in_batches_over_all_queues(self) -> None:
        """All rows arrive, in batches, over all queues."""
        bodies = [b"%d" % number for number in range(1000)]
        self.assertEqual(self.sent(rows_of("t", bodies), batchSize="10", sendWindow="4"), 1000)
        self.assertEqual(sorted(self.all_taken()), sorted(bodies))
        self.assertEqual(len(self.taken["a"]), 500)

    def test_a_failed_send_is_tried_again(self) -> None:
        """No row is missing, but a broker that stored it may store it twice."""
        bodies = [b"%d" % number for number in range(100)]
        for failures in ([None], [ResponseCode.SYSTEM_BUSY, None],
                         [ResponseCode.FLUSH_DISK_TIMEOUT]):
            self.taken.update(a=[], b=[])
            self.failures = [*failures]
            self.assertEqual(self.sent(rows_of("t", bodies), batchSize="10"), 100)
            self.assertEqual(set(self.all_taken()), set(bodies), msg=str(failures))

    def test_a_slave_that_is_away_is_waited_for(self) -> None:
        """The restart of a synchronous pair takes more than a few attempts."""
        for code in (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE):
            self.taken.update(a=[], b=[])
            self.failures = [code] * 4
            self.assertEqual(self.sent(rows_of("t", [b"1"])), 1)
            self.assertEqual(self.all_taken(), [b"1"])
        self.failures = [ResponseCode.SLAVE_NOT_AVAILABLE] * 4
        error = str(self.assertRaises(WriteFailed, self.sent, rows_of("t", [b"1"]),
                                      serverWaitMs="0"))
        self.assertIn("stored, but SLAVE_NOT_AVAILABLE, tried 3 times", error)

    def test_not_waited_for(self) -> None:
        """With waitStoreOK=false a stored row is not sent again."""
        self.failures = [ResponseCode.FLUSH_DISK_TIMEOUT]
        self.assertEqual(self.sent(rows_of("t", [b"1"]), waitStoreOK="false"), 1)
        self.assertEqual(self.all_taken(), [b"1"])

    def test_the_error_names_partition_rows_topic_and_cause(self) -> None:
        """The error names partition, rows, topic and cause."""
        self.failures = [ResponseCode.SYSTEM_BUSY] * 99
        error = str(self.assertRaises(WriteFailed, self.sent, rows_of("t", [b"1", b"2"]),
                                      serverWaitMs="0"))
        self.assertIn("partition 3, 2 rows from row 0 on, topic t: ", error)
        self.assertIn("not now, tried 3 times", error)

    def test_refused_row(self) -> None:
        """The row that causes the refusal of a batch is found."""
        bodies = [b"1", b"2", self.poison, b"4"]
        error = str(self.assertRaises(WriteFailed, self.sent, rows_of("t", bodies)))
        self.assertIn("partition 3, row 2, topic t: ", error)
        self.assertIn("answered 13: poison", error)

    def test_rows_of_a_sharding_key_stay_in_order(self) -> None:
        """This is so even if one of their sends fails."""
        bodies = [b"%03d" % number for number in range(200)]
        self.failures = [0, ResponseCode.SYSTEM_BUSY, 0, 0, ResponseCode.SYSTEM_BUSY]
        self.sent(rows_of("t", bodies, key="customer"), batchSize="7")
        self.assertEqual(self.all_taken(), bodies)

    def test_a_queue_that_the_topic_does_not_have(self) -> None:
        """The topic does not have the queue."""
        self.sent(rows_of("t", [b"1"], queue_id=1))
        error = str(self.assertRaises(WriteFailed, self.sent, rows_of("t", [b"1"], queue_id=2)))
        self.assertIn("row 0, topic t: column queueId: the topic has no queue 2", error)


class WriteTests(SourceCase):
    """The method ``df.write``."""

    def write(self, frame: Any, **options: str) -> None:
        frame.write.format("rocketmq").options(**self.box.options, **options).mode(
            "append").save()

    def error(  # type: ignore[override]
        self, schema: Any, rows: list[dict[str, Any]] | None = None, *, overwrite: bool = False,
        **options: str,
    ) -> str:
        """Return the error of a write that fails, without Spark."""
        given = {name.lower(): value for name, value in {**self.box.options, **options}.items()}
        try:
            writer: Any = RocketMQDataSource(given).writer(schema, overwrite)
            pickle.loads(pickle.dumps(writer)).write(iter([pa.RecordBatch.from_pylist(rows)]))
        except Exception as error:
            return str(error)
        return self.fail("the write did not fail")  # type: ignore[no-any-return]

    def test_round_trip(self) -> None:
        """A DataFrame that is written and read is equal in every column."""
        frame = spark_session().range(500).selectExpr(
            "encode(concat('body ', id), 'UTF-8') AS body", "concat('t', id % 3) AS tags",
            "array(concat('k', id), 'all') AS keys", "cast(id AS int) AS flag",
            "cast(id % 4 AS int) AS queueId", "concat('s', id % 7) AS shardingKey",
            "map('mine', string(id), 'größe', 'ja', 'UNIQ_KEY', concat('U', id)) AS properties")
        self.write(frame, topic="back")
        columns = [name for name in frame.columns if name != "properties"]
        back = spark_session().read.format("rocketmq").options(
            **self.box.options, subscribe="back",
            columns=f"{','.join(columns)},properties,msgId").load()
        found = {row.msgId: row for row in back.collect()}
        self.assertEqual(len(found), 500)
        for row in frame.collect():
            other = found[row.properties["UNIQ_KEY"]]
            self.assertEqual([row[name] for name in columns], [other[name] for name in columns])
            expected = {**row.properties, "TAGS": row.tags, "KEYS": " ".join(row["keys"]),
                        "__SHARDINGKEY": row.shardingKey}
            # The broker adds some of its own.
            self.assertEqual(expected, {name: other.properties[name] for name in expected})
        self.assertEqual(back.count(), 500)

    def test_new_topic(self) -> None:
        """The topic is created, and each row is sent once."""
        self.write(spark_session().range(3000).selectExpr("string(id) AS body"), topic="made")
        self.assertEqual(sorted(int(one.body) for one in self.box.stored("made")),
                         list(range(3000)))

    def test_wrong_columns_and_options(self) -> None:
        """Wrong columns and options, a refused row, and a missing broker are reported."""
        body, row = schema_of(body="string"), [{"body": "x"}]
        self.assertIn("column size: the sink knows no such column",
                      self.error(schema_of(body="string", size="int"), topic="T"))
        self.assertIn("option topic: missing", self.error(body))
        self.assertIn("option subscribe: it has no meaning in write",
                      self.error(body, subscribe="T"))
        self.assertIn("option mode", self.error(body, overwrite=True, topic="T"))
        rows = [{"body": "x", "topic": "a b" if index == 5 else "T"} for index in range(9)]
        self.assertIn("partition 0, row 5: column topic: a b",
                      self.error(schema_of(body="string", topic="string"), rows))
        self.box.options = {"nameServer": "127.0.0.1:9"}
        self.assertIn("no name server answers: connect to 127.0.0.1:9 failed: ",
                      self.error(body, row, topic="T", retryTimes="0"))


    def test_marks_of_jobs(self) -> None:
        """Two jobs have different marks; two attempts of a task have the same one."""
        def marks(writer: Any) -> set[str]:
            known = {one.physical_offset for one in self.box.stored("marked")}
            pickle.loads(pickle.dumps(writer)).write(iter([
                pa.RecordBatch.from_pylist([{"body": "x"}] * 5)]))
            return {one.properties_map()["mark"] for one in self.box.stored("marked")
                    if one.physical_offset not in known}

        self.box.fill("marked", [1])
        options = {"nameserver": self.box.options["nameServer"], "topic": "marked",
                   "idempotencekey": "mark"}
        one, other = (RocketMQDataSource(options).writer(schema_of(body="string"), False)
                      for _ in range(2))
        found = [marks(one), marks(one), marks(other)]
        self.assertEqual(found[0], found[1])
        self.assertEqual(len(found[0] | found[2]), 10)


class StreamWriteTests(SourceCase):
    """The method ``df.writeStream``."""

    def test_from_topic_to_topic(self) -> None:
        """A stream is written as it is read; the mark of each row tells its micro-batch."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        stream = spark_session().readStream.format("rocketmq").options(
            **self.box.options, subscribe="orders", startingOffsets="earliest",
            maxOffsetsPerTrigger="60").load()
        query = stream.select("body", "queueId").writeStream.format("rocketmq").options(
            **self.box.options, topic="copy", idempotenceKey="mark",
            checkpointLocation=str(folder)).trigger(availableNow=True).start()
        self.addCleanup(query.stop)
        self.assertTrue(query.awaitTermination(60))
        found = self.box.stored("copy")
        self.assertEqual(sorted((one.queue_id, one.body) for one in found),
                         sorted((queue_id, body) for queue_id, _, body in self.sent))
        marks = [one.properties_map()["mark"] for one in found]
        self.assertEqual(len(set(marks)), len(marks))
        self.assertEqual({tuple(mark.split(":")[:2]) for mark in marks},
                         {(query.id, str(batch)) for batch in range(3)})
