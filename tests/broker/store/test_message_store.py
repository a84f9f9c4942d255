"""The store as a whole: appends, confirmation, flushes, stops, full disks, many queues."""

import os
from collections.abc import Sequence
from pathlib import Path

from twisted.internet.defer import execute
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.held_jobs import hold_jobs
from twistmq.broker.errors import StoreClosed, StoreFull
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.message_store import MessageStore, StoreSettings
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.store import StoreBox, message, small_settings
from twistmq.protocol.errors import MessageIllegal, StoreDamaged, StoreError
from twistmq.protocol.record import (
    SYS_TRANSACTION_PREPARED,
    MessageRecord,
    decode_record,
)


class AppendTests(SynchronousTestCase):
    """The method append."""

    def setUp(self) -> None:
        """Create a store on a disk that can fail."""
        self.disk = FaultyDisk()
        self.box = StoreBox(self.disk, mapped_file_size_commit_log=2000).open()
        self.store = self.box.store

    def test_readable_at_once(self) -> None:
        """A message is found by queue, key and position before it is flushed."""
        records = self.box.append(message(body=b"a", keys="k"), message(body=b"b", keys="k"))
        self.assertEqual(self.box.bodies(), [b"a", b"b"])
        self.assertEqual(len(self.store.reader.query("TopicTest", "k", 9, 0, 2**62)[0]), 2)
        found = self.store.look_message(records[1].physical_offset)
        assert found is not None
        self.assertEqual(decode_record(found).body, b"b")
        self.assertEqual(self.store.look_message(records[1].physical_offset, 10), found[:10])
        self.assertEqual(self.store.commit_log.max_offset, records[1].next_offset)

    def test_look_message_where_none_starts(self) -> None:
        """The ids of clients may contain any position."""
        self.box.append(message())
        for place in (-1, 1, 50, self.store.commit_log.max_offset, 10**15):
            self.assertIsNone(self.store.look_message(place))

    def test_fills_records_in(self) -> None:
        """The positions, sizes and times of the records are set."""
        (record,) = self.box.append(message())
        stored = (record.queue_offset, record.physical_offset, record.size, record.next_offset)
        self.assertEqual(stored, (0, 0, 105, 105))
        self.assertEqual(record.store_timestamp, self.box.now_ms)

    def test_its_duration_is_right_when_the_wall_clock_jumps_meanwhile(self) -> None:
        """A set clock makes no append slow. Flow control refuses sends after slow appends."""
        wall_ms = [1_700_000_000_000]

        def jumping_ms() -> int:
            wall_ms[0] += 7_200_000
            return wall_ms[0]

        box = StoreBox()
        store = MessageStore(box.settings, box.disk, jumping_ms, execute, steady_ms=lambda: 5)
        store.load(lambda topic: False, {})
        store.start()
        self.addCleanup(store.stop)
        store.append([message()])
        store.append_encoded([store.encode_ahead([message()])])
        self.assertEqual((store.stats.put_messages, store.stats.slow_put_ms), (2, 0))

    def test_an_empty_append_does_nothing(self) -> None:
        """An empty append does nothing."""
        self.store.append([])
        self.assertEqual(self.store.commit_log.max_offset, 0)

    def test_over_several_files_in_one_append(self) -> None:
        """One append may go over several files."""
        records = self.box.append(*[message(body=bytes([n]) * 300) for n in range(20)])
        self.assertEqual(len(self.disk.list_directory("/store/commitlog")), 5)
        self.assertEqual(self.box.bodies(), [bytes([n]) * 300 for n in range(20)])
        for record in records:
            self.assertLessEqual(record.physical_offset % 2000 + record.size, 2000 - 8)

    def test_listeners_get_dispatched_records_and_entered_queues(self) -> None:
        """Listeners get all dispatched records, and the queues that got entries."""
        dispatched: list[Sequence[MessageRecord]] = []
        arrived: list[Sequence[MessageRecord]] = []
        self.store.dispatch.on_dispatch.append(dispatched.append)
        self.store.dispatch.on_arrival.append(arrived.append)
        half = message(sys_flag=SYS_TRANSACTION_PREPARED)
        whole = message()
        self.box.append(half, whole)
        self.box.append(half)
        self.assertEqual([list(each) for each in dispatched], [[half, whole], [half]])
        self.assertEqual([list(each) for each in arrived], [[whole]])

    def test_arrival_is_readable(self) -> None:
        """A listener can read the message of which it is informed."""
        bodies: list[bytes] = []
        self.store.dispatch.on_arrival.append(lambda records: bodies.extend(self.box.bodies()))
        self.box.append(message(body=b"x"))
        self.assertEqual(bodies, [b"x"])

    def test_dispatch_filter(self) -> None:
        """A filtered record uses no offset, also after a kill."""

        def hide(record: MessageRecord) -> bool:
            return record.body != b"hidden"

        self.store.dispatch.filter = hide
        self.box.append(message(body=b"a"), message(body=b"hidden"), message(body=b"b"))
        self.assertEqual(self.box.bodies(), [b"a", b"b"])
        self.box.store.close()
        box = self.box._again()
        box.store.dispatch.filter = hide
        box.open()
        self.assertEqual(box.bodies(), [b"a", b"b"])

    def test_illegal_record_takes_nothing(self) -> None:
        """The offsets of its batch are not used either; the next append is unaffected."""
        error = self.assertRaises(
            MessageIllegal, self.store.append, [message(), message(properties="x" * 40_000)]
        )
        self.assertEqual(error.record_index, 1)
        self.assertRaises(MessageIllegal, self.store.append, [message(topic="../etc")])
        (record,) = self.box.append(message(body=b"a"))
        self.assertEqual((record.queue_offset, record.physical_offset), (0, 0))
        self.assertEqual(self.box.bodies(), [b"a"])

    def test_full_disk(self) -> None:
        """Refused whole; reads go on; the next append has the same offsets."""
        self.box.append(message(body=b"a"))
        self.disk.room_bytes = 3000
        big = [message(body=bytes(900)) for _ in range(4)]
        error = self.assertRaises(StoreFull, self.store.append, big)
        self.assertTrue(error.retriable)
        self.assertEqual(self.box.bodies(), [b"a"])
        self.assertEqual(self.store.queues.max_offset("TopicTest", 0), 1)
        self.disk.room_bytes = None
        (record,) = self.box.append(message(body=b"b"))
        self.assertEqual((record.queue_offset, record.physical_offset), (1, 105 - 4))
        self.assertEqual(self.box.bodies(), [b"a", b"b"])
        self.assertEqual(self.box.after_kill().bodies(), [b"a", b"b"])

    def test_refused_append_does_not_come_back(self) -> None:
        """A kill after a full disk finds none of the refused records."""
        for room in range(0, 400, 23):
            self.setUp()
            self.box.append(message(body=b"a"))
            self.disk.room_bytes = room
            self.assertRaises(StoreFull, self.store.append, [message(body=bytes(300))])
            self.disk.room_bytes = None
            self.assertEqual(self.box.after_kill().bodies(), [b"a"], msg=room)

    def test_failing_disk(self) -> None:
        """Another error than a full disk is another error."""
        self.disk.fail_write_in = 1
        error = self.assertRaises(StoreError, self.store.append, [message()])
        self.assertFalse(error.retriable)
        self.disk.fail_write_in = None
        self.box.append(message(body=b"a"))
        self.assertEqual(self.box.bodies(), [b"a"])

    def test_queues_that_cannot_be_written_refuse_at_last(self) -> None:
        """The memory of queues that cannot be written is limited."""
        self.box.append(message(body=b"a"))
        self.store.queues.tail_bytes = 1 << 30
        self.assertRaises(StoreFull, self.store.append, [message()])

    def test_not_writable(self) -> None:
        """The store of a slave, and one that does not run, accept no appends."""
        self.store.writable = False
        self.assertRaises(StoreClosed, self.store.append, [message()])
        self.store.writable = True
        self.box.append(message())
        self.successResultOf(self.store.stop())
        self.assertRaises(StoreClosed, self.store.append, [message()])
        self.assertRaises(StoreClosed, self.store.raw.append, 0, b"")

    def test_put_and_failed(self) -> None:
        """The time, size and failure of each append are counted."""
        self.box.append(message(), message())
        self.assertRaises(MessageIllegal, self.store.append, [message(properties="x" * 40_000)])
        info = self.store.runtime_info()
        self.assertEqual(info["putMessageTimesTotal"], "2")
        self.assertEqual(info["putMessageFailedTimes"], "1")
        self.assertEqual(info["commitLogMaxOffset"], "210")
        self.assertEqual(info["commitLogDiskRatio"], "0.1")
        self.assertEqual(info["consumeQueueDiskRatio"], "0.1")


class FlushTests(SynchronousTestCase):
    """The methods flushed and flush_step."""

    def setUp(self) -> None:
        """A store under SYNC_FLUSH with a thread the test runs."""
        self.disk = FaultyDisk()
        self.box = StoreBox(self.disk, flush_disk_type="SYNC_FLUSH").open()
        self.jobs = hold_jobs(self.box)

    def test_group_commit(self) -> None:
        """The appends of one turn share a sync."""
        waits = []
        for _ in range(5):
            (record,) = self.box.append(message())
            waits.append(self.box.store.flush.flushed(record.next_offset))
        self.assertEqual(len(self.jobs), 1)
        for _ in range(2):
            job, done = self.jobs.pop(0)
            job()
            done.callback(None)
        for wait in waits:
            assert wait is not None
            self.successResultOf(wait)
        log = self.box.store.commit_log
        self.assertEqual(log.flushed_offset, log.max_offset)
        self.assertIsNone(self.box.store.flush.flushed(self.box.store.commit_log.max_offset))

    def test_failed_sync_ends_writing(self) -> None:
        """Waits fail, appends are refused, reads continue, and the mark of a crash remains."""
        (record,) = self.box.append(message(body=b"a"))
        wait = self.box.store.flush.flushed(record.next_offset)
        assert wait is not None
        self.jobs.pop()[1].errback(OSError(5, "input/output error"))
        self.failureResultOf(wait, StoreError)
        self.assertRaises(StoreError, self.box.store.append, [message()])
        self.assertEqual(self.box.bodies(), [b"a"])
        self.successResultOf(self.box.store.stop())
        self.assertTrue(self.disk.exists("/store/abort"))
        self.flushLoggedErrors(OSError)

    def test_async_flush_by_steps(self) -> None:
        """Flushes follow after half a second with four pages, and after ten seconds."""
        self.box.append(message(body=bytes(20_000)))
        self.box.step(500)
        self.assertEqual(len(self.jobs), 1)


class LifeTests(SynchronousTestCase):
    """The methods load, start and stop."""

    def test_the_abort_file_is_there_while_the_store_runs(self) -> None:
        """The abort file exists while the store runs; lock and checkpoint remain."""
        box = StoreBox().open()
        self.assertEqual(box.disk.read_file("/store/abort"), b"4711")
        box.append(message())
        self.successResultOf(box.store.stop())
        self.assertFalse(box.disk.exists("/store/abort"))
        self.assertEqual(box.disk.read_file("/store/lock"), b"lock")
        self.assertEqual(box.disk.file_size("/store/checkpoint"), 4096)

    def test_a_second_store_is_refused_and_disturbs_nothing(self) -> None:
        """A second store is refused and does not affect the first one."""
        box = StoreBox().open()
        box.append(message(body=b"a"))
        other = StoreBox(box.disk)
        error = self.assertRaises(StoreError, other.store.load)
        self.assertIn("/store/lock", str(error))
        box.append(message(body=b"b"))
        self.assertEqual(box.after_stop().bodies(), [b"a", b"b"])

    def test_damaged_file_gives_the_lock_back(self) -> None:
        """The error names the file; once it is repaired the store opens."""
        box = StoreBox().open()
        box.append(message(body=b"a"))
        self.successResultOf(box.store.stop())
        path = "/store/commitlog/00000000000000000000"
        good = box.disk.read_file(path)
        box.disk.write_file(path, good[:100])
        error = self.assertRaises(StoreDamaged, box._again().open)
        self.assertIn(path, str(error))
        box.disk.write_file(path, good)
        self.assertEqual(box._again().open().bodies(), [b"a"])

    def test_stop_with_a_full_disk(self) -> None:
        """Nothing is lost, because the next start recovers as after a crash."""
        disk = FaultyDisk()
        box = StoreBox(disk).open()
        box.append(message(body=b"a"))
        disk.room_bytes = 0
        self.successResultOf(box.store.stop())
        self.assertTrue(disk.exists("/store/abort"))
        disk.room_bytes = None
        self.assertEqual(box._again().open().bodies(), [b"a"])

    def test_stop_waits_for_threads(self) -> None:
        """The log is flushed before the stop ends."""
        box = StoreBox().open()
        jobs = hold_jobs(box)
        box.append(message(keys="k"))
        stopped = box.store.stop()
        count = 0
        while jobs:
            self.assertNoResult(stopped)
            job, done = jobs.pop()
            job()
            done.callback(None)
            count += 1
        self.successResultOf(stopped)
        self.assertGreaterEqual(count, 4)

    def test_stop_without_start(self) -> None:
        """A store that was only loaded leaves the marks as they were."""
        box = StoreBox()
        box.store.load()
        self.successResultOf(box.store.stop())
        self.assertFalse(box.disk.exists("/store/abort"))
        StoreBox(box.disk).open()

    def test_config_files(self) -> None:
        """The files are in the config directory, by name."""
        box = StoreBox().open()
        box.store.config_file("topics.json").save("{}")
        self.assertEqual(box.disk.read_file("/store/config/topics.json"), b"{}")

    def test_unwritable_directory(self) -> None:
        """The error names the directory."""
        box = StoreBox(RealDisk(), StoreSettings("/proc/store"))
        error = self.assertRaises(StoreError, box.store.load)
        self.assertIn("/proc/store", str(error))


class QueuesTests(SynchronousTestCase):
    """Many queues, and deleted topics."""

    def test_a_thousand_queues(self) -> None:
        """All are found again after a stop and after a kill."""
        box = StoreBox(mapped_file_size_commit_log=1 << 20).open()
        for body in (b"a", b"b"):
            box.append(*[
                message(f"T{number}", body, queue_id) for number in range(250)
                for queue_id in range(4)
            ])
            box.step(30_000, 8)
        for again in (StoreBox.after_kill, StoreBox.after_stop):
            box = again(box)
            queues = box.store.queues.ids_by_topic()
            self.assertEqual(len(queues), 250)
            self.assertEqual(queues["T7"], [0, 1, 2, 3])
            for number in range(0, 250, 17):
                self.assertEqual(box.bodies(f"T{number}", number % 4), [b"a", b"b"])

    def test_delete_topic(self) -> None:
        """Its queues are deleted; its messages are still found by position and key."""
        box = StoreBox().open()
        box.append(message(body=b"a", keys="k"), message("Other"))
        box.step(60_000)
        self.assertEqual(box.store.delete_topic("TopicTest"), 1)
        self.assertEqual(box.store.delete_topic("TopicTest"), 0)
        self.assertEqual(box.store.queues.ids_by_topic(), {"Other": [0]})
        self.assertEqual(box.bodies(), [])
        self.assertEqual(len(box.store.reader.query("TopicTest", "k", 1, 0, 2**62)[0]), 1)
        (record,) = box.append(message(body=b"b"))
        self.assertEqual(record.queue_offset, 0)
        self.assertEqual(box.after_stop().bodies(), [b"b"])

    def test_entries_as_they_are(self) -> None:
        """Entries are returned unchanged, up to the requested number, within the queue."""
        box = StoreBox().open()
        records = box.append(*(message(body=bytes(size), tag="t") for size in (1, 2, 3)))
        expected = [(record.physical_offset, record.next_offset - record.physical_offset,
                     ord("t")) for record in records]
        entries = box.store.queues.entries
        self.assertEqual(entries("TopicTest", 0, 0, 9), expected)
        self.assertEqual(entries("TopicTest", 0, 1, 1), expected[1:2])
        for offset in (-1, 3, 2**40):
            self.assertEqual(entries("TopicTest", 0, offset, 9), [], msg=str(offset))
        self.assertEqual(entries("TopicTest", 1, 0, 9), [])
        self.assertEqual(entries("nothing", 0, 0, 9), [])

    def test_offsets_of_unknown_queues(self) -> None:
        """The offset is zero, and no queue is created."""
        store = StoreBox().open().store
        self.assertEqual(store.queues.min_offset("T", 0), 0)
        self.assertEqual(store.queues.max_offset("T", 0), 0)
        self.assertEqual(store.queues.ids_by_topic(), {})


class RealDiskStoreTests(SynchronousTestCase):
    """The same over a real directory, with files of Apache's lengths."""

    def test_life_on_a_real_disk(self) -> None:
        """Append, stop, start, kill, start."""
        root = os.path.abspath(self.mktemp())
        box = StoreBox(RealDisk(), small_settings(root, mapped_file_size_commit_log=5000)).open()
        for number in range(100):
            box.append(message(body=b"%d" % number, keys=f"k{number}", queue_id=number % 3))
        box.step(30_000, 5)
        box = box.after_stop()
        box.append(message(body=b"100", queue_id=1))
        box = box.after_kill()
        self.assertEqual(box.bodies(queue_id=1)[-1], b"100")
        self.assertEqual(len(box.bodies(queue_id=0)), 34)
        records, _, _ = box.store.reader.query("TopicTest", "k77", 9, 0, 2**62)
        self.assertEqual([decode_record(record).body for record in records], [b"77"])
        self.successResultOf(box.store.stop())

    def test_pages_after_the_end_of_the_log_are_forgotten(self) -> None:
        """Recovery has read there. From such pages, the system would read ahead in the hole as the
        file is written and read again.
        """
        root = os.path.abspath(self.mktemp())
        disk = RealDisk()
        box = StoreBox(disk, small_settings(root)).open()
        box.append(message(body=b"x"))
        calls: list[tuple[str, int]] = []
        forget = disk.forget_cached

        def note(path: str, position: int) -> None:
            calls.append((path, position))
            forget(path, position)

        self.patch(disk, "forget_cached", note)
        end = box.store.commit_log.max_offset
        box = box.after_kill()
        self.addCleanup(box.store.close)
        self.assertEqual(calls, [(f"{root}/commitlog/{0:020}", end)])
        self.assertEqual(box.bodies(), [b"x"])
        # The call ignores a file that does not exist.
        forget(f"{root}/missing", 0)

    def test_a_log_with_files_of_another_length_refuses_the_start(self) -> None:
        """The name of each file is its first offset in 20 digits, its length is the setting's."""
        root = os.path.abspath(self.mktemp())
        box = StoreBox(RealDisk(), small_settings(root)).open()
        for _ in range(5):
            box.append(message(body=bytes(30_000)))
        self.successResultOf(box.store.stop())
        folder = Path(root, "commitlog")
        names = ["00000000000000000000", "00000000000000065536", "00000000000000131072"]
        self.assertEqual({each.name: each.stat().st_size for each in folder.iterdir()},
                         dict.fromkeys(names, 65536))
        settings = small_settings(root, mapped_file_size_commit_log=32768)
        error = self.assertRaises(StoreDamaged, StoreBox(RealDisk(), settings).open)
        self.assertIn(f"{names[0]} has 65536 bytes, but the settings require 32768", str(error))
        self.assertEqual(sorted(each.name for each in folder.iterdir()), names)
        with (folder / names[2]).open("ab") as file:
            file.write(b"x")
        error = self.assertRaises(StoreDamaged, StoreBox(RealDisk(), small_settings(root)).open)
        self.assertIn(f"{names[2]} has 65537 bytes, but the settings require 65536", str(error))

    def test_default_lengths(self) -> None:
        """The files of a new store have Apache's lengths and use almost no room."""
        root = os.path.abspath(self.mktemp())
        box = StoreBox(RealDisk(), StoreSettings(root)).open()
        box.append(message(keys="k"))
        box = box.after_stop()
        sizes = {}
        for directory, _, names in os.walk(root):
            for name in names:
                stat = os.stat(os.path.join(directory, name))
                sizes[os.path.relpath(directory, root)] = stat.st_size
                self.assertLess(stat.st_blocks * 512, 1 << 20)
        self.assertEqual(sizes["commitlog"], 1 << 30)
        self.assertEqual(sizes["consumequeue/TopicTest/0"], 6_000_000)
        self.assertEqual(sizes["index"], 420_000_040)
        self.successResultOf(box.store.stop())
