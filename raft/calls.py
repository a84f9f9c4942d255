"""The requests of this member that are not answered yet."""

from typing import Generic, TypeVar

__all__ = ["Call", "Calls"]

Purpose = TypeVar("Purpose")


class Call(Generic[Purpose]):
    """A request in flight. ``purpose`` is a value that its sender keeps with the call."""

    __slots__ = ("deadline_ms", "peer", "purpose", "sent_ms")

    def __init__(self, peer: str, sent_ms: int, deadline_ms: int, purpose: Purpose) -> None:
        """``deadline_ms`` is the time at which the call is given up."""
        self.peer = peer
        self.sent_ms = sent_ms
        self.deadline_ms = deadline_ms
        self.purpose = purpose


class Calls(Generic[Purpose]):
    """The calls of one part of a member by their numbers, the oldest first."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._by_number: dict[int, Call[Purpose]] = {}
        #: No call expires before this time. It may be too early after calls were answered.
        self._earliest_ms = 0

    def __len__(self) -> int:
        """Return how many calls are under way."""
        return len(self._by_number)

    def __contains__(self, number: int) -> bool:
        """Return whether a call is under way."""
        return number in self._by_number

    def has_call_to(self, peer: str) -> bool:
        """Return whether a call to this peer is under way."""
        return any(call.peer == peer for call in self._by_number.values())

    def add_call(self, number: int, call: Call[Purpose]) -> None:
        """Remember a call that has just been sent."""
        if not self._by_number or call.deadline_ms < self._earliest_ms:
            self._earliest_ms = call.deadline_ms
        self._by_number[number] = call

    def take_call(self, number: int) -> Call[Purpose] | None:
        """Return a call that has ended and forget it; None if it is not one of these."""
        return self._by_number.pop(number, None)

    def take_expired(self, now_ms: int) -> list[Call[Purpose]]:
        """Return the calls whose time is over and forget them."""
        if not self._by_number or now_ms < self._earliest_ms:
            return []
        expired = [number for number, call in self._by_number.items() if call.deadline_ms <= now_ms]
        expired_calls = [self._by_number.pop(number) for number in expired]
        self._earliest_ms = min((call.deadline_ms for call in self._by_number.values()), default=0)
        return expired_calls

    @property
    def next_deadline(self) -> int | None:
        """A time before which no call expires; None without a call."""
        return self._earliest_ms if self._by_number else None

    def forget_all(self) -> None:
        """Forget all calls, so that answers to them are ignored."""
        self._by_number.clear()
