"""Compares batch queues with the log: each record has its entry, and each entry its record.

The entries and the records of a queue are in the same order, so both are read side by side, once.

Source: BatchConsumeQueue, SendMessageProcessor.sendBatchMessage @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twistmq.broker.store.batch_queue import BATCH_ENTRY, BATCH_ENTRY_SIZE
from twistmq.broker.store.inspect.files import Segments
from twistmq.broker.store.inspect.layout import NO_FILE, StoreFiles, report_files
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.properties import INNER_BASE, INNER_NUM, TAGS, tags_code
from twistmq.protocol.record import SYS_INNER_BATCH, StoredMessage

__all__ = ["BatchCheck"]

Entry = tuple[int, int, int, int, int, int, int, int]
#: The fields of an entry that must agree with its record, and their positions, in bytes.
_FIELDS = (("size", 8), ("tag's code", 12), ("store time", 20), ("queue offset", 28),
           ("number of messages", 36))


@dataclass(slots=True)
class _Queue:
    """One queue as it was when the check began. Entries are numbered from the first file ever."""

    topic: str
    queue_id: int
    files: Segments
    begin: int
    end: int
    #: Entries before this one have been checked.
    cursor: int = 0
    #: Whether an entry has matched its record.
    matched: bool = False

    def entry(self, number: int) -> Entry | None:
        """Read an entry; None if it does not exist."""
        if number >= self.end:
            return None
        data = self.files.cached(number * BATCH_ENTRY_SIZE, BATCH_ENTRY_SIZE)
        return BATCH_ENTRY.unpack(data) if len(data) == BATCH_ENTRY_SIZE else None

    def locate(self, number: int) -> tuple[Path, int]:
        """Return the file of an entry, and its position in the file."""
        return self.files.locate(number * BATCH_ENTRY_SIZE)


class BatchCheck:
    """Checks every batch queue while the log is walked.

    Create it before the end of the log is determined, so that all its entries have their records.
    """

    def __init__(self, store: StoreFiles, report: Report) -> None:
        self._store = store
        self._report = report
        self._queues: dict[tuple[str, int], _Queue] = {}
        for key, files in store.queue_segments("batchconsumequeue").items():
            report_files(report, files)
            begin = files.starts[0] // BATCH_ENTRY_SIZE if files.starts else 0
            end = -(-files.written_end() // BATCH_ENTRY_SIZE)
            self._queues[key] = _Queue(*key, files, begin, max(begin, end), begin)

    def start(self) -> None:
        """Skip the entries of records that are no longer in the log."""
        for queue in self._queues.values():
            self._report.counts["queues"] += 1
            self._report.counts["queue entries"] += queue.end - queue.begin
            while (entry := queue.entry(queue.cursor)) and entry[1] > 0 and (
                entry[0] < self._store.log_begin
            ):
                queue.cursor += 1
            self._report.counts["entries of removed messages"] += queue.cursor - queue.begin

    def record(
        self, log_offset: int, message: StoredMessage, properties: dict[str, str]
    ) -> str | None:
        """Check that a record has its entry; records arrive in the order of the log.

        :returns: a description of the data in place of its entry, which the caller judges; None
            when there is nothing more to report.
        """
        if message.sys_flag & SYS_INNER_BATCH:
            self._check_inner(log_offset, message, properties)
        queue = self._queues[message.topic, message.queue_id]
        while (entry := queue.entry(queue.cursor)) is not None and (
            entry[0] < log_offset or entry[1] <= 0
        ):
            self._pass(queue)
        if entry is None:
            return f"the end of the queue after {queue.end - queue.begin} entries"
        if entry[0] == log_offset:
            self._compare(queue, entry, message, properties)
            queue.cursor += 1
            queue.matched = True
        elif queue.matched or entry[4] > message.queue_offset:
            return f"the entry of the record at {entry[0]}"
        else:
            # The topic was deleted and created again: the entry belongs to a newer message.
            self._report.counts["records of deleted queues"] += 1
        return None

    def has(self, topic: str, queue_id: int) -> bool:
        """Return whether there is such a batch queue."""
        return (topic, queue_id) in self._queues

    def finish(self) -> None:
        """Check the entries for which no record was found."""
        for queue in self._queues.values():
            while queue.cursor < queue.end:
                self._pass(queue)

    def _check_inner(
        self, log_offset: int, message: StoredMessage, properties: dict[str, str]
    ) -> None:
        """Compare the properties of an inner batch with its body."""
        try:
            count = str(len(decode_batch(message.body)))
        except MessageIllegal as error:
            path, position = self._store.log.locate(log_offset)
            self._report.problem(path, position, "a batch of messages", str(error))
            return
        for name, expected in ((INNER_NUM, count), (INNER_BASE, str(message.queue_offset))):
            if properties.get(name) != expected:
                path, position = self._store.log.locate(log_offset)
                self._report.problem(path, position, f"{name} {expected}",
                                     str(properties.get(name)))

    def _compare(
        self, queue: _Queue, entry: Entry, message: StoredMessage, properties: dict[str, str]
    ) -> None:
        """Compare an entry with its record."""
        number = None
        if message.sys_flag & SYS_INNER_BATCH:
            number = whole_number(properties.get(INNER_NUM, ""))
        count = 1 if number is None else number
        record_values = (message.size, tags_code(properties.get(TAGS)), message.store_timestamp,
                         message.queue_offset, count)
        path, position = queue.locate(queue.cursor)
        for (name, at), expected, actual in zip(_FIELDS, record_values, entry[1:6], strict=True):
            if expected != actual:
                self._report.problem(path, position + at, f"the record's {name} {expected}",
                                     str(actual))

    def _pass(self, queue: _Queue) -> None:
        """Check an entry to which no record of the walk belongs."""
        entry = queue.entry(queue.cursor)
        path, position = queue.locate(queue.cursor)
        queue.cursor += 1
        if entry is None:
            wrong = NO_FILE
        elif entry[1] <= 0:
            wrong = "zeros" if not any(entry) else f"size {entry[1]}"
        elif 0 <= entry[0] < self._store.log_begin or self._store.log.is_gone(entry[0]):
            return
        else:
            message = self._store.look(entry[0])
            description = f"place {entry[0]}, size {entry[1]}"
            wrong = (f"{description}, {message}" if isinstance(message, str)
                     else f"{description}, a record of {message.topic}-{message.queue_id}, offset "
                          f"{message.queue_offset}")
        self._report.problem(path, position, f"an entry of {queue.topic}-{queue.queue_id}", wrong,
                             run=(path, wrong) if wrong == NO_FILE else None)
