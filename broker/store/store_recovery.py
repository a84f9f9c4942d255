"""Recovery of a whole store: the end of the log, and missing or excess entries of queues and index.

Source: DefaultMessageStore.recover, CommitLog.recoverNormally, recoverAbnormally @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.entry_check import EntryCheck
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.index_tail import HEADER, HEADER_SIZE
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.queue_folders import list_queues
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.recovery import (
    Pass,
    scan_log,
    start_after_crash,
    start_after_stop,
    without_torn,
)
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.properties import INNER_MULTI_QUEUE_OFFSET
from twistmq.protocol.record import MessageRecord, StoredMessage

__all__ = ["StoreRecovery", "require_commit_log"]

#: The number of records entered at a time.
_BATCH_COUNT = 512


def require_commit_log(
    io: IStoreIO, settings: StoreSettings, checkpoint: Checkpoint, crashed: bool
) -> None:
    """Refuse a store whose whole commit log is missing, before anything in it is changed.

    Differs from Apache, whose broker then removes the queues and starts over. A log whose old files
    were removed still has the newest one, and a new store has no other files that refer to
    messages. After a crash, only a checkpoint proves that the log was ever on disk.

    :param crashed: whether the last stop was not clean.
    :raises StoreDamaged: when other files refer to messages; the text names them and a remedy.
    """
    directory = settings.commit_log_path
    if any(name.isdecimal() and io.file_size(f"{directory}/{name}")
           for name in io.list_directory(directory)):
        return
    was_durable = checkpoint.physic_msg_timestamp > 0 or checkpoint.index_msg_timestamp > 0
    if crashed and not was_durable:
        return
    telling = [name for name in ("consumequeue", "batchconsumequeue")
               if _has_queue_files(io, settings.path(name))]
    if _has_index_items(io, settings.path("index")):
        telling.append("index")
    if was_durable:
        telling.append("checkpoint")
    if telling:
        raise StoreDamaged(
            f"the commit log {directory} has no file, but other files refer to its messages under "
            f"{settings.store_path_root_dir}: {', '.join(telling)}. Restore the folder, or set "
            "storePathCommitLog to its path. To discard the messages, remove these files and "
            "start again")


def _has_queue_files(io: IStoreIO, directory: str) -> bool:
    """Return whether any queue in a directory of queues has a file."""
    return any(
        name.isdecimal()
        for topic, queue_id in list_queues(io, directory)
        for name in io.list_directory(f"{directory}/{topic}/{queue_id}"))


def _has_index_items(io: IStoreIO, directory: str) -> bool:
    """Return whether any index file has items; a crash may leave one without items."""
    for name in io.list_directory(directory):
        if name.isdecimal():
            file = io.open_file(f"{directory}/{name}")
            header = file.read_at(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
            file.close()
            if HEADER.unpack(header)[-1] > 1:
                return True
    return False


class StoreRecovery:
    """Makes the loaded parts of a store consistent.

    :param crashed: whether the last stop was not clean.
    :param lower_checkpoint: see ``CheckpointFile.lower``.
    """

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexFiles | None,
        dispatch: Dispatch,
        crashed: bool,
        lower_checkpoint: Callable[[int, int], None],
    ) -> None:
        self._settings = settings
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatch = dispatch
        self._crashed = crashed
        self._lower_checkpoint = lower_checkpoint
        #: The store time of the newest message that is certainly durable, in ms.
        self._durable_ms = 0
        #: The log has been read up to this offset.
        self._end = 0
        #: The records that wait to be entered.
        self._batch: list[MessageRecord] = []

    def run(self, checkpoint: Checkpoint) -> int:
        """Find the end of the log, add missing entries to queues and index, and remove excess ones.

        :returns: a commit-log offset; the entries of messages before it are durable.
        """
        log, queues = self._log, self._queues
        self._durable_ms = checkpoint.physic_msg_timestamp
        if not log.starts:
            self._remove_queues()
        start = self._start(checkpoint)
        limit = log.check_heads(start)
        if log.confirmed_end < start:
            # Queues or index have entries of messages that are not confirmed.
            start = log.confirmed_end - log.confirmed_end % log.file_size
            limit = log.check_heads(start)
        entries = EntryCheck(queues, start, self._dispatch) if self._crashed else None
        self._replay(start, limit, entries)
        end = self._end
        if self._crashed or log.peek(end, 8) not in (None, bytes(8)):
            log.truncate(end)
        log.end_at(end)
        if entries is not None:
            entries.finish()
            # The data of a killed process may not be durable.
            log.limit_flushed(start)
        furthest = queues.furthest()
        if furthest is not None and furthest.max_physical > end:
            # This may happen after a loss of power; otherwise files, or bytes in them, were
            # removed.
            self.log.error("the commit log ends at {end}, but consume queues have entries up to "
                           "{place}: entries without a message are removed",
                           end=end, place=furthest.max_physical)
        confirmed = min(end, log.confirmed_end)
        self._cut_index(confirmed)
        queues.cut(confirmed)
        queues.correct_min_offsets(log.min_offset)
        for queue in queues:
            queue.next_offset = queue.max_offset
        self._dispatch.reset(confirmed)
        self._dispatch.confirm_follows = log.framing is None
        self.log.info("the commit log goes from {start} to {end}", start=log.min_offset, end=end)
        return start

    def _cut_index(self, confirmed: int) -> None:
        """Remove the items of messages that are not confirmed; another message may take the place
        of each.

        The checkpoint is lowered first, so that a kill leaves no file that keeps such items.
        """
        log, index = self._log, self._index
        if log.framing is None or index is None or not index.end_physical >= confirmed > 0:
            return
        self._lower_checkpoint(max(1, log.file_timestamp(confirmed - 1)), confirmed)
        for _ in index.cut(confirmed, log.store_timestamp):
            pass

    def _remove_queues(self) -> None:
        """Start over when the log was never on disk; see :func:`require_commit_log`."""
        queues = self._queues
        if any(True for _ in queues):
            self.log.warn("nothing of the commit log was on disk before the crash: its consume "
                          "queues are removed")
        for topic in list(queues.by_topic):
            queues.destroy(topic)
        # If an earlier start was killed here, a loss of power could bring back the names that it
        # removed.
        queues.files.unsynced |= {queues.files.directory, queues.batch_files.directory}
        queues.sync_job()()

    def _start(self, checkpoint: Checkpoint) -> int:
        """Return the offset from which to read the log."""
        if not self._crashed:
            return start_after_stop(self._log, self._newest_entry_end())
        start = start_after_crash(
            self._log,
            checkpoint,
            None if self._index is None else self._index.end_physical,
            self._settings.message_index_safe,
        )
        self.log.warn("the last stop was not clean, recovery starts at {start}", start=start)
        return start

    def _newest_entry_end(self) -> int:
        """Return the offset after the newest message of any queue, if that message exists."""
        log = self._log
        queue = self._queues.furthest()
        if queue is None or queue.max_physical < 0:
            return -1
        entry = self._queues.files_of(queue).entry(queue, queue.max_offset - 1)
        record = None if entry is None else log.read_record(entry[0])
        if record is not None and entry is not None and len(record) == entry[1]:
            return queue.max_physical
        # The entry does not match a record, so read the whole file.
        log_offset = min(queue.max_physical, log.max_offset - 1)
        return max(0, log_offset - log_offset % log.file_size)

    def _replay(self, start: int, limit: int, entries: EntryCheck | None) -> None:
        """Read the log to its end and enter the missing records.

        :param limit: no record is after this offset.
        :param entries: None after a clean stop.
        """
        log = self._log
        self._end = start
        messages = scan_log(log, start, limit, self._settings.check_crc_on_recover,
                            self._passing(entries))
        for message in without_torn(messages, log.file_size, self._durable_ms):
            self._read_to(message.physical_offset + message.size, message.store_timestamp)
            if self._end > log.confirmed_end:
                continue
            if entries is not None:
                entries.check(message)
            if self._is_entered(message):
                continue
            self._batch.append(self._dispatch.record_of(message))
            if len(self._batch) >= _BATCH_COUNT:
                self._enter()
        self._enter()

    def _read_to(self, end: int, store_ms: int) -> None:
        """Note that all confirmed records up to this end are entered, or about to be."""
        self._end = end
        self._log.last_store_timestamp = store_ms
        if end <= self._log.confirmed_end:
            self._dispatch.timestamp = store_ms

    def _passing(self, entries: EntryCheck | None) -> Pass | None:
        """Return the function that skips records that need no decoding; None if each needs it."""
        if entries is None or self._dispatch.filter is not None:
            return None
        check_crc, confirmed = self._settings.check_crc_on_recover, self._log.confirmed_end

        def pass_some(chunk: bytes, at: int, offset: int) -> int:
            # The index must receive its missing items in order.
            self._enter()
            if offset + len(chunk) - at > confirmed:
                chunk = chunk[: max(at, at + confirmed - offset)]
            size, store_ms = entries.skip_indexed_records(chunk, at, offset, check_crc, self._index)
            if size:
                self._read_to(offset + size, store_ms)
            return size

        return pass_some

    def _is_entered(self, message: StoredMessage) -> bool:
        """Return whether queue and index already contain a message, as in most cases."""
        if self._index is not None and message.physical_offset >= self._index.end_physical:
            return False
        end = message.physical_offset + message.size
        if INNER_MULTI_QUEUE_OFFSET in message.properties:
            return all(self._has_entry(*entry, end) for entry in self._dispatch.entries_of(message))
        return self._has_entry(message.topic, message.queue_id, message.queue_offset, end)

    def _has_entry(self, topic: str, queue_id: int, queue_offset: int, end: int) -> bool:
        """Return whether a queue has the entry of a message that ends at this commit-log offset."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return False
        return queue_offset < queue.max_offset and end <= queue.max_physical

    def _enter(self) -> None:
        """Enter the waiting records, some of which may have been entered in part."""
        records, self._batch = self._batch, []
        if records:
            self._dispatch.enter(records)
        if self._queues.should_write:
            self._queues.write_all()
