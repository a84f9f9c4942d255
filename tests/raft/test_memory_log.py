"""The log in memory fulfils the interface of a log."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import entries_of
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.messages import Entry


class MemoryLogTests(SynchronousTestCase):
    """A log with the entries 4 to 7."""

    def setUp(self) -> None:
        """Make the log."""
        self.log = MemoryLog(entries_of(1, 1, 2, 2, first=4))

    def test_its_ends(self) -> None:
        """An empty log has neither a first nor a last entry."""
        self.assertEqual((self.log.begin_index, self.log.end_index), (4, 7))
        self.assertEqual((MemoryLog().begin_index, MemoryLog().end_index), (-1, -1))

    def test_entries_up_to_a_size(self) -> None:
        """At least one entry is returned."""
        self.assertEqual([entry.index for entry in self.log.read(5, 2)], [5, 6])
        self.assertEqual([entry.index for entry in self.log.read(5, 0)], [5])
        self.assertEqual([entry.index for entry in self.log.read(6, 99)], [6, 7])

    def test_an_entry_is_held_if_all_of_it_is_equal(self) -> None:
        """The term, the body and the position count."""
        entry = self.log.entries[1]
        self.assertTrue(self.log.has_entry(entry))
        for other in (Entry(5, 2, entry.body), Entry(5, 1, b"?"), Entry(5, 1, entry.body, 48),
                      Entry(9, 1), Entry(3, 1)):
            self.assertFalse(self.log.has_entry(other), other)
        self.assertFalse(MemoryLog().has_entry(entry))

    def test_appending_and_cutting(self) -> None:
        """A cut below the first entry leaves an empty log."""
        self.log.extend(3, [b"x", b"y"])
        self.log.append_barrier(3)
        self.log.append(entries_of(4, first=11))
        self.assertEqual([self.log.term_at(index) for index in range(7, 12)], [2, 3, 3, 3, 4])
        self.log.truncate(8)
        self.assertEqual(self.log.end_index, 8)
        self.log.truncate(3)
        self.assertEqual(self.log.end_index, -1)
        self.log.truncate(-1)
        self.assertEqual(self.log.end_index, -1)

    def test_a_new_beginning_and_the_loss_of_old_entries(self) -> None:
        """The last entry always remains."""
        self.log.drop_before(6)
        self.assertEqual(self.log.begin_index, 6)
        self.log.drop_before(100)
        self.assertEqual((self.log.begin_index, self.log.end_index), (7, 7))
        self.log.restart(Entry(20, 5))
        self.assertEqual((self.log.begin_index, self.log.end_index), (20, 20))
