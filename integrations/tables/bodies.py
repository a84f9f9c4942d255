"""Unwraps inner batches: each message of a batch becomes a record.

Source: MessageDecoder.decodeMessage @5.3.3.
"""

from __future__ import annotations

from twistmq.client.base.codecs import decompress
from twistmq.protocol import record
from twistmq.protocol.batch import decode_batch

__all__ = ["records_of_batch"]


def records_of_batch(stored: record.StoredMessage) -> bytes:
    """Encode the messages of an inner batch as one record each, as a client unwraps the batch.

    The records have the commit-log offset of the batch, their own queue offsets, and no system
    flags.

    :raises Undecodable: when the body does not decompress.
    :raises MessageIllegal: when the body is not a sequence of messages.
    """
    parts = []
    for index, (flag, body, text) in enumerate(
            decode_batch(decompress(stored.body, stored.sys_flag))):
        message = record.MessageRecord(
            stored.topic, stored.queue_id, body, text, stored.born_timestamp, stored.born_host,
            stored.store_host, [], flag=flag, reconsume_times=stored.reconsume_times)
        message.queue_offset = stored.queue_offset + index
        message.physical_offset = stored.physical_offset
        message.store_timestamp = stored.store_timestamp
        parts.append(record.encode_record(message))
    return b"".join(parts)
