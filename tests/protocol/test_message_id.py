"""Offset ids and unique ids."""

from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.message_id import (
    UniqueIdMaker,
    offset_message_id,
    parse_offset_message_id,
)
from twistmq.protocol.record import host_bytes

#: (ip, port, physical offset, id); the first is from a log of Apache's broker.
OFFSET_CASES = [
    ("10.0.89.59", 10911, 240721, "0A00593B00002A9F000000000003AC51"),
    ("127.0.0.1", 21911, 0, "7F000001000055970000000000000000"),
    ("127.0.0.1", 10911, 2**40 + 5, "7F00000100002A9F0000010000000005"),
    ("::1", 10911, 1, "0" * 31 + "100002A9F0000000000000001"),
]


def _ms(year: int, month: int, day: int = 1) -> int:
    """Return the milliseconds of a day's start in UTC."""
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) * 1000


class OffsetIdTests(SynchronousTestCase):
    """The id that contains an address and an offset."""

    def test_known_ids(self) -> None:
        """IPv4 and IPv6 ids are encoded and decoded."""
        for ip, port, offset, text in OFFSET_CASES:
            self.assertEqual(offset_message_id(host_bytes(ip, port), offset), text)
            self.assertEqual(parse_offset_message_id(text), (ip, port, offset))

    def test_reads_lower_case(self) -> None:
        """Clients print both cases."""
        text = OFFSET_CASES[0][3].lower()
        self.assertEqual(parse_offset_message_id(text)[2], 240721)

    def test_refuses_what_is_no_id(self) -> None:
        """The length or the digits are wrong, or there are blanks."""
        for text in ("", "0A", "G" * 32, "0A00593B 00002A9F000000000003AC5", "0" * 34, "é" * 32):
            self.assertRaises(MessageIllegal, parse_offset_message_id, text)


class UniqueIdTests(SynchronousTestCase):
    """The id of a message."""

    def test_address_pid_loader_hash(self) -> None:
        """Address, pid, loader hash, ms of the month, counter."""
        maker = UniqueIdMaker(bytes([127, 0, 0, 1]), 0x175CC, 0x18B4AAC2, counter=4)
        made = maker.make(_ms(2026, 11) + 0x59C3E2)
        self.assertEqual(made, "7F000001" "75CC" "18B4AAC2" "0059C3E2" "0004")

    def test_ids_of_one_millisecond_differ_and_the_counter_wraps(self) -> None:
        """Ids of one millisecond differ, and the counter wraps at 16 bits."""
        maker = UniqueIdMaker(bytes(4), 1, counter=0xFFFF)
        now = _ms(2026, 11, 2)
        self.assertEqual([maker.make(now)[-4:] for _ in range(3)], ["FFFF", "0000", "0001"])

    def test_month_turns(self) -> None:
        """The time starts again at zero with the month, in December too."""
        maker = UniqueIdMaker(bytes(4), 1)
        self.assertEqual(maker.make(_ms(2026, 12) - 1)[20:28], f"{30 * 86400000 - 1:08X}")
        self.assertEqual(maker.make(_ms(2026, 12))[20:28], "00000000")
        self.assertEqual(maker.make(_ms(2027, 1) + 5)[20:28], "00000005")

    def test_clock_steps_back_over_the_month(self) -> None:
        """A small step back before the month's start counts as its start."""
        maker = UniqueIdMaker(bytes(4), 1)
        maker.make(_ms(2026, 12))
        self.assertEqual(maker.make(_ms(2026, 12) - 5)[20:28], "00000000")

    def test_late_in_a_long_month(self) -> None:
        """More milliseconds than int32 holds wrap as Java's cast does."""
        maker = UniqueIdMaker(bytes(4), 1)
        made = maker.make(_ms(2026, 10, 31))
        self.assertEqual(made[20:28], f"{30 * 86400000 & 0xFFFFFFFF:08X}")

    def test_ipv6_is_longer(self) -> None:
        """An IPv6 address gives 56 digits."""
        self.assertEqual(len(UniqueIdMaker(bytes(16), 1).make(_ms(2026, 5))), 56)
