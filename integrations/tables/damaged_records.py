"""Separates the damaged records in a pull response from the whole ones, one record at a time.

This is done only for responses that cannot be converted to a record batch as a whole. A record is
damaged when its lengths are inconsistent, its body does not match its CRC or does not decompress,
or its flags mark it as a batch but the body is not a valid batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import Undecodable
from twistmq.client.base.messages import MessageQueue, PullResult
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.consumer.pull_request import damaged_message
from twistmq.integrations.tables.bodies import records_of_batch
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.record import (
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    MessageRecord,
    decode_record,
    encode_record,
)

__all__ = ["parts_of", "record_without_body"]

_WRAPPED: Final = SYS_INNER_BATCH | SYS_NEED_UNWRAP


def parts_of(
    result: PullResult, queue: MessageQueue, begin: int, has_body: bool
) -> Iterator[bytes | DamagedMessage[Any]]:
    """Split a response into parts, in order: runs of whole records, and each damaged record.

    :param begin: the offset that was requested.
    :param has_body: whether bodies are decompressed.
    """
    data = result.body
    position = start = 0
    min_offset = begin
    while position < len(data):
        try:
            record = decode_record(data, position)
            if has_body and record.sys_flag & SYS_COMPRESSED:
                decompress(record.body, record.sys_flag)
            if record.sys_flag & _WRAPPED == _WRAPPED:
                records_of_batch(record)
        except (StoreDamaged, Undecodable, MessageIllegal) as error:
            if start < position:
                yield data[start:position]
            message: DamagedMessage[Any] = damaged_message(
                data, position, queue, min_offset, result.next_offset, 0, error)
            yield message
            start = position = position + len(message.raw)
            min_offset = message.offset + 1
        else:
            position += record.size
            min_offset = record.queue_offset + 1
    if start < position:
        yield data[start:position]


def record_without_body(message: DamagedMessage[Any]) -> bytes:
    """Build a valid record from the readable fields of a damaged one, without a body."""
    stored = message.record
    new_record = MessageRecord(
        stored.topic, message.queue.queue_id, b"", stored.properties, stored.born_timestamp,
        stored.born_host, stored.store_host, [], flag=stored.flag,
        reconsume_times=stored.reconsume_times)
    new_record.queue_offset = message.offset
    new_record.physical_offset = stored.physical_offset
    new_record.store_timestamp = stored.store_timestamp
    return encode_record(new_record)
