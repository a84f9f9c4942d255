"""The meaning of expressions: each operation becomes a function of the properties.

The functions return True, False, or None where SQL has UNKNOWN. AND and OR evaluate their operands
from left to right and stop as soon as the result is known. An operand without a value, for example
because a text is not the number with which it is compared, is an error that ends the evaluation.

Some results deviate from SQL92 and are kept because existing consumers depend on them: if there is
no property ``a``, then ``5 = a`` is false and ``a = 5`` is unknown; a property alone is never true.

Source: ComparisonExpression, LogicExpression, UnaryExpression, ConstantExpression @5.3.3.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from twistmq.plugins.filter_sql92.evaluators import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    Chain,
    Contained,
    Evaluate,
    Inverted,
    Properties,
    TextEqual,
    compared,
    within,
)
from twistmq.plugins.filter_sql92.values import (
    INT_RANGE,
    LONG_RANGE,
    Value,
    ValueType,
    comparator,
    order_doubles,
    to_double,
)

__all__ = [
    "CONDITIONS_MAX",
    "DEPTH_MAX",
    "ExpressionError",
    "Operand",
    "between",
    "boolean_literal",
    "both",
    "condition",
    "contained",
    "double_literal",
    "either",
    "equal",
    "integer_literal",
    "invert",
    "is_null",
    "literal",
    "negate",
    "not_between",
    "ordered",
    "property_value",
    "searched",
]

#: Limit of the nesting depth of operations: each level is a call within a call.
DEPTH_MAX: Final = 100
#: Limit of the number of operations: each one takes up to a microsecond for every message.
CONDITIONS_MAX: Final = 500

#: A nonzero digit before the exponent.
_NOT_ZERO: Final = re.compile(r"^[0.]*[1-9]")
_BOOLEAN: Final = ValueType.BOOLEAN
_NUMBERS: Final = (ValueType.INT, ValueType.LONG, ValueType.DOUBLE)
_SIGNS: Final[dict[str, tuple[int, Callable[[Any, Any], bool]]]] = {
    ">": (GREATER, operator.gt), ">=": (GREATER_EQUAL, operator.ge),
    "<": (LESS, operator.lt), "<=": (LESS_EQUAL, operator.le),
}


class ExpressionError(ValueError):
    """An expression is not valid; the text states the reason and the position."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of an expression that has a value."""

    type: ValueType
    evaluate: Evaluate
    #: The text of this part, for error messages.
    text: str
    #: Whether it is written as a literal.
    is_literal: bool = False
    #: Its constant value, if that is known.
    value: Value = None
    #: The property that it stands for.
    name: str | None = None
    #: The nesting depth of its operations, and the number of all its operations.
    depth: int = 0
    count: int = 0


def literal(type_: ValueType, value: Value, text: str) -> Operand:
    return Operand(type_, lambda properties: value, text, is_literal=True, value=value)


def integer_literal(text: str) -> Operand:
    """:raises ExpressionError: when the number does not fit into 64 bits."""
    digits = text.rstrip("lL")
    if len(digits) > 19 or int(digits) not in LONG_RANGE:
        raise ExpressionError(f"{_cut(text)} is too large")
    value = int(digits)
    return literal(ValueType.INT if value in INT_RANGE else ValueType.LONG, value, text)


def double_literal(text: str) -> Operand:
    """A literal with a point or an exponent.

    Differs from Apache, whose parser refuses 0.0 as too small.

    :raises ExpressionError: when it is too large for a double, or so small that it would become 0.
    """
    value = to_double(text)
    if value == float("inf"):
        raise ExpressionError(f"{_cut(text)} is too large")
    if not value and _NOT_ZERO.search(text):
        raise ExpressionError(f"{_cut(text)} is too small")
    return literal(ValueType.DOUBLE, value, text)


def boolean_literal(value: bool | None) -> Operand:
    return literal(_BOOLEAN, value, {True: "TRUE", False: "FALSE", None: "NULL"}[value])


def property_value(name: str) -> Operand:
    return Operand(ValueType.TEXT, lambda properties: properties.get(name), name, name=name)


def negate(operand: Operand) -> Operand:
    """Negate an operand; the result is unknown if its value is not a number."""
    text = f"-{operand.text}"
    if operand.type in _NUMBERS:
        assert isinstance(operand.value, int | float)
        value = -operand.value
        return Operand(operand.type, lambda properties: value, text, value=value)
    inner = operand.evaluate

    def evaluate(properties: Properties) -> Value:
        inner(properties)
        return None

    return _operation(ValueType.NOTHING, evaluate, text, operand)


def condition(operand: Operand) -> Operand:
    """Use an operand as a condition; :raises ExpressionError: when it is not a condition."""
    if operand.type is _BOOLEAN:
        return operand
    name = operand.name
    if name is None:
        raise ExpressionError(f"{_cut(operand.text)} is not a condition")
    # The value of a property is text, and a text is never true.
    return Operand(_BOOLEAN, lambda properties: None if properties.get(name) is None else False,
                   operand.text)


# --- AND, OR, NOT


def either(operands: Sequence[Operand]) -> Operand:
    return _chain(operands, True, "OR")


def both(operands: Sequence[Operand]) -> Operand:
    return _chain(operands, False, "AND")


def _chain(operands: Sequence[Operand], decisive: bool, word: str) -> Operand:
    """Join conditions; a condition that is ``decisive`` decides the result."""
    conditions = [condition(operand) for operand in operands]
    joined = Chain([each.evaluate for each in conditions], decisive)
    return _operation(_BOOLEAN, joined, word, *conditions)


def invert(operand: Operand) -> Operand:
    inner = condition(operand)
    return _operation(_BOOLEAN, Inverted(inner.evaluate), "NOT", inner)


# --- comparisons


def equal(left: Operand, right: Operand) -> Operand:
    for operand in (left, right):
        if operand.is_literal and operand.value is None:
            raise ExpressionError("NULL cannot be compared: use IS NULL")
    if left.is_literal and right.is_literal and left.type is _BOOLEAN is not right.type:
        raise ExpressionError(f"{left.text} cannot be compared with {_cut(right.text)}")
    if left.name is not None and right.type in _NUMBERS:
        return _operation(_BOOLEAN, _with_number(EQUAL, left.name, right), "=", left, right)
    if left.name is not None and isinstance(right.value, str):
        return _operation(_BOOLEAN, TextEqual(left.name, right.value), "=", left, right)
    evaluate_left, evaluate_right = left.evaluate, right.evaluate
    order = comparator(left.type, right.type)

    def evaluate(properties: Properties) -> Value:
        one, other = evaluate_left(properties), evaluate_right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and order(one, other) == 0

    return _operation(_BOOLEAN, evaluate, "=", left, right)


def _with_number(sign: int, name: str, operand: Operand) -> Evaluate:
    value = operand.value
    assert isinstance(value, int | float)
    return compared(sign, name, operand.type, value)


def is_null(operand: Operand) -> Operand:
    inner = operand.evaluate
    return _operation(_BOOLEAN, lambda properties: inner(properties) is None, "IS NULL", operand)


def ordered(sign: str, left: Operand, right: Operand) -> Operand:
    """Apply one of ``>``, ``>=``, ``<``, ``<=``, which compare numbers only."""
    for operand in (left, right):
        if operand.type is _BOOLEAN or (operand.is_literal and operand.type not in _NUMBERS):
            raise ExpressionError(f"{_cut(operand.text)} cannot be compared by {sign}")
    number, holds = _SIGNS[sign]
    if left.name is not None and right.type in _NUMBERS:
        return _operation(_BOOLEAN, _with_number(number, left.name, right), sign, left, right)
    types = left.type, right.type
    if types == (ValueType.TEXT, ValueType.TEXT):
        order: Callable[..., int] = lambda one, other: order_doubles(  # noqa: E731
            to_double(one), to_double(other))
    else:
        order = comparator(*types)
    evaluate_left, evaluate_right = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one = evaluate_left(properties)
        if one is None:
            return None
        other = evaluate_right(properties)
        return None if other is None else holds(order(one, other), 0)

    return _operation(_BOOLEAN, evaluate, sign, left, right)


def between(operand: Operand, low: Operand, high: Operand) -> Operand:
    if low.is_literal and high.is_literal:
        if low.value is None or high.value is None:
            raise ExpressionError("BETWEEN needs two numbers, not NULL")
        numbers = low.type in _NUMBERS and high.type in _NUMBERS
        if numbers and comparator(high.type, low.type)(high.value, low.value) < 0:
            raise ExpressionError(f"BETWEEN needs the lesser first: {low.text} AND {high.text}")
    low, high = _with_zero(low, high), _with_zero(high, low)
    parts = both([ordered(">=", operand, low), ordered("<=", operand, high)])
    if operand.name is None or low.type is not high.type or low.type not in _NUMBERS:
        return parts
    assert isinstance(low.value, int | float) and isinstance(high.value, int | float)
    return replace(parts, evaluate=within(operand.name, low.type, low.value, high.value))


def _with_zero(bound: Operand, other: Operand) -> Operand:
    """Return a bound of BETWEEN, converted to a double if the other bound is the double 0.

    With any other double, a text like ``1.5`` cannot be compared with an integer bound, as in
    Apache's broker. Apache's parser refuses the double 0.
    """
    if (other.type, other.value) != (ValueType.DOUBLE, 0) or bound.type not in _NUMBERS:
        return bound
    assert isinstance(bound.value, int | float)
    return replace(literal(ValueType.DOUBLE, float(bound.value), bound.text),
                   is_literal=bound.is_literal)


def not_between(operand: Operand, low: Operand, high: Operand) -> Operand:
    low, high = _with_zero(low, high), _with_zero(high, low)
    return either([ordered("<", operand, low), ordered(">", operand, high)])


def contained(operand: Operand, texts: Sequence[str], is_in: bool) -> Operand:
    """Apply IN or NOT IN to a property."""
    name = operand.name
    if name is None:
        raise ExpressionError(f"IN needs a property, not {_cut(operand.text)}")
    return _operation(_BOOLEAN, Contained(name, texts, is_in), "IN", operand)


def searched(
    operand: Operand, searched_text: str, test: Callable[[str, str], bool], expected: bool
) -> Operand:
    """Apply CONTAINS, STARTSWITH, ENDSWITH or one of their NOT forms.

    The result is never unknown: it is false if the operand is not a text.

    :param test: whether the first text contains, begins with or ends with the second.
    """
    inner = operand.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return isinstance(value, str) and test(value, searched_text) is expected

    if not searched_text:
        return _operation(_BOOLEAN, lambda properties: False, "a search for nothing", operand)
    return _operation(_BOOLEAN, evaluate, "a search", operand)


def _operation(
    type_: ValueType, evaluate: Evaluate, text: str, *operands: Operand
) -> Operand:
    """:raises ExpressionError: when the operations are nested too deeply, or are too many."""
    depth = 1 + max([operand.depth for operand in operands])
    count = 1 + sum([operand.count for operand in operands])
    if depth > DEPTH_MAX:
        raise ExpressionError(f"operations are nested more than {DEPTH_MAX} deep")
    if count > CONDITIONS_MAX:
        raise ExpressionError(f"more than {CONDITIONS_MAX} operations")
    return Operand(type_, evaluate, text, depth=depth, count=count)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."
