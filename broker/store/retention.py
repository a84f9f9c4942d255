"""Removing expired data: files of the commit log, then the data that points into them.

A file of the commit log is removed for one of three reasons: it is older than ``fileReservedTime``
and the hour for removal has come, the disk usage is above its threshold, or an administrator
requests it. Above a second threshold, files are removed whatever their age, and above the last
threshold the store refuses messages. The newest file always stays, as does a file whose messages
are not on disk and in the queues yet. Consume queues and index files follow the beginning of the
log.

Both classes do one step per call and are called repeatedly. A step takes a few milliseconds:
closing and removing a large file happens on a thread. Reads copy their data, so a removal does not
wait for readers.

Source: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService, MappedFileQueue,
IndexService.deleteExpiredFile @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import FLUSH_STEP_MS
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.store.settings import StoreSettings

__all__ = ["MANUAL_ROUNDS", "CommitLogRetention", "QueueRetention"]

#: The number of rounds that an administrator's request lasts. Source: MAX_MANUAL_DELETE_FILE_TIMES.
MANUAL_ROUNDS: Final = 20
#: The interval between steps while queues are examined, in ms.
_WALK_INTERVAL_MS: Final = 10
_HOUR_MS: Final = 3_600_000

InThread = Callable[[Callable[[], None]], Deferred[None]]


class CommitLogRetention:
    """Removes the oldest files of a commit log, one per step.

    :param in_queues: returns the commit-log offset up to which all messages have durable queue
        entries. If an entry were lost together with its message, the next message could get the
        same queue offset.
    :param disk_ratios: the used fractions of the disks of commit log and queues, see MessageStore.
    """

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        io: IStoreIO,
        commit_log: CommitLog,
        in_queues: Callable[[], int],
        disk_ratios: Callable[[], tuple[float, float]],
        in_thread: InThread,
    ) -> None:
        #: May be replaced at any time; the next step uses the new ones.
        self.settings = settings
        #: Whether messages are refused because a disk is too full.
        self.disk_full = False
        self._io = io
        self._log, self._in_queues, self._disk_ratios = commit_log, in_queues, disk_ratios
        self._in_thread = in_thread
        self._manual_rounds = 0
        #: The number of files that this round may still remove; 0 when no round is running.
        self._files_left = 0
        #: Whether this round ignores the age of files.
        self._forced = False
        #: A file that has left the log but could not be removed, and the time of the next attempt.
        self._hung: str | None = None
        self._retry_ms = 0
        #: Whether the warning was logged that the disk is too full and nothing can be removed.
        self._helpless = False

    def remove_expired(self) -> None:
        """Remove expired files in the next rounds, at any hour."""
        self.log.info("a tool requested the removal of expired commit-log files")
        self._manual_rounds = MANUAL_ROUNDS

    def period_ms(self) -> int:
        """Return the interval to the next step, in ms."""
        if self._files_left:
            return self.settings.delete_commit_log_files_interval
        return self.settings.clean_resource_interval

    def step(self, now_ms: int) -> Deferred[None] | None:
        """Check for a reason to remove files, and remove one of them.

        :returns: fires when the file is removed; None when no file is.
        """
        if not self._files_left and not self._begin_round(now_ms):
            return None
        path, close = self._hung, None
        if path is None:
            if not self._is_first_due(now_ms):
                self._files_left = 0
                return None
            path = segment_path(self._log.directory, self._log.starts[0])
            self.log.info("commit-log file {path} is removed", path=path)
            close = self._log.drop_first()
        self._files_left -= 1
        io, directory = self._io, self._log.directory

        def remove() -> None:
            if close is not None:
                close()
            io.remove(path)
            # Files must disappear in order on disk as well, because a gap would be damage.
            io.sync_path(directory)

        removed = self._in_thread(remove)
        return removed.addCallbacks(self._removed, self._failed, errbackArgs=(path, now_ms))

    def _removed(self, _: None) -> None:
        self._hung = None

    def _failed(self, failure: Failure, path: str, now_ms: int) -> None:
        """Remember the failed file; no other file is removed before it."""
        self.log.error("{path} cannot be removed: {error}", path=path, error=failure.value)
        self._hung = path
        self._retry_ms = now_ms + self.settings.redelete_hanged_file_interval
        self._files_left = 0

    # --- reasons

    def _begin_round(self, now_ms: int) -> bool:
        """Begin a round if there is a reason for one."""
        too_full = self._look_at_disks()
        is_time = datetime.fromtimestamp(now_ms / 1000).hour in self.settings.delete_hours
        manual = self._manual_rounds > 0
        if manual:
            self._manual_rounds -= 1
        if self._hung is not None:
            # A wall clock that was set back must not delay the next attempt.
            waits_ms = self._retry_ms - now_ms
            self._files_left = int(
                not 0 < waits_ms <= self.settings.redelete_hanged_file_interval)
            return self._files_left > 0
        if not (too_full or is_time or manual):
            return False
        if not self._is_first_due(now_ms):
            if too_full and not self._helpless:
                self.log.warn("the disk is too full, but no commit-log file may be removed")
            self._helpless = too_full
            return False
        self._helpless = False
        self._files_left = self.settings.delete_file_batch_max
        return True

    def _is_first_due(self, now_ms: int) -> bool:
        """Return whether the oldest file may be removed."""
        log = self._log
        settled = min(log.flushed_offset, self._in_queues())
        # Differs from Apache: a file is kept until messages and entries are on disk.
        if len(log.starts) < 2 or log.starts[1] > settled:
            return False
        if self._forced:
            return True
        try:
            modified_ms = self._io.modified_ms(segment_path(log.directory, log.starts[0]))
        except FileNotFoundError:
            return True
        return now_ms >= modified_ms + self.settings.file_reserved_time * _HOUR_MS

    def _look_at_disks(self) -> bool:
        """Compare the disk usage with the thresholds and set the resulting flags.

        Once messages are refused, they are accepted again below the middle threshold, not below the
        upper one.

        :returns: whether a disk is too full.
        """
        settings = self.settings
        ratios = self._disk_ratios()
        full = self.disk_full
        # The first disk above the threshold decides, as in Apache's broker.
        fullest = next((each for each in ratios if each > settings.clean_forcibly_ratio), None)
        if fullest is not None and fullest > settings.warning_ratio:
            full = True
        elif ratios[0] <= settings.clean_forcibly_ratio:
            full = False
        if full and not self.disk_full:
            self.log.error("messages are refused: the disks are full to {ratios}", ratios=ratios)
        elif self.disk_full and not full:
            self.log.info("messages are accepted again: the disks are full to {ratios}",
                          ratios=ratios)
        self.disk_full = full
        self._forced = fullest is not None and settings.clean_file_forcibly_enable
        return fullest is not None or any(
            ratio < 0 or ratio > settings.max_used_ratio for ratio in ratios)


class QueueRetention:
    """Moves the beginning of queues and index to the beginning of the commit log."""

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        io: IStoreIO,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexFiles | None,
        in_thread: InThread,
        now_ms: Callable[[], int],
    ) -> None:
        #: May be replaced at any time; the next step uses the new ones.
        self.settings = settings
        self._io = io
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._in_thread = in_thread
        self._now_ms = now_ms
        #: The beginning of the log when queues and index were last examined, or are being examined.
        self._min_offset = 0
        #: The queues that wait to be examined, and whether the index waits.
        self._waiting: list[ConsumeQueue] = []
        self._index_waits = self._removed_files = False

    def period_ms(self) -> int:
        """Return the interval to the next step, in ms."""
        if not self._waiting and not self._index_waits:
            return self.settings.clean_resource_interval
        if self._removed_files:
            return self.settings.delete_consume_queue_files_interval
        return _WALK_INTERVAL_MS

    def step(self, now_ms: int) -> Deferred[None] | None:
        """Examine some queues, up to the first one that has files to remove, and finally the index.

        :returns: fires when files were removed; None when there were none.
        """
        self._removed_files = False
        if not self._waiting and not self._index_waits:
            if self._log.min_offset <= self._min_offset:
                return None
            self._min_offset = self._log.min_offset
            self._waiting = list(self._queues)
            self._index_waits = self._index is not None
        began_ms = self._now_ms()
        while self._waiting:
            directories = self._trim(self._waiting.pop())
            if directories:
                return self._sync(directories)
            if self._now_ms() - began_ms >= FLUSH_STEP_MS:
                return None
        return self._trim_index()

    def _trim(self, queue: ConsumeQueue) -> list[str]:
        """Trim a queue.

        :returns: the directories from which files were removed.
        """
        if self._queues.find(queue.topic, queue.queue_id) is not queue:
            # The topic has been deleted since.
            return []
        files = self._queues.files_of(queue)
        files.correct_min_offset(queue, self._min_offset)
        try:
            return files.remove_unreachable(queue)
        except OSError as error:
            self.log.error("a file of {topic}-{queue_id} cannot be removed: {error}",
                           topic=queue.topic, queue_id=queue.queue_id, error=error)
            return []

    def _sync(self, directories: list[str]) -> Deferred[None]:
        """Make the removal of files durable; they must disappear in order on disk as well."""
        self._removed_files = True
        io = self._io

        def sync() -> None:
            for directory in directories:
                # A topic that has been deleted since has no directory.
                with suppress(FileNotFoundError):
                    io.sync_path(directory)

        return self._in_thread(sync).addErrback(self._failed, directories[0])

    def _trim_index(self) -> Deferred[None] | None:
        """Remove the first index file if all its messages are gone."""
        file = None if self._index is None else self._index.drop_expired(self._min_offset)
        self._index_waits = file is not None
        if file is None:
            return None
        self._removed_files = True
        io = self._io
        self.log.info("index file {path} is removed", path=file.path)

        def remove() -> None:
            file.close()
            io.remove(file.path)

        return self._in_thread(remove).addErrback(self._failed, file.path)

    def _failed(self, failure: Failure, path: str) -> None:
        self.log.error("{path} cannot be removed: {error}", path=path, error=failure.value)
