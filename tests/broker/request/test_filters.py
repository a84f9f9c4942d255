"""Filters: tags by the queue entry, other languages by the record's properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.interfaces import IFilterLanguage
from twistmq.broker.request.filters import FilterLanguages, is_tag_type, tags_of
from twistmq.broker.wire.properties import format_properties, java_string_hash, tags_code
from twistmq.broker.wire.record import MessageRecord, encode_record, host_bytes


@implementer(IFilterLanguage)
class Equals:
    """A language of expressions ``name=value``."""

    def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
        name, separator, value = expression.partition("=")
        if not separator:
            raise ValueError("no = in the expression")
        return lambda properties: properties.get(name) == value


def record(**properties: str) -> bytes:
    """A stored message with these properties."""
    host = host_bytes("127.0.0.1", 1)
    return encode_record(MessageRecord(
        "T", 0, b"body", format_properties(properties), 0, host, host, [],
        tags_code(properties.get("TAGS"))))


class TagTests(SynchronousTestCase):
    """``TAG`` expressions."""

    def test_tags_of(self) -> None:
        """Tags are separated by bars; blanks around them do not count; nothing means all."""
        for expression, tags in ((None, []), ("", []), ("*", []), ("a", ["a"]),
                                 ("a||b", ["a", "b"]), (" a || b ||", ["a", "b"])):
            self.assertEqual(tags_of(expression), tags, msg=repr(expression))
        for expression in ("||", "  ", " || "):
            self.assertRaises(ValueError, tags_of, expression)

    def test_types(self) -> None:
        """Clients that do not name a type mean TAG."""
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

    def test_all(self) -> None:
        """A subscription to everything needs no filter."""
        for expression in ("*", "", None):
            self.assertIsNone(FilterLanguages().make_filter("TAG", expression))


class LanguageTests(SynchronousTestCase):
    """Languages of plugins."""

    def setUp(self) -> None:
        self.languages = FilterLanguages()
        self.languages.add_languages({"EQUALS": Equals()})

    def refused(self, expression_type: str, expression: str) -> int:
        error = self.assertRaises(
            RequestRefused, self.languages.check, expression_type, expression)
        return error.response_code

    def test_record_decides(self) -> None:
        """Every entry passes; the record's properties decide."""
        chosen = self.languages.make_filter("EQUALS", "colour=red")
        assert chosen is not None
        self.assertTrue(chosen.match_queue_entry(0))
        self.assertTrue(chosen.match_record(record(colour="red", TAGS="a")))
        self.assertFalse(chosen.match_record(record(colour="blue")))
        self.assertFalse(chosen.match_record(memoryview(record())))

    def test_refusals(self) -> None:
        """An unknown language and an expression that is none of it are told apart."""
        self.assertEqual(self.refused("SQL92", "a > 1"), ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.refused("EQUALS", "red"), ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        self.assertEqual(self.refused("TAG", "||"), ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        self.languages.check("EQUALS", "colour=red")

    def test_knows(self) -> None:
        """TAG is always known, others when a plugin brought them."""
        self.assertEqual([self.languages.knows(name) for name in ("TAG", None, "EQUALS", "X")],
                         [True, True, True, False])
