"""The operations nearly all expressions are made of, evaluated in compiled code.

Each is a function of a message's properties, as those are that ``expression`` makes of all other
operations: True, False, or None where SQL says unknown. Compiled ones call each other without
Python between them. Leaf module of the hot path: typed, so that mypyc compiles it.

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

#: How a number is compared.
EQUAL: Final = 0
GREATER: Final = 1
GREATER_EQUAL: Final = 2
LESS: Final = 3
LESS_EQUAL: Final = 4


class Evaluator:
    """An operation."""

    def evaluate(self, properties: Properties) -> Value:
        """Its value for these properties.

        :raises EvaluationError: when it has no value.
        """
        raise NotImplementedError

    def __call__(self, properties: Properties) -> Value:
        return self.evaluate(properties)


class _Called(Evaluator):
    """One that is a Python function."""

    def __init__(self, function: Evaluate) -> None:
        self.function: Evaluate = function

    def evaluate(self, properties: Properties) -> Value:
        return self.function(properties)


def _evaluator(evaluate: Evaluate) -> Evaluator:
    return evaluate if isinstance(evaluate, Evaluator) else _Called(evaluate)


def _text_of(properties: Properties, name: str) -> str | None:
    """A property's text; compiled code finds out that it need not go through Python."""
    given: object = properties
    if isinstance(given, LazyProperties):
        return given.get(name)
    return properties.get(name)


# --- comparisons of a property with what is known


def compared(sign: int, name: str, type_: ValueType, value: int | float) -> Evaluator:
    """Compare a property with a number: most expressions do.

    :param type_: INT, LONG or DOUBLE: a property's text is read as the number's type.
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
    """Read a double for a comparison with a finite number: NaN is behind that too."""
    value = to_double(text)
    return value if value == value else math.inf


def within(name: str, type_: ValueType, least: int | float, most: int | float) -> Evaluator:
    """Whether a property is between two numbers of one type: its text is read once."""
    if type_ is ValueType.DOUBLE:
        return _DoubleWithin(name, float(least), float(most))
    assert isinstance(least, int) and isinstance(most, int)
    return _IntegerWithin(name, type_ is ValueType.LONG, least, most)


class _IntegerWithin(Evaluator):
    def __init__(self, name: str, is_long: bool, least: int, most: int) -> None:
        self.name: Final = name
        self.is_long: Final = is_long
        self.least: Final = least
        self.most: Final = most

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        if text is None:
            return None
        number = to_long(text) if self.is_long else to_int(text)
        return self.least <= number <= self.most


class _DoubleWithin(Evaluator):
    def __init__(self, name: str, least: float, most: float) -> None:
        self.name: Final = name
        self.least: Final = least
        self.most: Final = most

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        return None if text is None else self.least <= _last_double(text) <= self.most


class TextEqual(Evaluator):
    """Whether a property is a text."""

    def __init__(self, name: str, wanted: str) -> None:
        self.name: Final = name
        self.wanted: Final = wanted

    def evaluate(self, properties: Properties) -> Value:
        text = _text_of(properties, self.name)
        return None if text is None else text == self.wanted


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
    """Conditions, joined: one that is ``decisive`` decides, else one that is unknown does.

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
    """Says whether properties match.

    An unknown result does not match, nor does an expression that cannot be evaluated.

    :param condition: what it stands for.
    :param failed: told the first time that it cannot be evaluated.
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
