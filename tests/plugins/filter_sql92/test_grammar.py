"""Expressions mean the same as in Apache's library, and those that are too large are refused."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from tests.interop.filter_cases import TAKEN_HERE
from twistmq.plugins.filter_sql92.expression import CONDITIONS_MAX, DEPTH_MAX, ExpressionError
from twistmq.plugins.filter_sql92.grammar import (
    DOUBLE_MINUSES_MAX,
    TEXT_SIZE_MAX,
    TOKENS_MAX,
    parse,
)
from twistmq.plugins.filter_sql92.values import EvaluationError

GOLDEN = Path(__file__).resolve().parents[2] / "golden/filter/answers.json"
WORDS = {True: "T", False: "F", None: "N"}


def answers(expression: str, maps: list[dict[str, str]]) -> str:
    """A letter for each map: T, F, N for unknown, E for an error; or one R: it is refused."""
    try:
        evaluate = parse(expression).evaluate
    except ExpressionError:
        return "R"
    letters = ""
    for properties in maps:
        try:
            letters += WORDS[evaluate(properties)]  # type: ignore[index]
        except EvaluationError:
            letters += "E"
    return letters


class GoldenTests(SynchronousTestCase):
    """The file golden/filter/answers.json."""

    def test_each_expression_answers_as_apaches_library(self) -> None:
        """Each of some 600 expressions has the result of Apache's library, for all properties.

        A double of 0, which that library refuses, is taken: see ZeroTests.
        """
        golden = json.loads(GOLDEN.read_text())
        self.assertGreater(len(golden["answers"]), 500)
        self.assertGreater(len(golden["properties"]), 50)
        found = {expression: answers(expression, golden["properties"])
                 for expression in golden["answers"]}
        different = {expression: (theirs, found[expression])
                     for expression, theirs in golden["answers"].items()
                     if found[expression] != theirs and expression not in TAKEN_HERE}
        self.assertEqual(different, {})

    def test_all_answers_occur(self) -> None:
        """Every kind of result occurs in the table, so that a constant library would fail."""
        letters = "".join(json.loads(GOLDEN.read_text())["answers"].values())
        for letter in "TFNER":
            self.assertGreater(letters.count(letter), 100)


class ZeroTests(SynchronousTestCase):
    """The double 0 is a number like any other, however it is written."""

    VALUES = ("0.0", "-0.0", "0", "-1.5", "3", "1e-3", "0e9")

    def matching(self, expression: str) -> list[str]:
        condition = parse(expression).evaluate
        return [value for value in self.VALUES if condition({"a": value}) is True]

    def test_every_way_to_write_it(self) -> None:
        """A zero may have digits on each side of the point, a sign, and an exponent of any size."""
        zeros = ["0.0", "-0.0", "0", "0e9"]
        for number in ("0.0", ".0", "0.", "00.000", "0e0", "0E-5", "0e+999999", ".0e0", "0.e0"):
            for sign in ("", "-", "+", "- -"):
                literal = sign + number
                self.assertEqual(self.matching(f"a = {literal}"), zeros, literal)
                self.assertEqual(self.matching(f"{literal} = a"), zeros, literal)
                self.assertEqual(self.matching(f"a <> {literal}"), ["-1.5", "3", "1e-3"], literal)

    def test_order(self) -> None:
        """Both zeros are equal in every comparison, with the literal on either side."""
        zeros = ["0.0", "-0.0", "0"]
        for expression, expected in (
            ("a > 0.0", ["3", "1e-3"]), ("a >= 0.0", [*zeros, "3", "1e-3", "0e9"]),
            ("a < 0.0", ["-1.5"]), ("a <= -0.0", [*zeros, "-1.5", "0e9"]),
            ("0.0 < a", ["3", "1e-3"]), ("0.0 >= a", [*zeros, "-1.5", "0e9"]),
            ("a BETWEEN -2 AND 0.0", [*zeros, "-1.5", "0e9"]),
            ("a BETWEEN 0.0 AND 1", [*zeros, "1e-3", "0e9"]),
            ("a NOT BETWEEN 0.0 AND 1", ["-1.5", "3"]),
            ("a BETWEEN 0e0 AND 0.0", [*zeros, "0e9"]),
        ):
            self.assertEqual(self.matching(expression), expected, expression)
        for condition in ("0 = 0.0", "0 = -0.0", "0.0 = -0.0", "-1 < 0.0", "NOT (0.0 < 0)"):
            self.assertEqual(self.matching(condition), list(self.VALUES), condition)
        self.assertRaises(ExpressionError, parse, "a BETWEEN 1 AND 0.0")
        self.assertRaises(ExpressionError, parse, "0.0")


class RefusalTests(SynchronousTestCase):
    """Expressions that are refused, and their errors."""

    def refusal(self, expression: str) -> str:
        return str(self.assertRaises(ExpressionError, parse, expression))

    def test_a_refusal_says_the_fault_and_its_place(self) -> None:
        """The error names the fault and its position."""
        for expression, text in (
            ("a > 5 AND\n b # 3", "'#' at 2:4 begins no token"),
            ("a > > 5", "'>' at 1:5 is not expected"), ("a >", "its end is not expected"),
            ("", "its end is not expected"), ("a > 'x'", "'x' cannot be compared by >"),
            ("a = 99999999999999999999", "99999999999999999999 is too large"),
            ("a = 1e-400", "1e-400 is too small"), ("a = 0.01e-330", "0.01e-330 is too small"),
            ("a = 1e400", "1e400 is too large"), ("a = NULL", "NULL cannot be compared"),
            ("a BETWEEN 5 AND 1", "BETWEEN needs the lesser first: 5 AND 1"),
            ("5 IN ('x')", "IN needs a property, not 5"), ("'x'", "'x' is not a condition"),
            ("TRUE = 5", "TRUE cannot be compared with 5"),
        ):
            self.assertIn(text, self.refusal(expression))

    def test_long_and_deep_expressions_are_refused(self) -> None:
        """Long, deep or large expressions are refused; parentheses and signs alone are not deep."""
        self.assertIn("more than 65536", self.refusal("a = 1" + " " * TEXT_SIZE_MAX))
        self.assertIn("more than 3000", self.refusal("(" * TOKENS_MAX + "a"))
        self.assertIn("nested more than 100", self.refusal("NOT " * (DEPTH_MAX + 1) + "a"))
        self.assertIn("nested more than 100", self.refusal("a" + " = TRUE" * (DEPTH_MAX + 1)))
        many = " OR ".join(["a = 1"] * (CONDITIONS_MAX + 1))
        self.assertIn("more than 500 operations", self.refusal(many))
        half = TOKENS_MAX // 2 - 10
        self.assertIs(parse("(" * half + "a = 1" + ")" * half).evaluate({"a": "1"}), True)
        self.assertIs(parse("+" * half + "1 = 1").evaluate({}), True)

    def test_double_minuses(self) -> None:
        """Two minus signs begin a comment or are two signs; very many of them are refused."""
        for text in ("1 = --1", "1 = --2\n1", "--1\n1 = 1", "-1 = - - -1 -- no\n", "1 = - - 1",
                     "1 = " + "- " * 1000 + "1", "1 = " + "--" * (DOUBLE_MINUSES_MAX // 2) + "1",
                     "--\n" * 10_000 + "1 = 1", "'" + "--" * 1000 + "' <> 'a'"):
            self.assertIs(parse(text).evaluate({}), True, msg=text[:20])
        self.assertIn(f"more than {DOUBLE_MINUSES_MAX} double",
                      self.refusal("1 = " + "--" * DOUBLE_MINUSES_MAX + "1"))

    def test_reading_takes_no_longer_than_the_text_is_long(self) -> None:
        """The time of parsing grows in proportion to the length of the text."""
        def seconds(text: str) -> float:
            begin = time.process_time()
            with contextlib.suppress(ExpressionError):
                parse(text)
            return time.process_time() - begin

        usual = " OR ".join(f"a = {number}" for number in range(450))
        most = 10 * max(min(seconds(usual) for _ in range(3)), 0.005)
        for unit in ("-", "--", "a>--1 and ", "a>(--1) or ", "'", "''", "/", "/*", "/**", "*/", "0",
                     "9", "1.", ".", "1e", "a in ('", "a", " ", "-- \n", "1L", "-("):
            for head in ("", "a = ", "'", "/*", "a > -"):
                text = (head + unit * TEXT_SIZE_MAX)[:TEXT_SIZE_MAX]
                self.assertLess(min(seconds(text) for _ in range(2)), most, msg=head + unit)

    def test_the_largest(self) -> None:
        """The deepest and the longest permitted expression can be evaluated."""
        self.assertIs(parse("NOT " * (DEPTH_MAX - 1) + "(a = 1)").evaluate({"a": "1"}), False)
        many = " OR ".join(f"a = {n}" for n in range(CONDITIONS_MAX - 1))
        self.assertIs(parse(many).evaluate({"a": str(CONDITIONS_MAX - 2)}), True)
        texts = ", ".join(f"'{n:020}'" for n in range(TOKENS_MAX // 2 - 2))
        self.assertIs(parse(f"a IN ({texts})").evaluate({"a": f"{7:020}"}), True)
        self.assertLess(DEPTH_MAX, sys.getrecursionlimit() // 5)

    @given(st.text(st.sampled_from("ab15'()<>=-+.,*/ \nLeENOTISRUAD#"), max_size=30))
    def test_any_text(self, text: str) -> None:
        """Any text is either refused, or has a value or an EvaluationError."""
        try:
            evaluate = parse(text).evaluate
        except ExpressionError as error:
            self.assertTrue(str(error))
            return
        for properties in ({}, {"a": "1", "b": "x"}):
            with contextlib.suppress(EvaluationError):
                self.assertIn(evaluate(properties), (True, False, None))


# --- a model


Model = Callable[[Mapping[str, str]], bool | None]
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(-5, 5)
TEXTS = st.sampled_from(["x", "xy", "it's", "Y", "5"])
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y, "<>": lambda x, y: x != y, ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y, "<": lambda x, y: x < y, "<=": lambda x, y: x <= y,
}
SEARCH: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text, "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def comparison(name: str, sign: str, number: int) -> tuple[str, Model]:
    """Return a comparison with a number; it fails if the property exists and is not a number."""
    def model(properties: Mapping[str, str]) -> bool | None:
        return COMPARE[sign](int(properties[name]), number) if name in properties else None
    return f"{name} {sign} {number}", model


def membership(name: str, texts: list[str], word: str) -> tuple[str, Model]:
    """The operators IN and NOT IN."""
    def model(properties: Mapping[str, str]) -> bool | None:
        return (properties[name] in texts) == (word == "IN") if name in properties else None
    return f"{name} {word} ({', '.join(map(quoted, texts))})", model


def search(name: str, word: str, text: str, is_there: bool) -> tuple[str, Model]:
    """CONTAINS and its like: false without the property, NOT or no NOT."""
    def model(properties: Mapping[str, str]) -> bool | None:
        return name in properties and SEARCH[word](properties[name], text) == is_there
    return f"{name} {'' if is_there else 'NOT '}{word} {quoted(text)}", model


def presence(name: str, word: str) -> tuple[str, Model]:
    """The operators IS NULL and IS NOT NULL."""
    return (f"{name} {word}",
            lambda properties: (name in properties) == (word == "IS NOT NULL"))


def interval(name: str, low: int, size: int, word: str) -> tuple[str, Model]:
    """The operators BETWEEN and NOT BETWEEN."""
    def model(properties: Mapping[str, str]) -> bool | None:
        if name not in properties:
            return None
        return (low <= int(properties[name]) <= low + size) == (word == "BETWEEN")
    return f"{name} {word} {low} AND {low + size}", model


def negation(inner: tuple[str, Model]) -> tuple[str, Model]:
    """The operator NOT."""
    def model(properties: Mapping[str, str]) -> bool | None:
        value = inner[1](properties)
        return None if value is None else not value
    return f"NOT ({inner[0]})", model


def conjunction(parts: list[tuple[str, Model]], word: str) -> tuple[str, Model]:
    """The operators AND and OR in Kleene's logic; a decided operation stops the evaluation."""
    decisive = word == "OR"

    def model(properties: Mapping[str, str]) -> bool | None:
        values = []
        for _, part in parts:
            values.append(part(properties))
            if values[-1] is decisive:
                return decisive
        return None if None in values else not decisive
    return f" {word} ".join(f"({text})" for text, _ in parts), model


CONDITIONS = st.recursive(
    st.one_of(
        st.builds(comparison, NAMES, st.sampled_from(sorted(COMPARE)), NUMBERS),
        st.builds(membership, NAMES, st.lists(TEXTS, min_size=1), st.sampled_from(
            ["IN", "NOT IN"])),
        st.builds(search, NAMES, st.sampled_from(sorted(SEARCH)), TEXTS, st.booleans()),
        st.builds(presence, NAMES, st.sampled_from(["IS NULL", "IS NOT NULL"])),
        st.builds(interval, NAMES, NUMBERS, st.integers(0, 3), st.sampled_from(
            ["BETWEEN", "NOT BETWEEN"])),
    ),
    lambda inner: st.one_of(
        st.builds(negation, inner),
        st.builds(conjunction, st.lists(inner, min_size=2, max_size=4),
                  st.sampled_from(["AND", "OR"])),
    ), max_leaves=12)
PROPERTIES = st.dictionaries(NAMES, st.one_of(NUMBERS.map(str), TEXTS))


class ModelTests(SynchronousTestCase):
    """Expressions against a model of SQL's three values."""

    @settings(max_examples=examples(300))
    @given(CONDITIONS, st.lists(PROPERTIES, min_size=1, max_size=5))
    def test_same_value(
        self, condition: tuple[str, Model], maps: list[dict[str, str]]
    ) -> None:
        """The same value as the model's, or an error where the model has one."""
        text, model = condition
        evaluate = parse(text).evaluate
        for properties in maps:
            try:
                expected: Any = model(properties)
            except ValueError:
                self.assertRaises(EvaluationError, evaluate, properties)
                continue
            self.assertIs(evaluate(properties), expected, msg=f"{text} {properties}")

    @given(CONDITIONS)
    def test_case_of_words(self, condition: tuple[str, Model]) -> None:
        """The case of keywords, comments and line ends change nothing."""
        text = condition[0]
        other = text.replace(" AND ", " and/* and */\r\n").replace(" NOT ", "\tnOt -- not\n")
        for properties in ({}, {"a": "5", "b": "x", "c": "1"}):
            self.assertEqual(answers(text, [properties]), answers(other, [properties]))
