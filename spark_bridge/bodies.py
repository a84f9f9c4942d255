"""Inner batches taken apart: one record for each of their messages.

Source: MessageDecoder.decodeMessage @5.3.3.
"""

from __future__ import annotations

from twistmq.client.base.codecs import decompress
from twistmq.protocol import record
from twistmq.protocol.batch import decode_batch

__all__ = ["records_of_batch"]


def records_of_batch(stored: record.StoredMessage) -> bytes:
    """Write an inner batch as one record for each of its messages, as a client takes it apart.

    They have the batch's place in the commit log, their own place in the queue, and no system flag.

    :raises Undecodable: when the body does not decompress.
    :raises MessageIllegal: when it is no sequence of messages.
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
