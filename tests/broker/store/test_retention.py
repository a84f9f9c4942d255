"""The removal of old files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.get_message import GetMessageStatus
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.retention import (
    MANUAL_ROUNDS,
    CommitLogRetention,
    QueueRetention,
)
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.record import MessageRecord, decode_record

HOUR_MS = 3_600_000
#: Two of them fill a file of the log.
BODY = bytes(30_000)


class RetentionBox(StoreBox):
    """A store whose retention the test runs."""

    def hour(self, later: int = 0) -> str:
        """Return the current hour, or that of a later time."""
        return f"{datetime.fromtimestamp((self.now_ms + later * HOUR_MS) / 1000).hour:02d}"

    def fill(self, files: int, topic: str = "TopicTest", **fields: Any) -> None:
        """Store messages that fill so many files of the log and begin another, on disk."""
        for number in range(2 * files + 1):
            body = number.to_bytes(2, "big") + BODY
            self.append(message(topic, body, **fields))
        self.step(60_000, 2)

    def set(self, **changes: Any) -> None:
        """Change settings while the store runs."""
        self.settings = dataclasses.replace(self.settings, **changes)
        self.store.log_retention.settings = self.settings
        self.store.queue_retention.settings = self.settings

    def clean_log(self) -> int:
        """Let one round of the log's retention pass; :returns: the steps it took."""
        return self._clean(self.store.log_retention)

    def clean_queues(self) -> int:
        """Let queues and index follow; :returns: the steps it took."""
        return self._clean(self.store.queue_retention)

    def _clean(self, retention: CommitLogRetention | QueueRetention) -> int:
        retention.step(self.now_ms)
        steps = 1
        while retention.period_ms() < self.settings.clean_resource_interval:
            self.now_ms += retention.period_ms()
            retention.step(self.now_ms)
            steps += 1
        return steps

    def log_files(self) -> list[int]:
        """Return the numbers of the log's files on disk."""
        size = self.settings.mapped_file_size_commit_log
        return [int(name) // size
                for name in self.disk.list_directory(self.settings.commit_log_path)]


class RetentionCase(SynchronousTestCase):
    """A store with four full log files and a fifth one, in an hour without removals."""

    files = 4

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = RetentionBox(self.disk).open()
        self.box.set(delete_when=self.box.hour(12))
        self.box.fill(self.files)
        self.assertEqual(self.box.log_files(), list(range(self.files + 1)))

    def expire(self) -> None:
        """Let the files grow old, to the same hour of another day."""
        self.box.now_ms += 72 * HOUR_MS


class ReasonsTests(RetentionCase):
    """The reasons for a removal."""

    def test_at_the_hour(self) -> None:
        """Expired files are deleted at the configured hours only; the newest remains."""
        self.expire()
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [0, 1, 2, 3, 4])
        self.box.set(delete_when=f"{self.box.hour(5)};{self.box.hour()}")
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [4])
        self.assertEqual(self.box.store.commit_log.min_offset, 4 * 65536)

    def test_young_files_stay(self) -> None:
        """The age counts from the last write; an old file after a young one remains, too."""
        self.box.now_ms += 71 * HOUR_MS
        self.box.set(delete_when=self.box.hour())
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [0, 1, 2, 3, 4])
        self.box.now_ms += HOUR_MS
        second = segment_path("/store/commitlog", 65536)
        self.disk.open_file(second).write_at(0, self.disk.read_file(second)[:1])
        self.box.set(delete_when=self.box.hour())
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [1, 2, 3, 4])

    def test_disk_use_decides_which_files_are_removed(self) -> None:
        """The use of the disk decides about young files, old files and new messages."""
        for ratio, expired, files_left, refused in (
            (0.75, True, 5, False),
            (0.751, False, 5, False),
            (0.751, True, 1, False),
            (0.85, False, 5, False),
            (0.851, False, 1, False),
            (0.90, False, 1, False),
            (0.901, False, 1, True),
            (-1.0, True, 1, False),
        ):
            case = f"{ratio} {expired}"
            self.setUp()
            if expired:
                self.expire()
            self.disk.used_ratio = ratio
            self.box.clean_log()
            self.assertEqual(len(self.box.log_files()), files_left, msg=case)
            self.assertEqual(self.box.store.log_retention.disk_full, refused, msg=case)

    def test_refuses_until_the_disk_is_well_below(self) -> None:
        """Messages are refused from the upper threshold down to the middle one; reads continue."""
        for ratio, refused in ((0.91, True), (0.86, True), (0.85, False), (0.86, False)):
            self.disk.used_ratio = ratio
            self.box.clean_log()
            if refused:
                self.assertRaises(StoreFull, self.box.append, message())
                self.assertEqual(len(self.box.bodies()[-1]), len(BODY) + 2)
            else:
                self.box.append(message(body=b"again"))
                self.assertEqual(self.box.bodies()[-1], b"again")

    def test_each_disk_counts(self) -> None:
        """Queues may be on another disk than the log: the fuller one decides."""
        for log, queues, files_left, refused in (
            (0.1, 0.91, 1, True), (0.91, 0.1, 1, True), (0.1, 0.86, 1, False),
            (0.86, 0.1, 1, False), (0.1, 0.76, 5, False), (0.1, 0.1, 5, False),
        ):
            case = f"{log} {queues}"
            self.setUp()
            ratios = {"/store/commitlog": log, "/store": queues}
            self.patch(self.disk, "disk_used_ratio", ratios.__getitem__)
            self.box.clean_log()
            self.assertEqual(len(self.box.log_files()), files_left, msg=case)
            self.assertEqual(self.box.store.log_retention.disk_full, refused, msg=case)

    def test_without_forced_cleaning_only_expired_files_go(self) -> None:
        """With cleanFileForciblyEnable false only expired files go, messages are refused."""
        self.box.set(clean_file_forcibly_enable=False)
        self.disk.used_ratio = 0.95
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [0, 1, 2, 3, 4])
        self.assertRaises(StoreFull, self.box.append, message())
        self.expire()
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [4])

    def test_on_request(self) -> None:
        """An administrator's request holds for 20 rounds, for expired files."""
        self.box.store.log_retention.remove_expired()
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [0, 1, 2, 3, 4])
        self.expire()
        modified_ms = self.disk.modified_ms
        self.patch(self.disk, "modified_ms", lambda path: self.box.now_ms)
        for _ in range(MANUAL_ROUNDS - 2):
            self.box.clean_log()
        self.patch(self.disk, "modified_ms", modified_ms)
        self.box.set(delete_file_batch_max=1)
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [1, 2, 3, 4])
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [1, 2, 3, 4])


class PaceTests(RetentionCase):
    """The speed of the removal."""

    files = 14

    def test_one_a_step(self) -> None:
        """One file is deleted per step, every 100 ms, ten per round, with 10 s between rounds."""
        retention = self.box.store.log_retention
        self.expire()
        self.disk.used_ratio = 0.8
        self.assertEqual(retention.period_ms(), 10_000)
        for number in range(1, 10):
            retention.step(self.box.now_ms)
            self.assertEqual((len(self.box.log_files()), retention.period_ms()),
                             (15 - number, 100))
        retention.step(self.box.now_ms)
        self.assertEqual((len(self.box.log_files()), retention.period_ms()), (5, 10_000))
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [14])

    def test_large_files_go_on_a_thread(self) -> None:
        """A file is unreadable at once; a thread closes and deletes it."""
        jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

        def later(job: Callable[[], None]) -> Deferred[None]:
            jobs.append((job, Deferred()))
            return jobs[-1][1]

        self.box.in_thread = later
        self.disk.used_ratio = 0.86
        waiting = self.box.store.log_retention.step(self.box.now_ms)
        assert waiting is not None
        self.assertEqual(self.box.store.commit_log.min_offset, 65536)
        self.assertEqual(len(self.box.log_files()), 15)
        self.assertIs(self.box.store.look_message(0), None)
        job, done = jobs.pop()
        synced = self.disk.sync_count
        execute(job).chainDeferred(done)
        self.assertEqual((len(self.box.log_files()), self.disk.sync_count), (14, synced + 1))
        self.assertIs(self.successResultOf(waiting), None)


class CareTests(RetentionCase):
    """Files that remain although there is a reason to delete them."""

    def setUp(self) -> None:
        super().setUp()
        self.disk.used_ratio = 0.86

    def test_a_file_is_kept_while_it_is_not_on_disk(self) -> None:
        """A file is kept while it is not on disk."""
        self.box.fill(2)
        self.box.store.commit_log.flushed_offset = 3 * 65536 + 1
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [3, 4, 5, 6])

    def test_a_file_is_kept_while_messages_of_it_wait_for_replicas(self) -> None:
        """A file is kept while messages of it wait for replicas."""
        self.box.store.dispatch.advance_confirm_offset(0)
        self.box.fill(3)
        self.box.clean_log()
        self.assertEqual(self.box.log_files()[0], 4)
        self.assertGreater(len(self.box.log_files()), 3)
        self.box.store.dispatch.advance_confirm_offset(self.box.store.commit_log.max_offset)
        while self.box.store.dispatch.behind_bytes:
            self.box.step(50)
        self.box.step(60_000, 2)
        self.box.clean_log()
        self.assertEqual(len(self.box.log_files()), 1)

    def test_entries_in_memory(self) -> None:
        """Otherwise the offsets of a queue could begin again."""
        self.box.clean_log()
        self.box.append(message("New"))
        for _ in range(3):
            self.box.append(*[message(body=BODY) for _ in range(2)])
        self.box.step(10_000)
        log = self.box.store.commit_log
        self.assertEqual(log.flushed_offset, log.max_offset)
        self.box.clean_log()
        again = self.box.after_kill()
        self.assertEqual(len(again.bodies("New")), 1)
        (next_one,) = again.append(message("New"))
        self.assertEqual(next_one.queue_offset, 1)
        again.step(60_000, 2)
        again.clean_log()
        again.clean_queues()
        self.assertEqual(again.log_files(), [7])
        self.assertEqual(again.after_kill().store.queues.max_offset("New", 0), 2)

    def test_one_that_cannot_be_removed(self) -> None:
        """No later file is deleted, so there is never a gap; it is tried again."""
        remove, tried = self.disk.remove, list[str]()

        def failing(path: str) -> None:
            tried.append(path)
            raise PermissionError(1, "not permitted", path)

        self.patch(self.disk, "remove", failing)
        for _ in range(3):
            self.box.clean_log()
        first = segment_path("/store/commitlog", 0)
        self.assertEqual(tried, [first])
        self.assertEqual(self.box.store.commit_log.min_offset, 65536)
        self.box.now_ms += 120_000
        self.box.clean_log()
        self.assertEqual(tried, [first, first])
        self.patch(self.disk, "remove", remove)
        self.box.now_ms += 120_000
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [1, 2, 3, 4])
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [4])

    def test_one_that_is_gone(self) -> None:
        """A file that another program has deleted does not block the others."""
        self.disk.used_ratio = 0.8
        self.expire()
        self.disk.remove(segment_path("/store/commitlog", 0))
        self.box.clean_log()
        self.assertEqual(self.box.log_files(), [4])

    def test_an_empty_store(self) -> None:
        """An empty store has nothing to delete."""
        box = RetentionBox(self.disk, store_path_root_dir="/other").open()
        self.assertEqual((box.clean_log(), box.clean_queues()), (1, 1))


class ReaderTests(SynchronousTestCase):
    """Readers of the oldest file while it is deleted."""

    def make_disk(self) -> tuple[IStoreIO, str]:
        """Return a disk and the folder of the store on it."""
        return FaultyDisk(), "/store"

    def test_reading_goes_on(self) -> None:
        """Data that was read stays valid; then the reader gets the next offset."""
        disk, root = self.make_disk()
        box = RetentionBox(disk, store_path_root_dir=root).open()
        self.addCleanup(lambda: box.store.close())
        box.fill(3)
        ratio = disk.disk_used_ratio
        self.patch(disk, "disk_used_ratio", lambda path: 0.86)
        store = box.store
        read = store.get_message("TopicTest", 0, 0, 1).messages[0]
        copy = bytes(read)
        box.clean_log()
        self.patch(disk, "disk_used_ratio", ratio)
        self.assertEqual(box.log_files(), [3])
        self.assertEqual(read, copy)
        removing = store.get_message("TopicTest", 0, 0, 1)
        self.assertEqual(removing.status, GetMessageStatus.MESSAGE_WAS_REMOVING)
        box.clean_queues()
        gone = store.get_message("TopicTest", 0, 0, 1)
        self.assertEqual((gone.status, gone.next_begin_offset, gone.min_offset),
                         (GetMessageStatus.OFFSET_TOO_SMALL, 6, 6))
        self.assertEqual(len(store.get_message("TopicTest", 0, 6, 1).messages), 1)
        self.assertEqual(
            store.reader.earliest_store_time(), store.reader.store_time("TopicTest", 0, 6))


class RealReaderTests(ReaderTests):
    """The same on the real disk."""

    def make_disk(self) -> tuple[IStoreIO, str]:
        """Return a folder of the test."""
        return RealDisk(), os.path.abspath(self.mktemp())

    def test_nothing_of_a_removed_file_stays_open(self) -> None:
        """Neither a descriptor nor a map keeps its blocks on the disk."""
        disk, root = self.make_disk()
        box = RetentionBox(disk, store_path_root_dir=root).open()
        self.addCleanup(lambda: box.store.close())
        box.fill(3)
        self.assertEqual(len(box.bodies()), 7)
        self.patch(disk, "disk_used_ratio", lambda path: 0.86)
        box.clean_log()
        with open("/proc/self/maps") as maps:
            kept = [line for line in maps if root in line and "deleted" in line]
        for name in os.listdir("/proc/self/fd"):
            path = f"/proc/self/fd/{name}"
            target = os.readlink(path) if os.path.exists(path) or os.path.islink(path) else ""
            kept += [target] if root in target and "deleted" in target else []
        self.assertEqual(kept, [])


class AnyOrderTests(SynchronousTestCase):
    """Sends, flushes, removals, kills and stops in any order."""

    def test_queues_are_what_the_log_holds(self) -> None:
        """Whatever happens, the messages of the log are read in order, and nothing else."""
        for seed in range(60):
            self.run_seed(seed)

    def run_seed(self, seed: int) -> None:
        """Make 60 steps; a failure names the seed."""
        chance = Random(seed)
        disk = FaultyDisk()
        disk.used_ratio = 0.86
        box = RetentionBox(disk).open()
        stored: dict[str, list[MessageRecord]] = {"A": [], "B": [], "C": []}
        for _ in range(60):
            kind = chance.randrange(10)
            if kind < 5:
                topic = chance.choice("AAAABBC")
                count = chance.randrange(1, 12)
                stored[topic] += box.append(*[
                    message(topic, bytes(chance.randrange(12_000)), keys="k")
                    for _ in range(count)])
            elif kind < 6:
                box.step(chance.choice((500, 10_000, 60_000)), 3)
            elif kind < 8:
                box.set(delete_file_batch_max=chance.randrange(1, 4))
                box.clean_log()
            elif kind < 9:
                box.clean_queues()
            else:
                box = chance.choice((RetentionBox.after_kill, RetentionBox.after_stop))(box)
        box.clean_queues()
        minimum = box.store.commit_log.min_offset
        for topic, records in stored.items():
            left = [each for each in records if each.physical_offset >= minimum]
            low = box.store.queues.min_offset(topic, 0)
            case = f"seed {seed}, {topic}"
            self.assertEqual(box.store.queues.max_offset(topic, 0), len(records), msg=case)
            self.assertEqual(low, len(records) - len(left), msg=case)
            self.assertEqual(box.bodies(topic), [each.body for each in left], msg=case)
        found, _, _ = box.store.reader.query("A", "k", 64, 0, box.now_ms)
        self.assertTrue(all(decode_record(each).physical_offset >= minimum for each in found))


class QueueRetentionTests(RetentionCase):
    """Queues and index follow the log."""

    def setUp(self) -> None:
        super().setUp()
        self.disk.used_ratio = 0.86

    def queue_files(self, topic: str = "TopicTest") -> list[int]:
        """Return the numbers of a queue's files on disk."""
        return [int(name) // 400
                for name in self.disk.list_directory(f"/store/consumequeue/{topic}/0")]

    def test_a_queue_begins_with_its_first_message_that_is_there(self) -> None:
        """A queue begins with its first remaining message, or at its end."""
        box = self.box
        box.append(message("Other"), message("Late"))
        box.fill(3)
        box.append(message("Late"))
        box.step(60_000, 3)
        box.clean_log()
        box.clean_queues()
        store = box.store
        for topic in ("TopicTest", "Other", "Late"):
            low, high = (store.queues.min_offset(topic, 0), store.queues.max_offset(topic, 0))
            places = [store.queues.commit_log_offset(topic, 0, each) for each in range(low, high)]
            self.assertEqual(len(places), {"TopicTest": 2, "Other": 0, "Late": 1}[topic], topic)
            self.assertTrue(all(place >= store.commit_log.min_offset for place in places))
            self.assertEqual(len(box.bodies(topic)), high - low)
        self.assertEqual(store.queues.max_offset("Other", 0), 1)
        (next_one,) = box.append(message("Other", b"next"))
        self.assertEqual((next_one.queue_offset, box.bodies("Other")), (1, [b"next"]))

    def test_files_whose_entries_are_all_before_the_minimum_go(self) -> None:
        """Such files are deleted, but never the last one; a restart gives the same result."""
        for again in (RetentionBox.after_stop, RetentionBox.after_kill):
            self.setUp()
            box = self.box
            box.append(*[message() for _ in range(70)], *[message("Idle") for _ in range(20)])
            box.fill(1)
            box.step(60_000, 3)
            self.assertEqual(self.queue_files(), [0, 1, 2, 3, 4])
            box.clean_log()
            box.clean_queues()
            minimum = box.store.queues.min_offset("TopicTest", 0)
            self.assertGreater(minimum, 70)
            self.assertEqual(self.queue_files(), list(range(minimum // 20, 5)))
            self.assertEqual(self.queue_files("Idle"), [0])
            bodies = box.bodies()
            opened = again(box)
            self.assertEqual(opened.store.commit_log.min_offset, box.store.commit_log.min_offset)
            for topic, low in (("TopicTest", minimum), ("Idle", 20)):
                self.assertEqual(opened.store.queues.min_offset(topic, 0), low)
            self.assertEqual(opened.bodies(), bodies)

    def test_killed_in_between(self) -> None:
        """The log was shortened before its queues: the next start completes the removal."""
        self.box.step(60_000, 3)
        self.box.clean_log()
        opened = self.box.after_kill()
        self.assertEqual(opened.store.queues.min_offset("TopicTest", 0), 8)
        self.assertEqual(len(opened.bodies()), 1)

    def test_index_files_without_a_message_go(self) -> None:
        """Such files are deleted, but never the newest; the keys of the others are found."""
        box = self.box
        for number in range(10):
            box.append(*[message(keys=f"k{number}-{each}", body=bytes(1000))
                         for each in range(50)])
        box.step(60_000, 60)
        files = len(self.disk.list_directory("/store/index"))
        self.assertGreater(files, 2)
        box.clean_log()
        box.clean_queues()
        self.assertLess(len(self.disk.list_directory("/store/index")), files)
        found, _, _ = box.store.reader.query("TopicTest", "k9-49", 10, 0, box.now_ms)
        self.assertEqual(len(found), 1)
        self.assertEqual(box.store.reader.query("TopicTest", "k0-0", 10, 0, box.now_ms)[0], [])
        again = box.after_kill()
        self.assertEqual(
            len(again.store.reader.query("TopicTest", "k9-49", 10, 0, box.now_ms)[0]), 1)

    def test_files_of_one_queue_a_step(self) -> None:
        """Files of one queue a step, then a pause; queues without any are looked at quickly."""
        box = self.box
        for topic in ("A", "B", "C"):
            box.append(*[message(topic) for _ in range(50)])
        box.fill(1)
        box.step(60_000, 3)
        box.clean_log()
        retention = box.store.queue_retention
        self.assertEqual(retention.period_ms(), 10_000)
        removed = 0
        before = sum(len(self.queue_files(topic)) for topic in "ABC")
        while True:
            retention.step(box.now_ms)
            if retention.period_ms() != 100:
                break
            removed += 1
        self.assertEqual(removed, 3)
        self.assertEqual(sum(len(self.queue_files(topic)) for topic in "ABC"), before - 6)
        self.assertEqual(retention.period_ms(), 10_000)

    def test_many_queues_take_several_steps(self) -> None:
        """A step ends when its time is over; topics may be deleted in the meantime."""
        box = self.box
        box.append(*[message(f"T{number}") for number in range(50)])
        box.fill(1)
        box.step(60_000, 10)
        box.clean_log()
        files = box.store.queues.files
        correct = files.correct_min_offset

        def slow_correct(queue: ConsumeQueue, minimum: int) -> None:
            box.now_ms += 1
            correct(queue, minimum)

        self.patch(files, "correct_min_offset", slow_correct)
        box.store.queue_retention.step(box.now_ms)
        self.assertEqual(box.store.queue_retention.period_ms(), 10)
        for number in range(0, 50, 2):
            box.store.delete_topic(f"T{number}")
        self.assertGreater(box.clean_queues(), 5)
        for number in range(1, 50, 2):
            self.assertEqual(box.store.queues.min_offset(f"T{number}", 0), 1)

    def test_a_file_that_cannot_be_removed(self) -> None:
        """It and later files remain; the minimum of the queue is right."""
        box = self.box
        box.append(*[message() for _ in range(70)])
        box.fill(1)
        box.step(60_000, 3)
        box.clean_log()

        def failing(path: str) -> None:
            raise PermissionError(1, "not permitted", path)

        self.patch(self.disk, "remove", failing)
        box.clean_queues()
        self.assertEqual(self.queue_files()[0], 0)
        self.assertGreater(box.store.queues.min_offset("TopicTest", 0), 70)

    def test_expired_queues(self) -> None:
        """On request a queue without messages is deleted, unless its topic is kept."""
        box = self.box
        for topic in ("Idle", "Kept"):
            box.append(message(topic), message(topic, queue_id=1))
        box.fill(2)
        box.append(message("Idle", queue_id=2))
        box.step(60_000, 3)
        box.clean_log()
        removed = [(queue.topic, queue.queue_id)
                   for queue in box.store.clean_expired_queues({"Kept"})]
        self.assertEqual(removed, [("Idle", 0), ("Idle", 1)])
        self.assertEqual(self.disk.list_directory("/store/consumequeue/Idle"), ["2"])
        self.assertEqual(box.store.queues.ids_by_topic()["Kept"], [0, 1])
        (again,) = box.append(message("Idle"))
        self.assertEqual(again.queue_offset, 0)
        opened = box.after_kill()
        self.assertEqual(opened.store.queues.max_offset("Idle", 0), 1)
