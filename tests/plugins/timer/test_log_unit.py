"""The bytes of the units of the timer log."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.timer.log_unit import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT_SIZE,
    LogUnit,
    decode_unit,
    encode_blank,
    encode_unit,
)

UNIT = LogUnit(-1, MAGIC_DEFAULT, 1_700_000_000_000, 5000, 4711, 321, -7)


class LogUnitTests(SynchronousTestCase):
    """Units are read as they were written, and nothing else is read as a unit."""

    def test_each_field_has_its_offset(self) -> None:
        """Each field has its own offset."""
        self.assertEqual(encode_unit(UNIT).hex(" ", 4), " ".join((
            "00000034", "ffffffff ffffffff", "00000001", "0000018b cfe56800", "00001388",
            "00000000 00001267", "00000141", "fffffff9", "00000000 00000000")))

    def test_a_blank_unit_has_its_size_and_apaches_magic(self) -> None:
        """It contains its size and Apache's magic number."""
        self.assertEqual(encode_blank(60).hex(" ", 4), "0000003c 00000000 00000000 cbd43194")

    def test_every_kind_of_unit_is_written_and_read(self) -> None:
        """Every kind of unit is tested."""
        for magic in (1, 3, 5, 7):
            unit = UNIT._replace(magic=magic, previous=52)
            self.assertEqual(decode_unit(encode_unit(unit)), unit)

    def test_what_is_no_unit(self) -> None:
        """Zeros, blanks, another size, another magic number, and units that are cut or torn."""
        good = encode_unit(UNIT)
        for name, data in (
            ("zeros", bytes(UNIT_SIZE)), ("blank", encode_blank(60).ljust(UNIT_SIZE, b"\0")),
            ("short", good[:-1]), ("size", b"\0\0\0\x33" + good[4:]),
            ("magic", good[:12] + b"\0\0\0\x02" + good[16:]),
            ("high magic", good[:12] + b"\0\0\0\x09" + good[16:]),
            *((f"torn at {at}", good[:at].ljust(UNIT_SIZE, b"\0")) for at in range(16)),
        ):
            self.assertIsNone(decode_unit(data), msg=name)

    def test_a_recall_counts_minus_one(self) -> None:
        """A unit that recalls a message counts minus one, or waits first if it is rolled."""
        kinds = {magic: (unit.is_rolled, unit.takes_back, unit.change)
                 for magic in (1, 3, 5, 7) for unit in (UNIT._replace(magic=magic),)}
        self.assertEqual(kinds, {
            MAGIC_DEFAULT: (False, False, 1),
            MAGIC_DEFAULT | MAGIC_ROLL: (True, False, 1),
            MAGIC_DEFAULT | MAGIC_DELETE: (False, True, -1),
            MAGIC_DEFAULT | MAGIC_ROLL | MAGIC_DELETE: (True, False, -1)})
        self.assertEqual(UNIT.slot_ms, 1_700_000_005_000)
