"""The stream between a slave and its master, as bytes. All numbers are big-endian.

The slave connects. The protocol has no greeting, version or checksum, and 4.9.4 and 5.3.3 use the
same format. The slave begins:

    | slave to master |       |                                                            |
    | ---             | ---   | ---                                                        |
    | 0               | int64 | report: the slave has the log up to this offset            |

The first report of a connection is also the request: the master sends from this offset on or, if it
is 0, from the beginning of its last file. Each further report acknowledges. A twistmq slave sends
its broker id before the first report, if its master is a twistmq broker that announced its support
for it; any other master would take the id for a report.

    | slave to master |       |                                                            |
    | ---             | ---   | ---                                                        |
    | 0               | int64 | its broker id, added to the least int64                    |

    | master to slave |       |                                                            |
    | ---             | ---   | ---                                                        |
    | 0               | int64 | offset of the bytes in the log                             |
    | 8               | int32 | their size; 0: a heartbeat, and the offset is the next one |
    | 12              | bytes | of the log, as they are stored                             |

No frame crosses the end of a commit-log file. A Java slave reads into a buffer of 4 MiB, so it
never receives the end of a frame that does not fit into the buffer.

Source: DefaultHAConnection, DefaultHAClient @5.3.3, HAConnection, HAService.HAClient @4.9.4.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from twistmq.broker.api.wire import BROKER_ID_MAX

__all__ = ["BODY_SIZE_MAX", "HEAD_SIZE", "REPORT_SIZE", "Frame", "FrameReader", "ReportReader",
           "StreamBroken", "encode_head", "encode_report", "encode_slave_id", "slave_id_of"]

_REPORT: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")
REPORT_SIZE: Final = _REPORT.size
HEAD_SIZE: Final = _HEAD.size
#: Added to a broker id, so that the sum cannot be a report.
_ID_BASE: Final = -(1 << 63)
#: The maximum size of the log bytes in one frame: the space that a Java slave's buffer has left.
BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - HEAD_SIZE


class StreamBroken(Exception):
    """The peer sent bytes that do not belong to the stream, so the connection has to be closed."""


class Frame(NamedTuple):
    """A frame of the master.

    :param offset: the offset of the bytes in the log; in a heartbeat, where the next ones begin.
    :param data: bytes of the log; empty in a heartbeat.
    """

    offset: int
    data: bytes


def encode_report(offset: int) -> bytes:
    """Encode a report that the slave has the log up to ``offset``."""
    assert offset >= 0, offset
    return _REPORT.pack(offset)


def encode_slave_id(broker_id: int) -> bytes:
    """Encode the broker id of a slave."""
    assert 0 < broker_id <= BROKER_ID_MAX, broker_id
    return _REPORT.pack(_ID_BASE + broker_id)


def slave_id_of(number: int) -> int | None:
    """Return the broker id in a number; None if the number is a report."""
    return number - _ID_BASE if number <= _ID_BASE + BROKER_ID_MAX else None


def encode_head(offset: int, size: int) -> bytes:
    """Encode the head of a frame.

    :param size: the size of the following bytes; 0 makes a heartbeat.
    """
    assert offset >= 0 and 0 <= size <= BODY_SIZE_MAX, (offset, size)
    return _HEAD.pack(offset, size)


class ReportReader:
    """Reads reports, however their bytes are split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Add received bytes; :returns: the complete reports.

        Any eight bytes are a report here; the master compares each report with its log.
        """
        data = self._rest + data
        end = len(data) - len(data) % REPORT_SIZE
        self._rest = data[end:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:end])]


class FrameReader:
    """Reads frames, however their bytes are split.

    :param file_size: the size of a local commit-log file, whose end no frame may cross.
    """

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        self._buffer = bytearray()
        #: Offset and size of the frame that is being read; None while its head is incomplete.
        self._head: tuple[int, int] | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that are kept of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; :returns: the complete frames.

        :raises StreamBroken: when a head is not possible in this stream; the text gives the reason.
            Earlier frames of the same bytes are lost; the master sends them again.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        while True:
            if self._head is None:
                if len(buffer) - at < HEAD_SIZE:
                    break
                self._head = self._read_head(at)
                at += HEAD_SIZE
            offset, size = self._head
            if len(buffer) - at < size:
                break
            frames.append(Frame(offset, bytes(buffer[at : at + size])))
            at += size
            self._head = None
        del buffer[:at]
        return frames

    def _read_head(self, at: int) -> tuple[int, int]:
        offset: int
        size: int
        offset, size = _HEAD.unpack_from(self._buffer, at)
        if offset < 0 or not 0 <= size <= BODY_SIZE_MAX:
            raise StreamBroken(f"no frame has offset {offset} and {size} bytes")
        if size > self._file_size - offset % self._file_size:
            raise StreamBroken(
                f"{size} bytes at {offset} cross the end of a file of {self._file_size}: "
                "mappedFileSizeCommitLog of the master differs")
        return offset, size
