"""Checks the units of a timer log against the commit log, and against each other.

A unit leads to a message of the timer topic, whose size, topic and time it repeats, and to the
previous unit of its slot. The content that the slots should have follows from the units.

Source: TimerMessageStore.doEnqueue, TimerLog @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api import BrokerError
from twistmq.broker.api.store_files import Report, StoreFiles, report_files
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.broker.api.wire import java_string_hash
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.timer.log_unit import (
    BLANK_SIZE_MIN,
    FIELD_POSITIONS,
    NO_POSITION,
    UNIT_SIZE,
    LogUnit,
    decode_unit,
    encode_blank,
)
from twistmq.plugins.timer.records import due_ms_of
from twistmq.plugins.timer.store_files import TimerFiles

__all__ = ["Chain", "LogCheck"]

#: Names of files and units in the summary.
FILES: Final = "timer log files"
UNITS: Final = "timer log units"
_REMOVED: Final = "timer log units of removed messages"


@dataclass(slots=True)
class Chain:
    """The units of one slot."""

    first: int
    last: int
    #: Messages minus recalled ones, for the units that the wheel knows of.
    count: int = 0
    #: Whether units are missing because their files were removed or are damaged.
    is_partial: bool = False


class LogCheck:
    """Checks the log; the end of the commit log is known.

    :param files: the files of timed messages, already read.
    """

    def __init__(self, files: TimerFiles, store: StoreFiles, report: Report) -> None:
        self._files = files
        self._store = store
        self._report = report
        #: The chain of each slot, by the slot's time in ticks.
        self.chains: dict[int, Chain] = {}
        #: The position at which the last unit ends.
        self.end = files.begin
        self._damaged: set[int] = set()

    def run(self) -> None:
        """Check every file and every unit."""
        files, report = self._files, self._report
        report_files(report, files.log, FILES)
        units = files.units()
        for position, data in units:
            unit = decode_unit(data)
            if unit is None:
                self._damage(position, data)
                continue
            report.counts[UNITS] += 1
            self.end = position + UNIT_SIZE
            self._check_chain(position, unit)
            self._check_message(position, unit)
        self._check_blanks()

    def _damage(self, position: int, data: bytes) -> None:
        """Report bytes that are not a unit; a running broker may still be writing the last one."""
        if self._files.is_unsure(position):
            self._report.note(f"the timer log ends at {position}: the unit there is not complete, "
                              "or not yet")
            return
        self._damaged.add(position)
        zeros = data.count(0) == len(data)
        self._problem(position, 0, f"a unit of {UNIT_SIZE} bytes",
                      "zeros" if zeros else data[:16].hex(" ", 4), run=("timerlog", zeros) if zeros
                      else None)

    def _check_blanks(self) -> None:
        """Check that each full file ends with the mark that no unit follows."""
        files = self._files
        at = files.units_per_file * UNIT_SIZE
        for start in files.log.starts[:-1]:
            if files.log.sizes[start] != files.log.file_size:
                continue
            expected = encode_blank(files.log.file_size - at)
            data = files.log.reader.read(files.log.path(start), at, BLANK_SIZE_MIN)
            if data != expected and files.log.path(start) not in files.log.reader.gone:
                self._problem(start + at, 0, f"the blank {expected.hex(' ', 4)}",
                              data.hex(" ", 4))

    # --- a unit and its slot

    def _check_chain(self, position: int, unit: LogUnit) -> None:
        files = self._files
        ticks = unit.slot_ms // files.tick_ms
        chain = self.chains.get(ticks)
        previous = unit.previous
        expected = NO_POSITION if chain is None else chain.last
        is_cut = 0 <= previous < files.begin or previous in self._damaged
        if previous != expected and not is_cut and not (
                # Delivered messages are forgotten: if a clock is set back, a new chain starts.
                previous == NO_POSITION and unit.slot_ms < files.checkpoint.last_read_ms):
            self._problem(position, FIELD_POSITIONS["previous"], _previous_text(expected),
                          str(previous))
        if chain is None:
            chain = self.chains[ticks] = Chain(position, position)
        chain.last = position
        chain.is_partial |= is_cut
        slot = files.slots.get(ticks)
        if slot is not None and position <= slot.last:
            chain.count += unit.change

    # --- a unit and its message

    def _check_message(self, position: int, unit: LogUnit) -> None:
        if unit.log_offset < self._store.log_begin and unit.log_offset >= 0:
            self._report.counts[_REMOVED] += 1
            return
        if self._store.log.is_gone(unit.log_offset):
            return
        message = self._store.look(unit.log_offset)
        at = FIELD_POSITIONS["log_offset"]
        if isinstance(message, str):
            self._problem(position, at, "the place of a message", f"{unit.log_offset}, {message}")
            return
        if message.topic != TIMER_TOPIC:
            self._problem(position, at, f"the place of a message of {TIMER_TOPIC}",
                          f"{unit.log_offset}, a record of {message.topic}")
            return
        if message.size != unit.message_size:
            self._problem(position, FIELD_POSITIONS["message_size"],
                          f"the message's size {message.size}", str(unit.message_size))
        self._check_properties(position, unit, message.properties_map())

    def _check_properties(
        self, position: int, unit: LogUnit, properties: Mapping[str, str]
    ) -> None:
        code = java_string_hash(properties.get(names.REAL_TOPIC, ""))
        if unit.topic_hash != code:
            self._problem(position, FIELD_POSITIONS["topic_hash"], f"the code {code} of topic "
                          f"{properties.get(names.REAL_TOPIC)!r}", str(unit.topic_hash))
        takes_back = names.TIMER_DEL_UNIQKEY in properties
        if unit.change != (-1 if takes_back else 1):
            self._problem(position, FIELD_POSITIONS["magic"], "a unit that "
                          f"{'recalls a message' if takes_back else 'is a message'}",
                          f"magic {unit.magic}")
        try:
            due_ms = due_ms_of(properties)
        except BrokerError as error:
            self._problem(position, FIELD_POSITIONS["log_offset"], "a message with a time",
                          f"{unit.log_offset}: {error}")
            return
        tick_ms, slot_ms = self._files.tick_ms, unit.slot_ms
        is_right = (slot_ms <= due_ms if unit.is_rolled
                    else slot_ms // tick_ms == due_ms // tick_ms)
        if not is_right:
            self._problem(position, FIELD_POSITIONS["write_ms"],
                          f"a time whose sum with the delay is the message's {due_ms}"
                          f"{' at most' if unit.is_rolled else ''}",
                          f"{unit.write_ms} and {unit.delay_ms}")

    def _problem(
        self, position: int, field: int, expected: str, actual: str, run: object = None
    ) -> None:
        path, at = self._files.log.locate(position)
        self._report.problem(path, at + field, expected, actual, run=run)


def _previous_text(position: int) -> str:
    return ("-1, because no unit precedes it in its slot" if position == NO_POSITION
            else f"{position}, the previous unit of its slot")
