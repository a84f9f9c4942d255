"""How much of the log counts as this member's: what is written, or what is synced."""

from twistmq.raft.actions import FlushLog
from twistmq.raft.log import Log
from twistmq.raft.outbox import Outbox

__all__ = ["Durability"]


class Durability:
    """Requests syncs of the log, and knows up to which index the log is durable.

    The entries of the log at a start count as durable: the driver has synced them.
    """

    def __init__(self, log: Log, outbox: Outbox, *, is_needed: bool) -> None:
        """``is_needed`` is False when written entries count without a sync."""
        self._log = log
        self._outbox = outbox
        self._is_needed = is_needed
        self._durable_index = log.end_index
        self._number = 0
        #: By the number of each sync under way: the index up to which it makes the log durable.
        self._syncs: dict[int, int] = {}
        self._is_changed = False

    @property
    def durable_index(self) -> int:
        """The last entry that counts at this member; -1: none does."""
        return self._durable_index if self._is_needed else self._log.end_index

    def log_appended(self) -> None:
        """Entries were appended; the end of the turn requests their sync."""
        self._is_changed = True

    def log_cut(self, end_index: int) -> None:
        """The entries behind an index have been dropped.

        A sync under way may have covered them; the entries that get their indexes are others.
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
        """The sync with this number, and those before it, have ended well."""
        assert number <= self._number, "a sync ends that was never requested"
        ended = [ended for ended in self._syncs if ended <= number]
        self._durable_index = max([self._durable_index, *map(self._syncs.pop, ended)])
