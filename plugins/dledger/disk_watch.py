"""The watch over the disk of a leader, which gives the lead away when the disk takes no messages.

Nothing in the agreement notices a full disk of a leader: its heartbeats go on, and all sends are
refused. Without syncs for each send, the same holds for a disk that fails or hangs. The leader
therefore offers the lead to the other members, the one that lacks the fewest entries first. If none
of them takes it, a leader whose disk is full keeps the lead, because consumers can still read and
old files may expire. A leader whose disk fails or hangs gives up the lead in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.plugins.dledger.node import GroupNode
from twistmq.plugins.dledger.storage_driver import HANG_MS
from twistmq.raft.events import StorageFailed
from twistmq.raft.messages import ResponseCode

if TYPE_CHECKING:
    from twistmq.broker.api.ledger import EntryLog
    from twistmq.broker.api.store import MessageStore

__all__ = ["LOOK_MS", "DiskWatch"]

#: How often the disk is looked at, ms.
LOOK_MS: Final = 250
#: How long no member is asked again after all have refused, ms.
_AGAIN_MS: Final = 1000


class DiskWatch:
    """Looks at the disk of one member while the member leads.

    :param log: the log of the store.
    :param now_ms: a steady clock in ms.
    """

    log = Logger()

    def __init__(
        self, store: MessageStore, log: EntryLog, node: GroupNode, now_ms: Callable[[], int],
    ) -> None:
        self._store, self._log, self._node, self._now_ms = store, log, node, now_ms
        self._is_offering = False
        self._next_ms = 0
        #: Whether it was logged that no member takes the lead.
        self._is_told = False
        #: The end of the durable part of the log when that end last moved, or no sync ran.
        self._flushed = -1
        self._flushed_ms = 0
        #: Whether the last ``rest_ms`` found nothing to do, and ``look`` was not called since.
        self._is_resting = False

    def rest_ms(self) -> int | None:
        """Return how long :meth:`look` has nothing to do, ms; None while the disk works."""
        is_running = self._store.flush.is_running
        if is_running and self._is_resting:
            # The sync has begun during the rest, so its time without progress counts from now.
            self._note_progress()
        has_work = (is_running or self._is_told or self._is_offering
                    or (self._node.member.is_established
                        and (self._store.fault(takes_messages=False) or self._find_fullness())))
        self._is_resting = not has_work
        return 0 if has_work else None

    def look(self, _: int = 0) -> None:
        """Offer the lead when the disk takes no messages; periodic."""
        if self._is_resting:
            # Under load, the rest ends without another call of ``rest_ms``.
            self._is_resting = False
            self._note_progress()
        lasting, passing = self._find_fault(), self._find_fullness()
        if not self._node.member.is_established or not (lasting or passing):
            self._is_told = False
        elif not self._is_offering and self._now_ms() >= self._next_ms:
            self._is_offering = True
            Deferred.fromCoroutine(self._offer(lasting or passing, is_lasting=bool(lasting)))

    def _find_fault(self) -> str:
        """Return why the disk does not work; empty while it does."""
        return self._store.fault(takes_messages=False) or self._find_hang()

    def _find_fullness(self) -> str:
        """Return why the log takes no messages although the disk works; empty while it does."""
        if self._store.log_retention.disk_full:
            return "the disk usage is above diskSpaceWarningLevelRatio"
        return self._log.write_fault

    def _find_hang(self) -> str:
        """Return why the disk counts as hanging; empty while it does not."""
        if not self._store.flush.is_running or self._log.flushed_offset != self._flushed:
            self._note_progress()
        elif self._now_ms() - self._flushed_ms >= HANG_MS:
            return f"the disk has not answered for {HANG_MS} ms"
        return ""

    def _note_progress(self) -> None:
        """Count the time without progress of a sync from now on."""
        self._flushed, self._flushed_ms = self._log.flushed_offset, self._now_ms()

    async def _offer(self, reason: str, *, is_lasting: bool) -> None:
        node = self._node
        try:
            for peer in self._list_peers():
                code = await node.transfer_lead(peer)
                if code is ResponseCode.SUCCESS or not node.member.is_established:
                    self.log.warn("this broker accepts no messages ({reason}), so the lead was "
                                  "offered to {peer}: {code}", reason=reason, peer=peer,
                                  code=code.name)
                    return
            if is_lasting:
                node.pass_event(StorageFailed(reason))
            elif not self._is_told:
                self._is_told = True
                self.log.error("this broker accepts no messages ({reason}), and no other member "
                               "takes the lead", reason=reason)
        finally:
            self._is_offering = False
            self._next_ms = self._now_ms() + _AGAIN_MS

    def _list_peers(self) -> list[str]:
        """List the members that may take the lead, the one that lacks the fewest entries first."""
        able = [(progress.lag, progress.peer) for progress in self._node.member.list_progress()
                if progress.lag is not None and progress.is_reachable]
        return [peer for _, peer in sorted(able)]
