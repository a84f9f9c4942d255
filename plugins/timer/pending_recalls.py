"""The recalls that wait for their slot; a second recall of the same message is left out.

A program that is not sure about its recall sends it again. The first recall takes effect wherever
in the slot the message and the recall are, so a second one would only distort the count.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PendingRecalls"]

#: The number of recalls that are remembered, at some 70 bytes each. A repetition of a recall beyond
#: them counts until its slot is finished.
COUNT_MAX: Final = 100_000


class PendingRecalls:
    """The recalls of one broker that were entered since the start, by the message's tick."""

    def __init__(self) -> None:
        #: For each tick, Unix ms, the hashes of the keys that ``delete_key`` returned.
        self._keys: dict[int, set[int]] = {}
        self._count = 0

    def has(self, tick_ms: int, key: str) -> bool:
        """Whether a message was recalled already."""
        return hash(key) in self._keys.get(tick_ms, ())

    def add(self, tick_ms: int, key: str) -> None:
        """Note that a recall was entered."""
        if self._count < COUNT_MAX and not self.has(tick_ms, key):
            self._keys.setdefault(tick_ms, set()).add(hash(key))
            self._count += 1

    def discard(self, tick_ms: int, key: str) -> None:
        """Forget a recall that is rolled, since it will be entered again."""
        keys = self._keys.get(tick_ms)
        if keys is None or hash(key) not in keys:
            return
        keys.discard(hash(key))
        self._count -= 1
        if not keys:
            del self._keys[tick_ms]

    def clear(self) -> None:
        """Forget all recalls, since they will be entered again."""
        self._keys.clear()
        self._count = 0

    def forget(self, tick_ms: int) -> None:
        """Forget the recalls of a tick whose slot is finished."""
        self._count -= len(self._keys.pop(tick_ms, ()))
