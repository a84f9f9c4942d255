"""The conversion of rows to messages."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge.topics import pa, schema_of
from twistmq.integrations.tables.options import BATCH_WRITE, OptionError, Options
from twistmq.spark_bridge.rows import OutgoingRow, RowError, RowReader, check_schema

MAP = pa.map_(pa.string(), pa.string())


class RowReaderTests(SynchronousTestCase):
    """The part of a message for each column."""

    def rows(self, columns: dict[str, Any], **options: str) -> list[OutgoingRow]:
        ids = count(1)
        reader = RowReader(Options({"topic": "T", **options}, BATCH_WRITE),
                           lambda: f"ID{next(ids)}", "7:3")
        return list(reader.rows(pa.RecordBatch.from_pydict(columns)))

    def error(self, columns: dict[str, Any], **options: str) -> str:
        return str(self.assertRaises(RowError, self.rows, columns, **options))

    def test_each_column_reaches_its_place_in_the_message(self) -> None:
        """A null is left out."""
        moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
        [row, bare] = self.rows({
            "body": [b"\xff", b"x"], "tags": ["t", None], "keys": [["k1", "k2"], None],
            "properties": pa.array([[("a", "1"), ("TAGS", "loses"), ("n", None)], None], MAP),
            "queueId": [3, None], "shardingKey": ["s", None], "delayLevel": [4, None],
            "deliverTime": [moment, None], "flag": [9, None]})
        self.assertEqual((row.message.topic, row.message.body, row.message.flag), ("T", b"\xff", 9))
        self.assertEqual(row.message.properties, {
            "a": "1", "TAGS": "t", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "DELAY": "4",
            "TIMER_DELIVER_MS": str(round(moment.timestamp() * 1000)), "UNIQ_KEY": "ID1"})
        self.assertEqual((row.queue_id, row.sharding_key, row.fits_batch), (3, "s", False))
        self.assertEqual(bare.message.properties, {"UNIQ_KEY": "ID2"})
        self.assertEqual((bare.queue_id, bare.sharding_key, bare.fits_batch), (None, None, True))

    def test_a_body_of_text_is_utf_8(self) -> None:
        """A body may be text in UTF-8, keys may be one text, and the topic may be a column."""
        [row] = self.rows({"body": ["größe"], "keys": ["k1 k2"], "topic": ["U"]}, topic="")
        self.assertEqual((row.message.topic, row.message.body, row.message.properties["KEYS"]),
                         ("U", "größe".encode(), "k1 k2"))

    def test_own_id(self) -> None:
        """A unique id in the properties is kept."""
        [row] = self.rows({"body": [b"x"], "properties": pa.array([[("UNIQ_KEY", "mine")]], MAP)})
        self.assertEqual(row.message.properties["UNIQ_KEY"], "mine")

    def test_options_reach_the_messages(self) -> None:
        """The options set compression, waiting, and the mark against duplicates."""
        body = b"x" * 1000
        rows = self.rows({"body": [body, b"y"]}, compressThreshold="100", waitStoreOK="false",
                         idempotenceKey="sent")
        self.assertEqual(zlib.decompress(rows[0].message.body), body)
        self.assertEqual((rows[0].message.sys_flag, rows[1].message.sys_flag), (0x301, 0))
        self.assertEqual([row.fits_batch for row in rows], [False, True])
        self.assertEqual([row.message.properties["sent"] for row in rows], ["7:3:0", "7:3:1"])
        self.assertEqual(rows[1].message.properties["WAIT"], "false")

    def test_empty_texts_are_as_null(self) -> None:
        """Tags, keys, sharding keys and values of properties that are empty are not there."""
        [row, array] = self.rows({
            "body": [b"x", b"x"], "tags": ["", ""], "shardingKey": ["", ""],
            "keys": [[""], ["a", "", None, "b"]],
            "properties": pa.array([[("x", "")], [("TAGS", ""), ("y", "1")]], MAP)})
        self.assertEqual(row.message.properties, {"UNIQ_KEY": "ID1"})
        self.assertEqual((row.queue_id, row.sharding_key), (None, None))
        self.assertEqual(array.message.properties, {"KEYS": "a b", "y": "1", "UNIQ_KEY": "ID2"})
        [row] = self.rows({"body": [b"x"], "keys": [""]})
        self.assertEqual(row.message.properties, {"UNIQ_KEY": "ID1"})

    def test_a_copy_has_nothing_of_the_first_broker(self) -> None:
        """Only the sender's properties remain, without a delay that is over."""
        mine = {"UNIQ_KEY": "U", "TAGS": "t", "KEYS": "k", "mine": "1", "__SHARDINGKEY": "s",
                "TRACE_CONTEXT": "c", "BUYER_ID": "b"}
        for extra in (
                {"REAL_TOPIC": "T", "REAL_QID": "0", "DELAY": "3"},
                {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": "5", "TIMER_DELAY_MS": "2000",
                 "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "2", "TIMER_ROLL_TIMES": "1"},
                {"TIMER_OUT_MS": "5", "TIMER_DELIVER_MS": "1700000000000"},
                {"TIMER_OUT_MS": "5", "TIMER_DELAY_SEC": "2"},
                {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "O", "DELAY": "-1", "WAIT": "false",
                 "RECONSUME_TIME": "2", "MAX_RECONSUME_TIMES": "16", "DLQ_ORIGIN_TOPIC": "T",
                 "DLQ_ORIGIN_MESSAGE_ID": "O"},
                {"TRAN_MSG": "true", "PGROUP": "p", "__transactionId__": "U",
                 "TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "7"},
                {"1ST_POP_TIME": "1", "POP_CK": "0 0", "CLUSTER": "c", "MSG_REGION": "r",
                 "TRACE_ON": "true"},
                {"INNER_NUM": "2", "INNER_BASE": "0"}):
            [row] = self.rows({"body": [b"x"], "properties": pa.array(
                [list({**mine, **extra}.items())], MAP)})
            self.assertEqual(row.message.properties, mine, msg=str(extra))
            self.assertTrue(row.fits_batch)

    def test_a_copy_may_be_delayed(self) -> None:
        """Columns can delay a copy; properties can delay other messages."""
        [copy, own] = self.rows({
            "body": [b"x", b"x"], "delayLevel": [4, None], "properties": pa.array(
                [[("REAL_TOPIC", "T"), ("DELAY", "3")], [("DELAY", "3")]], MAP)})
        self.assertEqual(copy.message.properties, {"DELAY": "4", "UNIQ_KEY": "ID1"})
        self.assertEqual(own.message.properties, {"DELAY": "3", "UNIQ_KEY": "ID2"})

    def test_a_column_marks_rows(self) -> None:
        """The mark of a row is its column; where that is null or empty, its place."""
        rows = self.rows({"body": [b"x"] * 3, "idempotenceKey": ["order 7", None, ""]},
                         idempotenceKey="sent")
        self.assertEqual([row.message.properties["sent"] for row in rows],
                         ["order 7", "7:3:1", "7:3:2"])

    def test_a_wrong_value_names_row_column_and_reason(self) -> None:
        """The error has the row, the column and the reason."""
        def with_map(*pairs: tuple[str, str]) -> dict[str, Any]:
            return {"body": [b"x", b"x"], "properties": pa.array([[], list(pairs)], MAP)}

        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"body": [b"x", None]}, "row 1: column body: it is null"),
            ({"body": [b"x", b""]}, "row 1: column body: it is empty"),
            ({"body": ["x", ""]}, "row 1: column body: it is empty"),
            ({"body": [b"x", b"12345"]}, "row 1: column body: 5 bytes"),
            ({"body": [b"x", b"x"], "queueId": [0, -1]}, "row 1: column queueId: -1"),
            ({"body": [b"x", b"x"], "keys": [["a"], ["a b"]]}, "row 1: column keys"),
            ({"body": [b"x", b"x"], "tags": ["a", "b\x02c"]}, "row 1: property 'TAGS'"),
            ({"body": [b"x", b"x"], "tags": ["a|b c", "b||c"]}, "row 1: tag 'b||c'"),
            ({"body": [b"x", b"x"], "tags": ["a", " b"]}, "row 1: tag ' b'"),
            ({"body": [b"x", b"x"], "tags": ["a", "*"]}, "row 1: tag '*'"),
            (with_map(("TAGS", "a\t")), "row 1: tag 'a\\t'"),
            (with_map(("", "x")), "row 1: property ''"),
            (with_map(("x", "y" * 32767)), "row 1: its properties take"),
        )
        for columns, expected in wrong:
            self.assertIn(expected, self.error(columns, maxMessageSize="4"))
        self.assertIn("row 1: column topic: a b", self.error(
            {"body": [b"x", b"x"], "topic": ["a", "a b"]}, topic=""))
        self.assertIn("row 0: column topic",
                      self.error({"body": [b"x"], "topic": [None]}, topic=""))


class SchemaTests(SynchronousTestCase):
    """The DataFrames that can be written."""

    def error(self, columns: dict[str, str], **options: str) -> str:
        return str(self.assertRaises(OptionError, check_schema, schema_of(**columns),
                                     Options(options, BATCH_WRITE)))

    def test_every_column_type_is_accepted(self) -> None:
        """All columns are accepted with each of their types."""
        rest = {"tags": "string", "properties": "map<string,string>", "queueId": "int",
                "shardingKey": "string", "delayLevel": "int", "deliverTime": "timestamp",
                "flag": "int"}
        for columns in ({"body": "binary"}, {"body": "string", "topic": "string"},
                        {"body": "binary", "keys": "array<string>", **rest},
                        {"body": "binary", "keys": "string"}):
            check_schema(schema_of(**columns), Options({"topic": "T"}, BATCH_WRITE))

    def test_an_unknown_column_or_type_is_refused(self) -> None:
        """An unknown column, a wrong type, or a missing column is refused."""
        body = {"body": "binary"}
        self.assertIn("option idempotenceKey: missing",
                      self.error({**body, "idempotenceKey": "string"}, topic="T"))
        self.assertIn("column size: the sink knows no such column",
                      self.error({**body, "size": "int"}, topic="T"))
        for name, found, rest in (
                ("queueId", "bigint", "int; convert it, as with cast(queueId AS int)"),
                ("body", "bigint", "binary or string; convert it, as with cast(body AS string)"),
                ("body", "struct<a:int>", "binary or string; convert it, as with to_json(body)"),
                ("keys", "array<int>", "convert it, as with cast(keys AS array<string>)"),
                ("properties", "map<string,int>",
                 "convert it, as with cast(properties AS map<string,string>)")):
            text = self.error({**body, name: found}, topic="T")
            self.assertIn(f"column {name}: its type is {found}, not ", text)
            self.assertIn(rest, text)
        self.assertIn("column body: missing", self.error({"topic": "string"}))
        self.assertIn("option topic: missing", self.error(body))
        self.assertIn("option topic: topic a b", self.error(body, topic="a b"))
