"""Reads the files of timed messages for ``twistmq store``, from either broker, running or not.

Files that may grow are read in the order check point, wheel, end of the log, so that no value
points beyond the part that is read later. The length of a tick is a setting and is not in the
store; it is derived from slots that lead to units.

Source: TimerMessageStore, TimerWheel, TimerLog, TimerCheckpoint @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from twistmq.broker.api.store_files import Segments, StoreFiles, common_size
from twistmq.plugins.timer.checkpoint import CHECKPOINT_SIZE, TimerCheckpoint, decode_mark
from twistmq.plugins.timer.log_unit import BLANK_SIZE_MIN, UNIT_SIZE, LogUnit, decode_unit
from twistmq.plugins.timer.settings import TICKS_MS
from twistmq.plugins.timer.wheel import RING_SLOTS, SLOT_SIZE, WHEEL_SIZE, Slot, decode_slots

__all__ = ["TimerFiles"]

#: The number of bytes of the wheel that are read at once, and the number of units of the log.
_CHUNK_SIZE: Final = 4096 * SLOT_SIZE
_UNITS_CHUNK: Final = 2048
#: The number of slots leading to a unit after which the length of a tick is considered certain.
_VOTES_MAX: Final = 64


class TimerFiles:
    """The files of timed messages in a store.

    :param store: the store; the end of its commit log may not be known yet.
    """

    def __init__(self, store: StoreFiles) -> None:
        self._reader = store.reader
        self._is_running = store.running
        config = store.root / "config"
        self.checkpoint_path = config / "timercheck"
        self.wheel_path = store.root / "timerwheel"
        self.metrics_path = config / "timermetrics"
        #: None if the check point does not exist.
        self.checkpoint_data: bytes | None = None
        if self.checkpoint_path.exists():
            self.checkpoint_data = self._reader.read(self.checkpoint_path, 0, CHECKPOINT_SIZE)
        data = self.checkpoint_data or b""
        self.checkpoint = TimerCheckpoint.decode(data)
        #: RUNNING or CLEAN if twistmq's broker wrote the check point last, else 0.
        self.state, marked_tick_ms = decode_mark(data)
        sizes = store.reader.sizes(store.root / "timerlog")
        self.log = Segments(
            store.reader, store.root / "timerlog", sizes, common_size(sizes.values()))
        #: The wheel's length in bytes; None if the wheel does not exist.
        self.wheel_size = self.wheel_path.stat().st_size if self.wheel_path.exists() else None
        self.tick_ms = self._find_tick(marked_tick_ms)
        #: Slots that are not delivered yet, by ticks since 1970.
        self.slots: dict[int, Slot] = {}
        #: Slots with a time that belongs to another slot: (number in the file, ticks).
        self.strange_slots: list[tuple[int, int]] = []
        #: The number of slots with a time that no broker can have entered with the present tick.
        self.far_slots = 0
        self._read_wheel()
        self._refresh_log(store)
        #: Units that begin at or after this position are not examined.
        self.end = self.log.written_end()

    def _refresh_log(self, store: StoreFiles) -> None:
        """Look for new files again, because the wheel may lead into them."""
        sizes = store.reader.sizes(store.root / "timerlog")
        self.log = Segments(store.reader, store.root / "timerlog", sizes,
                            self.log.file_size or common_size(sizes.values()))

    @property
    def begin(self) -> int:
        """The position at which the first file of the log starts."""
        return self.log.starts[0] if self.log.starts else 0

    # --- the wheel

    def _find_tick(self, marked_ms: int) -> int:
        """Find out the length of a tick, in ms.

        :param marked_ms: the tick in the check point's mark, or 0.
        """
        known = marked_ms if marked_ms in TICKS_MS else TICKS_MS[0]
        votes: Counter[int] = Counter()
        for _, ticks, slot in self._all_slots():
            # The cache is bypassed, because blocks of a growing log change.
            unit = self.unit(slot.last, self._read_log)
            if unit is not None and ticks > 0:
                votes.update(ms for ms in TICKS_MS if unit.slot_ms // ms == ticks)
                if votes.total() >= _VOTES_MAX:
                    break
        return max(votes, key=lambda ms: (votes[ms], ms == known), default=known)

    def _all_slots(self) -> Iterator[tuple[int, int, Slot]]:
        """Yield the slots that are not zeros: number in the file, ticks, slot."""
        if self.wheel_size != WHEEL_SIZE:
            return
        for begin in range(0, WHEEL_SIZE, _CHUNK_SIZE):
            data = self._reader.read(self.wheel_path, begin, _CHUNK_SIZE)
            if data.count(0) != len(data):
                yield from decode_slots(data, begin // SLOT_SIZE)

    def _read_wheel(self) -> None:
        first_ticks = self.checkpoint.last_read_ms // self.tick_ms
        for number, ticks, slot in self._all_slots():
            if ticks <= 0 or ticks % RING_SLOTS != number:
                self.strange_slots.append((number, ticks))
            elif ticks >= first_ticks + RING_SLOTS:
                self.far_slots += 1
            elif ticks >= first_ticks:
                self.slots[ticks] = slot

    @staticmethod
    def slot_position(ticks: int) -> int:
        """Return the position of a time's slot in the file, in bytes."""
        return ticks % RING_SLOTS * SLOT_SIZE

    # --- the log

    def unit(
        self, position: int, read: Callable[[int, int], bytes] | None = None
    ) -> LogUnit | None:
        """Read the unit at a position of the log; None if the position does not have one.

        :param read: returns bytes of the log; None reads through the cache.
        """
        start = self.log.start_of(position)
        if position < 0 or start is None or (position - start) % UNIT_SIZE:
            return None
        return decode_unit((read or self.log.cached)(position, UNIT_SIZE))

    def _read_log(self, position: int, size: int) -> bytes:
        path, at = self.log.locate(position)
        return self._reader.read(path, at, size)

    @property
    def units_per_file(self) -> int:
        """The number of units in a full file; a blank follows them."""
        return max(self.log.file_size - BLANK_SIZE_MIN, 0) // UNIT_SIZE

    def units(self) -> Iterator[tuple[int, bytes]]:
        """Yield every position of the log that must hold a unit up to its end, with its bytes."""
        for start in self.log.starts:
            path = self.log.path(start)
            last = min(start + self.units_per_file * UNIT_SIZE, self.end)
            for begin in range(start, last, _UNITS_CHUNK * UNIT_SIZE):
                size = min(_UNITS_CHUNK * UNIT_SIZE, -(-(last - begin) // UNIT_SIZE) * UNIT_SIZE)
                data = self._reader.read(path, begin - start, size)
                if path in self._reader.gone:
                    break
                for at in range(0, size, UNIT_SIZE):
                    yield begin + at, data[at:at + UNIT_SIZE]

    def is_unsure(self, position: int) -> bool:
        """Whether a broker may still be writing the unit at this position."""
        return self._is_running and position + UNIT_SIZE >= self.end

    def next_position(self, end: int) -> int:
        """Return the position of the unit after the one that ends at ``end``."""
        start = self.log.start_of(end)
        if start is None or end - start < self.units_per_file * UNIT_SIZE:
            return end
        return start + self.log.file_size
