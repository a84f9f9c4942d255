"""Whole numbers in the texts of other programs."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.decimal_text import LONG_MAX, PORT_MAX, whole_number


class WholeNumberTests(SynchronousTestCase):
    """The function whole_number."""

    def test_digits_are_a_number(self) -> None:
        """Leading zeros are allowed up to the length of a file's name."""
        for text, number in (("0", 0), ("7", 7), ("00000000001073741824", 1 << 30),
                             (str(LONG_MAX), LONG_MAX)):
            self.assertEqual(whole_number(text), number)

    def test_a_number_above_the_bound_is_refused(self) -> None:
        """The bound itself is accepted."""
        self.assertEqual(whole_number("65535", PORT_MAX), 65_535)
        self.assertIsNone(whole_number("65536", PORT_MAX))
        self.assertIsNone(whole_number(str(LONG_MAX + 1)))

    def test_what_int_accepts_or_cannot_convert_is_refused(self) -> None:
        """``int`` raises ValueError for more than 4,300 digits."""
        for text in ("", "-1", "+1", " 1", "1 ", "1_0", "\uff15", "\u0663", "\xb2", "1.0", "0x1",
                     "9" * 21, "9" * 5000, "0" * 21):
            self.assertIsNone(whole_number(text), text)
