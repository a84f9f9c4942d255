"""Batch queues against the log: each record has its entry, and each entry its record.

Entries and records of a queue are in the same order, so both are read side by side, once.

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
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.properties import INNER_BASE, INNER_NUM, TAGS, tags_code
from twistmq.protocol.record import SYS_INNER_BATCH, StoredMessage

__all__ = ["BatchCheck"]

Entry = tuple[int, int, int, int, int, int, int, int]
#: Fields of an entry that say the same as its record, and where they are, in bytes.
_FIELDS = (("size", 8), ("tag's code", 12), ("store time", 20), ("queue offset", 28),
           ("number of messages", 36))


@dataclass(slots=True)
class _Queue:
    """One queue as it was when the check began. Entries are counted from the files' first ever."""

    topic: str
    queue_id: int
    files: Segments
    begin: int
    end: int
    #: Entries before this one were looked at.
    cursor: int = 0
    #: Whether an entry was its record's.
    matched: bool = False

    def entry(self, number: int) -> Entry | None:
        """Read an entry; None if it does not exist."""
        if number >= self.end:
            return None
        data = self.files.cached(number * BATCH_ENTRY_SIZE, BATCH_ENTRY_SIZE)
        return BATCH_ENTRY.unpack(data) if len(data) == BATCH_ENTRY_SIZE else None

    def place(self, number: int) -> tuple[Path, int]:
        """File and byte of an entry."""
        return self.files.locate(number * BATCH_ENTRY_SIZE)


class BatchCheck:
    """Checks every batch queue while the log is walked.

    Make it before the log's end is asked for: then all its entries have their records.
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
        """Pass the entries of records that are not in the log any more."""
        for queue in self._queues.values():
            self._report.counts["queues"] += 1
            self._report.counts["queue entries"] += queue.end - queue.begin
            while (entry := queue.entry(queue.cursor)) and entry[1] > 0 and (
                entry[0] < self._store.log_begin
            ):
                queue.cursor += 1
            self._report.counts["entries of removed messages"] += queue.cursor - queue.begin

    def record(
        self, place: int, message: StoredMessage, properties: dict[str, str]
    ) -> str | None:
        """Check that a record has its entry; records come in the order of the log.

        :returns: what there is where its entry should be, which the caller judges; None when all
            is said.
        """
        if message.sys_flag & SYS_INNER_BATCH:
            self._check_inner(place, message, properties)
        queue = self._queues[message.topic, message.queue_id]
        while (entry := queue.entry(queue.cursor)) is not None and (
            entry[0] < place or entry[1] <= 0
        ):
            self._pass(queue)
        if entry is None:
            return f"the end of the queue after {queue.end - queue.begin} entries"
        if entry[0] == place:
            self._compare(queue, entry, message, properties)
            queue.cursor += 1
            queue.matched = True
        elif queue.matched or entry[4] > message.queue_offset:
            return f"the entry of the record at {entry[0]}"
        else:
            # Its topic was deleted and made again: the entry is a newer message's.
            self._report.counts["records of deleted queues"] += 1
        return None

    def has(self, topic: str, queue_id: int) -> bool:
        """Whether there is such a batch queue."""
        return (topic, queue_id) in self._queues

    def finish(self) -> None:
        """Look at the entries no record was found for."""
        for queue in self._queues.values():
            while queue.cursor < queue.end:
                self._pass(queue)

    def _check_inner(self, place: int, message: StoredMessage, properties: dict[str, str]) -> None:
        """Compare what an inner batch says of itself with its body."""
        try:
            count = str(len(decode_batch(message.body)))
        except MessageIllegal as error:
            path, position = self._store.log.locate(place)
            self._report.problem(path, position, "a batch of messages", str(error))
            return
        for name, wanted in ((INNER_NUM, count), (INNER_BASE, str(message.queue_offset))):
            if properties.get(name) != wanted:
                path, position = self._store.log.locate(place)
                self._report.problem(path, position, f"{name} {wanted}",
                                     str(properties.get(name)))

    def _compare(
        self, queue: _Queue, entry: Entry, message: StoredMessage, properties: dict[str, str]
    ) -> None:
        """Compare an entry with the record it stands for."""
        count = 1
        if message.sys_flag & SYS_INNER_BATCH and properties.get(INNER_NUM, "").isdecimal():
            count = int(properties[INNER_NUM])
        wanted = (message.size, tags_code(properties.get(TAGS)), message.store_timestamp,
                  message.queue_offset, count)
        path, position = queue.place(queue.cursor)
        for (name, at), expected, found in zip(_FIELDS, wanted, entry[1:6], strict=True):
            if expected != found:
                self._report.problem(path, position + at, f"the record's {name} {expected}",
                                     str(found))

    def _pass(self, queue: _Queue) -> None:
        """Look at an entry that no record of the walk belongs to."""
        entry = queue.entry(queue.cursor)
        path, position = queue.place(queue.cursor)
        queue.cursor += 1
        if entry is None:
            wrong = NO_FILE
        elif entry[1] <= 0:
            wrong = "zeros" if not any(entry) else f"size {entry[1]}"
        elif 0 <= entry[0] < self._store.log_begin or self._store.log.is_gone(entry[0]):
            return
        else:
            message = self._store.look(entry[0])
            shown = f"place {entry[0]}, size {entry[1]}"
            wrong = (f"{shown}, {message}" if isinstance(message, str)
                     else f"{shown}, a record of {message.topic}-{message.queue_id}, offset "
                          f"{message.queue_offset}")
        self._report.problem(path, position, f"an entry of {queue.topic}-{queue.queue_id}", wrong,
                             run=(path, wrong) if wrong == NO_FILE else None)
