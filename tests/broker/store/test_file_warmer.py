"""The next file of the log is ready before it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.store import StoreBox, message

LOG = "/store/commitlog"
FILE_SIZE = 3 * 4096


class Disk(FaultyDisk):
    """Notes the writes into files of the log, and the syncs."""

    def __init__(self) -> None:
        super().__init__()
        #: (path, bytes that took room), and (path, -1) for a sync.
        self.done: list[tuple[str, int]] = []

    def before_write(self, path: str, size: int) -> int:
        if path.startswith(LOG):
            self.done.append((path[-6:], size))
        return super().before_write(path, size)

    def before_sync(self, path: str) -> None:
        if path.startswith(LOG + "/"):
            self.done.append((path[-6:], -1))
        super().before_sync(path)


class FileWarmerTests(SynchronousTestCase):
    """A store with warmMapedFileEnable whose steps are one page."""

    def make(self, **changes: Any) -> None:
        """Open a store; its threads wait."""
        self.disk = Disk()
        self.jobs: list[tuple[Callable[[], None], Deferred[None]]] = []
        self.box = StoreBox(self.disk, **{
            "mapped_file_size_commit_log": FILE_SIZE, "warm_maped_file_enable": True,
            "flush_least_pages_when_warm_maped_file": 1, **changes}).open()

    def hold(self) -> None:
        """Let jobs for threads wait."""

        def wait(job: Callable[[], None]) -> Deferred[None]:
            done: Deferred[None] = Deferred()
            self.jobs.append((job, done))
            return done

        self.box.in_thread = wait

    def run_jobs(self) -> None:
        """Run the waiting jobs."""
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            execute(job).chainDeferred(done)

    def fill(self) -> None:
        """Send messages until the log reaches its next file."""
        start = self.box.store.commit_log.max_offset // FILE_SIZE
        while self.box.store.commit_log.max_offset // FILE_SIZE == start:
            self.box.append(message(body=bytes(3000)))

    def test_each_step_warms_one_page(self) -> None:
        """Each step warms a page; when the file is ready, nothing is done until it is used."""
        self.make()
        self.box.append(message())
        self.disk.done.clear()
        self.box.step(count=9)
        self.assertEqual([each for each in self.disk.done if each[0] == "012288"],
                         [("012288", 0), *[("012288", 4096)] * 3])
        self.disk.done.clear()
        self.fill()
        self.box.append(message())
        # Nothing of what is written there takes room.
        self.assertEqual({size for path, size in self.disk.done if path == "012288"}, {0})
        self.box.step(count=9)
        self.assertIn(("024576", 4096), self.disk.done)

    def test_first_file(self) -> None:
        """The file of an empty log is warmed as well."""
        self.make()
        self.box.step(count=9)
        self.assertEqual(self.disk.list_directory(LOG), [f"{0:020d}"])
        self.box.append(message(body=b"x"))
        self.assertEqual(self.box.after_kill().bodies(), [b"x"])

    def test_under_sync_flush_each_step_is_durable(self) -> None:
        """Under SYNC_FLUSH each step is durable; otherwise none is."""
        for flush, syncs in (("SYNC_FLUSH", 3), ("ASYNC_FLUSH", 0)):
            self.make(flush_disk_type=flush)
            self.box.append(message())
            self.box.step(count=9)
            self.assertEqual(self.disk.done.count(("012288", -1)), syncs, msg=flush)

    def test_without_the_setting_no_file_is_warmed(self) -> None:
        """Without the setting no file is made before its time."""
        self.make(warm_maped_file_enable=False)
        self.box.append(message())
        self.box.step(count=9)
        self.assertEqual(self.disk.list_directory(LOG), [f"{0:020d}"])

    def test_log_is_faster(self) -> None:
        """No zeros overwrite messages, whether a step waits, runs or has not begun."""
        for steps in range(4):
            self.make()
            self.box.append(message())
            self.box.step(count=steps)
            self.hold()
            self.box.step()
            self.fill()
            self.run_jobs()
            self.box.in_thread = execute
            bodies = self.box.bodies()
            self.assertGreater(len(bodies), 3)
            self.box.step(count=9)
            self.assertEqual(self.box.bodies(), bodies, msg=steps)
            self.assertEqual(self.box.after_kill().bodies(), bodies, msg=steps)

    def test_full_disk(self) -> None:
        """The file is deleted, so the log has its room; it is not warmed again."""
        self.make()
        self.box.append(message())
        self.disk.room_bytes = 5000
        self.box.step(count=9)
        self.assertEqual(self.disk.list_directory(LOG), [f"{0:020d}"])
        self.disk.room_bytes = 9000
        self.box.append(message(body=bytes(8000)))
        self.disk.room_bytes = 0
        self.assertRaises(StoreFull, self.box.append, message(body=bytes(8000)))
        self.disk.room_bytes = None
        self.fill()
        self.box.step(count=9)
        self.assertIn(f"{2 * FILE_SIZE:020d}", self.disk.list_directory(LOG))

    def test_a_stop_waits_for_the_step_that_is_going_on(self) -> None:
        """A stop waits for the running step, and a file that is ready is used again."""
        self.make()
        self.box.append(message(body=b"x"))
        self.hold()
        self.box.step()
        stopped = self.box.store.stop()
        self.assertFalse(stopped.called)
        while self.jobs:
            self.run_jobs()
        self.assertTrue(stopped.called)
        self.assertFalse(self.disk.exists("/store/abort"))
        self.box = self.box._again().open()
        self.box.step(count=9)
        self.fill()
        self.assertEqual(self.box.bodies()[0], b"x")
        self.assertEqual(self.box.after_kill().bodies()[0], b"x")
