"""The ROCKETMQ header encoding: a fixed part, a remark, and name-value pairs.

    bytes  field
    2      int16 code
    1      int8 language
    2      int16 version
    4      int32 opaque
    4      int32 flag
    4+n    int32 remark length, UTF-8
    4+n    int32 length of the pairs; each pair int16 name length, name, int32 value length, value

A length of 0 reads as "not given". All integers are big-endian.

Source: RocketMQSerializable @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read lengths faster.
    from mypy_extensions import i64

__all__ = ["BOOLEAN", "INT32", "INT64", "LANGUAGES", "OTHER", "TEXT", "BinaryHeaderError",
           "FieldPlan", "decode_binary_header", "encode_binary_header", "parse_pairs",
           "plain_values"]

#: The kind of a field, for :func:`plain_values`.
TEXT: Final = 0
INT32: Final = 1
INT64: Final = 2
BOOLEAN: Final = 3
OTHER: Final = 4
#: Not to be written with 18 digits.
NO_NUMBER: Final = -9_000_000_000_000_000_000

#: Name of a language by the number that stands for it in a binary header (LanguageCode @5.3.3).
LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)

_FIXED: Final = struct.Struct(">hbhiii")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class BinaryHeaderError(ValueError):
    """The bytes are not a ROCKETMQ header; the text says which part."""


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
    # One text for all slices: what is ASCII, nearly everything, is right as it is cut out.
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
    """The facts of a header class that :func:`plain_values` needs.

    :param names: of the fields on the wire, in order.
    :param kinds: of each, ``TEXT``, ``INT32``, ``INT64``, ``BOOLEAN``, or ``OTHER``: never plain.
    :param defaults: of each; None for a required one.
    :param required: positions of the required ones.
    :param are_texts: whether values are left as the texts they are, and every name is known.
    """

    def __init__(
        self, names: Sequence[str], kinds: Sequence[int], defaults: Sequence[object],
        required: Sequence[int], are_texts: bool = False,
    ) -> None:
        # A letter cut out of a text is always the same object, and found without comparing.
        self.positions: dict[str, int] = {f"{name}."[:-1]: at for at, name in enumerate(names)}
        self.kinds: list[int] = list(kinds)
        self.defaults: list[object] = list(defaults)
        self.required: list[int] = list(required)
        self.are_texts: bool = are_texts

    def as_texts(self, names: Sequence[str]) -> FieldPlan:
        """A plan that gives texts of fields, each one that this plan would take.

        :param names: of all fields there have to be, in any order; one that this plan does not
            have is a text anyway.
        """
        kinds = [self.kinds[self.positions[name]] if name in self.positions else TEXT
                 for name in names]
        everything = range(len(names))
        return FieldPlan(names, kinds, [None] * len(names), everything, are_texts=True)


def plain_values(data: bytes, plan: FieldPlan) -> list[object] | None:
    """Read pairs as the values of a header's fields, if all are written as clients write them.

    Half the work of reading them as text, and then each text as what it is.

    :returns: None when anything is unusual: take :func:`parse_pairs`, which says what is wrong.
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
        # A value of 64 KiB or more is not what clients write.
        if start > size or data[name_end] or data[name_end + 1]:
            return None
        high = data[name_end + 2]
        low = data[name_end + 3]
        end: i64 = start + (high << 8 | low)
        if end > size:
            return None
        found = positions.get(text[position + 2 : name_end])
        position = end
        if found is None:
            if are_texts:
                return None
            continue
        at: i64 = found
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
    """Read up to 18 digits, with a minus or none before; anything else is NO_NUMBER.

    So is a number that begins with a zero and goes on.
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
    """Write a binary header; the inverse of :func:`decode_binary_header` and `parse_pairs`."""
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
