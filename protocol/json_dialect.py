"""The JSON that Apache's servers use: the dialect of fastjson, which is not quite JSON.

A map whose keys are not texts is written with bare keys, ``{0:"a"}`` or ``{{"topic":"T"}:5}``. The
reader accepts bare keys, single quotes, bare names and commas before a closing bracket, as well as
plain JSON. The writer has three forms, whose output equals that of Apache byte for byte:

    encode(value, quote_int_keys=False)   bodies: bare keys
    encode(value, quote_int_keys=True)    bodies for clients that read plain JSON only
    encode_pretty(value)                  config files: tabs, bare keys

Python lists stand for Java lists. Tuples and sets stand for Java sets and arrays, which the pretty
form keeps on one line. Sets are written sorted. A msgspec Struct is written by its wire names in
alphabetical order, without the members that are None.

Source: fastjson 1.2.83 as RemotingSerializable @5.3.3 calls it; captured, see tests/golden/json.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from twistmq.protocol.json_writer import ObjectKey, encode, encode_pretty

__all__ = ["DEPTH_MAX", "JsonDialectError", "ObjectKey", "decode", "decode_key", "encode",
           "encode_pretty", "quote_keys"]

#: How deep brackets may nest in a body that is not plain JSON; Apache's deepest body has 7 levels.
DEPTH_MAX: Final = 64


class JsonDialectError(ValueError):
    """The text is neither JSON nor accepted by fastjson; states the fault and the character."""


def decode(data: bytes) -> Any:
    """Read a value.

    :returns: dicts, lists, str, int, float, bool and None. A dict's keys are str or, if they were
        not quoted, int of 64 bits, bool, None or ObjectKey. Larger numbers stay texts, because a
        sender can choose them so that a dict of them takes quadratic time. If keys are equal, the
        last one counts.
    :raises JsonDialectError: when the bytes are neither JSON nor this dialect of it.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Reader(_text(data)).read()


#: Matches a text, whether it is ended or not, which is skipped; or a bare key, which is an integer
#: or a flat object, with the text before it. No character is tried twice, so the time is linear.
_BARE_KEY: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|'
    rb'([{,][ \t\r\n]*+)(-?[0-9]++|\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\})(?=[ \t\r\n]*+:)',
    re.DOTALL)
#: The beginning of the text that replaces an object used as a key.
_OBJECT_MARK: Final = "\0{"
#: Characters of an object that a text cannot contain, whether on one line or on several.
_KEY_ESCAPES: Final = ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"),
                       (b"\r", b"\\r"))


def quote_keys(data: bytes) -> bytes:
    """Turn the bare keys that Apache writes into texts, which gives plain JSON.

    It takes a tenth of the time that reading the keys one by one takes. The other liberties of the
    dialect, which Apache accepts but does not write, stay unchanged.

    :returns: plain JSON, unless the bytes deviate from it in another way. ``decode_key`` restores
        an object that was a key.
    """
    return _BARE_KEY.sub(_quoted, data)


def _quoted(match: re.Match[bytes]) -> bytes:
    before, key = match.groups()
    if key is None:
        return match[0]
    if key[0] != 0x7B:  # no bracket
        return b'%b"%b"' % (before, key)
    for byte, escaped in _KEY_ESCAPES:
        key = key.replace(byte, escaped)
    return b'%b"\\u0000%b"' % (before, key)


def decode_key(key: str) -> str | ObjectKey:
    """Read a key that ``quote_keys`` may have quoted.

    :raises JsonDialectError: when it is an object that cannot be a key.
    """
    if not key.startswith(_OBJECT_MARK):
        return key
    return _Reader(key[1:]).read_object_key()


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JsonDialectError(f"not UTF-8 at byte {error.start}") from None


_SPACE: Final = re.compile(r"[ \t\r\n\f\b]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX: Final = {"u": re.compile(r"[0-9A-Fa-f]{4}"), "x": re.compile(r"[0-9A-Fa-f]{2}")}
_ESCAPES: Final = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "F": "\f", "n": "\n",
    "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_INT64: Final = range(-(2**63), 2**63)
#: Longer numbers are refused; Python has a similar limit by default, and no sender needs more.
_DIGITS_MAX: Final = 400


class _Reader:
    """Reads one value from a text and examines every character a bounded number of times."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self) -> Any:
        value = self._value(0)
        if self._next():
            raise self._error("more after the value")
        return value

    def read_object_key(self) -> ObjectKey:
        key = self._object_key(0)
        if self._next():
            raise self._error("more after the key")
        return key

    def _error(self, what: str) -> JsonDialectError:
        return JsonDialectError(f"{what} at character {self._position}")

    def _next(self) -> str:
        """Skip white space; :returns: the next character, or an empty text at the end."""
        match = _SPACE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        char = self._next()
        if char == "{":
            return self._object(depth + 1)
        if char == "[":
            return self._list(depth + 1)
        if char in _PLAIN:
            return self._string(char)
        if char == "-" or char.isdigit():
            return self._number()
        word = self._name()
        if word not in _WORDS:
            raise self._error(f"no value {_shown(word)}" if word else "no value")
        self._position += len(word)
        return _WORDS[word]

    def _name(self) -> str:
        match = _NAME.match(self._text, self._position)
        return match.group() if match else ""

    def _open(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} brackets within each other")
        self._position += 1

    def _close(self, closing: str) -> None:
        """Skip a comma, or stop at ``closing``."""
        char = self._next()
        if char == ",":
            self._position += 1
        elif char != closing:
            raise self._error(f"neither a comma nor {closing}")

    def _list(self, depth: int) -> list[Any]:
        self._open(depth)
        values: list[Any] = []
        while self._next() != "]":
            values.append(self._value(depth))
            self._close("]")
        self._position += 1
        return values

    def _object(self, depth: int) -> dict[Any, Any]:
        self._open(depth)
        values: dict[Any, Any] = {}
        while self._next() != "}":
            key = self._key(depth)
            if self._next() != ":":
                raise self._error("no colon after a key")
            self._position += 1
            values[key] = self._value(depth)
            self._close("}")
        self._position += 1
        return values

    def _key(self, depth: int) -> Any:
        char = self._next()
        if char == "{":
            return self._object_key(depth)
        if char == "[":
            raise self._error("a list stands for a key")
        name = self._name()
        if name and name not in _WORDS:
            self._position += len(name)
            return name
        begin = self._position
        value = self._value(depth)
        if isinstance(value, float) or (isinstance(value, int) and value not in _INT64):
            return self._text[begin : self._position]
        return value

    def _object_key(self, depth: int) -> ObjectKey:
        fields = self._object(depth + 1)
        for name, value in fields.items():
            if not isinstance(name, str) or isinstance(value, dict | list):
                raise self._error("an object that stands for a key holds more than plain values")
        return ObjectKey(tuple(sorted(fields.items(), key=lambda item: str(item[0]))))

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._position)
        if match is None or match.end() - self._position > _DIGITS_MAX:
            raise self._error("no number")
        self._position = match.end()
        if match.group(1) or match.group(2):
            return float(match.group())
        return int(match.group())

    def _string(self, quote: str) -> str:
        self._position += 1
        parts: list[str] = []
        plain = _PLAIN[quote]
        while True:
            match = plain.match(self._text, self._position)
            assert match is not None
            parts.append(match.group())
            self._position = match.end()
            end = self._text[self._position : self._position + 1]
            self._position += 1
            if end == quote:
                return _joined(parts)
            if not end:
                raise self._error("no end of a text")
            parts.append(self._escape())

    def _escape(self) -> str:
        kind = self._text[self._position : self._position + 1]
        self._position += 1
        if kind not in _HEX:
            if kind not in _ESCAPES:
                raise self._error(f"no escape {_shown(kind)}")
            return _ESCAPES[kind]
        match = _HEX[kind].match(self._text, self._position)
        if match is None:
            raise self._error("an escape without its digits")
        self._position = match.end()
        return chr(int(match.group(), 16))


def _joined(parts: list[str]) -> str:
    """Join pieces of a text and combine surrogate halves that were escaped separately."""
    text = "".join(parts)
    if len(parts) == 1 or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _shown(text: str) -> str:
    return repr(text[:20])
