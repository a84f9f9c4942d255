"""The bytes of a unit, and the addresses of units."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.extension_unit import (
    ADDRESS_MAX,
    UNIT_SIZE_MAX,
    UNIT_SIZE_MIN,
    ExtensionUnit,
    address_of,
    is_address,
    place_of,
)
from twistmq.protocol.properties import tags_code

UNITS = (
    (ExtensionUnit(0, 0), "0014 0000000000000000 0000000000000000 0000"),
    (ExtensionUnit(-2, 1 << 40), "0014 fffffffffffffffe 0000010000000000 0000"),
    (ExtensionUnit(65, 7, b"\x01\x80"), "0016 0000000000000041 0000000000000007 0002 0180"),
)


class ExtensionUnitTests(SynchronousTestCase):
    """The class ExtensionUnit."""

    def test_a_unit_is_written_and_read_in_apaches_bytes(self) -> None:
        """This is so in the middle of others; tests/golden/extension has Apache's."""
        for unit, text in UNITS:
            data = bytes.fromhex(text)
            self.assertEqual((unit.encode(), unit.size), (data, len(data)), msg=text)
            self.assertEqual(ExtensionUnit.decode(b"???" + data + b"???", 3), unit, msg=text)

    def test_an_incomplete_unit_is_not_read(self) -> None:
        """A unit that is incomplete, zero, at the end of a file or inconsistent is refused."""
        for unit, text in UNITS:
            data = unit.encode()
            for size in range(len(data)):
                self.assertIsNone(ExtensionUnit.decode(data[:size]), msg=f"{text} {size}")
        for text in ("0000" * 20, "ffff" + "0000" * 20, "0015" + "0000" * 20,
                     "0014" + "0000" * 8 + "0001" + "0000" * 9,
                     "0013" + "0000" * 8 + "ffff" + "0000" * 9):
            self.assertIsNone(ExtensionUnit.decode(bytes.fromhex(text)), msg=text)
        self.assertIsNone(ExtensionUnit.decode(bytes(40), -1))

    def test_the_size_is_an_int16(self) -> None:
        """The size is an int16."""
        unit = ExtensionUnit(1, 2, bytes(UNIT_SIZE_MAX - UNIT_SIZE_MIN))
        self.assertEqual(ExtensionUnit.decode(unit.encode()), unit)

    def test_addresses_differ_from_tag_hashes_and_times(self) -> None:
        """An address is neither the hash of a tag nor a time."""
        for place in (0, 20, 1 << 40, place_of(ADDRESS_MAX)):
            self.assertTrue(is_address(address_of(place)), msg=place)
            self.assertEqual(place_of(address_of(place)), place)
        self.assertEqual(address_of(0), -(1 << 63))
        for code in (0, tags_code("polygenelubricants"), -(1 << 31), (1 << 31) - 1, 1 << 60):
            self.assertFalse(is_address(code), msg=code)
