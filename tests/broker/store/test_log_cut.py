"""Cutting the end of a running store's log, and beginning an empty one elsewhere."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreClosed
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import MessageRecord, decode_record

FILE_SIZE = 4096


class CutTests(SynchronousTestCase):
    """A store with some files, cut at each of its records."""

    def setUp(self) -> None:
        self.box = self.make_box()
        self.records = self.fill(self.box, 40)

    def make_box(self, disk: MemoryDisk | None = None) -> StoreBox:
        return StoreBox(disk, mapped_file_size_commit_log=FILE_SIZE, max_index_num=16).open()

    def fill(self, box: StoreBox, count: int, text: str = "m") -> list[MessageRecord]:
        """Append messages with keys, at different times."""
        records = []
        for number in range(count):
            box.now_ms += 1000
            records += box.append(message(
                body=f"{text}{number}".encode() * 40, keys=f"{text}{number} k{number % 3}",
                queue_id=number % 2))
        return records

    def found(self, box: StoreBox, key: str) -> list[bytes]:
        """The bodies that a key finds."""
        return [decode_record(record).body
                for record in box.store.reader.query("TopicTest", key, 64, 0, 2**62)[0]]

    def hold_threads(self) -> list[tuple[Callable[[], None], Deferred[None]]]:
        """Let the jobs of threads wait; :returns: each, and what says that it is done."""
        held: list[tuple[Callable[[], None], Deferred[None]]] = []

        def hold(job: Callable[[], None]) -> Deferred[None]:
            held.append((job, Deferred()))
            return held[-1][1]

        self.box.in_thread = hold
        return held

    def assertHolds(self, box: StoreBox, records: list[MessageRecord]) -> None:
        """Queues and index have these messages and no other."""
        # A blank may follow.
        self.assertLess(
            box.store.commit_log.max_offset - (records[-1].next_offset if records else 0), 300)
        for queue_id in range(2):
            bodies = [r.body for r in records if r.queue_id == queue_id]
            self.assertEqual(box.bodies(queue_id=queue_id), bodies)
            self.assertEqual(box.store.queues.max_offset("TopicTest", queue_id), len(bodies))
        for key in {key for record in self.records for key in record.keys}:
            wanted = [r.body for r in records if key in r.keys]
            self.assertEqual(sorted(self.found(box, key)), sorted(wanted), key)

    def test_queues_and_index_end_with_the_log(self) -> None:
        """Cut at any record, they have what is before it, and what is appended then."""
        for count in (39, 30, 17, 16, 15, 3, 1, 0):
            box = self.box = self.make_box()
            self.records = self.fill(box, 40)
            place = self.records[count].physical_offset
            self.successResultOf(box.store.log_cut.truncate(place))
            self.assertEqual(box.store.commit_log.max_offset, place)
            kept = self.records[:count]
            self.assertHolds(box, kept)
            more = self.fill(box, 20, "n")
            self.assertEqual(more[0].physical_offset, place)
            self.assertEqual([r.queue_offset for r in more[:2]], [(count + 1) // 2, count // 2])
            self.assertHolds(box, [*kept, *more])

    def test_it_is_so_after_a_stop_and_after_a_kill(self) -> None:
        """At once, and when all was flushed before."""
        for again in ("after_stop", "after_kill"):
            for flushed in (False, True):
                box = self.make_box()
                records = self.fill(box, 40)
                if flushed:
                    box.step(70_000, 200)
                self.successResultOf(box.store.log_cut.truncate(records[18].physical_offset))
                reopen: Callable[[], StoreBox] = getattr(box, again)
                self.assertHolds(reopen(), records[:18])
                box = self.make_box()
                records = self.fill(box, 40)
                if flushed:
                    box.step(70_000, 200)
                self.successResultOf(box.store.log_cut.truncate(records[18].physical_offset))
                more = self.fill(box, 9, "n")
                if flushed:
                    box.step(70_000, 200)
                reopen = getattr(box, again)
                self.assertHolds(reopen(), [*records[:18], *more])

    def test_a_place_where_no_record_begins_is_refused(self) -> None:
        """Nothing is cut then."""
        end = self.box.store.commit_log.max_offset
        for place, text in ((self.records[5].physical_offset + 1, "no record begins at"),
                            (-1, "cannot end at -1"), (end + 1, f"cannot end at {end + 1}")):
            error = self.failureResultOf(self.box.store.log_cut.truncate(place), StoreError)
            self.assertIn(text, str(error.value))
        self.assertHolds(self.box, self.records)

    def test_what_replicas_agreed_to_is_not_cut(self) -> None:
        """What is behind it is."""
        store = self.box.store
        agreed = self.records[20].next_offset
        store.dispatch.advance_confirm_offset(agreed)
        self.fill(self.box, 2, "n")
        place = self.records[20].physical_offset
        # It was dispatched up to the end before replicas had a say.
        agreed = store.dispatch.confirm_offset
        error = self.failureResultOf(store.log_cut.truncate(place), StoreError)
        self.assertIn(f"have confirmed up to {agreed}", str(error.value))
        self.successResultOf(store.log_cut.truncate(agreed))
        self.assertEqual(store.commit_log.max_offset, agreed)

    def test_a_half_record_is_cut_and_what_follows_survives(self) -> None:
        """A replica that becomes master loses nothing that it acknowledges then."""
        data = b"".join(self.box.store.raw.read(at, FILE_SIZE) for at in range(0, 12_000, 4096))
        chance = random.Random(1)
        for end in [chance.randrange(len(data)) for _ in range(40)]:
            box = self.make_box()
            box.store.raw.append(0, data[:end])
            self.successResultOf(box.store.log_cut.cut_tail())
            while box.store.dispatch.step():
                continue
            whole = [r for r in self.records if r.next_offset <= end]
            self.assertHolds(box, whole)
            more = self.fill(box, 5, "n")
            self.assertHolds(box, [*whole, *more])
            self.assertHolds(box.after_kill(), [*whole, *more])

    def test_a_cut_waits_for_syncs_that_run(self) -> None:
        """Meanwhile nothing is stored; a stop waits for it."""
        held = self.hold_threads()
        store = self.box.store
        self.box.step(70_000, 5)
        self.assertTrue(held)
        place = self.records[9].physical_offset
        cut = store.log_cut.truncate(place)
        self.assertNoResult(cut)
        self.assertRaises(StoreClosed, store.append, [message()])
        self.assertRaises(StoreClosed, store.raw.append, store.commit_log.max_offset, b"x")
        stopped = store.stop()
        ended: list[object] = []
        cut.addCallback(ended.append)
        stopped.addCallback(ended.append)
        while held:
            job, done = held.pop(0)
            job()
            done.callback(None)
            self.assertEqual(
                store.commit_log.max_offset, place if ended else self.records[-1].next_offset)
        self.assertEqual((ended, store.stop_fault), ([None, None], ""))
        self.box.in_thread = StoreBox().in_thread
        self.assertHolds(self.box._again().open(), self.records[:9])

    def test_who_waits_for_a_cut_does_not_end_it(self) -> None:
        """Such as a slave that stops to follow: half a cut would be left."""
        held = self.hold_threads()
        store, place = self.box.store, self.records[9].physical_offset
        cut = store.log_cut.truncate(place)
        cut.cancel()
        self.failureResultOf(cut, CancelledError)
        finished = store.log_cut.finished()
        while held:
            job, done = held.pop(0)
            job()
            done.callback(None)
        self.successResultOf(finished)
        self.box.in_thread = StoreBox().in_thread
        self.assertHolds(self.box, self.records[:9])
        self.fill(self.box, 1)

    def test_a_file_that_was_made_ahead_is_removed(self) -> None:
        """Else there would be a gap between the files."""
        box = StoreBox(mapped_file_size_commit_log=FILE_SIZE, max_index_num=16,
                       warm_maped_file_enable=True).open()
        self.records = self.fill(box, 40)
        box.step(100, 5)
        self.successResultOf(box.store.log_cut.truncate(self.records[3].physical_offset))
        self.assertEqual(box.disk.list_directory("/store/commitlog"), ["0" * 20])
        self.assertHolds(box.after_kill(), self.records[:3])

    def test_a_cut_that_fails_ends_the_storing_of_messages(self) -> None:
        """The next start repairs what was done in part."""
        for path in ("/store/checkpoint", "/store/consumequeue", "/store/commitlog"):
            disk = PowerLossDisk()
            box = self.make_box(disk)
            self.records = self.fill(box, 40)
            box.step(70_000, 200)
            real = disk.before_write

            def fail(written: str, size: int, of: str = path, real: Any = real) -> int:
                if written.startswith(of):
                    raise OSError(errno.EIO, "input/output error", written)
                return int(real(written, size))

            disk.before_write = fail  # type: ignore[method-assign]
            failed = box.store.log_cut.truncate(self.records[9].physical_offset)
            self.assertIn("could not be cut",
                          str(self.failureResultOf(failed, StoreError).value), path)
            disk.before_write = real  # type: ignore[method-assign]
            self.assertRaises(StoreError, box.store.append, [message()])
            again = box.after_kill()
            count = sum(r.next_offset <= again.store.commit_log.max_offset for r in self.records)
            self.assertGreaterEqual(count, 9)
            self.assertHolds(again, self.records[:count])

    def test_an_empty_log_begins_at_a_place(self) -> None:
        """The first bytes of a replica may be of any file of its master."""
        place = 2 * FILE_SIZE
        data = self.box.store.raw.read(place, FILE_SIZE)
        box = self.make_box()
        store = box.store
        self.successResultOf(store.log_cut.start_at(place))
        self.assertEqual((store.commit_log.min_offset, store.commit_log.max_offset), (place, place))
        store.raw.append(place, data)
        while store.dispatch.step():
            continue
        kept = [r for r in self.records if place <= r.physical_offset < place + FILE_SIZE]
        for each in (box, box.after_kill()):
            self.assertEqual(each.store.commit_log.min_offset, place)
            for queue_id in range(2):
                of_queue = [r for r in kept if r.queue_id == queue_id]
                self.assertEqual(each.store.queues.min_offset("TopicTest", queue_id),
                                 of_queue[0].queue_offset)
                self.assertEqual(each.bodies(queue_id=queue_id), [r.body for r in of_queue])

    def test_a_log_that_was_emptied_begins_at_a_place(self) -> None:
        """It is given up whole, as a replica that is too far behind does; a kill may follow."""
        store = self.box.store
        self.box.step(70_000, 200)
        refused = self.failureResultOf(store.log_cut.start_at(8 * FILE_SIZE), StoreError)
        self.assertIn("cannot begin at", str(refused.value))
        self.successResultOf(store.log_cut.truncate(0))
        refused = self.failureResultOf(store.log_cut.start_at(FILE_SIZE + 1), StoreError)
        self.assertIn("no file of 4096 bytes can start at 4097", str(refused.value))
        self.successResultOf(store.log_cut.start_at(8 * FILE_SIZE))
        self.assertEqual(store.queues.ids_by_topic(), {})
        box = self.box.after_kill()
        self.assertEqual(box.store.commit_log.max_offset, 0)
        box = box.after_stop()
        self.successResultOf(box.store.log_cut.start_at(8 * FILE_SIZE))
        [record] = box.append(message())
        self.assertEqual((record.physical_offset, record.queue_offset), (8 * FILE_SIZE, 0))
        self.assertEqual(box.after_stop().bodies(), [record.body])
