"""Shares of a bounded resource: each host may use a part of the amount that other hosts leave free.

Therefore no host can use all of it, and each further host still gets some.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

__all__ = ["Shares"]

Owner = TypeVar("Owner")


class Shares(Generic[Owner]):
    """The amount of a resource, such as bytes or places, that each owner has."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: Counter[Owner] = Counter()

    def amount(self, owner: Owner) -> int:
        """Return the amount that an owner has."""
        return self._of[owner]

    def add(self, owner: Owner, amount: int) -> None:
        """Give an owner an amount; a negative amount is returned."""
        self.total += amount
        self._of[owner] += amount
        if not self._of[owner]:
            del self._of[owner]

    def maximum(self, owner: Owner, limit: int, part: int = 2) -> int:
        """Return an owner's maximum: one of ``part`` equal parts of the amount others left."""
        room = limit - (self.total - self._of[owner])
        return max(room // part, min(room, 1))

    def clear(self) -> None:
        """Forget all shares."""
        self.total = 0
        self._of.clear()
