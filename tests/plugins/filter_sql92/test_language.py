"""SQL92 as a language of subscriptions."""

from __future__ import annotations

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twistmq.broker.plugin.interfaces import IFilterLanguage
from twistmq.broker.request.filters import PropertyFilter
from twistmq.plugins.filter_sql92.language import Sql92
from twistmq.protocol.properties import format_properties, parse_properties


class LanguageTests(SynchronousTestCase):
    """The class ``Sql92``."""

    def test_only_true_matches_and_unknown_does_not(self) -> None:
        """Only True matches; unknown does not."""
        verifyObject(IFilterLanguage, Sql92(lambda: 0))
        matches = Sql92(lambda: 0).compile("price > 5")
        self.assertEqual([matches(properties) for properties in (
            {"price": "6"}, {"price": "5"}, {})], [True, False, False])

    def test_a_wrong_expression_is_a_valueerror_that_says_where(self) -> None:
        """A wrong expression raises a ValueError with the position of the fault."""
        error = self.assertRaises(ValueError, Sql92(lambda: 0).compile, "price > LIKE AND")
        self.assertNotIn("\n", str(error))

    def test_an_expression_of_many_operations_says_that_it_takes_longer(self) -> None:
        """An expression of many operations says that it takes longer."""
        many = Sql92(lambda: 0).compile(" OR ".join(f"a = {number}" for number in range(64)))
        self.assertEqual([each.cost for each in (Sql92(lambda: 0).compile("a > 1"), many)],  # type: ignore
                         [1, 9])

    def test_same_of_records(self) -> None:
        """A filter gives the same result for a few properties as for all of them."""
        for expression in ("a BETWEEN -1 AND 5", "a BETWEEN 1.5 AND 2.5", "a NOT BETWEEN 1 AND 5",
                           "a BETWEEN 1 AND 5000000000", "a BETWEEN 1 AND 2.5", "a = 'x'",
                           "a = '5'", "a <> 'x'", "a IS NULL", "b = 'x' AND a > 1"):
            matches = Sql92(lambda: 0).compile(expression)
            for a in ("", "-1", "0", "1", "2", "2.0", "5", "6", "x", "NaN", "1e1", "5000000001"):
                fields = {"c": "1", "a": a, "ab": "2", "b": "x"}
                properties = format_properties(fields)
                self.assertEqual(PropertyFilter(matches).match_properties(properties),
                                 matches(parse_properties(properties)), msg=f"{expression}: {a}")

    def test_between_equals_two_comparisons(self) -> None:
        """BETWEEN, which reads its property once, gives the result of two comparisons."""
        for low, high in (("-1", "5"), ("1.5", "2.5"), ("1", "5000000000"), ("0", "0")):
            at_once = Sql92(lambda: 0).compile(f"a BETWEEN {low} AND {high}")
            apart = Sql92(lambda: 0).compile(f"a >= {low} AND a <= {high}")
            for a in (None, "-1", "0", "1", "2", "2.0", "5", "x", "NaN", "1e1", "5000000001"):
                properties = {} if a is None else {"a": a}
                with capturedLogs():
                    self.assertEqual(at_once(properties), apart(properties), msg=f"{low} {a}")

    def test_errors_are_told_once(self) -> None:
        """An error does not match, and each expression logs it once."""
        matches = Sql92(lambda: 0).compile("price > 5")
        with capturedLogs() as events:
            self.assertEqual([matches({"price": text}) for text in ("cheap", "9.5", "6")],
                             [False, False, True])
        self.assertEqual([(event["log_level"], event["expression"]) for event in events],
                         [(LogLevel.warn, "price > 5")])
