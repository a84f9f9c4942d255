"""The timer wheel: one slot per tick of two weeks, which points to the units of that tick.

The file ``timerwheel`` has 1,209,600 slots of 32 bytes. The number of a time's slot is its number
of ticks modulo the number of slots. Nearly all slots are empty, so only the slots that still have
to be delivered are kept in memory, and only changed slots are written. The old content of a slot
stays in the file until the slot is used again; the time in the slot shows whether it is old.

Source: TimerWheel, Slot, TimerMessageStore @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.store import IStoreIO
from twistmq.plugins.timer.log_unit import NO_POSITION, LogUnit, field_positions

__all__ = ["RING_SLOTS", "SLOTS_TOTAL", "SLOT_FIELD_POSITIONS", "SLOT_SIZE", "WHEEL_SIZE", "Slot",
           "TimerWheel", "decode_slots"]

#: Name, format and meaning of each field.
SLOT_LAYOUT: Final = (
    ("time", "q", "in ticks since 1970"),
    ("first", "q", "position in the timer log of the slot's first unit"),
    ("last", "q", "position of the slot's last unit, where the chain begins"),
    ("count", "i", "messages, minus the recalled ones"),
    ("magic", "i", "0"),
)
_SLOT: Final = struct.Struct(">" + "".join(form for _, form, _ in SLOT_LAYOUT))
#: The position of each field in a slot by the field's name, in bytes.
SLOT_FIELD_POSITIONS: Final = field_positions(SLOT_LAYOUT)

SLOT_SIZE: Final = 32
#: How far messages may be ahead or late: a week of seconds, however long a tick is.
SLOTS_TOTAL: Final = 7 * 86_400
RING_SLOTS: Final = 2 * SLOTS_TOTAL
WHEEL_SIZE: Final = RING_SLOTS * SLOT_SIZE
#: The number of bytes of the file that are looked at together; most of them are zeros.
_CHUNK_SIZE: Final = 128 * 1024

assert _SLOT.size == SLOT_SIZE
assert WHEEL_SIZE == 38_707_200
assert WHEEL_SIZE % SLOT_SIZE == 0 == _CHUNK_SIZE % SLOT_SIZE


@dataclass(slots=True)
class Slot:
    """The units of one tick."""

    first: int
    last: int
    #: Messages minus recalled ones: below zero if the slot has only units that recall.
    count: int
    magic: int = 0


def decode_slots(data: bytes, number: int) -> Iterator[tuple[int, int, Slot]]:
    """Read the slots that are not zeros.

    :param data: whole slots of the file.
    :param number: the number of the first slot.
    :returns: the number, the time in ticks and the slot of each.
    """
    for index, (ticks, first, last, count, magic) in enumerate(_SLOT.iter_unpack(data), number):
        if ticks:
            yield index, ticks, Slot(first, last, count, magic)


class TimerWheel:
    """The slots that still have to be delivered, and the file.

    :param tick_ms: the tick that timerPrecisionMs sets.
    """

    def __init__(self, io: IStoreIO, path: str, tick_ms: int) -> None:
        self.path = path
        self.tick_ms = tick_ms
        #: The slots by their time, Unix ms.
        self.slots: dict[int, Slot] = {}
        #: The sum of the slots' counts.
        self.count = 0
        self._io = io
        self._times: list[int] = []
        self._changed: set[int] = set()
        #: Whether the file's name is durable.
        self._is_named = False

    def load(self, from_ms: int) -> None:
        """Load the slots from a time on.

        :raises StoreDamaged: when the file has the wrong length.
        """
        if not self._io.exists(self.path):
            return
        size = self._io.file_size(self.path)
        if size not in (0, WHEEL_SIZE):
            raise StoreDamaged(f"{self.path} has {size} bytes, not {WHEEL_SIZE}")
        for time_ms, slot in self._saved_slots(size):
            if time_ms >= from_ms:
                self._enter(time_ms, slot)

    def _saved_slots(self, size: int) -> Iterator[tuple[int, Slot]]:
        if not size:
            return
        file = self._io.open_file(self.path)
        try:
            for begin in range(0, size, _CHUNK_SIZE):
                data = file.read_at(begin, min(_CHUNK_SIZE, size - begin))
                if data.count(0) == len(data):
                    continue
                for number, ticks, slot in decode_slots(data, begin // SLOT_SIZE):
                    # A time that belongs to another slot was not written by a broker.
                    if ticks > 0 and ticks % RING_SLOTS == number:
                        yield ticks * self.tick_ms, slot
        finally:
            file.close()

    def forget(self) -> None:
        """Forget all slots before they are built again; slots that stay unused become zeros."""
        self._changed.update(self.slots)
        self.slots.clear()
        self._times.clear()
        self.count = 0

    def floor_ms(self, time_ms: int) -> int:
        """Return the tick that a time belongs to, Unix ms."""
        return time_ms - time_ms % self.tick_ms

    # --- slots

    def add(self, position: int, unit: LogUnit) -> None:
        """Enter a unit that has been written to the timer log."""
        time_ms = self.floor_ms(unit.slot_ms)
        slot = self.slots.get(time_ms)
        change = unit.change
        if slot is None:
            self._enter(time_ms, Slot(position, position, change))
        else:
            slot.last = position
            slot.count += change
            self.count += change
        self._changed.add(time_ms)

    def _enter(self, time_ms: int, slot: Slot) -> None:
        self.slots[time_ms] = slot
        self.count += slot.count
        heappush(self._times, time_ms)

    def last_position(self, time_ms: int) -> int:
        """Return the position in the timer log at which the chain of a time begins."""
        slot = self.slots.get(time_ms)
        return NO_POSITION if slot is None else slot.last

    def waiting(self, time_ms: int) -> int:
        """Return the number of messages that wait for a time."""
        slot = self.slots.get(self.floor_ms(time_ms))
        return 0 if slot is None else max(slot.count, 0)

    @property
    def waiting_count(self) -> int:
        """The number of waiting messages as it is reported, where excess recalls do not count."""
        return max(self.count, 0)

    @property
    def next_ms(self) -> int | None:
        """The time of the next slot, or None."""
        return self._times[0] if self._times else None

    def finish(self, time_ms: int) -> None:
        """Forget the first slot, since all of its messages are delivered."""
        assert heappop(self._times) == time_ms
        self.count -= self.slots.pop(time_ms).count
        self._changed.discard(time_ms)

    # --- the file

    @property
    def is_changed(self) -> bool:
        """Whether any slot is not written yet."""
        return bool(self._changed)

    def write_job(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Make the job that writes the changed slots durably; run it on a thread.

        :returns: the job, and a function to call when the job failed.
        """
        changed, self._changed = self._changed, set()
        slot_data = {self._position(time_ms): self._encoded(time_ms)
                     for time_ms in changed if time_ms in self.slots}
        forgotten = changed - self.slots.keys()
        if forgotten:
            # Slots left in the file would point to units that are later written at these positions.
            used_positions = {self._position(time_ms) for time_ms in self.slots}
            slot_data |= {position: bytes(SLOT_SIZE) for position in map(self._position, forgotten)
                          if position not in used_positions}
        writes = sorted(slot_data.items())
        io, path = self._io, self.path

        def write() -> None:
            if not writes:
                return
            file = io.allocate(path, WHEEL_SIZE)
            try:
                for position, data in _joined(writes):
                    file.write_at(position, data)
                file.sync()
            finally:
                file.close()
            if not self._is_named:
                io.sync_path(path.rpartition("/")[0])
                self._is_named = True

        return write, lambda: self._changed.update(changed)

    def _position(self, time_ms: int) -> int:
        """Return the position of a slot in the file, in bytes."""
        return time_ms // self.tick_ms % RING_SLOTS * SLOT_SIZE

    def _encoded(self, time_ms: int) -> bytes:
        slot = self.slots[time_ms]
        return _SLOT.pack(time_ms // self.tick_ms, slot.first, slot.last, slot.count, slot.magic)


def _joined(writes: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Join writes that follow each other into one write."""
    begin, data = writes[0][0], bytearray()
    for position, piece in writes:
        if position != begin + len(data):
            yield begin, bytes(data)
            begin, data = position, bytearray()
        data += piece
    yield begin, bytes(data)
