"""The durable part of a log, and the effect of a cut on the syncs in flight."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import entries_of
from twistmq.raft.actions import FlushLog
from twistmq.raft.durability import Durability
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.outbox import Outbox


class DurabilityTests(SynchronousTestCase):
    """A log that has the entries 0 to 2 at its start."""

    def setUp(self) -> None:
        """Make the log."""
        self.log = MemoryLog(entries_of(1, 1, 1))
        self.outbox = Outbox()
        self.durability = Durability(self.log, self.outbox, is_needed=True)

    def _append(self, count: int) -> None:
        self.log.extend(2, [b""] * count)
        self.durability.log_appended()
        self.durability.request_sync()

    def test_entries_are_durable_when_their_sync_has_ended(self) -> None:
        """The entries of the start are durable at once."""
        self._append(1)
        self._append(1)
        self.assertEqual(self.outbox.take_actions(), [FlushLog(1), FlushLog(2)])
        self.assertEqual(self.durability.durable_index, 2)
        self.durability.sync_ended(1)
        self.assertEqual(self.durability.durable_index, 3)
        self.durability.sync_ended(2)
        self.assertEqual(self.durability.durable_index, 4)

    def test_a_turn_without_a_change_requests_no_sync(self) -> None:
        """A turn with several changes requests one sync."""
        self.durability.request_sync()
        self.durability.log_appended()
        self.durability.log_appended()
        self.durability.request_sync()
        self.durability.request_sync()
        self.assertEqual(self.outbox.take_actions(), [FlushLog(1)])

    def test_a_sync_does_not_cover_what_replaced_its_entries(self) -> None:
        """The sync covered other entries with the same indexes."""
        self._append(3)
        self.log.truncate(3)
        self.durability.log_cut(3)
        self._append(2)
        self.durability.sync_ended(1)
        self.assertEqual(self.durability.durable_index, 3)
        self.durability.sync_ended(2)
        self.assertEqual(self.durability.durable_index, 5)

    def test_a_cut_lowers_what_was_durable(self) -> None:
        """The entries that are appended afterwards are not durable yet."""
        self.log.truncate(0)
        self.durability.log_cut(0)
        self._append(2)
        self.assertEqual(self.durability.durable_index, 0)

    def test_without_syncs_written_entries_count(self) -> None:
        """No sync is requested."""
        self.durability = Durability(self.log, self.outbox, is_needed=False)
        self._append(2)
        self.assertEqual((self.durability.durable_index, self.outbox.take_actions()), (4, []))
