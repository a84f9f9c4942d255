"""The export job: its output, and the output of a second run."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import spark_session
from twistmq.broker.testing.in_process_broker import RunningBroker, running_broker
from twistmq.client import Message, Producer
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.trace_records import Pub, encode_records
from twistmq.spark_bridge import export_job
from twistmq.spark_bridge.export_job import NO_WORKER, STARTS, ExportJob, TableSummary, waiting
from twistmq.spark_bridge.export_plan import ExportError, ExportPlan

TOPICS = ("orders", "refunds")


class ExportJobTests(SynchronousTestCase):
    """Runs of the job with a broker."""

    def setUp(self) -> None:
        self.session = spark_session()
        self.output = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.progress: list[tuple[int, int | None]] = []
        #: Of queries that a test makes, by number.
        self.progresses: dict[int, list[Any]] = {}

    def send(self, producer: Producer, first: int, count: int) -> None:
        """Send numbered messages to both topics, and traces of them."""
        for number in range(first, first + count):
            topic = TOPICS[number % 2]
            producer.send(topic, b"%d" % number, tags="t")
            if number % 10 == 0:
                producer.send(Message("RMQ_SYS_TRACE_TOPIC", encode_records([
                    Pub(1_700_000_000_000, None, "P", topic, f"ID{number}", None, None, None, 1, 1,
                        0, None, True)])))

    def plan(self, broker: RunningBroker, format_name: str = "parquet", traces: bool = True
             ) -> ExportPlan:
        return ExportPlan({"nameServer": broker.namesrv_address}, TOPICS, traces, str(self.output),
                          format_name, batch_messages=25)

    def run_job(self, plan: ExportPlan) -> list[TableSummary]:
        self.progress.clear()
        return ExportJob(plan, self.session, lambda *step: self.progress.append(step)).run()

    def numbers(self, frame: Any) -> Counter[tuple[str, int]]:
        return Counter((row["topic"], int(bytes(row["body"]))) for row in frame.collect())

    def wanted(self, count: int) -> Counter[tuple[str, int]]:
        return Counter((TOPICS[number % 2], number) for number in range(count))

    def test_a_first_run_has_all_there_is(self) -> None:
        """The next run adds the new messages; the summary has their number."""
        with running_broker({"traceTopicEnable": "true"}) as broker, \
                Producer([broker.namesrv_address]) as producer:
            self.send(producer, 0, 60)
            messages, traces = self.run_job(self.plan(broker))
            self.assertEqual((messages.rows, messages.rows_by, traces.rows),
                             (60, {"orders": 30, "refunds": 30}, 6))
            self.assertEqual(sum(traces.rows_by.values()), 6)
            self.assertEqual(self.progress[-1], (66, 0))
            self.assertEqual([done for done, left in self.progress if left == 0], [66])
            self.assertGreater(len(self.progress), 1)
            self.send(producer, 60, 10)
            messages, traces = self.run_job(self.plan(broker))
            self.assertEqual((messages.rows, messages.rows_by, traces.rows),
                             (10, {"orders": 5, "refunds": 5}, 1))
            messages, traces = self.run_job(self.plan(broker))
            self.assertEqual((messages.rows, messages.files, traces.files), (0, 0, 0))
        frame = self.session.read.parquet(str(self.output / "messages"))
        self.assertEqual(self.numbers(frame), self.wanted(70))
        self.assertEqual(frame.where("date = to_date(storeTimestamp)").count(), 70)
        self.assertEqual({path.name for path in (self.output / "messages").glob("topic=*")},
                         {"topic=orders", "topic=refunds"})

    def test_a_delta_table_is_written_without_a_jar(self) -> None:
        """A Delta table needs no jar."""
        if find_spec("deltalake") is None:
            raise SkipTest("the extra delta is not installed")
        from deltalake import DeltaTable

        path = self.both_runs("delta") / "messages"
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        self.assertEqual(Counter((row["topic"], int(row["body"])) for row in rows),
                         self.wanted(40))
        self.assertEqual(DeltaTable(path).metadata().partition_columns, ["topic", "date"])

    def test_an_iceberg_table_is_written_without_a_jar(self) -> None:
        """An Iceberg table needs no jar."""
        if find_spec("pyiceberg") is None:
            raise SkipTest("the extra iceberg is not installed")
        from pyiceberg.catalog.sql import SqlCatalog

        root = self.both_runs("iceberg")
        catalog = SqlCatalog("twistmq", uri=f"sqlite:///{root}/catalog.db")
        table = catalog.load_table("twistmq.messages")
        rows = table.scan().to_arrow().to_pylist()
        self.assertEqual(Counter((row["topic"], int(row["body"])) for row in rows),
                         self.wanted(40))
        self.assertEqual([field.name for field in table.spec().fields], ["topic", "date"])

    def both_runs(self, format_name: str) -> Path:
        """Make two runs; the last micro-batch of the first is written a second time."""
        from twistmq.spark_bridge import export_sinks

        with running_broker() as broker, Producer([broker.namesrv_address]) as producer:
            self.send_plain(producer, 0, 30)
            plan = self.plan(broker, format_name, traces=False)
            (found,) = self.run_job(plan)
            self.assertEqual((found.rows, found.rows_by), (30, {"orders": 15, "refunds": 15}))
            append = export_sinks._append_delta if format_name == "delta" \
                else export_sinks._append_iceberg
            rows = self.session.createDataFrame([("orders", "2026-01-01")],
                                                "topic STRING, date STRING").toArrow()
            append(plan, "messages", rows, 1)
            self.send_plain(producer, 30, 10)
            (found,) = self.run_job(plan)
            self.assertEqual(found.rows, 10)
        return self.output

    def send_plain(self, producer: Producer, first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.send(TOPICS[number % 2], b"%d" % number)

    def job_of(self, ends: list[tuple[str | None, int]]) -> tuple[ExportJob, list[object]]:
        """Return a job whose queries end with this error after a number of micro-batches.

        :returns: it and a list of the queries that it has started.
        """
        made: list[object] = []
        batches = 0

        def start(*_: object) -> Any:
            nonlocal batches
            error, count = ends[len(made)]
            done = [{"batchId": batches + number, "numInputRows": 2,
                     "sources": [{"endOffset": None, "latestOffset": None}]}
                    for number in range(count)]
            batches += count
            done = self.progresses.get(len(made), done)
            made.append(mock.Mock(isActive=False, recentProgress=done,
                                  lastProgress=done[-1] if done else None,
                                  exception=mock.Mock(return_value=error)))
            return made[-1]

        job = ExportJob(ExportPlan({}, TOPICS, False, str(self.output), "parquet"), self.session,
                        lambda *step: None)
        for target, name, value in ((export_job, "start_writing", start),
                                    (export_job, "written_files", lambda *_: {}),
                                    (job, "_frame", mock.Mock())):
            self.patch(target, name, value)
        return job, made

    def test_a_query_whose_worker_did_not_start_in_time_starts_again(self) -> None:
        """It starts again a limited number of times without progress."""
        late = f"Job aborted. {NO_WORKER}."
        ends = [*[(late, 0)] * (STARTS - 1), (late, 3), *[(late, 0)] * (STARTS - 2), (None, 1)]
        job, made = self.job_of(ends)
        (found,) = job.run()
        self.assertEqual((len(made), found.rows), (len(ends), 8))

    def test_a_query_whose_workers_never_start_ends_the_job(self) -> None:
        """The error has the reason."""
        job, made = self.job_of([(f"Job aborted. {NO_WORKER}.", 0)] * (STARTS + 1))
        self.assertIn(NO_WORKER, str(self.assertRaises(ExportError, job.run)))
        self.assertEqual(len(made), STARTS)

    def test_an_error_of_a_query_ends_the_job_at_once(self) -> None:
        """Spark's other errors do not go away by another start."""
        job, made = self.job_of([("no such topic", 0)] * 2)
        self.assertIn("no such topic", str(self.assertRaises(ExportError, job.run)))
        self.assertEqual(len(made), 1)

    def test_a_spark_that_ends_a_query_early(self) -> None:
        """Queries are repeated until they reach the ends of the queues at the start of the job."""
        queue = MessageQueue("orders", "a", 0)
        for ends, starts in (
                (((25, 25), (50, 25), (60, 10), (70, 10)), 3), (((60, 60),), 1), (((90, 90),), 1),
                # A micro-batch whose messages give no row goes on; a query that stays ends the job.
                (((25, 0), (60, 35)), 2), (((25, 25), (25, 0), (60, 1)), 2), (((None, 0),), 1),
                # The second query ends without having said anything.
                (((25, 25), None, (60, 1)), 2)):
            job, made = self.job_of([(None, 0)] * len(ends))
            told = [(number, one) for number, one in enumerate(ends) if one is not None]
            for number, (offset, rows) in told:
                end = json.dumps(None if offset is None else {"orders": {"a": {"0": offset}}})
                self.progresses[number] = [{"batchId": number, "numInputRows": rows, "sources": [
                    {"startOffset": None, "endOffset": end, "latestOffset": "null"}]}]
            self.patch(export_job, "HAS_READ_LIMITS", False)
            self.patch(export_job, "ends_of", lambda *_: {queue: 60})
            (found,) = job.run()
            self.assertEqual((len(made), found.rows), (
                starts, sum(one[1] for number, one in told if number < starts)), msg=str(ends))
            self.progresses.clear()

    def test_what_waits(self) -> None:
        """The number of waiting messages is unknown if Spark does not know it."""
        ends = '{"T":{"b":{"0":5,"1":7}}}'
        for end, latest, wanted in (
                (ends, '{"T":{"b":{"0":9,"1":7}},"U":{"b":{"0":3}}}', 7), (ends, ends, 0),
                (ends, "null", None), (None, None, None), (ends, None, None)):
            self.assertEqual(waiting({"endOffset": end, "latestOffset": latest}), wanted)

    def test_a_topic_that_is_not_there_ends_the_job(self) -> None:
        """The error names the topic."""
        with running_broker() as broker:
            error = self.assertRaises(ExportError, self.run_job, self.plan(broker, traces=False))
        self.assertIn("messages: ", str(error))
        self.assertIn("orders", str(error))
