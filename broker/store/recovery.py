"""Finding out what a store holds, after a clean stop and after a crash.

After a clean stop the queues know all but the last records; the log is read from where the furthest
queue ends. After a crash it is read from the newest file that checkpoint and index surely cover;
every record is checked and entered again where it is missing, and the first that is not whole ends
the log. Queues never point behind the log's end.

Source: CommitLog.recoverNormally, recoverAbnormally, isMappedFileMatchedRecover @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from twisted.logger import Logger

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.commit_log import CommitLog
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

#: Passes records of a chunk: (bytes, where in them a record starts, its place in the log) to the
#: bytes that were passed.
Pass = Callable[[bytes, int, int], int]

#: Bytes read at a time.
_CHUNK_SIZE = 1024 * 1024
#: Bytes that a disk writes whole or not at all, at the least.
_SECTOR_SIZE = 512
#: Bytes after which a long scan says how far it is.
_PROGRESS_SIZE = 256 * 1024 * 1024

#: Magic numbers as they stand in the log.
_BLANK = struct.pack(">i", MAGIC_BLANK)
_RECORD = frozenset((struct.pack(">i", MAGIC_V1), struct.pack(">i", MAGIC_V2)))

_log = Logger()


def scan_log(
    commit_log: CommitLog, offset: int, end: int, check_crc: bool, pass_some: Pass | None = None,
    damaged: Callable[[int, str], None] | None = None,
) -> Iterator[StoredMessage]:
    """Read records one after the other until there is no whole one.

    The caller takes the end of the last one as the end of the log. A record of another place is
    left over from before a cut and ends the log as well.

    :param offset: where a record starts.
    :param end: the log is not read from here on.
    :param pass_some: passes records that need not be read here. It is not asked about the one
        behind a record that may be torn, which is held back until there is another.
    :param damaged: told where, and why, no record is where one must be; None: the log ends there,
        and one line says so.
    """
    # Behind the end of a log are zeros, or what was there before.
    may_end = damaged is None
    damaged = damaged or _log_end
    file_size = commit_log.file_size
    closely = False
    chunk, chunk_start = b"", offset
    progress = offset + _PROGRESS_SIZE
    while offset < end:
        at = offset - chunk_start
        if at + 8 > len(chunk) or at + record_size(chunk, at) > len(chunk):
            chunk, chunk_start, at = _read_chunk(commit_log, offset, end), offset, 0
        if offset >= progress:
            progress += _PROGRESS_SIZE
            _log.info("recovery is at {offset} of {end}", offset=offset, end=end)
        if pass_some is not None and not closely:
            passed = pass_some(chunk, at, offset)
            if passed:
                offset += passed
                continue
        magic = chunk[at + 4 : at + 8]
        if magic == _BLANK:
            offset += file_size - offset % file_size
            chunk, chunk_start = b"", offset
            continue
        if magic not in _RECORD:
            if not may_end and end - offset >= 8:
                damaged(offset, f"no record begins with {chunk[at : at + 8].hex()}")
            return
        if end - offset < record_size(chunk, at) <= file_size - offset % file_size:
            # Its end is not there yet.
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
    """Say where the log ends that recovery found."""
    _log.warn("the commit log ends at {offset}: {why}", offset=offset, why=why)


def without_torn(
    messages: Iterable[StoredMessage], file_size: int, durable_ms: int
) -> Iterator[StoredMessage]:
    """Yield messages up to the first record that was not written completely.

    The CRC covers the body alone. A write that was torn behind the body leaves zeros at the end of
    properties or topic of the last record; a loss of power may leave them in any sector of what
    was not durable. No client writes zeros there, and what is durable is believed to have them.

    :param file_size: bytes of a commit-log file.
    :param durable_ms: records that were stored before are durable, Unix ms.
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
    """Whether all that a sector has of a record's topic and properties is zeros."""
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


def _read_chunk(commit_log: CommitLog, offset: int, end: int) -> bytes:
    """Read from an offset on: a chunk, or one record that is larger than that."""
    left = min(end - offset, commit_log.file_size - offset % commit_log.file_size)
    chunk = commit_log.peek(offset, min(left, _CHUNK_SIZE)) or b""
    if len(chunk) >= 8:
        size = record_size(chunk)
        if len(chunk) < size <= left:
            chunk = commit_log.peek(offset, size) or b""
    return chunk


def start_after_stop(commit_log: CommitLog, max_physical: int) -> int:
    """The offset from which to read the log after a clean stop.

    :param max_physical: where the log goes on after the newest message of any queue; -1 without.
    """
    start = max(max_physical, commit_log.min_offset)
    if start % commit_log.file_size == 0:
        # The newest message cannot end exactly with its file: a blank record must follow.
        return min(start, commit_log.max_offset)
    if start < commit_log.max_offset:
        return start
    # Queues that go further than the log: find the log's own end.
    return commit_log.starts[-1] if commit_log.starts else 0


def start_after_crash(
    commit_log: CommitLog,
    checkpoint: Checkpoint,
    index_end: int | None,
    with_index_time: bool,
) -> int:
    """The offset from which to read the log after a crash: the beginning of a file.

    :param index_end: place of the newest message in the index, None when there is no index. The
    records behind it must be indexed again, unless that is more than two files away and the index
        need not be safe.
    :param with_index_time: whether the index's time in the checkpoint counts (messageIndexSafe).
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
    """The store time of the first record of a file, in ms; -1 without a whole record.

    Of a number that was torn when the power went, only the first bytes are there: it is too small.
    """
    record = commit_log.read_record(start)
    if record is None or check_record(record) <= 0:
        return -1
    return record_store_timestamp(record)
