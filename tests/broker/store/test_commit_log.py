"""The files of the commit log: writes, reads, cuts and failures."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import OPEN_LOG_FILES_MAX
from twistmq.broker.errors import StoreFull
from twistmq.broker.store.commit_log import ROOM_SIZE, CommitLog
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.disk import FaultyDisk, MemoryFile
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import encode_record

FILE_SIZE = 1000


class CommitLogTests(SynchronousTestCase):
    """The class CommitLog over a memory disk."""

    def setUp(self) -> None:
        """Create an empty log."""
        self.disk = FaultyDisk()
        self.log = CommitLog(self.disk, "/log", FILE_SIZE)
        self.log.load()

    def test_an_empty_log_reads_and_writes_nothing(self) -> None:
        """An empty log has nothing to read or to write."""
        self.assertEqual((self.log.min_offset, self.log.max_offset), (0, 0))
        self.assertIsNone(self.log.read(0, 1))
        self.assertEqual(self.log.store_timestamp(0), -1)

    def test_writes_and_reads(self) -> None:
        """Written bytes are read; nothing after them is, and nothing across files."""
        self.log.write([(0, b"abc"), (1000, b"def")])
        self.assertEqual((self.log.starts, self.log.max_offset), ([0, 1000], 1003))
        self.assertEqual(self.log.read(1, 2), b"bc")
        self.assertEqual(self.log.read(1000, 3), b"def")
        for offset, size in ((1000, 4), (1003, 1), (999, 2), (-1, 1), (0, 0), (0, -5), (5000, 1)):
            self.assertIsNone(self.log.read(offset, size), msg=(offset, size))
        self.assertEqual(self.log.read(0, 3), b"abc", "the map moves back")

    def test_reads_records(self) -> None:
        """Records are read only at their beginnings."""
        record = message()
        data = encode_record(record)
        self.log.write([(0, data)])
        self.assertEqual(self.log.read_record(0), data)
        self.assertIsNone(self.log.read_record(1))
        self.assertIsNone(self.log.read_record(len(data)))
        self.assertEqual(self.log.store_timestamp(0), 0)

    def test_peeks_without_a_map(self) -> None:
        """A position that may be a hole is read by a call, and not from a map."""
        self.log.write([(0, b"abc"), (1000, b"def")])
        log = CommitLog(self.disk, "/log", FILE_SIZE)
        log.load()
        self.patch(MemoryFile, "read_map", lambda file: self.fail(f"{file.path} is mapped"))
        self.assertEqual(log.peek(0, 5), b"abc\0\0")
        self.assertEqual(log.peek(990, 10), bytes(10))
        self.assertEqual(log.peek(1002, 998), b"f" + bytes(997))
        for offset, size in ((1000, 1001), (2000, 1), (999, 2), (-1, 1), (0, 0), (0, -5)):
            self.assertIsNone(log.peek(offset, size), msg=(offset, size))
        self.assertIsNone(log.read_record(500))
        self.assertEqual(log.store_timestamp(500), -1)
        self.assertIsNone(CommitLog(self.disk, "/other", FILE_SIZE).peek(0, 1))

    def test_begins_syncs(self) -> None:
        """If each write waits for the disk, its sync begins immediately."""
        self.log.write([(0, b"abc")])
        self.assertEqual(self.disk.begun, [])
        log = CommitLog(self.disk, "/other", FILE_SIZE, syncs_soon=True)
        log.load()
        log.write([(0, b"abc"), (1000, b"de")])
        first, second = (segment_path("/other", start) for start in (0, FILE_SIZE))
        self.assertEqual(self.disk.begun, [(first, 0, 3), (second, 0, 2)])
        self.assertEqual(self.disk.sync_count, 0)

    def test_writes_zeros_ahead(self) -> None:
        """Small writes that wait get pages that exist already, up to the end of the file."""
        log = CommitLog(self.disk, "/other", 3 * ROOM_SIZE // 2, syncs_soon=True)
        log.load()
        path = segment_path("/other", 0)
        taken: list[tuple[str, int]] = []
        self.patch(self.disk, "before_write", lambda path, size: taken.append((path, size)) or size)
        log.write([(0, b"abc")])
        self.assertEqual(taken, [(path, 0), (path, 3), (path, ROOM_SIZE)])
        log.write([(3, bytes(2000))])
        self.assertEqual(taken[3:], [(path, 0)])
        log.write([(2003, b"d" * (ROOM_SIZE - 2000))])
        self.assertEqual(taken[4:], [(path, 0)], "a large write takes its own pages")
        log.write([(ROOM_SIZE + 3, b"e")])
        self.assertEqual(taken[5:], [(path, 1), (path, ROOM_SIZE // 2 - 4)])
        self.assertEqual(log.read(2002, 2), b"\0d")
        self.assertEqual(log.max_offset, ROOM_SIZE + 4)

    def test_no_room_ahead(self) -> None:
        """A disk with room for the message, but not for zeros after it, accepts the message."""
        log = CommitLog(self.disk, "/other", FILE_SIZE, syncs_soon=True)
        log.load()
        self.disk.room_bytes = 5
        log.write([(0, b"abc")])
        log.write([(3, b"de")])
        self.assertRaises(StoreFull, log.write, [(5, b"f")])
        self.assertEqual(log.read(0, 5), b"abcde")

    def test_load_finds_files(self) -> None:
        """Until recovery decides, whole files count as written."""
        self.log.write([(0, b"abc"), (1000, b"def")])
        log = CommitLog(self.disk, "/log", FILE_SIZE)
        log.load()
        self.assertEqual((log.starts, log.max_offset, log.flushed_offset), ([0, 1000], 2000, 2000))

    def test_full_disk_leaves_it_as_it_was(self) -> None:
        """A write that fits only in part is invisible, now and later."""
        self.log.write([(0, b"abc")])
        self.disk.room_bytes = 10
        self.assertRaises(StoreFull, self.log.write, [(3, b"12345678"), (1000, b"90123")])
        self.assertEqual(self.log.max_offset, 3)
        self.assertIsNone(self.log.read(3, 1))
        self.disk.room_bytes = None
        data = self.disk.read_file(segment_path("/log", 0))
        self.assertEqual(data[:11], b"abc" + bytes(8))
        data = self.disk.read_file(segment_path("/log", 1000))
        self.assertEqual(data[:5], bytes(5), "no part of it can be taken for a record later")
        self.log.write([(3, b"de"), (1000, b"x")])
        self.assertEqual(self.log.read(0, 5), b"abcde")

    def test_failing_disk(self) -> None:
        """The error names the cause; the log is as it was."""
        self.log.write([(0, b"abc")])
        self.disk.fail_write_in = 1
        error = self.assertRaises(StoreError, self.log.write, [(3, b"x")])
        self.assertIn("cannot be written", str(error))
        self.assertEqual(self.log.max_offset, 3)

    def test_failed_writes_do_not_mix(self) -> None:
        """No bytes of a failed write can reappear in a later one."""
        disk = self.torn_disk()
        self.log.write([(3, b"other")])
        self.assertEqual(disk._contents(segment_path("/log", 0)).pending, [(3, b"other")])

    def test_failed_writes_before_a_stop(self) -> None:
        """The next start does not see them."""
        disk = self.torn_disk()
        self.log.erase_failed()
        contents = disk._contents(segment_path("/log", 0))
        self.assertEqual((contents.pending, contents.durable[:20]), ([], b"abc" + bytes(17)))

    def test_failed_sync_of_what_was_erased(self) -> None:
        """Nothing is written or confirmed after it."""
        disk = self.torn_disk()
        disk.fail_sync_in = 1
        self.assertRaises(StoreError, self.log.write, [(3, b"other")])
        disk.fail_sync_in = None
        self.assertRaises(StoreError, self.log.write, [(3, b"other")])
        self.assertRaises(StoreError, self.log.sync_job())

    def torn_disk(self) -> PowerLossDisk:
        """Let a write behind three bytes fail after ten."""
        disk = PowerLossDisk()
        self.log = CommitLog(disk, "/log", FILE_SIZE)
        self.log.load()
        self.log.write([(0, b"abc")])
        disk.room_bytes = 10
        self.assertRaises(StoreFull, self.log.write, [(3, b"x" * 50)])
        self.assertEqual(disk.read_file(segment_path("/log", 0))[:13], b"abc" + bytes(8) + b"xx")
        disk.room_bytes = None
        return disk

    def test_files_behind_go(self) -> None:
        """Files after the position are deleted, and bytes after it become zeros."""
        self.log.write([(0, b"a" * 1000), (1000, b"b" * 1000), (2000, b"c" * 10)])
        self.log.read(2000, 1)
        self.log.truncate(1005)
        self.assertEqual((self.log.starts, self.log.max_offset), ([0, 1000], 1005))
        self.assertEqual(self.log.read(1000, 5), b"bbbbb")
        data = self.disk.read_file(segment_path("/log", 1000))
        self.assertEqual(data, b"bbbbb" + bytes(995))
        self.assertFalse(self.disk.exists(segment_path("/log", 2000)))

    def test_truncate_at_a_border(self) -> None:
        """The file that begins there is kept empty, and the one before it is unchanged."""
        self.log.write([(0, b"a" * 1000), (1000, b"b" * 10)])
        self.log.truncate(1000)
        self.assertEqual(self.log.starts, [0, 1000])
        self.assertEqual(self.disk.read_file(segment_path("/log", 1000)), bytes(1000))
        self.assertEqual(self.log.read(0, 1000), b"a" * 1000)

    def test_many_files(self) -> None:
        """More files than may be open can be read in any order."""
        for number in range(80):
            self.log.write([(number * 1000, bytes([number]) * 1000)])
        for number in [*range(80), *range(79, -1, -1), 0, 79, 0]:
            self.assertEqual(self.log.read(number * 1000 + 5, 1), bytes([number]))

    def test_sync_of_many_files(self) -> None:
        """More files than may be open are all open during their sync."""
        count = OPEN_LOG_FILES_MAX + 8
        self.log.write([(1000 * n, bytes(1000)) for n in range(count)])
        job = self.log.sync_job()
        before = self.disk.sync_count
        job()
        self.assertEqual(self.disk.sync_count - before, count + 1, "the files and their folder")

    def test_sync_covers_what_was_written(self) -> None:
        """Files from the flushed one on are synced, and the directory for a new file."""
        self.log.write([(0, b"a"), (1000, b"b")])
        self.log.sync_job()()
        self.assertEqual(self.disk.sync_count, 3)
        self.log.synced(1001)
        self.log.write([(1001, b"c")])
        self.log.sync_job()()
        self.assertEqual(self.disk.sync_count, 4)
