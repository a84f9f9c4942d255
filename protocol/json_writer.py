"""Writes Apache's JSON; ``json_dialect`` describes its forms and reads it.

Source: fastjson 1.2.83 as RemotingSerializable @5.3.3 calls it; captured, see tests/golden/json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any, Final

import msgspec

__all__ = ["ObjectKey", "encode", "encode_pretty", "encode_pretty_row", "join_pretty_rows",
           "pretty_rows"]


class ObjectKey(msgspec.Struct, frozen=True):
    """A JSON object that was used as a key."""

    #: The name and value of each member, sorted by name.
    fields: tuple[tuple[str, str | int | float | bool | None], ...]

    def __hash__(self) -> int:
        """The hash of a text, which no client can predict, whereas numbers can be chosen to have
        equal hashes."""
        return hash(repr(self.fields))


def encode(value: Any, *, quote_int_keys: bool) -> bytes:
    """Write a value on one line.

    :param quote_int_keys: True writes plain JSON in ASCII, in which keys of every kind are quoted
        and integers that JavaScript cannot represent are texts; False writes bare keys.
    :raises TypeError: when a value has no JSON form.
    """
    parts: list[str] = []
    writer = _PlainWriter(parts) if quote_int_keys else _Writer(parts)
    writer.write(value, 0)
    return "".join(parts).encode("utf-8", "replace")


def encode_pretty(value: Any) -> bytes:
    """Write a value as Apache writes its config files; see encode."""
    parts: list[str] = []
    _PrettyWriter(parts).write(value, 0)
    return "".join(parts).encode("utf-8", "replace")


def encode_pretty_row(key: str, value: Any) -> bytes:
    """Write one row of a map that is a member of a config file's content."""
    parts: list[str] = []
    writer = _PrettyWriter(parts)
    writer.line(2)
    parts += (writer.text(key), ":")
    writer.write(value, 2)
    return "".join(parts).encode("utf-8", "replace")


def join_pretty_rows(rows: Iterable[bytes]) -> bytes:
    """Write the map that consists of such rows."""
    joined = b",".join(rows)
    return b"{%b\n\t}" % joined if joined else b"{}"


def pretty_rows(data: bytes, name: str, keys: Collection[str]) -> dict[str, bytes] | None:
    """Find the rows of a map in the content of a config file.

    :param name: the name of the map, which is a member of the content.
    :param keys: the keys of the map, in its order.
    :returns: for each key the output of ``encode_pretty_row``; None when the file has another form,
        for example because it was edited.
    """
    _, begin, rest = data.partition(b'\n\t"%b":{\n\t\t"' % name.encode())
    text, end, _ = rest.partition(b"\n\t}")
    if not begin or not end:
        return None
    # No text contains a line end, so a comma and a line with two tabs separate two rows.
    row_texts = text.split(b',\n\t\t"')
    if len(row_texts) != len(keys):
        return None
    rows: dict[str, bytes] = {}
    key_text = _PrettyWriter([]).text
    for key, row in zip(keys, row_texts, strict=True):
        if not row.endswith(b"}") or not row.startswith(key_text(key)[1:].encode() + b":"):
            return None
        rows[key] = b'\n\t\t"' + row
    return rows


_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_OR_WIDE: Final = re.compile(r'["\\/\x00-\x1f]|[^\x00-\x7e]')
_SHORT: Final = {
    '"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
    "\t": "\\t",
}
#: The largest set that is written sorted; for 100,000 members sorting takes longer than writing.
_SORTED_SET_COUNT_MAX: Final = 10_000
#: Above this value, JavaScript cannot represent every integer.
_EXACT_MAX: Final = 2**53 - 1


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def _java_float(value: float) -> str:
    """Write a number as Java's Double.toString does; a NaN or an infinity becomes null."""
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        # For these sizes both languages write decimals, but Python uses exponents below 1e-4.
        return repr(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        digits = repr(value).replace(".", "").strip("-0")
        mantissa = ("-" if value < 0 else "") + digits[0] + "." + (digits[1:] or "0")
    elif "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


class _Writer:
    """Appends the text of values to ``parts``, with bare keys and on one line."""

    #: The characters that must be escaped in a text.
    special = _SPECIAL

    def __init__(self, parts: list[str]) -> None:
        self._add = parts.append

    def write(self, value: Any, depth: int) -> None:
        """Append one value; ``depth`` is the number of brackets around it."""
        if isinstance(value, str):
            self._add(self.text(value.value if isinstance(value, Enum) else value))
        elif value is None or isinstance(value, bool):
            self._add(_WORD_OF[value])
        elif isinstance(value, int):
            self._add(self.integer(value))
        elif isinstance(value, float):
            self._add(_java_float(value))
        elif isinstance(value, dict):
            self.write_map(value, depth)
        elif isinstance(value, list):
            self.write_list(value, depth)
        elif isinstance(value, tuple):
            self.write_set(value, depth)
        elif isinstance(value, set | frozenset):
            # A set has no order; sorting helps people who read short sets.
            is_short = len(value) <= _SORTED_SET_COUNT_MAX
            self.write_set(tuple(sorted(value) if is_short else value), depth)
        elif isinstance(value, ObjectKey):
            self.write_map(dict(value.fields), depth)
        elif isinstance(value, msgspec.Struct):
            self.write_struct(value, depth)
        else:
            raise TypeError(f"{type(value).__name__} has no JSON form")

    def text(self, value: str) -> str:
        return f'"{self.special.sub(_escaped, value)}"'

    def integer(self, value: int) -> str:
        return str(int(value))

    def write_struct(self, value: msgspec.Struct, depth: int) -> None:
        fields = {name: getattr(value, attribute) for name, attribute in _names(type(value))}
        given = {name: member for name, member in fields.items() if member is not None}
        self.write_map(given, depth)

    def write_map(self, value: dict[Any, Any], depth: int) -> None:
        self._add("{")
        separator = ""
        for key, member in value.items():
            self._add(separator)
            separator = ","
            if isinstance(key, str):
                self.line(depth + 1)
                self._add(self.text(key))
            else:
                self.bare_key(key, depth + 1)
            self._add(":")
            self.write(member, depth + 1)
        if value:
            self.line(depth)
        self._add("}")

    def bare_key(self, key: Any, depth: int) -> None:
        self.write(key, depth)

    def write_list(self, value: list[Any], depth: int) -> None:
        self._add("[")
        separator = ""
        for member in value:
            self._add(separator)
            separator = ","
            self.line(depth + 1)
            self.write(member, depth + 1)
        if value:
            self.line(depth)
        self._add("]")

    def write_set(self, value: tuple[Any, ...], depth: int) -> None:
        # Names, of which there may be a hundred thousand, are checked and joined all at once.
        if set(map(type, value)) == {str} and not self.special.search("".join(value)):
            self._add('["' + '","'.join(value) + '"]')
            return
        self._add("[")
        separator = ""
        for member in value:
            self._add(separator)
            separator = ","
            self.write(member, depth)
        self._add("]")

    def line(self, depth: int) -> None:
        """Begin a new line, in the pretty form."""


class _PlainWriter(_Writer):
    """Writes JSON that every reader accepts."""

    special = _SPECIAL_OR_WIDE

    def integer(self, value: int) -> str:
        return str(int(value)) if -_EXACT_MAX <= value <= _EXACT_MAX else f'"{int(value)}"'

    def bare_key(self, key: Any, depth: int) -> None:
        inner: list[str] = []
        _Writer(inner).write(key, 0)
        self._add(self.text("".join(inner)))


class _PrettyWriter(_Writer):
    """Writes lines, each indented by one tab per enclosing bracket."""

    def line(self, depth: int) -> None:
        self._add("\n" + "\t" * depth)


_WORD_OF: Final[dict[bool | None, str]] = {True: "true", False: "false", None: "null"}
_names_of: dict[type[msgspec.Struct], list[tuple[str, str]]] = {}


def _names(struct_type: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """List the wire name and the attribute of each field, sorted by wire name."""
    names = _names_of.get(struct_type)
    if names is None:
        names = sorted((f.encode_name, f.name) for f in msgspec.structs.fields(struct_type))
        _names_of[struct_type] = names
    return names
