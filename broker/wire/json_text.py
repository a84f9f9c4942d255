"""The frame of a reply or a request, its JSON header built in one pass, every value a string.

A general encoder would need a dict of strings first. Leaf module
of the hot path: typed, so that mypyc compiles it.

Source: RemotingCommand, RemotingSerializable @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

from twistmq.broker.wire.frame import JSON, encode_frame

__all__ = ["field_prefixes", "quoted", "reply_frame", "reply_frame_of",
           "request_frame"]

_TAIL: Final = ',"serializeTypeCurrentRPC":"JSON","version":479}'


def field_prefixes(names: Sequence[str]) -> list[str]:
    """The text before each value: the quoted name and a colon."""
    return [encode_basestring(name) + ":" for name in names]


def quoted(text: str) -> str:
    """A text as JSON has it."""
    # Letters and digits need no escape; that is what most values are.
    return f'"{text}"' if text.isalnum() else encode_basestring(text)


def reply_frame_of(code: int, opaque: int, members: str) -> bytes:
    """Write a reply without remark and body as one frame.

    :param members: of extFields, as JSON, every value a string.
    """
    return encode_frame(JSON, _utf8(
        f'{{"code":{code},"extFields":{{{members}}},"flag":1,"language":"PYTHON","opaque":{opaque}'
        f'{_TAIL}'), b"")


def reply_frame(
    code: int, opaque: int, remark: str | None, prefixes: list[str] | None,
    values: tuple[object, ...], body: bytes,
) -> bytes:
    """Write a reply with a JSON header as one frame.

    :param prefixes: of the header class, in the order of ``values``; None: no extFields.
    :param values: None is left out; what is neither number, boolean nor text is shown as text.
    """
    if prefixes is None and remark is None:
        return encode_frame(JSON, _utf8(
            f'{{"code":{code},"flag":1,"language":"PYTHON","opaque":{opaque}{_TAIL}'), body)
    parts: list[str] = ['{"code":', str(code), ","]
    if prefixes is not None:
        _add_fields(parts, prefixes, values)
    parts.append('"flag":1,"language":"PYTHON","opaque":')
    parts.append(str(opaque))
    if remark is not None:
        parts.append(',"remark":')
        parts.append(encode_basestring(remark))
    parts.append(_TAIL)
    return encode_frame(JSON, _utf8("".join(parts)), body)


def request_frame(
    code: int, opaque: int, flag: int, prefixes: list[str], values: tuple[object, ...],
    body: bytes,
) -> bytes:
    """Write a request with a JSON header as one frame.

    :param prefixes: of the header class, in the order of ``values``.
    :param values: as for ``reply_frame``.
    """
    parts: list[str] = ['{"code":', str(code), ","]
    _add_fields(parts, prefixes, values)
    parts.append('"flag":')
    parts.append(str(flag))
    parts.append(',"language":"PYTHON","opaque":')
    parts.append(str(opaque))
    parts.append(_TAIL)
    return encode_frame(JSON, _utf8("".join(parts)), body)


def _add_fields(parts: list[str], prefixes: list[str], values: tuple[object, ...]) -> None:
    """Append extFields and the comma behind it."""
    before = '"extFields":{'
    for index, value in enumerate(values):
        if value is None:
            continue
        parts.append(before)
        before = ","
        parts.append(prefixes[index])
        if isinstance(value, str):
            parts.append(quoted(value))
        elif isinstance(value, bool):
            parts.append('"true"' if value else '"false"')
        else:
            parts.append('"')
            parts.append(str(value))
            parts.append('"')
    parts.append('"extFields":{},' if before != "," else "},")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate can come in through JSON's escapes; it has no UTF-8 form.
        return text.encode("utf-8", "replace")
