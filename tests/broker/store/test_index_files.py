"""The files of the index: rounds of a flush, crashes between steps, queries, loads."""

from collections.abc import Callable

from twisted.internet.defer import Deferred, execute, succeed
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.store import index_files as index_files_module
from twistmq.broker.store.index_files import IndexFiles, index_file_name
from twistmq.broker.store.index_tail import HEADER, HEADER_SIZE, ITEM, SLOT, item_hash
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.errors import StoreError
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.run_to_completion import run_to_completion

PREFIX = java_string_hash("T#")
NOW_MS = 1_700_000_000_123


class IndexFilesCase(SynchronousTestCase):
    """An index over a memory disk; its checkpoint is a number."""

    def setUp(self) -> None:
        """Create a disk without files."""
        self.disk = FaultyDisk()
        self.checkpoint_ms = 0
        #: Messages there are, and those that are durable.
        self.added = self.durable = 0
        self.index = self.make()

    def make(self, crashed: bool = False, item_max: int = 11) -> IndexFiles:
        """Return an index over the files on the disk."""
        index = IndexFiles(
            self.disk, "/index", 7, item_max, lambda: NOW_MS, self.in_thread,
            self.flush_log, self.save
        )
        index.load(self.checkpoint_ms if crashed else None)
        return index

    def in_thread(self, job: Callable[[], None]) -> Deferred[None]:
        """Run a job at once."""
        return execute(job)

    def flush_log(self) -> Deferred[None]:
        """Make all messages durable."""
        self.durable = self.added
        return succeed(None)

    def save(self, timestamp: int, end: int) -> Deferred[None]:
        """Make the checkpoint durable."""
        self.checkpoint_ms = max(self.checkpoint_ms, timestamp)
        return succeed(None)

    def add(self, count: int) -> None:
        """Add messages: key of its number, and one key all have."""
        for _ in range(count):
            for key in (f"k{self.added}", "all"):
                if not self.index.current().put(PREFIX, key, self.added * 100, 1000 + self.added):
                    raise AssertionError("current() is not full")
            self.added += 1

    def flush(self) -> None:
        """Flush everything."""
        self.successResultOf(Deferred.fromCoroutine(self.index.finish()))

    def check(self, index: IndexFiles, count: int) -> None:
        """Check that every message is found by its own key and by the common one."""
        for number in range(count):
            found, _, _ = index.find("T", f"k{number}", 9, 0, 2**62)
            self.assertEqual(found, [number * 100])
        found, timestamp, place = index.find("T", "all", 1000, 0, 2**62)
        self.assertEqual(found, [number * 100 for number in range(count)][::-1])
        if count:
            self.assertEqual((timestamp, place), (1000 + count - 1, (count - 1) * 100))


class IndexFilesTests(IndexFilesCase):
    """The class IndexFiles."""

    def test_17_digits_of_local_time(self) -> None:
        """17 digits of local time; never one that is not the last."""
        self.assertEqual(len(index_file_name(NOW_MS)), 17)
        self.assertEqual(index_file_name(NOW_MS)[-3:], "123")
        self.add(12)
        names = [file.path for file in self.index.files]
        self.assertEqual((len(names), names), (3, sorted(set(names))))

    def test_files_follow_each_other(self) -> None:
        """A new file begins at the end of the previous one."""
        self.add(5)
        self.index.next()
        before, after = self.index.files
        self.assertEqual(after.tail.begin_timestamp, before.tail.end_timestamp)
        self.assertEqual(after.tail.begin_physical, before.tail.end_physical)
        self.assertEqual(self.index.end_physical, 400)

    def test_finds_before_and_after_a_flush(self) -> None:
        """Keys are found in memory, in files, and after a start."""
        self.check(self.index, 0)
        self.add(23)
        self.check(self.index, 23)
        self.flush()
        self.check(self.index, 23)
        self.assertTrue(self.index.is_flushed)
        self.index = self.make()
        self.check(self.index, 23)
        self.add(9)
        self.check(self.index, 32)
        self.flush()
        self.check(self.make(), 32)

    def test_drops_what_has_no_message(self) -> None:
        """Flushed files before the log's beginning are deleted, except the newest."""
        self.add(12)
        self.assertIs(self.index.drop_expired(10_000), None)
        self.index.step(may_begin=True)
        self.assertIs(self.index.drop_expired(10_000), None)
        self.flush()
        first, second, newest = self.index.files
        self.assertIs(self.index.drop_expired(400), None)
        self.assertIs(self.index.drop_expired(401), first)
        self.assertIs(self.index.drop_expired(401), None)
        self.assertEqual(self.index.find("T", "k5", 9, 0, 2**62)[0], [500])
        self.assertIs(self.index.drop_expired(10_000), second)
        self.assertIs(self.index.drop_expired(10_000), None)
        self.assertEqual(self.index.files, [newest])

    def test_drops_no_file_that_a_thread_syncs(self) -> None:
        """The header is written before its sync, so the file stays open."""
        self.add(12)
        held: list[tuple[Callable[[], None], Deferred[None]]] = []

        def hold(job: Callable[[], None]) -> Deferred[None]:
            held.append((job, Deferred()))
            return held[-1][1]

        self.index._in_thread = hold
        first = self.index.files[0]
        while not first.is_flushed or not held:
            self.index.step(may_begin=True)
            if not first.is_flushed and held:
                job, done = held.pop()
                job()
                done.callback(None)
        self.assertIs(self.index.drop_expired(10_000), None)
        job, done = held.pop()
        job()
        done.callback(None)
        self.index.step(may_begin=False)
        self.assertIs(self.index.drop_expired(10_000), first)

    def test_files_have_apaches_length(self) -> None:
        """The length does not depend on the content."""
        self.add(1)
        self.flush()
        (name,) = self.disk.list_directory("/index")
        self.assertEqual(self.disk.file_size(f"/index/{name}"), 40 + 7 * 4 + 11 * 20)

    def test_count_and_time_limit_the_index_query(self) -> None:
        """The count and the time limit the result."""
        self.add(23)
        found, _, _ = self.index.find("T", "all", 3, 0, 2**62)
        self.assertEqual(found, [2200, 2100, 2000])
        found, _, _ = self.index.find("T", "all", 99, 10_000, 2**62)
        self.assertEqual(found, [])
        self.assertEqual(self.index.find("Other", "all", 99, 0, 2**62)[0], [])

    def test_a_long_chain_is_followed_in_pieces(self) -> None:
        """A long chain is followed in slices; deleted parts are no longer read."""
        self.patch(index_files_module, "_ITEMS_AT_ONCE", 2)
        self.add(23)
        self.flush()
        steps = 0
        work = self.index.finding("T", "all", 1000, 0, 2**62)
        for _ in work:
            steps += 1
        self.assertGreaterEqual(steps, 23 // 2)
        work = self.index.finding("T", "all", 1000, 0, 2**62)
        next(work)
        while (dropped := self.index.drop_expired(2**62)) is not None:
            dropped.close()
        found, _, _ = run_to_completion(work)
        newest = [place for place in range(2200, -100, -100)
                  if place >= self.index.files[-1].tail.begin_physical]
        self.assertEqual(found, newest)

    def test_nothing_on_disk_before_a_flush(self) -> None:
        """A file is created by its first flush."""
        self.add(3)
        self.assertEqual(self.disk.list_directory("/index"), [])

    def test_full_files_do_not_wait_for_the_interval(self) -> None:
        """They are flushed at once, and the current one is not."""
        self.add(7)
        while self.index.step(may_begin=False):
            pass
        self.assertEqual([file.is_flushed for file in self.index.files], [True, False])

    def test_steps_of_a_large_flush(self) -> None:
        """Many pages and items take many steps, and additions between them are kept."""
        self.index = IndexFiles(
            self.disk, "/index", 800_000, 200_000, lambda: NOW_MS, self.in_thread,
            self.flush_log, self.save
        )
        self.index.load(None)
        tail = self.index.current()
        for number in range(60_000):
            tail.put(PREFIX, str(number), number, 1000)
        steps = 0
        while not self.index.is_flushed:
            steps += 1
            if steps == 5:
                tail.put(PREFIX, "late", 7, 1000)
            self.index.step(may_begin=True)
        self.assertGreater(steps, 8)
        again = IndexFiles(
            self.disk, "/index", 800_000, 200_000, lambda: NOW_MS, self.in_thread,
            self.flush_log, self.save
        )
        again.load(None)
        for key, place in (("0", 0), ("59999", 59999), ("late", 7)):
            self.assertIn(place, again.find("T", key, 9, 0, 2**62)[0])

    def test_foreign_and_other_sized_files(self) -> None:
        """They are neither used nor deleted."""
        self.add(2)
        self.flush()
        self.disk.write_file("/index/readme", b"")
        self.assertEqual(self.make(item_max=12).files, [])
        self.assertEqual(len(self.make().files), 1)
        self.assertTrue(self.disk.exists("/index/readme"))


class IndexCrashTests(IndexFilesCase):
    """Crashes and disks that fail."""

    def test_crash_between_any_two_steps(self) -> None:
        """All items that the header counts are found; the file is never newer than
        the checkpoint.
        """
        self.add(4)
        self.flush()
        self.add(4)
        self.add(3)
        disk = self.disk
        for steps in range(40):
            # What is found over the crashed files is repaired, and this index goes on with its own.
            self.disk = FaultyDisk()
            self.disk.make_directory("/index")
            for name in disk.list_directory("/index"):
                self.disk.write_file(f"/index/{name}", disk.read_file(f"/index/{name}"))
            index = self.make(crashed=True)
            durable = index.end_physical // 100 + 1
            self.assertGreaterEqual(durable, 4, msg=steps)
            found, _, _ = index.find("T", "all", 1000, 0, 2**62)
            self.assertEqual(found[0], (durable - 1) * 100)
            self.assertEqual(set(range(0, durable * 100, 100)), set(found), msg=steps)
            if self.index.is_flushed:
                break
            self.index.step(may_begin=True)
        self.assertTrue(self.index.is_flushed)

    def test_apache_finds_at_any_step(self) -> None:
        """Apache's broker finds all earlier keys in the files at every step of a round.

        It removes files that are newer than the checkpoint, follows no slot that is ahead of the
        count, and indexes again from the end of the newest file's header on.
        """
        self.add(4)
        self.flush()
        self.add(40)
        ends = set()
        while not self.index.is_flushed:
            end = max((header[3] for header in self.headers()), default=0)
            ends.add(end)
            for number in range(end // 100 + 1):
                self.assertIn(number * 100, self.apache_finds(f"k{number}"), msg=f"end {end}")
            self.assertLessEqual(max(self.apache_finds("all")), self.durable * 100)
            self.index.step(may_begin=True)
        self.assertGreater(len(ends), 5)

    def headers(self) -> list[tuple[int, ...]]:
        """Headers of the files that Apache's broker does not remove."""
        headers = (HEADER.unpack(self.disk.read_file(f"/index/{name}")[:HEADER_SIZE])
                   for name in self.disk.list_directory("/index"))
        return [header for header in headers if header[1] <= self.checkpoint_ms]

    def apache_finds(self, key: str) -> list[int]:
        """Look up a key as Apache's broker does."""
        found = []
        code = item_hash(PREFIX, key)
        for name in self.disk.list_directory("/index"):
            data = self.disk.read_file(f"/index/{name}")
            header = HEADER.unpack(data[:HEADER_SIZE])
            number, = SLOT.unpack_from(data, HEADER_SIZE + SLOT.size * (code % 7))
            while header[1] <= self.checkpoint_ms and 0 < number <= header[5]:
                found_code, place, _, number = ITEM.unpack_from(
                    data, HEADER_SIZE + SLOT.size * 7 + ITEM.size * number)
                found += [place] if found_code == code else []
        return found

    def test_slots_ahead_of_the_header(self) -> None:
        """They are corrected before other items take the positions to which they refer."""
        self.add(2)
        self.flush()
        self.add(2)
        while not self.index.files[0].is_flushed:
            header = self.disk.read_file(self.index.files[0].path)[:HEADER_SIZE]
            self.index.step(may_begin=True)
        file = self.disk.open_file(self.index.files[0].path)
        file.write_at(0, header)
        index = self.make(crashed=True)
        tail = index.files[0].tail
        for number in range(2, 4):
            tail.put(PREFIX, f"other{number}", number * 100, NOW_MS)
        found, _, _ = index.find("T", "all", 1000, 0, 2**62)
        self.assertEqual(found, [100, 0])

    def test_torn_header(self) -> None:
        """A file whose header belongs to other items is deleted."""
        self.add(3)
        self.flush()
        path = self.index.files[0].path
        for position, torn in ((24, (50).to_bytes(8, "big")), (36, bytes(4))):
            self.disk.open_file(path).write_at(position, torn)
            self.assertEqual(self.make(crashed=True).files, [])
            self.assertFalse(self.disk.exists(path))
            self.setUp()
            self.add(3)
            self.flush()

    def test_file_newer_than_the_checkpoint_is_removed(self) -> None:
        """Another broker crashed, so its last writes cannot be trusted."""
        self.add(12)
        self.flush()
        names = self.disk.list_directory("/index")
        self.checkpoint_ms = self.index.files[1].tail.end_timestamp
        index = self.make(crashed=True)
        self.assertEqual(len(index.files), 2)
        self.assertEqual(self.disk.list_directory("/index"), names[:2])

    def test_full_disk_is_tried_again(self) -> None:
        """The round fails, the messages are still found, and a later round writes them."""
        self.add(3)
        self.disk.room_bytes = 30
        failed = 0
        for _ in range(3):
            try:
                while self.index.step(may_begin=True):
                    pass
            except StoreFull:
                failed += 1
        self.assertEqual(failed, 3)
        self.check(self.index, 3)
        self.add(1)
        self.disk.room_bytes = None
        self.flush()
        self.check(self.make(crashed=True), 4)

    def test_failed_sync_is_not_tried_again(self) -> None:
        """The index stays readable; the stop is not clean."""
        self.add(3)
        self.disk.fail_sync_in = 2
        while self.index.step(may_begin=True):
            pass
        self.flushLoggedErrors(OSError)
        self.disk.fail_sync_in = None
        self.check(self.index, 3)
        finished = Deferred.fromCoroutine(self.index.finish())
        self.failureResultOf(finished, StoreError)
        self.assertEqual(self.checkpoint_ms, 0)

    def test_finish_waits_for_threads(self) -> None:
        """A slow sync delays the end, and nothing else."""
        held: list[tuple[Callable[[], None], Deferred[None]]] = []

        def hold(job: Callable[[], None]) -> Deferred[None]:
            held.append((job, Deferred()))
            return held[-1][1]

        self.index = IndexFiles(
            self.disk, "/index", 7, 11, lambda: NOW_MS, hold, self.flush_log, self.save)
        self.index.load(None)
        self.add(2)
        finished = Deferred.fromCoroutine(self.index.finish())
        for _ in range(4):
            self.assertNoResult(finished)
            self.assertFalse(self.index.step(may_begin=True))
            job, done = held.pop()
            job()
            done.callback(None)
        self.successResultOf(finished)
        self.check(self.make(crashed=True), 2)
