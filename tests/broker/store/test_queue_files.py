"""The files of consume queues: tails are written, entries read, ends found, and files cut."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.consume_queue import ENTRY, FILLER, ConsumeQueue
from twistmq.broker.store.queue_files import QueueFiles
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.errors import StoreDamaged

#: Ten entries in each file.
FILE_SIZE = 200


class QueueFilesTests(SynchronousTestCase):
    """The class QueueFiles over a memory disk."""

    def setUp(self) -> None:
        """Create a queue without messages."""
        self.disk = FaultyDisk()
        self.disk.make_directory("/cq")
        self.files = QueueFiles(self.disk, "/cq", FILE_SIZE)
        self.queue = ConsumeQueue("T", 0)

    def add(self, count: int) -> None:
        """Add messages of 100 bytes, each at 100 times its offset."""
        for _ in range(count):
            offset = self.queue.max_offset
            self.queue.add(offset, offset * 100, 100, 0)

    def places(self, offset: int, count: int) -> list[int]:
        """Return the positions in the entries that are read."""
        data = self.files.read(self.queue, offset, count)
        assert data is not None
        return [entry[0] for entry in ENTRY.iter_unpack(data)]

    def reload(self, thorough: bool) -> ConsumeQueue:
        """Find the queue again as after a start."""
        self.files.close()
        self.files = QueueFiles(self.disk, "/cq", self.files.file_size)
        (self.queue,) = self.files.load_all()
        self.files.recover(self.queue, thorough)
        return self.queue

    def path(self, start: int) -> str:
        """Return the path of a file."""
        return f"/cq/T/0/{start:020d}"

    def test_writes_tails_across_files(self) -> None:
        """Entries fill a file and go on in the next; memory is empty then."""
        self.add(7)
        self.assertEqual(self.files.write_tail(self.queue), 140)
        self.add(18)
        self.assertEqual(self.files.write_tail(self.queue), 360)
        self.assertEqual((self.queue.starts, len(self.queue.tail)), ([0, 200, 400], 0))
        self.assertEqual(self.disk.read_file(self.path(400))[80:100], ENTRY.pack(2400, 100, 0))
        self.assertEqual(self.files.unsynced, {
            self.path(0), self.path(200), self.path(400), "/", "/cq", "/cq/T", "/cq/T/0"})

    def test_reads_file_and_memory(self) -> None:
        """A read continues from the file into memory, and ends at the end of a file."""
        self.add(5)
        self.files.write_tail(self.queue)
        self.add(3)
        self.assertEqual(self.places(3, 10), [300, 400, 500, 600, 700])
        self.assertEqual(self.places(3, 4), [300, 400, 500, 600])
        self.assertEqual(self.places(6, 10), [600, 700])
        self.add(7)
        self.files.write_tail(self.queue)
        self.assertEqual(self.places(8, 10), [800, 900])
        self.assertEqual(self.files.entry(self.queue, 14), (1400, 100, 0))
        self.assertIsNone(self.files.entry(self.queue, 15))

    def test_full_disk_keeps_entries_in_memory(self) -> None:
        """They are read from memory and written later."""
        self.add(15)
        self.disk.room_bytes = 210
        self.assertRaises(StoreFull, self.files.write_tail, self.queue)
        self.assertEqual((self.queue.tail_start, len(self.queue.tail)), (10, 100))
        self.assertEqual(self.places(8, 2), [800, 900])
        self.assertEqual(self.places(10, 9), [1000, 1100, 1200, 1300, 1400])
        self.disk.room_bytes = None
        self.assertEqual(self.files.write_tail(self.queue), 100)
        self.assertEqual(self.places(10, 5), list(range(1000, 1500, 100)))

    def test_first_file_is_filled_up(self) -> None:
        """A queue that does not begin at 0 has fillers before its first entry."""
        self.queue.add(13, 1300, 100, 0)
        self.files.write_tail(self.queue)
        self.assertEqual(self.queue.starts, [200])
        self.assertEqual(self.disk.read_file(self.path(200))[:60], FILLER * 3)
        for thorough in (False, True):
            queue = self.reload(thorough)
            self.files.correct_min_offset(queue, 0)
            self.assertEqual((queue.min_offset, queue.max_offset), (13, 14))
        self.assertIsNone(self.files.read(queue, 5, 1), "the file of offset 5 is gone")

    def test_recovers_the_end(self) -> None:
        """For every count of entries, trusting and thorough, with three files and more."""
        for count in range(1, 45):
            self.add(1)
            self.files.write_tail(self.queue)
            for thorough in (False, True):
                queue = self.reload(thorough)
                numbers = (queue.min_offset, queue.max_offset, queue.next_offset)
                self.assertEqual(numbers, (0, count, count))
                self.assertEqual(queue.max_physical, count * 100)

    def test_recovers_the_end_of_long_files(self) -> None:
        """The end is found for numbers of entries around the sizes of the reads."""
        self.files = QueueFiles(self.disk, "/cq", 10_000 * 20)
        for count in (63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4095, 4096, 4097,
                      64 + 4096, 64 + 4097, 9999, 10_000, 10_001):
            self.add(count - self.queue.max_offset)
            self.files.write_tail(self.queue)
            for thorough in (False, True):
                queue = self.reload(thorough)
                self.assertEqual((queue.max_offset, queue.max_physical), (count, count * 100))

    def test_file_is_opened_once(self) -> None:
        """Both ends of a queue are found while its file is open, because open files are limited."""
        self.files = QueueFiles(self.disk, "/cq", 10_000 * 20)
        self.add(3)
        self.files.write_tail(self.queue)
        opens: list[str] = []
        open_file = self.disk.open_file
        self.patch(self.disk, "open_file", lambda path: opens.append(path) or open_file(path))
        for thorough in (False, True):
            opens.clear()
            queue = self.reload(thorough)
            self.files.open_files.close_all()
            self.files.correct_min_offset(queue, 0)
            self.assertEqual((queue.min_offset, len(opens)), (0, 1), msg=f"{thorough}")

    def test_place_that_is_known(self) -> None:
        """The known place belongs to the first message, also after a cut or a new beginning."""
        self.queue.add(0, 500, 100, 0)
        self.files.correct_min_offset(self.queue, 0)
        self.files.cut(self.queue, 500)
        self.queue.add(0, 50, 100, 0)
        self.queue.add(1, 150, 100, 0)
        self.files.correct_min_offset(self.queue, 100)
        self.assertEqual(self.queue.min_offset, 1)
        self.files.write_tail(self.queue)
        queue = self.reload(thorough=False)
        self.files.correct_min_offset(queue, 50)
        self.files.cut_at(queue, 0)
        queue.add(0, 10, 5, 0)
        queue.add(1, 40, 100, 0)
        self.files.correct_min_offset(queue, 40)
        self.assertEqual(queue.min_offset, 1)
        queue.begin_at(1)
        queue.add(1, 10, 5, 0)
        queue.add(2, 30, 100, 0)
        self.files.correct_min_offset(queue, 20)
        self.assertEqual(queue.min_offset, 2)

    def test_a_queue_without_entries_has_no_files(self) -> None:
        """Its first message may have any offset."""
        self.add(1)
        self.files.write_tail(self.queue)
        self.disk.clear_from(self.path(0), 0)
        queue = self.reload(thorough=False)
        self.assertEqual((queue.max_offset, queue.starts), (0, []))
        queue.add(3, 1, 1, 0)
        self.files.write_tail(queue)
        self.assertEqual(self.disk.read_file(self.path(0))[:60], FILLER * 3)

    def test_a_hole_ends_a_queue_after_a_crash(self) -> None:
        """Entries after the hole do not reappear when it is filled."""
        self.add(25)
        self.files.write_tail(self.queue)
        file = self.disk.open_file(self.path(200))
        file.write_at(60, bytes(20))
        queue = self.reload(thorough=True)
        self.assertEqual((queue.max_offset, queue.starts), (13, [0, 200]))
        self.add(1)
        self.files.write_tail(queue)
        self.assertEqual(self.reload(thorough=True).max_offset, 14)

    def test_entries_at_or_behind_a_place_go(self) -> None:
        """Entries at or behind a place go, in memory and in files, for every place."""
        for written in (True, False):
            for keep in range(26):
                self.setUp()
                self.add(12)
                self.files.write_tail(self.queue)
                self.add(13)
                if written:
                    self.files.write_tail(self.queue)
                self.files.cut(self.queue, keep * 100)
                self.assertEqual(self.queue.max_offset, min(25, keep), msg=(written, keep))
                self.assertEqual(self.queue.next_offset, keep)
                self.files.write_tail(self.queue)
                if keep:
                    self.assertEqual(self.reload(thorough=True).max_offset, keep)

    def test_cut_entries_do_not_come_back(self) -> None:
        """After a cut and one more message, a start finds no old entries after it."""
        self.add(9)
        self.files.write_tail(self.queue)
        self.files.cut(self.queue, 300)
        self.add(1)
        self.files.write_tail(self.queue)
        self.assertEqual(self.reload(thorough=False).max_offset, 4)

    def test_corrects_the_minimum(self) -> None:
        """The first message still in the log, for every minimum of the log."""
        self.add(23)
        self.files.write_tail(self.queue)
        self.add(2)
        for log_min in range(0, 2700, 50):
            self.queue.min_offset = 0
            self.files.correct_min_offset(self.queue, log_min)
            self.assertEqual(self.queue.min_offset, min(25, -(-log_min // 100)), msg=log_min)

    def test_fillers_say_nothing_of_the_minimum(self) -> None:
        """Messages before and behind them decide, wherever the fillers are."""
        for before, fillers, after in ((0, 6, 7), (7, 2, 7), (3, 25, 3), (12, 1, 1), (5, 5, 20)):
            for expired in range(before + after):
                self.setUp()
                physical = [*range(before), *[-1] * fillers, *range(before, before + after)]
                for offset, number in enumerate(physical):
                    if number < 0:
                        self.queue.tail.extend(FILLER)
                    else:
                        self.queue.add(offset, number * 100, 100, 0)
                self.files.write_tail(self.queue)
                self.files.correct_min_offset(self.queue, expired * 100)
                self.assertEqual(self.queue.min_offset, physical.index(expired),
                                 msg=f"{before} {fillers} {after} {expired}")

    def test_all_expired(self) -> None:
        """The queue begins where it ends, and continues there."""
        self.add(15)
        self.files.write_tail(self.queue)
        self.files.correct_min_offset(self.queue, 1500)
        self.assertEqual((self.queue.min_offset, self.queue.max_offset), (15, 15))
        self.add(1)
        self.assertEqual(self.places(15, 1), [1500])

    def test_removes_what_cannot_be_reached(self) -> None:
        """Files before the minimum are deleted, but not the last one."""
        self.add(40)
        self.files.write_tail(self.queue)
        for minimum, removed, starts in ((9, [], [0, 200, 400, 600]),
                                         (10, ["/cq/T/0"], [200, 400, 600]),
                                         (39, ["/cq/T/0"], [600]), (40, [], [600])):
            self.files.correct_min_offset(self.queue, minimum * 100)
            self.assertEqual(self.files.remove_unreachable(self.queue), removed)
            self.assertEqual(self.queue.starts, starts)
            self.assertEqual(len(self.disk.list_directory("/cq/T/0")), len(starts))
        self.add(3)
        self.files.write_tail(self.queue)
        self.assertEqual(self.reload(True).max_offset, 43)

    def test_damage_is_named(self) -> None:
        """A file of another length stops the start with its name."""
        self.add(1)
        self.files.write_tail(self.queue)
        self.disk.write_file(self.path(0), bytes(199))
        error = self.assertRaises(StoreDamaged, list, self.files.load_all())
        self.assertIn(self.path(0), str(error))

    def test_foreign_names_are_left_alone(self) -> None:
        """A directory whose name is not a queue id is not loaded as a queue."""
        self.disk.make_directory("/cq/T/notes")
        self.assertEqual(list(self.files.load_all()), [])

    def test_files_and_directories_go(self) -> None:
        """Files and directories go; the topic's too with its last queue."""
        self.add(12)
        self.files.write_tail(self.queue)
        self.files.destroy(self.queue)
        self.assertEqual(self.disk.list_directory("/cq"), [])
        self.assertEqual(self.queue.starts, [])
        self.assertFalse([path for path in self.files.unsynced if path.startswith("/cq/T/0/")])
