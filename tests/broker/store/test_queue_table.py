"""All queues of a store."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.store import queue_sync
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.queue_table import QueueSync, QueueTable
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.errors import MessageIllegal


class ThreadedDisk(FaultyDisk):
    """A disk on which simultaneous syncs are useful, and which counts them."""

    syncs_at_once = 4

    def __init__(self) -> None:
        super().__init__()
        self.together = Barrier(4, timeout=10)
        self.bad = ""

    def sync_path(self, path: str) -> None:
        """Wait until as many syncs as may run at a time do."""
        self.together.wait()
        if path == self.bad:
            raise OSError("bad")


class QueueSyncTests(SynchronousTestCase):
    """The class QueueSync."""

    def test_many_at_a_time(self) -> None:
        """Syncs of many paths run together; one that fails is reported and remains to be synced."""
        disk = ThreadedDisk()
        paths = {f"/cq/{number}" for number in range(16)}
        job = QueueSync(disk, set(paths))
        job()
        self.assertEqual(job.paths, set())
        disk.bad = "/cq/3"
        job = QueueSync(disk, set(paths))
        self.assertRaises(OSError, job)
        self.assertEqual(job.paths, {"/cq/3"})

    def test_threads_take_many_paths_at_a_time(self) -> None:
        """A thread syncs many paths; each failure is reported."""
        jobs: list[ThreadPoolExecutor] = []

        class Pool(ThreadPoolExecutor):
            def submit(self, *args: Any, **options: Any) -> Any:
                jobs.append(self)
                return super().submit(*args, **options)

        self.patch(queue_sync, "ThreadPoolExecutor", Pool)
        disk = FaultyDisk()
        disk.syncs_at_once = 3
        bad = {f"/cq/{number}" for number in (0, 63, 64, 1999)}
        good = {f"/cq/{number}" for number in range(2000)} - bad
        synced: list[str] = []

        def sync(path: str) -> None:
            synced.append(path)
            if path in bad:
                raise OSError(path)

        self.patch(disk, "sync_path", sync)
        job = QueueSync(disk, good | bad)
        self.assertRaises(OSError, job)
        self.assertEqual((job.paths, sorted(synced)), (bad, sorted(good | bad)))
        self.assertTrue(0 < len(jobs) < 100, len(jobs))


class QueueTableTests(SynchronousTestCase):
    """The class QueueTable over a memory disk."""

    def setUp(self) -> None:
        """Create a table without queues."""
        self.disk = FaultyDisk()
        self.disk.make_directory("/cq")
        self.table = QueueTable(self.disk, "/cq", 200, "/batch", 230)

    def add(self, topic: str, count: int, queue_id: int = 0) -> None:
        """Add messages of 10 bytes to a topic's queue, as dispatch does."""
        queue = self.table.find(topic, queue_id) or self.table.make(topic, queue_id)
        if not queue.tail:
            self.table.dirty[queue] = None
        for _ in range(count):
            queue.add(queue.max_offset, queue.max_offset * 10, 10, 0)
        self.table.tail_bytes += 20 * count

    def test_refuses_names_that_are_no_directories(self) -> None:
        """The name of a topic can neither leave the directory of the store nor be too long."""
        for topic in ("", ".", "..", "../x", "a/b", "a\0b", "x" * 256, "é" * 128, "\ud800"):
            self.assertRaises(MessageIllegal, self.table.make, topic, 0)
        self.assertRaises(MessageIllegal, self.table.make, "T", -1)
        self.assertEqual(list(self.table), [])
        self.table.make("%RETRY%" + "x" * 248, 0)

    def test_more_queues_may_have_more_in_memory(self) -> None:
        """The total of entries in memory is limited, and a write of few entries costs as much."""
        for count, enough in ((1, 4 << 20), (20_000, 8_000_000), (60_000, 16 << 20)):
            self.table.dirty = dict.fromkeys(ConsumeQueue("T", number) for number in range(count))
            self.table.tail_bytes = enough - 1
            self.assertFalse(self.table.should_write)
            self.table.tail_bytes = enough
            self.assertTrue(self.table.should_write)

    def test_writes_tails_in_steps(self) -> None:
        """The oldest first; the bytes in memory are counted down."""
        for number in range(5):
            self.add(f"T{number}", number + 1)
        self.table.begin_writing()
        self.assertFalse(self.table.write_tails(2))
        self.assertEqual(self.table.tail_bytes, 20 * (3 + 4 + 5))
        self.assertEqual([queue.topic for queue in self.table.dirty], ["T2", "T3", "T4"])
        self.assertTrue(self.table.write_tails(9))
        self.assertTrue(self.table.write_tails(9))
        self.assertEqual(self.table.tail_bytes, 0)
        self.table.sync_job()()
        # A file, its directory and its topic's each, and the two above.
        self.assertEqual((self.disk.sync_count, self.table.files.unsynced), (5 * 3 + 2, set()))

    def test_writes_where_there_is_much(self) -> None:
        """Queues with few entries are left out; deleted ones are skipped."""
        for number in range(5):
            self.add(f"T{number}", number + 1)
        self.table.begin_writing(60)
        self.table.destroy("T3")
        self.assertTrue(self.table.write_tails(9))
        self.assertEqual([queue.topic for queue in self.table.dirty], ["T0", "T1"])
        self.assertEqual(self.table.tail_bytes, 60)

    def test_full_disk_in_mid_step(self) -> None:
        """The entries that were written are done; the others wait and are counted."""
        for number in range(3):
            self.add(f"T{number}", 2)
        self.disk.room_bytes = 60
        self.table.begin_writing()
        self.assertRaises(StoreFull, self.table.write_tails, 9)
        self.assertEqual([queue.topic for queue in self.table.dirty], ["T1", "T2"])
        self.assertEqual(self.table.tail_bytes, 80)
        self.disk.room_bytes = None
        self.assertTrue(self.table.write_tails(9))
        self.assertEqual(self.table.tail_bytes, 0)

    def test_every_queue_is_found_again_with_its_numbers(self) -> None:
        """Every queue is found again with its bounds."""
        self.add("A", 3)
        self.add("A", 5, queue_id=7)
        self.add("B", 12)
        self.table.write_all()
        table = QueueTable(self.disk, "/cq", 200, "/batch", 230)
        table.load(thorough=False)
        self.assertEqual({(queue.topic, queue.queue_id): queue.max_offset for queue in table},
                         {("A", 0): 3, ("A", 7): 5, ("B", 0): 12})
        furthest = table.furthest()
        assert furthest is not None
        self.assertEqual((furthest.topic, furthest.max_physical), ("B", 120))

    def test_cut_counts_what_leaves_memory(self) -> None:
        """Only queues with entries after the position change."""
        self.add("A", 3)
        self.add("B", 12)
        self.table.cut(50)
        self.assertEqual({queue.topic: queue.max_offset for queue in self.table}, {"A": 3, "B": 5})
        self.assertEqual(self.table.tail_bytes, 160)

    def test_a_queues_topic_is_the_string_of_other_tables(self) -> None:
        """The object of the first sender does not matter."""
        name = "".join(["Topic", "OfTheTable"])
        self.assertIs(self.table.make(name, 0).topic, sys.intern("TopicOfTheTable"))

    def test_who_keeps_a_queue_sees_that_it_was_deleted(self) -> None:
        """The topic or the single queue was deleted."""
        self.add("A", 1)
        self.add("A", 1, queue_id=7)
        self.add("B", 1)
        kept = list(self.table)
        self.table.destroy_queue(kept[1])
        self.assertEqual([queue.is_removed for queue in kept], [False, True, False])
        self.table.destroy("A")
        self.assertEqual([queue.is_removed for queue in kept], [True, True, False])

    def test_queues_of_a_topic_share_its_name_as_records_have_it(self) -> None:
        """This is also so for queues that are found on disk."""
        self.add("A", 1)
        self.add("A", 1, queue_id=7)
        self.table.write_all()
        loaded = QueueTable(self.disk, "/cq", 200, "/batch", 230)
        loaded.load(thorough=False)
        for table in (self.table, loaded):
            first, second = table
            self.assertEqual(first.topic_part, b"\x01A")
            self.assertIs(first.topic_part, second.topic_part)

    def test_a_topics_queues_leave_memory_and_disk(self) -> None:
        """A topic's queues leave memory and disk; a sync under way does not mind."""
        self.add("A", 12)
        self.table.write_all()
        self.add("A", 2)
        self.add("B", 1)
        sync = self.table.sync_job()
        self.assertEqual(self.table.destroy("A"), 1)
        self.assertEqual(self.table.destroy("A"), 0)
        self.assertEqual((self.table.tail_bytes, len(self.table.dirty)), (20, 1))
        self.assertIsNone(self.table.find("A", 0))
        self.assertFalse(self.disk.exists("/cq/A"))
        sync()

    def test_the_queue_is_empty_and_goes_on_at_the_offset(self) -> None:
        """The queue is empty and continues at the offset, on disk as well."""
        self.add("A", 12)
        self.table.write_all()
        self.add("A", 2)
        queue = self.table.find("A", 0)
        assert queue is not None
        self.table.restart(queue, 0)
        self.assertEqual((queue.max_offset, self.table.tail_bytes, self.table.dirty), (0, 0, {}))
        self.add("A", 3)
        self.table.write_all()
        table = QueueTable(self.disk, "/cq", 200, "/batch", 230)
        table.load(thorough=True)
        self.assertEqual([queue.max_offset for queue in table], [3])
