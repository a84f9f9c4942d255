"""The fields of many stored records at once, as numpy arrays.

A read delivers tens of thousands of records a second, and decoding each into a Python object would
cost more than everything else. This module therefore treats the records of a buffer together: for
each field it computes the positions of that field in all records and copies the bytes with one
numpy operation. Only ``record_starts``, which walks from record to record by their sizes, handles
one record at a time, because the start of a record is known only from the size of the record before
it. The position of a field depends on the record: a flag selects IPv4 or IPv6 addresses, and the
body, the topic and the properties have their lengths in front of them.

A buffer holds the bytes of a commit-log file or the body of a pull response; both have the same
format. Positions are bytes from the start of the buffer.

Source: MessageDecoder, MessageSysFlag @5.3.3; protocol/record.py has the layout.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from twistmq.protocol import record
from twistmq.protocol.errors import StoreDamaged

__all__ = ["RecordArrays", "record_starts", "spans", "text_of_hosts"]

_SIZE_AND_MAGIC: Final = struct.Struct(">ii")

#: Two parts of RECORD_LAYOUT: the fields before the first address, whose positions are fixed, and
#: the fields after both addresses.
_HEAD: Final = np.dtype([
    ("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"),
    ("born_timestamp", ">i8")])
_TAIL: Final = np.dtype([
    ("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_length", ">i4")])
_HEAD_BYTES: Final = np.arange(_HEAD.itemsize)
_TAIL_BYTES: Final = np.arange(_TAIL.itemsize)
_LONG_BYTES: Final = np.arange(8)
#: The bytes by which an IPv6 address is longer than an IPv4 one.
_V6_EXTRA: Final = 12


def record_starts(buffer: Any, begin: int, end: int, starts: list[int]) -> int:
    """Append the position of each record to a list, up to the first place where none starts.

    Only the size and the magic number are checked; RecordArrays checks the other fields.

    :param buffer: a bytes-like object.
    :returns: the position at which the walk ended: ``end``, or a record that extends beyond
        ``end``, a blank record, or a place without a magic number.
    """
    unpack = _SIZE_AND_MAGIC.unpack_from
    add = starts.append
    v1, v2, size_min = record.MAGIC_V1, record.MAGIC_V2, record.RECORD_SIZE_MIN
    at = begin
    while end - at >= size_min:
        size, magic = unpack(buffer, at)
        if (magic != v1 and magic != v2) or size < size_min or at + size > end:
            break
        add(at)
        at += size
    return at


class RecordArrays:
    """The records of one buffer; each attribute is an array with one value for each record.

    :param data: the buffer, uint8[bytes].
    :param starts: the position of each record, int64[records]. Each record must lie within the
        buffer and have a valid magic number, as ``record_starts`` ensures.
    """

    def __init__(self, data: Any, starts: Any) -> None:
        self.data = data
        self.starts = starts
        head = _rows(data, starts, _HEAD_BYTES).view(_HEAD).ravel()
        self.size = _native(head["size"])
        self.body_crc = _native(head["body_crc"])
        self.queue_id = _native(head["queue_id"])
        self.flag = _native(head["flag"])
        self.queue_offset = _native(head["queue_offset"])
        self.physical_offset = _native(head["physical_offset"])
        self.sys_flag = _native(head["sys_flag"])
        self.born_timestamp = _native(head["born_timestamp"])
        self.born_host_start = starts + _HEAD.itemsize
        born_v6 = (self.sys_flag & record.SYS_BORN_HOST_V6 != 0) * _V6_EXTRA
        store_v6 = (self.sys_flag & record.SYS_STORE_HOST_V6 != 0) * _V6_EXTRA
        store_time_start = self.born_host_start + 8 + born_v6
        self.store_host_start = store_time_start + 8
        tail_start = self.store_host_start + 8 + store_v6
        self.body_start = tail_start + _TAIL.itemsize
        ends = starts + self.size
        # A record may be too short for its own fields. Its fields are then read from other bytes of
        # the buffer, and _is_whole marks the record as damaged.
        self._is_whole = self.body_start + 3 <= ends
        tail = _rows(data, np.minimum(tail_start, len(data) - _TAIL.itemsize), _TAIL_BYTES)
        tail = tail.view(_TAIL).ravel()
        self.store_timestamp = _native(
            _rows(data, np.minimum(store_time_start, len(data) - 8), _LONG_BYTES).view(">i8")
            .ravel())
        self.reconsume_times = _native(tail["reconsume_times"])
        self.prepared_transaction_offset = _native(tail["prepared_transaction_offset"])
        body_length = _native(tail["body_length"]).astype(np.int64)
        self.body_end = self.body_start + body_length
        is_v2 = _native(head["magic"]) == record.MAGIC_V2
        self._is_whole &= (body_length >= 0) & (self.body_end + 3 + is_v2 <= ends)
        topic_start = np.where(self._is_whole, self.body_end, 0)
        topic_length = data[topic_start].astype(np.int64)
        long_length = _short(data, topic_start)
        topic_length = np.where(is_v2, long_length, topic_length)
        self.topic_start = topic_start + 1 + is_v2
        self.topic_end = self.topic_start + topic_length
        self._is_whole &= (topic_length >= 0) & (self.topic_end + 2 <= ends)
        length_start = np.where(self._is_whole, self.topic_end, 0)
        self.properties_start = length_start + 2
        self.properties_end = ends
        self._is_whole &= self.properties_start + _short(data, length_start) == ends

    def __len__(self) -> int:
        return len(self.starts)

    def damage(self, check_crc: bool) -> tuple[Any, str]:
        """Find the records that violate their format.

        :param check_crc: whether bodies are compared with their CRC.
        :returns: the indexes of these records, int64[damaged], and a description of the fault in
            the first one, which is empty when no record is damaged.
        """
        wrong = ~self._is_whole
        if check_crc:
            wrong |= ~self._matches_crc()
        indexes = np.flatnonzero(wrong)
        if not len(indexes):
            return indexes, ""
        try:
            record.decode_record(self.data.data, int(self.starts[indexes[0]]), check_crc)
        except StoreDamaged as error:
            return indexes, str(error)
        raise AssertionError("a record is damaged for one reader and whole for the other")

    def keep(self, chosen: Any) -> None:
        """Keep the chosen records, and drop all others.

        :param chosen: bool[records], or indexes.
        """
        for name, value in self.__dict__.items():
            if name != "data":
                setattr(self, name, value[chosen])

    def host_bytes(self, index: int, store_host: bool) -> bytes:
        """Return an address of one record: 8 or 20 bytes."""
        start = int((self.store_host_start if store_host else self.born_host_start)[index])
        bit = record.SYS_STORE_HOST_V6 if store_host else record.SYS_BORN_HOST_V6
        size = 20 if int(self.sys_flag[index]) & bit else 8
        return bytes(self.data[start : start + size])

    def _matches_crc(self) -> Any:
        """Whether each body matches the CRC of its record; true for records that are not whole."""
        view = memoryview(self.data)
        crc32 = zlib.crc32
        begins = np.where(self._is_whole, self.body_start, 0).tolist()
        ends = np.where(self._is_whole, self.body_end, 0).tolist()
        checksums = np.fromiter(
            [crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)],
            np.int64, len(begins))
        return (checksums & 0x7FFFFFFF == self.body_crc) | (self.body_end == self.body_start) | (
            ~self._is_whole)


def spans(begins: Any, ends: Any) -> tuple[Any, Any]:
    """Compute the offsets of an Arrow array whose even elements are these spans of a buffer.

    The spans must ascend and must not overlap. The odd elements are the gaps between them.

    :returns: the offsets, int32[2 * spans], and the indexes of the spans' elements, int64[spans].
    """
    offsets = np.empty(2 * len(begins), np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    return offsets, np.arange(0, 2 * len(begins), 2)


def text_of_hosts(arrays: RecordArrays, store_host: bool) -> tuple[list[str], Any]:
    """Format the addresses of the clients or of the broker as text, each address once.

    :returns: the different addresses as ip:port, and for each record the index of its address in
        that list, int64[records].
    """
    starts = arrays.store_host_start if store_host else arrays.born_host_start
    bit = record.SYS_STORE_HOST_V6 if store_host else record.SYS_BORN_HOST_V6
    if not (arrays.sys_flag & bit).any():
        raw = _rows(arrays.data, starts, _LONG_BYTES).view(">u8").ravel()
        each, which = np.unique(raw, return_inverse=True)
        return [record.host_text(int(value).to_bytes(8, "big")) for value in each], which
    index_of_host: dict[bytes, int] = {}
    indexes = [index_of_host.setdefault(arrays.host_bytes(index, store_host), len(index_of_host))
               for index in range(len(arrays))]
    return [record.host_text(host) for host in index_of_host], np.array(indexes, np.int64)


def _rows(data: Any, starts: Any, places: Sequence[int] | Any) -> Any:
    """Copy the bytes at some places after each start: uint8[starts, places]."""
    return data[starts[:, None] + places]


def _short(data: Any, starts: Any) -> Any:
    """Read the int16 at each start, int64[starts]; the last byte stands for bytes after the end."""
    last = len(data) - 1
    unsigned = (data[starts].astype(np.int64) << 8) | data[np.minimum(starts + 1, last)]
    return (unsigned ^ 0x8000) - 0x8000


def _native(values: Any) -> Any:
    """Convert a column of big-endian numbers to this machine's byte order, contiguous."""
    return values.astype(values.dtype.newbyteorder("="))


assert record.RECORD_LAYOUT[9][0] == "born_host"
assert _HEAD.itemsize == 48 and _TAIL.itemsize == 16
assert _HEAD.itemsize + 8 + 8 + 8 + _TAIL.itemsize == record.RECORD_SIZE_MIN - 3
