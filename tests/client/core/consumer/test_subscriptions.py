"""Subscriptions: tags, lists of tags, and SQL92."""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.roles.styles import STYLES
from twistmq.client import MessageQueue, OptionError, PullConsumer, sql
from twistmq.client.core.consumer.subscriptions import looks_like_sql, subscription

NAMESRV: Final = "127.0.0.1:9"
#: Texts that are SQL92 and not tags.
SQL: Final = (
    "a > 3", "a>3", "a<=3", "level=3", "region = 'eu'", "a between 3 and 5", "a IS NOT NULL",
    "a is null", "not a", "a in ('x')", "a > 3 || b > 5", "TAGS IN('x')", "a and b", "a Or b",
    "name contains 'x'", "(a = 1)")
#: Texts that name tags.
TAGS: Final = (
    "eu", "eu || us", "eu||us", "island", "android", "notable", "in", "is", "not", "and",
    "New York", "made in China", "a-b", "a_b", "a.b", "a:b", "a/b", "", "*", "über", "(x)", "order",
    "a+b")


class SubscriptionTests(SynchronousTestCase):
    """The meaning of an expression."""

    def test_sql_as_plain_text_is_refused(self) -> None:
        """The error explains how to give SQL92, and how to give such a tag."""
        for text in SQL:
            self.assertTrue(looks_like_sql(text), msg=text)
            error = str(self.assertRaises(OptionError, subscription, "T", text))
            self.assertIn(f"give sql({text!r})", error)
            self.assertEqual(subscription("T", sql(text)).kind, "SQL92")

    def test_tags_are_not_taken_for_sql(self) -> None:
        """Words of SQL92 are operators only between blanks."""
        for text in TAGS:
            self.assertFalse(looks_like_sql(text), msg=text)
            self.assertEqual(subscription("T", text).kind, "TAG")

    def test_a_list_of_tags_is_literal(self) -> None:
        """On the wire it has the same form as the text."""
        for tags in (["eu", "us"], ("eu", "us")):
            self.assertEqual(subscription("T", tags), subscription("T", "eu || us"))
        self.assertEqual(subscription("T", {"eu"}), subscription("T", "eu"))
        self.assertEqual(subscription("T", ["a > 3"]).tags, {"a > 3"})
        wrong: Any
        for wrong, words in (([], "empty"), ([5], "the tag is 5"), (["a || b"], "separates"),
                             (["*"], "all tags"), ([""], "empty"), ({"a": 1}, "a list of tags")):
            self.assertIn(words, str(self.assertRaises(OptionError, subscription, "T", wrong)))

    def test_white_space_around_a_tag(self) -> None:
        """Brokers leave out what Java's trim removes, and keep other white space."""
        for text in ("\u3000a", "a\xa0", "\x85a", "a\u2028"):
            self.assertEqual(subscription("T", text).tags, {text})
            self.assertEqual(subscription("T", [text]), subscription("T", text))
        self.assertEqual(subscription("T", "\0a\x03||\tb\n").tags, {"a", "b"})
        self.assertEqual(subscription("T", "\0*\x03"), subscription("T", "*"))
        for text in ("\0a", "a\x03", " a"):
            self.assertRaises(OptionError, subscription, "T", [text])

    def test_each_consumer_refuses_sql_as_plain_text(self) -> None:
        """This is so in each style, for its topics and for ``subscribe``."""
        for style in STYLES:
            for kind in ("Consumer", "PullConsumer", "PopConsumer"):
                error = self.assertRaises(
                    OptionError, getattr(style.module, kind), NAMESRV, group="g",
                    topics={"T": "a > 3"}, **style.more)
                self.assertIn("give sql('a > 3')", str(error), msg=f"{style.name} {kind}")
        with PullConsumer(NAMESRV, group="g", timeout_s=0.1, retries=0) as consumer:
            error = self.assertRaises(OptionError, consumer.subscribe, "T", "a > 3")
            self.assertIn("give sql('a > 3')", str(error))
            error = self.assertRaises(OptionError, next, consumer.client.read(
                MessageQueue("T", "b", 0), 0, 1, expression="a > 3"))
            self.assertIn("give sql('a > 3')", str(error))
