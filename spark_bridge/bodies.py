"""Bodies as their producers made them: compressed ones are unpacked, inner batches taken apart.

The system flag says that a body is compressed and by what; what it says of clients before 5.0 is 0,
which is zlib. LZ4 is the frame format. LZ4 and ZSTD are pyarrow's: no package more is needed.

Source: Compressor, CompressionType, MessageDecoder.decodeMessage @5.3.3.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from twistmq.broker.wire import record
from twistmq.broker.wire.batch import decode_batch

__all__ = ["BODY_SIZE_MAX", "BodyError", "decompress", "records_of_batch"]

#: Bytes a body may have when it is unpacked. A broker takes 4 MiB by default, packed or not: more
#: than this is no message but something made to fill a worker's memory.
BODY_SIZE_MAX: Final = 256 << 20
_NAMES: Final = {0: "zlib", record.SYS_COMPRESSION_ZLIB: "zlib",
                 record.SYS_COMPRESSION_LZ4: "lz4", record.SYS_COMPRESSION_ZSTD: "zstd"}


class BodyError(ValueError):
    """A body does not decompress; the text says why."""


def decompress(body: bytes, sys_flag: int) -> bytes:
    """Unpack a body if its record says that it is packed.

    :raises BodyError: when it does not decompress, or to more than BODY_SIZE_MAX.
    """
    if not sys_flag & record.SYS_COMPRESSED:
        return body
    kind = sys_flag & record.SYS_COMPRESSION_MASK
    name = _NAMES.get(kind)
    if name is None:
        raise BodyError(f"compression type {kind >> 8} is not known")
    try:
        found = _inflate(body) if name == "zlib" else _stream(body, name)
    except (zlib.error, OSError, pa.ArrowException, EOFError) as error:
        raise BodyError(f"{len(body)} bytes do not decompress by {name}: {error}") from None
    if len(found) > BODY_SIZE_MAX:
        raise BodyError(f"{len(body)} bytes decompress to more than {BODY_SIZE_MAX}")
    return found


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    found = inflater.decompress(body, BODY_SIZE_MAX + 1)
    if not inflater.eof and len(found) <= BODY_SIZE_MAX:
        raise EOFError("the data ends too early")
    return found


def _stream(body: bytes, name: str) -> bytes:
    parts = []
    left = BODY_SIZE_MAX + 1
    with pa.CompressedInputStream(pa.BufferReader(body), name) as stream:
        while left > 0 and (part := stream.read(min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def records_of_batch(stored: record.StoredMessage) -> bytes:
    """Write an inner batch as one record for each of its messages, as a client takes it apart.

    They have the batch's place in the commit log, their own place in the queue, and no system flag.

    :raises BodyError: when the body does not decompress.
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
