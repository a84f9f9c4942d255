"""The frame of a reply or a request, its JSON header built in one pass, every value a string.

A general encoder would need a dict of strings first. Leaf module
of the hot path: typed, so that mypyc compiles it.

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
    """A text as JSON has it."""
    # Letters and digits need no escape; that is what most values are.
    return f'"{text}"' if text.isalnum() else encode_basestring(text)


def reply_format(members: bytes) -> bytes:
    """The header of a reply without a remark, whose values are put in by ``%``.

    The first is the code, the last the opaque.

    :param members: of extFields, as JSON, every value a string; between them what they need.
    """
    return (b'{"code":%d,"extFields":{' + members
            + b'},"flag":1,"language":"PYTHON","opaque":%d' + _TAIL.encode())


def reply_start(
    code: int, opaque: int, remark: str | None, prefixes: list[str] | None,
    values: tuple[object, ...], body_size: int,
) -> bytes:
    """The bytes before the body of a reply with a JSON header.

    :param prefixes: of the header class, in the order of ``values``; None: no extFields.
    :param values: None is left out; what is neither number, boolean nor text is shown as text.
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

    :param prefixes: of the header class, in the order of ``values``.
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
    """Requests with a JSON header that differ in a few fields and the opaque.

    Most fields of a client's sends are the same each time. They are written once.

    :param code: of the requests.
    :param prefixes: of the header class, in the order of ``values``.
    :param values: as for ``reply_start``; those that differ are not looked at.
    :param varying: the places of the values that differ, in order.
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

        :param values: those that differ, in order: numbers, and texts from ``quoted`` without the
            quotes at their ends.
        """
        return encode_frame(JSON, _utf8(self._format % (*values, opaque)), body)


def _literal(text: str) -> str:
    """A text as a format has it."""
    return text.replace("%", "%%")


def _add_fields(parts: list[str], prefixes: list[str], values: tuple[object, ...]) -> None:
    """Append extFields and the comma behind it."""
    before = '"extFields":{'
    for index, value in enumerate(values):
        if value is None:
            continue
        prefix = prefixes[index]
        # One text for each field: most of the cost was that of appending its parts.
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
        # A lone surrogate can come in through JSON's escapes; it has no UTF-8 form.
        return text.encode("utf-8", "replace")
