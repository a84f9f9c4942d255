"""The bits of filters, compared with Apache's library."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.filter_sql92.bloom_filter import BloomFilter, bit_mask, murmur3_128_low

GOLDEN = Path(__file__).resolve().parents[2] / "golden/filter/bloom.json"


class BloomFilterTests(SynchronousTestCase):
    """The class ``BloomFilter``."""

    def test_sizes_and_bits_of_names_of_every_length(self) -> None:
        """A filter has the sizes and bits of Apache's library for names of every length."""
        rows = json.loads(GOLDEN.read_text())
        self.assertGreater(len(rows), 100)
        for row in rows:
            bloom = BloomFilter.of(row["error_rate"], row["names"])
            self.assertEqual((bloom.bit_num, bloom.hash_num), (row["bit_num"], row["hash_num"]),
                             msg=str(row))
            for name, positions in row["positions"].items():
                self.assertEqual(list(bloom.positions(name)), positions, msg=f"{name} {row}")

    def test_murmur3_of_nothing_is_0(self) -> None:
        """Murmur3 of no bytes is 0, and every byte changes the result."""
        self.assertEqual(murmur3_128_low(b""), 0)
        data = bytes(range(40))
        hashes = {murmur3_128_low(data[:end]) for end in range(41)}
        hashes |= {murmur3_128_low(data[:at] + b"\xff" + data[at + 1:]) for at in range(40)}
        self.assertEqual(len(hashes), 81)

    def test_bit_b_is_bit_b_8_of_byte_b_8(self) -> None:
        """Bit b is bit b % 8 of byte b // 8."""
        self.assertEqual(bit_mask([36, 12, 100]).to_bytes(14, "little").hex(),
                         "0010000010000000000000001000")
