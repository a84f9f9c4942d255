"""The hash table of an index file: its layout, its chains, and its items in memory."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.index_tail import (
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    PAGE_SIZE,
    SLOT,
    IndexTail,
    page_bytes,
)
from twistmq.protocol.properties import java_string_hash

PREFIX = java_string_hash("T#")
ALWAYS = (0, 2**62)


class FakeFile:
    """A file of bytes a tail reads, and into which a test writes it."""

    def __init__(self, slot_count: int, item_max: int) -> None:
        self.data = bytearray(HEADER_SIZE + 4 * slot_count + ITEM_SIZE * item_max)
        self.tail = IndexTail(slot_count, item_max, self.read)

    def read(self, position: int, size: int) -> bytes:
        """Read as a file does."""
        return bytes(self.data[position : position + size])

    def write_items(self) -> None:
        """Write the items that wait."""
        tail = self.tail
        at = tail.items_position(tail.items_start)
        self.data[at : at + len(tail.items)] = tail.items
        tail.items_start += len(tail.items) // ITEM_SIZE
        tail.items.clear()

    def write_slots(self) -> None:
        """Write the slots that changed, and nothing else of their pages."""
        tail = self.tail
        end = HEADER_SIZE + 4 * tail.slot_count
        for number in tail.begin_flush():
            page = page_bytes(tail.flushing[number])
            start = number * PAGE_SIZE
            for at in range(max(start, HEADER_SIZE), min(start + PAGE_SIZE, end)):
                self.data[at] = page[at - start]
        tail.end_flush()

    def write_header(self) -> None:
        """Write the header."""
        self.data[:HEADER_SIZE] = self.tail.encode_header()


class IndexTailTests(SynchronousTestCase):
    """The class IndexTail."""

    def setUp(self) -> None:
        """A small file: with three slots, chains are long."""
        self.file = FakeFile(3, 10)
        self.tail = self.file.tail

    def test_header_slot_and_items_are_apaches(self) -> None:
        """The header, a slot and the items have Apache's bytes."""
        self.tail.put(PREFIX, "k1", 1000, 1_700_000_000_000)
        self.tail.put(PREFIX, "k1", 2000, 1_700_000_005_999)
        code = abs(java_string_hash("T#k1"))
        items = list(ITEM.iter_unpack(self.tail.items))
        self.assertEqual(items, [(code, 1000, 0, 0), (code, 2000, 5, 1)])
        header = self.tail.encode_header()
        numbers = [1_700_000_000_000, 1_700_000_005_999, 1000, 2000]
        expected = "".join(f"{n:016x}" for n in numbers) + "00000001" + "00000003"
        self.assertEqual(header.hex(), expected)
        page = self.tail.pages[0]
        assert page is not None
        self.assertEqual(SLOT.unpack_from(page_bytes(page), HEADER_SIZE + 4 * (code % 3))[0], 2)

    def test_finds_newest_first(self) -> None:
        """A chain is walked from its newest item, keys of other hashes skipped."""
        for number in range(8):
            self.tail.put(PREFIX, f"k{number % 2}", number, 1_000_000 + number)
        self.assertEqual(self.tail.find(PREFIX, "k1", 10, *ALWAYS), [7, 5, 3, 1])
        self.assertEqual(self.tail.find(PREFIX, "k1", 2, *ALWAYS), [7, 5])
        self.assertEqual(self.tail.find(PREFIX, "none", 10, *ALWAYS), [])

    def test_time_limits(self) -> None:
        """Items outside the time span are left out; both ends belong to it."""
        for number in range(5):
            self.tail.put(PREFIX, "k", number, 1_000_000 + number * 1000)
        self.assertEqual(self.tail.find(PREFIX, "k", 10, 1_001_000, 1_003_000), [3, 2, 1])

    def test_time_limits_within_a_second(self) -> None:
        """If an end of the span is within a second, the store times of the messages decide."""
        times = [1_000_700, 1_001_200, 1_001_650, 1_001_700, 1_002_650, 1_002_750]
        for number, time_ms in enumerate(times):
            self.tail.put(PREFIX, "k", number, time_ms)
        for begin in range(999_500, 1_003_500, 50):
            for end in range(begin, 1_003_500, 50):
                expected = [number for number, time_ms in enumerate(times)
                            if begin <= time_ms <= end]
                found = self.tail.find(PREFIX, "k", 10, begin, end, times.__getitem__)
                self.assertEqual(found, expected[::-1], (begin, end))
                # A message outside the span takes no place of those that are wanted.
                found = self.tail.find(PREFIX, "k", 1, begin, end, times.__getitem__)
                self.assertEqual(found, expected[-1:], (begin, end))

    def test_time_limits_of_what_cannot_be_read(self) -> None:
        """If a message cannot be read, the second of the item decides."""
        self.tail.put(PREFIX, "k", 0, 1_000_700)
        self.tail.put(PREFIX, "k", 1, 1_002_000)
        self.assertEqual(self.tail.find(PREFIX, "k", 10, 1_001_699, 1_001_699), [0])
        self.assertEqual(self.tail.find(PREFIX, "k", 10, 1_001_700, 1_001_700), [1])

    def test_item_numbers_end_one_below_the_maximum(self) -> None:
        """A full file accepts no item."""
        added = 0
        while self.tail.put(PREFIX, str(added), added, 1):
            added += 1
        self.assertEqual((added, self.tail.is_full()), (9, True))
        self.assertEqual(len(self.tail.items), 9 * ITEM_SIZE)

    def test_smallest_hash(self) -> None:
        """The hash without a positive counterpart counts as zero."""
        self.assertEqual(java_string_hash("polygenelubricants"), -(2**31))
        prefix = java_string_hash("polygene")
        self.tail.put(prefix, "lubricants", 5, 1)
        self.assertEqual(ITEM.unpack(self.tail.items)[0], 0)
        self.assertEqual(self.tail.find(prefix, "lubricants", 1, *ALWAYS), [5])

    def test_clock_that_steps_back(self) -> None:
        """A time before the file's first counts as the first."""
        self.tail.put(PREFIX, "k", 0, 1_000_000)
        self.tail.put(PREFIX, "k", 1, 900_000)
        self.assertEqual(ITEM.unpack_from(self.tail.items, ITEM_SIZE)[2], 0)

    def test_what_is_written_is_found_in_the_file(self) -> None:
        """Memory and file are one chain at every stage of a flush."""
        for number in range(4):
            self.tail.put(PREFIX, "k", number, 1)
        self.file.write_items()
        self.assertEqual(self.tail.find(PREFIX, "k", 9, *ALWAYS), [3, 2, 1, 0])
        self.assertEqual(self.tail.begin_flush(), [0])
        self.tail.put(PREFIX, "k", 4, 1)
        self.assertEqual(self.tail.find(PREFIX, "k", 9, *ALWAYS), [4, 3, 2, 1, 0])
        slot_page = self.tail.flushing[0]
        self.assertNotEqual(slot_page, self.tail.pages[0], "a page being written must not change")
        self.file.write_items()
        self.file.write_slots()
        self.assertEqual(self.tail.find(PREFIX, "k", 9, *ALWAYS), [4, 3, 2, 1, 0])

    def test_slots_of_many_pages(self) -> None:
        """Pages that a flush could not write are written by the next, as they are then."""
        slots_of_page = PAGE_SIZE // 4
        file = FakeFile(3 * slots_of_page, 100)
        tail = file.tail
        keys = [f"{number:02d} and its hash is far away" for number in range(30)]
        for number in range(30):
            tail.put(PREFIX, keys[number], number, 1)
        pages = tail.begin_flush()
        self.assertEqual(pages, [0, 1, 2])
        for number in range(0, 30, 7):
            tail.put(PREFIX, keys[number], 100 + number, 1)
        file.write_items()
        file.write_slots()
        self.assertEqual((tail.begin_flush(), tail.flushing), ([], {}))
        slots = array("i", file.data[HEADER_SIZE : HEADER_SIZE + 4 * tail.slot_count])
        slots.byteswap()
        self.assertEqual(sum(number > 0 for number in slots), tail.slots_used)
        for number in range(30):
            expected = [100 + number, number] if number % 7 == 0 else [number]
            self.assertEqual(tail.find(PREFIX, keys[number], 9, *ALWAYS), expected)

    def test_slots_ahead_of_the_header(self) -> None:
        """After a crash between slots and header, older items are still found."""
        self.tail.put(PREFIX, "k", 0, 1)
        self.file.write_header()
        for number in range(1, 4):
            self.tail.put(PREFIX, "k", number, 1)
        self.file.write_items()
        self.file.write_slots()
        again = IndexTail(3, 10, self.file.read)
        again.decode_header(bytes(self.file.data))
        self.assertEqual(again.find(PREFIX, "k", 9, *ALWAYS), [0])
        again.put(PREFIX, "k", 7, 1)
        self.assertEqual(again.find(PREFIX, "k", 9, *ALWAYS), [7, 0])
        self.assertEqual(again.slots_used, 1)

    def test_garbage_does_not_loop(self) -> None:
        """A chain that does not go backwards ends."""
        self.tail.put(PREFIX, "k", 0, 1)
        self.tail.put(PREFIX, "k", 1, 1)
        ITEM.pack_into(self.tail.items, 0, abs(java_string_hash("T#k")), 0, 0, 2)
        self.assertEqual(self.tail.find(PREFIX, "k", 9, *ALWAYS), [1, 0])

    @given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60))
    def test_agrees_with_a_dict(self, steps: list[tuple[str, bool]]) -> None:
        """Whatever is written at any time, every key finds its messages."""
        file = FakeFile(5, 100)
        model: dict[str, list[int]] = {}
        for number, (key, write) in enumerate(steps):
            self.assertTrue(file.tail.put(PREFIX, key, number, 1000))
            model.setdefault(key, []).insert(0, number)
            if write:
                file.write_items()
                file.write_slots()
        for key, places in model.items():
            self.assertEqual(file.tail.find(PREFIX, key, 100, *ALWAYS), places)
        used = len({abs(java_string_hash("T#" + key)) % 5 for key in model})
        self.assertEqual(file.tail.slots_used, used)
