"""Directories of files with one length, of which few are open."""

from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.store.segment_files import (
    OpenFiles,
    list_segments,
    segment_path,
    sync_parents,
)
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.errors import StoreDamaged


class ListSegmentsTests(SynchronousTestCase):
    """The function list_segments."""

    def setUp(self) -> None:
        """Create a directory with files at 100, 200 and 300."""
        self.disk = MemoryDisk()
        self.disk.make_directory("/log")
        for start in (100, 200, 300):
            self.disk.write_file(segment_path("/log", start), bytes(100))

    def test_lists_in_order(self) -> None:
        """The files are sorted by name; other names are ignored."""
        self.disk.write_file("/log/readme", b"")
        self.assertEqual(segment_path("/log", 100), "/log/00000000000000000100")
        self.assertEqual(list_segments(self.disk, "/log", 100), [100, 200, 300])

    def test_wrong_length(self) -> None:
        """The error has the file, its length and the expected one."""
        self.disk.write_file(segment_path("/log", 200), bytes(99))
        error = self.assertRaises(StoreDamaged, list_segments, self.disk, "/log", 100)
        self.assertIn("/log/00000000000000000200 has 99 bytes", str(error))

    def test_the_error_names_the_file_that_is_missing(self) -> None:
        """The error names the file that is missing."""
        self.disk.remove(segment_path("/log", 200))
        error = self.assertRaises(StoreDamaged, list_segments, self.disk, "/log", 100)
        self.assertIn("/log/00000000000000000200 is missing", str(error))

    def test_empty_last_file_is_removed(self) -> None:
        """A crash can leave it; an empty file elsewhere gets its length and has no content."""
        self.disk.write_file(segment_path("/log", 400), b"")
        self.assertEqual(list_segments(self.disk, "/log", 100), [100, 200, 300])
        self.assertFalse(self.disk.exists(segment_path("/log", 400)))
        self.disk.write_file(segment_path("/log", 100), b"")
        self.assertEqual(list_segments(self.disk, "/log", 100), [100, 200, 300])
        self.assertEqual(self.disk.read_file(segment_path("/log", 100)), bytes(100))

    def test_sync_parents(self) -> None:
        """Every directory above is synced, except unreadable ones."""
        synced: list[str] = []

        def sync(path: str) -> None:
            synced.append(path)
            if path == "/a":
                raise PermissionError(path)

        self.disk.sync_path = sync  # type: ignore[method-assign]
        sync_parents(self.disk, "/a/b/c")
        self.assertEqual(synced, ["/a/b", "/a", "/"])


class OpenFilesTests(SynchronousTestCase):
    """The class OpenFiles."""

    def setUp(self) -> None:
        """Create four files, of which two may be open."""
        self.disk = MemoryDisk()
        for name in "abcd":
            self.disk.write_file("/" + name, bytes(10))
        self.closed: list[str] = []
        self.files = OpenFiles(self.disk, 2, self.closed.append)

    def test_closes_the_one_used_longest_ago(self) -> None:
        """The use of a file makes it the newest."""
        first = self.files.open("/a")
        self.files.open("/b")
        self.assertIs(self.files.open("/a"), first)
        self.files.open("/c")
        self.assertEqual((self.closed, len(self.files)), (["/b"], 2))

    def test_pinned_files_stay(self) -> None:
        """A file a thread works on is not closed, the limit notwithstanding."""
        self.files.pinned.update(("/a", "/b"))
        for name in "abc":
            self.files.open("/" + name)
        self.assertEqual((self.closed, len(self.files)), ([], 3))
        self.files.open("/d")
        self.assertEqual(self.closed, ["/c"])

    def test_pinned_files_are_used_meanwhile(self) -> None:
        """A file that its thread releases is not the next to be closed."""
        self.files.pinned.add("/a")
        for name in "abcd":
            self.files.open("/" + name)
        self.assertEqual(self.closed, ["/b", "/c"])
        self.files.pinned.clear()
        self.files.open("/b")
        self.assertEqual(len(self.files), 2)

    def test_all_pinned(self) -> None:
        """All remain open, and are closed when they are released."""
        self.files.pinned.update(("/a", "/b", "/c", "/d"))
        for name in "abcd":
            self.files.open("/" + name)
        self.assertEqual((self.closed, len(self.files)), ([], 4))
        self.files.pinned.clear()
        self.files.close("/d")
        self.files.open("/d")
        self.assertEqual(len(self.files), 2)
        self.assertIn("/d", self.files._files)

    def test_cost_of_many(self) -> None:
        """A file beyond the limit costs the same, however many are open."""
        file = MemoryDisk().allocate("/a", 1)
        self.patch(self.disk, "open_file", lambda path: file)

        def prepare(count: int) -> Callable[[], object]:
            files = OpenFiles(self.disk, count)
            paths = [f"/{number}" for number in range(2 * count)]
            for path in paths[:count]:
                files.open(path)
            return lambda: [files.open(path) for path in paths[count:]]

        self.assertLess(growth(prepare, 1000), GROWTH_MAX)

    def test_allocates_once(self) -> None:
        """An open file is not created again."""
        file = self.files.allocate("/new", 5)
        self.assertIs(self.files.allocate("/new", 5), file)
        self.files.close_all()
        self.assertEqual((self.closed, len(self.files)), (["/new"], 0))
        self.files.close("/new")
