"""The body of a batch send: several messages of one topic, each with its own flag and properties.

Layout of one message, big-endian, repeated until the end of the body:

    int32 total size · int32 0 · int32 0 · int32 flag · int32 n + body · int16 n + properties

An inner batch has the same bytes as its body. When a length is inconsistent, the whole batch is
refused and no part of it is stored. Source: MessageDecoder.encodeMessage, MessageExtEncoder @5.3.3;
protocol notes 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.record import PROPERTIES_LENGTH_MAX, utf8

__all__ = ["BATCH_COUNT_MAX", "count_batch", "decode_batch", "decode_batch_part", "encode_batch",
           "is_longer_batch"]

#: The fields total size, magic (0), crc (0), flag and body length.
_HEAD: Final = struct.Struct(">iiiii")
_SHORT: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
#: The size of a message that has neither body nor properties, bytes.
ITEM_SIZE_MIN: Final = 22
#: The maximum number of messages in a batch. Apache's broker takes more, but counts them in 16 bits
#: and gives the messages that follow in the queue negative offsets, so that none of them can be
#: pulled. Source: AppendMessageCallback.
BATCH_COUNT_MAX: Final = 0x7FFF


def decode_batch(body: bytes) -> list[tuple[int, bytes, str]]:
    """Split a batch into its messages.

    :returns: (flag, body, properties string) of each message, in order; never empty.
    :raises MessageIllegal: when the bytes are not a batch; the text states the position.
    """
    messages, position = decode_batch_part(body, 0, 0, BATCH_COUNT_MAX)
    if not messages:
        raise MessageIllegal("the batch holds no message")
    if position < len(body):
        raise too_many()
    return messages


def decode_batch_part(
    body: bytes, position: int, number: int, count_max: int
) -> tuple[list[tuple[int, bytes, str]], int]:
    """Split a part of a batch into its messages.

    :param position: where the first message of the part begins, bytes.
    :param number: the number of messages before it.
    :param count_max: the maximum number of messages in the part.
    :returns: the messages, as ``decode_batch``, and where the next one begins, bytes.
    :raises MessageIllegal: as ``decode_batch``.
    """
    messages: list[tuple[int, bytes, str]] = []
    end = len(body)
    count = 0
    while position < end and count < count_max:
        size, flag, properties_start = _item(body, position, number + count)
        properties = str(body[properties_start : position + size], "utf-8", "replace")
        messages.append((flag, body[position + 20 : properties_start - 2], properties))
        position += size
        count += 1
    return messages, position


def _item(body: bytes, position: int, number: int) -> tuple[int, int, int]:
    """Check one message of the batch.

    :returns: its size in bytes, its flag, and where its properties begin.
    :raises MessageIllegal: when its lengths are inconsistent.
    """
    remaining = len(body) - position
    if remaining < ITEM_SIZE_MIN:
        raise _wrong(number, position, f"{remaining} bytes are too few")
    size: int
    flag: int
    body_length: int
    size, _, _, flag, body_length = _HEAD.unpack_from(body, position)
    if size < ITEM_SIZE_MIN or size > remaining:
        raise _wrong(number, position, f"size {size} of {remaining} bytes left")
    if body_length < 0 or body_length > size - ITEM_SIZE_MIN:
        raise _wrong(number, position, f"body length {body_length} in size {size}")
    properties_length: int = _SHORT.unpack_from(body, position + 20 + body_length)[0]
    if properties_length < 0 or ITEM_SIZE_MIN + body_length + properties_length != size:
        raise _wrong(number, position, f"properties length {properties_length} in size {size}")
    return size, flag, position + ITEM_SIZE_MIN + body_length


def _wrong(number: int, position: int, why: str) -> MessageIllegal:
    return MessageIllegal(f"message {number} of the batch, at byte {position}: {why}")


def too_many() -> MessageIllegal:
    """The error for a batch with too many messages."""
    return MessageIllegal(f"the batch holds more than {BATCH_COUNT_MAX} messages")


def count_batch(body: bytes) -> int:
    """Count the messages of a batch; the bytes must be a batch.

    :raises MessageIllegal: as ``decode_batch``.
    """
    position = 0
    count = 0
    while position < len(body):
        if count == BATCH_COUNT_MAX:
            raise too_many()
        position += _item(body, position, count)[0]
        count += 1
    if not count:
        raise MessageIllegal("the batch holds no message")
    return count


def is_longer_batch(body: bytes, count: int) -> bool:
    """Whether a batch has more messages than the given number; the batch is not validated."""
    position = 0
    end = len(body)
    if end <= count * ITEM_SIZE_MIN:
        return False
    while count >= 0 and position + ITEM_SIZE_MIN <= end:
        size: int = _SIZE.unpack_from(body, position)[0]
        if size < ITEM_SIZE_MIN:
            return False
        position += size
        count -= 1
    return count < 0


def encode_batch(messages: Iterable[tuple[int, bytes, str]]) -> bytes:
    """Join messages into a batch, the inverse of decode_batch.

    :param messages: (flag, body, properties string) of each message.
    :raises MessageIllegal: when a message's properties are too long.
    """
    parts: list[bytes] = []
    for flag, body, properties in messages:
        encoded = properties.encode() if properties.isascii() else utf8(properties)
        length = len(encoded)
        if length > PROPERTIES_LENGTH_MAX:
            raise MessageIllegal(f"properties of {length} bytes, {PROPERTIES_LENGTH_MAX} fit")
        body_length = len(body)
        parts += (_HEAD.pack(ITEM_SIZE_MIN + body_length + length, 0, 0, flag, body_length), body,
                  _SHORT.pack(length), encoded)
    return b"".join(parts)


assert _HEAD.size + _SHORT.size == ITEM_SIZE_MIN
