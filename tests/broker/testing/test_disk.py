"""The real disk and the one in memory behave alike; the faulty one fails on request."""

import os
import socket
from collections.abc import Callable
from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge.clock import now_ms
from twistmq.broker.errors import StoreFull
from twistmq.broker.store import regular_file
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.protocol.errors import StoreError


class DiskContract:
    """The behaviour of every IStoreIO; a class for each implementation uses these tests."""

    io: IStoreIO
    root: str
    now_ms: Callable[[], int]
    assertEqual: Callable[..., None]
    assertLess: Callable[..., None]
    assertRaises: Callable[..., Exception]

    def test_file_is_sparse_and_keeps_its_length(self) -> None:
        """A new file has zeros; written bytes are read by every method."""
        path = f"{self.root}/file"
        file = self.io.allocate(path, 1 << 30)
        self.assertEqual(file.read_at(12345, 4), bytes(4))
        file.write_at(100, b"abc")
        file.write_at((1 << 30) - 2, bytearray(b"yz"))
        self.assertEqual(file.read_at(99, 5), b"\0abc\0")
        self.assertEqual(file.read_at((1 << 30) - 2, 10), b"yz")
        self.assertEqual(file.read_map()[100:103], b"abc")
        file.write_at(101, memoryview(b"XY")[:1])
        self.assertEqual(file.read_map()[100:103], b"aXc")
        file.begin_sync(100, 3)
        file.begin_sync((1 << 30) - 1, 1)
        file.sync()
        file.close()
        file.close()
        self.assertEqual(self.io.file_size(path), 1 << 30)
        again = self.io.open_file(path)
        self.assertEqual((again.size, again.read_at(100, 3)), (1 << 30, b"aXc"))
        again.close()

    def test_bytes_go_to_a_socket(self) -> None:
        """A socket gets as many as it accepts; none at the end of the file; a full
        one is an error.
        """
        path = f"{self.root}/file"
        file = self.io.allocate(path, 1 << 20)
        file.write_at(100, b"abc")
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            self.assertEqual(file.send_to(here.fileno(), 99, 5), 5)
            self.assertEqual(there.recv(100), b"\0abc\0")
            self.assertEqual(file.send_to(here.fileno(), (1 << 20) - 3, 5), 3)
            self.assertEqual(file.send_to(here.fileno(), 1 << 20, 5), 0)
            self.assertEqual(there.recv(100), bytes(3))

            def fill() -> None:
                while True:
                    self.assertLess(0, file.send_to(here.fileno(), 0, 1 << 20))

            self.assertRaises(BlockingIOError, fill)
        file.close()

    def test_allocate_keeps_what_is_there(self) -> None:
        """An existing file gets the length and keeps its beginning."""
        self.io.write_file(f"{self.root}/file", b"begin")
        file = self.io.allocate(f"{self.root}/file", 8)
        self.assertEqual(file.read_at(0, 8), b"begin\0\0\0")
        file.close()

    def test_clear_from(self) -> None:
        """Bytes after a position become zeros."""
        path = f"{self.root}/file"
        self.io.write_file(path, b"0123456789")
        self.io.clear_from(path, 4)
        self.assertEqual(self.io.read_file(path), b"0123" + bytes(6))
        file = self.io.allocate(path, 1 << 24)
        for position in (1 << 20, (1 << 23) - 5):
            file.write_at(position, b"123456789")
        self.io.clear_from(path, (1 << 20) + 3)
        self.assertEqual(file.read_at(1 << 20, 9), b"123" + bytes(6))
        self.assertEqual(file.read_at((1 << 23) - 5, 20), bytes(20))
        self.io.clear_from(path, 1 << 24)
        self.assertEqual(self.io.file_size(path), 1 << 24)
        file.close()

    def test_a_file_is_the_same_after_it(self) -> None:
        """A file is the same after it, a hole in it a hole."""
        path = f"{self.root}/file"
        file = self.io.allocate(path, 1 << 24)
        for position in (5, (1 << 23) - 5):
            file.write_at(position, b"123456789" * 300_000)
        before = self.io.read_file(path)
        self.io.rewrite(path)
        self.assertEqual(self.io.read_file(path), before)
        if isinstance(self.io, RealDisk):
            self.assertLess(os.stat(path).st_blocks * 512, 1 << 23)
        file.close()
        self.assertRaises(FileNotFoundError, self.io.rewrite, f"{self.root}/none")
        self.assertRaises(IsADirectoryError, self.io.rewrite, self.root)

    def test_missing_file(self) -> None:
        """Opening or reading a missing file fails; its removal does not."""
        for call in (self.io.open_file, self.io.read_file, self.io.file_size):
            self.assertRaises(FileNotFoundError, call, f"{self.root}/none")
        self.io.remove(f"{self.root}/none")
        self.assertRaises(FileNotFoundError, self.io.allocate, f"{self.root}/no/file", 1)

    def test_a_files_time_is_that_of_the_last_write(self) -> None:
        """A read does not change the time of a file."""
        path = f"{self.root}/file"
        self.assertRaises(FileNotFoundError, self.io.modified_ms, path)
        before = self.now_ms()
        file = self.io.allocate(path, 8)
        file.write_at(0, b"abc")
        written = self.io.modified_ms(path)
        # The kernel's own clock for files is coarse.
        self.assertEqual(before - 100 <= written <= self.now_ms(), True)
        file.read_at(0, 8)
        self.assertEqual(file.read_map()[0:1], b"a")
        file.close()
        self.io.open_file(path).close()
        self.assertEqual(self.io.modified_ms(path), written)

    def test_directories_are_made_listed_and_removed_with_contents(self) -> None:
        """They are created with their parents, listed in order, and removed with their contents."""
        self.io.make_directory(f"{self.root}/a/b")
        self.io.make_directory(f"{self.root}/a/b")
        self.io.write_file(f"{self.root}/a/b/2", b"")
        self.io.write_file(f"{self.root}/a/b/1", b"")
        self.assertEqual(self.io.list_directory(f"{self.root}/a"), ["b"])
        self.assertEqual(self.io.list_directory(f"{self.root}/a/b"), ["1", "2"])
        self.assertEqual(self.io.list_directory(f"{self.root}/none"), [])
        self.assertRaises(OSError, self.io.file_size, f"{self.root}/a/b")
        self.io.sync_path(f"{self.root}/a/b")
        self.io.remove(f"{self.root}/a")
        self.assertEqual(self.io.exists(f"{self.root}/a/b/1"), False)

    def test_atomic_write_keeps_a_backup(self) -> None:
        """The old contents are in .bak on request, and no other file remains."""
        path = f"{self.root}/t.json"
        self.io.write_file_atomically(path, b"one", True)
        self.assertEqual(self.io.exists(path + ".bak"), False)
        self.io.write_file_atomically(path, b"two", True)
        self.io.write_file_atomically(path, b"three", True)
        self.assertEqual(self.io.read_file(path), b"three")
        self.assertEqual(self.io.read_file(path + ".bak"), b"two")
        self.io.write_file_atomically(path, b"four")
        self.assertEqual(self.io.read_file(path + ".bak"), b"two")
        self.assertEqual(self.io.list_directory(self.root), ["t.json", "t.json.bak"])

    def test_lock_is_exclusive(self) -> None:
        """A second lock is refused until the first is released; the file has the holder."""
        path = f"{self.root}/lock"
        unlock = self.io.lock(path)
        error = self.assertRaises(StoreError, self.io.lock, path)
        self.assertEqual(path in str(error), True)
        self.assertEqual(self.io.read_file(path), b"lock")
        unlock()
        self.io.lock(path)()

    def test_used_ratio_memory_and_process_id_have_sensible_values(self) -> None:
        """Used ratio, memory and process id have sensible values."""
        self.assertEqual(0.0 <= self.io.disk_used_ratio(self.root) <= 1.0, True)
        self.assertEqual(self.io.disk_used_ratio(f"{self.root}/none"), -1.0)
        self.assertEqual(self.io.physical_memory_bytes() > 1 << 20, True)
        self.assertEqual(self.io.process_id() > 0, True)
        self.assertEqual(self.io.open_files_max() > 100, True)


class RealDiskTests(DiskContract, SynchronousTestCase):
    """The class RealDisk in a temporary directory."""

    def setUp(self) -> None:
        """Create a directory."""
        self.io = RealDisk()
        self.now_ms = now_ms
        self.root = self._directory()

    def _directory(self) -> str:
        import os

        path = os.path.abspath(self.mktemp())
        os.makedirs(path)
        return path

    def test_full_disk_is_store_full(self) -> None:
        """Linux has a device that is always full; it passes for a file here."""
        self.patch(regular_file, "require_regular", lambda mode, path: None)
        self.io.write_file(f"{self.root}/x", b"")
        error = self.assertRaises(StoreFull, self.io.write_file, "/dev/full", b"x")
        self.assertIn("/dev/full", str(error))

    def test_lock_of_a_java_broker(self) -> None:
        """The byte a Java broker locks is locked against another process."""
        import subprocess
        import sys

        path = f"{self.root}/lock"
        unlock = self.io.lock(path)
        script = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+b')\n"
            "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
            "except OSError: sys.exit(7)"
        )
        self.assertEqual(subprocess.run([sys.executable, "-c", script, path]).returncode, 7)
        unlock()
        self.assertEqual(subprocess.run([sys.executable, "-c", script, path]).returncode, 0)


class MemoryDiskTests(DiskContract, SynchronousTestCase):
    """The class MemoryDisk behaves in the same way."""

    def setUp(self) -> None:
        """Create a disk."""
        self.io = disk = MemoryDisk()
        self.now_ms = disk.now_ms = count(1_700_000_000_000).__next__
        self.root = "/test"
        self.io.make_directory(self.root)

    def test_contents_outlive_the_open_file(self) -> None:
        """Another opener sees the written bytes, as after a kill."""
        self.io.allocate("/test/file", 10).write_at(0, b"abc")
        self.assertEqual(self.io.open_file("/test/file").read_at(0, 3), b"abc")


class FaultyDiskTests(SynchronousTestCase):
    """The class FaultyDisk fails on request."""

    def setUp(self) -> None:
        """Make a disk with one file."""
        self.disk = FaultyDisk()
        self.file = self.disk.allocate("/file", 100)

    def test_room_runs_out(self) -> None:
        """A write that does not fit is written in part and fails."""
        self.disk.room_bytes = 5
        self.file.write_at(0, b"abc")
        self.assertRaises(StoreFull, self.file.write_at, 3, b"defg")
        self.assertEqual(self.file.read_at(0, 8), b"abcde\0\0\0")
        self.disk.room_bytes = None
        self.file.write_at(3, b"defg")

    def test_nth_write_fails(self) -> None:
        """Writes from the nth on fail with EIO."""
        self.disk.fail_write_in = 2
        self.file.write_at(0, b"a")
        for _ in range(2):
            self.assertRaises(OSError, self.file.write_at, 0, b"b")
        self.assertEqual(self.file.read_at(0, 1), b"a")

    def test_nth_sync_fails(self) -> None:
        """Syncs from the nth on fail."""
        self.disk.fail_sync_in = 2
        self.file.sync()
        self.assertRaises(OSError, self.file.sync)
        self.assertEqual(self.disk.sync_count, 1)
