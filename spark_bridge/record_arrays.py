"""The fields of many stored records at once, as numpy arrays.

``record_starts`` walks a buffer from record to record by their sizes, the only step that is done
one record at a time; everything else is taken out for all records together. A buffer is what a
commit-log file holds and what the body of a pull is. Positions are bytes from the buffer's start.

Source: MessageDecoder, MessageSysFlag @5.3.3; the layout is protocol/record.py's.
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

#: Of RECORD_LAYOUT, what does not move with the kind of address, and what follows both addresses.
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
    """Add the position of each record to a list, up to the first place that is no record's start.

    Only size and magic number are looked at; RecordArrays looks at the rest.

    :param buffer: bytes-like.
    :returns: where the walk ended: at ``end``, at a record that is not whole before it, at a blank
        record, or where there is no magic number.
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
    """Records of one buffer, a value an array and a record.

    :param data: the buffer, uint8[bytes].
    :param starts: position of each record, int64[records], whole and with a magic number of theirs,
        as ``record_starts`` finds them.
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
        # A head that its record is too short for is looked at inside the buffer all the same.
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
        """Find the records that are not what their format says.

        :param check_crc: whether bodies are compared with their CRC.
        :returns: indexes, int64[damaged]; what is wrong with the first, empty when none is.
        """
        wrong = ~self._is_whole
        if check_crc:
            wrong |= ~self._matches_crc()
        found = np.flatnonzero(wrong)
        if not len(found):
            return found, ""
        try:
            record.decode_record(self.data.data, int(self.starts[found[0]]), check_crc)
        except StoreDamaged as error:
            return found, str(error)
        raise AssertionError("a record is damaged for one reader and whole for the other")

    def keep(self, chosen: Any) -> None:
        """Leave the others out.

        :param chosen: bool[records], or indexes.
        """
        for name, value in self.__dict__.items():
            if name != "data":
                setattr(self, name, value[chosen])

    def host_bytes(self, index: int, store_host: bool) -> bytes:
        """An address of one record: 8 or 20 bytes."""
        start = int((self.store_host_start if store_host else self.born_host_start)[index])
        bit = record.SYS_STORE_HOST_V6 if store_host else record.SYS_BORN_HOST_V6
        size = 20 if int(self.sys_flag[index]) & bit else 8
        return bytes(self.data[start : start + size])

    def _matches_crc(self) -> Any:
        """Whether each body has the CRC its record says; true of records that are not whole."""
        view = memoryview(self.data)
        crc32 = zlib.crc32
        begins = np.where(self._is_whole, self.body_start, 0).tolist()
        ends = np.where(self._is_whole, self.body_end, 0).tolist()
        found = np.fromiter(
            [crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)],
            np.int64, len(begins))
        return (found & 0x7FFFFFFF == self.body_crc) | (self.body_end == self.body_start) | (
            ~self._is_whole)


def spans(begins: Any, ends: Any) -> tuple[Any, Any]:
    """Offsets of an Arrow array whose even elements are these spans of a buffer.

    Spans ascend and do not overlap; the odd elements are what lies between them.

    :returns: int32[2 * spans] offsets, int64[spans] indexes of the spans' elements.
    """
    offsets = np.empty(2 * len(begins), np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    return offsets, np.arange(0, 2 * len(begins), 2)


def text_of_hosts(arrays: RecordArrays, store_host: bool) -> tuple[list[str], Any]:
    """Show the clients' addresses or the broker's, each address once.

    :returns: ip:port of each address, and which of them each record has, int64[records].
    """
    starts = arrays.store_host_start if store_host else arrays.born_host_start
    bit = record.SYS_STORE_HOST_V6 if store_host else record.SYS_BORN_HOST_V6
    if not (arrays.sys_flag & bit).any():
        raw = _rows(arrays.data, starts, _LONG_BYTES).view(">u8").ravel()
        each, which = np.unique(raw, return_inverse=True)
        return [record.host_text(int(value).to_bytes(8, "big")) for value in each], which
    places: dict[bytes, int] = {}
    found = [places.setdefault(arrays.host_bytes(index, store_host), len(places))
             for index in range(len(arrays))]
    return [record.host_text(host) for host in places], np.array(found, np.int64)


def _rows(data: Any, starts: Any, places: Sequence[int] | Any) -> Any:
    """Copy some bytes at each start: uint8[starts, places]."""
    return data[starts[:, None] + places]


def _short(data: Any, starts: Any) -> Any:
    """The int16 at each start, int64[starts]; what lies behind the buffer is read as its end."""
    last = len(data) - 1
    unsigned = (data[starts].astype(np.int64) << 8) | data[np.minimum(starts + 1, last)]
    return (unsigned ^ 0x8000) - 0x8000


def _native(values: Any) -> Any:
    """A column of big-endian numbers in this machine's order, contiguous."""
    return values.astype(values.dtype.newbyteorder("="))


assert record.RECORD_LAYOUT[9][0] == "born_host"
assert _HEAD.itemsize == 48 and _TAIL.itemsize == 16
assert _HEAD.itemsize + 8 + 8 + 8 + _TAIL.itemsize == record.RECORD_SIZE_MIN - 3
