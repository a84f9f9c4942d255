"""``format("rocketmq_trace")`` and the view of messages, in a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.logs import LogWriter
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import spark_session
from twistmq.broker.testing.in_process_broker import running_broker
from twistmq.client import Producer
from twistmq.protocol.trace_records import EndTransaction, Pub, SubAfter, SubBefore, encode_records

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
T0 = 1_700_000_000_000


def pub(message_id: str, at: int, success: bool = True, kind: int = 0) -> Pub:
    return Pub(T0 + at, "R", "P", "orders", message_id, "paid", "k", "10.0.0.1:10911", 5, 2, kind,
               "OFF" + message_id, success)


def before(message_id: str, request: str, at: int, retry: int = 0) -> SubBefore:
    return SubBefore(T0 + at, None, "C", request, message_id, retry, None)


def after(message_id: str, request: str, at: int | None, success: bool, cost: int = 4) -> SubAfter:
    return SubAfter(request, message_id, cost, success, None, 0 if success else 4,
                    None if at is None else T0 + at, None if at is None else "C")


BODIES = (
    # sent, failed once at a consumer, then consumed
    encode_records([pub("A", 0), pub("B,C", 10)]),
    encode_records([before("A", "r1", 30), after("A", "r1", 40, False)]),
    encode_records([before("A", "r2", 100, 1), after("A", "r2", 120, True)]),
    # a batch: consumed together; the end's time is not in the short form
    encode_records([before("B", "r3", 50), before("C", "r3", 50), after("B", "r3", None, True)]),
    # a transaction; the first send failed
    encode_records([pub("D", 5, False, 1), pub("D", 200, True, 1)]),
    encode_records([EndTransaction(T0 + 300, "R", "P", "orders", "D", "paid", "k",
                                   "10.0.0.1:10911", 2, "TX", "COMMIT_MESSAGE", False)]),
    # a consumption of a message whose send was not traced
    encode_records([after("E", "r4", 500, True)]),
)
COLUMNS = ("topic", "tags", "msgType", "producerGroup", "sendCount", "sendSuccess",
           "transactionState", "consumeCount", "failedCount", "endToEndMs")
WANTED = {
    "A": ("orders", "paid", "NORMAL", "P", 1, True, None, 2, 1, 120),
    "B": ("orders", "paid", "NORMAL", "P", 1, True, None, 1, 0, 44),
    "C": ("orders", "paid", "NORMAL", "P", 1, True, None, 1, 0, None),
    "D": ("orders", "paid", "TRANSACTION_HALF", "P", 2, True, "COMMIT_MESSAGE", 0, 0, None),
    "E": (None, None, None, None, None, None, None, 1, 0, None),
}


class TraceSourceTests(SynchronousTestCase):
    """Traces from a broker and from its files."""

    def setUp(self) -> None:
        self.spark = spark_session()

    def view(self, frame: Any) -> dict[str, tuple[Any, ...]]:
        """The view's rows, some columns of each, by message."""
        from twistmq.spark_bridge.trace_view import messages_of_traces

        rows = messages_of_traces(frame).collect()
        self.assertEqual(len(rows), len({row["msgId"] for row in rows}))
        self.consumptions = {row["msgId"]: row["consumptions"] for row in rows}
        return {row["msgId"]: tuple(row[name] for name in COLUMNS) for row in rows}

    def test_from_a_broker(self) -> None:
        """The same events in a batch and in a stream; the view has one row a message."""
        with running_broker({"traceTopicEnable": "true"}) as broker, \
                Producer([broker.namesrv_address]) as producer:
            for body in BODIES:
                producer.send(TRACE_TOPIC, body)
            frame = self.spark.read.format("rocketmq_trace").option(
                "nameServer", broker.namesrv_address).load()
            events = sorted(map(str, frame.collect()))
            self.assertEqual(len(events), 13)
            self.assertEqual(self.view(frame), WANTED)
            self.assertEqual(
                [(one["group"], one["success"], one["retryTimes"], one["contextCode"])
                 for one in self.consumptions["A"]],
                [("C", False, 0, "FAILED"), ("C", True, 1, "SUCCESS")])
            query = self.spark.readStream.format("rocketmq_trace").option(
                "nameServer", broker.namesrv_address).option("startingOffsets", "earliest").load(
            ).writeStream.format("memory").queryName("traces").trigger(availableNow=True).option(
                "checkpointLocation", str(Path(self.mktemp()).absolute())).start()  # type: ignore[no-untyped-call]
            query.awaitTermination()
            self.assertEqual(sorted(map(str, self.spark.table("traces").collect())), events)
            same = self.spark.read.format("rocketmq").options(
                nameServer=broker.namesrv_address, traceView="true").load()
            self.assertEqual((same.schema, sorted(map(str, same.collect()))),
                             (frame.schema, events))
            few = self.spark.read.format("rocketmq_trace").options(
                nameServer=broker.namesrv_address, columns="msgId,traceType").load()
            self.assertEqual(sorted((row[0], row[1]) for row in few.where("traceType = 'Pub'")
                                    .collect()), [("A", "Pub"), ("B,C", "Pub"), ("D", "Pub"),
                                                  ("D", "Pub")])

    def test_from_files(self) -> None:
        """With a path, traces are read out of commit-log files."""
        log = LogWriter(Path(self.mktemp()).absolute())  # type: ignore[no-untyped-call]
        log.add("orders", b"no trace")
        for body in BODIES:
            log.add(TRACE_TOPIC, body, born_ms=T0)
        frame = self.spark.read.format("rocketmq_trace").load(str(log.directory))
        self.assertEqual(self.view(frame), WANTED)

    def test_options_without_meaning(self) -> None:
        """They are refused by name, and so are unknown columns."""
        from pyspark.errors import PySparkException

        for name, value in (("bodyFormat", "string"), ("propertiesAs", "string"),
                            ("columns", "body")):
            error = self.assertRaises(PySparkException, lambda name=name, value=value: (
                self.spark.read.format("rocketmq_trace").options(
                    nameServer="127.0.0.1:1", **{name: value}).load().collect()))
            self.assertIn(f"option {name}", str(error))
