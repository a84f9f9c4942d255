"""The numbers that Java reads from texts, and their order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.filter_sql92.values import (
    EvaluationError,
    ValueType,
    comparator,
    order_doubles,
    to_double,
    to_int,
    to_long,
)


class ReadTests(SynchronousTestCase):
    """The functions to_int, to_long and to_double."""

    def refuses(self, read: Callable[[str], object], *texts: str) -> None:
        for text in texts:
            self.assertRaises(EvaluationError, read, text)

    def test_digits_with_a_sign(self) -> None:
        """An integer has digits and a sign, fits into its bits, and has no blanks around it."""
        for text, value in (("5", 5), ("+5", 5), ("-0", 0), ("007", 7), ("0" * 9999 + "7", 7),
                            ("-" + "0" * 60 + "7", -7), ("\uff15", 5), ("2147483647", 2**31 - 1),
                            ("-2147483648", -(2**31))):
            self.assertEqual((to_int(text), to_long(text)), (value, value))
        self.refuses(to_int, "2147483648", "-2147483649")
        self.assertEqual(to_long("-9223372036854775808"), -(2**63))
        self.refuses(to_long, "9223372036854775808", "1" * 41, "1" * 9999)
        for read in (to_int, to_long):
            self.refuses(read, "", "+", "-", "--5", " 5", "5 ", "5\n", "1_0", "5.0", "5l", "0x5",
                         "\U0001d7d3", "a")

    def test_javas_forms(self) -> None:
        """A double has Java's forms: a type suffix, hexadecimal digits, blanks
        around it, no words.
        """
        for text, value in (("5", 5.0), ("5.", 5.0), (".5", 0.5), ("5e1", 50.0), ("5E+1d", 50.0),
                            ("5f", 5.0), ("0x1p2", 4.0), ("0X.8P1F", 1.0), (" \t5\x01\n", 5.0),
                            ("1e999", math.inf), ("-Infinity", -math.inf), ("1e-999", 0.0),
                            ("0x1p9999", math.inf), ("0007", 7.0)):
            self.assertEqual(to_double(text), value, msg=text)
        self.assertTrue(math.isnan(to_double("NaN")))
        self.assertEqual(math.copysign(1, to_double("-0")), -1)
        self.refuses(to_double, "", " ", "nan", "inf", "infinity", "1_0", "5l", "0x5", "0x1p",
                     "5e", ".", "e5", "5 5", "\u00a05", "\uff15", "+-5", "5df")

    def test_a_long_text_that_is_no_double_is_refused_in_time(self) -> None:
        """A producer chooses the text, and other connections wait while it is parsed."""
        for text in ("1" * 30_000 + "x", "0x" + "a" * 30_000, "." + "1" * 30_000 + "x",
                     "1e" + "1" * 30_000 + "x", "0x1p" + "1" * 30_000 + "x", "+" * 30_000):
            begin = time.process_time()
            self.refuses(to_double, text)
            # It takes a millisecond; it took ten seconds when the time grew with the square.
            self.assertLess(time.process_time() - begin, 1, text[:5])

    @given(st.integers(-(2**63), 2**63 - 1))
    def test_every_integer(self, value: int) -> None:
        """Every integer that was written is read again."""
        self.assertEqual(to_long(str(value)), value)
        if -(2**31) <= value < 2**31:
            self.assertEqual(to_int(str(value)), value)
        else:
            self.refuses(to_int, str(value))


class OrderTests(SynchronousTestCase):
    """The functions order_doubles and comparator."""

    def test_total_order(self) -> None:
        """-0.0 is before 0.0 and NaN behind everything, equal to itself."""
        line = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
        for at, left in enumerate(line):
            for other, right in enumerate(line):
                self.assertEqual(order_doubles(left, right), (at > other) - (at < other))

    def test_text_converts_to_the_type_it_is_compared_with(self) -> None:
        """A text is converted to the other operand's type; values without an order
        are never equal.
        """
        kinds = ValueType
        for left, right, one, other, order in (
            (kinds.INT, kinds.LONG, 5, 6, -1), (kinds.INT, kinds.DOUBLE, 5, 5.0, 0),
            (kinds.TEXT, kinds.INT, "7", 6, 1), (kinds.DOUBLE, kinds.TEXT, 5.0, "5d", 0),
            (kinds.TEXT, kinds.BOOLEAN, "TrUe", True, 0), (kinds.TEXT, kinds.TEXT, "a", "a", 0),
            (kinds.BOOLEAN, kinds.INT, True, 1, -1), (kinds.INT, kinds.BOOLEAN, 1, True, -1),
            (kinds.LONG, kinds.DOUBLE, 2**53 + 1, float(2**53), 0),
        ):
            self.assertEqual(comparator(left, right)(one, other), order, msg=f"{left} {right}")
        self.assertRaises(EvaluationError, comparator(kinds.BOOLEAN, kinds.TEXT), True, "true")
        self.assertRaises(EvaluationError, comparator(kinds.TEXT, kinds.INT), "x", 1)
