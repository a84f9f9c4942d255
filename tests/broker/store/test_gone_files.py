"""Files and folders that are removed, cut or shared while a store runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from twisted.internet.defer import Deferred, execute
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.moved import moved
from twistmq.broker.errors import StoreGone
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.store import StoreBox, message, small_settings
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import StoreDamaged, StoreError


def log_file(start: int, folder: str = "/store/commitlog") -> str:
    """Return the path of a commit-log file."""
    return segment_path(folder, start)


class GoneCase(SynchronousTestCase):
    """A store with messages in four files; ``errors`` has the errors of the log."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = StoreBox(self.disk, mapped_file_size_commit_log=2000).open()
        self.box.append(*[message(body=b"%d" % number + bytes(300)) for number in range(16)])
        self.box.step(1000, 70)
        self.store = self.box.store
        self.last = self.disk.list_directory("/store/commitlog")[-1]
        self.errors: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def observe(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.error:
            self.errors.append(formatEvent(event))

    def assertTakesNothing(self, why: str) -> None:
        """Within a second: one line, a clear refusal of all that would write, an unclean stop."""
        self.box.step(50, 21)
        error = self.assertRaises(StoreGone, self.store.append, [message()])
        self.assertIn(why, str(error))
        self.assertEqual(error.response_code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertIn(why, self.store.fault(takes_messages=True))
        for _ in range(100):
            self.assertRaises(StoreGone, self.store.append, [message()])
        self.assertLess(len(Failure(error).frames), 20)
        self.box.step(1000, 70)
        self.assertEqual(len(self.errors), 1, self.errors)
        self.assertIn(f"{why}", self.errors[0])
        self.successResultOf(self.store.stop())
        self.assertIn(why, self.store.stop_fault)
        self.assertEqual(len(self.errors), 2, self.errors)


class GoneTests(GoneCase):
    """The checks of each second."""

    def test_nothing_happens(self) -> None:
        """An unchanged store continues, and its stop is clean."""
        self.box.append(message(body=b"more"))
        self.box.step(1000, 70)
        self.successResultOf(self.store.stop())
        self.assertEqual((self.errors, self.store.stop_fault), ([], ""))

    def test_newest_file_is_removed(self) -> None:
        """Its messages can be read as long as the store runs."""
        self.disk.remove(f"/store/commitlog/{self.last}")
        self.assertTrue(self.box.bodies()[-1].startswith(b"15"))
        self.assertTakesNothing(f"{self.last} was removed, renamed or replaced")

    def test_newest_file_is_replaced(self) -> None:
        """The new file has the same length."""
        self.disk.write_file(f"/store/commitlog/{self.last}", bytes(2000))
        self.assertTakesNothing(f"{self.last} was removed, renamed or replaced")

    def test_newest_file_is_cut(self) -> None:
        """No message of it is read any more; the next start names it."""
        self.disk.cut(f"/store/commitlog/{self.last}", 100)
        self.box.step(1000)
        error = self.assertRaises(StoreDamaged, self.box.bodies)
        self.assertIn(f"{self.last} was cut to 100 bytes", str(error))
        self.assertRaises(StoreDamaged, self.store.look_message, int(self.last))
        self.assertTakesNothing(f"{self.last} was cut to 100 bytes")
        error = self.assertRaises(StoreDamaged, self.box._again().open)
        self.assertIn(f"{self.last} has 100 bytes", str(error))

    def test_folder_is_removed(self) -> None:
        """The folder of the log, of the consume queues, or of everything."""
        for folder in ("/store/commitlog", "/store/consumequeue", "/store"):
            self.setUp()
            self.successResultOf(self.store.stop())
            self.box = self.box._again().open()
            self.store = self.box.store
            self.disk.remove(folder)
            self.assertTakesNothing(f"the folder {folder} was removed, renamed or replaced")

    def test_who_waits_for_a_sync(self) -> None:
        """The writer gets an error, and a sync that ends later makes nothing durable."""
        held: list[Deferred[None]] = []
        self.store.flush._run_sync = lambda prepare, done: (
            prepare(), held.append(Deferred().addBoth(done)))[-1]
        self.box.append(message(body=b"late"))
        before = self.store.commit_log.flushed_offset
        waiting = self.store.flush.flushed(self.store.commit_log.max_offset)
        assert waiting is not None
        self.disk.remove(f"/store/commitlog/{self.last}")
        self.box.step(1000)
        self.failureResultOf(waiting, StoreGone)
        held[0].callback(None)
        self.assertEqual(self.store.commit_log.flushed_offset, before)

    def test_older_file_is_cut(self) -> None:
        """Its messages cannot be read, which is logged once; everything else works."""
        self.box.bodies()
        self.disk.cut(log_file(2000), 0)
        self.box.step(1000, 2)
        for _ in range(3):
            self.assertRaises(StoreDamaged, self.store.look_message, 2000)
        self.box.append(message(body=b"more"))
        self.box.step(1000, 2)
        self.assertEqual(len(self.errors), 1, self.errors)
        self.assertIn(f"{log_file(2000)} was cut to 0 bytes", self.errors[0])

    def test_older_file_is_removed(self) -> None:
        """An operator needs room: the file can be read while it is open, and sends continue."""
        self.box.bodies()
        self.disk.remove(log_file(0))
        self.box.step(1000, 3)
        self.box.append(message(body=b"more"))
        self.assertIsNotNone(self.store.look_message(0))
        self.store.commit_log._files.close(log_file(0))
        for _ in range(2):
            self.assertRaises(StoreDamaged, self.store.look_message, 0)
        self.assertEqual(len(self.errors), 1, self.errors)

    def test_file_that_cannot_be_opened_for_a_sync(self) -> None:
        """The failure says nothing about the data: the sync is tried again, and logged once."""
        self.box.append(message(body=bytes(100)))
        offset = self.store.commit_log.max_offset
        self.store.commit_log._files.close_all()
        names = {name: self.disk._files.pop(name) for name in list(self.disk._files)
                 if name == f"/store/commitlog/{self.last}"}
        waiting = self.store.flush.flushed(offset)
        assert waiting is not None
        self.store.flush.flush_due(self.box.now_ms + 100_000)
        self.assertNoResult(waiting)
        self.disk._files.update(names)
        self.store.flush.flush_due(self.box.now_ms + 200_000)
        self.successResultOf(waiting)
        self.assertEqual(self.store.commit_log.flushed_offset, offset)


class RealDiskTests(SynchronousTestCase):
    """The same on a file system, and folders of two stores."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def make(self, root: str = "store", log: str = "") -> MessageStore:
        """Create a store that is not loaded."""
        self.now_ms = 1_700_000_000_000
        settings = small_settings(str(self.folder / root), mapped_file_size_commit_log=4096,
                                  store_path_commit_log=log and str(self.folder / log))
        store = MessageStore(settings, RealDisk(), lambda: self.now_ms, execute)
        self.addCleanup(store.close)
        return store

    def run_store(self) -> MessageStore:
        store = self.make()
        store.load()
        store.start()
        store.append([message(body=bytes(2000))])
        return store

    def after_a_second(self, store: MessageStore) -> str:
        """Return the reason for which messages are then refused."""
        self.now_ms += 1000
        store.flush_step(self.now_ms)
        return store.fault(takes_messages=True)

    def test_what_is_done_to_files(self) -> None:
        """Removed, renamed, replaced, cut, and the folders around."""
        def replace(path: Path) -> None:
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)

        changes: list[tuple[str, Callable[[Path], object]]] = [
            (log_file(0, "commitlog"), Path.unlink),
            (log_file(0, "commitlog"), replace),
            (log_file(0, "commitlog"), lambda path: os.truncate(path, 0)),
            ("commitlog", lambda path: path.rename(path.with_name("other"))),
            ("commitlog", shutil.rmtree),
            ("", lambda path: path.rename(path.with_name("moved"))),
            ("", shutil.rmtree),
        ]
        for number, (name, change) in enumerate(changes):
            self.folder /= str(number)
            self.folder.mkdir()
            store = self.run_store()
            self.assertEqual(self.after_a_second(store), "")
            change(self.folder / "store" / name)
            self.assertIn("while the store ran", self.after_a_second(store), msg=name)
            self.successResultOf(store.stop())
            self.assertIn("while the store ran", store.stop_fault)
        self.flushLoggedErrors()

    def test_files_in_the_way(self) -> None:
        """A file in place of a folder, or the reverse: the error names it; nothing is removed."""
        store = self.run_store()
        store.append([message(keys="k")])
        self.successResultOf(store.stop())
        root = self.folder / "store"
        for name, make in [
            *((name, Path.touch) for name in (
                "commitlog", "consumequeue", "consumequeue/TopicTest/0", "batchconsumequeue",
                "consumequeue_ext", "index", "config")),
            *((name, Path.mkdir) for name in (
                "checkpoint", "abort", "lock", log_file(0, "commitlog"),
                log_file(4096, "commitlog"), log_file(0, "consumequeue/TopicTest/0"))),
        ]:
            path = root / name
            with moved(path, self.folder / "away"):
                make(path)
                error = self.assertRaises(StoreError, self.open)
            self.assertIn(str(path), str(error))
        self.open()

    def open(self) -> None:
        """Start a store and let go of it."""
        store = self.make()
        try:
            store.load()
            store.start()
        finally:
            store.close()

    def test_file_beside_topics(self) -> None:
        """The file belongs to no queue and is ignored."""
        self.successResultOf(self.run_store().stop())
        (self.folder / "store" / "consumequeue" / "readme").touch()
        self.open()

    def test_one_log_of_two_stores(self) -> None:
        """Its folder is locked, also under another name; the first store continues."""
        first = self.make("one", "log")
        first.load()
        first.start()
        first.append([message()])
        (self.folder / "link").symlink_to(self.folder / "log")
        for path in ("log", "link", "one/../log"):
            error = self.assertRaises(StoreError, self.make("two", path).load)
            self.assertIn("in use by another broker", str(error))
        first.append([message()])
        self.assertEqual(sorted(os.listdir(self.folder / "log")), ["0" * 20])
        first.close()
        second = self.make("two", "link")
        second.load()

    def test_log_of_another_store(self) -> None:
        """The folder that another has by default is held as well."""
        first = self.make("one")
        first.load()
        self.assertRaises(StoreError, self.make("two", "one/commitlog").load)

    def test_queues_of_another_store(self) -> None:
        """The folder is reached by a link."""
        first = self.make("one")
        first.load()
        first.start()
        first.append([message()])
        self.successResultOf(first.stop())
        first = self.make("one")
        first.load()
        (self.folder / "two").mkdir()
        (self.folder / "two" / "consumequeue").symlink_to(self.folder / "one" / "consumequeue")
        (self.folder / "two" / "commitlog").mkdir()
        shutil.copy(self.folder / "one/commitlog" / ("0" * 20), self.folder / "two/commitlog")
        self.assertRaises(StoreError, self.make("two").load)

    def test_root_as_the_log(self) -> None:
        """One folder is locked once."""
        for log in ("store", "store/.", ""):
            store = self.make("store", log)
            store.load()
            store.close()

    def test_file_system_without_locks(self) -> None:
        """The store starts in spite of it, with the lock file alone."""
        from twistmq.broker.store import disk

        def flock(descriptor: int, operation: int) -> None:
            raise OSError(9, "not open for writing")

        held = RealDisk()
        self.patch(disk.fcntl, "flock", flock)
        held.lock_directory(str(self.folder)).release()


class MemoryDiskTests(SynchronousTestCase):
    """The memory disk behaves as the real disk."""

    def test_held_directories(self) -> None:
        """A directory is locked once, and is free after a release or the end of the process."""
        disk = MemoryDisk()
        disk.make_directory("/a/b")
        held = disk.lock_directory("/a/b")
        self.assertTrue(held.is_at("/a/b"))
        self.assertFalse(held.is_at("/a"))
        self.assertRaises(StoreError, disk.lock_directory, "/a/b")
        held.release()
        disk.lock_directory("/a/b")
        disk.forget_locks()
        disk.lock_directory("/a/b")
        self.assertRaises(FileNotFoundError, disk.lock_directory, "/c")
