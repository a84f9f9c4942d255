"""The commit log as bytes: appends from another broker's log, and reads."""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreClosed, StoreFull
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError

FILE_SIZE = 4096


def master_box(count: int = 40) -> StoreBox:
    """Return a store whose log has several files."""
    box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
    for number in range(count):
        box.append(message(body=b"%d" % number * 90, keys=f"k{number}", queue_id=number % 2))
    return box


class RawAppendTests(SynchronousTestCase):
    """A store that is given the bytes of a master's log."""

    def setUp(self) -> None:
        self.master = master_box()
        self.end = self.master.store.commit_log.max_offset
        self.box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
        self.raw = self.box.store.raw
        self.lines: list[Any] = []
        globalLogPublisher.addObserver(self.hear)
        self.addCleanup(globalLogPublisher.removeObserver, self.hear)

    def hear(self, event: dict[str, Any]) -> None:
        if event.get("log_level") in (LogLevel.warn, LogLevel.error, LogLevel.critical):
            self.lines.append(event["log_format"])

    def bytes_of(self, begin: int, end: int) -> bytes:
        """A part of the master's log, over any number of files."""
        data = b""
        while begin + len(data) < end:
            data += self.master.store.raw.read(begin + len(data), end - begin - len(data))
        return data

    def feed(self, end: int, size: int, slices: bool = True) -> None:
        """Append up to ``end``, ``size`` bytes at a time."""
        store = self.box.store
        while store.commit_log.max_offset < end:
            begin = store.commit_log.max_offset
            self.raw.append(begin, self.bytes_of(begin, min(begin + size, end)))
            while slices and store.dispatch.step():
                continue

    def test_an_append_makes_nothing_readable_by_itself(self) -> None:
        """Its caller first acknowledges the bytes, and then dispatches them in steps."""
        seen: list[bytes] = []
        self.box.store.dispatch.on_dispatch.append(
            lambda records: seen.extend(r.body for r in records))
        self.feed(self.end, FILE_SIZE, slices=False)
        self.assertEqual((seen, self.box.bodies()), ([], []))
        self.assertEqual(self.box.store.dispatch.behind_bytes, self.end)
        self.assertTrue(self.box.store.dispatch.step())
        self.assertEqual(len(seen), 40)
        self.assertEqual(self.box.bodies(queue_id=1), self.master.bodies(queue_id=1))

    def test_parts_of_any_size_make_the_same_store(self) -> None:
        """Parts may end anywhere, even in a head or a blank, without a log line."""
        for size in (1, 7, 8, 91, 777, FILE_SIZE, 3 * FILE_SIZE + 5):
            self.box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
            self.raw = self.box.store.raw
            self.feed(self.end, size)
            self.assertEqual(self.bytes_of(0, self.end), b"".join(
                self.raw.read(begin, FILE_SIZE) for begin in range(0, self.end, FILE_SIZE)))
            for queue_id in range(2):
                self.assertEqual(self.box.bodies(queue_id=queue_id),
                                 self.master.bodies(queue_id=queue_id), size)
            self.assertEqual(self.box.store.stats.put_messages, 40, size)
            self.assertEqual(self.box.store.stats.put_size, self.end)
        self.assertEqual(self.lines, [])

    def test_a_record_is_whole_with_its_last_byte(self) -> None:
        """The beginning of a record is stored and does not count."""
        first, second = (
            self.master.store.queues.commit_log_offset("TopicTest", 0, n) for n in (1, 2))
        for end in range(first, second + 1):
            self.feed(end, 1)
            expected = max(place for place in self.places() if place <= end)
            self.assertEqual(self.raw.whole_offset, expected, end)
            self.assertEqual(self.box.store.dispatch.offset, expected)
        self.assertEqual(self.lines, [])

    def places(self) -> list[int]:
        """Return the beginnings of the master's records."""
        store = self.master.store
        return sorted(store.queues.commit_log_offset("TopicTest", queue_id, n)
                      for queue_id in range(2) for n in range(20))

    def test_bytes_of_another_place_are_refused(self) -> None:
        """Neither a gap nor a repetition is stored."""
        self.feed(1000, 1000)
        for offset in (0, 999, 1001):
            error = self.assertRaises(StoreError, self.raw.append, offset, b"x")
            self.assertIn(f"bytes at {offset} cannot be stored at 1000", str(error))
        self.assertEqual(self.box.store.commit_log.max_offset, 1000)

    def test_bytes_that_are_no_record_are_refused_whole(self) -> None:
        """Whole records before them in the same append are refused, too."""
        good = self.bytes_of(0, self.places()[1])
        for bad in (b"GET / HTTP/1.1\r\n", bytes(8), b"\xff" * 8, b"\0\0\0\x10" + good[4:8],
                    (1 << 20).to_bytes(4, "big") + good[4:8]):
            error = self.assertRaises(StoreError, self.raw.append, 0, good + bad)
            self.assertIn(f"no record of this log can begin at {len(good)}", str(error))
            self.assertEqual(self.box.store.commit_log.max_offset, 0)

    def test_a_head_that_comes_in_two_parts_is_looked_at(self) -> None:
        """The stored part and the new one are joined for the check."""
        self.raw.append(0, self.bytes_of(0, 5))
        self.assertRaises(StoreError, self.raw.append, 5, b"\xff\xff\xff")
        self.raw.append(5, self.bytes_of(5, 200))
        self.assertEqual(self.box.store.commit_log.max_offset, 200)

    def test_a_log_with_files_of_another_length_is_refused_at_the_first_blank(self) -> None:
        """Queues and index would otherwise be made from wrong bytes."""
        self.box = StoreBox(mapped_file_size_commit_log=2 * FILE_SIZE).open()
        self.raw = self.box.store.raw
        error = self.assertRaises(StoreError, self.feed, self.end, 100)
        self.assertIn("mappedFileSizeCommitLog differs", str(error))
        self.assertLess(self.box.store.commit_log.max_offset, FILE_SIZE)

    def test_no_record_goes_over_the_end_of_a_file(self) -> None:
        """A record that ends too near to the end of a file for a blank is refused as well.

        Nothing of the part that it came in is stored.
        """
        places = self.places()
        first, end = places[1], places[4]
        for room in (-1, 0, 7):
            box = StoreBox(mapped_file_size_commit_log=end + room).open()
            box.store.raw.append(0, self.bytes_of(0, first))
            error = self.assertRaises(
                StoreError, box.store.raw.append, first, self.bytes_of(first, places[5]))
            self.assertIn(f"no record of this log can begin at {places[3]}", str(error))
            self.assertEqual(box.store.commit_log.max_offset, first)
        box = StoreBox(mapped_file_size_commit_log=end + 8).open()
        for begin, behind in ((0, first), (first, end)):
            box.store.raw.append(begin, self.bytes_of(begin, behind))
        self.assertEqual(box.store.commit_log.max_offset, end)

    def test_what_the_store_appended_itself_counts_as_whole(self) -> None:
        """A broker that was a master continues as a replica."""
        [record] = self.box.append(message(body=b"own"))
        self.assertEqual(self.raw.whole_offset, record.next_offset)
        self.raw.append(record.next_offset, self.bytes_of(0, 20))
        self.assertEqual(self.raw.whole_offset, record.next_offset)

    def test_a_store_that_does_not_run_takes_no_bytes(self) -> None:
        """A store whose disk is full or has failed refuses bytes as well."""
        disk = FaultyDisk()
        box = StoreBox(disk, mapped_file_size_commit_log=FILE_SIZE).open()
        disk.room_bytes = 10
        self.assertRaises(StoreFull, box.store.raw.append, 0, self.bytes_of(0, 100))
        disk.room_bytes = None
        box.store.raw.append(0, self.bytes_of(0, 100))
        self.assertEqual(box.store.commit_log.max_offset, 100)
        disk.fail_sync_in = 1
        box.step(10_000)
        self.flushLoggedErrors(OSError)
        self.assertRaises(StoreError, box.store.raw.append, 100, self.bytes_of(100, 101))
        self.box.store.stop()
        self.assertRaises(StoreClosed, self.raw.append, 0, b"")

    def test_a_start_after_a_kill_cuts_the_half_record(self) -> None:
        """The log continues at the end of the last whole record."""
        end = self.places()[3] + 50
        for slices in (False, True):
            self.box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
            self.raw = self.box.store.raw
            self.feed(end, 64, slices)
            again = self.box.after_kill()
            self.assertEqual(again.store.commit_log.max_offset, self.places()[3])
            self.assertEqual(again.store.raw.whole_offset, self.places()[3])

    def test_a_read_ends_with_its_file(self) -> None:
        """The bytes after a blank are read as well."""
        raw = self.master.store.raw
        self.assertEqual(raw.file_size, FILE_SIZE)
        self.assertEqual(len(raw.read(FILE_SIZE - 10, 100)), 10)
        self.assertEqual(raw.read(self.end - 3, 100), self.bytes_of(self.end - 3, self.end))
        self.assertEqual(raw.read(self.end, 100), b"")
        self.assertEqual(raw.read(5, 0), b"")

    def test_a_read_outside_of_the_log_is_refused(self) -> None:
        """The error has the bounds of the log."""
        for offset in (-1, self.end + 1):
            error = self.assertRaises(StoreError, self.master.store.raw.read, offset, 1)
            self.assertIn(f"bytes from 0 to {self.end}, not at {offset}", str(error))
