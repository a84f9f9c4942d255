"""Compiled operations give the same results, and the same errors, for every kind of mapping."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.filter_sql92.evaluators import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    Chain,
    Contained,
    Evaluate,
    Evaluator,
    Expression,
    Inverted,
    TextEqual,
    compared,
    within,
)
from twistmq.plugins.filter_sql92.values import EvaluationError, Value, ValueType
from twistmq.protocol.lazy_properties import LazyProperties

INT, LONG, DOUBLE = ValueType.INT, ValueType.LONG, ValueType.DOUBLE


class OperationTests(SynchronousTestCase):
    """Each operation on a dict and on stored properties."""

    def answers(self, evaluate: Evaluate, *texts: str | None) -> list[Value]:
        """Return the results for messages whose property ``a`` has different texts."""
        found: list[Value] = []
        for text in texts:
            properties = {} if text is None else {"a": text}
            stored = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
            answer = evaluate(properties)
            self.assertIs(evaluate(LazyProperties(stored)), answer)  # type: ignore[arg-type]
            found.append(answer)
        return found

    def test_every_comparison_works_with_every_number_type(self) -> None:
        """Every comparison works with every number type; without the property the result is
        unknown.
        """
        for type_, value in ((INT, 5), (LONG, 5), (DOUBLE, 5.0)):
            for sign, expected in (
                (EQUAL, [False, True, False]), (GREATER, [False, False, True]),
                (GREATER_EQUAL, [False, True, True]), (LESS, [True, False, False]),
                (LESS_EQUAL, [True, True, False]),
            ):
                self.assertEqual(
                    self.answers(compared(sign, "a", type_, value), "4", "5", "6", None),
                    [*expected, None], msg=f"{type_} {sign}")
            self.assertEqual(
                self.answers(within("a", type_, value, 7), "4", "5", "7", "8", None),
                [False, True, True, False, None])
        self.assertEqual(self.answers(compared(GREATER, "a", DOUBLE, 5.0), "NaN"), [True])
        self.assertEqual(self.answers(compared(EQUAL, "a", LONG, 1 << 40), str(1 << 40)), [True])

    def test_no_number(self) -> None:
        """A text that is not of the type raises an error."""
        for type_, text in ((INT, "x"), (INT, "1.5"), (INT, str(1 << 31)), (LONG, str(1 << 63)),
                            (DOUBLE, "five")):
            for operation in (compared(EQUAL, "a", type_, 5), within("a", type_, 1, 2)):
                self.assertRaises(EvaluationError, operation, {"a": text})

    def test_operations_on_texts(self) -> None:
        self.assertEqual(self.answers(TextEqual("a", "x"), "x", "y", None), [True, False, None])
        for is_in in (True, False):
            self.assertEqual(self.answers(Contained("a", ["x", "y"], is_in), "x", "z", None),
                             [is_in, not is_in, None])

    def test_compiled_operations_and_functions(self) -> None:
        """Compiled operations and functions, within each other."""
        low, high = compared(GREATER, "a", INT, 3), compared(LESS, "a", INT, 6)
        self.assertEqual(self.answers(Chain([low, high], False), "3", "4", "6", None),
                         [False, True, False, None])
        self.assertEqual(self.answers(Chain([low, high], True), "3", "9", None),
                         [True, True, None])
        self.assertEqual(self.answers(Inverted(low), "3", "4", None), [True, False, None])
        self.assertEqual(
            self.answers(Chain([lambda properties: None, Inverted(low)], False), "3", "4"),
            [None, False])
        self.assertRaises(NotImplementedError, Evaluator(), {})


class ExpressionTests(SynchronousTestCase):
    """A whole expression."""

    def test_only_true_matches_and_the_first_error_is_logged(self) -> None:
        """Only True is a match, and an error is not; the first error is logged."""
        told: list[str] = []
        expression = Expression(compared(GREATER, "a", INT, 3),
                                lambda error: told.append(str(error)), 2, 64)
        self.assertEqual([expression(properties) for properties in (
            {"a": "4"}, {"a": "3"}, {}, {"a": "x"}, {"a": "y"}, {"a": "5"})],
            [True, False, False, False, False, True])
        self.assertEqual(told, ["not an integer: 'x'"])
        self.assertEqual((expression.cost, expression.size_bytes), (2, 64))
