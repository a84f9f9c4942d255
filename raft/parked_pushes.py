"""Pushes that have overtaken earlier ones and wait until the gap before them is closed."""

from dataclasses import dataclass

from twistmq.raft.messages import PushRequest

__all__ = ["ParkedPush", "ParkedPushes"]


@dataclass(frozen=True, slots=True)
class ParkedPush:
    """A push that waits, with the number of its question and the time at which it is given up."""

    question: int
    request: PushRequest
    deadline_ms: int

    @property
    def size(self) -> int:
        """The bytes of the bodies."""
        return sum(len(entry.body) for entry in self.request.entries)


class ParkedPushes:
    """Pushes that wait, each by its first index, within a limit of bytes."""

    def __init__(self, bytes_max: int) -> None:
        """Begin without a push."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_first: dict[int, ParkedPush] = {}

    @property
    def next_deadline(self) -> int | None:
        """When the first push is given up; None: no push is parked."""
        if not self._by_first:
            return None
        return min(parked.deadline_ms for parked in self._by_first.values())

    def add_push(self, parked: ParkedPush, next_index: int) -> list[ParkedPush] | None:
        """Park a push.

        :param next_index: the index that the log needs next. A push that has it always has room,
            because it is taken at once. Otherwise pushes that overtake it could keep it out.
        :returns: the pushes that it replaces, or None if there is no room for it.
        """
        first = parked.request.entries[0].index
        replaced = self._take_first(first)
        if first > next_index and self._bytes + parked.size > self._bytes_max:
            if replaced is not None:
                self._by_first[first] = replaced
                self._bytes += replaced.size
            return None
        self._by_first[first] = parked
        self._bytes += parked.size
        return [replaced] if replaced is not None else []

    def take_up_to(self, index: int) -> ParkedPush | None:
        """Return the push with the lowest index if that is not above ``index``."""
        first = min(self._by_first, default=None)
        return self._take_first(first) if first is not None and first <= index else None

    def take_expired(self, now_ms: int) -> list[ParkedPush]:
        """Return all pushes if one has waited too long: the gap before them stays open."""
        deadline_ms = self.next_deadline
        return self.take_all() if deadline_ms is not None and deadline_ms <= now_ms else []

    def take_all(self) -> list[ParkedPush]:
        """Return all pushes and forget them."""
        pushes = list(self._by_first.values())
        self._by_first.clear()
        self._bytes = 0
        return pushes

    def _take_first(self, first: int) -> ParkedPush | None:
        parked = self._by_first.pop(first, None)
        if parked is not None:
            self._bytes -= parked.size
        return parked
