"""Topics, stores and traces as streams of record batches, in this process and through DuckDB."""

from __future__ import annotations

import gc
import logging
import os
import threading
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.arrow.case import SOON, ReadCase
from tests.integrations.tables.logs import LogWriter
from tests.integrations.tables.records import row
from twistmq.client import Message
from twistmq.integrations.arrow import (
    BodyUnreadable,
    ColumnsError,
    DataLoss,
    LostFile,
    NothingSince,
    OptionError,
    StoreDamaged,
    StoreError,
    TopicMissing,
    read_messages,
    read_store,
    read_traces,
    reads,
)
from twistmq.integrations.tables import queue_reader
from twistmq.integrations.tables.columns import COLUMNS, TRACE_COLUMNS, arrow_schema
from twistmq.protocol.record import MessageRecord, encode_record
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.protocol.trace_records import Pub, encode_records

EVENT = Pub(1_700_000_000_000, "R", "P", "orders", "A", "paid", "k", "10.0.0.1:10911", 5, 2, 0,
            "OFF", True)


def bodies(reader: Any) -> list[bytes]:
    """Return the bodies that a reader yields."""
    return [body for batch in reader for body in batch.column("body").to_pylist()]


class MessageTests(ReadCase):
    """``read_messages``."""

    def test_rows_and_schema(self) -> None:
        """Each queue is read in its order, with the default columns of the Spark bridge."""
        self.box.fill("orders", [700, 0, 3, 40])
        reader = read_messages(self.name_servers, "orders")
        default = [column for column in COLUMNS if column.is_default]
        self.assertEqual(reader.schema, arrow_schema(default))
        table = reader.read_all()
        table.validate(full=True)
        names = [column.name for column in default]
        wanted = [{name: value for name, value in row(stored, "broker-a").items() if name in names}
                  for stored in (encoded_again(one) for one in self.box.stored("orders"))]
        found = [{**one, "properties": dict(one["properties"])} for one in table.to_pylist()]
        self.assertEqual(found, wanted)
        self.assertEqual(len(found), 743)

    def test_options(self) -> None:
        """An option may have the name and value of Python, or the name and value of the bridge."""
        self.box.fill("orders", [20, 10])
        self.box.send("orders", 2, [b"paid"], TAGS="paid")
        name_servers = self.name_servers
        self.assertEqual(bodies(read_messages(name_servers, "orders", sub_expression="paid")),
                         [b"paid"])
        offsets = {"orders": {"broker-a": {0: 18, 1: 9, 2: 1}}}
        wanted = [b"orders-0-18", b"orders-0-19", b"orders-1-9"]
        self.assertEqual(bodies(read_messages(name_servers, "orders", starting_offsets=offsets)),
                         wanted)
        reader = read_messages(name_servers, "orders", columns=["body", "queueId"],
                               startingOffsets='{"orders":{"broker-a":{"0":18,"1":9,"2":1}}}',
                               bodyFormat="string")
        self.assertEqual(reader.schema.names, ["body", "queueId"])
        self.assertEqual(bodies(reader), [body.decode() for body in wanted])
        later = datetime.now(UTC) + timedelta(hours=1)
        self.assertEqual(len(bodies(read_messages(name_servers, "orders", ending_timestamp=later))),
                         31)
        self.assertEqual(bodies(read_messages(
            name_servers, "orders", starting_timestamp=later,
            starting_offsets_by_timestamp_strategy="latest")), [])
        self.assertEqual(len(bodies(read_messages(
            name_servers, assign={"orders": {"broker-a": [1, 2]}}))), 11)

    def test_several_topics(self) -> None:
        """The topics are given by a list or by a pattern."""
        for topic in ("a1", "a2", "b1"):
            self.box.fill(topic, [2])
        self.assertEqual(len(bodies(read_messages(self.name_servers, ["a1", "b1"]))), 4)
        self.assertEqual(len(bodies(read_messages(self.name_servers, subscribe_pattern="a."))), 4)

    def test_the_environment_names_the_name_servers(self) -> None:
        """The variable NAMESRV_ADDR counts here as it does for every client."""
        self.box.fill("orders", [2])
        self.patch(os, "environ", {**os.environ, "NAMESRV_ADDR": self.name_servers})
        self.assertEqual(len(bodies(read_messages(topic="orders"))), 2)

    def test_mistakes_are_reported_by_the_call(self) -> None:
        """The call raises the error before it reads a message."""
        self.box.fill("orders", [1])
        moment = datetime(2026, 1, 31)
        cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (TopicMissing, "topic nothing: there is no such topic", {"topic": "nothing"}),
            (OptionError, "option subscribe: missing", {"topic": None}),
            (OptionError, "option subscribe: missing", {"topic": []}),
            (OptionError, "startingOffsets is one", {"strating_offsets": "earliest"}),
            (OptionError, "option maxBytesPerTrigger: it has no meaning in read",
             {"max_bytes_per_trigger": 5}),
            (OptionError, "option failOnDataLoss: '1' is neither true nor false",
             {"fail_on_data_loss": 1}),
            (OptionError, "option startingTimestamp: 2026-01-31T00:00:00 has no time zone",
             {"starting_timestamp": moment}),
            (OptionError, "option startingTimestamp: a value of type date has no meaning",
             {"starting_timestamp": moment.date()}),
            (OptionError, "has no time zone", {"starting_offsets_by_timestamp": {
                "orders": {"broker-a": {0: moment}}}}),
            (OptionError, "option columns: ['topic,body']: a name must not contain a comma",
             {"columns": ["topic,body"]}),
            (OptionError, "option pullBatchSize: given twice",
             {"pull_batch_size": 3, "pullBatchSize": 4}),
            (OptionError, "option traceView: it has no meaning here", {"trace_view": True}),
            (ColumnsError, "there is no column 'offset'", {"columns": "offset"}),
            (NothingSince, "no message is stored at",
             {"starting_timestamp": datetime.now(UTC) + timedelta(hours=1)}),
            (OptionError, "option nameServer: no name server answers",
             {"name_servers": "127.0.0.1:1", "fetch_offset_num_retries": 0}),
        ]
        for kind, text, given in cases:
            options = {"name_servers": self.name_servers, "topic": "orders", **given}
            error = self.assertRaises(kind, read_messages, **options)
            self.assertIn(text, str(error))


class SizeTests(ReadCase):
    """The sizes of record batches."""

    def test_batches_have_the_size_of_arrow(self) -> None:
        """The batches are smaller than the batches of Spark, which leaves memory for DuckDB."""
        self.box.fill("orders", [300])
        self.assertLess(reads._BATCH_BYTES, queue_reader.BATCH_BYTES)
        whole = list(read_messages(self.name_servers, "orders", **SOON))
        self.patch(reads, "_BATCH_BYTES", 1000)
        cut = list(read_messages(self.name_servers, "orders", pull_batch_size=32, **SOON))
        self.assertEqual((len(whole), sum(batch.num_rows for batch in cut)), (1, 300))
        self.assertGreater(len(cut), 5)


class StreamTests(ReadCase):
    """A read in progress."""

    def setUp(self) -> None:
        super().setUp()
        self.box.fill("orders", [3000, 3000])
        self.patch(queue_reader, "BATCH_ROWS", 100)

    def started(self, **options: Any) -> Any:
        """Return a reader after its first batch; most of its messages are not fetched yet."""
        reader = read_messages(self.name_servers, "orders", pull_batch_size=32, **SOON, **options)
        self.assertLess(reader.read_next_batch().num_rows, 500)
        return reader

    def test_a_topic_that_is_deleted_meanwhile(self) -> None:
        """The reader itself raises an error with the position."""
        reader = self.started()
        self.delete("orders")
        error = self.assertRaises(DataLoss, reader.read_all)
        self.assertRegex(str(error), "topic orders, broker broker-a, queue 0, offset [0-9]+ is "
                                     "not there: the topic is gone")

    def test_the_rest_is_left_out_if_that_is_wanted(self) -> None:
        """A warning gives the number of messages that are left out."""
        reader = self.started(fail_on_data_loss=False)
        self.delete("orders")
        with self.assertLogs("twistmq.tables", logging.WARNING) as logs:
            self.assertLess(reader.read_all().num_rows, 3000)
        self.assertIn("offsets are skipped", "".join(logs.output))

    def test_a_program_of_another_language_gets_the_text(self) -> None:
        """DuckDB reads by Arrow's C interface, which has texts and no Python errors."""
        duckdb = library("duckdb")
        orders = self.started()
        self.delete("orders")
        with duckdb.connect() as connection:
            connection.register("orders", orders)
            error = self.assertRaises(duckdb.Error, lambda: connection.execute(
                "SELECT count(body) FROM orders").fetchall())
        self.assertIn("topic orders, broker broker-a, queue 0", str(error))

    def test_a_reader_that_is_dropped_closes_its_connections(self) -> None:
        """The program does not have to call a method of the reader."""
        closed = threading.Event()
        close = queue_reader.QueueReader.close
        self.patch(queue_reader.QueueReader, "close", lambda one: (close(one), closed.set()))
        reader = self.started()
        self.assertFalse(closed.is_set())
        del reader
        gc.collect()
        self.assertTrue(closed.wait(10))

    def test_damaged_messages(self) -> None:
        """The read fails, or delivers their rows with the reason."""
        self.box.producer.send(Message("orders", b"no zlib", sys_flag=1),
                               queue=self.box.queue("orders", 0))
        error = self.assertRaises(BodyUnreadable,
                                  read_messages(self.name_servers, "orders").read_all)
        self.assertIn("queue 0, offset 3000", str(error))
        reader = read_messages(self.name_servers, "orders", damaged="deliver")
        table = reader.read_all()
        table.validate(full=True)
        self.assertEqual(table.schema, reader.schema)
        self.assertEqual((table.num_rows, table.column("damage").null_count,
                          table.column("body").null_count), (6001, 6000, 1))


class StoreTests(SynchronousTestCase):
    """``read_store``."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())  # type: ignore[no-untyped-call]
        self.log = LogWriter(self.folder / "commitlog")
        for index in range(400):
            self.log.add("orders" if index % 2 else "refunds", b"%d" % index)

    def test_rows(self) -> None:
        """The rows have the order of the log, and the options of the bridge apply."""
        table = read_store(self.folder, broker_name="b").read_all()
        found = [{**one, "properties": dict(one["properties"])} for one in table.to_pylist()]
        names = {column.name for column in COLUMNS if column.is_default}
        self.assertEqual(found, [
            {name: value for name, value in row(made, "b").items() if name in names}
            for _, made in self.log.written])
        self.assertEqual(bodies(read_store(str(self.folder), topics=["orders"], columns="body")),
                         [b"%d" % index for index in range(1, 400, 2)])

    def test_damage(self) -> None:
        """Damage fails the read, or is skipped with a warning."""
        self.log.put(self.log.written[100][0], b"\xff" * 8)
        error = self.assertRaises(StoreDamaged, read_store(self.folder).read_all)
        self.assertRegex(str(error), r"commitlog/\d{20} is damaged at byte \d+")
        with self.assertLogs("twistmq.tables", logging.WARNING):
            self.assertEqual(len(bodies(read_store(self.folder, fail_on_data_loss=False))), 399)

    def test_files_that_are_gone(self) -> None:
        """The files are removed before the call, or between the call and the read."""
        reader = read_store(self.folder)
        paths = sorted((self.folder / "commitlog").iterdir())
        paths[1].unlink()
        self.assertRaises(LostFile, reader.read_all)
        error = self.assertRaises(LostFile, read_store, self.folder)
        self.assertIn(f"{paths[1].name} is missing between the others", str(error))

    def test_mistakes_are_reported_by_the_call(self) -> None:
        """The mistakes are a folder without a store, and options of brokers."""
        empty = Path(self.mktemp())  # type: ignore[no-untyped-call]
        empty.mkdir()
        self.assertIn("has neither a directory commitlog",
                      str(self.assertRaises(StoreError, read_store, empty)))
        self.assertIn("has none of this name", str(self.assertRaises(
            OptionError, read_store, self.folder, starting_offsets="earliest")))
        self.assertIn("there is no column", str(self.assertRaises(
            ColumnsError, read_store, self.folder, columns=["offset"])))


class TraceTests(ReadCase):
    """``read_traces``."""

    def test_events(self) -> None:
        """The events come from brokers, from a topic of another name, and from the files of a
        store.
        """
        for topic in (TRACE_TOPIC, "own"):
            self.box.producer.send(Message(topic, encode_records([EVENT, EVENT])))
        wanted = [("Pub", "orders", "A", index) for index in range(2)]
        store = self.box.broker.kernel.settings.text("storePathRootDir")
        self.assertEqual(read_traces(self.name_servers).schema, arrow_schema(TRACE_COLUMNS))
        for reader in (read_traces(self.name_servers),
                       read_traces(self.name_servers, topic="own"),
                       read_traces(path=Path(store)),
                       read_traces(path=store, topics=["own"])):
            rows = reader.read_all().to_pylist()
            self.assertEqual([(one["traceType"], one["topic"], one["msgId"], one["eventIndex"])
                              for one in rows], wanted)
        reader = read_traces(self.name_servers, columns=["success", "traceType"])
        self.assertEqual(reader.read_all().to_pylist(),
                         [{"success": True, "traceType": "Pub"}] * 2)

    def test_mistakes_are_reported_by_the_call(self) -> None:
        """A source without traces, two sources, and options of messages are refused."""
        self.assertIn(TRACE_TOPIC, str(self.assertRaises(
            TopicMissing, read_traces, self.name_servers)))
        self.assertIn("only one of name_servers and path", str(self.assertRaises(
            OptionError, read_traces, self.name_servers, path="store")))
        self.assertIn("option bodyFormat: it has no meaning for traces", str(self.assertRaises(
            OptionError, read_traces, self.name_servers, body_format="string")))
        self.assertIn("no column 'body'", str(self.assertRaises(
            ColumnsError, read_traces, self.name_servers, columns="body")))


def encoded_again(stored: Any) -> bytes:
    """Encode a record that was decoded."""
    made = MessageRecord(
        stored.topic, stored.queue_id, stored.body, stored.properties, stored.born_timestamp,
        stored.born_host, stored.store_host, [], flag=stored.flag, sys_flag=stored.sys_flag,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset)
    made.queue_offset, made.physical_offset = stored.queue_offset, stored.physical_offset
    made.store_timestamp = stored.store_timestamp
    return encode_record(made)


def library(name: str) -> Any:
    """Import a library that reads Arrow; :raises SkipTest: when it is not installed."""
    if find_spec(name) is None:
        raise SkipTest(f"the extra arrow is not installed with {name}")
    return import_module(name)
