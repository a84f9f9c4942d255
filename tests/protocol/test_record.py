"""The message record: golden bytes, damage, and round trips."""

import struct
import zlib
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol import record as wire
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import (
    MessageRecord,
    StoredMessage,
    blank_record,
    check_record,
    decode_record,
    encode_record,
    encoded_size,
    has_queue_entry,
    host_bytes,
    host_parts,
    host_text,
    properties_text,
    record_size,
    record_store_timestamp,
    records_of,
)

#: A record of Apache's 5.3.3 broker, seen in its commit log; the notes leave the unique key out.
GOLDEN_PROPERTIES = (
    "MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x017F00000175CC18B4AAC259C3E2040000\x02"
    "CLUSTER\x01C1\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02a\x019\x02TRACE_ON\x01true\x02"
)
GOLDEN = (
    bytes.fromhex(
        "000000d7daa320a73610a68600000000000000000000000000000000"
        "00000000000000000000000000000"
        "1a1fc48abbf7f0000010000a6d0000001a1fc48abd57f00000100005597"
        "000000000000000000000000000000056865"
        "6c6c6f0254310075"
    )
    + GOLDEN_PROPERTIES.encode()
)


def golden_record() -> MessageRecord:
    """Return the message of the golden record."""
    record = MessageRecord(
        topic="T1",
        queue_id=0,
        body=b"hello",
        properties=GOLDEN_PROPERTIES,
        born_timestamp=0x1A1FC48ABBF,
        born_host=host_bytes("127.0.0.1", 0xA6D0),
        store_host=host_bytes("127.0.0.1", 21911),
        keys=["7F00000175CC18B4AAC259C3E2040000", "k1", "k2"],
    )
    record.store_timestamp = 0x1A1FC48ABD5
    return record


def make_record(**changes: object) -> MessageRecord:
    """The golden message with some attributes changed."""
    record = golden_record()
    for name, value in changes.items():
        setattr(record, name, value)
    return record


_INT = st.integers(-(2**31), 2**31 - 1)
_LONG = st.integers(0, 2**63 - 1)
_HOST = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
_RECORDS = st.builds(
    MessageRecord,
    topic=st.text("abcXYZ_-%", max_size=300),
    queue_id=_INT,
    body=st.binary(max_size=300),
    properties=st.text(max_size=300),
    born_timestamp=_LONG,
    born_host=_HOST,
    store_host=_HOST,
    keys=st.just([]),
    tags_code=st.just(0),
    flag=_INT,
    sys_flag=st.integers(0, 2**31 - 1),
    reconsume_times=_INT,
    prepared_transaction_offset=_LONG,
)


class GoldenTests(SynchronousTestCase):
    """The record of Apache's broker."""

    def test_encodes_the_golden_record(self) -> None:
        """Our bytes are equal to Apache's."""
        record = golden_record()
        self.assertEqual(encode_record(record), GOLDEN)
        self.assertEqual(record.size, 215)

    def test_decodes_the_golden_record(self) -> None:
        """Every field is decoded."""
        found = decode_record(GOLDEN)
        self.assertEqual(
            (found.size, found.magic, found.body_crc, found.queue_id, found.flag),
            (215, wire.MAGIC_V1, 0x3610A686, 0, 0),
        )
        self.assertEqual((found.queue_offset, found.physical_offset, found.sys_flag), (0, 0, 0))
        self.assertEqual(found.born_timestamp, 0x1A1FC48ABBF)
        self.assertEqual(found.store_timestamp, 0x1A1FC48ABD5)
        self.assertEqual(host_text(found.born_host), "127.0.0.1:42704")
        self.assertEqual(host_text(found.store_host), "127.0.0.1:21911")
        self.assertEqual((found.reconsume_times, found.prepared_transaction_offset), (0, 0))
        self.assertEqual((found.body, found.topic), (b"hello", "T1"))
        self.assertEqual(found.properties, GOLDEN_PROPERTIES)
        self.assertEqual(found.properties_map()["KEYS"], "k1 k2")

    def test_logged_message(self) -> None:
        """The record has the CRC, the size 198 and the offset id that Apache's broker logged."""
        properties = "UNIQ_KEY\x017F00000175CC18B4AAC259C3E2040000\x02CLUSTER\x01"
        properties += "DefaultCluster\x02TAGS\x01TagA"
        record = make_record(
            body=b"Source : Hello RocketMQ0",
            topic="TopicTest",
            properties=properties,
            store_host=host_bytes("10.0.89.59", 10911),
            physical_offset=240721,
        )
        found = decode_record(encode_record(record))
        self.assertEqual((found.size, found.body_crc), (198, 1446496313))
        self.assertEqual(
            offset_message_id(found.store_host, found.physical_offset),
            "0A00593B00002A9F000000000003AC51",
        )

    def test_blank_record(self) -> None:
        """The record at the end of a file has the remaining length and the magic number."""
        self.assertEqual(blank_record(256), bytes.fromhex("00000100cbd43194"))


class DecodeTests(SynchronousTestCase):
    """The decoder with whole and damaged records."""

    def test_trailing_bytes_are_left(self) -> None:
        """Bytes after a record are ignored."""
        self.assertEqual(decode_record(GOLDEN + b"\xff" * 9).size, 215)

    def test_position_and_views(self) -> None:
        """A record in a larger buffer of any kind is decoded at its position."""
        for kind in (bytes, bytearray, memoryview):
            found = decode_record(kind(b"???" + GOLDEN), 3)
            self.assertEqual((found.body, found.topic), (b"hello", "T1"))

    def test_every_truncation_is_refused(self) -> None:
        """A record that is cut at any byte is refused by the decoder and the check."""
        for end in range(len(GOLDEN)):
            self.assertRaises(StoreDamaged, decode_record, GOLDEN[:end])
            self.assertEqual(check_record(GOLDEN[:end]), wire.CHECK_BAD)

    def test_single_damage(self) -> None:
        """A wrong size, magic, length or body is refused with the reason."""
        at_body_length, at_topic = 84, 84 + 4 + 5
        cases = [
            ("size small", 0, struct.pack(">i", 214), "properties length"),
            ("size tiny", 0, struct.pack(">i", 90), "size 90"),
            ("size negative", 0, struct.pack(">i", -5), "size -5"),
            ("size large", 0, struct.pack(">i", 216), "size 216"),
            ("magic", 4, b"\0\0\0\0", "magic 0x00000000"),
            ("blank magic", 4, struct.pack(">i", wire.MAGIC_BLANK), "magic 0xcbd43194"),
            ("crc", 8, b"\0\0\0\0", "CRC"),
            ("body length negative", at_body_length, struct.pack(">i", -1), "body length -1"),
            ("body length large", at_body_length, struct.pack(">i", 200), "body length 200"),
            ("body", at_body_length + 4, b"H", "CRC"),
            ("topic length", at_topic, b"\xff", "topic length 255"),
            ("properties length", at_topic + 3, b"\xff\xff", "properties length -1"),
        ]
        for name, position, new, text in cases:
            damaged = GOLDEN[:position] + new + GOLDEN[position + len(new) :]
            error = self.assertRaises(StoreDamaged, decode_record, damaged)
            self.assertIn(text, str(error), msg=name)
            if name != "blank magic":
                self.assertEqual(check_record(damaged), wire.CHECK_BAD, msg=name)

    def test_crc_may_be_skipped(self) -> None:
        """A reader that trusts the log does not pay for the CRC."""
        damaged = GOLDEN.replace(b"hello", b"hallo")
        self.assertEqual(decode_record(damaged, check_crc=False).body, b"hallo")
        self.assertEqual(check_record(damaged, check_crc=False), 215)

    def test_check_sees_a_file_end(self) -> None:
        """The check returns a blank record's mark, and the size of a good record."""
        self.assertEqual(check_record(blank_record(100)), wire.CHECK_FILE_END)
        self.assertEqual(check_record(b"xx" + GOLDEN, 2), 215)
        self.assertEqual(check_record(bytes(1000)), wire.CHECK_BAD)

    @given(st.binary(max_size=300), st.integers(0, 250))
    def test_mutations_never_fail_otherwise(self, noise: bytes, position: int) -> None:
        """Bytes overwritten anywhere give a record or StoreDamaged."""
        damaged = GOLDEN[:position] + noise + GOLDEN[position + len(noise) :]
        try:
            found = decode_record(damaged)
        except StoreDamaged:
            self.assertLessEqual(check_record(damaged), 0)
            return
        self.assertEqual(check_record(damaged), found.size)

    def test_field_helpers(self) -> None:
        """Size and store time are found without a decode, also after an IPv6 born host."""
        self.assertEqual(record_size(b"." + GOLDEN, 1), 215)
        self.assertEqual(record_store_timestamp(b"." + GOLDEN, 1), 0x1A1FC48ABD5)
        encoded = encode_record(make_record(born_host=host_bytes("fe80::1", 1)))
        self.assertEqual(record_store_timestamp(encoded), 0x1A1FC48ABD5)

    def test_kinds_with_a_queue_entry(self) -> None:
        """Ordinary and committed messages have one, whatever other bits are set."""
        for other in (0, wire.SYS_COMPRESSED, wire.SYS_INNER_BATCH | wire.SYS_BORN_HOST_V6):
            kinds = {kind: has_queue_entry(kind | other) for kind in (0, 0x4, 0x8, 0xC)}
            self.assertEqual(kinds, {0: True, 0x4: False, 0x8: True, 0xC: False})


class EncodeTests(SynchronousTestCase):
    """The encoder."""

    def test_long_topic_is_v2(self) -> None:
        """A topic of 127 bytes makes V1, one of 128 makes V2, and both are decoded."""
        for length, magic in ((127, wire.MAGIC_V1), (128, wire.MAGIC_V2), (300, wire.MAGIC_V2)):
            encoded = encode_record(make_record(topic="t" * length))
            found = decode_record(encoded)
            self.assertEqual((found.magic, found.topic), (magic, "t" * length))
            self.assertEqual(len(encoded), found.size)

    def test_a_value_too_large_for_its_field_leaves_the_record_unsized(self) -> None:
        """The error leaves the size of the record unset."""
        for name, changes in {
            "properties": {"properties": "x" * 32768},
            "topic": {"topic": "x" * 32768},
            "flag": {"flag": 2**31},
            "queue": {"queue_id": -(2**31) - 1},
            "born": {"born_timestamp": 2**63},
            "host": {"born_host": b"1234"},
        }.items():
            record = make_record(**changes)
            self.assertRaises(MessageIllegal, encode_record, record)
            self.assertEqual(record.size, 0, msg=name)

    def test_longest_properties(self) -> None:
        """32767 bytes of properties fit."""
        found = decode_record(encode_record(make_record(properties="x" * 32767)))
        self.assertEqual(len(found.properties), 32767)

    def test_address_bits_follow_the_hosts(self) -> None:
        """A client's address bits are not believed; the addresses decide."""
        v4, v6 = host_bytes("10.0.0.1", 1), host_bytes("::1", 2)
        for born, store, bits in ((v4, v4, 0), (v6, v4, 0x10), (v4, v6, 0x20), (v6, v6, 0x30)):
            record = make_record(born_host=born, store_host=store, sys_flag=0x31)
            found = decode_record(encode_record(record))
            self.assertEqual((found.sys_flag, record.sys_flag), (bits | 1, bits | 1))
            self.assertEqual((found.born_host, found.store_host), (born, store))

    def test_lone_surrogate(self) -> None:
        """Text without a UTF-8 form is stored as Java stores it."""
        found = decode_record(encode_record(make_record(properties="a\x01\ud800\x02")))
        self.assertEqual(found.properties, "a\x01?\x02")

    @given(_RECORDS)
    def test_round_trip(self, record: MessageRecord) -> None:
        """Every field of any record is equal after encoding and decoding."""
        size = encoded_size(record)
        encoded = encode_record(record)
        found = decode_record(encoded)
        self.assertEqual((len(encoded), found.size, record.size), (size, size, size))
        fields = {name for name, _, _ in wire.RECORD_LAYOUT} - {"magic", "body_crc", "body_length"}
        for name in fields | {"body", "topic", "properties"}:
            self.assertEqual(getattr(found, name), getattr(record, name), msg=name)
        self.assertEqual(found.body_crc, zlib.crc32(record.body) & 0x7FFFFFFF)


class HostTests(SynchronousTestCase):
    """The addresses in records."""

    def test_both_families(self) -> None:
        """Bytes, parts and text of an IPv4 and an IPv6 address."""
        self.assertEqual(host_bytes("127.0.0.1", 10911).hex(), "7f00000100002a9f")
        self.assertEqual(host_parts(host_bytes("fe80::1", 80)), ("fe80::1", 80))
        self.assertEqual(host_text(host_bytes("127.0.0.1", 1)), "127.0.0.1:1")
        self.assertEqual(host_text(host_bytes("::1", 1)), "[::1]:1")

    def test_scope_is_dropped(self) -> None:
        """The interface of a link-local address is dropped."""
        self.assertEqual(host_parts(host_bytes("fe80::1%eth0", 80))[0], "fe80::1")

    def test_names_are_refused(self) -> None:
        """Only numeric addresses are accepted."""
        self.assertRaises(ValueError, host_bytes, "localhost", 1)


class PropertiesTests(SynchronousTestCase):
    """The function properties_text."""

    def test_the_properties_of_apaches_record(self) -> None:
        """The properties of Apache's record."""
        self.assertEqual(properties_text(GOLDEN), GOLDEN_PROPERTIES)

    @given(st.binary(max_size=300), st.text(max_size=40), st.integers(1, 200), st.booleans(),
           st.booleans())
    def test_same_as_decoding(
        self, body: bytes, properties: str, topic_length: int, born_v6: bool, store_v6: bool
    ) -> None:
        """This is so for any addresses and any topic."""
        record = golden_record()
        record.body, record.properties, record.topic = body, properties, "t" * topic_length
        record.born_host = host_bytes("::1" if born_v6 else "127.0.0.1", 1)
        record.store_host = host_bytes("::1" if store_v6 else "127.0.0.1", 1)
        data = encode_record(record)
        self.assertEqual(properties_text(data), decode_record(data).properties)

    def test_lengths_that_lead_outside_the_record_are_found(self) -> None:
        """They are found wherever they are."""
        for size in range(len(GOLDEN)):
            self.assertRaises(StoreDamaged, properties_text, GOLDEN[:size])
        body_length = 84
        for position, damage in ((body_length, b"\xff" * 4), (body_length, b"\x7f\xff\xff\xff"),
                                 (body_length + 9, b"\xff"), (body_length + 12, b"\xff\xff")):
            data = bytearray(GOLDEN)
            data[position : position + len(damage)] = damage
            self.assertRaises(StoreDamaged, properties_text, bytes(data))


class RecordsTests(SynchronousTestCase):
    """Records that follow each other."""

    @given(st.lists(st.tuples(
        st.binary(max_size=9), st.sampled_from(("T", "Ü", "x" * 127, "x" * 128)),
        st.text("ab\x01\x02ü", max_size=9), st.booleans()), max_size=6), st.integers(0, 2000),
        st.integers(0, 255))
    def test_records_are_read_as_each_alone(
        self, rows: list[tuple[bytes, str, str, bool]], place: int, value: int
    ) -> None:
        """Both forms of topics and addresses are tested, also with a wrong byte."""
        hosts = {False: host_bytes("127.0.0.1", 10911), True: host_bytes("::1", 10911)}
        whole = b"".join(encode_record(MessageRecord(
            topic, 1, body, properties, 10**12, hosts[is_v6], hosts[False], []))
            for body, topic, properties, is_v6 in rows)
        damaged = bytearray(whole)
        if whole:
            damaged[place % len(whole)] = value
        for data in (whole, bytes(damaged), whole[:-1]):
            self.assertEqual(self._read(records_of, data), self._read(self._one_by_one, data))

    def _one_by_one(self, data: bytes) -> list[StoredMessage]:
        records, position = [], 0
        while position < len(data):
            records.append(decode_record(data, position))
            position += records[-1].size
        return records

    def _read(
        self, read: Callable[[bytes], list[StoredMessage]], data: bytes
    ) -> list[list[object]] | str:
        """Return the fields of the records, or the error."""
        try:
            # A compiled class has no __slots__.
            names = [name for name in dir(StoredMessage) if not name.startswith("_")]
            return [[value for name in names if not callable(value := getattr(record, name))]
                    for record in read(data)]
        except StoreDamaged as error:
            return str(error)
