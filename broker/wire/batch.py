"""The body of a batch send: several messages of one topic, each with its own flag and properties.

Layout of one, big-endian, repeated to the end of the body:

    int32 total size · int32 0 · int32 0 · int32 flag · int32 n + body · int16 n + properties

The same bytes are the body of an inner batch. What does not add up refuses the whole batch: nothing
of it is stored. Source: MessageDecoder.encodeMessage, MessageExtEncoder @5.3.3; protocol notes 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from twistmq.broker.errors import MessageIllegal
from twistmq.broker.wire.record import PROPERTIES_LENGTH_MAX, utf8

__all__ = ["decode_batch", "encode_batch"]

#: total size, magic (0), crc (0), flag, body length.
_HEAD: Final = struct.Struct(">iiiii")
_SHORT: Final = struct.Struct(">h")
#: Bytes of one message with neither body nor properties.
ITEM_SIZE_MIN: Final = 22


def decode_batch(body: bytes) -> list[tuple[int, bytes, str]]:
    """Take a batch apart.

    :returns: (flag, body, properties string) of each message, in order; never empty.
    :raises MessageIllegal: when the bytes are not such a sequence; the text says where.
    """
    messages: list[tuple[int, bytes, str]] = []
    position = 0
    end = len(body)
    while position < end:
        place = f"message {len(messages)} of the batch, at byte {position}"
        if end - position < ITEM_SIZE_MIN:
            raise MessageIllegal(f"{place}: {end - position} bytes are too few")
        size, _, _, flag, body_length = _HEAD.unpack_from(body, position)
        body_start = position + 20
        if size < ITEM_SIZE_MIN or size > end - position:
            raise MessageIllegal(f"{place}: size {size} of {end - position} bytes left")
        if body_length < 0 or body_length > size - ITEM_SIZE_MIN:
            raise MessageIllegal(f"{place}: body length {body_length} in size {size}")
        properties_start = body_start + body_length + 2
        properties_length: int = _SHORT.unpack_from(body, properties_start - 2)[0]
        if properties_length < 0 or properties_start + properties_length != position + size:
            raise MessageIllegal(f"{place}: properties length {properties_length} in size {size}")
        properties = str(body[properties_start : position + size], "utf-8", "replace")
        messages.append((flag, body[body_start : properties_start - 2], properties))
        position += size
    if not messages:
        raise MessageIllegal("the batch holds no message")
    return messages


def encode_batch(messages: Iterable[tuple[int, bytes, str]]) -> bytes:
    """Put messages together, the inverse of decode_batch.

    :param messages: (flag, body, properties string) of each.
    :raises MessageIllegal: when a message's properties are too long.
    """
    parts: list[bytes] = []
    for flag, body, properties in messages:
        encoded = utf8(properties)
        if len(encoded) > PROPERTIES_LENGTH_MAX:
            raise MessageIllegal(f"properties of {len(encoded)} bytes, {PROPERTIES_LENGTH_MAX} fit")
        size = ITEM_SIZE_MIN + len(body) + len(encoded)
        parts.append(_HEAD.pack(size, 0, 0, flag, len(body)))
        parts.append(body)
        parts.append(_SHORT.pack(len(encoded)))
        parts.append(encoded)
    return b"".join(parts)


assert _HEAD.size + _SHORT.size == ITEM_SIZE_MIN
