"""The file of a term and a vote, and the file of a ledger's checkpoint."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.ledger.state_files import (
    HardState,
    LedgerCheckpoint,
    read_checkpoint,
    read_hard_state,
    write_checkpoint,
    write_hard_state,
)
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.protocol.errors import StoreDamaged, StoreError

FOLDER = "/ledger"


class HardStateTests(SynchronousTestCase):
    """The term and the vote of a member."""

    def disk(self, **files: bytes) -> MemoryDisk:
        """A disk with files of the term, by the endings of their names."""
        disk = MemoryDisk()
        disk.make_directory(FOLDER)
        for ending, data in files.items():
            name = "currterm" if ending == "main" else f"currterm.{ending}"
            disk.write_file(f"{FOLDER}/{name}", data)
        return disk

    def test_it_is_read_as_it_was_written(self) -> None:
        """A saved state is read again; a new ledger has no state."""
        disk = self.disk()
        self.assertIsNone(read_hard_state(disk, FOLDER))
        for state in (HardState(), HardState(7, "n2"), HardState(8, "", True)):
            write_hard_state(disk, FOLDER, state)
            self.assertEqual(read_hard_state(disk, FOLDER), state)

    def test_a_file_of_apaches_member(self) -> None:
        """The lines may be in any order and contain blanks; such a member has joined its group."""
        disk = self.disk(main=b"#comment\ncurrTerm=12\nvoteLeader=\n")
        self.assertEqual(read_hard_state(disk, FOLDER), HardState(12, "", True))
        disk = self.disk(main=b"voteLeader = n1\r\ncurrTerm = 3\r\n")
        self.assertEqual(read_hard_state(disk, FOLDER), HardState(3, "n1", True))

    def test_the_file_is_missing_for_a_moment(self) -> None:
        """The newer state counts when Apache's member was killed between two steps."""
        old, new = b"voteLeader=n0\ncurrTerm=4\n", b"voteLeader=n1\ncurrTerm=5\n"
        for files in ({"tmp": new, "bak": old}, {"bak": new}, {"tmp": new}):
            self.assertEqual(read_hard_state(self.disk(**files), FOLDER), HardState(5, "n1", True))
        voted = self.disk(tmp=new, bak=b"voteLeader=\ncurrTerm=5\n")
        self.assertEqual(read_hard_state(voted, FOLDER), HardState(5, "n1", True))
        torn = self.disk(tmp=b"", bak=old)
        self.assertEqual(read_hard_state(torn, FOLDER), HardState(4, "n0", True))

    def test_a_damaged_file_is_no_new_beginning(self) -> None:
        """A file that cannot be read is an error, even beside a backup."""
        for data in (b"", b"\xff\xfe", b"currTerm=-1\n", b"currTerm=x\n", b"voteLeader=n0\n"):
            disk = self.disk(main=data, bak=b"currTerm=1\n")
            self.assertRaises(StoreDamaged, read_hard_state, disk, FOLDER)

    def test_a_disk_that_fails(self) -> None:
        """An error of the disk is reported as an error of the store, and the old state remains."""
        disk = FaultyDisk()
        disk.make_directory(FOLDER)
        write_hard_state(disk, FOLDER, HardState(1, "n0"))
        disk.fail_write_in = 1
        self.assertRaises(StoreError, write_hard_state, disk, FOLDER, HardState(2, "n1"))
        self.assertEqual(read_hard_state(disk, FOLDER), HardState(1, "n0"))

    def test_an_end_at_every_change(self) -> None:
        """After a kill or a loss of power either the old or the new state is read."""
        for number in range(1, 9):
            for loses_power in (False, True):
                disk = PowerLossDisk()
                disk.make_directory(FOLDER)
                disk.sync_path("/")
                write_hard_state(disk, FOLDER, HardState(1, "n0"))
                write_hard_state(disk, FOLDER, HardState(2, "n0"))
                disk.cut_in = number
                acknowledged = HardState(2, "n0")
                try:
                    write_hard_state(disk, FOLDER, HardState(3, "n1"))
                    acknowledged = HardState(3, "n1")
                except PowerCut:
                    pass
                if loses_power:
                    disk.crash(random.Random(number))
                else:
                    disk.kill()
                state = read_hard_state(disk, FOLDER)
                possible = {acknowledged, HardState(3, "n1")}
                self.assertIn(state, possible, (number, loses_power))


class CheckpointTests(SynchronousTestCase):
    """The checkpoint may be old, and may be missing."""

    def test_it_is_read_as_it_was_written(self) -> None:
        """Without a file nothing is committed."""
        disk = MemoryDisk()
        disk.make_directory(FOLDER)
        self.assertEqual(read_checkpoint(disk, FOLDER), LedgerCheckpoint())
        write_checkpoint(disk, FOLDER, LedgerCheckpoint(5, 9))
        self.assertEqual(read_checkpoint(disk, FOLDER), LedgerCheckpoint(5, 9))

    def test_a_damaged_file(self) -> None:
        """If the file is damaged, its backup is used; without one nothing is committed."""
        disk = MemoryDisk()
        disk.make_directory(FOLDER)
        disk.write_file(f"{FOLDER}/checkpoint", b"")
        self.assertEqual(read_checkpoint(disk, FOLDER), LedgerCheckpoint())
        disk.write_file(f"{FOLDER}/checkpoint.bak", b"committedIndex=3\nendIndex=4\n")
        self.assertEqual(read_checkpoint(disk, FOLDER), LedgerCheckpoint(3, 4))
        disk.write_file(f"{FOLDER}/checkpoint", b"committedIndex=-7\nendIndex=x\n")
        self.assertEqual(read_checkpoint(disk, FOLDER), LedgerCheckpoint(-1, -1))
