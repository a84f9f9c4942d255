"""Shows the body of a message as JSON, MessagePack, text or bytes, whichever it is.

A body comes from a stranger. It is decoded without running anything, a deep or long one is cut, and
the templates escape the text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import Undecodable
from twistmq.protocol.record import StoredMessage

__all__ = ["DecodedBody", "body_preview", "decode_body"]

#: The text of a body is cut at this length; a body above the second size is not parsed, bytes.
TEXT_CHARS_MAX: Final = 65_536
PARSED_BYTES_MAX: Final = 1024 * 1024
#: The length of the text in a list.
PREVIEW_CHARS: Final = 160
#: The bytes of a body that are shown as hexadecimal numbers, and the bytes of one line.
_HEX_BYTES_MAX: Final = 4_096
_HEX_LINE: Final = 16
#: The first bytes of maps and arrays in MessagePack. Other values look like texts or random bytes.
_PACKED: Final = frozenset((*range(0x80, 0xa0), *range(0xdc, 0xe0)))
_BLANKS: Final = "\n\r\t"


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """A body for display.

    :param kind: "json", "msgpack", "text", "bytes" or "empty".
    :param size: the size of the decompressed body, bytes.
    :param is_cut: whether the text contains only the beginning.
    """

    kind: str
    text: str
    size: int
    is_cut: bool = False


def decode_body(message: StoredMessage) -> DecodedBody:
    """Return the body of a message for display."""
    try:
        body = bytes(decompress(message.body, message.sys_flag))
    except Undecodable as error:
        return DecodedBody("bytes", f"{error}\n{_hex(message.body)}", len(message.body),
                           len(message.body) > _HEX_BYTES_MAX)
    return _decoded(body)


def _decoded(body: bytes) -> DecodedBody:
    if not body:
        return DecodedBody("empty", "", 0)
    if len(body) <= PARSED_BYTES_MAX:
        for kind, begins, parse in (("json", body[:1] in b"{[", msgspec.json.decode),
                                    ("msgpack", body[0] in _PACKED, msgspec.msgpack.decode)):
            if begins:
                try:
                    return _cut(kind, _pretty(parse(body)), len(body))
                except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
                    pass
    try:
        text = body[:TEXT_CHARS_MAX * 4].decode()
    except UnicodeDecodeError as error:
        # The cut may be inside the last character.
        is_cut_character = error.start >= TEXT_CHARS_MAX * 4 - 4 and len(body) > error.end
        text = body[:error.start].decode() if is_cut_character else "\0"
    if all(each.isprintable() or each in _BLANKS for each in text):
        return _cut("text", text, len(body))
    return DecodedBody("bytes", _hex(body), len(body), len(body) > _HEX_BYTES_MAX)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    """Return a value of MessagePack that JSON does not have as a text."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _cut(kind: str, text: str, size: int) -> DecodedBody:
    return DecodedBody(kind, text[:TEXT_CHARS_MAX], size, len(text) > TEXT_CHARS_MAX
                       or (kind == "text" and size > TEXT_CHARS_MAX * 4))


def _hex(body: bytes) -> str:
    """Return lines with an offset, sixteen bytes in hexadecimal, and their ASCII characters."""
    lines = []
    for at in range(0, min(len(body), _HEX_BYTES_MAX), _HEX_LINE):
        part = body[at : at + _HEX_LINE]
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _HEX_LINE}} {shown}")
    return "\n".join(lines)


def body_preview(body: DecodedBody) -> str:
    """Return the beginning of a body as one line."""
    if body.kind == "bytes":
        return f"{body.size:,} bytes"
    line = " ".join(body.text[: 4 * PREVIEW_CHARS].split())
    return line[:PREVIEW_CHARS] + ("..." if len(line) > PREVIEW_CHARS or body.is_cut else "")
