"""Builds the frame of a response or a request whose JSON header has only string values.

The header is built in one pass; a general encoder would first need a dict of strings. This is a
leaf module of the hot path. It is typed so that mypyc can compile it.

Source: RemotingCommand, RemotingSerializable @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

from twistmq.protocol.frame import JSON, encode_frame, frame_start

__all__ = ["RequestTemplate", "field_prefixes", "quoted", "reply_format", "reply_start",
           "request_frame"]

_TAIL: Final = ',"serializeTypeCurrentRPC":"JSON","version":479}'


def field_prefixes(names: Sequence[str]) -> list[str]:
    """The text before each value: the quoted name and a colon."""
    return [encode_basestring(name) + ":" for name in names]


def quoted(text: str) -> str:
    """A text in JSON form."""
    # Letters and digits need no escape, and most values consist of them.
    return f'"{text}"' if text.isalnum() else encode_basestring(text)


def reply_format(members: bytes) -> bytes:
    """The header of a response without a remark, in which ``%`` inserts the values.

    The first value is the code and the last is the opaque.

    :param members: the members of extFields as JSON, separated by commas; every value is a string,
        into which a ``%`` directive inserts the value.
    """
    return (b'{"code":%d,"extFields":{' + members
            + b'},"flag":1,"language":"PYTHON","opaque":%d' + _TAIL.encode())


def reply_start(
    code: int, opaque: int, remark: str | None, prefixes: list[str] | None,
    values: tuple[object, ...], body_size: int,
) -> bytes:
    """The bytes before the body of a response with a JSON header.

    :param prefixes: the prefixes of the header class, in the order of ``values``; None if there are
        no extFields.
    :param values: None is left out; a value that is not a number, boolean or text is converted to
        text.
    """
    if prefixes is None and remark is None:
        return frame_start(JSON, _utf8(
            f'{{"code":{code},"flag":1,"language":"PYTHON","opaque":{opaque}{_TAIL}'), body_size)
    parts: list[str] = ['{"code":', str(code), ","]
    if prefixes is not None:
        _add_fields(parts, prefixes, values)
    parts.append('"flag":1,"language":"PYTHON","opaque":')
    parts.append(str(opaque))
    if remark is not None:
        parts.append(',"remark":')
        parts.append(encode_basestring(remark))
    parts.append(_TAIL)
    return frame_start(JSON, _utf8("".join(parts)), body_size)


def request_frame(
    code: int, opaque: int, flag: int, prefixes: list[str], values: tuple[object, ...],
    body: bytes,
) -> bytes:
    """Write a request with a JSON header as one frame.

    :param prefixes: the prefixes of the header class, in the order of ``values``.
    :param values: as for ``reply_start``.
    """
    parts: list[str] = ['{"code":', str(code), ","]
    _add_fields(parts, prefixes, values)
    parts.append('"flag":')
    parts.append(str(flag))
    parts.append(',"language":"PYTHON","opaque":')
    parts.append(str(opaque))
    parts.append(_TAIL)
    return encode_frame(JSON, _utf8("".join(parts)), body)


class RequestTemplate:
    """Makes requests with a JSON header that differ only in a few fields and the opaque.

    Most fields of the requests that a client sends never change, so they are written only once.

    :param code: the code of the requests.
    :param prefixes: the prefixes of the header class, in the order of ``values``.
    :param values: as for ``reply_start``; the values that vary are ignored.
    :param varying: the positions of the values that vary, in order.
    """

    def __init__(
        self, code: int, prefixes: list[str], values: tuple[object, ...], varying: Sequence[int]
    ) -> None:
        self.code: Final = code
        fields: list[str] = []
        for index, value in enumerate(values):
            if index in varying:
                fields.append(_literal(prefixes[index]) + '"%s"')
            elif value is not None:
                parts: list[str] = []
                _add_fields(parts, [prefixes[index]], (value,))
                fields.append(_literal("".join(parts)[len('"extFields":{'):-len("},")]))
        self._format: Final = (
            f'{{"code":{code},"extFields":{{{",".join(fields)}}},"flag":0,"language":"PYTHON",'
            f'"opaque":%s{_TAIL}')

    def frame(self, opaque: int, values: tuple[object, ...], body: bytes) -> bytes:
        """Write a request as one frame.

        :param values: the values that vary, in order: numbers, and texts from ``quoted`` without
            the enclosing quotes.
        """
        return encode_frame(JSON, _utf8(self._format % (*values, opaque)), body)


def _literal(text: str) -> str:
    """A text, escaped for use in a format."""
    return text.replace("%", "%%")


def _add_fields(parts: list[str], prefixes: list[str], values: tuple[object, ...]) -> None:
    """Append extFields and the comma that follows them."""
    before = '"extFields":{'
    for index, value in enumerate(values):
        if value is None:
            continue
        prefix = prefixes[index]
        # Each field is one text, because most of the cost was appending its parts one by one.
        if isinstance(value, str):
            parts.append(f"{before}{prefix}{quoted(value)}")
        elif isinstance(value, bool):
            parts.append(f'{before}{prefix}"true"' if value else f'{before}{prefix}"false"')
        elif isinstance(value, int):
            parts.append(f'{before}{prefix}"{value}"')
        else:
            parts.append(f'{before}{prefix}"{value!s}"')
        before = ","
    parts.append('"extFields":{},' if before != "," else "},")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # JSON escapes can produce a lone surrogate, which has no UTF-8 form.
        return text.encode("utf-8", "replace")
