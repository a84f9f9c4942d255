"""The saves and syncs that a member requests, and the judgement whether its storage still works.

Saves of the hard state run one after the other. If several are requested while one runs, only the
last one is made, because it contains the others. A disk that hangs is treated like one that fails:
a leader whose disk does not answer for some seconds gives up the lead. After a failure, the member
tries its storage again from time to time.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.raft.events import Event, Flushed, HardStateSaved, StorageFailed, StorageRepaired
from twistmq.raft.hard_state import HardState

__all__ = ["HANG_MS", "RETRY_MS", "MemberStorage", "StorageDriver"]

#: The time after which a save or a sync counts as hanging, ms.
HANG_MS: Final = 5000
#: The time between two attempts to use a storage that has failed, ms.
RETRY_MS: Final = 5000
_NEVER_MS: Final = 1 << 62


class MemberStorage(Protocol):
    """The disk of a member."""

    def save(self, state: HardState) -> Deferred[None]:
        """Make a hard state durable; the Deferred fails when the disk does.

        Only one save runs at a time.
        """

    def flush(self) -> Deferred[None] | None:
        """Make the log durable as it is now.

        :returns: None if it is durable already. Fails when the disk does.
        """

    def fault(self) -> str:
        """Return why the log cannot be used; empty while it can."""


class StorageDriver:
    """Runs the saves and syncs of one node.

    :param pass_event: passes the results to the member.
    :param failure: returns why the member considers its storage unusable; empty: it works.
    :param now_ms: a steady clock in ms.
    """

    def __init__(
        self, storage: MemberStorage, pass_event: Callable[[Event], None],
        failure: Callable[[], str], now_ms: Callable[[], int],
    ) -> None:
        self._storage = storage
        self._pass_event = pass_event
        self._failure = failure
        self._now_ms = now_ms
        #: The state that waits for the end of the save that runs.
        self._unsaved: tuple[int, HardState] | None = None
        #: When the unfinished save and each unfinished sync began, in their order.
        self._save_began_ms: int | None = None
        self._flushes: dict[int, int] = {}
        self._retry_ms: int | None = None

    def save(self, number: int, state: HardState) -> None:
        """Make a hard state durable."""
        self._unsaved = number, state
        if self._save_began_ms is None:
            self._save_next()

    def _save_next(self) -> None:
        assert self._unsaved is not None
        number, state = self._unsaved
        self._unsaved = None
        self._save_began_ms = self._now_ms()
        self._storage.save(state).addCallbacks(self._saved, self._not_saved, (number,))

    def _saved(self, _: None, number: int) -> None:
        self._save_began_ms = None
        if self._unsaved is not None:
            self._save_next()
        self._pass_event(HardStateSaved(number))

    def _not_saved(self, failure: Failure) -> None:
        self._save_began_ms = self._unsaved = None
        self._pass_event(StorageFailed(f"the term and the vote cannot be saved: {failure.value}"))

    def flush(self, number: int) -> None:
        """Make the log durable as it is now."""
        waiting = self._storage.flush()
        if waiting is None:
            self._pass_event(Flushed(number))
            return
        self._flushes[number] = self._now_ms()
        waiting.addCallbacks(self._flushed, self._not_flushed, (number,), {}, (number,))

    def _flushed(self, _: None, number: int) -> None:
        self._flushes.pop(number, None)
        self._pass_event(Flushed(number))

    def _not_flushed(self, failure: Failure, number: int) -> None:
        self._flushes.pop(number, None)
        self._pass_event(StorageFailed(str(failure.value)))

    # --- judgement

    def fault(self) -> str:
        """Return why the log cannot be used; empty while it can."""
        return self._storage.fault()

    @property
    def _oldest_ms(self) -> int:
        """When the oldest unfinished save or sync began."""
        save_ms = _NEVER_MS if self._save_began_ms is None else self._save_began_ms
        return min(save_ms, next(iter(self._flushes.values()), _NEVER_MS))

    @property
    def next_check_ms(self) -> int:
        """When ``check`` has something to do."""
        if self._retry_ms is not None:
            return self._retry_ms
        return self._now_ms() + RETRY_MS if self._failure() else self._oldest_ms + HANG_MS

    def check(self) -> None:
        """Report a disk that hangs, and try a storage that has failed again."""
        now_ms = self._now_ms()
        is_hanging = now_ms - self._oldest_ms >= HANG_MS
        if not self._failure():
            self._retry_ms = None
            if is_hanging:
                self._pass_event(StorageFailed(f"the disk has not answered for {HANG_MS} ms"))
        elif self._retry_ms is None:
            self._retry_ms = now_ms + RETRY_MS
        elif now_ms >= self._retry_ms:
            self._retry_ms = now_ms + RETRY_MS
            if not is_hanging and not self._storage.fault():
                self._pass_event(StorageRepaired())
