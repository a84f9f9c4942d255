"""Values of expressions: how Java converts a property's text, and how Java compares values.

A property is text until it is compared with a number. It is then converted to the type of that
number, and a text that cannot be converted is an error rather than a mismatch: "9.5" is not an
integer. Doubles of two properties are ordered like Double.compareTo: -0.0 comes before 0.0, and NaN
comes after all other values and equals itself.

Source: ComparisonExpression.__compare @5.3.3; Integer.valueOf, Double.valueOf of Java.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

__all__ = [
    "INT_RANGE",
    "LONG_RANGE",
    "EvaluationError",
    "Value",
    "ValueType",
    "comparator",
    "order_doubles",
    "to_double",
    "to_int",
    "to_long",
]

#: None stands for SQL's NULL.
Value = bool | int | float | str | None
#: Compares two values that are not NULL; the result is less than 0, 0, or greater than 0.
Comparator = Callable[[Value, Value], int]

INT_RANGE: Final = range(-(1 << 31), 1 << 31)
LONG_RANGE: Final = range(-(1 << 63), 1 << 63)
#: Digits of any script in the basic plane, because Java works on UTF-16 units.
_INTEGER: Final = re.compile(r"[+-]?[^\D\U00010000-\U0010FFFF]+")
#: A number with fewer digits always fits into an int32.
_SHORT: Final = 10
#: A longer number has leading zeros or is too large.
_DIGITS_MAX: Final = 40
# Possessive repetitions: the time for a long text would grow with the square of its length, because
# a run of digits could be divided at each place between the first two repetitions.
_DOUBLE: Final = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?)")
#: The characters that String.trim removes.
_BLANKS: Final = "".join(map(chr, range(33)))


class ValueType(Enum):
    """The type of an operand's value."""

    BOOLEAN = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    TEXT = auto()
    #: The operand never has a value.
    NOTHING = auto()


class EvaluationError(Exception):
    """An expression has no value for some properties; the message does not match."""


def to_int(text: str) -> int:
    """Parse an int32; :raises EvaluationError: for any other text."""
    if len(text) < _SHORT and text.isascii() and text.isdigit():
        return int(text)
    return _to_integer(text, INT_RANGE)


def to_long(text: str) -> int:
    """Parse an int64; :raises EvaluationError: for any other text."""
    if len(text) < _SHORT and text.isascii() and text.isdigit():
        return int(text)
    return _to_integer(text, LONG_RANGE)


def _to_integer(text: str, allowed: range) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise EvaluationError(f"not an integer: {text[:_DIGITS_MAX]!r}")
    if len(text) > _DIGITS_MAX:
        digits = text.lstrip("+-").lstrip("0") or "0"
        if len(digits) > _DIGITS_MAX:
            raise EvaluationError(f"an integer of {len(digits)} digits")
        text = ("-" if text[0] == "-" else "") + digits
    value = int(text)
    if value not in allowed:
        raise EvaluationError(f"{text} does not fit into {allowed.stop.bit_length()} bits")
    return value


def to_double(text: str) -> float:
    """Parse a double; :raises EvaluationError: for any other text."""
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    match = _DOUBLE.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise EvaluationError(f"not a number: {text[:_DIGITS_MAX]!r}")
    sign, is_nan, is_infinity, decimal, hexadecimal = match.groups()
    if is_nan:
        value = math.nan
    elif is_infinity:
        value = math.inf
    elif decimal:
        value = float(decimal)
    else:
        try:
            value = float.fromhex(hexadecimal)
        except OverflowError:
            value = math.inf
    return -value if sign == "-" else value


def _to_boolean(text: str) -> bool:
    return text.lower() == "true"


def order_doubles(left: float, right: float) -> int:
    """Compare like Double.compareTo."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = _double_key(left), _double_key(right)
    return (left_key > right_key) - (left_key < right_key)


def _order_with_literal(left: float, right: float) -> int:
    """Compare two doubles one of which is a literal: both zeros are equal, as in SQL.

    Agrees with Apache on everything that Apache accepts: Apache refuses the literal 0.0.
    """
    return 0 if left == right else order_doubles(left, right)


def _double_key(value: float) -> int:
    """Return a key that orders values which < and > cannot order: both zeros, and NaN."""
    if value != value:
        return 1
    return -1 if value == 0 and math.copysign(1, value) < 0 else 0


def _order(left: int, right: int) -> int:
    return (left > right) - (left < right)


def _never_equal(left: Value, right: Value) -> int:
    return -1


def _not_text(left: Value, right: Value) -> int:
    # Where Java would convert the right text, it casts the left value to text and fails.
    raise EvaluationError("TRUE and FALSE on the left of a text cannot be compared")


_READ: Final[dict[ValueType, Callable[[str], bool | int | float]]] = {
    ValueType.BOOLEAN: _to_boolean, ValueType.INT: to_int, ValueType.LONG: to_long,
    ValueType.DOUBLE: to_double,
}


def comparator(left: ValueType, right: ValueType) -> Callable[..., int]:
    """Choose the comparison of values of two types.

    :returns: a function of two values of these types; it raises EvaluationError where Java throws.
    """
    boolean, double, text = ValueType.BOOLEAN, ValueType.DOUBLE, ValueType.TEXT
    if ValueType.NOTHING in (left, right):
        return _never_equal
    if left is text and right is text:
        return lambda a, b: (a > b) - (a < b)
    if left is text:
        convert, same = _READ[right], comparator(right, right)
        return lambda a, b: same(convert(a), b)
    if right is text:
        if left is boolean:
            return _not_text
        convert, same = _READ[left], comparator(left, left)
        return lambda a, b: same(a, convert(b))
    if (left is boolean) != (right is boolean):
        return _never_equal
    if double in (left, right):
        return lambda a, b: _order_with_literal(float(a), float(b))
    return _order
