"""The operations of which nearly all expressions consist, evaluated in compiled code.

An operation is a function of a message's properties, like the functions that ``expression`` makes
of all other operations. It returns True, False, or None where SQL has UNKNOWN. Compiled operations
call each other without going through Python. This is a leaf module of the hot path. It is fully
typed, so that mypyc can compile it.

Source: ComparisonExpression, LogicExpression, UnaryExpression @5.3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twistmq.broker.api.wire import LazyProperties
from twistmq.plugins.filter_sql92.values import (
    EvaluationError,
    Value,
    ValueType,
    to_double,
    to_int,
    to_long,
)

__all__ = [
    "EQUAL",
    "GREATER",
    "GREATER_EQUAL",
    "LESS",
    "LESS_EQUAL",
    "Chain",
    "Contained",
    "Evaluate",
    "Evaluator",
    "Expression",
    "Inverted",
    "Properties",
    "TextEqual",
    "compared",
    "within",
]

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]

#: The comparisons of a number.
EQUAL: Final = 0
GREATER: Final = 1
GREATER_EQUAL: Final = 2
LESS: Final = 3
LESS_EQUAL: Final = 4


class Evaluator:
    """One operation of an expression."""

    def evaluate(self, properties: Properties) -> Value:
        """Return the value of the operation for these properties.

        :raises EvaluationError: when it has no value.
        """
        raise NotImplementedError

    def __call__(self, properties: Properties) -> Value:
        return self.evaluate(properties)


class _Called(Evaluator):
    """An operation that is a Python function."""

    def __init__(self, function: Evaluate) -> None:
        self.function: Evaluate = function

    def evaluate(self, properties: Properties) -> Value:
        return self.function(properties)


def _evaluator(evaluate: Evaluate) -> Evaluator:
    return evaluate if isinstance(evaluate, Evaluator) else _Called(evaluate)


def _text_of(properties: Properties, name: str) -> str | None:
    """Return a property's text; for LazyProperties, compiled code avoids a call through Python."""
    mapping: object = properties
    if isinstance(mapping, LazyProperties):
        return mapping.get(name)
    return properties.get(name)


# --- comparisons of a property with a constant


def compared(sign: int, name: str, type_: ValueType, value: int | float) -> Evaluator:
    """Compare a property with a number, as most expressions do.

    :param type_: INT, LONG or DOUBLE; the property's text is converted to the type of the number.
    """
    if type_ is ValueType.DOUBLE:
        return _DoubleCompared(sign, name, float(value))
    assert isinstance(value, int)
    return _IntegerCompared(sign, name, type_ is ValueType.LONG, value)


class _IntegerCompared(Evaluator):
    def __init__(self, sign: int, name: str, is_long: bool, value: int) -> None:
        self.sign: Final = sign
        self.name: Final = name
        self.is_long: Final = is_long
        self.value: Final = value

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        if text is None:
            return None
        number = to_long(text) if self.is_long else to_int(text)
        sign, value = self.sign, self.value
        if sign == EQUAL:
            return number == value
        if sign == GREATER:
            return number > value
        if sign == GREATER_EQUAL:
            return number >= value
        return number < value if sign == LESS else number <= value


class _DoubleCompared(Evaluator):
    def __init__(self, sign: int, name: str, value: float) -> None:
        self.sign: Final = sign
        self.name: Final = name
        self.value: Final = value

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        if text is None:
            return None
        number, sign, value = _last_double(text), self.sign, self.value
        if sign == EQUAL:
            return number == value
        if sign == GREATER:
            return number > value
        if sign == GREATER_EQUAL:
            return number >= value
        return number < value if sign == LESS else number <= value


def _last_double(text: str) -> float:
    """Parse a double to compare it with a finite number; NaN becomes infinity and sorts last."""
    value = to_double(text)
    return value if value == value else math.inf


def within(name: str, type_: ValueType, low: int | float, high: int | float) -> Evaluator:
    """Test whether a property lies between two numbers of one type; its text is parsed once."""
    if type_ is ValueType.DOUBLE:
        return _DoubleWithin(name, float(low), float(high))
    assert isinstance(low, int) and isinstance(high, int)
    return _IntegerWithin(name, type_ is ValueType.LONG, low, high)


class _IntegerWithin(Evaluator):
    def __init__(self, name: str, is_long: bool, low: int, high: int) -> None:
        self.name: Final = name
        self.is_long: Final = is_long
        self.low: Final = low
        self.high: Final = high

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        if text is None:
            return None
        number = to_long(text) if self.is_long else to_int(text)
        return self.low <= number <= self.high


class _DoubleWithin(Evaluator):
    def __init__(self, name: str, low: float, high: float) -> None:
        self.name: Final = name
        self.low: Final = low
        self.high: Final = high

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        return None if text is None else self.low <= _last_double(text) <= self.high


class TextEqual(Evaluator):
    """Tests whether a property equals a text."""

    def __init__(self, name: str, expected: str) -> None:
        self.name: Final = name
        self.expected: Final = expected

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        return None if text is None else text == self.expected


class Contained(Evaluator):
    """IN and NOT IN."""

    def __init__(self, name: str, texts: Sequence[str], is_in: bool) -> None:
        self.name: Final = name
        self.texts: Final = frozenset(texts)
        self.is_in: Final = is_in

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        return None if text is None else (text in self.texts) is self.is_in


# --- AND, OR, NOT


class Chain(Evaluator):
    """Joined conditions: a condition that is ``decisive`` decides, otherwise an unknown one does.

    :param decisive: True for OR, False for AND.
    """

    def __init__(self, conditions: Sequence[Evaluate], decisive: bool) -> None:
        self.parts: Final = [_evaluator(each) for each in conditions]
        self.decisive: Final = decisive

    def evaluate(self, properties: Properties) -> Value:
        decisive = self.decisive
        is_unknown = False
        for part in self.parts:
            value = part.evaluate(properties)
            if value is None:
                is_unknown = True
            elif value is decisive:
                return decisive
        return None if is_unknown else not decisive


class Inverted(Evaluator):
    """NOT."""

    def __init__(self, condition: Evaluate) -> None:
        self.condition: Final = _evaluator(condition)

    def evaluate(self, properties: Properties) -> Value:
        value = self.condition.evaluate(properties)
        return None if value is None else not value


# --- a whole expression


class Expression:
    """Decides whether properties match.

    An unknown result does not match, and neither does an expression that cannot be evaluated.

    :param condition: the evaluator of the whole expression.
    :param failed: called the first time that the expression cannot be evaluated.
    :param cost: see MessageFilter, as ``size_bytes``.
    """

    def __init__(
        self, condition: Evaluate, failed: Callable[[EvaluationError], None], cost: int,
        size_bytes: int,
    ) -> None:
        self._condition: Evaluator = _evaluator(condition)
        self._failed: Callable[[EvaluationError], None] | None = failed
        self.cost: int = cost
        self.size_bytes: int = size_bytes

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        try:
            return self._condition.evaluate(properties) is True
        except EvaluationError as error:
            failed, self._failed = self._failed, None
            if failed is not None:
                failed(error)
            return False

    def __call__(self, properties: Properties) -> bool:
        return self.matches(properties)
