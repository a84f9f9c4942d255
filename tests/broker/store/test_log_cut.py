"""The end of a running store's log is cut, or the log begins again elsewhere."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.held_jobs import hold_jobs
from twistmq.broker.errors import StoreClosed, StoreCut
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.properties import format_properties
from twistmq.protocol.record import MessageRecord, decode_record

FILE_SIZE = 4096
#: The properties of a message that also enters a light queue.
LIGHT = format_properties({"INNER_MULTI_DISPATCH": "%LMQ%a"})


class CutTestCase(SynchronousTestCase):
    """A store with some files."""

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
        """Return the bodies that a key finds."""
        return [decode_record(record).body
                for record in box.store.reader.query("TopicTest", key, 64, 0, 2**62)[0]]

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


class CutTests(CutTestCase):
    """A store with some files, cut at each of its records."""

    def test_queues_and_index_end_with_the_log(self) -> None:
        """After a cut at any record they have the entries before it, and later those after it."""
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
        """This is so at once, and also if everything was flushed before."""
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
        """Nothing is cut."""
        end = self.box.store.commit_log.max_offset
        for place, text in ((self.records[5].physical_offset + 1, "no record begins at"),
                            (-1, "cannot end at -1"), (end + 1, f"cannot end at {end + 1}")):
            error = self.failureResultOf(self.box.store.log_cut.truncate(place), StoreError)
            self.assertIn(text, str(error.value))
        self.assertHolds(self.box, self.records)

    def test_what_replicas_agreed_to_is_not_cut(self) -> None:
        """Data after it can be cut."""
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
        """A replica that becomes master then loses no message that it acknowledges."""
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
        """In the meantime nothing is stored, and a stop waits for the cut."""
        held = hold_jobs(self.box)
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
        """If a slave stopped to follow, half a cut would remain."""
        held = hold_jobs(self.box)
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
        """Otherwise there would be a gap between the files."""
        box = StoreBox(mapped_file_size_commit_log=FILE_SIZE, max_index_num=16,
                       warm_maped_file_enable=True).open()
        self.records = self.fill(box, 40)
        box.step(100, 5)
        self.successResultOf(box.store.log_cut.truncate(self.records[3].physical_offset))
        self.assertEqual(box.disk.list_directory("/store/commitlog"), ["0" * 20])
        self.assertHolds(box.after_kill(), self.records[:3])

    def test_a_cut_that_fails_ends_the_storing_of_messages(self) -> None:
        """The next start completes the cut."""
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
        """The whole log is dropped, as by a replica that is too far behind; a kill may follow."""
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


class UndispatchedCutTests(CutTestCase):
    """Only the log is cut if its last records are not dispatched."""

    def setUp(self) -> None:
        super().setUp()
        self.box.store.dispatch.advance_confirm_offset(self.box.store.commit_log.max_offset)
        self.unread = self.fill(self.box, 20, "u")

    def test_only_the_log_is_cut(self) -> None:
        """Records before the cut become readable, and the removed ones leave no gap in queues."""
        for count in (20, 19, 9, 1, 0):
            box = self.box = self.make_box()
            self.records = self.fill(box, 40)
            store = box.store
            store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
            unread = self.fill(box, 20, "u")
            place = [*unread, None][count]
            end = store.commit_log.max_offset if place is None else place.physical_offset
            self.successResultOf(store.log_cut.cut_undispatched(end))
            self.assertEqual(store.commit_log.max_offset, end)
            for queue_id in range(2):
                self.assertEqual(box.bodies(queue_id=queue_id),
                                 [r.body for r in self.records if r.queue_id == queue_id])
            more = self.fill(box, 5, "n")
            with mock.patch.object(store.commit_log, "peek", None):
                store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
                box.step(5, 5)
            kept = [*self.records, *unread[:count], *more]
            self.records += unread + more
            self.assertHolds(box, kept)
            self.assertEqual(
                [r.queue_offset for queue_id in range(2) for r in kept if r.queue_id == queue_id],
                [offset for queue_id in range(2)
                 for offset in range(sum(r.queue_id == queue_id for r in kept))])
            box.step(70_000, 60)
            self.assertHolds(box.after_kill(), kept)

    def test_light_queues(self) -> None:
        """They continue without a gap as well."""
        box = StoreBox(enable_lmq=True, enable_multi_dispatch=True).open()
        store = box.store

        def append(body: bytes) -> MessageRecord:
            (record,) = box.append(message(body=body, properties=LIGHT))
            return record

        append(b"1")
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        append(b"2")
        self.successResultOf(store.log_cut.cut_undispatched(append(b"3").physical_offset))
        append(b"4")
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        self.assertEqual(box.bodies("%LMQ%a"), [b"1", b"2", b"4"])

    def test_what_is_readable_or_confirmed_is_not_cut(self) -> None:
        """A position where no record begins is refused as well."""
        store, first = self.box.store, self.unread[0]
        end = store.commit_log.max_offset
        for place in (self.records[-1].physical_offset, first.physical_offset + 1, end + 1):
            self.failureResultOf(store.log_cut.cut_undispatched(place), StoreError)
        store.dispatch.confirm_follows = True
        self.failureResultOf(
            store.log_cut.cut_undispatched(self.records[-1].physical_offset), StoreError)
        self.assertEqual(store.commit_log.max_offset, end)

    def test_it_waits_for_the_sync_that_runs_and_no_more(self) -> None:
        """In the meantime nothing is stored, and confirmations continue; then waits end."""
        store, jobs = self.box.store, []

        def run_sync(job: Callable[[], object], done: Callable[[None], None]) -> None:
            job()
            jobs.append(done)

        self.patch(store.flush, "_run_sync", run_sync)
        first, kept, cut = self.unread[0], self.unread[7], self.unread[8]
        waits = [store.flush.flushed(first.next_offset)]
        late = self.fill(self.box, 1, "v")[0]
        waits += [store.flush.flushed(late.next_offset)]
        done = store.log_cut.cut_undispatched(cut.physical_offset)
        refused = store.log_cut.cut_undispatched(kept.physical_offset)
        self.assertNoResult(done)
        self.assertRaises(StoreClosed, store.append, [message()])
        store.dispatch.advance_confirm_offset(kept.next_offset)
        # The wait of the newest record begins another sync.
        jobs.pop(0)(None)
        self.assertNoResult(done)
        jobs.pop(0)(None)
        self.assertEqual(jobs, [])
        self.successResultOf(done)
        self.failureResultOf(refused, StoreError)
        self.assertEqual([self.successResultOf(each) for each in waits if each], [None, None])
        self.assertEqual(store.commit_log.max_offset, cut.physical_offset)

    def test_a_wait_for_the_flush_of_a_record_that_is_cut_fails(self) -> None:
        """The record is neither durable nor late, because it no longer exists."""
        store = self.box.store
        self.patch(store.flush, "_run_sync", lambda job, done: None)
        self.patch(store.flush, "wait_for_sync", lambda: None)
        kept, cut = (store.flush.flushed(each.next_offset) for each in self.unread[7:9])
        assert kept is not None
        assert cut is not None
        self.successResultOf(store.log_cut.cut_undispatched(self.unread[8].physical_offset))
        self.assertNoResult(kept)
        self.failureResultOf(cut, StoreCut)

    def test_a_cut_at_once(self) -> None:
        """Offsets continue after the waiting records, and the progress goes back, too."""
        store, ends = self.box.store, []
        store.log_cut.on_cut.append(lambda: ends.append(store.commit_log.max_offset))
        place = self.unread[7].physical_offset
        store.log_cut.cut_at_once(place)
        self.assertEqual((ends, store.commit_log.last_store_timestamp),
                         ([place], self.unread[6].store_timestamp))
        more = self.fill(self.box, 3, "n")
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        self.box.step(5, 5)
        kept = [*self.records, *self.unread[:7], *more]
        for queue_id in range(2):
            self.assertEqual(self.box.bodies(queue_id=queue_id),
                             [r.body for r in kept if r.queue_id == queue_id])
            self.assertEqual(
                self.box.store.queues.max_offset("TopicTest", queue_id),
                sum(r.queue_id == queue_id for r in kept))

    def test_listeners_are_called(self) -> None:
        """Progress that depends on the removed records must go back."""
        store, ends = self.box.store, []
        store.log_cut.on_cut.append(lambda: ends.append(store.commit_log.max_offset))
        place = self.unread[3].physical_offset
        self.successResultOf(store.log_cut.cut_undispatched(place))
        self.assertEqual(ends, [place])

    def test_a_cut_that_fails_ends_the_storing_of_messages(self) -> None:
        """The next start repairs it."""
        store = self.box.store
        self.patch(store.commit_log, "truncate", self.fail_to_cut)
        self.failureResultOf(
            store.log_cut.cut_undispatched(self.unread[3].physical_offset), StoreError)
        self.assertRaises(StoreError, store.append, [message()])

    def fail_to_cut(self, offset: int) -> None:
        raise OSError(errno.EIO, "input/output error")
