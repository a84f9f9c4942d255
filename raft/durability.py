"""The part of the log that counts at this member: the written entries, or the synced ones."""

from twistmq.raft.actions import FlushLog
from twistmq.raft.log import Log
from twistmq.raft.outbox import Outbox

__all__ = ["Durability"]


class Durability:
    """Requests syncs of the log, and knows up to which index the log is durable.

    The entries that the log has at the start count as durable: the driver has synced them.
    """

    def __init__(self, log: Log, outbox: Outbox, *, is_needed: bool) -> None:
        """``is_needed`` is False when written entries count without a sync."""
        self._log = log
        self._outbox = outbox
        self._is_needed = is_needed
        self._durable_index = log.end_index
        self._number = 0
        #: The syncs in flight: the number, and the index up to which the log becomes durable.
        self._syncs: dict[int, int] = {}
        self._is_changed = False

    @property
    def durable_index(self) -> int:
        """The last entry that counts at this member; -1: none does."""
        return self._durable_index if self._is_needed else self._log.end_index

    def log_appended(self) -> None:
        """Note that entries were appended; their sync is requested at the end of the turn."""
        self._is_changed = True

    def log_cut(self, end_index: int) -> None:
        """Note that the entries after an index were dropped.

        A sync in flight may have covered these entries. It does not count for the new entries
        that get the same indexes.
        """
        self._durable_index = min(self._durable_index, end_index)
        self._syncs = {number: min(index, end_index) for number, index in self._syncs.items()}
        self._is_changed = True

    def request_sync(self) -> None:
        """Request a sync if the log has changed in this turn."""
        if self._is_changed and self._is_needed:
            self._number += 1
            self._syncs[self._number] = self._log.end_index
            self._outbox.add(FlushLog(self._number))
        self._is_changed = False

    def sync_ended(self, number: int) -> None:
        """Note that the sync with this number and all earlier syncs have succeeded."""
        assert number <= self._number, "a sync ends that was never requested"
        ended = [ended for ended in self._syncs if ended <= number]
        self._durable_index = max([self._durable_index, *map(self._syncs.pop, ended)])
