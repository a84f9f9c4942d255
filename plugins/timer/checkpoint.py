"""The timer check point: how far messages were entered into the wheel, and how far delivered.

The file ``config/timercheck`` has 4096 bytes, of which Apache's broker uses the first seven
big-endian int64. They are followed by a mark of twistmq with a copy of these values. If the copy
agrees, this broker was the last one to write the check point, and at that time all its values were
durable and described a single moment. Apache's broker writes values of different moments, so after
it the timer log itself has to be examined.

Source: TimerCheckpoint, TimerMessageStore.prepareTimerCheckPoint @5.3.3.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields
from typing import Final

from twistmq.broker.api.store import IStoreIO

__all__ = ["CHECKPOINT_FIELDS", "CHECKPOINT_SIZE", "CLEAN", "RUNNING", "VALUES_SIZE",
           "TimerCheckpoint", "TimerCheckpointFile", "decode_mark"]

CHECKPOINT_SIZE: Final = 4096
#: The state that the mark records about the broker that wrote it.
RUNNING: Final = 1
CLEAN: Final = 2

_VALUES: Final = struct.Struct(">7q")
#: The size of the values in the file and in a response body.
VALUES_SIZE: Final = _VALUES.size
_MARK_POSITION: Final = 64
_MARK_TEXT: Final = b"twistmq\0"
#: The text, RUNNING or CLEAN, and the tick in ms; the copy of the values follows.
_MARK: Final = struct.Struct(">8sii")
_WRITTEN_SIZE: Final = _MARK_POSITION + _MARK.size + _VALUES.size

#: The written bytes fit into one sector, so that a loss of power cannot leave only a part of them.
assert _WRITTEN_SIZE <= 512


@dataclass(slots=True)
class TimerCheckpoint:
    """The values in the order of the file."""

    #: Slots of the wheel before this time are delivered, Unix ms.
    last_read_ms: int = 0
    #: A position in the timer log.
    last_timer_log_flush_position: int = 0
    #: A queue offset of the timer topic: earlier messages are entered.
    last_timer_queue_offset: int = 0
    #: The same offset on the master, as far as a slave knows it.
    master_timer_queue_offset: int = 0
    #: The three fields of a data version.
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Decode the values that Apache's broker writes; missing bytes count as zero."""
        return cls(*_VALUES.unpack(data[:_VALUES.size].ljust(_VALUES.size, b"\0")))

    def encode(self) -> bytes:
        """Encode the values as Apache's broker does, for the file's beginning and for responses."""
        return _VALUES.pack(*astuple(self))


#: The names of the values, in the order of the file, eight bytes each.
CHECKPOINT_FIELDS: Final = tuple(field.name for field in fields(TimerCheckpoint))

assert len(CHECKPOINT_FIELDS) * 8 == _VALUES.size


def decode_mark(data: bytes) -> tuple[int, int]:
    """Read the mark of twistmq from the bytes of a file.

    :returns: RUNNING or CLEAN and the tick in ms; zeros when another broker wrote the file last.
    """
    mark = data[_MARK_POSITION:_WRITTEN_SIZE]
    if len(mark) < _WRITTEN_SIZE - _MARK_POSITION:
        return 0, 0
    text, state, tick_ms = _MARK.unpack(mark[:_MARK.size])
    is_ours = text == _MARK_TEXT and mark[_MARK.size:] == data[:_VALUES.size]
    return (state, tick_ms) if is_ours else (0, 0)


class TimerCheckpointFile:
    """The file of the check point.

    :param tick_ms: the tick that timerPrecisionMs sets.
    """

    def __init__(self, io: IStoreIO, path: str, tick_ms: int) -> None:
        self.path = path
        self.values = TimerCheckpoint()
        #: RUNNING or CLEAN if this broker wrote the file last, with the same tick; else 0.
        self.state = 0
        self._io = io
        self._tick_ms = tick_ms
        #: Whether the file's name is durable.
        self._is_named = False

    def load(self) -> bool:
        """Load the existing file; :returns: whether it has any content."""
        if not self._io.exists(self.path):
            return False
        data = self._io.read_file(self.path)
        self.values = TimerCheckpoint.decode(data)
        state, tick_ms = decode_mark(data)
        self.state = state if tick_ms == self._tick_ms else 0
        return bool(data)

    def write(self, values: TimerCheckpoint, state: int) -> None:
        """Make values durable. Blocks.

        :param state: RUNNING or CLEAN.
        """
        copy = values.encode()
        data = copy.ljust(_MARK_POSITION, b"\0") + _MARK.pack(
            _MARK_TEXT, state, self._tick_ms) + copy
        file = self._io.allocate(self.path, CHECKPOINT_SIZE)
        try:
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
        if not self._is_named:
            self._io.sync_path(self.path.rpartition("/")[0])
            self._is_named = True
