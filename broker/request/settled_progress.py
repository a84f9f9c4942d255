"""Progress of work on messages, saved only as far as nothing can undo it.

Work such as the delivery of delayed messages appends records and then counts as done. A loss of
power may remove these records, and where replicas have a say, so may another broker that becomes
master. Progress that is saved, or copied to another broker, must not count such work as done.

Source: none.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from twistmq.broker.store.message_store import MessageStore

__all__ = ["SettledProgress"]

P = TypeVar("P")

#: The number of values that wait. When there are more, the newest one replaces the one before it,
#: so that memory is bounded, and progress continues in larger steps.
_WAITING_MAX: Final = 64


class SettledProgress(Generic[P]):
    """The values of one progress that wait until the log is settled, and the newest settled one.

    :param value: the progress at the start, as it was saved.
    """

    def __init__(self, store: MessageStore, value: P) -> None:
        self._store = store
        self._value = value
        #: The end of the log when the settled value was noted.
        self._end = store.commit_log.max_offset
        #: (end of the log that must be settled, value), in order.
        self._waiting: deque[tuple[int, P]] = deque()

    def note(self, value: P) -> None:
        """Note the current progress, which depends on all records of the log.

        :param value: must not be changed afterwards.
        """
        end = self._store.commit_log.max_offset
        if self._waiting and (
                self._waiting[-1][0] == end or len(self._waiting) >= _WAITING_MAX):
            self._waiting.pop()
        self._waiting.append((end, value))

    @property
    def settled(self) -> P:
        """The newest settled value."""
        settled_offset = self._store.settled_offset
        while self._waiting and self._waiting[0][0] <= settled_offset:
            self._end, self._value = self._waiting.popleft()
        return self._value

    @property
    def settled_end(self) -> int:
        """The end of the log when the settled value was noted; later work is beyond it."""
        self.settled  # noqa: B018
        return self._end

    @property
    def waits(self) -> bool:
        """Whether some values are not settled yet."""
        self.settled  # noqa: B018
        return bool(self._waiting)

    def agreed_value(self, current: P) -> P:
        """Return the value that other brokers of the group may have.

        :param current: the current progress. A replica that copies the log may have it, because it
            uses it only once its log is as long as this one. Where replicas have a say, the end of
            this log may still be removed, so they get the settled value.
        """
        return current if self._store.dispatch.confirm_follows else self.settled

    def reset(self, value: P) -> None:
        """Replace all values, because another broker has determined the progress."""
        self._waiting.clear()
        self._end, self._value = self._store.commit_log.max_offset, value

    def go_back(self) -> P:
        """Forget the values that are not settled; :returns: the newest settled one."""
        value = self.settled
        self._waiting.clear()
        return value
