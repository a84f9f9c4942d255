"""A store with a ledger: its entries are appended, followed, cut, committed and replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unittest.mock import patch

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.held_jobs import hold_jobs
from twistmq.broker.constants import DISPATCH_STEP_RECORDS
from twistmq.broker.errors import StoreFull
from twistmq.broker.store.entry_check import EntryCheck
from twistmq.broker.store.entry_heads import ENTRY_HEAD_SIZE, ENTRY_SIZE_MAX, UNIT, UNIT_SIZE
from twistmq.broker.store.ledger.entry_index import EntryIndex
from twistmq.broker.store.ledger.entry_log import EntryLog
from twistmq.broker.store.ledger.ledger import BARRIER_TOPIC, EntryRefused, StoredEntry
from twistmq.broker.store.queue_rewrite import compare_entries
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.ledger_store import LEDGER_FOLDER, LedgerBox
from twistmq.broker.testing.store import message
from twistmq.protocol.errors import MessageIllegal, StoreDamaged, StoreError
from twistmq.protocol.record import MessageRecord, StoredMessage, decode_record

FILE_SIZE = 4096


def numbered(count: int, begin: int = 0) -> list[MessageRecord]:
    """Return messages whose bodies are their numbers."""
    return [message("T", b"%04d" % number * 20, keys=f"k{number}")
            for number in range(begin, begin + count)]


class LedgerCase(SynchronousTestCase):
    """Stores with log files of four kilobytes."""

    def make(self, disk: MemoryDisk | None = None) -> LedgerBox:
        return LedgerBox(disk, mapped_file_size_commit_log=FILE_SIZE).open()

    def entries(self, box: LedgerBox, first: int | None = None) -> list[StoredEntry]:
        """Return all entries of a ledger."""
        first = box.ledger.begin_index if first is None else first
        return [] if first < 0 else list(box.ledger.read(first, 1 << 30))

    def copy_to(self, box: LedgerBox, entries: Sequence[StoredEntry], at_once: int = 7) -> None:
        """Append entries of another ledger, some at a time."""
        for at in range(0, len(entries), at_once):
            box.ledger.append(entries[at : at + at_once])

    def data(self, box: LedgerBox) -> dict[str, bytes]:
        """Return the bytes of the log files and of the index files."""
        disk = box.disk
        return {f"{part}/{name}": disk.read_file(f"{LEDGER_FOLDER}/{part}/{name}")
                for part in ("data", "index")
                for name in disk.list_directory(f"{LEDGER_FOLDER}/{part}")}


class AppendTests(LedgerCase):
    """A leader appends entries."""

    def test_an_entry_for_each_message(self) -> None:
        """The store's own append makes entries with consecutive indexes and the leader's term."""
        box = self.make()
        box.lead_term(4)
        records = box.append(*numbered(3)) + box.append(*numbered(40, 3))
        entries = self.entries(box)
        self.assertEqual([entry.index for entry in entries], list(range(44)))
        self.assertEqual({entry.term for entry in entries}, {4})
        self.assertEqual([entry.position + ENTRY_HEAD_SIZE for entry in entries[1:]],
                         [record.physical_offset for record in records])
        self.assertEqual([decode_record(entry.body).body for entry in entries[1:]],
                         [record.body for record in records])
        self.assertEqual((box.ledger.begin_index, box.ledger.end_index), (0, 43))
        self.assertEqual(box.ledger.term_at(43), 4)

    def test_large_sends_make_the_same_entries(self) -> None:
        """Records that were encoded in advance get their heads at the same positions."""
        box, ahead = self.make(), self.make()
        for each in (box, ahead):
            each.lead_term(1)
        box.append(*numbered(60))
        records = numbered(60)
        ahead.store.append_encoded([ahead.store.encode_ahead(records[:25]),
                                    ahead.store.encode_ahead(records[25:])])
        self.assertEqual(self.data(ahead), self.data(box))
        self.assertEqual([record.physical_offset for record in records],
                         [entry.position + ENTRY_HEAD_SIZE for entry in self.entries(box, 1)])

    def test_nothing_is_readable_before_it_is_agreed(self) -> None:
        """The queues get the messages when their entries are committed."""
        box = self.make()
        box.lead_term(1)
        box.append(*numbered(3))
        self.assertEqual(box.bodies("T"), [])
        box.ledger.commit(2)
        self.assertEqual(box.bodies("T"), [b"0000" * 20, b"0001" * 20])
        box.ledger.commit(1)
        self.assertEqual(box.ledger.committed_index, 2)
        box.ledger.commit(99)
        self.assertEqual(box.ledger.committed_index, 3)
        self.assertEqual(len(box.bodies("T")), 3)

    def test_a_barrier_enters_no_queue(self) -> None:
        """The record of a barrier creates neither a queue nor an item of the index."""
        box = self.make()
        box.lead_term(1)
        self.assertIsNone(box.store.queues.find(BARRIER_TOPIC, 0))
        self.assertEqual(box.store.dispatch.offset, box.store.commit_log.max_offset)
        (entry,) = self.entries(box)
        self.assertEqual(decode_record(entry.body).topic, BARRIER_TOPIC)
        self.assertEqual(decode_record(entry.body).physical_offset, ENTRY_HEAD_SIZE)

    def test_an_illegal_message_takes_no_index(self) -> None:
        """After a refused send the next entry has the next index, and the log is whole."""
        box = self.make()
        box.lead_term(1)
        self.assertRaises(MessageIllegal, box.append, *numbered(2), message("T", bytes(FILE_SIZE)))
        box.append(*numbered(1))
        self.assertEqual(box.ledger.end_index, 1)
        self.assertEqual(len(self.entries(box)), 2)

    def test_the_largest_entry(self) -> None:
        """A record fills an entry up to Apache's buffer; one byte more is refused."""
        box = LedgerBox(mapped_file_size_commit_log=16 << 20, max_message_size=8 << 20).open()
        box.lead_term(1)
        (small,) = box.append(message("T", b"", keys="k"))
        rest = ENTRY_SIZE_MAX - ENTRY_HEAD_SIZE - small.size
        self.assertRaises(MessageIllegal, box.append, message("T", bytes(rest + 1), keys="k"))
        self.assertRaises(
            MessageIllegal, box.store.encode_ahead, [message("T", bytes(rest + 1), keys="k")])
        box.append(message("T", bytes(rest), keys="k"))
        box.store.encode_ahead([message("T", bytes(rest), keys="k")])
        self.assertEqual(box.ledger.end_index, 2)

    def test_a_full_disk_leaves_the_ledger_unchanged(self) -> None:
        """A send that a full disk refuses changes neither the log nor the indexes."""
        disk = FaultyDisk()
        box = self.make(disk)
        box.lead_term(1)
        for room in (0, 20, 400):
            disk.room_bytes = room
            before = box.store.commit_log.max_offset
            self.assertRaises(StoreFull, box.append, *numbered(30))
            self.assertEqual((box.ledger.end_index, box.store.commit_log.max_offset), (0, before))
        disk.room_bytes = None
        box.append(*numbered(2))
        self.assertEqual([entry.index for entry in self.entries(box)], [0, 1, 2])


class FollowTests(LedgerCase):
    """A follower appends the entries of a leader."""

    def setUp(self) -> None:
        self.leader = self.make()
        self.leader.lead_term(1)
        self.leader.append(*numbered(50))
        self.follower = self.make()

    def test_the_files_are_equal(self) -> None:
        """Log and index of a follower equal the leader's byte for byte."""
        self.copy_to(self.follower, self.entries(self.leader))
        self.assertEqual(self.data(self.follower), self.data(self.leader))
        self.assertEqual(self.follower.bodies("T"), [])
        self.follower.commit()
        self.assertEqual(len(self.follower.bodies("T")), 50)
        self.assertEqual(
            self.follower.store.reader.query("T", "k7", 9, 0, 2**62)[0],
            [self.entries(self.leader)[8].body])

    def test_bodies_get_their_place(self) -> None:
        """``extend`` sets the physical offset of each record as the leader's log needs it."""
        bodies = [entry.body for entry in self.entries(self.leader)]
        wrong = [body[:28] + b"\xee" * 8 + body[36:] for body in bodies]
        self.follower.ledger.extend(1, wrong)
        self.assertEqual(self.data(self.follower), self.data(self.leader))

    def test_an_entry_may_begin_a_file_before_the_last_one_is_full(self) -> None:
        """A leader that was killed after it had closed a file goes on in the next one."""
        entries = self.entries(self.leader)
        self.copy_to(self.follower, entries[:5])
        log = self.follower.store.commit_log
        start = log.next_file_start(log.max_offset)
        early = self.moved(entries[5], start)
        self.follower.ledger.append([early])
        again = self.follower.after_kill()
        self.assertEqual(self.entries(again), [*entries[:5], early])
        for position in (start + 4 * log.file_size, start + 2):
            self.assertRaises(EntryRefused, again.ledger.append, [self.moved(entries[6], position)])

    def test_no_file_is_left_empty(self) -> None:
        """An entry cannot leave out a whole file."""
        entry = self.entries(self.leader)[0]
        file_size = self.follower.store.commit_log.file_size
        self.assertRaises(EntryRefused, self.follower.ledger.append, [self.moved(entry, file_size)])

    def moved(self, entry: StoredEntry, position: int) -> StoredEntry:
        """Return an entry at another position."""
        place = (position + ENTRY_HEAD_SIZE).to_bytes(8, "big")
        return replace(
            entry, position=position, body=entry.body[:28] + place + entry.body[36:])

    def test_what_does_not_fit_is_refused(self) -> None:
        """An entry with a wrong index, term, position, size or record is refused and not stored."""
        entries = self.entries(self.leader)
        self.copy_to(self.follower, entries[:5])
        next_entry = entries[5]
        body = next_entry.body
        before = self.data(self.follower)
        for why, bad in (
            ("entry 5 comes next", replace(next_entry, index=6)),
            ("has term 1", replace(next_entry, term=0)),
            ("begins at", replace(next_entry, position=next_entry.position + 1)),
            ("physical offset", replace(next_entry, body=body[:28] + bytes(8) + body[36:])),
            ("its record has", replace(next_entry, body=body + b"x")),
            ("not a record", replace(next_entry, body=b"")),
            ("queue id", replace(next_entry, body=body[:12] + b"\xff" * 4 + body[16:])),
        ):
            error = self.assertRaises(EntryRefused, self.follower.ledger.append, [bad])
            self.assertIn(why, str(error))
            self.assertRaises(EntryRefused, self.follower.ledger.append, [next_entry, bad])
        self.assertEqual(self.data(self.follower), before)
        self.follower.ledger.append([next_entry])
        self.assertTrue(self.follower.ledger.has_entry(next_entry))
        self.assertFalse(self.follower.ledger.has_entry(entries[6]))
        self.assertFalse(self.follower.ledger.has_entry(
            replace(next_entry, body=body[:-1] + b"x")))

    def test_read_returns_what_fits(self) -> None:
        """A read returns at least one entry, and more if they fit into the limit."""
        size = len(self.entries(self.leader)[1].body)
        read = self.leader.ledger.read
        self.assertEqual(len(read(1, 0)), 1)
        self.assertEqual(len(read(1, 3 * size)), 3)
        self.assertEqual(len(read(1, 3 * size - 1)), 2)
        self.assertEqual(read(50, 1 << 20)[0].index, 50)
        self.assertRaises(StoreError, read, 51, 1)

    def test_a_read_takes_the_entries_of_a_file_together(self) -> None:
        """The log is read once for each file, and its index once for many entries."""
        ledger, log = self.leader.ledger, self.leader.entry_log
        entries = [ledger.read(index, 0)[0] for index in range(ledger.end_index + 1)]
        with (patch.object(EntryLog, "peek", autospec=True, side_effect=EntryLog.peek) as peek,
              patch.object(EntryIndex, "read", autospec=True, side_effect=EntryIndex.read) as read):
            self.assertEqual(list(ledger.read(0, 1 << 30)), entries)
            self.assertEqual(peek.call_count, len(log.starts))
            self.assertEqual(read.call_count, 2)
        for first in (0, 7, 30):
            for size in (1, 900, 5000):
                found = ledger.read(first, size)
                self.assertEqual(list(found), entries[first : first + len(found)])
                self.assertTrue(len(found) == 1 or sum(len(each.body) for each in found) <= size)

    def test_an_entry_that_cannot_be_read(self) -> None:
        """Neither a missing unit of the index nor a damaged head of an entry goes unnoticed."""
        ledger, log = self.leader.ledger, self.leader.entry_log
        unit = log.unit_at(10)
        assert unit is not None
        log.index.write(10, bytes(UNIT_SIZE))
        self.assertEqual(len(ledger.read(0, 1)), 1)
        error = self.assertRaises(StoreError, ledger.read, 5, 1 << 20)
        self.assertIn("there is no entry 10", str(error))
        log.index.write(10, UNIT.pack(1, unit.position + 1, unit.size, 10, unit.term))
        error = self.assertRaises(StoreDamaged, ledger.read, 5, 1 << 20)
        self.assertIn(f"there is no entry 10 at {unit.position + 1}", str(error))

    def test_a_leader_whose_clock_is_behind(self) -> None:
        """The checkpoint is lowered, so that recovery reads messages with earlier store times."""
        entries = self.entries(self.leader)
        self.copy_to(self.follower, entries)
        log = self.follower.store.commit_log
        self.follower.store.checkpoint.values.physic_msg_timestamp = log.last_store_timestamp
        second = self.make()
        second.now_ms -= 50_000
        self.copy_to(second, entries)
        second.store.commit_log.last_store_timestamp = 0
        second.ledger.extend(2, [_stored_at(entries[1].body, second.now_ms)])
        self.follower.ledger.append(self.entries(second, 51))
        self.assertEqual(log.last_store_timestamp, second.now_ms)
        self.assertEqual(
            self.follower.store.checkpoint.values.physic_msg_timestamp, second.now_ms - 1)


def _stored_at(body: bytes, store_ms: int) -> bytes:
    """Return the same record with another store time."""
    return body[:56] + store_ms.to_bytes(8, "big") + body[64:]


class CommitTests(LedgerCase):
    """Entries of a leader become readable at a follower."""

    def test_a_step_reads_a_limited_number_of_records(self) -> None:
        """Many small messages fit into the bytes of a step, and would hold the reactor."""
        leader, follower = self.make(), self.make()
        leader.lead_term(1)
        count = 2 * DISPATCH_STEP_RECORDS
        leader.append(*[message("T", b"x") for _ in range(count)])
        self.copy_to(follower, self.entries(leader), 100)
        dispatch = follower.store.dispatch
        follower.ledger.commit(count, dispatches=False)
        self.assertEqual(dispatch.offset, 0)
        dispatch.step()
        queue = follower.store.queues.find("T", 0)
        assert queue is not None
        self.assertTrue(1 <= queue.max_offset / DISPATCH_STEP_RECORDS < 1.25, queue.max_offset)
        while dispatch.step():
            continue
        self.assertEqual(follower.bodies("T"), [b"x"] * count)


class RepeatedOffsetTests(LedgerCase):
    """A leader that has lost entries of its queues gives their offsets a second time.

    Apache's broker 5.3.3 does so when it leads again after a kill.
    """

    def setUp(self) -> None:
        leader, self.follower = self.make(), self.make()
        leader.lead_term(1)
        leader.append(*numbered(6))
        self.send(leader)
        # The queue of the leader has lost its last three entries.
        queue = leader.store.queues.find("T", 0)
        assert queue is not None
        queue.next_offset = 3
        leader.append(*numbered(5, 6))
        self.leader = leader

    def send(self, leader: LedgerBox) -> None:
        """Copy the leader's entries to the follower, and commit them there."""
        self.copy_to(self.follower, self.entries(leader, self.follower.ledger.end_index + 1))
        self.follower.commit()

    def bodies(self, numbers: Sequence[int]) -> list[bytes]:
        return [b"%04d" % number * 20 for number in numbers]

    def test_the_queue_keeps_what_it_has(self) -> None:
        """The first message of an offset stays, and the queue goes on after its own end."""
        self.send(self.leader)
        expected = self.bodies([0, 1, 2, 3, 4, 5, 9, 10])
        self.assertEqual(self.follower.bodies("T", 0), expected)
        self.assertEqual(self.follower.store.dispatch.repeated_offsets, {("T", 0): 3})

    def test_one_line_names_the_queue(self) -> None:
        """It comes with the first such offset of the queue."""
        with capturedLogs() as events:
            self.send(self.leader)
        lines = [formatEvent(event) for event in events]
        [line] = [line for line in lines if "given again" in line]
        self.assertIn("the offset 3 of queue 0 of T was given again by a leader", line)

    def test_it_is_the_same_after_a_restart(self) -> None:
        """Recovery enters the messages again."""
        self.send(self.leader)
        expected = self.follower.bodies("T", 0)
        again = self.follower.after_kill()
        again.commit()
        self.assertEqual(again.bodies("T", 0), expected)

    def test_entries_in_files_stay_after_a_kill(self) -> None:
        """Recovery compares them with both messages, and the queue goes on."""
        self.send(self.leader)
        self.leader.append(*numbered(2, 11))
        self.send(self.leader)
        expected = self.bodies([0, 1, 2, 3, 4, 5, 9, 10, 11, 12])
        save = self.follower.entry_log.state_job()
        assert save is not None
        save()
        for _ in range(2):
            self.follower.store.queues.write_all()
            self.follower = self.follower.after_kill()
            self.assertEqual(self.follower.bodies("T", 0), expected)
            self.follower.commit()
            self.assertEqual(self.follower.bodies("T", 0), expected)

    def test_a_recovery_that_reads_only_the_later_message(self) -> None:
        """The first one is before its start, and its entry stays."""
        self.send(self.leader)
        self.follower.store.queues.write_all()
        store = self.follower.store
        later = [message for message in self.messages() if message.body in self.bodies([6, 7, 8])]
        check = EntryCheck(store.queues, later[0].physical_offset, store.dispatch)
        self.assertEqual([check.is_right(message) for message in later], [True] * 3)
        # Without an earlier message of this offset, the entry is wrong.
        check = EntryCheck(store.queues, 0, store.dispatch)
        self.assertFalse(check.is_right(later[0]))

    def test_a_failed_sync_finds_no_wrong_entry(self) -> None:
        """The comparison begins at any message."""
        self.send(self.leader)
        self.follower.store.queues.write_all()
        store = self.follower.store
        for each in self.messages():
            for _ in compare_entries(store.commit_log, store.queues, store.dispatch,
                                     each.physical_offset - ENTRY_HEAD_SIZE,
                                     store.commit_log.max_offset):
                pass

    def messages(self) -> list[StoredMessage]:
        """Return the messages in the log of the follower."""
        entries = self.entries(self.follower)
        messages = [decode_record(entry.body) for entry in entries]
        return [message for message in messages if message.topic == "T"]

    def test_a_topic_that_was_made_again_begins_at_0(self) -> None:
        """The queue has the new messages alone."""
        queue = self.leader.store.queues.find("T", 0)
        assert queue is not None
        queue.next_offset = 0
        self.leader.append(*numbered(2, 20))
        self.send(self.leader)
        self.assertEqual(self.follower.bodies("T", 0), self.bodies([20, 21]))


class CutTests(LedgerCase):
    """Entries on which the group did not agree are cut while the store runs."""

    def setUp(self) -> None:
        self.box = self.make()
        self.box.lead_term(1)
        self.box.append(*numbered(30))
        self.box.commit()
        self.agreed = self.entries(self.box)
        self.box.append(*numbered(40, 100))

    def test_the_tail_is_gone(self) -> None:
        """New entries take the positions after a cut; the files have no trace of the old ones."""
        self.box.ledger.truncate(30)
        self.assertEqual(self.entries(self.box), self.agreed)
        self.assertEqual(self.box.ledger.term_at(30), 1)
        self.box.ledger.leading_term = 3
        self.box.append(*numbered(45, 200))
        self.box.commit()
        other = self.make()
        self.copy_to(other, self.entries(self.box))
        self.assertEqual(self.data(self.box), self.data(other))
        self.assertEqual(
            self.box.bodies("T"),
            [record.body for record in numbered(30) + numbered(45, 200)])
        again = self.box.after_kill()
        self.assertEqual(self.entries(again), self.entries(other))

    def test_what_is_readable_stays(self) -> None:
        """A cut of committed entries is refused and changes nothing."""
        self.assertRaises(StoreError, self.box.ledger.truncate, 29)
        self.assertEqual(self.box.ledger.end_index, 70)
        self.box.ledger.truncate(70)
        self.box.ledger.truncate(99)
        self.assertEqual(self.box.ledger.end_index, 70)

    def test_a_cut_beside_a_running_sync(self) -> None:
        """A sync that began before the cut does not make the new bytes durable."""
        box = self.box
        jobs = hold_jobs(box)
        log = box.store.commit_log
        waiting = box.store.flush.flushed(log.max_offset)
        assert waiting is not None
        waiting.addErrback(lambda failure: failure.trap(StoreError) and "cut")
        ((job, done),) = jobs
        box.ledger.truncate(35)
        cut = log.max_offset
        box.append(*numbered(30, 300))
        job()
        done.callback(None)
        self.assertEqual(log.flushed_offset, cut)
        self.assertEqual(self.successResultOf(waiting), "cut")
        self.assertEqual(len(self.entries(box)), 66)

    def hold_cuts(self) -> list[tuple[Callable[[], None], Deferred[None]]]:
        """Hold the jobs of threads, and let every cut leave its work to one."""
        self.box.ledger.cut_size_max = 0
        return hold_jobs(self.box)

    def test_a_large_cut_is_finished_in_a_thread(self) -> None:
        """The log ends there at once, and takes no entries before the thread is done."""
        box, ledger = self.box, self.box.ledger
        jobs = self.hold_cuts()
        ledger.truncate(30)
        ((job, done),) = jobs
        self.assertEqual(self.entries(box), self.agreed)
        # The index of a long log is large as well.
        self.assertNotEqual(self.units(box, 31), bytes(UNIT_SIZE))
        late = self.entries(self.make_leader())[31:]
        self.assertRaises(EntryRefused, ledger.append, late)
        self.assertRaises(EntryRefused, ledger.truncate, -1)
        self.assertRaises(EntryRefused, ledger.restart, self.agreed[0])
        refusal = self.assertRaises(StoreError, ledger.append_barrier, 2, box.now_ms)
        # A leader takes a refused entry for a fault of its own.
        self.assertNotIsInstance(refusal, EntryRefused)
        self.assertNoResult(box.store.log_cut.finished())
        job()
        self.assertIn(self.units(box, 31), (b"", bytes(UNIT_SIZE)))
        done.callback(None)
        self.copy_to(box, late)
        other = self.make()
        self.copy_to(other, self.entries(box))
        self.assertEqual(self.data(box), self.data(other))

    def units(self, box: LedgerBox, index: int) -> bytes:
        """Return the unit of an entry in the files, if there is one."""
        start, at = divmod(index * UNIT_SIZE, box.index_file_size)
        path = f"{LEDGER_FOLDER}/index/{start * box.index_file_size:020d}"
        return box.disk.read_file(path)[at : at + UNIT_SIZE] if box.disk.exists(path) else b""

    def test_a_kill_in_the_middle_of_a_large_cut(self) -> None:
        """The index is cut before the log, and the next start makes its units again."""
        before = self.entries(self.box)
        jobs = self.hold_cuts()
        self.box.ledger.truncate(30)
        with patch.object(type(self.box.disk), "clear_from", side_effect=OSError(5, "killed")):
            self.assertRaises(OSError, jobs[0][0])
        again = self.box.after_kill()
        self.assertEqual(self.entries(again), before)

    def test_a_large_cut_of_everything(self) -> None:
        """The thread removes all files, and the log begins with another entry."""
        box = self.make()
        box.ledger.leading_term = 1
        box.append(*numbered(40))
        box.ledger.cut_size_max = 0
        jobs = hold_jobs(box)
        box.ledger.truncate(-1)
        ((job, done),) = jobs
        self.assertNotEqual(self.units(box, 0), b"")
        self.assertRaises(EntryRefused, box.ledger.append, self.agreed)
        job()
        self.assertEqual(self.units(box, 0), b"")
        done.callback(None)
        self.copy_to(box, self.agreed)
        self.assertEqual(self.entries(box.after_kill()), self.agreed)

    def make_leader(self) -> LedgerBox:
        """Return a leader of a later term with the entries that were agreed, and more."""
        leader = self.make()
        self.copy_to(leader, self.agreed)
        leader.commit()
        leader.lead_term(3)
        leader.append(*numbered(45, 200))
        return leader

    def test_a_kill_may_undo_a_large_cut(self) -> None:
        """Then the entries are there again, and are cut again."""
        before = self.entries(self.box)
        self.hold_cuts()
        self.box.ledger.truncate(30)
        again = self.box.after_kill()
        self.assertEqual(self.entries(again), before)
        again.ledger.truncate(30)
        self.assertEqual(self.entries(again), self.agreed)

    def test_a_large_cut_that_fails(self) -> None:
        """The store takes nothing any more."""
        jobs = self.hold_cuts()
        self.box.ledger.truncate(30)
        ((_, done),) = jobs
        done.errback(OSError(5, "broken"))
        self.assertIn("could not be cut", self.box.store.fault(takes_messages=False))
        self.assertRaises(StoreError, self.box.ledger.append, self.agreed)

    def test_everything_can_be_cut(self) -> None:
        """A ledger without committed entries can become empty, and then begins with
        another entry.
        """
        box = self.make()
        box.ledger.leading_term = 1
        box.append(*numbered(40))
        box.ledger.truncate(-1)
        self.assertEqual((box.ledger.begin_index, box.ledger.end_index), (-1, -1))
        self.copy_to(box, self.agreed)
        self.assertEqual(self.entries(box), self.agreed)
        self.assertEqual(self.entries(box.after_kill()), self.agreed)


class RestartTests(LedgerCase):
    """A follower whose log ends before that of the leader begins."""

    def setUp(self) -> None:
        self.leader = self.make()
        self.leader.lead_term(1)
        self.leader.append(*numbered(90))
        self.leader.commit()
        self.entries_of_leader = self.entries(self.leader)
        self.first = next(entry for entry in self.entries_of_leader
                          if entry.position == 3 * FILE_SIZE)
        self.follower = self.make()
        self.copy_to(self.follower, self.entries_of_leader[:20])
        self.follower.ledger.commit(15)

    def test_it_begins_where_the_leader_does(self) -> None:
        """The old files are deleted, and the queues continue with the offsets of
        the new messages.
        """
        follower, first = self.follower, self.first
        follower.ledger.restart(first)
        self.assertEqual((follower.ledger.begin_index, follower.ledger.end_index),
                         (first.index, first.index))
        self.copy_to(follower, self.entries_of_leader[first.index + 1:])
        follower.commit()
        kept = self.entries_of_leader[first.index:]
        self.assertEqual(self.entries(follower), kept)
        self.assertEqual(follower.store.commit_log.min_offset, first.position)
        for box in (follower, follower.after_kill()):
            box.commit()
            self.assertEqual(
                [body for body in box.bodies("T") if body],
                [decode_record(entry.body).body for entry in kept])
            self.assertEqual(box.store.queues.max_offset("T", 0), 90)

    def test_a_thread_removes_the_old_files(self) -> None:
        """The log begins there at once, and takes no entries before the thread is done."""
        follower, folder = self.follower, f"{LEDGER_FOLDER}/data"
        old = follower.disk.list_directory(folder)
        jobs = hold_jobs(follower)
        follower.ledger.cut_size_max = 0
        follower.ledger.restart(self.first)
        late = self.entries_of_leader[self.first.index + 1:]
        self.assertEqual(self.entries(follower), [self.first])
        self.assertRaises(EntryRefused, follower.ledger.append, late)
        self.assertEqual(set(follower.disk.list_directory(folder)) & set(old), set(old))
        ((job, done),) = jobs
        job()
        done.callback(None)
        self.assertEqual(len(follower.disk.list_directory(folder)), 1)
        self.copy_to(follower, late)
        self.assertEqual(self.entries(follower), [self.first, *late])

    def test_a_new_ledger_takes_entries_at_once(self) -> None:
        """It has no files that a thread would remove."""
        new = self.make()
        jobs = hold_jobs(new)
        new.ledger.restart(self.first)
        self.copy_to(new, self.entries_of_leader[self.first.index + 1:])
        self.assertEqual(jobs, [])

    def test_a_kill_before_the_old_files_are_removed(self) -> None:
        """The next start removes them, and the log has its new beginning."""
        hold_jobs(self.follower)
        self.follower.ledger.cut_size_max = 0
        self.follower.ledger.restart(self.first)
        again = self.follower.after_kill()
        self.assertEqual(self.entries(again), [self.first])
        self.assertEqual(len(again.disk.list_directory(f"{LEDGER_FOLDER}/data")), 1)
        self.copy_to(again, self.entries_of_leader[self.first.index + 1:])

    def test_it_refuses_what_cannot_be(self) -> None:
        """A position at which no file starts, or before readable messages, is refused."""
        before = self.data(self.follower)
        second = self.entries_of_leader[self.first.index + 1]
        self.assertRaises(EntryRefused, self.follower.ledger.restart, second)
        self.assertRaises(StoreError, self.follower.ledger.restart, self.entries_of_leader[0])
        self.assertEqual(self.data(self.follower), before)


class RetentionTests(LedgerCase):
    """Old files are deleted."""

    def test_the_first_index_follows_the_first_file(self) -> None:
        """The ledger begins with the first entry of its first file, and finds all later ones."""
        box = self.make()
        box.lead_term(1)
        box.append(*numbered(400))
        box.commit()
        box.step(70_000, 40)
        while len(box.store.commit_log.starts) > 3:
            box.store.log_retention.remove_expired()
            box.now_ms += 100 * 3_600_000
            box.store.log_retention.step(box.now_ms)
        begin = box.ledger.begin_index
        self.assertGreater(begin, 300)
        entries = self.entries(box)
        self.assertEqual(entries[0].position, box.store.commit_log.min_offset)
        self.assertEqual(entries[-1].index, 400)
        self.assertRaises(StoreError, box.ledger.read, begin - 1, 1)
        # The files of the index follow, each with the units of 64 entries.
        first_file = box.disk.list_directory(f"{LEDGER_FOLDER}/index")[0]
        self.assertEqual(int(first_file), 5 * 64 * 32)
        again = box.after_kill()
        self.assertEqual(again.ledger.begin_index, begin)
        self.assertEqual(self.entries(again), entries)
