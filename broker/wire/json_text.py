"""The JSON text of a reply's header, built in one pass: every extFields value is a string.

A general encoder would need a dict of strings first; this is what each reply costs. Leaf module
of the hot path: standard library only, typed, so that mypyc compiles it.

Source: RemotingCommand, RemotingSerializable @5.3.3; protocol notes 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

__all__ = ["field_prefixes", "reply_header"]

_TAIL: Final = '"serializeTypeCurrentRPC":"JSON","version":479}'


def field_prefixes(names: Sequence[str]) -> list[str]:
    """What stands before each value: the quoted name and a colon."""
    return [encode_basestring(name) + ":" for name in names]


def reply_header(
    code: int, opaque: int, remark: str | None, prefixes: list[str] | None,
    values: tuple[object, ...],
) -> bytes:
    """Write the JSON header of a reply.

    :param prefixes: of the header class, in the order of ``values``; None: no extFields.
    :param values: None is left out; what is neither number, boolean nor text is shown as text.
    """
    parts: list[str] = []
    if prefixes is not None:
        for index, value in enumerate(values):
            if value is None:
                continue
            if isinstance(value, str):
                parts.append(prefixes[index] + encode_basestring(value))
            elif isinstance(value, bool):
                parts.append(prefixes[index] + ('"true"' if value else '"false"'))
            else:
                parts.append(prefixes[index] + '"' + str(value) + '"')
        fields = '"extFields":{' + ",".join(parts) + "},"
    else:
        fields = ""
    text = "" if remark is None else '"remark":' + encode_basestring(remark) + ","
    header = (
        '{"code":' + str(code) + "," + fields + '"flag":1,"language":"PYTHON","opaque":'
        + str(opaque) + "," + text + _TAIL
    )
    try:
        return header.encode()
    except UnicodeEncodeError:
        # A lone surrogate can come in through JSON's escapes; it has no UTF-8 form.
        return header.encode("utf-8", "replace")
