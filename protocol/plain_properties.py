"""Scans the properties of a plain message as bytes.

Most messages have plain properties: each pair is complete, each name occurs once, all bytes are
ASCII, and no property requests anything from the broker. They are stored as they were sent.
This is a leaf module of the hot path. It uses only the standard library, and it is typed so that
mypyc can compile it.

Source: MessageDecoder, MessageConst @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.protocol.big_endian import uint32_at
from twistmq.protocol.properties import java_string_hash

if TYPE_CHECKING:
    # Only mypyc uses this import: machine integers make comparing bytes faster.
    from mypy_extensions import i64

__all__ = ["plain_keys"]

#: Property names as big-endian integers.
_KEYS: Final = 0x4B455953
_TAGS: Final = 0x54414753
_WAIT: Final = 0x57414954
_UNIQ: Final = 0x554E4951
_UNDERSCORE_KEY: Final = 0x5F4B4559
#: The bits for the names that were seen.
_SEEN_KEYS: Final = 1
_SEEN_TAGS: Final = 2
_SEEN_WAIT: Final = 4
_SEEN_UNIQ_KEY: Final = 8


def plain_keys(
    data: bytes, text: str, asking: frozenset[str]
) -> tuple[list[str] | None, int]:
    """Find the index keys and the tags code of a message.

    :param data: the properties as bytes; ``text``: the same as text.
    :param asking: the names that a plain message does not have.
    :returns: the results of ``index_keys`` and ``tags_code``; None for the keys when the properties
        are not plain, or have no UNIQ_KEY.
    """
    unique = ""
    others: list[str] | None = None
    names: set[str] | None = None
    tags_code = 0
    seen: i64 = 0
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        name_begin = at
        unit: i64 = 0
        while at < end:
            unit = data[at]
            if unit <= 2 or unit > 0x7F:
                break
            at += 1
        name_end = at
        if unit != 1 or name_end == name_begin:
            return None, 0
        at += 1
        value_begin = at
        while at < end:
            unit = data[at]
            if unit == 2:
                break
            if unit > 0x7F:
                return None, 0
            at += 1
        if at == value_begin:
            return None, 0
        size = name_end - name_begin
        bit: i64 = 0
        if size == 4:
            name = uint32_at(data, name_begin)
            if name == _KEYS:
                bit = _SEEN_KEYS
                others = [key for key in text[value_begin:at].split(" ") if key]
            elif name == _TAGS:
                bit = _SEEN_TAGS
                tags_code = java_string_hash(text[value_begin:at])
            elif name == _WAIT:
                bit = _SEEN_WAIT
        elif size == 8 and uint32_at(data, name_begin) == _UNIQ and (
                uint32_at(data, name_begin + 4) == _UNDERSCORE_KEY):
            bit = _SEEN_UNIQ_KEY
            unique = text[value_begin:at]
        if bit:
            if seen & bit:
                return None, 0
            seen |= bit
        else:
            other = text[name_begin:name_end]
            if names is None:
                names = set()
            if other in asking or other in names:
                return None, 0
            names.add(other)
        at += 1
    if not unique:
        return None, 0
    keys = [unique]
    if others is not None:
        keys.extend(others)
    return keys, tags_code
