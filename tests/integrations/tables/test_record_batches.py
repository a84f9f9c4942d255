"""Buffers of records as record batches."""

from __future__ import annotations

import struct
import zlib
from datetime import timedelta, timezone

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.records import HOST, encoded, random_records, row
from twistmq.integrations.tables.columns import COLUMNS, TIME_MS_MAX, TIME_MS_MIN, select_columns
from twistmq.integrations.tables.record_batches import BatchBuilder, BodyUnreadable, RowFilter
from twistmq.protocol import record
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.errors import StoreDamaged

INNER_BATCH = record.SYS_INNER_BATCH | record.SYS_NEED_UNWRAP


def rows_of(batch: object) -> list[dict[str, object]]:
    """Return the rows of a batch, with maps as dicts."""
    batch.validate(full=True)  # type: ignore[attr-defined]
    found = batch.to_pylist()  # type: ignore[attr-defined]
    assert isinstance(found, list)
    for one in found:
        if isinstance(pairs := one.get("properties"), list):
            assert len(dict(pairs)) == len(pairs)
            one["properties"] = dict(pairs)
    return found


class RowTests(SynchronousTestCase):
    """Every column of records of every kind."""

    def check(self, stored: list[bytes], message: str = "") -> None:
        builder = BatchBuilder(COLUMNS)
        self.assertEqual(len(builder.add(b"".join(stored), "broker-a")), len(stored))
        batch = builder.batch()
        self.assertEqual(batch.schema, builder.schema)
        found = rows_of(batch)
        for index, each in enumerate(stored):
            self.assertEqual(found[index], row(each, "broker-a"), msg=f"{message} row {index}")
        self.assertEqual(len(found), len(stored))

    def test_rows_are_what_the_decoder_reads(self) -> None:
        """Rows are equal to the results of the decoder of single records, whatever the records
        contain.
        """
        for seed in range(30):
            self.check(random_records(seed, 40), f"seed {seed}")

    def test_regular_properties(self) -> None:
        """The same holds if all properties have the form of today's clients."""
        for seed in range(30, 40):
            self.check(random_records(seed, 40, irregular=False), f"seed {seed}")

    def test_no_properties_at_all(self) -> None:
        """Records without properties have an empty map and no derived values."""
        self.check([encoded(), encoded(body=b"", queue_offset=1)])

    def test_many_names(self) -> None:
        """There are as many different names as pairs."""
        self.check([encoded(properties="".join(
            f"n{index}_{key}\x01v\x02" for key in range(50))) for index in range(20)])

    def test_properties_that_are_no_text(self) -> None:
        """Bytes that are not UTF-8 become replacement characters."""
        good = encoded(properties="a\x01b\x02")
        at = good.index(b"a\x01b\x02") + 2
        self.check([good[:at] + b"\xff" + good[at + 1 :], good])

    def test_times_beyond_any_timestamp(self) -> None:
        """The clock of a producer may have any value, and the batch is still built."""
        builder = BatchBuilder(select_columns("bornTimestamp,deliverTime"))
        for number in ((1 << 63) - 1, -(1 << 63), 253_402_300_800_000):
            builder.add(encoded(born_ms=number, properties=f"TIMER_DELIVER_MS\x01{number}\x02"))
        batch = builder.batch()
        for column in batch.columns:
            self.assertEqual(column.cast("int64").to_pylist(), [
                1000 * TIME_MS_MAX, 1000 * TIME_MS_MIN, 1000 * TIME_MS_MAX])
            # PySpark converts them to datetimes in the local zone.
            for hours in (-12, 14):
                for value in column.to_pylist():
                    value.astimezone(timezone(timedelta(hours=hours)))

    def test_body_as_text(self) -> None:
        """With bodyFormat=string, bytes that are not UTF-8 become replacement characters."""
        builder = BatchBuilder(select_columns("body", body_format="string"))
        builder.add(encoded(body="süß".encode()) + encoded(body=b"\xff"))
        self.assertEqual(rows_of(builder.batch()), [{"body": "süß"}, {"body": "\ufffd"}])
        builder.add(encoded(body="süß".encode()))
        self.assertEqual(rows_of(builder.batch()), [{"body": "süß"}])

    def test_columns_alone(self) -> None:
        """A column has the same values with and without the other columns."""
        stored = random_records(5, 30)
        wanted = [row(each) for each in stored]
        for column in COLUMNS:
            builder = BatchBuilder([column])
            builder.add(b"".join(stored))
            self.assertEqual(rows_of(builder.batch()),
                             [{column.name: each[column.name]} for each in wanted], msg=column.name)


class BufferTests(SynchronousTestCase):
    """Several buffers, and the selection of rows."""

    def builder(self, rows: RowFilter | None = None, names: str = "topic,queueOffset"
                ) -> BatchBuilder:
        return BatchBuilder(select_columns(names), rows)

    def test_buffers_of_several_brokers(self) -> None:
        """Each row has the broker name of its buffer, and the next batch begins empty."""
        builder = self.builder(names="brokerName,queueOffset")
        for index, name in enumerate(["a", None, "b", "a"]):
            builder.add(bytearray(encoded(queue_offset=index)), name)
        self.assertEqual(builder.record_count, 4)
        self.assertEqual([each["brokerName"] for each in rows_of(builder.batch())],
                         ["a", None, "b", "a"])
        self.assertEqual((builder.record_count, builder.byte_count), (0, 0))
        builder.add(memoryview(encoded(queue_offset=7)), "c")
        self.assertEqual(rows_of(builder.batch()), [{"brokerName": "c", "queueOffset": 7}])

    def test_a_batch_of_nothing_has_the_schema_and_no_row(self) -> None:
        """The batch has the schema and no row."""
        builder = BatchBuilder(COLUMNS)
        self.assertEqual((builder.batch().num_rows, builder.batch().schema), (0, builder.schema))
        self.assertEqual(builder.add(b""), [])
        self.assertEqual(builder.batch().num_rows, 0)

    def test_starts_say_where_records_are(self) -> None:
        """With starts, the bytes between the records are not examined."""
        first, second = encoded(queue_offset=1), encoded(queue_offset=2)
        builder = self.builder()
        builder.add(encoded(queue_offset=0))
        builder.add(b"??" + first + b"????" + second + b"?", starts=[2, 6 + len(first)])
        self.assertEqual([each["queueOffset"] for each in rows_of(builder.batch())], [0, 1, 2])

    def test_rows_are_chosen(self) -> None:
        """Rows are selected by queue offset, store time, topic and transaction state."""
        stored = b"".join(
            encoded(topic, queue_offset=index, stored_ms=1000 + index, sys_flag=flag)
            for index, (topic, flag) in enumerate(
                [("A", 0), ("B", 4), ("A", 12), ("C", 8), ("B", 0), ("A" * 130, 0)]))
        cases = [
            (RowFilter(), [0, 1, 2, 3, 4, 5]),
            (RowFilter(offset_begin=1, offset_end=4), [1, 2, 3]),
            (RowFilter(stored_from_ms=1002, stored_before_ms=1005), [2, 3, 4]),
            (RowFilter(topics=frozenset({"A", "B"})), [0, 1, 2, 4]),
            (RowFilter(topics=frozenset({"A" * 130})), [5]),
            (RowFilter(topics_but=lambda topic: topic in ("A", "C")), [1, 4, 5]),
            (RowFilter(entered_only=True), [0, 3, 4, 5]),
            (RowFilter(topics=frozenset({"A"}), entered_only=True, offset_begin=1), []),
        ]
        for rows, wanted in cases:
            builder = self.builder(rows)
            builder.add(stored, "x")
            self.assertEqual([each["queueOffset"] for each in rows_of(builder.batch())], wanted,
                             msg=str(rows))


class InnerBatchTests(SynchronousTestCase):
    """Records that contain several messages."""

    def batch_record(self, sys_flag: int = 0) -> bytes:
        body = encode_batch([(index, b"m%d" % index, f"UNIQ_KEY\x01u{index}\x02TAGS\x01t\x02")
                             for index in range(3)])
        if sys_flag & 1:
            body = zlib.compress(body)
        return encoded("B", body, "INNER_NUM\x013\x02", queue_offset=10, physical_offset=500,
                       queue_id=2, sys_flag=INNER_BATCH | sys_flag)

    def test_one_row_a_message(self) -> None:
        """A batch becomes a row for each message, each with its own queue offset."""
        for sys_flag in (0, 1):
            builder = BatchBuilder(select_columns(
                "queueOffset,msgId,tags,body,flag,sysFlag,queueId,commitLogOffset,brokerName"))
            builder.add(encoded(queue_offset=1) + self.batch_record(sys_flag), "a")
            builder.add(encoded(queue_offset=2), "b")
            found = rows_of(builder.batch())
            self.assertEqual([each["queueOffset"] for each in found], [1, 10, 11, 12, 2])
            self.assertEqual([each["brokerName"] for each in found], ["a"] * 4 + ["b"])
            self.assertEqual(found[2], {
                "queueOffset": 11, "msgId": "u1", "tags": "t", "body": b"m1", "flag": 1,
                "sysFlag": 0, "queueId": 2, "commitLogOffset": 500, "brokerName": "a"})

    def test_offsets_are_chosen_inside_a_batch(self) -> None:
        """A range of offsets may begin and end inside a batch."""
        builder = BatchBuilder(select_columns("body"), RowFilter(offset_begin=11, offset_end=12))
        builder.add(self.batch_record())
        self.assertEqual(rows_of(builder.batch()), [{"body": b"m1"}])

    def test_not_a_batch(self) -> None:
        """The error names a body that is not a batch; with skip_unreadable it is skipped and
        counted.
        """
        bad = encoded("B", b"nonsense", queue_offset=4, sys_flag=INNER_BATCH)
        builder = BatchBuilder(select_columns("body"))
        builder.add(bad)
        self.assertIn("topic B queue 0 offset 4", str(self.assertRaises(BodyUnreadable,
                                                                        builder.batch)))
        builder = BatchBuilder(select_columns("body"), skip_unreadable=True)
        builder.add(bad + encoded(body=b"good"))
        self.assertEqual(rows_of(builder.batch()), [{"body": b"good"}])
        self.assertEqual(builder.damaged_count, 1)


class DamageTests(SynchronousTestCase):
    """Bytes that are not records, and bodies that cannot be read."""

    def test_buffers_that_are_no_records(self) -> None:
        """Each buffer is refused with the position of the fault."""
        good = encoded()
        head = good[:4] + b"\0\0\0\0" + good[8:]
        cases = {"torn": (good + good[:-1], len(good)), "magic": (good + head, len(good)),
                 "rest": (good + b"xyz", len(good)), "none": (b"\0" * 200, 0),
                 "blank": (good + record.blank_record(300) + bytes(292), len(good))}
        for name, (buffer, place) in cases.items():
            error = self.assertRaises(StoreDamaged, BatchBuilder(COLUMNS).add, buffer)
            self.assertIn(f"byte {place}", str(error), msg=name)

    def test_damaged_records(self) -> None:
        """Inconsistent lengths and a wrong CRC are refused with the position, or left out."""
        good = encoded(body=b"x" * 50, properties="a\x01b\x02")
        body = 88
        damages = {
            "body length": (84, struct.pack(">i", 1 << 30)),
            "negative body length": (84, struct.pack(">i", -5)),
            "topic length": (body + 50, b"\xff"),
            "properties length": (body + 52, struct.pack(">h", 9)),
            "negative properties length": (body + 52, struct.pack(">h", -9)),
            "CRC": (body + 3, b"y"),
            "V2": (4, struct.pack(">i", record.MAGIC_V2)),
            "addresses": (36, struct.pack(">i", 0x30)),
        }
        for name, (at, bytes_) in damages.items():
            bad = good[:at] + bytes_ + good[at + len(bytes_) :]
            builder = BatchBuilder(COLUMNS)
            builder.add(good + bad + good)
            error = self.assertRaises(StoreDamaged, builder.batch)
            self.assertIn(f"byte {len(good)}", str(error), msg=name)
            builder = BatchBuilder(COLUMNS, skip_damaged=True)
            builder.add(good + bad + good)
            self.assertEqual((builder.batch().num_rows, builder.damaged_count), (2, 1), msg=name)
            builder.add(bad)
            self.assertEqual((builder.batch().num_rows, builder.damaged_count), (0, 2), msg=name)

    def test_crc_is_compared_when_asked(self) -> None:
        """Without check_crc a changed body is not noticed."""
        bad = encoded(body=b"hello").replace(b"hello", b"jello")
        builder = BatchBuilder(select_columns("body"), check_crc=False)
        builder.add(bad)
        self.assertEqual(rows_of(builder.batch()), [{"body": b"jello"}])

    def test_bodies_that_do_not_decompress(self) -> None:
        """The error names the topic, the queue, the offset and the algorithm, or the body is left
        out.
        """
        bodies = {"zlib": (b"no zlib", 1), "lz4": (b"no lz4 frame at all", 0x101),
                  "zstd": (b"no zstd", 0x201), "type 7": (b"?", 0x701),
                  "cut": (zlib.compress(b"x" * 1000)[:-6], 0x301)}
        for name, (body, sys_flag) in bodies.items():
            bad = encoded("Orders", body, queue_id=3, queue_offset=77, sys_flag=sys_flag)
            builder = BatchBuilder(select_columns("body"))
            builder.add(encoded() + bad)
            text = str(self.assertRaises(BodyUnreadable, builder.batch))
            self.assertIn("topic Orders queue 3 offset 77", text)
            self.assertIn("zlib" if name == "cut" else name, text)
            builder = BatchBuilder(select_columns("body,brokerName"), skip_unreadable=True)
            builder.add(bad, "a")
            builder.add(encoded(), "b")
            self.assertEqual(rows_of(builder.batch()), [{"body": b"hello", "brokerName": "b"}],
                             msg=name)
            self.assertEqual(builder.damaged_count, 1)

    def test_unread_bodies_are_not_unpacked(self) -> None:
        """Without the column body, no body is decompressed, and none can fail."""
        builder = BatchBuilder(select_columns("queueOffset"))
        builder.add(encoded(body=b"no zlib", sys_flag=1, queue_offset=5, born_host=HOST))
        self.assertEqual(rows_of(builder.batch()), [{"queueOffset": 5}])

    def test_random_damage_never_goes_unnoticed(self) -> None:
        """A changed byte causes an error, or the rows of the decoder of single records."""
        stored = b"".join(random_records(99, 6))
        starts = []
        at = 0
        while at < len(stored):
            starts.append(at)
            at += record.record_size(stored, at)
        noticed = 0
        for place in range(0, len(stored), 3):
            bad = stored[:place] + bytes([stored[place] ^ 0x41]) + stored[place + 1 :]
            builder = BatchBuilder(select_columns("topic,queueOffset,storeSize"))
            try:
                builder.add(bad)
                found = rows_of(builder.batch())
            except (StoreDamaged, BodyUnreadable):
                noticed += 1
                continue
            decoded = [record.decode_record(bad, start) for start in starts]
            self.assertEqual(
                found, [{"topic": each.topic, "queueOffset": each.queue_offset,
                         "storeSize": each.size} for each in decoded], msg=f"byte {place}")
        self.assertGreater(noticed, len(stored) // 10)
