"""Records that are read back: usual ones by a fast path, with the same result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.broker.store.raw_walk import whole_messages
from twistmq.broker.store.stored_records import record_of, take_records
from twistmq.broker.testing.store import message
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    SYS_BORN_HOST_V6,
    SYS_INNER_BATCH,
    MessageRecord,
    blank_record,
    decode_record,
    encode_record,
)

#: Properties as they may be stored.
PROPERTIES = (
    "UNIQ_KEY\x01u\x02", "UNIQ_KEY\x01u\x02KEYS\x01a b  c\x02TAGS\x01t\x02",
    "TAGS\x01t\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02MSG_REGION\x01r\x02TRACE_ON\x01true\x02",
    "UNIQ_KEY\x01u", "", "KEYS\x01a\x02", "UNIQ_KEY\x01\x02", "UNIQ_KEY\x01u\x02TAGS\x01\x02",
    "UNIQ_KEY\x01u\x02UNIQ_KEY\x01v\x02", "UNIQ_KEY\x01u\x02a\x01\u00e9\x02", "nothing",
    "UNIQ_KEY\x01u\x00", "UNIQ_KEY\x01u\x02INNER_NUM\x013\x02")
SYS_FLAGS = (0, 1, 4, 8, 12, SYS_INNER_BATCH)
FIELDS = (
    "topic", "queue_id", "body", "properties", "is_plain", "born_timestamp", "born_host",
    "store_host", "keys", "tags_code", "flag", "sys_flag", "reconsume_times",
    "prepared_transaction_offset", "message_count", "enters_queue", "queue_offset",
    "physical_offset", "size", "store_timestamp", "next_offset")


def log_of(records: list[MessageRecord], offset: int = 0) -> bytes:
    """Return records as they are in a log from a position on."""
    data = b""
    for number, record in enumerate(records):
        record.physical_offset = offset + len(data)
        record.queue_offset = number
        record.store_timestamp = 1000 + number
        data += encode_record(record)
    return data


def facts(record: MessageRecord) -> dict[str, object]:
    """Return all values of a record."""
    return {name: getattr(record, name) for name in FIELDS}


def stored(properties: str, sys_flag: int = 0, topic: str = "T", body: bytes = b"b",
           host: bytes = b"\x0a\x01\x01\x01\0\0\0\x05") -> MessageRecord:
    return MessageRecord(topic, 3, body, properties, 17, host, b"\x0a\x02\x02\x02\0\0\0\x06", [],
                         flag=5, sys_flag=sys_flag, reconsume_times=2,
                         prepared_transaction_offset=99)


class TakeTests(SynchronousTestCase):
    """The fast path and the general one."""

    def check(self, records: list[MessageRecord], offset: int = 0) -> None:
        data = log_of(records, offset)
        taken: list[MessageRecord] = []
        passed = take_records(taken, data, 0, offset, offset + len(data), 1 << 60, None, {})
        self.assertEqual(passed, sum(each.size for each in taken))
        at = 0
        for record in taken:
            read = decode_record(data, at)
            self.assertEqual(facts(record), facts(record_of(read, None, {})))
            at += read.size

    def test_each_kind_of_properties(self) -> None:
        """With each system flag, hosts of either kind, topics of any text."""
        for properties in PROPERTIES:
            for sys_flag in SYS_FLAGS:
                self.check([stored(properties, sys_flag), stored(PROPERTIES[0])])
        self.check([stored(PROPERTIES[1], SYS_BORN_HOST_V6, host=bytes(16) + b"\0\0\0\x05")])
        for topic in ("T", "caf\u00e9", "x" * 127, "y" * 200):
            self.check([stored(PROPERTIES[1], topic=topic), stored(PROPERTIES[2])], 1 << 33)

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(PROPERTIES), st.sampled_from(SYS_FLAGS),
                              st.sampled_from("TUV"), st.binary(max_size=40)), max_size=12))
    def test_any_records(self, kinds: list[tuple[str, int, str, bytes]]) -> None:
        self.check([stored(*kind) for kind in kinds])

    def test_it_ends_before_what_is_in_doubt(self) -> None:
        """The record is cut, has another position, or is after the end."""
        good = log_of([stored(PROPERTIES[1]) for _ in range(3)])
        size = len(good) // 3
        for data, end, count in (
            (good[:-1], len(good), 2), (good, len(good) - 1, 2), (good, size, 1),
            (good[:size] + good[:size] + good, 1 << 20, 1),
            (good[:size] + bytes(200), 1 << 20, 1), (b"", 1 << 20, 0)):
            taken: list[MessageRecord] = []
            self.assertEqual(take_records(taken, data, 0, 0, end, 1 << 60, None, {}), count * size)
            self.assertEqual(len(taken), count)

    def test_filters_and_tags_codes_are_asked(self) -> None:
        """They get the record as it is read back."""
        data = log_of([stored(PROPERTIES[1]), stored(PROPERTIES[1], topic="U")])
        taken: list[MessageRecord] = []
        take_records(taken, data, 0, 0, len(data), 1 << 60, None, {"U": lambda record: 77})
        self.assertEqual([record.tags_code for record in taken][1], 77)
        taken.clear()
        take_records(taken, data, 0, 0, len(data), 1 << 60, lambda record: record.topic == "U", {})
        self.assertEqual([record.enters_queue for record in taken], [False, True])


class WalkTests(SynchronousTestCase):
    """Walks over whole messages."""

    def test_whole_messages_are_passed(self) -> None:
        """The walk ends at a cut record, a blank, an invalid record, and the end of a file."""
        data = log_of([stored(PROPERTIES[1], body=bytes(number)) for number in range(4)])
        begins = [0]
        while begins[-1] < len(data):
            begins.append(begins[-1] + decode_record(data, begins[-1]).size)
        far = 1 << 40
        for cut in range(len(data) + 1):
            count = sum(begin <= cut for begin in begins[1:])
            self.assertEqual(whole_messages(data[:cut], 0, far, 0, set()),
                             (begins[count], count), msg=cut)
        for more in (blank_record(200), bytes(200), b"\xff" * 200):
            self.assertEqual(whole_messages(data + more, 0, far, 0, set()), (len(data), 4))
        self.assertEqual(whole_messages(data, begins[1], far, begins[1], set()),
                         (begins[4] - begins[1], 3))
        room = begins[3] + BLANK_SIZE_MIN
        self.assertEqual(whole_messages(data, 0, room, 0, set()), (begins[3], 3))
        self.assertEqual(whole_messages(data, 0, room - 1, 0, set()), (begins[2], 2))

    def test_a_size_that_is_absurd(self) -> None:
        """The caller, which knows the file, decides."""
        data = bytearray(log_of([message("T")]))
        for size in (0, 90, 1 << 31, (1 << 32) - 1):
            data[:4] = size.to_bytes(4, "big")
            self.assertEqual(whole_messages(bytes(data), 0, 1 << 40, 0, set()), (0, 0))
