"""Reading messages by queue offset, by commit-log offset, by key and by time.

The pull path is here: it reads one slice of entries, then one slice of the commit log for each
message.

Source: DefaultMessageStore.getMessage, queryMessage, ConsumeQueue.binarySearchInQueueByTime @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator

from twistmq.broker.constants import PULL_SIZE_BYTES_MAX
from twistmq.broker.store.batch_queue import NO_MIN_OFFSET, BatchQueue
from twistmq.broker.store.batch_reader import BatchReader
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.consume_queue import ENTRY, ENTRY_SIZE, ConsumeQueue
from twistmq.broker.store.extension_reader import ExtendedFilter
from twistmq.broker.store.get_message import (
    GetMessageResult,
    GetMessageStatus,
    KnownAnswers,
    MessageFilter,
    entries_to_look_at,
)
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.read_fast_path import FILTERED, FOUND, REMOVED, collect_messages
from twistmq.broker.store.settings import StoreSettings
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.properties import index_keys
from twistmq.protocol.record import decode_record
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["QueueReader"]

#: The smallest total size that a reader can request, in bytes. Source:
#: DefaultMessageStore.getMessage.
_TOTAL_SIZE_LEAST = 100
#: The number of entries first read per requested message, when the results of a filter are known:
#: reading a filter's full share of 800 entries takes as long as reading ten messages.
_FEW = 2
_STATUS_OF_OUTCOME = {
    FOUND: GetMessageStatus.FOUND,
    FILTERED: GetMessageStatus.NO_MATCHED_MESSAGE,
    REMOVED: GetMessageStatus.MESSAGE_WAS_REMOVING,
}


class QueueReader:
    """Reads one store.

    :param memory_bytes: the size of the machine's memory, which determines which messages count as
        cached.
    """

    def __init__(
        self,
        settings: StoreSettings,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexFiles | None,
        memory_bytes: int,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._memory_bytes = memory_bytes
        self._batches = BatchReader(settings, commit_log, queues.batch_files, self._is_cached)
        self.change_settings(settings)

    def change_settings(self, settings: StoreSettings) -> None:
        """Use other limits from now on."""
        self._settings = self._batches.settings = settings
        #: The limits of a read in bytes and messages, for messages in the page cache and for other
        #: messages.
        self._memory_limits = (
            settings.max_transfer_bytes_on_message_in_memory,
            settings.max_transfer_count_on_message_in_memory,
        )
        self._disk_limits = (
            settings.max_transfer_bytes_on_message_in_disk,
            settings.max_transfer_count_on_message_in_disk,
        )
        ratio = settings.access_message_in_memory_max_ratio
        self._in_memory_bytes = self._memory_bytes * ratio // 100

    # --- by queue offset

    def _is_cached(self, physical_offset: int) -> bool:
        """Return whether an offset of the commit log is assumed to be in the page cache."""
        return self._log.max_offset - physical_offset <= self._in_memory_bytes

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a queue contains a message that is recent enough to be cached."""
        log_offset = self._queues.commit_log_offset(topic, queue_id, queue_offset)
        return log_offset >= 0 and self._is_cached(log_offset)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        message_filter: MessageFilter | None,
        max_total_size: int,
    ) -> GetMessageResult:
        """Read from a queue. See MessageStore.get_message, which also counts the read."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            # Apache's broker creates the requested queue, so it is never missing, only empty.
            low = NO_MIN_OFFSET if self._queues.is_batch(topic, queue_id) else 0
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, 0)
        low, high = queue.min_offset, queue.max_offset
        if offset < low:
            return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        if isinstance(queue, BatchQueue):
            return self._batches.get_message(
                queue, offset, max_count, message_filter, max_total_size)
        count = share = max(max_count, 1)
        known_answers: KnownAnswers | None = None
        if message_filter is not None:
            # Entries that do not match are skipped until the read has examined its share of
            # entries.
            share = max(share, entries_to_look_at(
                message_filter, self._settings.max_filter_message_size, ENTRY_SIZE))
            known_answers = getattr(message_filter, "known_answers", None)
        entry_count = share if known_answers is None else min(_FEW * count, share)
        entries = self._queues.files.read(queue, offset, entry_count)
        if entries is None:
            per_file = self._settings.mapped_file_size_consume_queue // ENTRY_SIZE
            following = offset + per_file - offset % per_file
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, following, low, high)
        result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, low, high)
        size_limit = min(max(max_total_size, _TOTAL_SIZE_LEAST), PULL_SIZE_BYTES_MAX)
        # Readers of different queues may read different files of the log.
        first: int = ENTRY.unpack_from(entries)[0] if entries else 0
        answers = b""
        if known_answers is not None:
            answers = known_answers(queue_id, offset, first, len(entries) // ENTRY_SIZE)
            are_all = entry_count == share or len(entries) < entry_count * ENTRY_SIZE
            if not are_all and len(answers) - answers.count(0) < count:
                entries = self._queues.files.read(queue, offset, share) or entries
                answers = known_answers(queue_id, offset, first, len(entries) // ENTRY_SIZE)
        extensions = self._queues.files.extensions
        if extensions is not None and message_filter is not None and (
            len(answers) * ENTRY_SIZE < len(entries)
        ):
            message_filter = ExtendedFilter(extensions.reader(queue), message_filter)
        self._collect(result, entries, first, max_count, size_limit, message_filter, answers)
        return result

    def _collect(
        self,
        result: GetMessageResult,
        entries: bytes,
        first: int,
        count_max: int,
        size_limit: int,
        message_filter: MessageFilter | None,
        answers: bytes,
    ) -> None:
        """Collect the messages of consecutive entries until a limit is reached."""
        log = self._log
        log_map, map_start, map_end = log.map_at(first)
        messages, total, examined, filtered, last_physical, outcome = collect_messages(
            entries, log_map, map_start, map_end, log.read, log.next_file_start, count_max,
            size_limit, log.max_offset - self._in_memory_bytes, self._memory_limits,
            self._disk_limits, message_filter, answers)
        result.messages = messages
        result.size = total
        result.message_count = len(messages)
        result.filtered_count = filtered
        result.next_begin_offset += examined
        result.status = _STATUS_OF_OUTCOME[outcome]
        result.suggest_slave = log.max_offset - last_physical > self._in_memory_bytes

    # --- by key

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> tuple[list[bytes], int, int]:
        """Find messages by a key or a unique id without pausing; see :meth:`querying`."""
        return run_to_completion(self.querying(topic, key, max_count, begin_ms, end_ms))

    def querying(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, tuple[list[bytes], int, int]]:
        """Find messages by a key or a unique id; yields where it can pause.

        Hundreds of thousands of items may have the hash of one key.

        :param begin_ms: the first store time of the range; ``end_ms`` is the last one.
        :returns: (records, the oldest first; store time in ms and commit-log offset of the newest
            message in the index).
        """
        if self._index is None:
            return [], 0, 0
        max_count = min(max_count, self._settings.max_msgs_num_batch)
        log_offsets, newest_ms, newest_offset = yield from self._index.finding(
            topic, key, max_count, begin_ms, end_ms, self._log.store_timestamp)
        records = []
        for offset in sorted(set(log_offsets)):
            record = self._log.read_record(offset)
            if record is not None and _has_key(record, topic, key):
                records.append(record)
            yield
        return records, newest_ms, newest_offset

    # --- by time

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: str = "lower"
    ) -> int:
        """Find a queue offset by store time.

        :param timestamp: in ms.
        :param boundary: ``lower`` finds the first message stored at this time or later, or the end
            of the queue; ``upper`` finds the last message stored at this time or earlier, or the
            beginning of the queue.
        """
        upper = boundary == "upper"
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_offset <= queue.min_offset:
            return 0 if queue is None else queue.min_offset
        if isinstance(queue, BatchQueue):
            return self._queues.batch_files.offset_by_time(queue, timestamp, upper)
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            stored = self._entry_time(queue, middle)
            if stored < timestamp or (upper and stored == timestamp):
                low = middle + 1
            else:
                high = middle
        if not upper:
            return low
        return max(low - 1, queue.min_offset)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message in ms; -1 when it cannot be read."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._entry_time(queue, queue_offset)

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time in ms of the first message of a queue, or of the whole log.

        :returns: -1 when there is no message.
        """
        if topic is None:
            return self._log.file_timestamp(self._log.min_offset)
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._entry_time(queue, queue.min_offset)

    def _entry_time(self, queue: ConsumeQueue, offset: int) -> int:
        """Return the store time of the message at a queue offset; -1 when it cannot be read."""
        entry = self._queues.files_of(queue).entry(queue, offset)
        return -1 if entry is None else self._log.store_timestamp(entry[0])


def _has_key(record: bytes, topic: str, key: str) -> bool:
    """Return whether a record has this key, and not only a key with the same hash."""
    try:
        message = decode_record(record, check_crc=False)
    except StoreDamaged:
        return False
    return message.topic == topic and key in index_keys(message.properties_map())
