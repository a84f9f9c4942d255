"""Numbers in bytes, compared with those of the standard library."""

from __future__ import annotations

import struct

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.big_endian import int16_at, int32_at, int64_at, uint16_at, uint32_at

_READERS = {"h": int16_at, "H": uint16_at, "i": int32_at, "I": uint32_at, "q": int64_at}


class NumberTests(SynchronousTestCase):
    """Each reader at its bounds, between other bytes."""

    def test_all_bits(self) -> None:
        """Every single bit, and all below it, with and without the others."""
        for letter, read in _READERS.items():
            size = struct.calcsize(letter)
            for bit in range(size * 8):
                for bits in (1 << bit, (1 << bit) - 1, (1 << size * 8) - 1 ^ 1 << bit):
                    data = b"\xa5" + bits.to_bytes(size, "big") + b"\x5a"
                    self.assertEqual(read(data, 1), struct.unpack_from(f">{letter}", data, 1)[0],
                                     msg=f"{letter} {bits:x}")

    def test_too_few_bytes(self) -> None:
        """An incomplete number raises IndexError."""
        for letter, read in _READERS.items():
            self.assertRaises(IndexError, read, bytes(struct.calcsize(letter)), 1)
