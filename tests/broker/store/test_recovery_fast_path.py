"""The loop that skips records that queue and index have, and its use in recovery."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store import entry_check, recovery
from twistmq.broker.store.consume_queue import ENTRY, ConsumeQueue
from twistmq.broker.store.extension_unit import ADDRESS_MAX
from twistmq.broker.store.index_tail import ITEM, IndexTail
from twistmq.broker.store.recovery_fast_path import (
    Ends,
    ReadEntries,
    record_keys,
    skip_indexed_records,
)
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.properties import (
    INNER_MULTI_QUEUE_OFFSET,
    UNIQ_KEY,
    index_keys,
    java_string_hash,
    parse_properties,
)
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    SYS_TRANSACTION_PREPARED,
    MessageRecord,
    encode_record,
    host_bytes,
)

V6 = host_bytes("fe80::1", 7)
#: Where the first record is in the log.
PLACE = 5000


class PassTests(SynchronousTestCase):
    """skip_indexed_records over three records of one queue."""

    def setUp(self) -> None:
        """Records of both versions and address kinds, with their entries."""
        self.records = [message(tag="t", keys="k"), message("l" * 130, born_host=V6),
                        message(body=b"", born_host=V6, store_host=V6)]
        self.queues: dict[str, dict[int, ConsumeQueue]] = {}
        self.read: ReadEntries = {}
        self.ends: Ends = {}
        self.next_index: Callable[[], IndexTail] | None = None
        self.data = b""
        for number, record in enumerate(self.records):
            self.add(record, 40 + number)

    def add(self, record: MessageRecord, queue_offset: int) -> None:
        """Encode a record behind the others and make its queue's entry."""
        record.queue_offset = queue_offset
        record.physical_offset = PLACE + len(self.data)
        record.store_timestamp = 1_700_000_000_000 + queue_offset
        self.data += encode_record(record)
        record.next_offset = PLACE + len(self.data)
        queue = self.queues.setdefault(record.topic, {}).setdefault(
            record.queue_id, ConsumeQueue(record.topic, record.queue_id))
        queue.min_offset = min(queue.min_offset, queue_offset)
        queue.tail_start = queue_offset + 1
        queue.max_physical = PLACE + len(self.data)
        first, entries = self.read.get(queue, (queue_offset, b""))
        entries = entries.ljust((queue_offset - first) * ENTRY.size, b"\0")
        self.read[queue] = first, entries + ENTRY.pack(
            record.physical_offset, record.size, record.tags_code)

    def passed(
        self, data: bytes | None = None, check_crc: bool = True, index: IndexTail | None = None,
        made: Collection[str] = (),
    ) -> int:
        """Return how many records are skipped, after some bytes of another one."""
        size, store_ms = skip_indexed_records(
            b"before" + (self.data if data is None else data), 6, PLACE, check_crc, index,
            self.next_index, frozenset(made), self.queues, self.read, self.ends)
        ends = [record.next_offset - PLACE for record in self.records]
        count = [0, *ends].index(size)
        newest = self.records[count - 1].store_timestamp if count else 0
        self.assertEqual(store_ms, newest)
        return count

    def test_each_kind_of_record_is_passed_and_queue_ends_are_known(self) -> None:
        """Records of each kind are skipped, and the ends of the queues are known."""
        self.assertEqual(self.passed(), 3)
        self.assertEqual(self.ends, {("TopicTest", 0): 43, ("l" * 130, 0): 42})

    def test_a_cut_record(self) -> None:
        """A record that is not complete in the chunk is not skipped."""
        for missing in range(1, self.records[2].size + 1):
            self.assertEqual(self.passed(self.data[:-missing]), 2)

    def test_missing_index_items_are_added_in_order(self) -> None:
        """Missing items are added in order, and existing ones are not added again."""
        index = IndexTail(10, 100, lambda position, size: b"")
        self.assertEqual(self.passed(index=index), 3)
        self.assertEqual([place for _, place, _, _ in ITEM.iter_unpack(index.items)], [PLACE])
        prefix = java_string_hash("TopicTest#")
        self.assertEqual(index.find(prefix, "k", 9, 0, sys.maxsize), [PLACE])
        self.assertEqual(index.end_timestamp, self.records[0].store_timestamp)
        index.end_physical = PLACE + 1
        self.passed(index=index)
        self.assertEqual(index.count, 2)

    def test_index_that_is_full(self) -> None:
        """The next index file is used."""
        record = message(keys="k1 k2  k3")
        record.properties = f"KEYS\x01k1 k2  k3\x02{UNIQ_KEY}\x01u"
        self.records.append(record)
        self.add(record, 43)
        full, following = (IndexTail(10, count, lambda position, size: b"") for count in (3, 9))
        self.next_index = lambda: following
        self.assertEqual(self.passed(index=full), 4)
        prefix = java_string_hash("TopicTest#")
        found = [[len(tail.find(prefix, key, 9, 0, sys.maxsize)) for key in ("k", "u", "k1", "k3")]
                 for tail in (full, following)]
        self.assertEqual(found, [[1, 1, 0, 0], [0, 0, 1, 1]])

    def test_keys_equal_those_of_a_full_property_parse(self) -> None:
        """The keys equal the keys from a parser of all properties, whatever the properties are."""
        texts = (
            "", "KEYS\x01", "KEYS\x01a", "KEYS\x01a\x02", "KEYS\x01a\x02KEYS\x01b c\x02",
            "KEYS\x01a\x02KEYS\x01\x02", "XKEYS\x01a\x02", "KEYS\x01a\x02XKEYS\x01b\x02",
            "KEYSX\x01a", "a\x01KEYS\x01b\x02", "UNIQ_KEY\x01u\x02KEYS\x01 a  b ",
            "KEYS\x01\u20ac\x02UNIQ_KEY\x01\u20ac\x02", "UNIQ_KEY\x01u\x01v", "\x02\x02KEYS\x01k",
            "UNIQ_KEY\x01\x02KEYS\x01k", "KEYS\x01 ", "KEYS\x01  \x02UNIQ_KEY\x01 \x02")
        for text in texts:
            data = b"KEYS\x01x\x02" + text.encode() + b"\x02UNIQ_KEY\x01y"
            self.assertEqual(record_keys(data, 7, 7 + len(text.encode())),
                             index_keys(parse_properties(text)), msg=repr(text))

    def test_any_other_byte(self) -> None:
        """A change of any byte that a check covers is noticed."""
        record = self.records[0]
        # Flag, system flag (its bits have tests of their own), times and hosts.
        unchecked = {*range(16, 20), *range(36, 84)}
        for position in range(record.size):
            damaged = bytearray(self.data)
            damaged[position] = 0 if damaged[position] else 0x7F
            if position not in unchecked:
                self.assertEqual(self.passed(bytes(damaged)), 0, msg=position)

    def test_crc_may_be_skipped(self) -> None:
        """The setting decides."""
        damaged = bytearray(self.data)
        damaged[88] ^= 1
        self.assertEqual(self.passed(bytes(damaged)), 0)
        self.assertEqual(self.passed(bytes(damaged), check_crc=False), 3)

    def test_kinds_without_an_entry(self) -> None:
        """Records with another entry are not skipped either."""
        for flag in (SYS_TRANSACTION_PREPARED, SYS_INNER_BATCH):
            damaged = bytearray(self.data)
            struct.pack_into(">i", damaged, 36, flag)
            self.assertEqual(self.passed(bytes(damaged)), 0)

    def test_light_queues(self) -> None:
        """A record with entries in them has more than one to be looked at."""
        record = message("Light", properties=f"a\x01b\x02{INNER_MULTI_QUEUE_OFFSET}\x013\x02")
        self.records.append(record)
        self.add(record, 7)
        self.assertEqual(self.passed(), 3)

    def test_foreign_unread_and_outside_entries_are_not_passed(self) -> None:
        """Another entry, one that was not read, and one outside of the queue's files."""
        queue = self.queues["TopicTest"][0]
        first, entries = self.read[queue]
        for position in range(12):
            other = bytearray(entries)
            other[position] ^= 1
            self.read[queue] = first, bytes(other)
            self.assertEqual(self.passed(), 0)
        for known in ((first, entries[: ENTRY.size]), (first, entries[: ENTRY.size * 3 - 1])):
            self.read[queue] = known
            self.assertEqual(self.passed(), 2)
        self.read[queue] = first + 1, entries[ENTRY.size :]
        self.assertEqual(self.passed(), 0)
        del self.read[queue]
        self.assertEqual(self.passed(), 0)

    def test_numbers_of_entries(self) -> None:
        """A code that may be torn is compared, and so is the address of a unit."""
        queue = self.queues["TopicTest"][0]
        first, entries = self.read[queue]
        for code, count in ((ADDRESS_MAX, 0), (-(1 << 63) + 1, 0), (ADDRESS_MAX + 2, 3), (0, 0),
                            (0x1200, 0), (-256, 0), (-255, 3), (1 << 40 | 1, 3)):
            self.read[queue] = first, entries[:12] + struct.pack(">q", code) + entries[20:]
            self.assertEqual(self.passed(), count, msg=hex(code))
        self.read[queue] = first, entries
        self.assertEqual(self.passed(made=["l" * 130]), 1, "the second has no tag")

    def test_missing_later_and_shorter_queues_are_handled(self) -> None:
        """The queue is missing, begins later, or ends earlier."""
        queue = self.queues["TopicTest"][0]
        for name, value, count in (("min_offset", 41, 0), ("tail_start", 42, 2),
                                   ("max_physical", queue.max_physical - 1, 2)):
            before = getattr(queue, name)
            setattr(queue, name, value)
            self.assertEqual(self.passed(), count, msg=name)
            setattr(queue, name, before)
        del self.queues["TopicTest"][0]
        self.assertEqual(self.passed(), 0)


class RecoveryTests(SynchronousTestCase):
    """The use in recovery."""

    def test_most_records_are_not_decoded(self) -> None:
        """Only records that queues lack are decoded, and one for each read part of a queue."""
        box = StoreBox(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)
        box.open()
        records = [box.append(message(body=b"%d" % number, keys="k"))[0] for number in range(250)]
        box.step(11_000, 40)
        # What the index lacks.
        records += [box.append(message(body=b"%d" % n, keys="k"))[0] for n in range(250, 500)]
        box.store.queues.write_all()
        box.append(*[message(body=b"new") for _ in range(3)])
        found = [record.physical_offset for record in records[::-1]]
        # The newest of the index is put again, as by Apache's broker: there may be more keys.
        found.insert(250, found[250])
        decoded = []

        def decode(*args: object) -> object:
            decoded.append(args)
            return decode_record(*args)  # type: ignore[arg-type]

        decode_record = recovery.decode_record
        self.patch(recovery, "decode_record", decode)
        again = box.after_kill()
        self.assertEqual(len(decoded), 4, "the first, whose queue is not read yet, three new ones")
        assert again.store.index is not None
        self.assertEqual(again.store.index.find("TopicTest", "k", 999, 0, sys.maxsize)[0], found)
        bodies = [b"%d" % number for number in range(500)] + [b"new"] * 3
        self.assertEqual(again.bodies(), bodies)
        # Without the loop the same comes out.
        self.patch(entry_check, "skip_indexed_records", lambda *args: (0, 0))
        once_more = again.after_kill()
        self.assertEqual(len(decoded), 4 + 503)
        self.assertEqual(once_more.bodies(), bodies)
        self.assertEqual(once_more.store.commit_log.max_offset, again.store.commit_log.max_offset)

    def test_a_filter_is_asked_about_each_message(self) -> None:
        """A filter is asked about each message."""
        box = StoreBox().open()
        box.append(*[message(body=b"%d" % number) for number in range(5)])
        box.store.queues.write_all()
        box.store.close()
        asked = []
        box = box._again()

        def enters_queue(record: MessageRecord) -> bool:
            asked.append(record.body)
            return True

        box.store.dispatch.filter = enters_queue
        box.open()
        self.assertEqual(set(asked), {b"%d" % number for number in range(5)})

    def test_record_behind_one_that_may_be_torn(self) -> None:
        """The later record is not skipped before the one that waits for its successor."""
        box = StoreBox().open()
        bodies = [b"a", b"b", b"c", b"d"]
        a, *_ = box.append(*[
            message(body=body, properties="KEYS\x01k\x02x\x01" + ("\0" if body == b"b" else "y"))
            for body in bodies])
        # For the index all of them are old.
        assert box.store.index is not None
        box.store.index.current().put(1, "k", 10**6, box.now_ms)
        box.step(11_000, 40)
        box.store.queues.write_all()
        file = box.disk.open_file(segment_path("/store/consumequeue/TopicTest/0", 0))
        file.write_at(ENTRY.size, ENTRY.pack(a.physical_offset, a.size, 0))
        box = box.after_kill()
        self.assertEqual(box.bodies(), bodies)
