"""``twistmq store dump --view timers``: the messages that wait for their time, the next one first.

The list holds the messages in slots that are not delivered yet, and also messages that are stored
but not entered. ``offset`` is a message's place in the commit log: ``dump --offset`` shows the
whole message.

Source: TimerMessageStore @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twistmq.broker.api import BrokerError, StoredMessage
from twistmq.broker.api.store_files import LogWalk, Report, StoreFiles, Wanted, escaped, time_text
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.broker.api.wire import index_keys, whole_number
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.timer.log_unit import UNIT_SIZE, decode_unit
from twistmq.plugins.timer.records import delete_key, due_ms_of
from twistmq.plugins.timer.store_files import TimerFiles

__all__ = ["timer_rows", "timer_text"]


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """A message that waits for its time."""

    #: When its slot is delivered, Unix ms; for a message that is not entered, when it is due.
    slot_ms: int
    #: The offset in the commit log.
    log_offset: int
    #: The position in the timer log; None if the message is not entered.
    position: int | None = None
    is_rolled: bool = False


def timer_rows(store: StoreFiles, selection: Wanted, report: Report) -> Iterator[dict[str, Any]]:
    """List the messages that wait.

    :param selection: topic and queue select by the real ones, times select by the time of delivery.
    :param report: receives units that do not lead to a message.
    """
    files = TimerFiles(store)
    waiting = _WaitingTimers(files, store, report)
    for entry in sorted(waiting.entries):
        message = waiting.message(entry)
        if message is None:
            continue
        properties = message.properties_map()
        row = _row(entry, message, properties, delete_key(
            properties.get(names.REAL_TOPIC, ""),
            properties.get(names.UNIQ_KEY, "")) in waiting.recalled_keys)
        if _is_selected(selection, row, properties):
            yield row


class _WaitingTimers:
    """The waiting messages of a store, and the keys of recalled messages."""

    def __init__(self, files: TimerFiles, store: StoreFiles, report: Report) -> None:
        self.entries: list[_Entry] = []
        #: The keys of recalled messages, as the recall messages name them.
        self.recalled_keys: set[str] = set()
        self._files = files
        self._store = store
        self._report = report
        self._look_at_units()

    def _look_at_units(self) -> None:
        end = self._store.log_begin
        for position, data in self._files.units():
            unit = decode_unit(data)
            if unit is None:
                if self._files.is_unsure(position):
                    continue
                path, at = self._files.log.locate(position)
                self._report.problem(path, at, f"a unit of {UNIT_SIZE} bytes",
                                     data[:16].hex(" ", 4))
                continue
            end = max(end, unit.log_offset + unit.message_size)
            if unit.slot_ms < self._files.checkpoint.last_read_ms:
                continue
            entry = _Entry(unit.slot_ms, unit.log_offset, position, unit.is_rolled)
            if unit.change > 0:
                self.entries.append(entry)
            elif (message := self.message(entry)) is not None:
                self._take_back(message.properties_map())
        self._look_after(end)

    def _look_after(self, begin: int) -> None:
        """Look for messages that are not entered yet.

        :param begin: the start of the record after the last one that is entered.
        """
        entered = self._files.checkpoint.last_timer_queue_offset
        for log_offset, message in LogWalk(self._store, self._report).records(begin):
            if message.topic != TIMER_TOPIC or message.queue_offset < entered:
                continue
            properties = message.properties_map()
            if not self._take_back(properties):
                self.entries.append(_Entry(_due_ms(properties) or 0, log_offset))

    def _take_back(self, properties: Mapping[str, str]) -> bool:
        """Note which message a message recalls; :returns: whether it recalls one."""
        key = properties.get(names.TIMER_DEL_UNIQKEY)
        if key is not None:
            self.recalled_keys.add(key)
        return key is not None

    def message(self, entry: _Entry) -> StoredMessage | None:
        """Return the message of an entry; any other record at its place is reported."""
        record = self._store.look(entry.log_offset)
        if isinstance(record, StoredMessage) and record.topic == TIMER_TOPIC:
            return record
        path, at = self._store.log.locate(entry.log_offset)
        self._report.problem(path, at, f"a message of {TIMER_TOPIC}",
                             record if isinstance(record, str) else f"a record of {record.topic}")
        return None


def _row(
    entry: _Entry, message: StoredMessage, properties: dict[str, str], is_recalled: bool
) -> dict[str, Any]:
    state = ("taken back" if is_recalled else "not entered" if entry.position is None
             else "rolled" if entry.is_rolled else "waiting")
    return {
        "due": _due_ms(properties),
        "state": state,
        "topic": properties.get(names.REAL_TOPIC),
        "queue": whole_number(properties.get(names.REAL_QID, "")),
        "uniqueKey": properties.get(names.UNIQ_KEY),
        "keys": properties.get(names.KEYS),
        "tags": properties.get(names.TAGS),
        "storeTime": message.store_timestamp,
        "slotTime": None if entry.position is None else entry.slot_ms,
        "offset": entry.log_offset,
        "size": message.size,
        "timerQueueOffset": message.queue_offset,
        "timerLogOffset": entry.position,
    }


def _is_selected(selection: Wanted, row: Mapping[str, Any], properties: dict[str, str]) -> bool:
    return (
        (selection.topic is None or row["topic"] == selection.topic)
        and (selection.queue_id is None or row["queue"] == selection.queue_id)
        and (selection.place is None or row["offset"] == selection.place)
        and (selection.key is None or selection.key in index_keys(properties))
        and selection.is_in_time(row["due"] or 0)
    )


def timer_text(row: Mapping[str, Any]) -> str:
    """Format a row as a line of text."""
    due = "never due" if row["due"] is None else f"due {time_text(row['due'])}"
    shown = [due, f"{row['topic']}-{row['queue']}", row["state"],
             f"stored {time_text(row['storeTime'])}", f"at {row['offset']}"]
    if row["state"] == "rolled":
        shown.append(f"until {time_text(row['slotTime'])}")
    shown += [f"{name}={escaped(row[field])}" for name, field in (
        (names.UNIQ_KEY, "uniqueKey"), (names.KEYS, "keys"), (names.TAGS, "tags"))
        if row[field] is not None]
    return "  ".join(shown)


def _due_ms(properties: dict[str, str]) -> int | None:
    try:
        return due_ms_of(properties)
    except BrokerError:
        return None
