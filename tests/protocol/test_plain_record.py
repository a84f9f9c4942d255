"""Records of the usual form, found without a decode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.plain_record import body_of, plain_record, queue_offset_of
from twistmq.protocol.record import (
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    MessageRecord,
    StoredMessage,
    decode_record,
    encode_record,
    host_bytes,
    records_of,
)

HOSTS = {False: host_bytes("127.0.0.1", 10911), True: host_bytes("::1", 10911)}
FIELDS = [name for name in dir(StoredMessage) if not name.startswith("_")]


def record(
    body: bytes, topic: str = "T", properties: str = "a\x01b\x02", is_v6: bool = False,
    sys_flag: int = 0, offset: int = 5,
) -> bytes:
    """Return a record as a broker stores it."""
    made = MessageRecord(topic, 1, body, properties, 10**12, HOSTS[is_v6], HOSTS[False], [],
                         sys_flag=sys_flag)
    made.queue_offset = offset
    return encode_record(made)


def fields(message: StoredMessage) -> list[object]:
    """Return the fields of a record."""
    return [value for name in FIELDS if not callable(value := getattr(message, name))]


def cut_records(data: bytes) -> list[StoredMessage | bytes]:
    """The plain records as bytes, the others decoded."""
    found: list[StoredMessage | bytes] = []
    position = 0
    while position < len(data):
        _, end = plain_record(data, position)
        if end:
            found.append(data[position:end])
            position = end
        else:
            record = decode_record(data, position)
            found.append(record)
            position += record.size
    return found


class PlainRecordTests(SynchronousTestCase):
    """The bytes in the answer to a pull."""

    def test_a_plain_record_is_found_without_being_decoded(self) -> None:
        """Its end, the end of its body, the body and the offset are found."""
        data = record(b"one") + record(b"", offset=6)
        body_end, end = plain_record(data, 0)
        self.assertEqual((data[body_end - 3:body_end], end), (b"one", len(record(b"one"))))
        self.assertEqual(plain_record(data, end), (end + 88, len(data)))
        self.assertEqual((body_of(data[:end]), body_of(data[end:])), (b"one", b""))
        self.assertEqual((queue_offset_of(data), queue_offset_of(data, end)), (5, 6))

    def test_records_of_other_forms_are_decoded(self) -> None:
        """Records with encoded bodies, of V2, and with IPv6 addresses are decoded."""
        for data in (record(b"x", sys_flag=SYS_COMPRESSED), record(b"x", is_v6=True),
                     record(b"x", sys_flag=SYS_INNER_BATCH | SYS_NEED_UNWRAP),
                     record(b"x", topic="t" * 128)):
            self.assertEqual(plain_record(data, 0), (0, 0))

    def test_a_body_whose_crc_differs_is_refused(self) -> None:
        """It is refused before any field is used."""
        data = bytearray(record(b"one") + record(b"two"))
        data[-len(record(b"two")) + 88] ^= 1
        error = self.assertRaises(StoreDamaged, cut_records, bytes(data))
        self.assertIn(f"byte {len(record(b'one'))}: the body's CRC", str(error))

    def test_lengths_that_do_not_add_up_are_refused(self) -> None:
        """The lengths of body, topic and properties are too large or too small."""
        data = record(b"one", topic="TT")
        for place in (87, 91, 95):
            for change in (-1, 1):
                damaged = bytearray(data)
                damaged[place] += change
                self.assertRaises(StoreDamaged, cut_records, bytes(damaged))

    @given(st.lists(st.tuples(
        st.binary(max_size=9), st.sampled_from(("T", "Ü", "x" * 127, "x" * 128)),
        st.text("ab\x01\x02ü", max_size=9), st.booleans()), max_size=6), st.integers(0, 2000),
        st.integers(0, 255))
    def test_they_are_read_as_whole_ones(
        self, rows: list[tuple[bytes, str, str, bool]], place: int, value: int
    ) -> None:
        """They have the same fields, and the same errors for wrong or missing bytes."""
        whole = b"".join(record(*row) for row in rows)
        damaged = bytearray(whole)
        if whole:
            damaged[place % len(whole)] = value
        for data in (whole, bytes(damaged), whole[:-1]):
            try:
                expected: object = [fields(each) for each in records_of(data)]
            except StoreDamaged as error:
                expected = str(error)
            try:
                found: object = [
                    fields(decode_record(each) if isinstance(each, bytes) else each)
                    for each in cut_records(data)]
            except StoreDamaged as error:
                found = str(error)
            self.assertEqual(found, expected)
