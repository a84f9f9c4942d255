"""The loop that reads the messages of consecutive queue entries from the commit log.

The caller passes the map of the file that contains most of the messages, and a function that reads
from other files. Leaf module of the hot path: typed, so that mypyc compiles it.

Source: DefaultMessageStore.getMessage @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twistmq.broker.store.consume_queue import ENTRY_SIZE, FILLER_SIZE
from twistmq.broker.store.get_message import MessageFilter
from twistmq.broker.store.interfaces import ReadMap
from twistmq.protocol.big_endian import int32_at, int64_at

if TYPE_CHECKING:
    # Only mypyc uses it: machine integers make the loop faster.
    from mypy_extensions import i64

__all__ = ["FILTERED", "FOUND", "REMOVED", "Limits", "collect_messages"]

#: The outcome of a read: messages were found, or all were filtered out, or the records were
#: removed.
FOUND, FILTERED, REMOVED = 0, 1, 2

#: The (bytes, messages) that a read may return.
Limits = tuple[int, int]


def collect_messages(
    entries: bytes,
    log_map: ReadMap | None,
    map_start: int,
    map_end: int,
    read: Callable[[int, int], bytes | None],
    next_file_start: Callable[[int], int],
    count_max: int,
    size_max: int,
    in_memory_from: int,
    in_memory: Limits,
    on_disk: Limits,
    message_filter: MessageFilter | None,
    answers: bytes,
) -> tuple[list[bytes], int, int, int, int, int]:
    """Collect messages until a limit is reached.

    :param entries: whole queue entries.
    :param log_map: the commit log from ``map_start`` to ``map_end``, all of it readable.
    :param read: reads (offset, size) from any file of the commit log; returns None if it is gone.
    :param in_memory_from: from this commit-log offset on, the limits for memory apply; before it,
        the limits for the disk apply.
    :param answers: earlier results of the filter for the first entries, see MessageFilter.
    :returns: the records, their size in bytes, the number of entries examined, the number of
        records that the filter rejected, the commit-log offset of the last entry, and FOUND,
        FILTERED or REMOVED.
    """
    messages: list[bytes] = []
    total: i64 = 0
    count: i64 = 0
    examined: i64 = 0
    filtered = 0
    last_physical: i64 = 0
    skip_below: i64 = 0
    outcome = FILTERED
    log_start: i64 = map_start
    log_end: i64 = map_end
    count_limit: i64 = count_max
    size_limit: i64 = size_max
    memory_start: i64 = in_memory_from
    physical_offset: i64
    size: i64
    answer_count: i64 = len(answers)
    entry_filter = message_filter if getattr(message_filter, "asks_entries", True) else None
    end: i64 = len(entries) - ENTRY_SIZE
    at: i64 = -ENTRY_SIZE
    while at < end:
        at += ENTRY_SIZE
        physical_offset = int64_at(entries, at)
        size = int32_at(entries, at + 8)
        if total:
            limits = in_memory if physical_offset >= memory_start else on_disk
            if (
                count >= count_limit
                or count >= limits[1]
                or total + size > size_limit
                or total + size > limits[0]
            ):
                break
        last_physical = physical_offset
        has_answer: bool = examined < answer_count
        may_match: bool = not has_answer or answers[examined] != 0
        examined += 1
        if physical_offset < skip_below:
            continue
        if not may_match or (
            not has_answer and entry_filter is not None
            and not entry_filter.match_queue_entry(int64_at(entries, at + 12))
        ):
            if not total:
                outcome = FILTERED
            continue
        record: bytes | None
        if log_map is not None and physical_offset >= log_start and (
            0 < size <= log_end - physical_offset
        ):
            start: i64 = physical_offset - log_start
            record = log_map[start : start + size]
        else:
            record = read(physical_offset, size)
        if record is None:
            if not total:
                outcome = REMOVED
            if size != FILLER_SIZE:
                # Differs from Apache: a filler does not skip other messages, because a filler in
                # mid-queue would hide all messages of the first file.
                skip_below = next_file_start(physical_offset)
            continue
        if not has_answer and message_filter is not None and (
            not message_filter.match_record(record)
        ):
            if not total:
                outcome = FILTERED
            filtered += 1
            continue
        messages.append(record)
        total += len(record)
        count += 1
        skip_below = 0
    return messages, total, examined, filtered, last_physical, FOUND if count else outcome
