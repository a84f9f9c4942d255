"""The trace records of every client, and other contents of a trace topic."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceRecord,
    _apart,
    decode_records,
    encode_records,
    record_keys,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "trace"
ID = "FD0000000000000000000000000000023E3A30946E096A9BEF830000"
REQUEST_ID = "FD0000000000000000000000000000023E3A30946E096A9BF6D8000E"


def golden(client: str) -> list[tuple[dict[str, Any], bytes]]:
    """The index rows of one client's captures, with the bytes."""
    rows = json.loads((GOLDEN / "index.json").read_text())["files"]
    return [(row, (GOLDEN / row["file"]).read_bytes()) for row in rows
            if row["file"].startswith(f"{client}/")]


def decoded(text: str) -> TraceRecord:
    """Return the only record of a body that is written with

    and without its end.
    """
    found = decode_records(text.replace("|", "\x01").encode() + b"\x02")
    assert found.bad_count == 0 and len(found.records) == 1, found
    return found.records[0]


class GoldenTests(SynchronousTestCase):
    """The messages that clients stored in the trace topic of Apache's broker."""

    def test_java_records_come_back_as_they_were(self) -> None:
        """Each body of the clients 4.9.4 and 5.3.3 is decoded and encoded to the same bytes."""
        for client in ("java-4.9.4", "java-5.3.3"):
            for row, body in golden(client):
                found = decode_records(body)
                self.assertEqual(found.bad_count, 0, msg=row["file"])
                self.assertEqual(encode_records(found.records), body, msg=row["file"])

    def test_every_kind_is_there(self) -> None:
        """The captures hold each kind of record the client writes."""
        kinds = {client: Counter(type(record) for _, body in golden(client)
                                 for record in decode_records(body).records)
                 for client in ("java-4.9.4", "java-5.3.3", "go-2.1.2")}
        for client, wanted in (
            ("java-4.9.4", {Pub, SubBefore, SubAfter, EndTransaction}),
            ("java-5.3.3", {Pub, SubBefore, SubAfter, EndTransaction, Recall}),
            ("go-2.1.2", {Pub, SubBefore, SubAfter}),
        ):
            self.assertEqual(set(kinds[client]), wanted, msg=client)

    def test_keys_are_those_of_the_message(self) -> None:
        """The property KEYS has the keys by which its records are found."""
        for client in ("java-4.9.4", "java-5.3.3", "go-2.1.2"):
            for row, body in golden(client):
                found = {key for record in decode_records(body).records
                         for key in record_keys(record)}
                self.assertEqual(found, set(row["keys"].split()), msg=row["file"])

    def test_a_java_record_of_each_kind(self) -> None:
        """Each field has its meaning, and the records have the names of the capture."""
        records = [record for _, body in golden("java-5.3.3")
                   for record in decode_records(body).records]
        pub, bare = [record for record in records if isinstance(record, Pub)][:2]
        self.assertEqual(pub, Pub(
            1795279804292, "DefaultRegion", "TraceP", "GoldenTrace50", ID, "TagA", "k1 k2",
            "127.0.0.1:32911", 6, 264, MessageType.NORMAL, "7F0000010000808F0000000000003A5D",
            True))
        self.assertEqual((bare.tags, bare.keys), (None, None))
        self.assertIn(SubBefore(1795279806169, "DefaultRegion", "TraceC", REQUEST_ID, ID, 0,
                                "k1 k2"), records)
        self.assertIn(SubAfter(REQUEST_ID, ID, 3, False, "k1 k2", ContextCode.FAILED,
                               1795279806172, "TraceC"), records)
        [end] = [record for record in records if isinstance(record, EndTransaction)
                 and record.state == "ROLLBACK_MESSAGE"]
        self.assertEqual(
            (end.group, end.keys, end.message_type, end.transaction_id, end.from_check),
            ("TraceTxP", "tx2", MessageType.TRANSACTION_COMMIT, end.message_id, False))
        [recall] = [record for record in records if isinstance(record, Recall)]
        self.assertEqual((recall.time_ms, recall.group, recall.topic, recall.success),
                         (1795279816371, "TraceRecallP", "GoldenTrace52", True))
        [cloud] = [record for record in records if isinstance(record, SubAfter)
                   and record.request_id.endswith("3CEF0010")]
        self.assertEqual((cloud.context_code, cloud.time_ms, cloud.group), (0, None, None))

    def test_go_records(self) -> None:
        """The Go client adds its host, and writes absent texts empty or as null."""
        (_, sent), (_, consumed) = golden("go-2.1.2")
        tagged, bare = decode_records(sent).records
        assert isinstance(tagged, Pub) and isinstance(bare, Pub)
        self.assertEqual((tagged.group, tagged.success, tagged.client_host),
                         ("TraceGoP", True, "192.0.2.2"))
        self.assertEqual((bare.tags, bare.keys, bare.body_length), ("", "", 4))
        before = decode_records(consumed).records[0]
        assert isinstance(before, SubBefore)
        self.assertEqual((before.keys, before.client_host), ("k1 k2", "192.0.2.2"))


class FormTests(SynchronousTestCase):
    """Forms of clients that are not captured, from the encoders of their releases."""

    def test_pub_without_offset_id(self) -> None:
        """In the oldest form the success is at the place of the later offset message id."""
        record = decoded("Pub|1|R|g|T|i|t|k|h:1|5|2|0|true")
        self.assertEqual(record, Pub(1, "R", "g", "T", "i", "t", "k", "h:1", 5, 2, 0, None, True))

    def test_4_8_0_has_the_client_at_the_end(self) -> None:
        """Pub and SubBefore had one more field for a while."""
        pub = decoded("Pub|1|R|g|T|i|t|k|h:1|5|2|0|o|true|10.0.0.1")
        before = decoded("SubBefore|1|R|g|q|i|3|k|10.0.0.1")
        assert isinstance(pub, Pub) and isinstance(before, SubBefore)
        self.assertEqual((pub.client_host, before.client_host), ("10.0.0.1", "10.0.0.1"))

    def test_short_sub_after(self) -> None:
        """Without context code, without time and group, and with all."""
        base = ("q", "i", 2, True, "k")
        self.assertEqual(decoded("SubAfter|q|i|2|true|k"), SubAfter(*base, None))
        self.assertEqual(decoded("SubAfter|q|i|2|true|k|4"), SubAfter(*base, 4))
        self.assertEqual(decoded("SubAfter|q|i|2|true|k|4|"), SubAfter(*base, 4))
        self.assertEqual(decoded("SubAfter|q|i|2|true|k|4|9|g"), SubAfter(*base, 4, 9, "g"))

    def test_sub_after_that_is_not_closed(self) -> None:
        """In the channel CLOUD of 4.9.5 to 5.3.0 the next record follows directly."""
        text = "SubAfter|q|i|2|true|k|0|SubAfter|q|j|2|true|null|0|SubBefore|1|R|g|p|l|0|null"
        found = decode_records(text.replace("|", "\x01").encode() + b"\x02")
        self.assertEqual(found.records, [
            SubAfter("q", "i", 2, True, "k", 0), SubAfter("q", "j", 2, True, None, 0),
            SubBefore(1, "R", "g", "p", "l", 0, None)])
        self.assertEqual(found.bad_count, 0)

    def test_newer_records(self) -> None:
        """Additional fields and new ordinals do not invalidate a record."""
        pub = decoded("Pub|1|R|g|T|i|t|k|h:1|5|2|17|o|true|c|new|newer")
        assert isinstance(pub, Pub)
        self.assertEqual((pub.message_type, pub.client_host), (17, "c"))


class _Fields(list[str]):
    """Fields that count how many of them are copied."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            _Fields.copied += len(found)
            return _Fields(found)
        return found


class JunkTests(SynchronousTestCase):
    """Data that is not a record is skipped."""

    def test_bad_records_are_passed_over(self) -> None:
        """Good ones around them are read, and the bad ones counted."""
        good = encode_records([Recall(1, "R", "g", "T", "i", True)])
        bad = [b"", b"\x01", b"Pub", b"Nonsense\x01a", b"Recall\x01x\x01R\x01g\x01T\x01i\x01true",
               b"Recall\x01" + "\u0661".encode() + b"\x01R\x01g\x01T\x01i\x01true", b"\xff\xfe"]
        found = decode_records(good + b"\x02".join(bad) + b"\x02" + good)
        self.assertEqual(found.records, decode_records(good).records * 2)
        self.assertEqual(found.bad_count, len(bad) - 1)  # the empty one is nothing

    def test_records_that_are_not_closed_are_read_in_linear_time(self) -> None:
        """Each field is copied once, however many records follow each other without an end."""
        fields = _Fields(["SubAfter", "r", "m", "1", "true", "k", "0"] * 1000)
        found = _apart(fields)
        self.assertEqual((len(found), sum(map(len, found))), (1000, 7000))
        # Compiled code does not ask the class: then nothing is counted.
        self.assertLessEqual(_Fields.copied, 7000)

    @given(st.binary())
    def test_no_bytes_make_it_fail(self, body: bytes) -> None:
        """Random bytes are read without an exception."""
        found = decode_records(body)
        self.assertLessEqual(len(found.records), body.count(b"\x02") + 1)

    @given(st.lists(st.sampled_from(
        ["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall", "1", "-", "true", "null", ""]),
        max_size=40))
    def test_no_fields_make_it_fail(self, fields: list[str]) -> None:
        """So are fields in any order; each record read can be written and read again."""
        found = decode_records("\x01".join(fields).encode())
        again = decode_records(encode_records(found.records))
        self.assertEqual((len(again.records), again.bad_count), (len(found.records), 0))


class WriteTests(SynchronousTestCase):
    """Records that are written."""

    def test_separators_in_texts(self) -> None:
        """A key cannot contain another record."""
        record = Recall(1, None, "g", "T\x02Recall\x011", "i\x01j", False)
        self.assertEqual(encode_records([record]),
                         b"Recall\x011\x01null\x01g\x01T Recall 1\x01i j\x01false\x02")

    def test_enumerations_are_numbers(self) -> None:
        """Ordinals are written, and not names."""
        record = SubAfter("q", "i", 0, False, None, ContextCode.TIME_OUT, 5, "g")
        self.assertEqual(encode_records([record]),
                         b"SubAfter\x01q\x01i\x010\x01false\x01null\x011\x015\x01g\x02")
