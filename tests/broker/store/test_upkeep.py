"""The periodic work of a running store."""

import errno
from collections.abc import Callable

from twisted.internet.defer import Deferred, execute
from twisted.logger import LogEvent, Logger, LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store import index_files, upkeep
from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.checkpoint_file import CheckpointFile
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.record import decode_record

#: The queue's file.
FILE = "/store/consumequeue/TopicTest/0/00000000000000000000"


class UpkeepTests(SynchronousTestCase):
    """The class Upkeep in a store with a clock of the test."""

    def setUp(self) -> None:
        """Create a store on a disk that can fail."""
        self.disk = FaultyDisk()
        self.box = StoreBox(self.disk).open()

    def checkpoint(self) -> Checkpoint:
        """Return the content of the checkpoint file."""
        return Checkpoint.decode(self.disk.read_file("/store/checkpoint"), "")

    def topics(self) -> list[str]:
        """Return the topics whose queues have files."""
        return self.disk.list_directory("/store/consumequeue")

    def test_long_tails_are_written_each_second(self) -> None:
        """Two pages of entries are written each second; fewer entries wait for a minute."""
        self.box.append(*[message("Many") for _ in range(410)], message("Few"))
        self.box.step(999)
        self.assertEqual(self.topics(), [])
        self.box.step(1)
        self.assertEqual(self.topics(), ["Many"])
        self.box.step(1000, 58)
        self.assertEqual(self.topics(), ["Many"])
        self.box.step(1000)
        self.assertEqual(self.topics(), ["Few", "Many"])

    def test_many_entries_in_all_are_written_at_once(self) -> None:
        """However few each queue has: memory is bounded."""
        self.box.append(message("A"), message("B"))
        self.box.store.queues.tail_bytes += 4 << 20
        self.box.step(1)
        self.assertEqual(self.topics(), ["A", "B"])

    def test_many_tails_take_several_steps(self) -> None:
        """A thousand queues are not written in one step."""
        self.box.append(*[message(f"T{number}") for number in range(1000)])
        self.box.step(60_000)
        self.assertLess(len(self.topics()), 1000)
        self.box.step(0, 10)
        self.assertEqual(len(self.topics()), 1000)

    def test_steps_are_longer_while_much_waits(self) -> None:
        """Otherwise messages would be refused at last, because entries arrive faster."""
        self.box.append(*[message(f"T{number}") for number in range(1000)])
        self.box.store.queues.tail_bytes += 32 << 20
        self.box.step(1)
        self.assertEqual(len(self.topics()), 1000)

    def test_a_step_ends_when_its_time_is_over(self) -> None:
        """On this disk each write takes a millisecond."""
        self.box.append(*[message(f"T{number}") for number in range(100)])
        self.disk.before_write = self.slow_write  # type: ignore[method-assign]
        self.box.step(60_000)
        self.assertLess(len(self.topics()), 20)
        self.box.step(0, 20)
        self.assertEqual(len(self.topics()), 100)

    def slow_write(self, path: str, size: int) -> int:
        """Let a millisecond pass."""
        self.box.now_ms += 1
        return size

    def test_what_recovery_entered_is_synced_at_once(self) -> None:
        """A broker that is killed every few seconds does not enter the same again each time."""
        self.box.append(message(keys="k"))
        stored_ms = self.box.now_ms
        self.box = self.box.after_kill()
        self.assertFalse(self.disk.exists("/store/checkpoint"))
        self.box.step(50, 21)
        found = self.checkpoint()
        self.assertEqual(
            (found.physic_msg_timestamp, found.logics_msg_timestamp, found.index_msg_timestamp),
            (stored_ms, stored_ms, stored_ms))
        self.assertEqual(self.topics(), ["TopicTest"])
        self.box = self.box.after_kill()
        self.assertEqual(self.box.store.queues.tail_bytes, 0, "nothing is entered again")

    def test_queues_are_synced_each_minute(self) -> None:
        """The checkpoint then has the time of the newest message."""
        self.box.append(message())
        stored_ms = self.box.now_ms
        self.box.step(1000, 59)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, 0)
        self.box.step(1000, 2)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, stored_ms)

    def test_checkpoint_follows_the_log(self) -> None:
        """The flush of the log is recorded at most a second later."""
        self.box.append(message(body=bytes(30_000)))
        stored_ms = self.box.now_ms
        self.box.step(1000, 2)
        log = self.box.store.commit_log
        self.assertEqual(log.flushed_offset, log.max_offset)
        self.assertEqual(self.checkpoint().physic_msg_timestamp, stored_ms)

    def test_all_values_are_there_after_a_stop_and_a_start(self) -> None:
        """A stop makes all data durable, and a start reads these values from the file."""
        for has_index in (True, False):
            self.setUp()
            self.box = self.box.after_stop(message_index_enable=has_index)
            self.box.append(message(keys="k"))
            self.box.store.checkpoint.values.master_flushed_offset = 7
            stored_ms, end = self.box.now_ms, self.box.store.commit_log.max_offset
            expected = Checkpoint(stored_ms, stored_ms, stored_ms if has_index else 0, 7, end)
            self.box = self.box.after_stop()
            self.assertEqual(self.checkpoint(), expected)
            self.assertEqual(self.box.store.checkpoint.values, expected)

    def test_queues_are_synced_when_much_came(self) -> None:
        """A start after a crash then reads less; not with too many files."""
        self.patch(upkeep, "QUEUE_SYNC_LOG_BYTES", 10_000)
        self.box.append(message(body=bytes(10_000)))
        first_ms = self.box.now_ms
        self.box.step(3999)
        self.box.step(0, 3)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, 0)
        self.box.step(1, 3)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, first_ms)
        self.box.append(message(body=bytes(9_000)))
        self.box.step(4000, 3)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, first_ms)
        self.box.append(*[message(f"T{number}") for number in range(65)])
        self.box.step(4000, 3)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, first_ms)

    def test_index_is_durable_after_a_round(self) -> None:
        """The checkpoint is never ahead of the disk."""
        self.box.append(message(keys="k"))
        stored_ms = self.box.now_ms
        self.box.step(1000, 9)
        self.assertEqual(self.checkpoint().index_msg_timestamp, 0)
        self.box.step(1000, 8)
        self.assertEqual(self.checkpoint().index_msg_timestamp, stored_ms)

    def test_many_items_of_the_index_do_not_wait(self) -> None:
        """The data to index again after a crash is limited, however fast messages arrive."""
        self.patch(upkeep, "INDEX_FLUSH_BYTES", 20 * 100)
        for count, is_durable in ((99, False), (1, True)):
            self.box.append(*[message(keys="k") for _ in range(count)])
            stored_ms = self.box.now_ms
            self.box.step(1000)
            self.box.step(0, 20)
            newest_ms = self.checkpoint().index_msg_timestamp
            self.assertEqual(newest_ms, stored_ms if is_durable else 0)

    def test_full_disk_is_waited_for(self) -> None:
        """Queues stay readable, and are written when there is room again."""
        self.box.append(*[message(body=b"%d" % n) for n in range(5)])
        self.disk.room_bytes = 0
        self.box.step(30_000, 5)
        self.assertEqual(len(self.box.bodies()), 5)
        self.disk.room_bytes = None
        self.box.step(60_000, 2)
        self.assertEqual(self.topics(), ["TopicTest"])
        self.flushLoggedErrors()
        self.assertEqual(len(self.box.after_kill().bodies()), 5)

    def test_checkpoint_on_a_full_disk(self) -> None:
        """One line is logged, once, and the checkpoint is written when there is room."""
        events: list[LogEvent] = []
        self.patch(upkeep.Upkeep, "log", Logger(observer=events.append))
        self.box.append(message(body=bytes(30_000)))
        stored_ms = self.box.now_ms
        self.disk.room_bytes = 0
        self.box.step(1000, 4)
        self.assertEqual([event["log_level"] for event in events], [LogLevel.error])
        self.assertIn("the disk is full", str(events[0]["error"]))
        self.disk.room_bytes = None
        self.box.step(1000, 2)
        self.assertEqual(self.checkpoint().physic_msg_timestamp, stored_ms)

    def test_round_of_the_index_meets_a_full_disk(self) -> None:
        """The checkpoint of the round fails: one line is logged, and it is flushed later."""
        self.box.append(message(keys="k"))
        stored_ms = self.box.now_ms
        self.disk.before_write = (  # type: ignore[method-assign]
            lambda path, size: 0 if path.startswith("/store/checkpoint") else size)
        errors, done = self.said()
        self.box.step(100, 500)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn("the disk is full: /store/checkpoint", errors[0])
        del self.disk.before_write
        self.box.step(100, 150)
        self.assertEqual(self.checkpoint().index_msg_timestamp, stored_ms)
        index = self.box.store.index
        assert index is not None
        self.assertTrue(index.is_flushed)
        self.assertEqual(sorted(done), ["the checkpoint", "the index"])
        self.assertEqual(len(errors), 1, errors)

    def test_stop_where_the_checkpoint_cannot_be_written(self) -> None:
        """It ends and leaves the mark of a crash; the next stop tries again."""
        self.box.append(message(keys="k"))
        self.disk.before_write = (  # type: ignore[method-assign]
            lambda path, size: 0 if path.startswith("/store/checkpoint") else size)
        errors, _ = self.said()
        self.box.step(100, 200)
        self.assertTrue(self.box.store.stop().called)
        self.assertIn("the disk is full: /store/checkpoint", errors[-1])
        self.assertTrue(self.disk.exists("/store/abort"))

    def test_index_that_cannot_be_synced(self) -> None:
        """Data beyond the memory limit is dropped; the stop is not clean, and a start adds it.

        Whichever sync of a round it is: also the last, behind which all counts as flushed.
        """
        self.patch(index_files, "INDEX_LOST_BYTES_MAX", 1000)
        for nth in range(1, 6):
            self.disk = FaultyDisk()
            self.box = StoreBox(self.disk).open()
            index = self.box.store.index
            assert index is not None
            self.box.append(message(body=b"0", keys="k"))
            self.box.step(100, 5)
            sync = self.disk.before_sync
            self.disk.before_sync = self.fails_at(nth)  # type: ignore[method-assign]
            self.box.step(100, 110)
            self.disk.before_sync = sync  # type: ignore[method-assign]
            self.assertEqual(index.lost, nth < 5, msg=nth)
            self.assertEqual(len(self.flushLoggedErrors(OSError)), nth < 5)
            for number in range(1, 100):
                self.box.append(message(body=b"%d" % number, keys="k"))
            if index.lost:
                self.assertEqual(index.waiting_bytes, 1000)
            self.successResultOf(self.box.store.stop())
            self.assertEqual(bool(self.box.store.stop_fault), nth < 5)
            self.box = self.box._again().open()
            found, _, _ = self.box.store.reader.query("TopicTest", "k", 999, 0, 2**62)
            self.assertEqual(len(found), 64, "as many as one answer has")
            self.assertIn(b"99", [decode_record(each).body for each in found])

    def fails_at(self, nth: int) -> Callable[[str], None]:
        """Syncs of the index's files, of which one fails."""
        left = nth

        def before_sync(path: str) -> None:
            nonlocal left
            if path.startswith("/store/index/"):
                left -= 1
                if left == 0:
                    raise OSError(errno.EIO, "input/output error", path)

        return before_sync

    def test_full_disk_is_said_once(self) -> None:
        """Though queues and index are tried again each second and each ten seconds."""
        self.box.append(*[message(keys="k") for _ in range(410)])
        self.disk.before_write = (  # type: ignore[method-assign]
            lambda path, size: size if "commitlog" in path else 0)
        errors, done = self.said()
        self.box.step(100, 600)
        self.assertEqual(len(errors), len(set(errors)), errors)
        self.assertLessEqual(len(errors), 3, errors)
        del self.disk.before_write
        self.box.step(100, 600)
        self.assertEqual(sorted(done), ["consume queues", "the checkpoint", "the index"])
        self.assertEqual(self.topics(), ["TopicTest"])

    def said(self) -> tuple[list[str], list[str]]:
        """Watch the log; :returns: the errors and the rewritten parts, as they occur."""
        errors: list[str] = []
        done: list[str] = []

        def observe(event: LogEvent) -> None:
            if event["log_level"] >= LogLevel.error:
                errors.append(formatEvent(event))
            elif (event["log_format"] or "").endswith("can be written again"):
                done.append(event["part"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return errors, done

    def failed(self) -> list[str]:
        """Let the sync of queues fail once; :returns: the log lines from then on."""
        said: list[str] = []

        def observe(event: LogEvent) -> None:
            if event["log_level"] is LogLevel.error or (
                    "rewritten" in (event["log_format"] or "")):
                said.append(event["log_format"].split(":")[0])

        self.box.append(message())
        self.box.step(1000)
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.disk.fail_sync_in = 1
        self.box.step(60_000)
        self.box.step(0, 2)
        self.disk.fail_sync_in = None
        self.flushLoggedErrors(OSError)
        self.assertEqual(self.box.store.upkeep.synced_offset, 0)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, 0)
        said[:] = [text for text in said if "entries" in text]
        return said

    def test_entries_are_written_again(self) -> None:
        """Entries of a failed sync do not count as durable until they are written again."""
        rewritten: list[str] = []
        rewrite = self.disk.rewrite

        def note(path: str) -> None:
            rewritten.append(path)
            rewrite(path)

        self.patch(self.disk, "rewrite", note)
        said = self.failed()
        self.assertEqual(rewritten, [])
        self.box.append(message())
        self.box.step(60_000, 2)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, self.box.now_ms - 120_000)
        self.assertIn(FILE, rewritten)
        self.assertEqual(self.box.store.upkeep.synced_offset, self.box.store.commit_log.max_offset)
        self.assertEqual(said, ["consume-queue entries may not have reached the disk",
                                "consume-queue entries were rewritten and are on disk"])
        self.successResultOf(self.box.store.stop())
        self.assertFalse(self.disk.exists("/store/abort"))

    def test_entries_that_are_gone(self) -> None:
        """They are not written again; the next start makes them."""
        said = self.failed()
        self.disk.open_file(FILE).write_at(0, bytes(8) + b"x")
        self.box.step(60_000, 4)
        self.assertEqual(self.checkpoint().logics_msg_timestamp, 0)
        self.assertEqual(said, ["consume-queue entries may not have reached the disk",
                                "consume-queue entries cannot be rewritten"])
        self.successResultOf(self.box.store.stop())
        self.assertTrue(self.disk.exists("/store/abort"))
        self.assertEqual(len(self.box._again().open().bodies()), 1)

    def test_entries_written_while_a_sync_fails(self) -> None:
        """They are compared too, because they may belong to the failed sync."""
        self.box.append(message())
        held: list[Callable[[], None]] = []

        def hold(job: Callable[[], None]) -> Deferred[None]:
            done: Deferred[None] = Deferred()
            held.append(lambda: execute(job).chainDeferred(done))
            return done

        self.box.in_thread = hold
        while not held or self.box.store.queues.tail_bytes:
            self.box.step(60_000)
        self.box.append(message())
        self.box.store.queues.write_all()
        self.disk.fail_sync_in = 1
        for job in held:
            job()
        self.disk.fail_sync_in = None
        self.box.in_thread = execute
        self.assertTrue(self.box.store.upkeep._lost_paths)
        self.disk.open_file(FILE).write_at(20, bytes(20))
        self.box.step(60_000, 2)
        self.assertTrue(self.box.store.upkeep._needs_restart)
        self.flushLoggedErrors(OSError, StoreError)

    def test_written_again_in_vain(self) -> None:
        """It is tried again each minute."""
        self.failed()
        for name in ("fail_write_in", "fail_sync_in"):
            setattr(self.disk, name, 1)
            self.box.step(60_000, 2)
            setattr(self.disk, name, None)
            self.flushLoggedErrors(OSError)
            self.assertEqual(self.checkpoint().logics_msg_timestamp, 0, msg=name)
        self.box.step(60_000, 2)
        self.assertGreater(self.checkpoint().logics_msg_timestamp, 0)

    def test_much_is_compared_in_many_steps(self) -> None:
        """The reactor runs between the steps."""
        self.box.append(*[message("T", bytes(9000), queue_id=number % 3) for number in range(300)])
        self.failed()
        # Each look at the clock finds the time of a step over.
        self.box.store.upkeep._now_ms = lambda: self.box.now_ms + 1000
        steps = 0
        while not self.box.store.upkeep.synced_offset:
            steps += 1
            self.assertLess(steps, 100)
            self.box.step(60_000 if steps == 1 else 0)
        self.assertGreater(steps, 8)


class CheckpointFileTests(SynchronousTestCase):
    """The class CheckpointFile."""

    def setUp(self) -> None:
        """Create a disk, and a thread of the test."""
        self.disk = MemoryDisk()
        self.disk.make_directory("/store")
        self.jobs: list[tuple[Callable[[], None], Deferred[None]]] = []
        self.file = CheckpointFile(self.disk, "/store/checkpoint", self.in_thread)

    def in_thread(self, job: Callable[[], None]) -> Deferred[None]:
        """Keep a job until it is run."""
        done: Deferred[None] = Deferred()
        self.jobs.append((job, done))
        return done

    def run_job(self) -> None:
        """Run the oldest job."""
        job, done = self.jobs.pop(0)
        job()
        done.callback(None)

    def test_a_lowered_checkpoint_stays_low(self) -> None:
        """Earlier values are not written; notes from before the position stay low."""
        self.file.log_is_durable(10_000, 50)
        self.file.queues_are_durable(9000, 40)
        self.file.index_is_durable(8000, 30)
        saved = self.file.save()
        self.file.lower(5000, 60)
        self.run_job()
        self.successResultOf(saved)
        stored = Checkpoint.decode(self.disk.read_file("/store/checkpoint"), "")
        self.assertEqual(stored, Checkpoint(4999, 4999, 4999))
        self.file.log_is_durable(10_000, 60)
        self.file.queues_are_durable(10_000, 60)
        self.file.index_is_durable(10_000, 60)
        self.assertEqual(self.file.values, stored)
        self.file.log_is_durable(5003, 61)
        self.file.queues_are_durable(5002, 61)
        self.file.index_is_durable(5001, 61)
        self.assertEqual(self.file.values, Checkpoint(5003, 5002, 5001))

    def test_lowered_again(self) -> None:
        """The times of the lower of two positions count."""
        self.file.lower(5000, 60)
        self.file.lower(7000, 80)
        self.file.log_is_durable(10_000, 60)
        self.assertEqual(self.file.values.physic_msg_timestamp, 4999)
        self.file.log_is_durable(10_000, 81)
        self.assertEqual(self.file.values.physic_msg_timestamp, 10_000)

    def test_writes_one_at_a_time(self) -> None:
        """A save waits for values at least as new as its own; equal values are not written."""
        self.file.values.physic_msg_timestamp = 1
        first = self.file.save()
        self.file.values.physic_msg_timestamp = 2
        second, third = self.file.save(), self.file.save()
        self.assertEqual(len(self.jobs), 1)
        self.run_job()
        self.successResultOf(first)
        self.assertNoResult(second)
        self.run_job()
        self.successResultOf(second)
        self.successResultOf(third)
        self.assertEqual(self.jobs, [])
        again = CheckpointFile(self.disk, "/store/checkpoint", self.in_thread)
        again.load()
        self.assertEqual(again.values.physic_msg_timestamp, 2)

    def test_loads_nothing(self) -> None:
        """A new store has no checkpoint."""
        self.file.load()
        self.assertEqual(self.file.values, Checkpoint())

    def test_the_error_names_the_file(self) -> None:
        """The error names the file."""
        self.disk.write_file("/store/checkpoint", b"\xff" * 4096)
        error = self.assertRaises(StoreDamaged, self.file.load)
        self.assertIn("/store/checkpoint", str(error))
