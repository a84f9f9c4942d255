"""The disk of a member: the file with its term and vote, and the syncs of its log."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from twistmq.broker.api.errors import StoreCut
from twistmq.broker.api.ledger import HardState as StoredState
from twistmq.broker.api.ledger import read_hard_state, write_hard_state
from twistmq.broker.api.store import MessageStore
from twistmq.raft.hard_state import HardState

__all__ = ["LedgerStorage"]


class LedgerStorage:
    """The ``MemberStorage`` of a broker whose log is a ledger.

    :param folder: the folder of the ledger.
    """

    def __init__(self, store: MessageStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def load(self) -> HardState | None:
        """Read the hard state; None when this member has never had one. Blocks.

        :raises StoreDamaged: when the file is not valid.
        """
        state = read_hard_state(self._store.io, self._folder)
        if state is None:
            return None
        # A process that was killed before it had synced the folder has left a state that a loss of
        # power could undo. The member relies on this state, so it must be durable.
        self._store.io.sync_path(self._folder)
        return HardState(state.term, state.vote, state.has_joined)

    def save(self, state: HardState) -> Deferred[None]:
        """See MemberStorage."""
        io, folder = self._store.io, self._folder
        stored = StoredState(state.term, state.voted_for, state.joined)
        return self._store.in_thread(lambda: write_hard_state(io, folder, stored))

    def flush(self) -> Deferred[None] | None:
        """See MemberStorage."""
        waiting = self._store.flush.flushed(self._store.commit_log.max_offset)
        return None if waiting is None else waiting.addErrback(self._flush_again)

    def _flush_again(self, failure: Failure) -> Deferred[None]:
        """Wait for the end of the log as it is now, if the log was cut in the meantime."""
        failure.trap(StoreCut)
        return self.flush() or succeed(None)

    def fault(self) -> str:
        """See MemberStorage."""
        if self._store.log_retention.disk_full:
            return "the disk usage is above diskSpaceWarningLevelRatio"
        return self._store.fault(takes_messages=False)
