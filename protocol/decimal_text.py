"""Whole numbers in the texts of other programs: properties, addresses, tables, options.

``int()`` alone is not a check. It accepts blanks, underscores and the digits of all scripts, it
raises ``ValueError`` for more than 4,300 digits even if all characters are digits, and its result
may be too large for the fields of requests and files.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LONG_MAX", "PORT_MAX", "whole_number"]

#: The largest int64.
LONG_MAX: Final = (1 << 63) - 1
#: The largest port of TCP.
PORT_MAX: Final = (1 << 16) - 1
#: The largest number of digits, leading zeros included: that of a file's name in a store.
_DIGITS_MAX: Final = 20


def whole_number(text: str, largest: int = LONG_MAX) -> int | None:
    """Return the number that a text of ASCII digits stands for.

    :param largest: the largest number that is accepted.
    :returns: None for any other text, and for a number that is too large.
    """
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= largest else None
