"""Compares consume queues with the log: each record has its entry, and each entry its record.

The records of a queue lie in the log in the order of their queue offsets. The walk through the log
and the entries of each queue can therefore be read side by side in a single pass, which needs
little memory for stores of any size. An entry that does not fit into this order, for example
because its topic was deleted and created again, is looked up on its own.

Source: ConsumeQueue, CommitLogDispatcherBuildConsumeQueue, MultiDispatch @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twistmq.broker.constants import CHECKPOINT_MARGIN_MS
from twistmq.broker.store.consume_queue import ENTRY, ENTRY_SIZE, FILLER_SIZE
from twistmq.broker.store.extension_unit import is_address
from twistmq.broker.store.inspect.batch_check import BatchCheck
from twistmq.broker.store.inspect.extension_view import ExtensionView
from twistmq.broker.store.inspect.files import Segments
from twistmq.broker.store.inspect.layout import NO_FILE, StoreFiles, report_files
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.store.light_queues import LIGHT_QUEUE_ID, light_entries
from twistmq.protocol.properties import INNER_MULTI_QUEUE_OFFSET, TAGS, tags_code
from twistmq.protocol.record import StoredMessage, has_queue_entry
from twistmq.protocol.topic_names import SCHEDULE_TOPIC

__all__ = ["QueueCheck"]

Entry = tuple[int, int, int]

#: The maximum number of records that wait until it is known whether their topic was created again.
_UNDECIDED_MAX: Final = 10_000


@dataclass(slots=True)
class _Queue:
    """One queue as it was when the check began."""

    topic: str
    queue_id: int
    files: Segments
    #: The offset of the first entry, and the offset after the last one.
    begin: int
    end: int
    #: The offset of the first entry that is not a filler.
    first: int = 0
    #: The commit-log offset of the record with queue offset 0; 0 if it is not known.
    birth: int = 0
    #: Entries before this offset have been checked.
    cursor: int = 0

    def entry(self, offset: int) -> Entry | None:
        """Read an entry; None when its file is missing or too short."""
        data = self.files.cached(offset * ENTRY_SIZE, ENTRY_SIZE)
        return ENTRY.unpack(data) if len(data) == ENTRY_SIZE else None

    def locate(self, offset: int) -> tuple[Path, int]:
        """Return the file of an entry, and its position in the file."""
        return self.files.locate(offset * ENTRY_SIZE)


class QueueCheck:
    """Checks every queue while the log is walked.

    Create it before the end of the log is determined, so that all its entries have their records.

    :param flushed_ms: the store time up to which entries must exist even while a broker is running.
    """

    def __init__(self, store: StoreFiles, report: Report, flushed_ms: int) -> None:
        self._store = store
        self._report = report
        self._late_ms = flushed_ms - CHECKPOINT_MARGIN_MS
        self._topics = store.known_topics()
        self._batches = BatchCheck(store, report)
        self._queues = {
            key: self._snapshot(key, files) for key, files in store.queue_segments().items()}
        #: The lowest birth of the queues of each topic.
        self._births: dict[str, int] = {}
        #: Topics with a record that is older than the first record of its queue.
        self._recreated_topics: set[str] = set()
        #: Records of missing queues that belong to an existing topic, unless it was created again.
        self._undecided: list[tuple[int, StoredMessage]] = []
        # Units are written before the entries that point at them.
        self._extensions = ExtensionView(store)

    def _snapshot(self, key: tuple[str, int], files: Segments) -> _Queue:
        report_files(self._report, files)
        begin = files.starts[0] // ENTRY_SIZE if files.starts else 0
        end = -(-files.written_end() // ENTRY_SIZE)
        return _Queue(*key, files, begin, max(begin, end))

    def start(self) -> None:
        """Skip the entries of messages that are no longer in the log, and fix the log's end."""
        begin = self._store.log_begin
        self._batches.start()
        for queue in self._queues.values():
            self._report.counts["queues"] += 1
            self._report.counts["queue entries"] += queue.end - queue.begin
            at = queue.begin
            while at < queue.end and ((entry := queue.entry(at)) is None
                                      or entry[1] == FILLER_SIZE):
                at += 1
            queue.first = at
            while at < queue.end and (entry := queue.entry(at)) and entry[1] > 0 and (
                entry[0] < begin
            ):
                at += 1
            self._report.counts["entries of removed messages"] += at - queue.begin
            queue.cursor = at
            if queue.begin == queue.first == 0:
                entry = queue.entry(0)
                if entry is not None and self._explain(queue, 0, entry) is None:
                    queue.birth = entry[0]
            births = self._births.setdefault(queue.topic, queue.birth)
            self._births[queue.topic] = min(births, queue.birth)

    def record(self, log_offset: int, message: StoredMessage, properties: dict[str, str]) -> None:
        """Check that a record has its entries; records arrive in the order of the log."""
        if not has_queue_entry(message.sys_flag):
            return
        self._record(log_offset, message, properties)
        if INNER_MULTI_QUEUE_OFFSET not in properties or (
            self._batches.has(message.topic, message.queue_id)
        ):
            return
        for name, offset in light_entries(message.topic, message.properties):
            # Apache's broker can be configured to assign offsets without creating entries.
            if (name, LIGHT_QUEUE_ID) in self._queues:
                self._record(log_offset, _in_light_queue(message, name, offset), properties)

    def _record(self, log_offset: int, message: StoredMessage, properties: dict[str, str]) -> None:
        """Check that a record has its entry in one queue."""
        if self._batches.has(message.topic, message.queue_id):
            wrong = self._batches.record(log_offset, message, properties)
            if wrong is not None:
                self._without_entry(log_offset, message, wrong)
            return
        queue = self._queues.get((message.topic, message.queue_id))
        offset = message.queue_offset
        if queue is None:
            self._without_queue(log_offset, message)
        elif log_offset < queue.birth:
            self._recreated_topics.add(queue.topic)
            self._report.counts["records of deleted queues"] += 1
        elif offset >= queue.end:
            self._without_entry(log_offset, message, f"the end of the queue at offset {queue.end}")
        elif offset < queue.cursor:
            self._again(queue, log_offset, message, properties)
        else:
            self._expected(queue, log_offset, message, properties)

    def finish(self) -> None:
        """Check the entries for which no record was found."""
        self._decide()
        for queue in self._queues.values():
            self._pass(queue, queue.end)
        self._batches.finish()
        self._extensions.check(self._report, self._store.running)

    # --- a record and its entry

    def _expected(
        self, queue: _Queue, log_offset: int, message: StoredMessage, properties: dict[str, str]
    ) -> None:
        """Check a record whose entry is the next one of its queue, or a later one."""
        offset = message.queue_offset
        entry = queue.entry(offset)
        if entry is not None and entry[0] > log_offset and (
                self._explain(queue, offset, entry) is None):
            # The topic was deleted and created again: the entry belongs to a newer message.
            self._report.counts["records of deleted queues"] += 1
            return
        self._pass(queue, offset)
        queue.cursor = offset + 1
        if entry is not None:
            self._compare(queue, entry, log_offset, message, properties)

    def _again(
        self, queue: _Queue, log_offset: int, message: StoredMessage, properties: dict[str, str]
    ) -> None:
        """Check a record whose entry has already been passed."""
        offset = message.queue_offset
        entry = queue.entry(offset)
        if entry is None or offset < queue.first:
            if queue.begin <= offset or queue.first == queue.begin == 0:
                # A filler before a queue that started over, or a file that is already reported.
                self._report.counts["records of deleted queues"] += 1
            else:
                self._without_entry(log_offset, message, f"a queue that begins at {queue.begin}")
        elif entry[0] == log_offset:
            self._compare(queue, entry, log_offset, message, properties)
        elif entry[0] > log_offset:
            self._report.counts["records of deleted queues"] += 1
        else:
            path, position = self._store.log.locate(log_offset)
            self._report.problem(
                path, position, f"one record with offset {offset} of {_name(message)}",
                f"a second one; the first is at {entry[0]}")

    def _compare(
        self, queue: _Queue, entry: Entry, log_offset: int, message: StoredMessage,
        properties: dict[str, str],
    ) -> None:
        """Compare an entry with its record."""
        path, position = queue.locate(message.queue_offset)
        if entry[0] != log_offset or entry[1] in (0, FILLER_SIZE):
            self._report.problem(path, position, f"the entry of the record at {log_offset}",
                                 _shown(entry))
            return
        if entry[1] != message.size:
            self._report.problem(path, position + 8, f"the record's size {message.size}",
                                 str(entry[1]))
        code = entry[2]
        if is_address(code):
            self._compare_unit(queue, code, message, properties)
            return
        if message.topic == SCHEDULE_TOPIC:
            return
        expected = tags_code(properties.get(TAGS))
        if code != expected:
            self._report.problem(path, position + 12, f"the code {expected} of tag "
                                 f"{properties.get(TAGS)!r}", str(code))

    def _compare_unit(
        self, queue: _Queue, address: int, message: StoredMessage, properties: dict[str, str]
    ) -> None:
        """Compare the unit that an entry points at with the record."""
        key = queue.topic, queue.queue_id
        unit = self._extensions.unit(key, address)
        where = self._extensions.locate(key, address)
        if unit is None or where is None:
            path, position = queue.locate(message.queue_offset)
            self._report.problem(path, position + 12, "the address of a unit", str(address))
            return
        self._report.counts["entries with a unit"] += 1
        if unit.store_time != message.store_timestamp:
            self._report.problem(where[0], where[1] + 10, "the record's store time "
                                 f"{message.store_timestamp}", str(unit.store_time))
        expected = tags_code(properties.get(TAGS))
        if unit.tags_code != expected and message.topic != SCHEDULE_TOPIC:
            self._report.problem(where[0], where[1] + 2, f"the code {expected} of tag "
                                 f"{properties.get(TAGS)!r}", str(unit.tags_code))

    def _without_queue(
        self, log_offset: int, message: StoredMessage, *, is_last: bool = False
    ) -> None:
        is_older = log_offset < self._births.get(message.topic, 0)
        if is_older and not is_last and message.topic not in self._recreated_topics and (
                len(self._undecided) < _UNDECIDED_MAX):
            self._undecided.append((log_offset, _without_body(message)))
            return
        if not is_last:
            self._decide()
        is_deleted = (is_older and message.topic in self._recreated_topics) or (
            self._topics is not None and message.topic not in self._topics)
        if is_deleted and not self._is_late(message):
            self._report.counts["records of deleted queues"] += 1
        else:
            self._without_entry(log_offset, message, "no such queue")

    def _decide(self) -> None:
        """Classify the records that were kept, in their order."""
        undecided, self._undecided = self._undecided, []
        for log_offset, message in undecided:
            self._without_queue(log_offset, message, is_last=True)

    def _without_entry(self, log_offset: int, message: StoredMessage, actual: str) -> None:
        if self._is_late(message):
            self._report.counts["records whose queue entry is not on disk yet"] += 1
            return
        path, position = self._store.log.locate(log_offset)
        self._report.problem(
            path, position, f"an entry in {_name(message)} at offset {message.queue_offset}",
            actual, run=(message.topic, message.queue_id, actual))

    def _is_late(self, message: StoredMessage) -> bool:
        """Return whether a running broker may still have to create the entry of a record."""
        return self._store.running and message.store_timestamp > self._late_ms

    # --- a single entry

    def _pass(self, queue: _Queue, end: int) -> None:
        """Check the entries to which no record of the walk belongs."""
        for offset in range(queue.cursor, end):
            entry = queue.entry(offset)
            wrong = None if entry is None else self._explain(queue, offset, entry)
            if wrong is not None:
                path, position = queue.locate(offset)
                self._report.problem(path, position, f"an entry of {queue.topic}-"
                                     f"{queue.queue_id} for offset {offset}", wrong,
                                     run=(path, wrong) if wrong == NO_FILE else None)
        queue.cursor = max(queue.cursor, end)

    def _explain(self, queue: _Queue, offset: int, entry: Entry) -> str | None:
        """Return the fault of an entry; None when it agrees with its record."""
        log_offset, size, _ = entry
        if size in (0, FILLER_SIZE):
            return _shown(entry)
        if 0 <= log_offset < self._store.log_begin or self._store.log.is_gone(log_offset):
            return None
        message = self._store.look(log_offset)
        if isinstance(message, str):
            return message if message == NO_FILE else f"{_shown(entry)}, {message}"
        if (message.topic, message.queue_id, message.queue_offset) != (
            queue.topic, queue.queue_id, offset
        ) and not _is_dispatched(message, queue.topic, offset):
            return f"{_shown(entry)}, a record of {_name(message)}, offset {message.queue_offset}"
        return None if size == message.size else f"size {size} of a record of {message.size}"


def _name(message: StoredMessage) -> str:
    return f"{message.topic}-{message.queue_id}"


def _shown(entry: Entry) -> str:
    if entry == (0, 0, 0):
        return "zeros"
    if entry[1] == FILLER_SIZE:
        return "a filler"
    return f"place {entry[0]}, size {entry[1]}"


def _in_light_queue(message: StoredMessage, name: str, offset: int) -> StoredMessage:
    """Return the record as if the light queue were its own queue."""
    return StoredMessage(
        message.size, message.magic, message.body_crc, LIGHT_QUEUE_ID, message.flag, offset,
        message.physical_offset, message.sys_flag, message.born_timestamp, message.born_host,
        message.store_timestamp, message.store_host, message.reconsume_times,
        message.prepared_transaction_offset, message.body, name, message.properties)


def _without_body(message: StoredMessage) -> StoredMessage:
    """Return a copy of a record without its body and properties."""
    return StoredMessage(
        message.size, message.magic, message.body_crc, message.queue_id, message.flag,
        message.queue_offset, message.physical_offset, message.sys_flag, message.born_timestamp,
        message.born_host, message.store_timestamp, message.store_host, message.reconsume_times,
        message.prepared_transaction_offset, b"", message.topic, "")


def _is_dispatched(message: StoredMessage, topic: str, offset: int) -> bool:
    """Return whether a record is in this light queue, at this offset."""
    return (topic, offset) in light_entries(message.topic, message.properties)
