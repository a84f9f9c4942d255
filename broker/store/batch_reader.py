"""Reads batch queues, in which each record may be a batch of messages.

A record is always returned whole, even when the requested offset lies in its middle; the client
skips the messages that it already has. Limits count messages. A record that exceeds a limit is
returned only if it is the first one.

Source: DefaultMessageStore.getMessage, isTheBatchFull, BatchConsumeQueue.iterateFrom @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twistmq.broker.constants import PULL_SIZE_BYTES_MAX
from twistmq.broker.store.batch_files import BatchQueueFiles
from twistmq.broker.store.batch_queue import BATCH_ENTRY, BATCH_ENTRY_SIZE, BatchQueue
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.get_message import (
    GetMessageResult,
    GetMessageStatus,
    MessageFilter,
    entries_to_look_at,
)
from twistmq.broker.store.settings import StoreSettings

__all__ = ["BatchReader"]

#: The smallest total size that a reader can request, in bytes. Source:
#: DefaultMessageStore.getMessage.
_TOTAL_SIZE_LEAST = 100


class BatchReader:
    """Reads the batch queues of one store.

    :param is_in_memory: returns whether an offset of the commit log is likely in the page cache.
    """

    def __init__(
        self,
        settings: StoreSettings,
        commit_log: CommitLog,
        files: BatchQueueFiles,
        is_in_memory: Callable[[int], bool],
    ) -> None:
        self.settings = settings
        self._log = commit_log
        self._files = files
        self._is_in_memory = is_in_memory

    def get_message(
        self,
        queue: BatchQueue,
        offset: int,
        max_count: int,
        message_filter: MessageFilter | None,
        max_total_size: int,
    ) -> GetMessageResult:
        """Read from an offset that the queue contains. See MessageStore.get_message."""
        result = GetMessageResult(
            GetMessageStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset)
        count = max(max_count, 1)
        if message_filter is not None:
            # Entries that do not match are skipped until the read has examined its share of
            # entries.
            count = max(count, entries_to_look_at(
                message_filter, self.settings.max_filter_message_size, BATCH_ENTRY_SIZE))
        entries = self._files.read(queue, offset, count)
        if not entries:
            # The file of this offset has been removed since.
            result.status = GetMessageStatus.OFFSET_FOUND_NULL
            result.next_begin_offset = queue.min_offset
            return result
        size_max = min(max(max_total_size, _TOTAL_SIZE_LEAST), PULL_SIZE_BYTES_MAX)
        self._collect(result, entries, max_count, size_max, message_filter)
        return result

    def _collect(
        self, result: GetMessageResult, entries: bytes, count_max: int, size_max: int,
        message_filter: MessageFilter | None,
    ) -> None:
        """Collect the records of consecutive entries until a limit is reached."""
        log = self._log
        skip_below, physical_offset = 0, log.max_offset
        for physical_offset, size, code, _, base, messages, _, _ in BATCH_ENTRY.iter_unpack(
                entries):
            if self._is_full(result, physical_offset, size, messages, count_max, size_max):
                break
            result.next_begin_offset = base + messages
            if physical_offset < skip_below:
                continue
            if message_filter is not None and not message_filter.match_queue_entry(code):
                continue
            record = log.read(physical_offset, size)
            if record is None:
                if not result.messages:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                skip_below = log.next_file_start(physical_offset)
                continue
            if message_filter is not None and not message_filter.match_record(record):
                result.filtered_count += 1
                continue
            result.messages.append(record)
            result.size += size
            result.message_count += messages
            result.status = GetMessageStatus.FOUND
            skip_below = 0
        result.suggest_slave = not self._is_in_memory(physical_offset)

    def _is_full(
        self, result: GetMessageResult, physical_offset: int, size: int, messages: int,
        count_max: int, size_max: int,
    ) -> bool:
        """Return whether a record no longer fits into a result; the first one always fits."""
        if not result.messages:
            return False
        settings = self.settings
        if self._is_in_memory(physical_offset):
            bytes_limit = settings.max_transfer_bytes_on_message_in_memory
            count_limit = settings.max_transfer_count_on_message_in_memory
        else:
            bytes_limit = settings.max_transfer_bytes_on_message_in_disk
            count_limit = settings.max_transfer_count_on_message_in_disk
        total = result.size + size
        return (result.message_count + messages > count_max or total > min(size_max, bytes_limit)
                or result.message_count >= count_limit)
