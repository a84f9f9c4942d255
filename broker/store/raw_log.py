"""The commit log as bytes, for replication: reading and appending without a look at queues.

A replica appends the bytes of another broker's log as they come, in parts that end anywhere. The
size of each record that begins in them is read, so that bytes of another log, or of one with
another file length, are refused before they are written. So is the part with which a record
becomes whole that no store can enter. Appended records become readable by
``Dispatch.catch_up``, which the caller runs when it has acknowledged them.

Source: DefaultMessageStore.appendToCommitLog, getCommitLogData, CommitLog.appendData @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from twistmq.broker.store.commit_log import CommitLog
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

#: Bytes of a record's head that are read here: int32 size, int32 magic.
_HEAD_SIZE: Final = 8
#: Names of topics that are remembered as possible.
_NAMES_MAX: Final = 10_000
_BLANK: Final = (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
_MAGICS: Final = frozenset(
    (magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))


class RecordRefused(StoreError):
    """A record of another broker's log is whole, and no store can enter it.

    :param place: where in the log it begins.
    """

    def __init__(self, place: int, fault: str) -> None:
        super().__init__(f"the record at {place} of the other log cannot be stored: {fault}")
        self.place = place


class RawLog:
    """The bytes of one store's commit log.

    :param require_readable: raises a StoreError when the store takes no bytes.
    """

    def __init__(
        self, commit_log: CommitLog, stats: StoreStats,
        require_readable: Callable[[], None],
    ) -> None:
        self._log = commit_log
        self._stats = stats
        self._require_readable = require_readable
        #: Where the log ended after the last append here, and where the record ends that it ended
        #: in: the same when it was a whole one.
        self._end = self._next = 0
        #: Where that record begins.
        self._whole = 0
        #: Topics of records that came, which can name a directory.
        self._names: set[bytes] = set()

    @property
    def file_size(self) -> int:
        """Bytes of each file; a read never goes over the end of one."""
        return self._log.file_size

    @property
    def whole_offset(self) -> int:
        """Where the last whole record ends; bytes behind it are the beginning of another."""
        return self._whole if self._end == self._log.max_offset else self._log.max_offset

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes, up to the end of the log or of a file at most.

        :returns: nothing where the log ends.
        :raises StoreError: when ``offset`` is before the first byte that is kept, or behind the
            end; or the disk fails.
        """
        size = self.size_at(offset, size)
        try:
            return (self._log.peek(offset, size) or b"") if size else b""
        except OSError as error:
            raise StoreError(f"the commit log cannot be read at {offset}: {error}") from error

    def size_at(self, offset: int, size_max: int) -> int:
        """How many bytes ``read`` would give.

        :raises StoreError: when ``offset`` is before the first byte that is kept, or behind the
            end.
        """
        log = self._log
        if not log.min_offset <= offset <= log.max_offset:
            raise StoreError(f"the log has bytes from {log.min_offset} to {log.max_offset}, "
                             f"none of {offset}")
        return min(size_max, log.max_offset - offset, log.next_file_start(offset) - offset)

    def send_to(self, descriptor: int, offset: int, size: int) -> int:
        """Give bytes that are there to a socket, from the file and without a copy.

        :param descriptor: of a socket that does not block.
        :param size: what ``size_at`` says at most.
        :returns: how many it took; 0 when the log does not have them any longer.
        :raises BlockingIOError: when it takes none now.
        :raises OSError: when the disk fails, or the connection is lost.
        """
        return self._log.send_to(descriptor, offset, size)

    def messages(self, offset: int) -> Iterator[tuple[int, int]]:
        """List the places and sizes of whole messages, up to the end of the log.

        :param offset: where a record begins, or the end.
        :raises StoreError: when none does, or the disk fails.
        """
        log = self._log
        while offset < self.whole_offset:
            try:
                head = log.peek(offset, _HEAD_SIZE)
            except OSError as error:
                raise StoreError(f"the commit log cannot be read at {offset}: {error}") from error
            size, is_message = self._size(offset, head or b"")
            if is_message:
                yield offset, size
            offset += size

    def append(self, offset: int, data: bytes) -> None:
        """Append bytes of another broker's commit log, all or nothing.

        When a store cannot enter one of the records, those before it are appended all the same.

        :param offset: where they are in that log; must be where this log ends.
        :raises RecordRefused: when a store cannot enter a record that is whole now.
        :raises StoreError: when ``offset`` is another, when they are no records, or the disk fails.
        :raises StoreFull: when the disk is full.
        """
        self._require_readable()
        log = self._log
        if offset != log.max_offset:
            raise StoreError(f"bytes of {offset} cannot be stored at {log.max_offset}")
        if not data:
            return
        try:
            whole, following, count = self._walk(offset, data)
        except RecordRefused as error:
            if error.place > offset:
                self.append(offset, data[: error.place - offset])
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
        """The log was cut: it ends with a whole record."""
        self._whole = self._next = self._end = self._log.max_offset

    def _walk(self, offset: int, data: bytes) -> tuple[int, int, int]:
        """Find the records that begin in bytes behind the log's end.

        :returns: where the last one begins that is not whole, or the end; where that one ends, as
            far as it is known; how many messages' heads came.
        :raises StoreError: when there is no record where there should be one.
        """
        log = self._log
        if self._end != offset:
            # Others wrote since: whole records.
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
                passed, found = whole_messages(
                    data, begin - offset, log.next_file_start(begin) - begin, begin, self._names)
                begin = following = begin + passed
                count += found
            if end - begin < _HEAD_SIZE:
                break
            size, is_message = self._size(begin, _part(log, begin, _HEAD_SIZE, offset, data))
            count += is_message
            following = begin + size
        return begin, following, count

    def _require_sound(self, begin: int, end: int, offset: int, data: bytes) -> None:
        """Look at a whole record that was not passed: one of two parts, a blank, or a strange one.

        :raises RecordRefused: when it is a message that the store cannot enter.
        """
        log = self._log
        if _part(log, begin, _HEAD_SIZE, offset, data)[4:] == _BLANK:
            return
        fault = record_fault(
            lambda place, size: _part(log, place, size, offset, data), begin, end - begin)
        if fault:
            raise RecordRefused(begin, fault)

    def _size(self, place: int, head: bytes) -> tuple[int, bool]:
        """Read how long a record is; :returns: its size, and whether it is a message: not a blank.

        :raises StoreError: when it cannot be a record at this place of this log.
        """
        size, magic = record_size(head), head[4:]
        room = self._log.next_file_start(place) - place
        if magic == _BLANK:
            if size != room:
                raise StoreError(
                    f"the file of {place} ends {size} bytes behind it in the other log and {room} "
                    "here: mappedFileSizeCommitLog differs")
            return size, False
        if magic not in _MAGICS or not RECORD_SIZE_MIN <= size <= room - BLANK_SIZE_MIN:
            raise StoreError(f"no record of this log can begin at {place} with {head.hex()}")
        return size, True


def _part(log: CommitLog, place: int, size: int, offset: int, data: bytes) -> bytes:
    """Bytes of a record, of which some may be in the log: ``data`` follows at ``offset``."""
    if place >= offset:
        return data[place - offset : place - offset + size]
    there = log.peek(place, min(size, offset - place)) or b""
    return there + data[: size - len(there)]
