"""Parameters of requests, and the cut of tables."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.page import Cell, Column, Table
from twistmq.console.query import BadQuery, Query, cut_table


class QueryTests(SynchronousTestCase):
    """One parameter."""

    def test_numbers(self) -> None:
        """A number has bounds; anything else is refused with a text that names the parameter."""
        query = Query({"a": " 7 ", "b": "", "c": "7.5", "d": "\u0667", "e": "9" * 30, "f": "-1"})
        self.assertEqual(query.number("a", 1), 7)
        self.assertEqual(query.number("b", 1), 1)
        self.assertEqual(query.number("f", 1, -1), -1)
        for name in "cdef":
            error = self.assertRaises(BadQuery, query.number, name, 1)
            self.assertTrue(str(error).startswith(f"{name} is not "), msg=str(error))

    def test_choices(self) -> None:
        """The first word is the default, and another word is refused."""
        query = Query({"a": "two", "b": "three"})
        self.assertEqual(query.one_of("a", ("one", "two")), "two")
        self.assertEqual(query.one_of("c", ("one", "two")), "one")
        self.assertRaises(BadQuery, query.one_of, "b", ("one", "two"))

    def test_a_required_text(self) -> None:
        """Blanks are not a text."""
        self.assertEqual(str(self.assertRaises(BadQuery, Query({"a": "  "}).required_text, "a")),
                         "a is missing")


class CutTests(SynchronousTestCase):
    """Rows of a long table."""

    def cut(self, **values: str) -> tuple[list[Cell], int | None]:
        """The first cells after the cut, and the number of rows before it."""
        table = Table((Column("name"), Column("lag", "number")), [
            ("beta", 5), ("alpha", None), ("Gamma", 50), ("alphabet", 5)])
        cut_table(table, Query(values), sort="name")
        return [row[0] for row in table.rows], table.total

    def test_order(self) -> None:
        """Equal rows are in the order of their names; unknown values are the smallest."""
        self.assertEqual(self.cut()[0], ["Gamma", "alpha", "alphabet", "beta"])
        self.assertEqual(self.cut(sort="lag")[0], ["alpha", "alphabet", "beta", "Gamma"])
        self.assertEqual(self.cut(sort="-lag")[0], ["Gamma", "alphabet", "beta", "alpha"])
        self.assertRaises(BadQuery, self.cut, sort="nothing")

    def test_a_filter_takes_any_case(self) -> None:
        """The total counts the rows that pass the filter."""
        self.assertEqual(self.cut(q="ALPHA"), (["alpha", "alphabet"], 2))

    def test_pages(self) -> None:
        """A page after the last one is empty, and the total is still told."""
        self.assertEqual(self.cut(size="3", page="2"), (["beta"], 4))
        self.assertEqual(self.cut(size="3", page="9"), ([], 4))
        self.assertRaises(BadQuery, self.cut, size="0")
