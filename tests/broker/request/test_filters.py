"""Filters: tags by the queue entry, and other languages by the properties of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker.constants import EXPRESSION_LENGTH_MAX
from twistmq.broker.plugin.interfaces import IFilterLanguage
from twistmq.broker.request.filters import (
    FilterLanguages,
    MadeFilters,
    PropertyFilter,
    is_tag_type,
    tags_of,
)
from twistmq.protocol.bodies import SubscriptionData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.properties import format_properties, java_string_hash, tags_code
from twistmq.protocol.record import MessageRecord, encode_record, host_bytes


@implementer(IFilterLanguage)
class Equals:
    """A language of expressions ``name=value``."""

    def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
        name, separator, value = expression.partition("=")
        if not separator:
            raise ValueError("no = in the expression")
        return lambda properties: properties.get(name) == value


def record(**properties: str) -> bytes:
    """Return a stored message with these properties."""
    host = host_bytes("127.0.0.1", 1)
    return encode_record(MessageRecord(
        "T", 0, b"body", format_properties(properties), 0, host, host, [],
        tags_code(properties.get("TAGS"))))


class PropertyFilterTests(SynchronousTestCase):
    """The compiled expressions of plugins."""

    def test_an_expression_is_given_all_properties(self) -> None:
        """An expression is given all properties, of a record and of a text."""
        given: list[dict[str, str]] = []

        def matches(properties: Mapping[str, str]) -> bool:
            given.append(dict(properties))
            return properties["a"] == "1"

        fields = {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}
        self.assertTrue(PropertyFilter(matches).match_record(record(**fields)))
        self.assertFalse(PropertyFilter(matches).match_properties("a\x012\x02"))
        self.assertEqual(given, [fields, {"a": "2"}])


class TagTests(SynchronousTestCase):
    """Expressions of the type ``TAG``."""

    def test_tags_of(self) -> None:
        """Tags are separated by bars, and blanks around them are ignored; no tags mean all."""
        for expression, tags in ((None, []), ("", []), ("*", []), ("a", ["a"]),
                                 ("a||b", ["a", "b"]), (" a || b ||", ["a", "b"]),
                                 ("\x03a\0||\u3000b\xa0", ["a", "\u3000b\xa0"])):
            self.assertEqual(tags_of(expression), tags, msg=repr(expression))
        for expression in ("||", "  ", " || "):
            self.assertRaises(ValueError, tags_of, expression)

    def test_clients_that_do_not_name_a_type_mean_tag(self) -> None:
        """Clients without a type mean TAG."""
        self.assertEqual([is_tag_type(name) for name in (None, "", "TAG", "SQL92")],
                         [True, True, True, False])

    def test_entry_decides(self) -> None:
        """A tag's hash in the entry decides; a collision passes, as the client compares texts."""
        chosen = FilterLanguages().make_filter("TAG", "Aa || other")
        assert chosen is not None
        self.assertTrue(chosen.match_queue_entry(java_string_hash("Aa")))
        self.assertTrue(chosen.match_queue_entry(java_string_hash("BB")))
        self.assertFalse(chosen.match_queue_entry(java_string_hash("C")))
        self.assertFalse(chosen.match_queue_entry(0))
        self.assertTrue(chosen.match_record(record(TAGS="C")))

    def test_many_tags(self) -> None:
        """Many tags are distinguished as few are: the least, the greatest, and their neighbours."""
        names = [f"tag{number}" for number in range(1000)]
        chosen = FilterLanguages().make_filter("TAG", "||".join(names))
        assert chosen is not None
        codes = {java_string_hash(name) for name in names}
        for code in codes:
            self.assertTrue(chosen.match_queue_entry(code))
        for code in (min(codes) - 1, max(codes) + 1, 0, 2**62, -2**62):
            self.assertFalse(chosen.match_queue_entry(code), msg=str(code))

    def test_long_expression(self) -> None:
        """The limit is 64 Ki characters in any language, and is checked before the expression."""
        languages = FilterLanguages()
        languages.make_filter("TAG", "a" * EXPRESSION_LENGTH_MAX)
        for expression_type in ("TAG", None, "EQUALS"):
            for ask in (languages.make_filter, languages.check):
                error = self.assertRaises(RequestRefused, ask, expression_type,
                                          "a" * (EXPRESSION_LENGTH_MAX + 1))
                self.assertEqual(error.response_code, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
                self.assertIn("longer than 65536", str(error))

    def test_a_subscription_to_everything_needs_no_filter(self) -> None:
        """A subscription to everything has no filter."""
        for expression in ("*", "", None):
            self.assertIsNone(FilterLanguages().make_filter("TAG", expression))


class GroupFilterTests(SynchronousTestCase):
    """The filters of subscriptions from heartbeats."""

    def test_made_once(self) -> None:
        """A subscription is parsed once, whatever the number of pulls; a newer one
        is parsed again.
        """
        languages = FilterLanguages()
        made: MadeFilters = {}
        old, new = (SubscriptionData("T", "a || b", sub_version=version) for version in (1, 2))
        first = languages.group_filter("g", old, 1, made)
        self.assertIsNotNone(first)
        self.assertIs(languages.group_filter("g", old, 1, made), first)
        second = languages.group_filter("g", new, 2, made)
        self.assertIsNot(second, first)
        self.assertIs(languages.group_filter("g", new, 2, made), second)
        self.assertEqual(len(made), 1)


class LanguageTests(SynchronousTestCase):
    """The languages of plugins."""

    def setUp(self) -> None:
        self.languages = FilterLanguages()
        self.languages.add_languages({"EQUALS": Equals()})

    def refused(self, expression_type: str, expression: str) -> tuple[int, str]:
        error = self.assertRaises(
            RequestRefused, self.languages.check, expression_type, expression)
        return error.response_code, str(error)

    def test_record_decides(self) -> None:
        """Every entry passes; the record's properties decide."""
        chosen = self.languages.make_filter("EQUALS", "colour=red")
        assert chosen is not None
        self.assertTrue(chosen.match_queue_entry(0))
        self.assertTrue(chosen.match_record(record(colour="red", TAGS="a")))
        self.assertFalse(chosen.match_record(record(colour="blue")))
        self.assertTrue(chosen.match_properties("colour\x01red\x02"))
        self.assertFalse(chosen.match_properties(""))
        self.assertFalse(chosen.match_record(record()))

    def test_an_unknown_language_differs_from_an_invalid_expression(self) -> None:
        """An unknown language and a wrong expression have different errors."""
        for name, expression, text in (
            ("SQL92", "a > 1", "no filter language SQL92"),
            ("EQUALS", "red", "no = in the expression"), ("TAG", "||", "subString split error"),
        ):
            self.assertEqual(self.refused(name, expression),
                             (ResponseCode.SUBSCRIPTION_PARSE_FAILED, text))
        self.languages.check("EQUALS", "colour=red")
        self.languages.check("TAG", "red")
        codes = [self.assertRaises(RequestRefused, self.languages.make_filter, *wrong).response_code
                 for wrong in (("SQL92", "a > 1"), ("EQUALS", "red"), ("TAG", "||"))]
        self.assertEqual(codes, [ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                                 ResponseCode.SUBSCRIPTION_PARSE_FAILED])

    def test_compiled_once(self) -> None:
        """An expression is compiled at its first use, even a wrong one; a hundred are kept."""
        asked: list[str] = []

        class Counting(Equals):
            def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
                asked.append(expression)
                return super().compile(expression)

        languages = FilterLanguages()
        languages.add_languages({"EQUALS": Counting()})
        for _ in range(3):
            languages.make_filter("EQUALS", "a=1")
            self.assertRaises(RequestRefused, languages.make_filter, "EQUALS", "wrong")
        self.assertEqual(asked, ["a=1", "wrong"])
        for number in range(99):
            languages.make_filter("EQUALS", f"b={number}")
            languages.make_filter("EQUALS", "a=1")
        self.assertEqual(asked.count("a=1"), 1)
        self.assertRaises(RequestRefused, languages.make_filter, "EQUALS", "wrong")
        self.assertEqual(asked.count("wrong"), 2)

    def test_a_filter_is_as_dear_as_its_language_says_of_the_expression(self) -> None:
        """A filter has the cost that its language gives it, or 1 by default."""
        self.assertEqual(self.languages.make_filter("EQUALS", "a=1").cost, 1)  # type: ignore

        class Dear(Equals):
            def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
                compiled = super().compile(expression)
                compiled.cost = 7  # type: ignore[attr-defined]
                return compiled

        self.languages.add_languages({"DEAR": Dear()})
        self.assertEqual(self.languages.make_filter("DEAR", "a=1").cost, 7)  # type: ignore

    def test_tag_is_always_known(self) -> None:
        """TAG is always known, others when a plugin brought them."""
        self.assertEqual([self.languages.supports(name) for name in ("TAG", None, "EQUALS", "X")],
                         [True, True, True, False])
