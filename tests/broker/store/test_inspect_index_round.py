"""The check of an index file after a kill during a flush and more rounds of Apache's broker."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.test_inspect import check
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.index_file import IndexFile
from twistmq.broker.store.index_tail import HEADER, HEADER_SIZE, ITEM, ITEM_SIZE, SLOT, SLOT_SIZE
from twistmq.broker.store.inspect.index_check import IndexCheck
from twistmq.broker.store.inspect.index_view import IndexView, Item
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.record import MessageRecord

TOPIC = "Topic"
SLOTS, ITEMS = 24, 200
#: Messages with two keys each: of the round before the kill, and all.
WHOLE, ALL = 4, 12
#: Numbers of the first item of which there is a second one, and of the first that came after. The
#: message of the header's end, which was whole, is put again too.
LEFT, AGAIN = 2 * WHOLE - 1, 2 * ALL + 1


class UnfinishedRoundTests(SynchronousTestCase):
    """Items of the round exist twice, and slots refer to the first of them or skip them."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.root.mkdir(parents=True)
        box = StoreBox(RealDisk(), root=str(self.root), max_hash_slot_num=SLOTS,
                       max_index_num=ITEMS).open()
        self.records: list[MessageRecord] = []
        for number in range(ALL):
            box.now_ms += 700
            self.records += box.append(message(TOPIC, b"body", keys=f"key{number}",
                                               unique_key=f"U{number:04d}"))
        self.successResultOf(box.store.stop())
        self.path = next((self.root / "index").iterdir())

    def open(self) -> IndexFile:
        """Open the unrepaired file as Apache's broker does."""
        file = IndexFile(RealDisk(), str(self.path), SLOTS, ITEMS)
        self.addCleanup(file.close)
        if self.path.exists():
            file.load()
        return file

    def put(self, file: IndexFile, begin: int, end: int) -> None:
        for number in range(begin, end):
            record = self.records[number]
            for key in (f"U{number:04d}", f"key{number}"):
                file.tail.put(java_string_hash(f"{TOPIC}#"), key, record.physical_offset,
                              record.store_timestamp)

    def flush(self, file: IndexFile, *, slots: bool = True, header: bool = True) -> None:
        """Run a round, or the part of it before a kill."""
        file.begin_round()
        file.write_items()
        file.write_count()
        if slots:
            file.write_pages()
        if header:
            file.write_header()

    def go_on(self, slots: bool) -> None:
        """Make the file anew: a kill ends its second round, and Apache's broker goes on.

        :param slots: whether the round's slots were written before the kill.
        """
        self.path.unlink()
        file = self.open()
        self.put(file, 0, WHOLE)
        self.flush(file)
        self.put(file, WHOLE, ALL)
        self.flush(file, slots=slots, header=False)
        file = self.open()
        self.assertEqual((file.tail.count, file.tail.end_physical),
                         (AGAIN, self.records[WHOLE - 1].physical_offset))
        self.put(file, WHOLE - 1, ALL)
        self.flush(file)

    def patch_at(self, position: int, data: bytes) -> None:
        with self.path.open("r+b") as stream:
            stream.seek(position)
            stream.write(data)

    def header(self) -> tuple[int, ...]:
        return HEADER.unpack(self.path.read_bytes()[:HEADER_SIZE])

    def item_position(self, number: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * SLOTS + ITEM_SIZE * number

    def item(self, number: int) -> tuple[int, ...]:
        return ITEM.unpack_from(self.path.read_bytes(), self.item_position(number))

    def first_items(self, begin: int, end: int) -> int:
        """Return how many items of a range were the first in their slots."""
        return sum(self.item(number)[3] == 0 for number in range(begin, end))

    def test_whole_whether_slots_lead_to_the_items_that_were_left_or_pass_them(self) -> None:
        """The kill came behind the slots or before them."""
        for slots in (True, False):
            self.go_on(slots)
            lines, report = check(self.root)
            self.assertEqual(lines, [])
            self.assertEqual(report.counts["index items"], AGAIN - 1 + 2 * (ALL - WHOLE + 1))

    def test_slots_are_counted_as_far_as_can_be_known(self) -> None:
        """Slots whose first item was left over may be counted or not; no others may be missing."""
        self.go_on(slots=True)
        begin_ms, end_ms, begin, end, found, count = self.header()
        used = self.first_items(1, AGAIN)
        least = used - self.first_items(LEFT, AGAIN)
        self.assertTrue(least <= found < used, msg=f"{least}, {found}, {used}")
        for number, is_right in ((least, True), (used, True), (least - 1, False),
                                 (used + 1, False)):
            self.patch_at(0, HEADER.pack(begin_ms, end_ms, begin, end, number, count))
            lines, _ = check(self.root)
            self.assertEqual(lines == [], is_right, msg=f"{number}: {lines}")

    def test_slots_and_chains_that_pass_other_items(self) -> None:
        """An item that was not left over must be in the chain of its slot."""
        self.go_on(slots=False)
        number, item = next(
            (number, item) for number in range(AGAIN, self.header()[5])
            if 0 < (item := self.item(number))[3] < LEFT)
        position = self.item_position(number)
        self.patch_at(position, ITEM.pack(*item[:3], 0))
        lines, _ = check(self.root)
        self.assertTrue(any(f"byte {position + 16}:" in line for line in lines), msg=f"{lines}")
        self.patch_at(position, ITEM.pack(*item))
        # The last item of all is in its slot, whatever a check thinks of the number of slots.
        code, _, _, previous = self.item(self.header()[5] - 2)
        slot = code % SLOTS
        self.assertNotEqual(slot, self.item(self.header()[5] - 1)[0] % SLOTS)
        self.patch_at(HEADER_SIZE + SLOT_SIZE * slot, SLOT.pack(previous))
        lines, _ = check(self.root)
        self.assertTrue(any(f"slot {slot}:" in line for line in lines), msg=f"{lines}")

    def test_places_that_go_back_to_none_that_was_there(self) -> None:
        """Damage is not a sign of a kill, so the chains are checked as usual."""
        self.patch_at(self.item_position(2 * ALL) + 4, (17).to_bytes(8, "big"))
        begin_ms, end_ms, begin, _, used, count = self.header()
        self.patch_at(0, HEADER.pack(begin_ms, end_ms, begin, 17, used - 1, count))
        lines, _ = check(self.root)
        self.assertTrue(any("slots used" in line for line in lines), msg=f"{lines}")

    def test_many_damaged_items_do_not_read_all_others_each(self) -> None:
        """Zeros look as if places went back, with each item again."""
        self.path.unlink()
        file = self.open()
        for number in range(1, ITEMS):
            file.tail.put(0, f"key{number}", 100 * number, 1000 * number)
        self.flush(file)
        damaged = 40
        self.patch_at(self.item_position(ITEMS - 2 * damaged), bytes(ITEM_SIZE * damaged))
        read: list[int] = []
        item = IndexView.item

        def counted(view: IndexView, number: int) -> Item:
            read.append(number)
            return item(view, number)

        self.patch(IndexView, "item", counted)
        lines: list[str] = []
        files = StoreFiles(self.root)
        self.addCleanup(files.close)
        IndexCheck(files, Report(self.root, lines.append, 9), SLOTS).check_structure()
        self.assertTrue(lines)
        self.assertLess(len(read), 12 * damaged)
