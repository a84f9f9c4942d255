"""Counts the bytes of the log in the last second, as tools and metrics show them."""

from __future__ import annotations

from typing import Final

__all__ = ["ByteRate"]

_SECOND_MS: Final = 1000


class ByteRate:
    """Counts bytes by the second.

    :param now_ms: the time, on a clock that does not jump.
    """

    def __init__(self, now_ms: int) -> None:
        self._second_ms = now_ms
        #: The bytes of the current second and of the previous one.
        self._bytes = self._bytes_before = 0

    def add(self, size: int, now_ms: int) -> None:
        """Count bytes."""
        elapsed_ms = now_ms - self._second_ms
        if elapsed_ms >= _SECOND_MS:
            self._bytes_before = self._bytes if elapsed_ms < 2 * _SECOND_MS else 0
            self._second_ms, self._bytes = now_ms, 0
        self._bytes += size

    def in_second(self, now_ms: int) -> int:
        """Return the number of bytes in the last whole second."""
        self.add(0, now_ms)
        return self._bytes_before
