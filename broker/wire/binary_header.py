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
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Only mypyc reads it: machine integers read lengths faster.
    from mypy_extensions import i64

__all__ = ["LANGUAGES", "BinaryHeaderError", "decode_binary_header", "encode_binary_header",
           "parse_pairs"]

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
