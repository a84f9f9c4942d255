"""Java's ``.properties`` format: reading files, and changing values in place.

A line is ``key=value``, ``key:value`` or ``key value``; ``#`` and ``!`` begin comments; a backslash
at the end joins the next line; ``\\t \\n \\r \\f \\uXXXX`` and a backslash before any other
character are escapes. A key that is given twice has its last value. Changing values keeps every
other line as it is, including comments and the order of lines.

Differs from Apache: bytes that are valid UTF-8 are read as UTF-8, because editors write UTF-8;
other bytes are read as Latin-1, which Java uses for all files.

Source: java.util.Properties (its documented grammar).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.errors import SettingsError

__all__ = ["Property", "decode_properties", "parse_properties", "with_changes"]

#: The white-space characters of the format.
BLANKS: Final = " \t\f"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: A key, up to the first separator that is not escaped.
KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Property:
    """One entry of a file.

    :param first: the number of its first line, from 1.
    :param last: the number of its last line; greater when lines are joined.
    """

    key: str
    value: str
    first: int
    last: int


def decode_properties(data: bytes) -> tuple[str, str]:
    """Return the text of a file and the name of its encoding."""
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def parse_properties(text: str, source: str = "") -> list[Property]:
    """Return the entries of a file in their order.

    :param source: the name of the file, for the error.
    :raises SettingsError: when ``\\u`` is not followed by four hexadecimal digits.
    """
    entries = []
    lines = _natural_lines(text)
    number = 0
    while number < len(lines):
        first = number + 1
        line = lines[number].lstrip(BLANKS)
        number += 1
        if not line or line == "\\" or line[0] in "#!":
            continue  # a single backslash does not join lines
        while _is_continued(line):
            line = line[:-1]
            if number == len(lines):
                break
            line += lines[number].lstrip(BLANKS)
            number += 1
        key, value = _split(line)
        location = f"{source}:{first}"
        entries.append(Property(
            _unescaped(key, location), _unescaped(value, location), first, number))
    return entries


def with_changes(text: str, changes: Mapping[str, str]) -> str:
    """Return the file with changed values; a key that is new is added at the end."""
    lines: list[str | None] = list(_natural_lines(text))
    entries = {entry.key: entry for entry in parse_properties(text)}
    added = []
    for key, value in changes.items():
        line = f"{_escaped(key, is_key=True)}={_escaped(value)}"
        entry = entries.get(key)
        if entry is None:
            added.append(line)
            continue
        lines[entry.first - 1 : entry.last] = [line, *[None] * (entry.last - entry.first)]
    kept_lines = [line for line in lines if line is not None]
    if not kept_lines[-1]:
        kept_lines.pop()
    if added and kept_lines and _is_continued(kept_lines[-1]):
        kept_lines.append("")  # the last line of the file must not join the next one
    return "".join(f"{line}\n" for line in [*kept_lines, *added])


def _natural_lines(text: str) -> list[str]:
    """Split lines as Java does: at ``\\r``, ``\\n`` or both, and nowhere else."""
    return re.split(r"\r\n|\r|\n", text)


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    key = KEY.match(line)
    assert key is not None  # the pattern matches the empty string
    separator = SEPARATOR.match(line, key.end())
    assert separator is not None
    return key.group(), line[separator.end() :]


def _unescaped(text: str, location: str) -> str:
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape == "u":
            raise SettingsError(f"{location}: \\u must be followed by four hexadecimal digits")
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return ESCAPES.get(escape, escape)

    # A pair of surrogates, as Java writes a character beyond U+FFFF, becomes that character.
    halves = ESCAPED.sub(replacement, text).encode("utf-16", "surrogatepass")
    return halves.decode("utf-16", "replace")


def _escaped(text: str, *, is_key: bool = False) -> str:
    """Return the text in ASCII, so that every Java reader reads it back."""
    pieces = []
    for position, character in enumerate(text):
        if character in "\\#!=:" if is_key else character == "\\":
            pieces.append("\\" + character)
        elif character in " " and (is_key or position == 0):
            pieces.append("\\ ")
        elif character in "\t\n\r\f":
            pieces.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        elif " " <= character <= "~":
            pieces.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            pieces += [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
    return "".join(pieces)
