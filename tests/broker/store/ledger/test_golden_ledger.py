"""Ledgers that Apache's brokers wrote are opened, compared entry by entry, and written again."""

from __future__ import annotations

import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.ledger.golden import CASES, FIRST_COUNT, GOLDEN_SIZES, GoldenBox, unpack
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.entry_heads import ENTRY_FILLER, ENTRY_HEAD, ENTRY_HEAD_SIZE, UNIT_SIZE
from twistmq.broker.store.ledger.state_files import (
    LedgerCheckpoint,
    read_checkpoint,
    read_hard_state,
    write_checkpoint,
)
from twistmq.broker.testing.ledger_store import LEDGER_FOLDER, LedgerBox
from twistmq.broker.testing.store import message
from twistmq.protocol.record import StoredMessage, decode_record, has_queue_entry

TOPIC = "GoldenReplica"


class GoldenLedgerTests(SynchronousTestCase):
    """The stores in tests/golden/dledger; see tests/interop/capture_ledger.py."""

    def open(self, version: str, state: str) -> tuple[GoldenBox, Path]:
        """Open one of the stores, which is stopped after the test."""
        root = Path(self.mktemp()).absolute()
        unpack(version, state, root)
        box = GoldenBox.over(root)
        self.addCleanup(box.store.close)
        return box, root

    def records(self, box: LedgerBox) -> list[StoredMessage]:
        """Return the messages of all entries, after a check of their CRCs."""
        return [decode_record(entry.body) for entry in box.ledger.read(0, 1 << 30)]

    def test_every_message_is_there(self) -> None:
        """All sent messages are entries, and the queues have the messages that
        Apache's broker had.
        """
        for version, state in CASES:
            box, _ = self.open(version, state)
            case = f"{version} {state}"
            box.commit()
            records = self.records(box)
            bodies = {record.body.split()[0] for record in records
                      if record.topic == TOPIC and b" " in record.body}
            sent = range(FIRST_COUNT if state == "stopped" else FIRST_COUNT + 30)
            usual = {b"%d" % number for number in sent if number % 10 not in (2, 4, 5)}
            self.assertLessEqual(usual, bodies, case)
            for queue_id in range(4):
                expected = [record.body for record in records
                            if record.topic == TOPIC and record.queue_id == queue_id
                            and has_queue_entry(record.sys_flag)]
                self.assertEqual(box.bodies(TOPIC, queue_id), expected, case)

    def test_the_group_agreed_on_what_its_checkpoint_says(self) -> None:
        """Before more is agreed on, messages are readable up to the committed entry."""
        for version, state in CASES:
            box, root = self.open(version, state)
            checkpoint = read_checkpoint(box.disk, f"{root}/dledger-n0")
            self.assertGreater(checkpoint.committed_index, FIRST_COUNT, (version, state))
            end = box.ledger.end_of(min(checkpoint.committed_index, box.ledger.end_index))
            self.assertEqual(box.store.dispatch.offset, end)
            if state == "stopped":
                self.assertEqual(end, box.store.commit_log.max_offset)
            hard_state = read_hard_state(box.disk, f"{root}/dledger-n0")
            self.assertEqual(hard_state.vote, "n0")
            self.assertGreaterEqual(hard_state.term, box.ledger.term_at(box.ledger.end_index))

    def test_our_ledger_of_the_same_entries_has_the_same_bytes(self) -> None:
        """The entries, fillers and units that we write are equal to those of Apache's broker."""
        for version, state in CASES:
            box, root = self.open(version, state)
            ours = LedgerBox(**GOLDEN_SIZES).open()
            ours.ledger.append(box.ledger.read(0, 1 << 30))
            for path in sorted((root / "dledger-n0/data").iterdir()):
                data = ours.disk.read_file(f"{LEDGER_FOLDER}/data/{path.name}")
                self.assertEqual(data, path.read_bytes(), (version, state, path.name))
            size = UNIT_SIZE * (box.ledger.end_index + 1)
            units = b"".join(
                ours.disk.read_file(f"{LEDGER_FOLDER}/index/{name}")
                for name in ours.disk.list_directory(f"{LEDGER_FOLDER}/index"))
            with open(root / f"dledger-n0/index/{0:020d}", "rb") as theirs:
                self.assertEqual(units[:size], theirs.read(size))

    def test_an_end_in_the_middle_of_a_roll(self) -> None:
        """A kill between the filler of a file and the first entry of the next one."""
        for (version, state), case in zip(
                CASES[::2], ("no file", "zeros", "a part of a head"), strict=True):
            root = Path(self.mktemp()).absolute()
            unpack(version, state, root)
            last = self.end_at_filler(root / "dledger-n0", case)
            box = GoldenBox.over(root)
            self.addCleanup(box.store.close)
            self.assertEqual(box.ledger.end_index, last, (version, case))
            box.commit()
            box.lead_term(99)
            (record,) = box.append(message("T", b"after the roll"))
            box.commit()
            self.assertEqual(box.bodies("T"), [b"after the roll"])
            entries = box.ledger.read(0, 1 << 30)
            self.assertEqual(record.physical_offset, entries[-1].position + ENTRY_HEAD_SIZE)
            again = box.after_kill()
            self.addCleanup(again.store.close)
            self.assertEqual(again.ledger.read(0, 1 << 30), entries)
            self.assertEqual(entries[-1].index, last + 2)

    def end_at_filler(self, ledger: Path, case: str) -> int:
        """Leave what a kill leaves in the middle of the first roll; :returns: the last index.

        :param case: what there is of the next file.
        """
        first, second, *others = sorted((ledger / "data").iterdir())
        data, at, last = first.read_bytes(), 0, -1
        while data[at : at + 4] != ENTRY_FILLER:
            _, size, last, *_ = ENTRY_HEAD.unpack_from(data, at)
            at += size
        for path in others:
            path.unlink()
        head = second.read_bytes()[:16]
        second.unlink()
        if case != "no file":
            second.write_bytes((head if case == "a part of a head" else b"").ljust(
                len(data), b"\0"))
        with (ledger / f"index/{0:020d}").open("r+b") as index:
            index.seek(UNIT_SIZE * (last + 1))
            index.write(bytes(UNIT_SIZE * 400))
        write_checkpoint(RealDisk(), str(ledger), LedgerCheckpoint(last - 1, last))
        # Its queues never have messages that are not in the log.
        shutil.rmtree(ledger.parent / "consumequeue")
        return last

    def test_it_goes_on(self) -> None:
        """Our broker appends to each of the stores, and finds every message again."""
        for version, state in CASES:
            box, root = self.open(version, state)
            before = box.ledger.end_index
            box.commit()
            box.lead_term(99)
            box.append(*[message("T", b"new %d" % number) for number in range(80)])
            box.commit()
            entries = box.ledger.read(0, 1 << 30)
            self.assertEqual(entries[-1].index, before + 81)
            self.successResultOf(box.store.stop())
            again = GoldenBox.over(root)
            self.addCleanup(again.store.close)
            self.assertEqual(again.ledger.read(0, 1 << 30), entries)
            self.assertEqual(len(again.bodies("T")), 80)
