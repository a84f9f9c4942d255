"""The parts of expressions: values that the parser cannot produce, and the order of evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from twistmq.plugins.filter_sql92 import expression as made
from twistmq.plugins.filter_sql92.expression import Operand
from twistmq.plugins.filter_sql92.values import EvaluationError, Value, ValueType


class EvaluationTests(SynchronousTestCase):
    """The operands that are evaluated, and their order."""

    def setUp(self) -> None:
        self.asked: list[str] = []

    def operand(self, name: str, value: Value) -> Operand:
        def evaluate(properties: Mapping[str, str]) -> Value:
            self.asked.append(name)
            if value == "error":
                raise EvaluationError
            return value
        return Operand(ValueType.BOOLEAN, evaluate, name)

    def test_a_chain_is_looked_at_from_the_left_until_it_is_decided(self) -> None:
        """A chain is evaluated from the left until it is decided; an unknown value
        decides nothing.
        """
        for chain, values, asked, answer in (
            (made.both, (True, None, False, "error"), "abc", False),
            (made.both, (True, None, True), "abc", None), (made.both, (True, True), "ab", True),
            (made.either, (False, None, True, "error"), "abc", True),
            (made.either, (False, None, False), "abc", None),
            (made.either, (False, False), "ab", False),
        ):
            self.asked.clear()
            operands = [self.operand(name, value)
                        for name, value in zip("abcd", values, strict=False)]
            self.assertIs(chain(operands).evaluate({}), answer)
            self.assertEqual("".join(self.asked), asked)
        broken = made.both([self.operand("a", "error"), self.operand("b", False)])
        self.assertRaises(EvaluationError, broken.evaluate, {})

    def test_both_sides_of_equal(self) -> None:
        """The operator = evaluates both sides; < stops if the left side is unknown."""
        made.equal(self.operand("a", None), self.operand("b", None)).evaluate({})
        self.assertEqual(self.asked, ["a", "b"])
        missing = made.property_value("missing")
        text = made.negate(self.operand("c", "error"))
        self.assertIs(made.ordered("<", missing, text).evaluate({}), None)
        self.assertRaises(EvaluationError, made.ordered("<", text, missing).evaluate, {})

    def test_depth_and_number_of_operations_are_counted_through_all_of_them(self) -> None:
        """The depth and the number of operations include all nested parts."""
        one = made.is_null(made.property_value("a"))
        two = made.both([one, made.invert(one)])
        self.assertEqual([(each.depth, each.count) for each in (one, two)], [(1, 1), (3, 4)])
