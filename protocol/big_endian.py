"""Numbers in bytes, the highest byte first, read without an object for each.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: java.nio.ByteBuffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read numbers faster.
    from mypy_extensions import i64

__all__ = ["int16_at", "int32_at", "int64_at", "uint16_at", "uint32_at"]


def uint16_at(data: bytes, at: i64) -> i64:
    """Read two bytes as a number without a sign."""
    high: i64 = data[at]
    low: i64 = data[at + 1]
    return high << 8 | low


def uint32_at(data: bytes, at: i64) -> i64:
    """Read four bytes as a number without a sign."""
    first: i64 = data[at]
    second: i64 = data[at + 1]
    third: i64 = data[at + 2]
    fourth: i64 = data[at + 3]
    return first << 24 | second << 16 | third << 8 | fourth


def int16_at(data: bytes, at: i64) -> i64:
    """Read two bytes as a number with a sign."""
    value: i64 = uint16_at(data, at)
    return value - (1 << 16) if value >= 1 << 15 else value


def int32_at(data: bytes, at: i64) -> i64:
    """Read four bytes as a number with a sign."""
    value: i64 = uint32_at(data, at)
    return value - (1 << 32) if value >= 1 << 31 else value


def int64_at(data: bytes, at: i64) -> i64:
    """Read eight bytes as a number with a sign."""
    return int32_at(data, at) << 32 | uint32_at(data, at + 4)
