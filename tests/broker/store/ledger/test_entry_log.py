"""The recovery of a ledger: its end, its index, and its committed entries."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.ledger.test_ledger import FILE_SIZE, numbered
from twistmq.broker.store.entry_heads import UNIT_SIZE
from twistmq.broker.store.ledger.ledger import StoredEntry
from twistmq.broker.store.ledger.state_files import LedgerCheckpoint, read_checkpoint
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.ledger_store import LEDGER_FOLDER, LedgerBox
from twistmq.broker.testing.store import message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import MessageRecord

COUNT = 130


class RecoveryTests(SynchronousTestCase):
    """A box with 130 messages, some of which the group did not agree on."""

    disk: MemoryDisk

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = LedgerBox(self.disk, mapped_file_size_commit_log=FILE_SIZE).open()
        self.box.lead_term(2)
        self.box.append(*numbered(COUNT))
        self.box.ledger.commit(COUNT - 20)
        self.whole = self.entries(self.box)

    def entries(self, box: LedgerBox) -> tuple[StoredEntry, ...]:
        return box.ledger.read(0, 1 << 30)

    def index_bytes(self, box: LedgerBox) -> bytes:
        """Return the bytes of the whole index."""
        folder = f"{LEDGER_FOLDER}/index"
        return b"".join(self.disk.read_file(f"{folder}/{name}")
                        for name in self.disk.list_directory(folder))

    def write(self, part: str, position: int, data: bytes) -> None:
        """Overwrite bytes of the log (``data``) or of the index, whose files follow each other."""
        size = FILE_SIZE if part == "data" else LedgerBox.index_file_size
        while data:
            start = position - position % size
            piece = data[: start + size - position]
            file = self.disk.open_file(f"{LEDGER_FOLDER}/{part}/{start:020d}")
            file.write_at(position - start, piece)
            file.close()
            position, data = position + len(piece), data[len(piece):]

    def test_after_a_kill_all_entries_are_there(self) -> None:
        """After a kill the log has all entries, and the queues have only the committed messages."""
        self.box.step(70_000, 40)
        self.box.ledger.commit(COUNT - 5)
        again = self.box.after_kill()
        self.assertEqual(self.entries(again), self.whole)
        self.assertEqual(again.ledger.committed_index, COUNT - 20)
        self.assertEqual(len(again.bodies("T")), COUNT - 20)
        self.assertEqual(again.store.dispatch.confirm_offset, again.ledger.end_of(COUNT - 20))
        again.commit()
        self.assertEqual(again.bodies("T"), [record.body for record in numbered(COUNT)])
        found = [again.store.reader.query("T", f"k{number}", 9, 0, 2**62)[0]
                 for number in range(COUNT)]
        self.assertEqual(found, [[entry.body] for entry in self.whole[1:]])

    def test_after_a_stop_the_tail_is_kept(self) -> None:
        """A clean stop saves the committed index; the entries after it wait for the group."""
        again = self.box.after_stop()
        self.assertEqual(read_checkpoint(self.disk, LEDGER_FOLDER),
                         LedgerCheckpoint(COUNT - 20, COUNT))
        self.assertEqual(self.entries(again), self.whole)
        self.assertEqual(len(again.bodies("T")), COUNT - 20)
        again.commit()
        self.assertEqual(len(again.bodies("T")), COUNT)
        self.assertEqual(len(again.after_stop().bodies("T")), COUNT)

    def test_entries_of_queues_beyond_what_was_agreed_on(self) -> None:
        """Entries that are not committed are removed from queues and index."""
        self.box.commit()
        self.box.step(70_000, 40)
        self.disk.write_file(f"{LEDGER_FOLDER}/checkpoint", b"committedIndex=50\nendIndex=130\n")
        again = self.box.after_kill()
        self.assertEqual(len(again.bodies("T")), 50)
        again.ledger.truncate(60)
        again.lead_term(5)
        again.append(*[message("T", b"other", keys=f"k{number}") for number in range(100, 140)])
        again.commit()
        for end in (None, LedgerBox.after_kill, LedgerBox.after_stop):
            box = again = again if end is None else end(again)
            box.commit()
            self.assertEqual(box.bodies("T"), [
                record.body for record in numbered(60)] + [b"other"] * 40)
            (record,) = box.store.reader.query("T", "k110", 9, 0, 2**62)[0]
            self.assertIn(b"other", record)

    def test_the_index_is_rebuilt(self) -> None:
        """Missing or wrong units are written again, at whatever place they are."""
        expected = self.index_bytes(self.box)
        self.box.store.close()
        for name, damage in (
            ("nothing", lambda: None),
            ("a lost tail", lambda: self.write("index", 90 * UNIT_SIZE, bytes(41 * UNIT_SIZE))),
            ("a hole", lambda: self.write("index", 70 * UNIT_SIZE, bytes(UNIT_SIZE))),
            ("another unit", lambda: self.write("index", 80 * UNIT_SIZE, b"\1" * UNIT_SIZE)),
            ("no index", lambda: self.disk.remove(f"{LEDGER_FOLDER}/index")),
            ("an old tail", lambda: self.write("index", 131 * UNIT_SIZE, b"\1" * UNIT_SIZE * 9)),
        ):
            damage()
            again = self.box._again().open()
            self.assertEqual(self.entries(again), self.whole, name)
            self.assertEqual(self.index_bytes(again), expected, name)
            again.store.close()

    def test_after_a_stop_a_lost_index_is_rebuilt(self) -> None:
        """A start after a clean stop reads all heads when the index does not cover the log."""
        self.successResultOf(self.box.store.stop())
        self.disk.remove(f"{LEDGER_FOLDER}/index")
        again = self.box._again().open()
        self.assertEqual(self.entries(again), self.whole)

    def test_a_torn_tail(self) -> None:
        """The log ends before an entry whose head or record is incomplete."""
        last, before = self.whole[-1], self.whole[-2]
        whole = b"".join(self.disk.read_file(f"{LEDGER_FOLDER}/data/{name}")
                         for name in self.disk.list_directory(f"{LEDGER_FOLDER}/data"))
        size = 48 + len(last.body)
        self.box.store.close()
        for kept in (4, 20, 30, 46, 48, 60, 100, 140, size - 1):
            self.write("data", last.position + kept, bytes(size - kept))
            again = self.box._again().open()
            self.assertEqual(again.ledger.end_index, before.index, kept)
            self.assertEqual(self.entries(again), self.whole[:-1], kept)
            self.assertFalse(any(self.index_bytes(again)[(last.index) * UNIT_SIZE:]), kept)
            again.store.close()
            self.write("data", last.position, whole[last.position : last.position + size])

    def test_what_does_not_continue_ends_the_log(self) -> None:
        """The log ends before an entry whose head has another index or a term that is too low."""
        entry = self.whole[125]
        self.box.store.close()
        for at, value in ((8, (126).to_bytes(8, "big")), (16, (1).to_bytes(8, "big"))):
            self.write("data", entry.position + at, value)
            again = self.box._again().open()
            self.assertEqual(again.ledger.end_index, 124)
            again.store.close()
            self.setUp()
            self.box.store.close()

    def test_a_sync_of_the_index_that_fails(self) -> None:
        """Queue entries then do not count as durable, so that recovery reads the log again."""
        self.box.commit()
        synced = self.box.store.upkeep.synced_offset
        failing = self.box.entry_log.index.sync_job()
        self.disk.fail_sync_in = 1
        self.assertRaises(StoreError, failing)
        self.disk.fail_sync_in = None
        self.assertRaises(StoreError, self.box.entry_log.index.sync_job())
        self.box.step(70_000, 40)
        self.assertEqual(self.box.store.upkeep.synced_offset, synced)
        again = self.box.after_kill()
        again.commit()
        again.step(70_000, 40)
        self.assertGreater(again.store.upkeep.synced_offset, synced)

    def test_an_empty_ledger(self) -> None:
        """A new ledger has no entries, before and after a restart."""
        box = LedgerBox(MemoryDisk()).open()
        for end in (LedgerBox.after_kill, LedgerBox.after_stop, LedgerBox.after_kill):
            self.assertEqual((box.ledger.begin_index, box.ledger.end_index), (-1, -1))
            box = end(box)

    def test_raw_messages_are_the_records(self) -> None:
        """An iteration over the raw log returns the positions of the records,
        without their heads.
        """
        found = list(self.box.store.raw.messages(0))
        self.assertEqual(found, [
            (entry.position + 48, len(entry.body)) for entry in self.whole])
        self.assertRaises(StoreError, list, self.box.store.raw.messages(48))


class BatchTests(SynchronousTestCase):
    """Light queues, batches and queue extensions work with heads."""

    def test_batch_queues(self) -> None:
        """Recovery makes the entries of a batch queue again."""
        from twistmq.broker.testing.store import inner_batch

        box = LedgerBox(mapped_file_size_commit_log=FILE_SIZE)
        box.batch_topics = {"B"}
        box.open()
        box.lead_term(1)
        records: list[MessageRecord] = [
            inner_batch("B", [b"%d" % number, b"x" * 40]) for number in range(50)]
        box.append(*records)
        box.commit()
        self.assertEqual(box.store.queues.max_offset("B", 0), 100)
        again = box.after_kill()
        again.commit()
        self.assertEqual(again.store.queues.max_offset("B", 0), 100)
