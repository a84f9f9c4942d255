"""The commit log as raw bytes, for replication: reading and appending without using queues.

A replica appends the bytes of another broker's log as they arrive, in parts that may end anywhere.
The size of each record that begins in a part is checked, so that bytes of a different log, or of
one with a different file length, are refused before they are written. A part that completes a
record is also refused when no store could enter that record. Appended records become readable
through ``Dispatch.catch_up``, which the caller runs after it has acknowledged them.

Source: DefaultMessageStore.appendToCommitLog, getCommitLogData, CommitLog.appendData @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.entry_heads import ENTRY_FILLER
from twistmq.broker.store.raw_walk import whole_messages
from twistmq.broker.store.record_fault import record_fault
from twistmq.broker.store.store_stats import StoreStats
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    record_size,
)

__all__ = ["RawLog", "RecordRefused"]

#: The number of bytes of a record that are read here: int32 size, int32 magic.
_HEAD_SIZE: Final = 8
#: The number of topic names that are remembered as valid.
_NAMES_MAX: Final = 10_000
_BLANK: Final = (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
_MAGICS: Final = frozenset(
    (magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))


class RecordRefused(StoreError):
    """A record of another broker's log is complete, but no store can enter it.

    :param log_offset: the commit-log offset at which it begins.
    """

    def __init__(self, log_offset: int, fault: str) -> None:
        super().__init__(f"the record at {log_offset} of the other log cannot be stored: {fault}")
        self.log_offset = log_offset


class RawLog:
    """The bytes of one store's commit log.

    :param require_readable: raises a StoreError when the store accepts no bytes.
    """

    def __init__(
        self, commit_log: CommitLog, stats: StoreStats,
        require_readable: Callable[[], None],
    ) -> None:
        self._log = commit_log
        self._stats = stats
        self._require_readable = require_readable
        #: The end of the log after the last append here, and the end of the last record in it. They
        #: are equal when that record is complete.
        self._end = self._next = 0
        #: The beginning of that record.
        self._whole = 0
        #: The topics of received records that can name a directory.
        self._names: set[bytes] = set()

    @property
    def file_size(self) -> int:
        """The length of each file in bytes; a read never crosses the end of a file."""
        return self._log.file_size

    @property
    def whole_offset(self) -> int:
        """The end of the last whole record; later bytes are the beginning of another record."""
        return self._whole if self._end == self._log.max_offset else self._log.max_offset

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes, at most up to the end of the log or of a file.

        :returns: no bytes at the end of the log.
        :raises StoreError: when ``offset`` is before the first stored byte or after the end, or
            when the disk fails.
        """
        size = self.size_at(offset, size)
        try:
            return (self._log.peek(offset, size) or b"") if size else b""
        except OSError as error:
            raise StoreError(f"the commit log cannot be read at {offset}: {error}") from error

    def size_at(self, offset: int, size_max: int) -> int:
        """Return the number of bytes that ``read`` would return.

        :raises StoreError: when ``offset`` is before the first stored byte or after the end.
        """
        log = self._log
        if not log.min_offset <= offset <= log.max_offset:
            raise StoreError(f"the log has bytes from {log.min_offset} to {log.max_offset}, "
                             f"not at {offset}")
        return min(size_max, log.max_offset - offset, log.next_file_start(offset) - offset)

    def send_to(self, descriptor: int, offset: int, size: int) -> int:
        """Send stored bytes to a socket, directly from the file.

        :param descriptor: the descriptor of a non-blocking socket.
        :param size: at most the result of ``size_at``.
        :returns: the number of bytes that the socket accepted; 0 when the log no longer has them.
        :raises BlockingIOError: when the socket accepts no bytes now.
        :raises OSError: when the disk fails, or the connection is lost.
        """
        return self._log.send_to(descriptor, offset, size)

    def messages(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yield the commit-log offset and size of each whole message, up to the end of the log.

        :param offset: the beginning of a record, or the end of the log.
        :raises StoreError: when no record begins there, or the disk fails.
        """
        log = self._log
        while offset < self.whole_offset:
            try:
                head = log.peek(offset, _HEAD_SIZE) or b""
                size, is_message = (
                    self._entry_size(offset, head) if log.head_size else self._size(offset, head))
            except OSError as error:
                raise StoreError(f"the commit log cannot be read at {offset}: {error}") from error
            if is_message:
                yield offset + log.head_size, size - log.head_size
            offset += size

    def _entry_size(self, log_offset: int, head: bytes) -> tuple[int, bool]:
        """Read the size of an entry and whether it is one, as opposed to the filler of a file.

        :raises StoreError: when neither begins here.
        :raises OSError: when the disk fails.
        """
        log = self._log
        if not log.begins_at(log_offset):
            raise StoreError(f"no entry of this log begins at {log_offset} with {head.hex()}")
        if head[:4] == ENTRY_FILLER:
            return log.next_file_start(log_offset) - log_offset, False
        return int.from_bytes(head[4:], "big"), True

    def append(self, offset: int, data: bytes) -> None:
        """Append bytes of another broker's commit log, all or nothing.

        When no store can enter one of the records, the records before it are still appended.

        :param offset: their offset in that log, which must be the end of this log.
        :raises RecordRefused: when a record becomes complete that no store can enter.
        :raises StoreError: when ``offset`` differs, when the bytes are not records, or when the
            disk fails.
        :raises StoreFull: when the disk is full.
        """
        self._require_readable()
        log = self._log
        if offset != log.max_offset:
            raise StoreError(f"bytes at {offset} cannot be stored at {log.max_offset}")
        if not data:
            return
        try:
            whole, following, count = self._walk(offset, data)
        except RecordRefused as error:
            if error.log_offset > offset:
                self.append(offset, data[: error.log_offset - offset])
            raise
        writes = []
        at = 0
        while at < len(data):
            room = log.next_file_start(offset + at) - offset - at
            writes.append((offset + at, data[at : at + room]))
            at += room
        log.write(writes)
        self._whole, self._next, self._end = whole, following, log.max_offset
        self._stats.put(count, len(data), 0)

    def forget(self) -> None:
        """Note that the log was cut and now ends with a whole record."""
        self._whole = self._next = self._end = self._log.max_offset

    def _walk(self, offset: int, data: bytes) -> tuple[int, int, int]:
        """Find the records that begin in bytes after the end of the log.

        :returns: the beginning of the last incomplete record, or the end; the end of that record,
            as far as it is known; the number of messages that begin in the bytes.
        :raises StoreError: when there is no record where one should be.
        """
        log = self._log
        if self._end != offset:
            # Other writers have appended whole records since.
            self._whole = self._next = self._end = offset
        begin, following, end = self._whole, self._next, offset + len(data)
        if len(self._names) > _NAMES_MAX:
            self._names.clear()
        count = 0
        while following <= end:
            if begin < following:
                self._require_sound(begin, following, offset, data)
            begin = following
            if begin >= offset:
                passed, passed_count = whole_messages(
                    data, begin - offset, log.next_file_start(begin) - begin, begin, self._names)
                begin = following = begin + passed
                count += passed_count
            if end - begin < _HEAD_SIZE:
                break
            size, is_message = self._size(begin, _part(log, begin, _HEAD_SIZE, offset, data))
            count += is_message
            following = begin + size
        return begin, following, count

    def _require_sound(self, begin: int, end: int, offset: int, data: bytes) -> None:
        """Check a whole record that the loop did not pass: a divided one, a blank, or an unusual
        one.

        :raises RecordRefused: when it is a message that no store can enter.
        """
        log = self._log
        if _part(log, begin, _HEAD_SIZE, offset, data)[4:] == _BLANK:
            return
        fault = record_fault(
            lambda log_offset, size: _part(log, log_offset, size, offset, data), begin, end - begin)
        if fault:
            raise RecordRefused(begin, fault)

    def _size(self, log_offset: int, head: bytes) -> tuple[int, bool]:
        """Read the size of a record.

        :returns: its size, and whether it is a message, as opposed to a blank.
        :raises StoreError: when it cannot be a record at this offset of this log.
        """
        size, magic = record_size(head), head[4:]
        room = self._log.next_file_start(log_offset) - log_offset
        if magic == _BLANK:
            if size != room:
                raise StoreError(
                    f"the file of {log_offset} ends {size} bytes after it in the other log and "
                    f"{room} here: mappedFileSizeCommitLog differs")
            return size, False
        if magic not in _MAGICS or not RECORD_SIZE_MIN <= size <= room - BLANK_SIZE_MIN:
            raise StoreError(f"no record of this log can begin at {log_offset} with {head.hex()}")
        return size, True


def _part(log: CommitLog, log_offset: int, size: int, offset: int, data: bytes) -> bytes:
    """Return bytes of a record, some of which may be in the log: ``data`` follows at ``offset``."""
    if log_offset >= offset:
        return data[log_offset - offset : log_offset - offset + size]
    stored = log.peek(log_offset, min(size, offset - log_offset)) or b""
    return stored + data[: size - len(stored)]
