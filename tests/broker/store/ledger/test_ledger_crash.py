"""The process or the power fails at every change of the disk in the life of a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tests.every_change import EveryChangeCase
from twistmq.broker.store.ledger.ledger import StoredEntry
from twistmq.broker.store.ledger.state_files import (
    HardState,
    read_hard_state,
    write_hard_state,
)
from twistmq.broker.testing.ledger_store import LEDGER_FOLDER, LedgerBox
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import message
from twistmq.protocol.record import decode_record, has_queue_entry

FILE_SIZE = 2048


class _Box(LedgerBox):
    """Files of the log for six messages, and of the index for eight entries."""

    index_file_size = 32 * 8

    def stop(self) -> None:
        """Stop without a flush."""
        self.store.close()


class EveryChangeTests(EveryChangeCase):
    """A member appends, votes, cuts, follows, deletes old files, and is restarted at an entry."""

    box: _Box  # type: ignore[assignment]
    told: ClassVar[tuple[str, ...]] = ("floor", "ceiling", "giving", "other", "votes")

    def begin(self) -> None:
        """Create an empty ledger."""
        self.disk = PowerLossDisk()
        #: Entries that must be there, and those that may be there, of which these are a part.
        self.floor: list[StoredEntry] = []
        self.ceiling: list[StoredEntry] = []
        #: The bodies of messages that are being appended.
        self.giving: list[bytes] = []
        #: What may be there instead, while the log changes as a whole.
        self.other: list[list[StoredEntry]] = []
        #: The votes of which one must be there.
        self.votes: list[HardState | None] = [None]
        self.box = self.open()

    def open(self) -> _Box:
        return _Box(self.disk, flush_disk_type="SYNC_FLUSH", max_index_num=12,
                    mapped_file_size_commit_log=FILE_SIZE).open()

    # --- what a member does

    def flush(self) -> None:
        """Flush the log, so that all entries are durable."""
        flushed = self.box.store.flush.flushed(self.box.store.commit_log.max_offset)
        if flushed is not None:
            self.successResultOf(flushed)
        self.floor = list(self.ceiling)

    def lead(self, term: int, count: int, at_once: int = 3) -> None:
        """Append messages of a term."""
        box = self.box
        box.ledger.leading_term = term
        begin = len(self.floor)
        for number in range(begin, begin + count, at_once):
            box.now_ms += 1000
            records = [message("T", b"%d-%d " % (term, number + each) * 30,
                               keys=f"t{term}n{number + each}") for each in range(at_once)]
            # The bytes may be on disk before the test learns of the entries.
            self.giving = [record.body for record in records]
            box.append(*records)
            self.ceiling = list(box.ledger.read(box.ledger.begin_index, 1 << 30))
            self.giving = []
            self.flush()

    def follow(self, entries: Sequence[StoredEntry], at_once: int = 2) -> None:
        """Append entries of another leader, some at a time."""
        for at in range(0, len(entries), at_once):
            some = entries[at : at + at_once]
            self.ceiling = [*self.floor, *some]
            self.box.now_ms += 1000
            self.box.ledger.append(some)
            self.flush()

    def cut(self, end_index: int) -> None:
        """Cut entries that are not committed; a thread finishes every other cut."""
        self.box.ledger.cut_size_max = 0 if end_index % 2 else 1 << 30
        self.floor = [entry for entry in self.floor if entry.index <= end_index]
        self.box.ledger.truncate(end_index)
        self.ceiling = list(self.floor)

    def restart(self, entry: StoredEntry) -> None:
        """Restart the ledger at an entry of another member."""
        self.other = [[entry], []]
        self.box.ledger.restart(entry)
        self.floor, self.ceiling, self.other = [entry], [entry], []

    def vote(self, state: HardState) -> None:
        """Make a vote durable."""
        self.votes = [self.votes[-1], state]
        write_hard_state(self.disk, LEDGER_FOLDER, state)
        self.votes = [state]

    def steps(self, elapsed_ms: int) -> None:
        self.box.step(elapsed_ms)
        self.box.step(0, 20)

    def live(self) -> None:
        """Do everything that a ledger can do."""
        self.vote(HardState(1, "n0"))
        self.lead(1, 12)
        self.box.commit()
        self.steps(70_000)
        self.lead(1, 6)
        # Another member leads term 2 with a log that has half of the tail.
        leader = LedgerBox(mapped_file_size_commit_log=FILE_SIZE).open()
        leader.now_ms = self.box.now_ms
        leader.ledger.append(self.floor[:14])
        leader.commit()
        leader.lead_term(2)
        for number in range(60):
            leader.append(message("T", b"new %d " % number * 30, keys=f"new{number}"))
        leader.commit()
        entries = leader.ledger.read(0, 1 << 30)
        self.vote(HardState(2, "n1"))
        self.cut(16)
        self.cut(13)
        self.follow(entries[14:24])
        self.box.ledger.commit(20)
        self.steps(70_000)
        self.box.ledger.commit(23)
        self.drop_first_file()
        self.steps(70_000)
        first = next(entry for entry in entries[40:] if entry.position % FILE_SIZE == 0)
        self.restart(first)
        self.follow(entries[first.index + 1 : first.index + 7], 1)
        self.box.commit()
        self.steps(70_000)

    def drop_first_file(self) -> None:
        """Delete the oldest file."""
        retention, log = self.box.store.log_retention, self.box.store.commit_log
        if len(log.starts) < 2:
            return
        second = log.starts[1]
        self.other = [list(self.floor)]
        retention.remove_expired()
        self.box.now_ms += 100 * 3_600_000
        kept = [entry for entry in self.floor if entry.position >= second]
        self.floor, self.ceiling, self.other = kept, list(kept), [list(self.ceiling)]
        retention.step(self.box.now_ms)
        self.assertEqual(log.min_offset, second)

    # --- what must be there

    def look(self, end: str) -> int:
        """Check the log, the index, the queue and the vote, and that no
        acknowledged entry is lost.
        """
        if end != "no end":
            self.box = self.open()
        box, ledger = self.box, self.box.ledger
        actual = [] if ledger.begin_index < 0 else list(ledger.read(ledger.begin_index, 1 << 30))
        if actual not in self.other:
            self.assertEqual(actual[: len(self.floor)], self.floor, end)
            more = actual[len(self.floor) :]
            if self.giving:
                self.assertEqual([decode_record(entry.body).body for entry in more],
                                 self.giving[: len(more)], end)
            else:
                self.assertEqual(actual, self.ceiling[: len(actual)], end)
        self.assertIn(read_hard_state(self.disk, LEDGER_FOLDER), self.votes, end)
        self.check_units(actual, end)
        self.check_readable([entry for entry in actual if entry.index <= ledger.committed_index],
                            end)
        # The member goes on, as the leader of another term.
        box.commit()
        box.lead_term(9)
        box.append(*[message("T", b"late %d " % number * 30, keys=f"late{number}")
                     for number in range(9)])
        box.commit()
        entries = ledger.read(ledger.begin_index, 1 << 30)
        self.assertEqual(list(entries[: len(actual)]), actual, end)
        self.check_readable(entries, end)
        return int(len(actual) > len(self.floor) or actual in self.other)

    def check_units(self, entries: Sequence[StoredEntry], end: str) -> None:
        """Check that the index has a unit for each entry, and none after the last one."""
        ledger, index = self.box.ledger, self.box.entry_log.index
        for entry in entries:
            self.assertTrue(ledger.has_entry(entry), end)
        self.assertFalse(any(index.read(ledger.end_index + 1, 20)), end)

    def check_readable(self, entries: Sequence[StoredEntry], end: str) -> None:
        """Check that the queue has exactly these messages, and that their keys are found."""
        store = self.box.store
        bodies = [entry.body for entry in entries
                  if has_queue_entry(decode_record(entry.body).sys_flag)]
        records = [decode_record(body) for body in bodies]
        for body, record in zip(bodies, records, strict=True):
            found = store.get_message("T", 0, record.queue_offset, 1).messages
            self.assertEqual(found, [body], end)
            key = record.properties_map()["KEYS"]
            places = [decode_record(each).physical_offset
                      for each in store.reader.query("T", key, 64, 0, 2**62)[0]]
            self.assertEqual(places, [record.physical_offset], (end, key))
        queue = store.queues.find("T", 0)
        if queue is not None and records:
            self.assertEqual(queue.max_offset, records[-1].queue_offset + 1, end)
        if queue is not None:
            self.assertLessEqual(queue.max_physical, store.dispatch.confirm_offset, end)
        self.assertEqual(store.dispatch.offset, store.dispatch.confirm_offset, end)

    def test_a_kill(self) -> None:
        """The process is killed at each change."""
        self.killed_at_every_change()

    def test_a_loss_of_power(self) -> None:
        """The power fails at each change."""
        self.cut_at_every_change()
