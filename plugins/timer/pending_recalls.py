"""The recalls that wait for their slot, so that a second one of the same message is left out.

A program that is not sure sends a recall again. The first one takes the message back, wherever in
the slot they are; the second one would only count once more.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PendingRecalls"]

#: Recalls that are remembered, each some 70 bytes. One that is sent again beyond these counts until
#: its slot is done.
COUNT_MAX: Final = 100_000


class PendingRecalls:
    """The recalls of one broker that were entered since the start, by the tick of their message."""

    def __init__(self) -> None:
        #: Hashes of what ``delete_key`` gives, by tick, Unix ms.
        self._keys: dict[int, set[int]] = {}
        self._count = 0

    def has(self, tick_ms: int, key: str) -> bool:
        """Whether a message is recalled already."""
        return hash(key) in self._keys.get(tick_ms, ())

    def add(self, tick_ms: int, key: str) -> None:
        """A recall was entered."""
        if self._count < COUNT_MAX and not self.has(tick_ms, key):
            self._keys.setdefault(tick_ms, set()).add(hash(key))
            self._count += 1

    def discard(self, tick_ms: int, key: str) -> None:
        """A recall is rolled: it will be entered again."""
        keys = self._keys.get(tick_ms)
        if keys is None or hash(key) not in keys:
            return
        keys.discard(hash(key))
        self._count -= 1
        if not keys:
            del self._keys[tick_ms]

    def forget(self, tick_ms: int) -> None:
        """The slot of a tick is done."""
        self._count -= len(self._keys.pop(tick_ms, ()))
