"""Output of results as a table or as JSON."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from twistmq.protocol.printable import json_printable
from twistmq.tools.admin.rows import Cell, Millis, Row

__all__ = ["as_json", "as_table", "is_coloured", "time_text"]


def time_text(at_ms: int, separator: str = ",") -> str:
    """Return a time in mqadmin's format, local time with milliseconds.

    :param separator: the character before the milliseconds.
    """
    try:
        moment = time.localtime(at_ms // 1000)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', moment)}{separator}{at_ms % 1000:03}"


def is_coloured() -> bool:
    """Return whether standard output is a terminal for which colour is enabled."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, Millis):
        return time_text(cell) if cell > 0 else ""
    if isinstance(cell, float):
        return f"{cell:.2f}"
    if isinstance(cell, list):
        cell = ", ".join(cell)
    # A row of a table is always one line: control characters of a message are printed as escapes.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(cell))


def as_table(columns: Sequence[str], rows: Sequence[Row], *, coloured: bool) -> str:
    """Return rows below their column names; numbers are aligned to the right."""
    from tabulate import tabulate

    heads = [name.replace("_", " ") for name in columns]
    if coloured:
        heads = [click.style(head, bold=True) for head in heads]
    cells = [[row[at] for row in rows if row[at] is not None] for at in range(len(columns))]
    numeric = [bool(column) and all(map(_is_number, column)) for column in cells]
    return tabulate([[_text(cell) for cell in row] for row in rows], heads, tablefmt="simple",
                    disable_numparse=True,
                    colalign=["right" if right else "left" for right in numeric] if rows else None)


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool | Millis)


def as_json(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a list of objects, one line each; times are ms since 1970.

    Characters to which a terminal would react are escaped, as in tables; a parser reads the same
    text.
    """
    lines = [msgspec.json.encode(dict(zip(columns, row, strict=True)), enc_hook=_plain).decode()
             for row in rows]
    return "[" + "".join(f"\n  {json_printable(line)}," for line in lines).rstrip(",") + (
        "\n]" if lines else "]")


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    raise NotImplementedError(type(value))
