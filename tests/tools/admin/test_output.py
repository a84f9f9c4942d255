"""Results as tables and as JSON."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.tools.admin.output import as_json, as_table, time_text
from twistmq.tools.admin.rows import Millis


class TableTests(SynchronousTestCase):
    """The function ``as_table``."""

    def test_numbers_stand_to_the_right(self) -> None:
        """Numbers are on the right, missing values are blank, and fractions have two digits."""
        text = as_table(("name", "count", "rate", "on", "of"), [
            ("a", 5, 0.5, True, ["x", "y"]), ("bb", 123456, None, False, [])], coloured=False)
        self.assertEqual(text.splitlines()[2:], [
            "a             5    0.50  true   x, y", "bb       123456          false"])

    def test_one_line_a_row(self) -> None:
        """Control characters, such as those of a body, are escaped."""
        text = as_table(("body",), [("a\nb\x1b[31m\u202e é",)], coloured=False)
        self.assertEqual(text.splitlines()[2:], ["a\\nb\\x1b[31m\\u202e é"])

    def test_mixed_column(self) -> None:
        """A column with texts is on the left."""
        text = as_table(("value",), [(1,), ("text",)], coloured=False)
        self.assertEqual(text.splitlines()[2:], ["1", "text"])

    def test_without_rows_the_table_is_empty(self) -> None:
        """An empty result is a table without rows."""
        self.assertEqual(as_table(("a", "b_c"), [], coloured=False).split(),
                         ["a", "b", "c", "---", "-----"])

    def test_the_heads_are_bold_where_that_is_wanted(self) -> None:
        """The columns keep their places."""
        rows = [("some text", 1)]
        plain = as_table(("a", "b"), rows, coloured=False)
        coloured = as_table(("a", "b"), rows, coloured=True)
        self.assertIn("\x1b[1ma\x1b[0m", coloured)
        self.assertEqual(coloured.replace("\x1b[1m", "").replace("\x1b[0m", ""), plain)

    def test_a_time_has_milliseconds(self) -> None:
        """A time has milliseconds; None is blank, and an impossible time is a number."""
        self.assertRegex(time_text(1_700_000_000_123), r"^2023-11-1\d \d\d:\d\d:\d\d,123$")
        self.assertEqual(time_text(2**90), str(2**90))
        text = as_table(("at",), [(Millis(0),), (Millis(1_700_000_000_123),)], coloured=False)
        self.assertIn(time_text(1_700_000_000_123), text)
        self.assertNotIn("1970", text)


class JsonTests(SynchronousTestCase):
    """The function ``as_json``."""

    def test_what_a_terminal_would_act_on_is_escaped(self) -> None:
        """Control characters, and those that change the direction of text, are escaped.

        A parser reads the same texts; letters of any language stand as they are.
        """
        rows = [("\x1b[31m\x7f\x9b31m\u202e\u2066\u200e é 日本 \U000e0001", ["\x85"])]
        text = as_json(("b\x9body", "keys"), rows)
        self.assertTrue(all(line.isprintable() for line in text.splitlines()))
        self.assertEqual(len(text.splitlines()), 3)
        self.assertIn("é 日本", text)
        self.assertEqual(json.loads(text), [{"b\x9body": rows[0][0], "keys": rows[0][1]}])

    def test_a_list_of_objects(self) -> None:
        """A list of objects, a line each; a time is its milliseconds."""
        text = as_json(("name", "at", "tags"), [("a\n", Millis(5), ["x"]), (None, 1.5, True)])
        self.assertEqual(json.loads(text), [{"name": "a\n", "at": 5, "tags": ["x"]},
                                            {"name": None, "at": 1.5, "tags": True}])
        self.assertEqual(len(text.splitlines()), 4)

    def test_without_rows_the_json_is_an_empty_list(self) -> None:
        """The result is an empty list."""
        self.assertEqual(json.loads(as_json(("a",), [])), [])
