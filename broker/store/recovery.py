"""Finding the end of the commit log, after a clean stop and after a crash.

The problem is that the log, the queues and the index are written at different times, so after a
crash they disagree, and the end of the log may contain records that were written only in part. The
idea is to trust only the log, and to read as little of it as possible.

After a clean stop, queues and files agree except for the last records, so the log is read from the
end of the queue that reaches furthest. After a crash, it is read from the newest file that
checkpoint and index certainly cover. Every record is checked and is entered again where it is
missing, and the first incomplete record ends the log. Queues never point beyond the end of the log.

Source: CommitLog.recoverNormally, recoverAbnormally, isMappedFileMatchedRecover @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from twisted.logger import Logger

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.entry_heads import ENTRY_FILLER, record_follows
from twistmq.broker.store.stored_records import may_be_torn
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    StoredMessage,
    check_record,
    decode_record,
    record_size,
    record_store_timestamp,
    utf8,
)

__all__ = [
    "Pass",
    "scan_log",
    "start_after_crash",
    "start_after_stop",
    "without_torn",
]

#: Skips records of a chunk. The arguments are the bytes, the position of a record or of its head in
#: them, and its commit-log offset; the result is the number of bytes skipped.
Pass = Callable[[bytes, int, int], int]

#: The number of bytes read at a time.
_CHUNK_SIZE = 1024 * 1024
#: The smallest unit that a disk writes completely or not at all, in bytes.
_SECTOR_SIZE = 512
#: The number of bytes after which a long scan logs its progress.
_PROGRESS_SIZE = 256 * 1024 * 1024

#: Magic numbers as they are encoded in the log.
_BLANK = struct.pack(">i", MAGIC_BLANK)
_RECORD = frozenset((struct.pack(">i", MAGIC_V1), struct.pack(">i", MAGIC_V2)))

_log = Logger()


def scan_log(
    commit_log: CommitLog, offset: int, end: int, check_crc: bool, pass_some: Pass | None = None,
    damaged: Callable[[int, str], None] | None = None, chunk_size: int = _CHUNK_SIZE,
) -> Iterator[StoredMessage]:
    """Read records one after the other, up to the first incomplete one.

    The caller treats the end of the last record as the end of the log. A record with another
    physical offset is left over from before a cut, and also ends the log.

    :param offset: the start of a record, or of the head in front of it.
    :param end: the log is not read beyond this offset.
    :param pass_some: skips records that do not have to be decoded. It is not called for the record
        after one that may be torn, which is held back until another record follows.
    :param damaged: called with the offset and the reason when no record is where one must be; with
        None, the log ends there, and one line is logged.
    :param chunk_size: the number of bytes that are read at a time.
    """
    # After the end of a log there are zeros, or older bytes.
    may_end = damaged is None
    damaged = damaged or _log_end
    file_size, head_size = commit_log.file_size, commit_log.head_size
    closely = False
    chunk, chunk_start = b"", offset
    progress = offset + _PROGRESS_SIZE
    while offset < end:
        at = offset - chunk_start
        if not _is_whole(chunk, at, head_size):
            chunk, chunk_start, at = _read_chunk(
                commit_log, offset, end, chunk_size), offset, 0
        if offset >= progress:
            progress += _PROGRESS_SIZE
            _log.info("recovery is at {offset} of {end}", offset=offset, end=end)
        if pass_some is not None and not closely:
            passed = pass_some(chunk, at, offset)
            if passed:
                offset += passed
                continue
        if _is_file_end(chunk, at, head_size):
            offset += file_size - offset % file_size
            chunk, chunk_start = b"", offset
            continue
        if head_size:
            if not _is_whole(chunk, at, head_size) or not record_follows(chunk, at, offset):
                if not may_end:
                    damaged(offset, f"no entry begins with {chunk[at : at + 8].hex()}")
                return
            at += head_size
            offset += head_size
        magic = chunk[at + 4 : at + 8]
        if magic not in _RECORD:
            if not may_end and end - offset >= 8:
                damaged(offset, f"no record begins with {chunk[at : at + 8].hex()}")
            return
        if end - offset < record_size(chunk, at) <= file_size - offset % file_size:
            # Its end has not been written yet.
            return
        try:
            message = decode_record(chunk, at, check_crc)
        except StoreDamaged as error:
            damaged(offset, str(error))
            return
        if message.physical_offset != offset:
            damaged(offset, f"the record there belongs to offset {message.physical_offset}")
            return
        yield message
        offset += message.size
        closely = may_be_torn(message)


def _log_end(offset: int, why: str) -> None:
    """Log the end of the log that recovery has found."""
    _log.warn("the commit log ends at {offset}: {why}", offset=offset, why=why)


def without_torn(
    messages: Iterable[StoredMessage], file_size: int, durable_ms: int
) -> Iterator[StoredMessage]:
    """Yield messages up to the first record that was not written completely.

    The CRC covers only the body. A write that was interrupted after the body leaves zeros at the
    end of the properties or the topic of the last record; a loss of power may leave them in any
    sector that was not durable. No client writes zeros there, and zeros in a durable record are
    taken for its own bytes.

    :param file_size: length of a commit-log file in bytes.
    :param durable_ms: records with an earlier store time are durable, Unix ms.
    """
    last: StoredMessage | None = None
    for message in messages:
        if last is not None:
            yield last
        last = message
        if message.store_timestamp >= durable_ms and _has_hole(message, file_size):
            break
        if not may_be_torn(message):
            last = None
            yield message
    else:
        if last is None:
            return
        if last.store_timestamp < durable_ms:
            yield last
            return
    _log.warn("the record at {offset} is torn and dropped", offset=last.physical_offset)


def _has_hole(message: StoredMessage, file_size: int) -> bool:
    """Return whether a sector contains only zeros of a record's topic and properties."""
    if "\0" not in message.properties and "\0" not in message.topic:
        return False
    topic, properties = utf8(message.topic), utf8(message.properties)
    text = topic + len(properties).to_bytes(2, "big") + properties
    end = message.physical_offset % file_size + message.size
    begin = end - len(text)
    first = _SECTOR_SIZE - begin % _SECTOR_SIZE
    parts = [text[:first], *(
        text[at : at + _SECTOR_SIZE] for at in range(first, len(text), _SECTOR_SIZE))]
    return any(not part.strip(b"\0") for part in parts)


def _is_whole(chunk: bytes, at: int, head_size: int) -> bool:
    """Return whether the chunk contains the whole record that begins at a position."""
    record = at + head_size
    return record + 8 <= len(chunk) and record + record_size(chunk, record) <= len(chunk)


def _is_file_end(chunk: bytes, at: int, head_size: int) -> bool:
    """Return whether the filler of a file begins at a position."""
    if head_size:
        return chunk[at : at + 4] == ENTRY_FILLER
    return chunk[at + 4 : at + 8] == _BLANK


def _read_chunk(commit_log: CommitLog, offset: int, end: int, chunk_size: int) -> bytes:
    """Read a chunk from an offset on, or one record if that is larger."""
    remaining = min(end - offset, commit_log.file_size - offset % commit_log.file_size)
    chunk = commit_log.peek(offset, min(remaining, chunk_size)) or b""
    head_size = commit_log.head_size
    if len(chunk) >= head_size + 8:
        size = head_size + record_size(chunk, head_size)
        if len(chunk) < size <= remaining:
            chunk = commit_log.peek(offset, size) or b""
    return chunk


def start_after_stop(commit_log: CommitLog, max_physical: int) -> int:
    """Return the offset from which to read the log after a clean stop.

    :param max_physical: the commit-log offset after the newest message of any queue; -1 without a
        message.
    """
    start = max(max_physical, commit_log.min_offset)
    if start % commit_log.file_size == 0:
        # The newest message cannot end exactly with its file, because a blank record must follow.
        return min(start, commit_log.max_offset)
    if start < commit_log.max_offset:
        return start
    # The queues reach beyond the log, so find the end of the log itself.
    return commit_log.starts[-1] if commit_log.starts else 0


def start_after_crash(
    commit_log: CommitLog,
    checkpoint: Checkpoint,
    index_end: int | None,
    with_index_time: bool,
) -> int:
    """Return the offset from which to read the log after a crash: the beginning of a file.

    :param index_end: the commit-log offset of the newest message in the index; None without an
        index. The records after it must be indexed again, unless it is more than two files away and
        the index is not required to be complete.
    :param with_index_time: whether the index time of the checkpoint counts (messageIndexSafe).
    """
    limit = checkpoint.min_timestamp_index() if with_index_time else checkpoint.min_timestamp()
    starts = commit_log.starts
    index = 0
    for candidate in range(len(starts) - 1, -1, -1):
        timestamp = _first_timestamp(commit_log, starts[candidate])
        if 0 < timestamp <= limit:
            index = candidate
            break
    if index_end is not None and starts:
        indexed = (index_end - starts[0]) // commit_log.file_size
        oldest = 0 if with_index_time else max(index - 2, 0)
        index = max(min(index, indexed), oldest)
    return starts[index] if starts else 0


def _first_timestamp(commit_log: CommitLog, start: int) -> int:
    """Return the store time of the first record of a file, in ms; -1 without a whole record.

    If the number was torn by a loss of power, only its first bytes are there, so it is too small.
    """
    record = commit_log.read_record(start + commit_log.head_size)
    if record is None or check_record(record) <= 0:
        return -1
    return record_store_timestamp(record)
