"""A page as data: tables with typed columns, single facts, and the servers that did not answer.

The HTML form and the JSON form of a page are made from the same object, so they have the same rows.
The JSON form is an object with these members:

=========== =====================================================================================
page        the name of the kind of page, such as "topics"
title       the title
cluster     the name of the cluster in the console
facts       an object of single values
tables      an object: for each table the list of its rows, which are objects by column name
totals      an object: for each table that is cut, the number of rows before the cut
unanswered  a list of objects with "server" and "reason"
notes       a list of texts
charts      an object: for each chart "title", "times" and "series", which has lists by name
file        for a download: an object with "name", and "content" in base64
=========== =====================================================================================

A page without charts has no "charts", and one without a file no "file". Times are Unix
milliseconds, sizes are bytes, rates are per second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from twistmq.console.page_session import Unanswered
from twistmq.console.sample_table import Chart

__all__ = ["Cell", "Column", "Download", "Kind", "Page", "Table"]

#: The length of the name of a file.
_FILE_NAME_MAX: Final = 120
#: How a cell is displayed. Cells of the kinds from "topic" on are names that link to their pages,
#: except the last one, which is a box that selects the row.
Kind: TypeAlias = Literal[
    "text", "number", "bytes", "rate", "time", "percent", "state", "code", "list", "topic",
    "group", "client", "letters", "select"]
Cell: TypeAlias = "str | int | float | bool | list[str] | None"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    :param name: the member of the JSON form.
    :param title: the head in HTML; empty: the name with blanks.
    """

    name: str
    kind: Kind = "text"
    title: str = ""

    @property
    def head(self) -> str:
        """The text above the column."""
        return self.title or self.name.replace("_", " ").capitalize()

    @property
    def is_numeric(self) -> bool:
        """Whether cells are aligned to the right, and sorted with the largest first."""
        return self.kind in ("number", "bytes", "rate", "percent", "time")


@dataclass(slots=True)
class Table:
    """A table of a page.

    :param title: the heading above the table; empty: there is no heading.
    :param empty: what an operator can do when there are no rows.
    :param total: the number of rows before the table was cut; None: it is whole.
    """

    columns: Sequence[Column]
    rows: list[tuple[Cell, ...]]
    title: str = ""
    empty: str = "There are no rows."
    total: int | None = None

    def row_objects(self) -> list[dict[str, Cell]]:
        """Return the rows by column name."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def column_sum(self, name: str) -> float:
        """Return the sum of the numbers in a column; other cells do not count."""
        index = [column.name for column in self.columns].index(name)
        return sum(cell for row in self.rows if isinstance(cell := row[index], int | float))


@dataclass(frozen=True, slots=True)
class Download:
    """A file that a browser stores and does not show.

    :param name: the name that is proposed; other characters than letters, digits, "." and "-" are
        replaced.
    """

    name: str
    content: bytes

    @property
    def file_headers(self) -> dict[bytes, bytes]:
        """The headers of the file."""
        plain = re.sub(r"[^A-Za-z0-9.-]+", "_", self.name)[:_FILE_NAME_MAX]
        return {b"content-type": b"application/octet-stream",
                b"content-disposition": f'attachment; filename="{plain}"'.encode()}


@dataclass(slots=True)
class Page:
    """A page.

    :param name: its kind, which is also the name of its template.
    :param facts: single values by name; HTML shows those that its template names.
    :param file: the content that is sent in place of HTML; None: the page has a template.
    """

    name: str
    title: str
    tables: dict[str, Table] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    status: int = 200
    charts: dict[str, Chart] = field(default_factory=dict)
    file: Download | None = None

    def as_json(self, cluster: str) -> bytes:
        """Return the JSON form."""
        return msgspec.json.encode({
            "page": self.name, "title": self.title, "cluster": cluster, "facts": self.facts,
            "tables": {name: table.row_objects() for name, table in self.tables.items()},
            "totals": {name: table.total for name, table in self.tables.items()
                       if table.total is not None},
            "unanswered": self.unanswered, "notes": self.notes,
            **({"charts": self.charts} if self.charts else {}),
            **({"file": self.file} if self.file else {}),
        }) + b"\n"
