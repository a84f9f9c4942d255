"""Shares of a bounded resource: each host may use a part of what the other hosts left.

So no host uses all of it, and each further host still gets some.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

__all__ = ["Shares"]

Owner = TypeVar("Owner")


class Shares(Generic[Owner]):
    """How much of one thing each owner has: bytes, places."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: Counter[Owner] = Counter()

    def of(self, owner: Owner) -> int:
        """How much an owner has."""
        return self._of[owner]

    def add(self, owner: Owner, amount: int) -> None:
        """An owner takes an amount; a negative one is given back."""
        self.total += amount
        self._of[owner] += amount
        if not self._of[owner]:
            del self._of[owner]

    def most(self, owner: Owner, limit: int, part: int = 2) -> int:
        """How much an owner may have in all: one of ``part`` equal parts of what others left."""
        room = limit - (self.total - self._of[owner])
        return max(room // part, min(room, 1))

    def clear(self) -> None:
        """Forget all shares."""
        self.total = 0
        self._of.clear()
