"""The stream between a slave and its master, as bytes. All numbers are big-endian.

The slave connects. Neither side greets, and there is no version and no checksum; 4.9.4 and 5.3.3
speak alike. The slave begins:

    | slave to master |       |                                                            |
    | ---             | ---   | ---                                                        |
    | 0               | int64 | report: up to here the slave has the log                   |

The first report of a connection is also the request: the master sends from there on, or, when it
is 0, from the beginning of its last file. Each further report acknowledges. A slave of ours says
its broker id before, to a master of ours that says that it hears it: another one would take it for
a report.

    | slave to master |       |                                                            |
    | ---             | ---   | ---                                                        |
    | 0               | int64 | its broker id, above the least number there is             |

    | master to slave |       |                                                            |
    | ---             | ---   | ---                                                        |
    | 0               | int64 | offset of the bytes in the log                             |
    | 8               | int32 | their size; 0: a heartbeat, and the offset is the next one |
    | 12              | bytes | of the log, as they are stored                             |

No frame goes over the end of a commit-log file. A Java slave reads into a buffer of 4 MiB: a frame
that does not fit it never ends there.

Source: DefaultHAConnection, DefaultHAClient @5.3.3, HAConnection, HAService.HAClient @4.9.4.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["BODY_SIZE_MAX", "HEAD_SIZE", "REPORT_SIZE", "Frame", "FrameReader", "ReportReader",
           "StreamBroken", "encode_head", "encode_report", "encode_slave_id", "slave_id_of"]

_REPORT: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")
REPORT_SIZE: Final = _REPORT.size
HEAD_SIZE: Final = _HEAD.size
#: Added to a broker id: a number that is no report.
_ID_BASE: Final = -(1 << 63)
_ID_MAX: Final = 1 << 62
#: Bytes of the log in one frame, at most: what is left of a Java slave's buffer.
BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - HEAD_SIZE


class StreamBroken(Exception):
    """The peer sent bytes that are not of the stream: the connection has to be closed."""


class Frame(NamedTuple):
    """A frame of the master.

    :param offset: of the bytes in the log; of a heartbeat, where the next ones begin.
    :param data: bytes of the log; empty in a heartbeat.
    """

    offset: int
    data: bytes


def encode_report(offset: int) -> bytes:
    """Make a report: the slave has the log up to ``offset``."""
    assert offset >= 0, offset
    return _REPORT.pack(offset)


def encode_slave_id(broker_id: int) -> bytes:
    """Say which broker the slave is."""
    assert 0 < broker_id < _ID_MAX, broker_id
    return _REPORT.pack(_ID_BASE + broker_id)


def slave_id_of(number: int) -> int | None:
    """The broker id that a number says; None: it is a report."""
    return number - _ID_BASE if number < _ID_BASE + _ID_MAX else None


def encode_head(offset: int, size: int) -> bytes:
    """Make the head of a frame.

    :param size: of the bytes that follow it; 0: it is a heartbeat.
    """
    assert offset >= 0 and 0 <= size <= BODY_SIZE_MAX, (offset, size)
    return _HEAD.pack(offset, size)


class ReportReader:
    """Reads reports, however their bytes come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Take what was read; :returns: the reports that are whole.

        Any eight bytes are a report here: a master compares each with its log.
        """
        data = self._rest + data
        end = len(data) - len(data) % REPORT_SIZE
        self._rest = data[end:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:end])]


class FrameReader:
    """Reads frames, however their bytes come.

    :param file_size: bytes of a commit-log file here: no frame goes over the end of one.
    """

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        self._buffer = bytearray()
        #: Offset and size of the frame that is coming; None: its head is not whole.
        self._head: tuple[int, int] | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes that are kept of a frame that is not whole."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Take what was read; :returns: the frames that are whole.

        :raises StreamBroken: when a head cannot be one of this stream; the text says why. The
            frames before it are lost: the master sends them again.
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
                f"{size} bytes at {offset} go over the end of a file of {self._file_size}: "
                "mappedFileSizeCommitLog of the master differs")
        return offset, size
