"""The files in the directory of a store, and the lengths that they should have.

The sizes of files are settings that are not in the store, so the most frequent size is taken. On a
running broker all files may grow; queues are read first, then the index, then the log, so that
nothing points beyond the known end of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.entry_heads import ENTRY_HEAD, ENTRY_HEAD_SIZE, ENTRY_MAGIC
from twistmq.broker.store.inspect.files import (
    Reader,
    Segments,
    common_size,
    is_number,
    segment_sizes,
)
from twistmq.broker.store.inspect.json_files import read_config
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol import json_dialect
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    StoredMessage,
    decode_record,
    record_size,
)

__all__ = ["MAGICS", "NO_FILE", "StoreFiles", "report_files", "report_missing"]

#: The number of digits of the largest queue id.
_ID_DIGITS_MAX: Final = 10

#: The result of ``look`` for an offset in a missing file.
NO_FILE: Final = "no file of the log that has this place"

#: The magic numbers of records as they are encoded in the log.
MAGICS: Final = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))


class StoreFiles:
    """The directory of a store.

    :param root: the value of ``storePathRootDir``.
    :param commit_log: the value of ``storePathCommitLog``; None stands for ``commitlog`` under the
        root, or for the ledger there when it has no files.
    :param ledger: the folder of the ledger that is the log, which contains ``data`` and ``index``;
        None for a log without heads.
    :raises StoreError: when there is no store.
    """

    def __init__(
        self, root: Path, commit_log: Path | None = None, ledger: Path | None = None
    ) -> None:
        if commit_log is None and ledger is None:
            ledger = _only_ledger(root)
        #: The folder of the ledger; None for a log without heads.
        self.ledger = ledger
        #: The size of the head in front of each record.
        self.head_size = 0 if ledger is None else ENTRY_HEAD_SIZE
        log = commit_log or (root / "commitlog" if ledger is None else ledger / "data")
        if not log.is_dir():
            inner = root / "store"
            hint = f"; did you mean {inner}?" if (inner / "commitlog").is_dir() else ""
            raise StoreError(f"{root} is not a store: there is no directory {log}{hint}")
        self.root = root
        self.reader = Reader()
        #: Whether a broker is running on the store, or did not stop cleanly: the newest data may
        #: not be written yet.
        self.running = (root / "abort").exists()
        self._checkpoint: Checkpoint | None = None
        self._log_directory = log
        self._log: Segments | None = None
        self._log_end = 0

    def close(self) -> None:
        """Close every file."""
        self.reader.close()

    def entry_of(self, log_offset: int) -> tuple[int, int] | None:
        """Return the index and the term of the entry whose record is at a commit-log offset; None
        in a log without heads, or when no head is there."""
        begin = log_offset - ENTRY_HEAD_SIZE
        head = b"" if self.ledger is None or begin < 0 else self.log.cached(begin, ENTRY_HEAD_SIZE)
        if len(head) < ENTRY_HEAD_SIZE:
            return None
        magic, _, index, term, *_ = ENTRY_HEAD.unpack(head)
        return (index, term) if magic == ENTRY_MAGIC else None

    def queue_segments(self, name: str = "consumequeue") -> dict[tuple[str, int], Segments]:
        """Return the files of queues by (topic, queue id).

        :param name: the name of the directory that contains them.
        """
        directories = self.queue_directories(name)
        size = common_size(size for _, sizes in directories.values() for size in sizes.values())
        return {key: Segments(self.reader, directory, sizes, size)
                for key, (directory, sizes) in directories.items()}

    def queue_directories(
        self, name: str = "consumequeue"
    ) -> dict[tuple[str, int], tuple[Path, dict[int, int]]]:
        """Return the directory and the file lengths of queues by (topic, queue id).

        :param name: the name of the directory that contains them.
        """
        directories: dict[tuple[str, int], tuple[Path, dict[int, int]]] = {}
        root = self.root / name
        for topic in sorted(root.iterdir()) if root.is_dir() else ():
            for queue in sorted(topic.iterdir()) if topic.is_dir() else ():
                if is_number(queue.name) and len(queue.name) <= _ID_DIGITS_MAX:
                    directories[topic.name, int(queue.name)] = queue, self.reader.sizes(queue)
        return directories

    def index_paths(self) -> list[Path]:
        """Return the paths of the index files, the oldest first."""
        directory = self.root / "index"
        if not directory.is_dir():
            return []
        return sorted(path for path in directory.iterdir()
                      if is_number(path.name) and self.reader.is_regular(path))

    @property
    def log(self) -> Segments:
        """The commit log; its files and its end are fixed at the first access."""
        if self._log is None:
            sizes = self.reader.sizes(self._log_directory)
            log = Segments(self.reader, self._log_directory, sizes, common_size(sizes.values()))
            self._log, self._log_end = log, log.written_end()
        return self._log

    @property
    def log_begin(self) -> int:
        """The offset of the first byte of the log."""
        return self.log.starts[0] if self.log.starts else 0

    @property
    def log_end(self) -> int:
        """The offset at which the search for records ends."""
        return self._log_end if self.log else 0

    def report_strange(self, report: Report) -> None:
        """Report paths that should be regular files but are not; they were not read."""
        for path, kind in sorted(self.reader.strange.items()):
            report.problem(path, None, "a regular file", kind)

    def look(self, log_offset: int) -> StoredMessage | str:
        """Decode the record at a commit-log offset, without checking its CRC.

        :returns: the record, or a description of the bytes in its place.
        """
        log = self.log
        start = log.start_of(log_offset)
        if start is None:
            return NO_FILE
        head = log.cached(log_offset, RECORD_SIZE_MIN)
        if len(head) < RECORD_SIZE_MIN or head[4:8] not in MAGICS:
            return f"no record starts there: {head[:8].hex(' ', 4) or 'the file ends'}"
        size = record_size(head)
        if size > start + log.file_size - log_offset:
            return f"no record starts there: size {size}"
        try:
            return decode_record(log.cached(log_offset, size), 0, False)
        except StoreDamaged as error:
            return str(error)

    def load_checkpoint(self) -> Checkpoint:
        """Read the checkpoint; all values are zero without a file.

        :raises StoreDamaged: when a value is not valid.
        """
        path = self.root / "checkpoint"
        return Checkpoint.decode(self.reader.read(path, 0, 40), str(path))

    def known_topics(self) -> frozenset[str] | None:
        """Return the topics in ``config/topics.json``; None when it cannot be read."""
        for name in ("topics.json", "topics.json.bak"):
            try:
                table = json_dialect.decode(read_config(self.root / "config" / name))
            except (OSError, ValueError):
                continue
            if isinstance(table, Mapping):
                topics = table.get("topicConfigTable")
                if isinstance(topics, Mapping):
                    return frozenset(str(topic) for topic in topics)
        return None


def _only_ledger(root: Path) -> Path | None:
    """Return the ledger of a store that has no other log.

    :raises StoreError: when there are several.
    """
    if segment_sizes(root / "commitlog"):
        return None
    ledgers = sorted(path for path in root.glob("dledger-*") if (path / "data").is_dir())
    if len(ledgers) > 1:
        raise StoreError(f"{root} has several ledgers, of which --ledger names one: "
                         f"{', '.join(path.name.removeprefix('dledger-') for path in ledgers)}")
    return ledgers[0] if ledgers else None


def report_files(report: Report, files: Segments, name: str = "queue files") -> None:
    """Count the files of a queue, and report files that are missing or of another length.

    :param name: the name of the files in the summary.
    """
    for start in files.starts:
        report.counts[name] += 1
        # A crash between creating the last file and setting its length leaves an empty file.
        if files.sizes[start] != files.file_size and (files.sizes[start]
                                                      or start != files.starts[-1]):
            report.problem(files.path(start), None, f"{files.file_size} bytes as the others "
                           "have", f"{files.sizes[start]} bytes")
    for starts in files.missing():
        report_missing(report, files, starts)


def report_missing(report: Report, files: Segments, starts: range) -> None:
    """Report the missing files of one gap in one line."""
    first = files.path(starts[0])
    if len(starts) == 1:
        report.problem(first, None, "a file", "none")
    else:
        last = files.path(starts[-1]).name
        report.problem(first, None, f"a file, and one every {files.file_size} bytes up to {last}",
                       "none of them")
