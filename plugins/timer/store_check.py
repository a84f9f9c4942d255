"""``twistmq store check`` of timed messages: wheel, log, check point and metrics.

While a broker runs, and after a kill, the log may be ahead of the wheel and the check point, but
the part that the check point declares durable has to exist. Slots that are delivered are not
examined: their old content stays in the file, and may point to positions that hold other units by
now.

Source: TimerMessageStore, TimerWheel, TimerCheckpoint, TimerMetrics @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twistmq.broker.api import StoredMessage
from twistmq.broker.api.limits import CHECKPOINT_MARGIN_MS
from twistmq.broker.api.store import ENTRY_SIZE
from twistmq.broker.api.store_files import (
    Report,
    Segments,
    StoreFiles,
    check_json_file,
    common_size,
)
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.plugins.timer.checkpoint import CHECKPOINT_FIELDS, CHECKPOINT_SIZE, CLEAN
from twistmq.plugins.timer.log_check import Chain, LogCheck
from twistmq.plugins.timer.metrics import TimerMetricsSerializeWrapper
from twistmq.plugins.timer.store_files import TimerFiles
from twistmq.plugins.timer.wheel import SLOT_FIELD_POSITIONS, WHEEL_SIZE, Slot

__all__ = ["TimerCheck"]

#: Names of slots in the summary: waiting slots, and slots that Apache's broker leaves.
SLOTS: Final = "timer wheel slots"
_RESTORED: Final = "timer wheel slots whose first unit or count Apache's recovery left behind"
_FAR: Final = "timer wheel slots of another tick"


class TimerCheck:
    """One check of a store's timed messages.

    :param store: the store; the end of its commit log may not be known yet.
    """

    def __init__(self, store: StoreFiles, report: Report) -> None:
        self._store = store
        self._report = report
        self._files = TimerFiles(store)
        #: The queue offset after the last message of the timer topic.
        self._queue_end = 0
        queue_files = store.queue_directories().get((TIMER_TOPIC, 0))
        if queue_files is not None:
            directory, sizes = queue_files
            queue = Segments(store.reader, directory, sizes, common_size(sizes.values()))
            self._queue_end = -(-queue.written_end() // ENTRY_SIZE)

    def record(
        self, log_offset: int, message: StoredMessage, properties: Mapping[str, str]
    ) -> None:
        """Receive a record of the commit log."""
        if message.topic == TIMER_TOPIC:
            self._queue_end = max(self._queue_end, message.queue_offset + 1)

    def finish(self) -> None:
        """Run the check; the commit log is known completely."""
        units = LogCheck(self._files, self._store, self._report)
        units.run()
        if self._has_checkpoint(units):
            self._check_checkpoint(units)
        if self._has_wheel(units):
            self._check_wheel(units.chains)
        if self._files.metrics_path.exists():
            check_json_file(self._files.metrics_path, self._report, self._store.running,
                            TimerMetricsSerializeWrapper.decode_saved)

    # --- the check point

    def _has_checkpoint(self, units: LogCheck) -> bool:
        """Report a check point that is missing or too short."""
        data = self._files.checkpoint_data
        if data is None:
            if units.chains:
                self._report.problem(self._files.checkpoint_path, None, "a check point", "none")
            return False
        if data and len(data) < len(CHECKPOINT_FIELDS) * 8:
            self._report.problem(self._files.checkpoint_path, None, f"{CHECKPOINT_SIZE} bytes",
                                 f"{len(data)} bytes")
            return False
        return True

    def _check_checkpoint(self, units: LogCheck) -> None:
        """Report values that are not possible, and values that are ahead of the files."""
        files, values = self._files, self._files.checkpoint
        for name in CHECKPOINT_FIELDS:
            value = getattr(values, name)
            if value < 0:
                self._wrong_value(name, "a number that is not negative")
        position = values.last_timer_log_flush_position
        if position > files.next_position(units.end):
            self._wrong_value("last_timer_log_flush_position",
                              f"no position after the timer log's last unit, which ends at "
                              f"{units.end}")
        elif (files.state == CLEAN and not self._store.running
              and files.next_position(position) < units.end):
            self._wrong_value("last_timer_log_flush_position",
                              f"the end of the timer log's last unit, {units.end}")
        # On a slave of Apache the other offset belongs to its master. A store with the mark of
        # twistmq is never the store of a slave.
        for name in ("last_timer_queue_offset", *(
                ("master_timer_queue_offset",) if files.state else ())):
            if getattr(values, name) > self._queue_end:
                self._wrong_value(name, f"no offset after the end of {TIMER_TOPIC}, "
                                  f"{self._queue_end}")

    def _wrong_value(self, name: str, expected: str) -> None:
        self._report.problem(
            self._files.checkpoint_path, CHECKPOINT_FIELDS.index(name) * 8,
            f"{name} to be {expected}", str(getattr(self._files.checkpoint, name)))

    # --- the wheel

    def _has_wheel(self, units: LogCheck) -> bool:
        """Report a wheel that is missing or has the wrong length."""
        files = self._files
        if files.wheel_size is None:
            if not self._store.running and any(
                    self._is_waiting(ticks) for ticks in units.chains):
                self._report.problem(files.wheel_path, None, "a wheel", "none")
            return False
        # A crash after the file was created and before it got its length leaves a length of 0.
        if files.wheel_size not in (0, WHEEL_SIZE):
            self._report.problem(files.wheel_path, None, f"{WHEEL_SIZE} bytes",
                                 f"{files.wheel_size} bytes")
            return False
        return True

    def _check_wheel(self, chains: Mapping[int, Chain]) -> None:
        """Compare each waiting slot with the units, and look for missing slots."""
        files, report = self._files, self._report
        for number, ticks in files.strange_slots:
            report.problem(files.wheel_path, files.slot_position(number),
                           f"a time of slot {number}", f"{ticks} ticks")
        report.counts[_FAR] += files.far_slots
        for ticks, slot in sorted(files.slots.items()):
            report.counts[SLOTS] += 1
            self._check_slot(ticks, slot, chains.get(ticks))
        flushed = files.checkpoint.last_timer_log_flush_position
        for ticks, chain in chains.items():
            if ticks in files.slots or not self._is_waiting(ticks):
                continue
            if self._store.running and (chain.first >= flushed or self._may_be_done(ticks)):
                continue
            report.problem(files.wheel_path, files.slot_position(ticks),
                           f"a slot of {ticks} ticks that leads to the unit at {chain.last}",
                           "none")

    def _is_waiting(self, ticks: int) -> bool:
        return ticks * self._files.tick_ms >= self._files.checkpoint.last_read_ms

    def _may_be_done(self, ticks: int) -> bool:
        """Whether a slot may have been delivered before it was written."""
        return (ticks * self._files.tick_ms
                < self._files.checkpoint.timestamp + CHECKPOINT_MARGIN_MS)

    def _check_slot(self, ticks: int, slot: Slot, chain: Chain | None) -> None:
        files = self._files
        unit = files.unit(slot.last)
        if chain is None or unit is None or unit.slot_ms // files.tick_ms != ticks:
            newest = "none" if chain is None else f"the one at {chain.last}"
            self._wrong_slot(ticks, "last", f"the slot's newest unit, {newest}", slot.last)
            return
        flushed = files.checkpoint.last_timer_log_flush_position
        if slot.last != chain.last and not (self._store.running and chain.last >= flushed):
            self._wrong_slot(ticks, "last", f"the slot's newest unit, the one at {chain.last}",
                             slot.last)
            return
        if chain.is_partial:
            return
        for name, expected, actual in (("first", chain.first, slot.first),
                                       ("count", chain.count, slot.count)):
            if actual == expected:
                continue
            if not files.state:
                # Apache's recovery corrects the last unit of each slot and nothing else.
                self._report.counts[_RESTORED] += 1
                return
            self._wrong_slot(ticks, name, f"{expected}, as its units show", actual)

    def _wrong_slot(self, ticks: int, field: str, expected: str, actual: int) -> None:
        self._report.problem(
            self._files.wheel_path,
            self._files.slot_position(ticks) + SLOT_FIELD_POSITIONS[field],
            f"{field} to be {expected} (slot of {ticks} ticks)", str(actual))
