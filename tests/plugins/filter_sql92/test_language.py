"""SQL92 as a language of subscriptions."""

from __future__ import annotations

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twistmq.broker.interfaces import IFilterLanguage
from twistmq.plugins.filter_sql92.language import Sql92


class LanguageTests(SynchronousTestCase):
    """Sql92."""

    def test_matches(self) -> None:
        """Only what is true matches, not what is unknown."""
        verifyObject(IFilterLanguage, Sql92())
        matches = Sql92().compile("price > 5")
        self.assertEqual([matches(properties) for properties in (
            {"price": "6"}, {"price": "5"}, {})], [True, False, False])

    def test_refusal(self) -> None:
        """A wrong expression is a ValueError that says where."""
        error = self.assertRaises(ValueError, Sql92().compile, "price > LIKE AND")
        self.assertNotIn("\n", str(error))

    def test_cost(self) -> None:
        """An expression of many operations says that it takes longer."""
        many = Sql92().compile(" OR ".join(f"a = {number}" for number in range(64)))
        self.assertEqual([each.cost for each in (Sql92().compile("a > 1"), many)],  # type: ignore
                         [1, 9])

    def test_errors_are_told_once(self) -> None:
        """What cannot be evaluated does not match, and the log says so once an expression."""
        matches = Sql92().compile("price > 5")
        with capturedLogs() as events:
            self.assertEqual([matches({"price": text}) for text in ("cheap", "9.5", "6")],
                             [False, False, True])
        self.assertEqual([(event["log_level"], event["expression"]) for event in events],
                         [(LogLevel.warn, "price > 5")])
