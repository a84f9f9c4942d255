"""The check of a store from outside: a whole one, and each kind of damage."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.consume_queue import ENTRY, FILLER
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.extension_unit import ExtensionUnit
from twistmq.broker.store.inspect.check import StoreCheck
from twistmq.broker.store.inspect.dump import Wanted, as_json, as_text, find_records
from twistmq.broker.store.inspect.extension_view import UnitFinder
from twistmq.broker.store.inspect.files import Reader, Segments
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.properties import tags_code
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    SYS_TRANSACTION_PREPARED,
    StoredMessage,
    decode_record,
    record_size,
)

#: What a report calls messages that a running broker has yet to write to their queues.
LATE = "records whose queue entry is not on disk yet"
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store" / "5.3.3"
FILE_SIZE = 4096
#: Index of small_settings: where items begin, in bytes.
ITEMS = 40 + 4 * 50
COUNT = 90


def digest(root: Path) -> dict[str, tuple[str, int]]:
    """Return the content and the time of change of every file in a directory."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
    }


def check(root: Path, limit: int = 1000) -> tuple[list[str], Report]:
    """Check a store; the lines of the disagreements, and the report."""
    lines: list[str] = []
    report = Report(root, lines.append, limit)
    files = StoreFiles(root)
    try:
        StoreCheck(files, report).run()
    finally:
        files.close()
    return lines, report


def fill(root: Path, count: int = COUNT, **changes: Any) -> StoreBox:
    """Create our store with messages of several queues, tags and keys in several files."""
    box = StoreBox(RealDisk(), root=str(root), mapped_file_size_commit_log=FILE_SIZE,
                   **changes).open()
    for number in range(count):
        box.now_ms += 700
        box.append(message("Topic", f"body of {number}".encode() * 3, queue_id=number % 2,
                           tag=f"Tag{number % 3}", keys=f"key{number} all",
                           unique_key=f"U{number:04d}"))
    box.append(message("RMQ", b"half", unique_key="H", sys_flag=SYS_TRANSACTION_PREPARED))
    config = root / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"topicConfigTable":{"Topic":{"topicName":"Topic"},'
                                        '"RMQ":{"topicName":"RMQ"}}}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"Topic@G":{0:1,1:2}}}')
    return box


class _StoreTests(SynchronousTestCase):
    """Tests with a store that was stopped cleanly."""

    changes: ClassVar[dict[str, Any]] = {}

    def setUp(self) -> None:
        """Create the store."""
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.root.mkdir(parents=True)
        self.box = fill(self.root, **self.changes)
        self.successResultOf(self.box.store.stop())

    def log(self, number: int) -> tuple[Path, int, StoredMessage]:
        """File, byte in it and record of the nth message in the log."""
        for path in sorted((self.root / "commitlog").iterdir()):
            data, at = path.read_bytes(), 0
            while record_size(data, at) > BLANK_SIZE_MIN and data[at + 4] == 0xDA:
                if number == 0:
                    return path, at, decode_record(data, at)
                number -= 1
                at += record_size(data, at)
        raise AssertionError(number)

    def patch_at(self, path: Path, position: int, data: bytes) -> None:
        """Overwrite bytes of a file."""
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    def expect(self, *parts: tuple[str, ...]) -> list[str]:
        """Check: there is a line with all texts of each tuple, and nothing changes on disk."""
        before = digest(self.root)
        lines, report = check(self.root)
        self.assertEqual(digest(self.root), before)
        self.assertGreaterEqual(report.problems, len(parts))
        for texts in parts:
            found = [line for line in lines if all(text in line for text in texts)]
            self.assertTrue(found, msg=f"{texts} in:\n" + "\n".join(lines))
        return lines


class WholeStoreTests(_StoreTests):
    """Stores without damage."""

    def test_a_clean_store_has_no_finding_and_does_not_change(self) -> None:
        """There is no finding, everything is counted, and the disk is unchanged."""
        before = digest(self.root)
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertEqual(digest(self.root), before)
        counts = report.counts
        self.assertEqual((counts["records"], counts["queue entries"], counts["index items"]),
                         (COUNT + 1, COUNT, 3 * COUNT + 1))
        self.assertGreater(counts["commit-log files"], 2)
        self.assertGreater(counts["queue files"], 4)
        self.assertGreater(counts["index files"], 1)
        self.assertIn(f" {COUNT + 1}  records", report.table())

    def test_a_store_of_apaches_broker_is_sound(self) -> None:
        """A store of Apache's broker has no finding."""
        lines, report = check(GOLDEN)
        self.assertEqual((lines, report.counts["records"]), ([], 42))

    def test_unflushed_queues_of_a_running_broker_are_no_finding(self) -> None:
        """While a broker runs, queues and index may lack the newest entries."""
        box = self.box._again().open()
        box.append(message("Topic", b"new", keys="new"), message("New", b"new", keys="new"))
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertEqual(report.counts[LATE], 2)
        self.assertEqual(report.counts["records not in the index yet"], 2)
        self.successResultOf(box.store.stop())
        lines, report = check(self.root)
        self.assertEqual((lines, report.counts[LATE]), ([], 0))

    def test_running_with_an_index_file_to_come(self) -> None:
        """The last file on disk is full, so some keys of a record are in no file yet."""
        self.box._again().open().store.close()
        sorted((self.root / "index").iterdir())[-1].unlink()
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        items = report.counts["index items"]
        self.assertNotEqual(items % 3, 0)
        self.assertEqual(report.counts["records not in the index yet"], COUNT + 1 - items // 3)

    def test_a_killed_brokers_half_written_tail_is_no_finding(self) -> None:
        """The check does not report the incomplete record of a killed broker."""
        box = self.box._again().open()
        (record,) = box.append(message("Topic", b"x" * 300))
        box.store.close()
        path = self.root / "commitlog" / f"{record.physical_offset // FILE_SIZE * FILE_SIZE:020d}"
        self.patch_at(path, record.physical_offset % FILE_SIZE + 200, bytes(200))
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertIn(f"the log ends at {record.physical_offset}", report.notes[0])
        (self.root / "abort").unlink()
        self.expect((path.name, f"byte {record.physical_offset % FILE_SIZE}"))

    def test_old_log_files_are_gone(self) -> None:
        """After retention, entries and items of deleted files are only counted."""
        (self.root / "commitlog" / f"{0:020d}").unlink()
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertGreater(report.counts["entries of removed messages"], 20)
        self.assertGreater(report.counts["items of removed messages"], 60)

    def test_deleted_topic(self) -> None:
        """The records of a deleted topic have no queue."""
        shutil.rmtree(self.root / "consumequeue" / "Topic")
        (self.root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
        lines, report = check(self.root)
        self.assertEqual((lines, report.counts["records of deleted queues"]), ([], COUNT))

    def test_a_topic_that_was_made_again(self) -> None:
        """The records of the old topic need no entries."""
        box = self.box._again().open()
        box.store.delete_topic("Topic")
        for number in range(3):
            box.append(message("Topic", b"%d" % number, queue_id=0))
        self.successResultOf(box.store.stop())
        self.assertEqual([path.name for path in (self.root / "consumequeue/Topic").iterdir()],
                         ["0"])
        lines, report = check(self.root)
        self.assertEqual((lines, report.counts["records of deleted queues"]), ([], COUNT))

    def test_a_wrong_first_entry_hides_no_record(self) -> None:
        """An entry with offset 0 that points after the records of others does not hide them."""
        queue = next((self.root / "consumequeue" / "Topic" / "0").iterdir())
        *_, last = self.log(COUNT - 1)
        self.patch_at(queue, 0, struct.pack(">qi", last.physical_offset, last.size))
        lines, report = check(self.root)
        self.assertTrue(lines)
        self.assertEqual(report.counts["records of deleted queues"], 0)

    def test_a_directory_without_a_log_is_not_a_store(self) -> None:
        """The error says where a store was found instead."""
        error = self.assertRaises(StoreError, StoreFiles, self.root / "config")
        self.assertIn("is not a store", str(error))
        outer = self.root / "outer"
        shutil.copytree(GOLDEN, outer / "store")
        error = self.assertRaises(StoreError, StoreFiles, outer)
        self.assertIn(f"did you mean {outer / 'store'}?", str(error))


class LogDamageTests(_StoreTests):
    """Damage in the commit log."""

    def damage(self, number: int, field: int, data: bytes) -> tuple[str, int]:
        """Overwrite a part of the nth record.

        :returns: the file's shown path and the record's byte.
        """
        path, at, _ = self.log(number)
        self.patch_at(path, at + field, data)
        return f"commitlog/{path.name}", at

    def test_a_flipped_byte_of_a_body(self) -> None:
        """A byte of a body is changed."""
        path, at = self.damage(20, 90, b"\xff")
        lines = self.expect((path, f"byte {at + 8}", "CRC", f"record at byte {at}"))
        self.assertEqual(len(lines), 1)

    def test_a_bad_magic_number_is_found_with_its_references(self) -> None:
        """The magic number is wrong; the entry and the items that refer to it are named too."""
        path, at = self.damage(20, 4, b"\xda\xa3\x20\xa8")
        _, following, _ = self.log_after(20)
        lines = self.expect((path, f"byte {at}:", "magic daa320a8", f"byte {following}"),
                            ("consumequeue/Topic/0", "offset 10", "no record starts there"),
                            ("index/", "item", "no record starts there"))
        self.assertLessEqual(len(lines), 4)

    def log_after(self, number: int) -> tuple[Path, int, StoredMessage]:
        """The place after the nth record, which is damaged."""
        path, at, record = self.log(number - 1)
        size = record_size(path.read_bytes(), at + record.size)
        return path, at + record.size + size, record

    def test_a_bad_size_is_found_and_the_walk_goes_on(self) -> None:
        """The size is wrong; the walk finds the next record without it."""
        path, at, _ = self.log(30)
        for value in (0, -1, 90, 3, 1 << 30):
            self.patch_at(path, at, struct.pack(">i", value))
            self.expect((path.name, f"byte {at}:", f"size {value}", "the next one starts at byte"))

    def test_a_record_that_says_another_place(self) -> None:
        """A record has another position."""
        path, at = self.damage(20, 28, struct.pack(">q", 12345))
        self.expect((path, f"byte {at + 28}", "its own place", "12345"))

    def test_properties_without_a_separator(self) -> None:
        """Properties have no separator."""
        path, at, record = self.log(5)
        start = at + record.size - len(record.properties)
        self.patch_at(path, start, record.properties.encode().replace(b"\1", b"=", 1))
        self.expect((path.name, f"byte {start}", "properties"))

    def test_a_file_that_was_cut(self) -> None:
        """A file was cut."""
        path = self.root / "commitlog" / f"{FILE_SIZE:020d}"
        with path.open("r+b") as file:
            file.truncate(2000)
        self.expect((path.name, f"expected {FILE_SIZE} bytes", "found 2000 bytes"),
                    ("consumequeue/Topic/1",))

    def test_a_file_in_the_middle_is_gone(self) -> None:
        """The file, and the entries and items that refer to it, are named."""
        path = self.root / "commitlog" / f"{FILE_SIZE:020d}"
        path.unlink()
        lines = self.expect((f"commitlog/{path.name}: expected a file, found none",),
                            ("consumequeue/Topic/0", "no file"), ("index/", "no file"),
                            ("more times",))
        self.assertLess(len(lines), 20)

    def test_the_blank_record_at_a_files_end_is_damaged(self) -> None:
        """The blank record at a file's end is damaged."""
        path = self.root / "commitlog" / f"{0:020d}"
        at = path.read_bytes().rindex(b"\xcb\xd4\x31\x94") - 4
        self.patch_at(path, at, struct.pack(">i", 7))
        self.expect((path.name, f"byte {at}:", "blank record", "one of 7"))
        self.patch_at(path, at, bytes(8))
        self.expect((path.name, f"byte {at}:", "expected a record"))

    def test_behind_the_end(self) -> None:
        """Bytes behind the last record of a store that was stopped cleanly."""
        path = sorted((self.root / "commitlog").iterdir())[-1]
        self.patch_at(path, FILE_SIZE - 100, b"rest")
        self.expect((path.name, "expected a record", "magic 00000000"))


class QueueDamageTests(_StoreTests):
    """Damage in the consume queues."""

    def entry(self, offset: int) -> tuple[Path, int, tuple[int, int, int]]:
        """File, byte in it and numbers of an entry of queue 1."""
        path = self.root / "consumequeue" / "Topic" / "1" / f"{offset // 20 * 400:020d}"
        at = offset % 20 * 20
        return path, at, ENTRY.unpack_from(path.read_bytes(), at)

    def change(self, offset: int, make: Callable[[int, int, int], bytes]) -> tuple[str, str]:
        """Overwrite an entry."""
        path, at, numbers = self.entry(offset)
        self.patch_at(path, at, make(*numbers))
        return f"consumequeue/Topic/1/{path.name}", f"byte {at}"

    def test_an_entry_that_points_at_another_queues_record(self) -> None:
        """It refers to a record of another queue, into a record, or after the end."""
        other = self.log(44)[2].physical_offset
        for place in (other, other + 1, 10**9, -5):
            name, at = self.change(23, lambda _, size, code, to=place:  # type: ignore[misc]
                                   ENTRY.pack(to, size, code))
            lines = self.expect((name, at, f"place {place}"))
            self.assertEqual(len(lines), 1, msg=lines)

    def test_a_wrong_size_in_an_entry_is_found(self) -> None:
        """The size is wrong."""
        name, _ = self.change(30, lambda place, size, code: ENTRY.pack(place, size + 1, code))
        self.expect((name, "byte 208", "the record's size"))

    def test_tags_code(self) -> None:
        """The check reports a code that does not belong to the tag."""
        name, _ = self.change(31, lambda place, size, code: ENTRY.pack(place, size, code + 1))
        self.expect((name, "byte 232", "'Tag0'", str(tags_code("Tag0") + 1)))

    def test_an_entry_in_the_middle_is_zeros(self) -> None:
        """The entry is all zeros, or a filler."""
        for data, found in ((bytes(20), "found zeros"), (FILLER, "found a filler")):
            name, at = self.change(25, lambda *_, data=data: data)  # type: ignore[misc]
            lines = self.expect((name, at, "the entry of the record at", found))
            self.assertEqual(len(lines), 1, msg=lines)

    def test_missing_entries(self) -> None:
        """Each record without an entry is counted, and the first one is named."""
        path, _, _ = self.entry(40)
        path.unlink()
        _, at, record = self.log(81)
        self.assertEqual(record.queue_offset, 40)
        self.expect(("commitlog/", f"byte {at}:", "Topic-1 at offset 40"), ("4 more times",))

    def test_missing_queue(self) -> None:
        """A whole queue is missing."""
        shutil.rmtree(self.root / "consumequeue" / "Topic" / "0")
        self.expect(("byte 0:", "Topic-0 at offset 0", "no such queue"), ("44 more times",))

    def test_missing_file(self) -> None:
        """A file in the middle of a queue is missing."""
        path, _, _ = self.entry(20)
        path.unlink()
        self.expect((path.name, "expected a file"))

    def test_second_record(self) -> None:
        """Two records have one queue offset."""
        path, at, _ = self.log(40)
        self.patch_at(path, at + 20, struct.pack(">q", 3))
        self.expect((f"byte {at}:", "one record with offset 3 of Topic-0", "a second one"))


class IndexDamageTests(_StoreTests):
    """Damage in the index, the checkpoint and the configuration."""

    def index(self) -> Path:
        """Return the first index file, which is full."""
        return min((self.root / "index").iterdir())

    def test_an_item_that_points_elsewhere(self) -> None:
        """An item refers to another position, in the log or outside it."""
        at = ITEMS + 20 * 100
        other = self.log(3)[2].physical_offset
        for place in (other, 17, 1 << 40):
            self.patch_at(self.index(), at + 4, struct.pack(">q", place))
            self.expect((self.index().name, str(place), "item 100"),
                        ("commitlog/", "an index item of Topic"))

    def test_hash_and_time(self) -> None:
        """An item with another hash, and one with another time."""
        at = ITEMS + 20 * 50
        self.patch_at(self.index(), at + 12, struct.pack(">i", 9999))
        lines = self.expect((f"byte {at + 12}", "9999"))
        self.assertEqual(len(lines), 1)
        self.patch_at(self.index(), at, struct.pack(">i", 4711))
        self.expect((f"byte {at}:", "4711", "item 50"))

    def test_slot_and_chain(self) -> None:
        """A slot has the number of another item, or an item has a wrong predecessor."""
        slot = next(number for number in range(50)
                    if self.index().read_bytes()[40 + 4 * number : 44 + 4 * number] != bytes(4))
        self.patch_at(self.index(), 40 + 4 * slot, struct.pack(">i", 1))
        self.expect((self.index().name, f"byte {40 + 4 * slot}:", f"slot {slot}", "found 1"))
        self.patch_at(self.index(), ITEMS + 20 * 150 + 16, struct.pack(">i", 149))
        self.expect((f"byte {ITEMS + 20 * 150 + 16}:", "the item before", "found 149"))

    def test_each_number_of_the_index_header_is_checked(self) -> None:
        """Each number of the header is checked."""
        whole = self.index().read_bytes()[:40]
        for position, name in ((0, "begin time"), (8, "end time"), (16, "begin place"),
                               (24, "end place"), (32, "slots used")):
            data = bytearray(whole)
            data[position + 3] ^= 1
            self.patch_at(self.index(), 0, bytes(data))
            self.expect((self.index().name, f"byte {position}:", name))
        self.patch_at(self.index(), 0, whole[:36] + struct.pack(">i", 100))
        self.expect((self.index().name, "byte 24:"), ("an index item",))
        self.patch_at(self.index(), 0, whole[:36] + struct.pack(">i", 5000))
        self.expect((self.index().name, "byte 36:", "at most 200"))

    def test_missing_file(self) -> None:
        """One line reports all records whose items are missing with a file."""
        self.index().unlink()
        lines = self.expect(("commitlog/", "byte 0:", "'U0000'"), ("more times",))
        self.assertEqual(len(lines), 2)

    def test_each_record_is_found_at_its_own_store_time(self) -> None:
        """The times of the index leave no record out, not even the first of a file."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        root.mkdir(parents=True)
        box = StoreBox(RealDisk(), root=str(root), max_index_num=6,
                       max_hash_slot_num=50).open()
        times = []
        for number in range(12):
            box.now_ms += 377 if number % 2 else 5_123
            box.append(message("Topic", keys="k"))
            times.append(box.now_ms)
        self.successResultOf(box.store.stop())
        files = StoreFiles(root)
        self.addCleanup(files.close)
        for number, time_ms in enumerate(times):
            wanted = Wanted("Topic", begin_ms=time_ms, end_ms=time_ms, key="k")
            found = find_records(files, wanted, Report(root, print, 9), index_slots=50)
            self.assertEqual([each.queue_offset for _, each in found], [number])

    def test_times_ahead_of_the_newest_record(self) -> None:
        """Times ahead of the newest record, and a number that cannot be."""
        for position, name in ((0, "physic"), (8, "logics"), (16, "index")):
            self.patch_at(self.root / "checkpoint", position, struct.pack(">q", 1 << 50))
            self.expect(("checkpoint", f"byte {position}:", name, str(1 << 50)))
        self.patch_at(self.root / "checkpoint", 8, struct.pack(">q", -2))
        self.expect(("checkpoint:", "logics_msg_timestamp is -2"))

    def test_a_file_that_is_no_json(self) -> None:
        """The file is not JSON; an empty one has its backup."""
        path = self.root / "config" / "topics.json"
        path.write_text('{"topicConfigTable":')
        self.expect(("config/topics.json", "expected JSON"))
        path.write_text("")
        self.expect(("config/topics.json", "found nothing"))
        path.with_name("topics.json.bak").write_text(json.dumps({"topicConfigTable": {}}))
        self.assertEqual(check(self.root)[0], [])

    def test_lines_beyond_the_limit_are_counted(self) -> None:
        """Lines above the limit are counted."""
        for number in range(10, 20):
            path, at, _ = self.log(number)
            self.patch_at(path, at + 90, b"\xff")
        lines, report = check(self.root, limit=3)
        self.assertEqual((len(lines), lines[3], report.problems), (4, "and 7 more", 10))


class ExtensionTests(_StoreTests):
    """The extensions of queues: 45 units of 20 bytes each, in files of 14 units."""

    changes: ClassVar = {"enable_consume_queue_ext": True,
                         "mapped_file_size_consume_queue_ext": 300}

    def extension(self, start: int) -> Path:
        """Return a file of the first queue."""
        return self.root / "consumequeue_ext" / "Topic" / "0" / f"{start:020d}"

    def test_clean_extensions_have_no_finding_while_a_broker_runs(self) -> None:
        """There is no finding and all is counted, also while a broker runs."""
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertEqual((report.counts["extension files"], report.counts["extension units"],
                          report.counts["entries with a unit"]), (8, COUNT, COUNT))
        box = self.box._again().open()
        box.append(message("Topic", b"new"))
        lines, report = check(self.root)
        self.assertEqual((lines, report.counts["extension units"]), ([], COUNT))
        self.successResultOf(box.store.stop())
        self.assertEqual(check(self.root)[1].counts["extension units"], COUNT + 1)

    def test_a_code_or_a_time_that_is_not_the_records(self) -> None:
        """A code or a time that is not the record's: the byte in the unit."""
        self.patch_at(self.extension(0), 40 + 9, b"\xff")
        self.patch_at(self.extension(300), 20 + 17, b"\xff")
        self.expect(("consumequeue_ext/Topic/0/", "byte 42:", "the code"),
                    (f"{300:020d}", "byte 30:", "store time"))

    def test_lost_unit(self) -> None:
        """The check names an entry that refers to bytes that are not a unit, and their file."""
        self.patch_at(self.extension(0), 60, b"\x00\x15")
        lines = self.expect(("consumequeue/Topic/0/", "byte 72:", "the address of a unit"),
                            (f"consumequeue_ext/Topic/0/{0:020d}", "byte 60:", "a size of 21"))
        self.assertEqual(len(lines), 2)

    def test_lost_file(self) -> None:
        """The file and the entries that refer to it are named."""
        self.extension(300).unlink()
        lines = self.expect((f"{300:020d}: expected a file",), ("the address of a unit",))
        self.assertEqual(len(lines), 1 + 14)

    def test_an_extension_file_of_another_length_is_found(self) -> None:
        """A file that is longer or shorter than the others."""
        self.patch_at(self.extension(0), 300, b"\0")
        self.expect((f"{0:020d}", "300 bytes as the others have", "301 bytes"))

    def test_a_record_is_shown_with_its_unit(self) -> None:
        """A record without a unit is shown without one."""
        files = StoreFiles(self.root)
        self.addCleanup(files.close)
        units = UnitFinder(files)
        record = self.log(4)[2]
        unit = units.find(record.physical_offset, record)
        self.assertEqual(unit, ExtensionUnit(tags_code("Tag1"), record.store_timestamp))
        shown = json.loads(as_json(0, record, False, unit))
        self.assertEqual(shown["extension"], {
            "tagsCode": tags_code("Tag1"), "msgStoreTime": record.store_timestamp,
            "filterBitMap": ""})
        self.assertIn(f"extension: tags code {tags_code('Tag1')}, stored 2023-11-14T22:13:",
                      as_text(0, record, False, unit))
        self.assertIsNone(units.find(record.physical_offset + 1, record))
        shutil.rmtree(self.root / "consumequeue_ext")
        self.assertIsNone(UnitFinder(files).find(record.physical_offset, record))
        self.assertNotIn("extension", json.loads(as_json(0, record, False)))


class FilesTests(SynchronousTestCase):
    """Files that are opened for reading only."""

    def test_written_end_of_a_sparse_file(self) -> None:
        """It is found without reading the holes."""
        path = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        with path.open("wb") as file:
            file.truncate(1 << 40)
            file.seek(5 << 20)
            file.write(b"end\0\0")
        reader = Reader()
        self.assertEqual(reader.written_end(path), (5 << 20) + 3)
        reader.close()

    def test_a_file_that_goes(self) -> None:
        """The file counts as empty, and is noted."""
        path = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        reader = Reader()
        segments = Segments(reader, path, {0: 100}, 100)
        self.assertEqual(segments.cached(5, 10), b"")
        self.assertTrue(segments.is_gone(5))
        self.assertEqual(segments.written_end(), 0)
