"""The ledger of a store, used as the log and the disk of a member."""

from __future__ import annotations

import contextlib
import random

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.ledger.state_files import HardState as StoredState
from twistmq.broker.store.ledger.state_files import write_hard_state
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.ledger_store import LEDGER_FOLDER, LedgerBox
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.broker.testing.store import message
from twistmq.plugins.dledger.ledger_log import LedgerLog
from twistmq.plugins.dledger.ledger_storage import LedgerStorage
from twistmq.protocol.errors import StoreDamaged
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import Log, LogError, LogRejected
from twistmq.raft.messages import Entry


class LogCase(SynchronousTestCase):
    """A ledger with a barrier of term 1 and three messages."""

    def make(self, disk: MemoryDisk | None = None, **settings: object) -> LedgerBox:
        return LedgerBox(disk, mapped_file_size_commit_log=4096, **settings).open()

    def setUp(self) -> None:
        self.box = self.make()
        self.box.lead_term(1)
        self.box.append(*[message("T", b"%d" % number) for number in range(3)])
        self.log = self.log_of(self.box)

    def log_of(self, box: LedgerBox) -> Log:
        return LedgerLog(box.ledger, lambda: box.now_ms)


class LedgerLogTests(LogCase):
    """The entries of the log, and errors of the store."""

    def test_entries_are_read_and_appended_elsewhere(self) -> None:
        """Another member gets the same log."""
        entries = self.log.read(0, 1 << 20)
        self.assertEqual([(entry.index, entry.term) for entry in entries],
                         [(0, 1), (1, 1), (2, 1), (3, 1)])
        self.assertEqual((self.log.begin_index, self.log.end_index, self.log.term_at(2)), (0, 3, 1))
        other = self.log_of(self.make())
        self.assertEqual((other.begin_index, other.end_index), (-1, -1))
        other.append(entries)
        self.assertEqual(other.read(0, 1 << 20), entries)
        self.assertTrue(all(map(other.has_entry, entries)))
        self.assertFalse(other.has_entry(Entry(3, 2, entries[3].body, entries[3].position)))

    def test_a_limit_of_bytes_gives_at_least_one_entry(self) -> None:
        """A push of one entry may be larger than the limit."""
        self.assertEqual(len(self.log.read(1, 1)), 1)

    def test_entries_after_an_index_are_dropped(self) -> None:
        """New entries take their positions."""
        self.log.truncate(1)
        self.log.append_barrier(2)
        self.assertEqual((self.log.end_index, self.log.term_at(2)), (2, 2))

    def test_the_log_begins_again_at_an_entry(self) -> None:
        """An entry at the beginning of a file is the only one."""
        other_box = self.make()
        other = self.log_of(other_box)
        first = self.log.read(0, 1)[0]
        other.restart(Entry(7, 3, self.moved(first.body, 4096), 4096))
        self.assertEqual((other.begin_index, other.end_index, other.term_at(7)), (7, 7, 3))

    def moved(self, body: bytes, position: int) -> bytes:
        """Return the record for another position of the log."""
        return body[:28] + (position + 48).to_bytes(8, "big") + body[36:]

    def test_an_entry_that_does_not_fit_is_rejected(self) -> None:
        """The log is unchanged."""
        last = self.log.read(3, 1)[0]
        for entry in (Entry(4, 1, b"no record", self.box.store.commit_log.max_offset),
                      Entry(9, 1, last.body, last.position)):
            with self.assertRaises(LogRejected):
                self.log.append([entry])
        with self.assertRaises(LogRejected):
            self.log.restart(Entry(9, 1, last.body, last.position))
        with self.assertRaises(LogRejected):
            self.log.extend(1, [b"no record"])
        self.assertEqual(self.log.end_index, 3)

    def test_a_failing_disk_and_a_closed_store_are_errors(self) -> None:
        """No entry is stored."""
        disk = FaultyDisk()
        box = self.make(disk)
        log = self.log_of(box)
        entries = self.log.read(0, 1 << 20)
        disk.room_bytes = 0
        with self.assertRaises(LogError):
            log.append(entries)
        with self.assertRaises(LogError):
            self.log.read(99, 1)
        with self.assertRaises(LogError):
            self.log.truncate(-1)


class LedgerStorageTests(LogCase):
    """The hard state, and syncs of the disk."""

    def setUp(self) -> None:
        super().setUp()
        self.storage = LedgerStorage(self.box.store, LEDGER_FOLDER)

    def test_a_hard_state_is_read_as_it_was_saved(self) -> None:
        """A new member has no hard state."""
        self.assertIsNone(self.storage.load())
        for state in (HardState(3, "n2", joined=True), HardState(4, "", joined=False)):
            self.successResultOf(self.storage.save(state))
            self.assertEqual(self.storage.load(), state)

    def test_a_state_that_was_read_outlives_a_loss_of_power(self) -> None:
        """A process that was killed in the middle of the save has not synced the folder."""
        found = set()
        for seed in range(20):
            disk = PowerLossDisk()
            self.storage = LedgerStorage(self.make(disk).store, LEDGER_FOLDER)
            self.successResultOf(self.storage.save(HardState(3, "", joined=True)))
            disk.cut_in = 3
            with contextlib.suppress(PowerCut):
                write_hard_state(disk, LEDGER_FOLDER, StoredState(3, "n2", has_joined=True))
            disk.kill()
            state = self.storage.load()
            found.add(state)
            disk.crash(random.Random(seed))
            self.assertEqual(self.storage.load(), state)
        self.assertEqual(found, {HardState(3, "n2", joined=True)})

    def test_a_damaged_file_is_not_taken_for_a_new_member(self) -> None:
        """A member that forgot its vote could vote twice."""
        self.successResultOf(self.storage.save(HardState(3, "n2", joined=True)))
        self.box.disk.write_file(f"{LEDGER_FOLDER}/currterm", b"currTerm=many\n")
        with self.assertRaises(StoreDamaged):
            self.storage.load()

    def test_a_sync_waits_for_the_end_of_the_log(self) -> None:
        """If the log is durable already, a sync ends immediately."""
        jobs: list[tuple[object, Deferred[None]]] = []

        def later(job: object) -> Deferred[None]:
            jobs.append((job, Deferred()))
            return jobs[-1][1]

        self.box.in_thread = later  # type: ignore[assignment]
        waiting = self.storage.flush()
        assert waiting is not None
        self.assertNoResult(waiting)
        self.log.truncate(2)
        while jobs:
            job, done = jobs.pop(0)
            job()  # type: ignore[operator]
            done.callback(None)
        self.assertIsNone(self.successResultOf(waiting))
        self.assertIsNone(self.storage.flush())
        self.assertEqual(self.box.store.commit_log.flushed_offset,
                         self.box.store.commit_log.max_offset)

    def test_the_fault_of_the_store_is_told(self) -> None:
        """A full disk is a fault as well."""
        self.assertEqual(self.storage.fault(), "")
        self.box.store.log_retention.disk_full = True
        self.assertIn("diskSpaceWarningLevelRatio", self.storage.fault())
