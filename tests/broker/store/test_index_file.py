"""One index file: the writes of a round, and the states that a crash in it leaves."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.index_file import IndexFile
from twistmq.broker.store.index_tail import (
    HEADER,
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    SLOT_SIZE,
    settled_count,
)
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.properties import java_string_hash

PREFIX = java_string_hash("T#")
PATH = "/index/20261121080613971"
SLOTS, ITEMS = 3, 20


class IndexFileTests(SynchronousTestCase):
    """The class IndexFile, without the classes that order its steps."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.disk.make_directory("/index")
        self.file = self.make()

    def make(self) -> IndexFile:
        return IndexFile(self.disk, PATH, SLOTS, ITEMS)

    def put(self, first: int, count: int) -> None:
        """Add keys of messages, each at its number and a second after the one before."""
        for number in range(first, first + count):
            self.assertTrue(self.file.tail.put(PREFIX, f"k{number}", number, 1000 * number))

    def flush(self, header: bool = True) -> None:
        """Run a round, or one that a crash ends before the header."""
        self.file.begin_round()
        while not self.file.write_items():
            continue
        self.file.write_count()
        while not self.file.write_pages():
            continue
        if header:
            self.file.write_header()

    def opened(self, repaired: bool = False) -> IndexFile:
        """Return another reader of the file on disk."""
        file = self.make()
        file.load()
        file.settle()
        if repaired:
            file.repair()
        return file

    def found(self, file: IndexFile, number: int) -> list[int]:
        return file.tail.find(PREFIX, f"k{number}", 9, 0, 2**62)

    def test_counts_with_its_header(self) -> None:
        """Items and slots are there before; the file is whole, and flushed, with the header."""
        self.put(1, 4)
        self.assertFalse(self.file.is_flushed)
        self.flush(header=False)
        self.assertEqual(self.opened().tail.count, 1)
        self.file.write_header()
        self.assertTrue(self.file.is_flushed)
        opened = self.opened()
        self.assertEqual((opened.tail.count, opened.tail.end_physical), (5, 4))
        self.assertTrue(opened.is_whole())
        self.assertEqual([self.found(opened, number) for number in range(1, 6)],
                         [[1], [2], [3], [4], []])

    def test_first_round_of_the_first_message(self) -> None:
        """Its position is 0, like the end in a header without one; the end decides."""
        self.assertTrue(self.file.tail.put(PREFIX, "first", 0, 5000))
        self.put(6, 2)
        self.file.begin_round()
        self.file.write_items()
        self.file.write_count()
        opened = self.opened(repaired=True)
        self.assertEqual((opened.tail.count, opened.is_whole()), (1, True))
        self.file.write_pages()
        self.assertEqual(self.opened().tail.count, 1)
        self.file.write_header()
        self.assertEqual(self.opened().tail.find(PREFIX, "first", 9, 0, 2**62), [0])

    def test_a_round_is_of_what_was_known(self) -> None:
        """Items that are added during a round are not in its header, and cause the next round."""
        self.put(1, 2)
        self.file.begin_round()
        self.put(3, 2)
        self.assertEqual(self.file.header_timestamp, 2000)
        while not self.file.write_items() or not self.file.write_pages():
            continue
        self.file.write_header()
        self.assertFalse(self.file.is_flushed)
        self.assertEqual(self.opened().tail.count, 3)
        self.flush()
        self.assertTrue(self.file.is_flushed)
        self.assertEqual(self.opened().tail.count, 5)

    def test_slots_that_a_crash_left_ahead_lead_to_items_the_header_counts(self) -> None:
        """The slots then refer to items that the header counts, on disk as well."""
        self.put(1, 4)
        self.flush()
        self.put(5, 6)
        self.flush(header=False)
        ahead = self.disk.read_file(PATH)[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * SLOTS]
        opened = self.opened(repaired=True)
        data = self.disk.read_file(PATH)[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * SLOTS]
        self.assertNotEqual(data, ahead)
        slots = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
        self.assertEqual(max(slots), 4)
        self.assertEqual(HEADER.unpack(self.disk.read_file(PATH)[:HEADER_SIZE])[3:], (4, 3, 5))
        self.assertEqual([self.found(opened, number) for number in range(1, 8)],
                         [[1], [2], [3], [4], [], [], []])

    def test_count_comes_first(self) -> None:
        """It is written with the previous end; in a new file with the beginning of
        its first item.
        """
        file = self.file
        before = self.make()
        before.tail.put(PREFIX, "other", 2, 2500)
        file.follow(before)
        for first, count, end in ((3, 4, (2500, 2)), (7, 2, (6000, 6))):
            self.put(first, count)
            file.begin_round()
            file.write_items()
            file.write_count()
            header = HEADER.unpack(self.disk.read_file(PATH)[:HEADER_SIZE])
            self.assertEqual((header[0:4:2], header[1:4:2], header[5]),
                             ((3000, 3), end, first + count - 2))
            self.assertEqual(self.opened().tail.count, first - 2)
            file.write_pages()
            file.write_header()

    def test_settle_counts_many(self) -> None:
        """A round may have any number of items."""
        counts = []
        for count in (1, 4096, 4097, 9000):
            items = b"".join(ITEM.pack(0, place, 0, 0) for place in range(count + 3))

            def read(number: int, how_many: int, items: bytes = items) -> bytes:
                return items[number * ITEM_SIZE : (number + how_many) * ITEM_SIZE]

            counts.append([settled_count(count, 5000, end, read)
                           for end in (0, 1, count - 2, count - 1, count)])
        self.assertEqual(counts, [[1, 1, 1, 1, 1], *(
            [1, 2, count - 1, count, count] for count in (4096, 4097, 9000))])

    def test_settle_of_a_damaged_header(self) -> None:
        """The time is limited, whatever the header contains."""
        reads = []

        def read(number: int, how_many: int) -> bytes:
            reads.append(number)
            return bytes(how_many * ITEM_SIZE)

        self.assertEqual(settled_count(2**31 - 1, 5000, -1, read), 1)
        self.assertEqual(settled_count(2**31 - 1, 0, 0, read), 1)
        self.assertEqual(settled_count(2**31 - 1, 5000, 0, read), 2**31 - 1)
        self.assertEqual(len(reads), 1)

    def test_a_header_whose_end_is_no_items_message_is_not_whole(self) -> None:
        """The header must end at an item's message, which may be the message of an earlier item."""
        self.put(1, 3)
        self.flush()
        for header, whole in (((1000, 3000, 1, 3, 3, 4), True), ((1000, 3000, 1, 2, 3, 4), True),
                              ((1000, 3000, 1, 4, 3, 4), False),
                              ((0, 0, 0, 0, 0, 1), True), ((0, 0, 0, 7, 0, 1), False),
                              ((1000, 3000, 1, 3, 3, ITEMS + 5), False)):
            self.disk.open_file(PATH).write_at(0, HEADER.pack(*header))
            self.assertEqual(self.opened().is_whole(), whole, msg=str(header))

    def test_a_file_says_whether_it_touches_a_time_span(self) -> None:
        """Both ends of the time span belong to it."""
        self.put(2, 3)
        for begin_ms, end_ms, matches in ((0, 1999, False), (0, 2000, True), (4000, 9000, True),
                                          (4001, 9000, False), (2500, 2600, True)):
            self.assertEqual(self.file.matches_time(begin_ms, end_ms), matches,
                             msg=f"{begin_ms} {end_ms}")

    def test_a_new_name_is_synced_once(self) -> None:
        """The first sync makes the file's name durable too."""
        self.put(1, 1)
        self.flush()
        self.assertEqual(self.disk.file_size(PATH),
                         HEADER_SIZE + SLOT_SIZE * SLOTS + ITEM_SIZE * ITEMS)
        for syncs in (2, 1):
            before = self.disk.sync_count
            self.file.sync()
            self.assertEqual(self.disk.sync_count - before, syncs)
