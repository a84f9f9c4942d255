"""Directories of equally long files, and few of them open."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreDamaged
from twistmq.broker.store.segment_files import (
    OpenFiles,
    list_segments,
    segment_path,
    sync_parents,
)
from twistmq.broker.testing.disk import MemoryDisk


class ListSegmentsTests(SynchronousTestCase):
    """list_segments."""

    def setUp(self) -> None:
        """A directory with files at 100, 200 and 300."""
        self.disk = MemoryDisk()
        self.disk.make_directory("/log")
        for start in (100, 200, 300):
            self.disk.write_file(segment_path("/log", start), bytes(100))

    def test_lists_in_order(self) -> None:
        """By their names; what is no number is not ours."""
        self.disk.write_file("/log/readme", b"")
        self.assertEqual(segment_path("/log", 100), "/log/00000000000000000100")
        self.assertEqual(list_segments(self.disk, "/log", 100), [100, 200, 300])

    def test_wrong_length(self) -> None:
        """The error names file, length and what was expected."""
        self.disk.write_file(segment_path("/log", 200), bytes(99))
        error = self.assertRaises(StoreDamaged, list_segments, self.disk, "/log", 100)
        self.assertIn("/log/00000000000000000200 has 99 bytes", str(error))

    def test_gap(self) -> None:
        """The error names the file that is missing."""
        self.disk.remove(segment_path("/log", 200))
        error = self.assertRaises(StoreDamaged, list_segments, self.disk, "/log", 100)
        self.assertIn("/log/00000000000000000200 is missing", str(error))

    def test_empty_last_file_is_removed(self) -> None:
        """A crash can leave it; an empty file elsewhere gets its length back and holds nothing."""
        self.disk.write_file(segment_path("/log", 400), b"")
        self.assertEqual(list_segments(self.disk, "/log", 100), [100, 200, 300])
        self.assertFalse(self.disk.exists(segment_path("/log", 400)))
        self.disk.write_file(segment_path("/log", 100), b"")
        self.assertEqual(list_segments(self.disk, "/log", 100), [100, 200, 300])
        self.assertEqual(self.disk.read_file(segment_path("/log", 100)), bytes(100))

    def test_sync_parents(self) -> None:
        """Every directory above is synced, but those that may not be read."""
        synced: list[str] = []

        def sync(path: str) -> None:
            synced.append(path)
            if path == "/a":
                raise PermissionError(path)

        self.disk.sync_path = sync  # type: ignore[method-assign]
        sync_parents(self.disk, "/a/b/c")
        self.assertEqual(synced, ["/a/b", "/a", "/"])


class OpenFilesTests(SynchronousTestCase):
    """OpenFiles."""

    def setUp(self) -> None:
        """Four files, of which two may be open."""
        self.disk = MemoryDisk()
        for name in "abcd":
            self.disk.write_file("/" + name, bytes(10))
        self.closed: list[str] = []
        self.files = OpenFiles(self.disk, 2, self.closed.append)

    def test_closes_the_one_used_longest_ago(self) -> None:
        """Using a file makes it young."""
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

    def test_allocates_once(self) -> None:
        """A file that is open is not made again."""
        file = self.files.allocate("/new", 5)
        self.assertIs(self.files.allocate("/new", 5), file)
        self.files.close_all()
        self.assertEqual((self.closed, len(self.files)), (["/new"], 0))
        self.files.close("/new")
