"""Reads big-endian numbers from bytes without making an object for each number.

This is a leaf module of the hot path. It is typed so that mypyc can compile it.

Source: java.nio.ByteBuffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only mypyc uses this import: machine integers make reading numbers faster.
    from mypy_extensions import i64

__all__ = ["int16_at", "int32_at", "int64_at", "uint16_at", "uint32_at"]


def uint16_at(data: bytes, at: i64) -> i64:
    """Read two bytes as an unsigned number."""
    high: i64 = data[at]
    low: i64 = data[at + 1]
    return high << 8 | low


def uint32_at(data: bytes, at: i64) -> i64:
    """Read four bytes as an unsigned number."""
    first: i64 = data[at]
    second: i64 = data[at + 1]
    third: i64 = data[at + 2]
    fourth: i64 = data[at + 3]
    return first << 24 | second << 16 | third << 8 | fourth


def int16_at(data: bytes, at: i64) -> i64:
    """Read two bytes as a signed number."""
    value: i64 = uint16_at(data, at)
    return value - (1 << 16) if value >= 1 << 15 else value


def int32_at(data: bytes, at: i64) -> i64:
    """Read four bytes as a signed number."""
    value: i64 = uint32_at(data, at)
    return value - (1 << 32) if value >= 1 << 31 else value


def int64_at(data: bytes, at: i64) -> i64:
    """Read eight bytes as a signed number."""
    return int32_at(data, at) << 32 | uint32_at(data, at + 4)
