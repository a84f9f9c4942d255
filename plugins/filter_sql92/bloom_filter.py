"""The bits of a group's filter in the bitmap of a message.

Each pair of a group and a topic has a few bits, derived from a hash of their names. If one of them
is not set in a bitmap, the filter does not match the message. If all of them are set, the filter
may match: other filters may have set the same bits. Bit b of a bitmap is bit b % 8 of byte b // 8.

Source: BloomFilter, BitsArray @5.3.3; Guava's Hashing.murmur3_128.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["BloomFilter", "bit_mask", "murmur3_128_low"]

_MASK_64: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


def _rotate(value: int, count: int) -> int:
    return ((value << count) | (value >> (64 - count))) & _MASK_64


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK_64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33


def murmur3_128_low(data: bytes) -> int:
    """Hash with Murmur3, x64, 128 bits, seed 0; :returns: the first 64 bits, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1, k2 = _BLOCK.unpack_from(data, at)
        h1 ^= _rotate(k1 * _C1 & _MASK_64, 31) * _C2 & _MASK_64
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK_64
        h2 ^= _rotate(k2 * _C2 & _MASK_64, 33) * _C1 & _MASK_64
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK_64
    k1, k2 = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
    h1 ^= _rotate(k1 * _C1 & _MASK_64, 31) * _C2 & _MASK_64
    h2 ^= _rotate(k2 * _C2 & _MASK_64, 33) * _C1 & _MASK_64
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK_64
    h2 = (h2 + h1) & _MASK_64
    return (_finish(h1) + _finish(h2)) & _MASK_64


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def bit_mask(positions: Iterable[int]) -> int:
    """Return the bits at these positions as a little-endian number."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The number of bits in a bitmap, and the number of bits for each name."""

    bit_num: int
    hash_num: int

    @classmethod
    def of(cls, error_rate: int, names: int) -> BloomFilter:
        """Choose both numbers so that the share of names taken for another stays below a bound.

        :param error_rate: the bound in percent, from 1 to 99.
        :param names: the expected number of names, at least 1.
        """
        rate = error_rate / 100.0
        hash_num = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(names * (math.log(1 / rate) / math.log(2)) * (math.log(math.e)
                                                                       / math.log(2)))
        return cls(8 * math.ceil(bits / 8), hash_num)

    def positions(self, name: str) -> tuple[int, ...]:
        """Return the bit positions of a name."""
        hashed = murmur3_128_low(name.encode())
        low, high = _signed(hashed), _signed(hashed >> 32)
        bits = []
        for number in range(1, self.hash_num + 1):
            combined = _signed(low + number * high)
            bits.append((~combined if combined < 0 else combined) % self.bit_num)
        return tuple(bits)
