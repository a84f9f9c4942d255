"""Recovers the readable parts of a damaged record in the revive topic.

The record names popped messages. If it is a check point that cannot be read, these messages are
lost to their group. The body may be intact even though another part is damaged. If the body is
damaged, the record from which the timers made it is still in the commit log and can be found by its
unique key. If that record is gone as well, the unique key alone identifies the queue and the first
message of the check point.

Source: design of twistmq; Apache's broker skips such a record.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from twistmq.broker.api import BrokerError, decode_record
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.plugins.pop.check_point import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CK_AHEAD_MS,
    CK_TAG,
    CheckPoint,
    PointKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twistmq.broker.api import Broker

__all__ = ["Rescued", "rescue"]

_UNIQUE: Final = re.compile(rb"UNIQ_KEY\x01([^\x01\x02]+)\x02")
_DELIVER_MS: Final = re.compile(rb"TIMER_DELIVER_MS\x01([0-9]{1,18})\x02")
#: The parts of a unique key: topic, queue, first offset, group, pop time, broker and kind.
_UNIQUE_PARTS: Final = re.compile(
    r"([^@]+)@([0-9]{1,9})@(-?[0-9]{1,18})@([^@]+)@([0-9]{1,18})@([^@]*)@([a-z]+)")
_CRC: Final = struct.Struct(">I")
#: Position of the CRC of the body in a record, and the bits of the CRC that are stored.
_CRC_POSITION: Final = 8
_CRC_MASK: Final = 0x7FFFFFFF
#: The maximum number of bytes to examine: a record of the revive topic has a few hundred bytes.
_SIZE_MAX: Final = 1024 * 1024
#: The maximum number of records with one unique key: check points that were written again, and
#: acknowledgements of one pop.
_COPIES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Rescued:
    """The content of a damaged record as far as it is known.

    :param bodies: pairs of a tag and an intact body.
    :param point: the known part of a check point whose body is lost.
    :param text: a description of the record and its outcome, for the log.
    """

    bodies: tuple[tuple[str, bytes], ...]
    point: CheckPoint | None
    text: str


def rescue(broker: Broker, topic: str, log_offset: int, size: int) -> Rescued:
    """Recover the content of a damaged record in the revive topic.

    :param topic: the revive topic.
    :param log_offset: the offset of the record in the commit log, as the queue's entry states it.
    :param size: the size of the record, as the queue's entry states it.
    """
    data = broker.store.commit_log.peek(log_offset, min(size, _SIZE_MAX)) or b""
    end = data.rfind(bytes((len(topic),)) + topic.encode())
    unique = _first(_UNIQUE, data[end:]) if end >= 0 else ""
    parts = _UNIQUE_PARTS.fullmatch(unique)
    if parts is None:
        return Rescued((), None, "the popped messages that it names are unknown: if it is a check "
                                 "point, they are lost to their group")
    body = data[max(data.find(b"{"), 0):end]
    [crc] = _CRC.unpack_from(data, _CRC_POSITION)
    if crc32(body) & _CRC_MASK == crc and (tag := _tag_of(body)):
        return Rescued(((tag, body),), None, "its body is whole and is used")
    deliver_ms = _first(_DELIVER_MS, data[end:])
    copies = tuple(_copies(broker, unique, deliver_ms))
    if copies:
        return Rescued(copies, None, "its copy in the timer topic is used")
    return _by_unique_key(parts, deliver_ms)


def _by_unique_key(parts: re.Match[str], deliver_ms: str) -> Rescued:
    """Recover the content from the unique key alone."""
    topic, queue_id, start, group, pop_ms, broker_name, kind = parts.groups()
    if kind != CK_TAG:
        return Rescued((), None, f"messages of {topic}-{queue_id} that {group} popped at {pop_ms} "
                                 "and acknowledged are delivered to it again")
    point = CheckPoint(
        PointKey(topic, group, int(queue_id), int(start), int(pop_ms), broker_name), [int(start)],
        max(int(deliver_ms or pop_ms) + CK_AHEAD_MS - int(pop_ms), 0))
    return Rescued((), point, f"message {start} of {topic}-{queue_id} is delivered to {group} "
                              "again unless it was acknowledged; the later messages of the same "
                              f"pop, at {pop_ms}, are lost to the group unless they were "
                              "acknowledged")


def _first(pattern: re.Pattern[bytes], data: bytes) -> str:
    """Return the text of a property in the bytes of a record, or "" if it is not found."""
    match = pattern.search(data)
    return "" if match is None else match[1].decode("utf-8", "replace")


def _tag_of(body: bytes) -> str:
    """Return the tag of a record with this body, or "" if the revive topic has no such body."""
    if b'"aol":' in body or b'"ackOffsetList":' in body:
        return BATCH_ACK_TAG
    if b'"ao":' in body or b'"ackOffset":' in body:
        return ACK_TAG
    return CK_TAG if b'"so":' in body else ""


def _copies(broker: Broker, unique: str, deliver_ms: str) -> Iterator[tuple[str, bytes]]:
    """Yield records of the timer topic with a unique key and, if it is known, delivery time."""
    records, *_ = broker.store.reader.query(TIMER_TOPIC, unique, _COPIES_MAX, 0, 2**62)
    for record in records:
        try:
            message = decode_record(record)
        except BrokerError:
            continue
        own_ms = message.properties_map().get("TIMER_DELIVER_MS", "")
        if tag := _tag_of(message.body):
            if deliver_ms and own_ms and own_ms != deliver_ms:
                continue
            yield tag, message.body
