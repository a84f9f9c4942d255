"""The parameters of a request, which a stranger may have written, and the cut of long tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from twistmq.console.page import Cell, Table

__all__ = ["SIZE", "SIZE_MAX", "BadQuery", "Query", "cut_table", "page_size", "read_time_ms"]

#: The rows of a table on one page: as a default, and at most.
SIZE: Final = 100
SIZE_MAX: Final = 5_000
_NUMBER_MAX: Final = 2**63 - 1


class BadQuery(ValueError):
    """A parameter of a request is not valid; the text is for the person who made it."""


class Query:
    """The parameters of a request, in the address or in a form; the last one of a name counts.

    :param lists: all values of each name, for the names that may occur several times.
    """

    def __init__(
        self, values: Mapping[str, str], lists: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.values = dict(values)
        self._lists = lists or {}

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter without blanks around it; the default if it is empty."""
        return self.values.get(name, "").strip() or default

    def required_text(self, name: str) -> str:
        """Return a parameter; :raises BadQuery: when it is missing."""
        text = self.text(name)
        if not text:
            raise BadQuery(f"{name} is missing")
        return text

    def all_texts(self, name: str) -> list[str]:
        """Return all values of a parameter that may occur several times, each one once."""
        return list(dict.fromkeys(each.strip() for each in self._lists.get(name, ())
                                  if each.strip()))

    def number(self, name: str, default: int, low: int = 0, high: int = _NUMBER_MAX) -> int:
        """Return a whole number; :raises BadQuery: when it is not one, or out of its bounds."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
            raise BadQuery(f"{name} is not a whole number")
        number = int(text)
        if not low <= number <= high:
            raise BadQuery(f"{name} is not between {low} and {high}")
        return number

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of several words; the first one is the default.

        :raises BadQuery: when it is another word.
        """
        text = self.text(name, choices[0])
        if text not in choices:
            raise BadQuery(f"{name} is not one of {', '.join(choices)}")
        return text


def cut_table(table: Table, query: Query, *, sort: str) -> None:
    """Filter and sort the rows of a table by a query, and keep the rows of one page.

    ``q`` is a part of the first cell in any case, ``sort`` the name of a column with "-" before it
    for the largest first, ``page`` a number from 1, and ``size`` the number of rows.

    :param sort: the order without a query.
    :raises BadQuery: when a parameter is not valid.
    """
    needle = query.text("q").lower()
    rows = [row for row in table.rows if needle in str(row[0]).lower()] if needle else table.rows
    order = query.text("sort", sort)
    names = [column.name for column in table.columns]
    if order.removeprefix("-") not in names:
        raise BadQuery(f"sort is not one of {', '.join(names)}, with or without - before it")
    at = names.index(order.removeprefix("-"))
    rows = sorted(rows, key=lambda row: _order(row[0]))
    rows.sort(key=lambda row: _order(row[at]), reverse=order.startswith("-"))
    size = page_size(query)
    number = query.number("page", 1, 1)
    table.total = len(rows)
    table.rows = rows[(number - 1) * size : number * size]


def page_size(query: Query) -> int:
    """Return the number of rows on one page of a table; :raises BadQuery: when it is not valid."""
    return query.number("size", SIZE, 1, SIZE_MAX)


def _order(cell: Cell) -> tuple[int, float, str]:
    """The order of cells of one column: unknown ones come first, then numbers, then texts."""
    if cell is None:
        return 0, 0.0, ""
    if isinstance(cell, int | float):
        return 1, float(cell), ""
    return 2, 0.0, str(cell)


def read_time_ms(text: str, digits_max: int = 18) -> int:
    """Read a time: Unix ms, or a local date and time in ISO 8601.

    :param digits_max: the largest number of digits of a time in Unix ms.
    :raises BadQuery: when it is neither.
    """
    if text.isascii() and text.isdigit() and len(text) <= digits_max:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadQuery(
            "the value is neither a time such as 2026-11-30 14:05 nor Unix milliseconds") from None
