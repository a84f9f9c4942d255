"""The extensions of queues: they are written with the entries, found, and kept in order."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.request.filters import TagFilter
from twistmq.broker.store.consume_queue import ENTRY
from twistmq.broker.store.extension_unit import FILE_END, ExtensionUnit, is_address, place_of
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.record import MessageRecord, decode_record

#: Five units of 20 bytes are a file, but for its last 4 bytes.
FILE_SIZE = 110
QUEUE = "/store/consumequeue/TopicTest/0"
EXTENSION = "/store/consumequeue_ext/TopicTest/0"


class _Tests(SynchronousTestCase):
    def setUp(self) -> None:
        self.disk: MemoryDisk = FaultyDisk()
        self.box = self.make()

    def make(self, **changes: Any) -> StoreBox:
        """Create a store with extensions."""
        return StoreBox(self.disk, **{
            "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": FILE_SIZE,
            **changes}).open()

    def send(self, *tags: str, topic: str = "TopicTest") -> list[MessageRecord]:
        """Send a message with each tag, a millisecond apart; bodies are the tags."""
        records = []
        for tag in tags:
            self.box.now_ms += 1
            records += self.box.append(message(topic, tag.encode(), tag=tag))
        return records

    def flush(self) -> None:
        """Flush everything."""
        self.box.step(61_000, 3)
        self.assertEqual(self.box.store.queues.tail_bytes, 0)

    def codes(self) -> list[int]:
        """Return the codes in the queue's entries."""
        entries = self.box.store.queues.extended_entries
        queue = self.box.store.queues.find("TopicTest", 0)
        assert queue is not None
        found: list[int] = []
        while queue.min_offset + len(found) < queue.max_offset:
            found += [entry[2] for entry, _ in entries(
                "TopicTest", 0, queue.min_offset + len(found), 99)[0]]
        return found

    def pulled(self, tag: str, offset: int = 0) -> list[bytes]:
        """Return the bodies that a consumer of one tag gets."""
        result = self.box.store.get_message(
            "TopicTest", 0, offset, 32, TagFilter(frozenset({java_string_hash(tag)})))
        return [decode_record(record).body for record in result.messages]

    def units(self) -> list[ExtensionUnit]:
        """The units in the files, read from the first file's beginning as Apache's broker does."""
        found = []
        for name in self.disk.list_directory(EXTENSION):
            data, at = self.disk.read_file(f"{EXTENSION}/{name}"), 0
            while int.from_bytes(data[at:at + 2], signed=True) > 0:
                unit = ExtensionUnit.decode(data, at)
                assert unit is not None, (name, at)
                found.append(unit)
                at += unit.size
        return found


class WritingTests(_Tests):
    """The units are made with the entries."""

    def test_each_entry_points_at_its_unit_and_full_files_end_with_a_mark(self) -> None:
        """Each entry has the address of its unit; a full file ends with a mark."""
        records = self.send(*"abcdefg")
        self.flush()
        entries = list(ENTRY.iter_unpack(self.disk.read_file(f"{QUEUE}/{0:020d}")))[:7]
        self.assertEqual([place_of(code) for _, _, code in entries],
                         [0, 20, 40, 60, 80, 110, 130])
        first = self.disk.read_file(f"{EXTENSION}/{0:020d}")
        self.assertEqual((len(first), first[100:]), (FILE_SIZE, FILE_END + bytes(8)))
        self.assertEqual(self.units(), [
            ExtensionUnit(ord(tag), record.store_timestamp)
            for tag, record in zip("abcdefg", records, strict=True)])

    def test_without_the_setting_there_is_no_unit_and_no_directory(self) -> None:
        """Without the setting there is neither a unit nor a directory."""
        self.box = self.make(root="/off", enable_consume_queue_ext=False)
        self.send("a")
        self.flush()
        self.assertEqual(self.codes(), [ord("a")])
        self.assertFalse(self.disk.exists("/off/consumequeue_ext"))
        self.assertIsNone(self.box.store.queues.files.extensions)

    def test_no_entry(self) -> None:
        """A half message has no entry and no unit."""
        self.box.append(message(sys_flag=4), message(tag="a"))
        self.flush()
        self.assertEqual([unit.tags_code for unit in self.units()], [ord("a")])

    def test_each_records_bitmap_reaches_the_filters(self) -> None:
        """A plugin gives the bitmap of each record, and filters get it."""
        self.box.store.dispatch.make_bitmap = (
            lambda record: record.body * 3 if record.body != b"c" else None)
        self.send("a", "bb", "c")
        self.flush()
        self.assertEqual([unit.bitmap for unit in self.units()], [b"aaa", b"bbbbbb", b""])
        told: list[tuple[int | None, bytes | None]] = []

        class Told(TagFilter):
            def match_queue_entry(self, tags_code: int, store_time: int | None = None,
                                  bitmap: bytes | None = None) -> bool:
                told.append((store_time, bitmap))
                return bitmap is not None

        found = self.box.store.get_message("TopicTest", 0, 0, 32, Told(frozenset()))
        self.assertEqual(found.message_count, 2)
        start = self.box.store.reader.store_time("TopicTest", 0, 0)
        self.assertEqual(told, [(start, b"aaa"), (start + 1, b"bbbbbb"), (start + 2, None)])

    def test_bitmap_that_does_not_fit(self) -> None:
        """The entry keeps the hash of the tag."""
        self.box.store.dispatch.make_bitmap = lambda record: bytes(FILE_SIZE)
        self.send("a", "b")
        self.assertEqual(self.codes(), [ord("a"), ord("b")])
        self.assertEqual(self.pulled("b"), [b"b"])

    def test_full_disk(self) -> None:
        """Units that cannot be written wait until there is room."""
        assert isinstance(self.disk, FaultyDisk)
        self.send(*"abcdefg")
        self.disk.room_bytes = 30
        queue = self.box.store.queues.find("TopicTest", 0)
        assert queue is not None
        self.assertRaises(StoreFull, self.box.store.queues.write_tail, queue)
        self.assertEqual(self.box.store.queues.tail_bytes, len(queue.tail) + 7 * 20 + 10)
        self.disk.room_bytes = None
        self.flush()
        self.assertEqual([unit.tags_code for unit in self.units()], list(b"abcdefg"))

    def test_units_are_written_first(self) -> None:
        """After a kill at any time, no entry on disk has the address of a missing unit."""
        self.disk = PowerLossDisk()
        for cut_in in range(1, 12):
            self.box = self.make(root=f"/{cut_in}")
            self.send(*"abcdefg")
            self.disk.cut_in = cut_in
            queue = self.box.store.queues.find("TopicTest", 0)
            assert queue is not None
            try:
                self.box.store.queues.write_tail(queue)
            except BaseException as cut:
                self.assertEqual(type(cut).__name__, "PowerCut")
            self.disk.kill()
            path = f"/{cut_in}/consumequeue/TopicTest/0/{0:020d}"
            if not self.disk.exists(path):
                continue
            for _, size, code in ENTRY.iter_unpack(self.disk.read_file(path)):
                if size:
                    place = place_of(code)
                    data = self.disk.read_file(f"/{cut_in}/consumequeue_ext/TopicTest/0/"
                                               f"{place - place % FILE_SIZE:020d}")
                    self.assertIsNotNone(ExtensionUnit.decode(data, place % FILE_SIZE))


class ReadingTests(_Tests):
    """The codes are found by addresses."""

    def test_consumers_get_their_tags_from_memory_and_from_files(self) -> None:
        """Consumers get their tags from memory and from files, also if they are partly written."""
        self.send(*"abcab")
        self.assertEqual(self.pulled("a"), [b"a", b"a"])
        self.flush()
        self.send(*"aca")
        self.assertEqual(self.pulled("a"), [b"a"] * 4)
        self.assertEqual(self.pulled("c", 3), [b"c"])

    def test_a_read_gets_codes_or_entries_with_units(self) -> None:
        """A caller gets codes, or entries with their units."""
        record, = self.send("a")
        store = self.box.store
        self.assertEqual(store.queues.entries("TopicTest", 0, 0, 9),
                         [(0, record.size, ord("a"))])
        ((entry, unit),), behind = store.queues.extended_entries("TopicTest", 0, 0, 9)
        self.assertEqual(behind, 1)
        self.assertTrue(is_address(entry[2]))
        self.assertEqual(unit, ExtensionUnit(ord("a"), record.store_timestamp))
        self.assertEqual(store.queues.extended_entries("TopicTest", 0, 1, 9), ([], 1))
        self.assertEqual(store.queues.extended_entries("Other", 0, 0, 9), ([], 0))

    def test_lost_files(self) -> None:
        """Without its unit a message reaches every consumer; new units have places of their own."""
        self.send(*"abcdefg")
        self.box.store.stop()
        self.disk.remove(EXTENSION)
        self.box = self.make()
        self.assertEqual(self.pulled("b"), [each.encode() for each in "abcdefg"])
        self.assertEqual(self.box.store.queues.entries("TopicTest", 0, 1, 1)[0][2], self.codes()[1])
        self.send("x")
        self.assertEqual(place_of(self.codes()[-1]), 2 * FILE_SIZE)
        self.assertEqual(self.pulled("y", 7), [])
        self.box = self.box.after_stop()
        self.assertEqual(self.pulled("x", 7), [b"x"])

    def test_one_lost_file(self) -> None:
        """The files after a missing one remain, and an empty file closes the gap."""
        self.send(*"abcdefg")
        self.box.store.stop()
        self.disk.remove(f"{EXTENSION}/{FILE_SIZE:020d}")
        self.box = self.make()
        self.send("x")
        self.box = self.box.after_stop()
        self.assertEqual(len(self.disk.list_directory(EXTENSION)), 3)
        self.assertEqual(self.pulled("x"), [b"f", b"g", b"x"])


class RestartTests(_Tests):
    """Stops and kills, and changes of the setting."""

    def test_goes_on(self) -> None:
        """New units follow the old ones, however the store ended."""
        for number in range(12):
            self.send(f"{number}")
            if number % 2:
                self.flush()
            self.box = self.box.after_kill() if number % 3 else self.box.after_stop()
        self.box.store.stop()
        self.assertEqual([unit.tags_code for unit in self.units()],
                         [java_string_hash(f"{number}") for number in range(12)])

    def test_switched_on_and_off(self) -> None:
        """One queue has entries with and without units, and both are found."""
        for number, switch in enumerate((False, True, False, True, True)):
            self.box.store.stop()
            self.box = self.make(enable_consume_queue_ext=switch)
            self.send("a", f"{number}")
            self.assertEqual(self.pulled("a"), [b"a"] * (number + 1), msg=number)
            self.assertEqual(self.pulled("1"), [b"1"] if number else [])
        self.assertEqual([is_address(code) for code in self.codes()],
                         [False] * 2 + [True] * 2 + [False] * 2 + [True] * 4)

    def test_long_off(self) -> None:
        """If the last entries have no units, no new unit overwrites an old one."""
        self.box = self.box.after_stop(mapped_file_size_commit_log=1 << 20)
        self.send("a")
        self.box = self.box.after_stop(enable_consume_queue_ext=False)
        self.box.append(*[message(body=b"x") for _ in range(4100)])
        self.box = self.box.after_stop(enable_consume_queue_ext=True)
        self.send("b")
        self.assertEqual(place_of(self.codes()[-1]), FILE_SIZE)
        self.assertEqual(self.pulled("a"), [b"a"])

    def test_what_a_kill_left(self) -> None:
        """Units without entries are removed, and made again."""
        self.send(*"ab")
        self.flush()
        self.send(*"cde")
        queue = self.box.store.queues.find("TopicTest", 0)
        assert queue is not None
        extensions = self.box.store.queues.files.extensions
        assert extensions is not None
        extensions.write_tail(queue)
        self.assertEqual(len(self.units()), 5)
        self.box = self.box.after_kill()
        self.assertEqual(len(self.units()), 2)
        self.assertEqual(self.pulled("d"), [b"d"])

    def test_wrong_unit_after_a_crash(self) -> None:
        """It is made again with its entry."""
        self.send(*"abc")
        self.flush()
        for position, data in ((22, b"\xff"), (37, b"\xff"), (20, bytes(20))):
            self.box.store.close()
            self.disk.open_file(f"{EXTENSION}/{0:020d}").write_at(position, data)
            self.box = self.make()
            self.assertEqual([self.pulled(tag) for tag in "abc"], [[b"a"], [b"b"], [b"c"]])
            self.flush()
            self.assertEqual([unit.tags_code for unit in self.units()], list(b"abc"))

    def test_queue_made_again(self) -> None:
        """The units of a queue without entries are made again from the beginning."""
        self.send(*"abcdefg")
        self.box.store.stop()
        self.disk.remove("/store/consumequeue")
        self.disk.write_file("/store/abort", b"")
        self.box = self.make()
        self.flush()
        self.assertEqual(place_of(self.codes()[0]), 0)
        self.assertEqual(len(self.units()), 7)

    def test_other_file_size(self) -> None:
        """A start with units names the file; one without them ignores the file."""
        self.send(*"ab")
        self.box.store.stop()
        error = self.assertRaises(
            StoreDamaged, self.make, mapped_file_size_consume_queue_ext=2 * FILE_SIZE)
        self.assertIn(f"{EXTENSION}/{0:020d}", str(error))
        self.box = self.make(enable_consume_queue_ext=False,
                             mapped_file_size_consume_queue_ext=2 * FILE_SIZE)
        self.assertEqual(self.pulled("a"), [b"a", b"b"])


class RemovalTests(_Tests):
    """Extensions are removed with their queues."""

    def test_a_deleted_topics_go_at_once(self) -> None:
        """They are removed at once; a new topic of the name begins again."""
        self.send("a")
        self.send("a", topic="Other")
        self.flush()
        self.box.store.delete_topic("TopicTest")
        self.assertEqual(self.disk.list_directory("/store/consumequeue_ext"), ["Other"])
        self.send("b")
        self.assertEqual(self.box.store.queues.tail_bytes, 40)
        self.box.store.delete_topic("TopicTest")
        self.assertEqual(self.box.store.queues.tail_bytes, 0)
        self.send("c")
        self.flush()
        self.assertEqual([unit.tags_code for unit in self.units()], [ord("c")])

    def test_files_go_whose_units_belong_to_messages_the_log_has_no_more(self) -> None:
        """Files whose units belong to deleted messages are deleted, except the last one."""
        self.box = self.box.after_stop(mapped_file_size_commit_log=1000, file_reserved_time=0,
                                       mapped_file_size_consume_queue=60)
        self.send(*(f"{number:02}" for number in range(30)))
        self.flush()
        store = self.box.store
        self.assertEqual(len(self.disk.list_directory(EXTENSION)), 6)
        store.log_retention.remove_expired()
        for _ in range(2):
            store.log_retention.step(self.box.now_ms)
        for _ in range(3):
            store.queue_retention.step(self.box.now_ms)
        first = store.queues.min_offset("TopicTest", 0)
        self.assertGreater(first, 5)
        names = self.disk.list_directory(EXTENSION)
        self.assertEqual(int(names[0]), first // 5 * FILE_SIZE)
        self.assertEqual(self.pulled("29", 29), [b"29"])
        self.box = self.box.after_kill()
        self.assertEqual(self.disk.list_directory(EXTENSION), names)
        self.assertEqual(self.pulled("29", 29), [b"29"])
