"""The files of timed messages as ``twistmq store`` reads them: of either broker, live or dead.

Files that may grow are read in the order check point, wheel, end of the log: nothing that is read
first points behind what is read later. A tick is a setting, which is not in the store: it is found
out from slots that lead to units.

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

#: Bytes that are read at a time: of the wheel, and about as many of the log.
_CHUNK_SIZE: Final = 4096 * SLOT_SIZE
_UNITS_CHUNK: Final = 2048
#: Slots that lead to a unit before it is believed how long a tick is.
_VOTES_MAX: Final = 64


class TimerFiles:
    """The files of timed messages in a store.

    :param store: whose commit log's end need not be fixed yet.
    """

    def __init__(self, store: StoreFiles) -> None:
        self._reader = store.reader
        self._is_running = store.running
        config = store.root / "config"
        self.checkpoint_path = config / "timercheck"
        self.wheel_path = store.root / "timerwheel"
        self.metrics_path = config / "timermetrics"
        #: None: there is no check point.
        self.checkpoint_data: bytes | None = None
        if self.checkpoint_path.exists():
            self.checkpoint_data = self._reader.read(self.checkpoint_path, 0, CHECKPOINT_SIZE)
        data = self.checkpoint_data or b""
        self.checkpoint = TimerCheckpoint.decode(data)
        #: RUNNING or CLEAN when our broker wrote the check point last, else 0.
        self.state, marked_tick_ms = decode_mark(data)
        sizes = store.reader.sizes(store.root / "timerlog")
        self.log = Segments(
            store.reader, store.root / "timerlog", sizes, common_size(sizes.values()))
        #: Length in bytes; None: there is no wheel.
        self.wheel_size = self.wheel_path.stat().st_size if self.wheel_path.exists() else None
        self.tick_ms = self._find_tick(marked_tick_ms)
        #: By ticks since 1970: slots that are not delivered yet.
        self.slots: dict[int, Slot] = {}
        #: Slots that say a time which belongs to another one: (number in the file, ticks).
        self.strange_slots: list[tuple[int, int]] = []
        #: How many slots say a time that no broker can have entered: the tick was another once.
        self.far_slots = 0
        self._read_wheel()
        self._refresh_log(store)
        #: No unit that is looked at begins from here on.
        self.end = self.log.written_end()

    def _refresh_log(self, store: StoreFiles) -> None:
        """Look for files again that came meanwhile: the wheel may lead into them."""
        sizes = store.reader.sizes(store.root / "timerlog")
        self.log = Segments(store.reader, store.root / "timerlog", sizes,
                            self.log.file_size or common_size(sizes.values()))

    @property
    def begin(self) -> int:
        """The position at which the first file of the log starts."""
        return self.log.starts[0] if self.log.starts else 0

    # --- the wheel

    def _find_tick(self, marked_ms: int) -> int:
        """Find out how many ms a tick has.

        :param marked_ms: what the check point says, 0: nothing.
        """
        known = marked_ms if marked_ms in TICKS_MS else TICKS_MS[0]
        votes: Counter[int] = Counter()
        for _, ticks, slot in self._all_slots():
            # Not through the cache: blocks of a live log grow.
            unit = self.unit(slot.last, self._read_log)
            if unit is not None and ticks > 0:
                votes.update(ms for ms in TICKS_MS if unit.slot_ms // ms == ticks)
                if votes.total() >= _VOTES_MAX:
                    break
        return max(votes, key=lambda ms: (votes[ms], ms == known), default=known)

    def _all_slots(self) -> Iterator[tuple[int, int, Slot]]:
        """Slots that are not zeros: number in the file, ticks, slot."""
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
        """The position of a time's slot in the file, in bytes."""
        return ticks % RING_SLOTS * SLOT_SIZE

    # --- the log

    def unit(
        self, position: int, read: Callable[[int, int], bytes] | None = None
    ) -> LogUnit | None:
        """Read the unit at a place of the log; None at a place without one.

        :param read: gives bytes of the log; None: through the cache.
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
        """How many units a full file has; a blank follows."""
        return max(self.log.file_size - BLANK_SIZE_MIN, 0) // UNIT_SIZE

    def units(self) -> Iterator[tuple[int, bytes]]:
        """Every place of the log up to its end where a unit has to be, and its bytes."""
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
        """Whether a broker may be writing the unit here."""
        return self._is_running and position + UNIT_SIZE >= self.end

    def next_position(self, end: int) -> int:
        """The position of the unit after the one that ends here."""
        start = self.log.start_of(end)
        if start is None or end - start < self.units_per_file * UNIT_SIZE:
            return end
        return start + self.log.file_size
