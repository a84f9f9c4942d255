"""The ROCKETMQ header encoding: a fixed part, a remark, and name-value pairs.

    bytes  field
    2      int16 code
    1      int8 language
    2      int16 version
    4      int32 opaque
    4      int32 flag
    4+n    int32 remark length, UTF-8
    4+n    int32 length of the pairs; each pair int16 name length, name, int32 value length, value

A length of 0 means that the value was not given. All integers are big-endian.

Source: RocketMQSerializable @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Only mypyc uses this import: machine integers make reading lengths faster.
    from mypy_extensions import i64

__all__ = ["BOOLEAN", "INT32", "INT64", "LANGUAGES", "OTHER", "TEXT", "BinaryHeaderError",
           "FieldPlan", "decode_binary_header", "encode_binary_header", "parse_pairs",
           "plain_values"]

#: The kinds of a field, for :func:`plain_values`.
TEXT: Final = 0
INT32: Final = 1
INT64: Final = 2
BOOLEAN: Final = 3
OTHER: Final = 4
#: A value outside the range of numbers with 18 digits.
NO_NUMBER: Final = -9_000_000_000_000_000_000

#: The names of languages, indexed by their number in a binary header (LanguageCode @5.3.3).
LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)

_FIXED: Final = struct.Struct(">hbhiii")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class BinaryHeaderError(ValueError):
    """The bytes are not a ROCKETMQ header; the text names the wrong part."""


def decode_binary_header(data: bytes) -> tuple[int, str, int, int, int, str | None, bytes]:
    """Split a binary header.

    :returns: code, language name, version, opaque, flag, remark, and the bytes of the pairs.
    :raises BinaryHeaderError: when a length points outside the header.
    """
    size = len(data)
    if size < 21:
        raise BinaryHeaderError(f"binary header of {size} bytes, at least 21 are needed")
    fixed = _FIXED.unpack_from(data, 0)
    code: int = fixed[0]
    language: int = fixed[1]
    remark_size: int = fixed[5]
    position = 17
    remark: str | None = None
    if remark_size < 0 or position + remark_size + 4 > size:
        raise BinaryHeaderError(f"remark length {remark_size} does not fit the header")
    if remark_size:
        remark = _text(data, position, position + remark_size)
        position += remark_size
    pairs_size: int = _INT32.unpack_from(data, position)[0]
    position += 4
    if pairs_size < 0 or position + pairs_size > size:
        raise BinaryHeaderError(f"extFields length {pairs_size} does not fit the header")
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    version: int = fixed[2]
    opaque: int = fixed[3]
    flag: int = fixed[4]
    return code, name, version, opaque, flag, remark, data[position : position + pairs_size]


def parse_pairs(data: bytes) -> dict[str, str]:
    """Read the name-value pairs of a binary header.

    :raises BinaryHeaderError: when a length points outside ``data`` or a text is not UTF-8.
    """
    fields: dict[str, str] = {}
    # All slices are cut from one text. Values in ASCII, which are nearly all, are then final.
    text = data.decode("latin-1")
    ascii_only: bool = text.isascii()
    position: i64 = 0
    size: i64 = len(data)
    while position < size:
        if position + 2 > size:
            raise BinaryHeaderError("extFields end inside a name's length")
        name_size: i64 = data[position] << 8 | data[position + 1]
        name_end: i64 = position + 2 + name_size
        if name_size > 32767 or name_end + 4 > size:
            raise BinaryHeaderError(f"name length {name_size} does not fit extFields")
        value_start: i64 = name_end + 4
        value_size: i64 = (data[name_end] << 24 | data[name_end + 1] << 16
                           | data[name_end + 2] << 8 | data[name_end + 3])
        value_end: i64 = value_start + value_size
        if value_end > size:
            raise BinaryHeaderError(f"value length {value_size} does not fit extFields")
        name = text[position + 2 : name_end]
        value = text[value_start:value_end]
        if not ascii_only:
            if not name.isascii():
                name = _text(data, position + 2, name_end)
            if not value.isascii():
                value = _text(data, value_start, value_end)
        fields[name] = value
        position = value_end
    return fields


class FieldPlan:
    """The facts about a header class that :func:`plain_values` needs.

    :param names: the names of the fields on the wire, in order.
    :param kinds: the kind of each field: ``TEXT``, ``INT32``, ``INT64`` or ``BOOLEAN``, or
        ``OTHER`` for a field that is never plain.
    :param defaults: the default of each field; None for a required field.
    :param required: the positions of the required fields.
    :param are_texts: whether values are returned as texts and only known names are accepted.
    """

    def __init__(
        self, names: Sequence[str], kinds: Sequence[int], defaults: Sequence[object],
        required: Sequence[int], are_texts: bool = False,
    ) -> None:
        # A letter cut out of a text is always the same object, so it is found without a comparison.
        self.positions: dict[str, int] = {f"{name}."[:-1]: at for at, name in enumerate(names)}
        self.kinds: list[int] = list(kinds)
        self.defaults: list[object] = list(defaults)
        self.required: list[int] = list(required)
        self.are_texts: bool = are_texts

    def as_texts(self, names: Sequence[str]) -> FieldPlan:
        """A plan that returns field values as texts, if this plan would accept each of them.

        :param names: the names of all fields that must be present, in any order. A field that this
            plan does not have is a text in any case.
        """
        kinds = [self.kinds[self.positions[name]] if name in self.positions else TEXT
                 for name in names]
        everything = range(len(names))
        return FieldPlan(names, kinds, [None] * len(names), everything, are_texts=True)


def plain_values(data: bytes, plan: FieldPlan) -> list[object] | None:
    """Read pairs as header values, if all of them are written in the way clients write them.

    This takes half the work of reading the pairs as texts and then converting each text.

    :returns: None when anything is unusual. Then call :func:`parse_pairs`, which reports errors.
    """
    values = plan.defaults.copy()
    positions = plan.positions
    kinds = plan.kinds
    are_texts: bool = plan.are_texts
    text = data.decode("latin-1")
    ascii_only: bool = text.isascii()
    position: i64 = 0
    size: i64 = len(data)
    while position < size:
        if position + 2 > size:
            return None
        high: i64 = data[position]
        low: i64 = data[position + 1]
        name_end: i64 = position + 2 + (high << 8 | low)
        start: i64 = name_end + 4
        # Clients do not write values of 64 KiB or more.
        if start > size or data[name_end] or data[name_end + 1]:
            return None
        high = data[name_end + 2]
        low = data[name_end + 3]
        end: i64 = start + (high << 8 | low)
        if end > size:
            return None
        index = positions.get(text[position + 2 : name_end])
        position = end
        if index is None:
            if are_texts:
                return None
            continue
        at: i64 = index
        kind: i64 = kinds[at]
        if kind == TEXT:
            value = text[start:end]
            if not ascii_only and not value.isascii():
                value = _text(data, start, end)
            values[at] = value
        elif kind == BOOLEAN:
            word = text[start:end]
            if word != "true" and word != "false":
                return None
            values[at] = word if are_texts else word == "true"
        else:
            number = plain_number(data, start, end)
            if number == NO_NUMBER or kind == OTHER:
                return None
            if kind == INT32 and not -0x80000000 <= number <= 0x7FFFFFFF:
                return None
            values[at] = text[start:end] if are_texts else number
    for at in plan.required:
        if values[at] is None:
            return None
    return values


def plain_number(data: bytes, start: i64, end: i64) -> i64:
    """Read up to 18 digits with an optional minus; return NO_NUMBER for anything else.

    A number with a leading zero also counts as anything else.
    """
    negative: bool = start < end and data[start] == 45
    if negative:
        start += 1
    if end == start or end - start > 18:
        return NO_NUMBER
    if data[start] == 48 and end - start > 1:
        return NO_NUMBER
    number: i64 = 0
    while start < end:
        digit: i64 = data[start] - 48
        if digit < 0 or digit > 9:
            return NO_NUMBER
        number = number * 10 + digit
        start += 1
    return -number if negative else number


def _text(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise BinaryHeaderError("text in the header is not UTF-8") from None


def encode_binary_header(
    code: int, language: str, version: int, opaque: int, flag: int, remark: str | None,
    fields: dict[str, str],
) -> bytes:
    """Write a binary header, the inverse of :func:`decode_binary_header` and `parse_pairs`."""
    parts: list[bytes] = []
    for name, value in fields.items():
        name_bytes = name.encode()
        value_bytes = value.encode()
        parts += (_INT16.pack(len(name_bytes)), name_bytes,
                  _INT32.pack(len(value_bytes)), value_bytes)
    pairs = b"".join(parts)
    text = remark.encode() if remark else b""
    number = LANGUAGES.index(language) if language in LANGUAGES else LANGUAGES.index("OTHER")
    fixed = _FIXED.pack(code, number, version, opaque, flag, len(text))
    return b"".join((fixed, text, _INT32.pack(len(pairs)), pairs))
