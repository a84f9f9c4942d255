"""The loops that every message passes when it is stored: encoding, then dispatching.

They do not deal with files. ``encode_records`` assigns offsets to records and returns the bytes to
write; ``dispatch_records`` enters the records into queues and index once the bytes are written.
Large numbers of records are encoded in advance, a part at a time, and ``place_records`` then
assigns their offsets at once. Leaf module of the hot path: typed, so that mypyc compiles it.

Source: CommitLog.DefaultAppendMessageCallback, CommitLogDispatcherBuildConsumeQueue,
IndexService.buildIndex @5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twistmq.broker.store.batch_queue import BATCH_MESSAGES_MAX, BatchQueue
from twistmq.broker.store.consume_queue import (
    ENTRY,
    ENTRY_SIZE,
    MISSING_MAX,
    OFFSET_MAX,
    ConsumeQueue,
)
from twistmq.broker.store.entry_heads import (
    ENTRY_HEAD_SIZE,
    ENTRY_SIZE_MAX,
    EntryHeads,
    entry_filler,
)
from twistmq.broker.store.index_tail import IndexTail
from twistmq.broker.store.stored_records import TagsCode
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.properties import INNER_BASE, java_string_hash, with_property
from twistmq.protocol.record import (
    BLANK_SIZE_MIN,
    QUEUE_OFFSET_POSITION,
    STORE_TIMESTAMP_POSITION,
    SYS_BORN_HOST_V6,
    SYS_INNER_BATCH,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    MessageRecord,
    blank_record,
    encode_record,
    has_queue_entry,
    topic_part,
)

__all__ = ["Absurd", "EncodedRecords", "dispatch_records", "encode_ahead", "encode_records",
           "give_back_offsets", "place_records", "records_in_queues", "set_tags_codes"]

Queues = dict[str, dict[int, ConsumeQueue]]
#: Records and their concatenated bytes, which do not contain the offsets yet.
EncodedRecords = tuple[Sequence[MessageRecord], bytearray]
#: Records that cannot be in any queue, each with the reason.
Absurd = list[tuple[MessageRecord, str]]

#: The queue offset and the physical offset, which are neighbours, and the store time.
_PLACES: Final = struct.Struct(">qq")
_TIME: Final = struct.Struct(">q")


def encode_records(
    records: Sequence[MessageRecord],
    queues: Queues,
    make_queue: Callable[[str, int], ConsumeQueue],
    dispatch_filter: Callable[[MessageRecord], bool] | None,
    log_offset: int,
    file_size: int,
    now_ms: int,
    body_size_max: int,
    assign_light: Callable[[MessageRecord, ConsumeQueue], None] | None = None,
    framing: EntryHeads | None = None,
) -> list[tuple[int, bytes]]:
    """Assign offsets to records and encode them.

    :param make_queue: creates a queue that is not in ``queues`` and adds it there.
    :param dispatch_filter: returns whether a record enters its queue; with None, all records do
        except half messages.
    :param log_offset: the end of the commit log.
    :param file_size: length of a commit-log file in bytes; a record never spans two files.
    :param assign_light: assigns the offsets of a record in light queues; None disables them.
    :param framing: makes each record the body of an entry; None for a log without entries.
    :returns: (commit-log offset, bytes) for each file that is written to, including the filler of a
        finished file.
    :raises MessageIllegal: when a record breaks a limit; in that case no queue offset is taken.
    """
    writes: list[tuple[int, bytes]] = []
    parts: list[bytes] = []
    start = log_offset
    position = log_offset
    room = file_size - log_offset % file_size
    head_size = 0
    if framing is not None:
        framing.begin()
        head_size = ENTRY_HEAD_SIZE
    index = 0
    try:
        for record in records:
            if len(record.body) > body_size_max:
                raise MessageIllegal(f"body of {len(record.body)} bytes, {body_size_max} fit")
            enters = _enters(record, dispatch_filter)
            queue = _queue_of(record, queues, make_queue)
            record.enters_queue = enters
            record.queue_offset = queue.next_offset if enters else 0
            if record.message_count != 1 or record.sys_flag & SYS_INNER_BATCH:
                _begin_inner_batch(record, queue)
            if assign_light is not None and enters:
                assign_light(record, queue)
            record.store_timestamp = now_ms
            record.physical_offset = position + head_size
            topic = queue.topic_part
            data = encode_record(record, topic)
            size = record.size + head_size
            if size + BLANK_SIZE_MIN > room:
                if size + BLANK_SIZE_MIN > file_size:
                    raise MessageIllegal(
                        f"{record.size} bytes, {file_size - BLANK_SIZE_MIN - head_size} fit")
                parts.append(blank_record(room) if framing is None else entry_filler(room))
                writes.append((start, b"".join(parts)))
                parts = []
                position += room
                start = position
                room = file_size
                record.physical_offset = position + head_size
                data = encode_record(record, topic)
            if framing is not None:
                if size > ENTRY_SIZE_MAX:
                    raise MessageIllegal(
                        f"{record.size} bytes, {ENTRY_SIZE_MAX - head_size} fit into an entry")
                parts.append(framing.head(position, record.size))
            parts.append(data)
            position += size
            room -= size
            record.next_offset = position
            if enters:
                queue.next_offset += record.message_count
            index += 1
    except MessageIllegal as error:
        give_back_offsets(records[:index], queues)
        if framing is not None:
            framing.undo()
        error.record_index = index
        raise
    writes.append((start, b"".join(parts)))
    return writes


def encode_ahead(
    records: Sequence[MessageRecord], size_max: int, body_size_max: int
) -> bytearray:
    """Encode records before their offsets are known; inner batches are not allowed.

    :param size_max: the largest record that a file can hold, in bytes.
    :raises MessageIllegal: when a record breaks a limit.
    """
    data = bytearray()
    topic: str | None = None
    part = b""
    for index, record in enumerate(records):
        try:
            if len(record.body) > body_size_max:
                raise MessageIllegal(f"body of {len(record.body)} bytes, {body_size_max} fit")
            if record.topic != topic:
                part = topic_part(record.topic)
                topic = record.topic
            data += encode_record(record, part)
            if record.size > size_max:
                raise MessageIllegal(f"{record.size} bytes, {size_max} fit")
        except MessageIllegal as error:
            error.record_index = index
            raise
    return data


def place_records(
    encoded: Sequence[EncodedRecords],
    queues: Queues,
    make_queue: Callable[[str, int], ConsumeQueue],
    dispatch_filter: Callable[[MessageRecord], bool] | None,
    log_offset: int,
    file_size: int,
    now_ms: int,
    framing: EntryHeads | None = None,
) -> list[tuple[int, bytes]]:
    """Assign offsets to encoded records.

    :param encoded: from ``encode_ahead``; the offsets are written into its bytes.
    :returns: the same as ``encode_records``, which also describes the other parameters.
    """
    writes: list[tuple[int, bytes]] = []
    parts: list[bytes | bytearray] = []
    start = log_offset
    position = log_offset
    room = file_size - log_offset % file_size
    head_size = 0
    if framing is not None:
        framing.begin()
        head_size = ENTRY_HEAD_SIZE
    for records, data in encoded:
        at = 0
        begin = 0
        for record in records:
            enters = _enters(record, dispatch_filter)
            queue = _queue_of(record, queues, make_queue)
            size = record.size + head_size
            if size + BLANK_SIZE_MIN > room:
                parts.append(data[begin:at])
                begin = at
                parts.append(blank_record(room) if framing is None else entry_filler(room))
                writes.append((start, b"".join(parts)))
                parts = []
                position += room
                start = position
                room = file_size
            if framing is not None:
                parts.append(data[begin:at])
                begin = at
                parts.append(framing.head(position, record.size))
            record.enters_queue = enters
            offset = queue.next_offset if enters else 0
            record.queue_offset = offset
            record.physical_offset = position + head_size
            record.store_timestamp = now_ms
            _PLACES.pack_into(data, at + QUEUE_OFFSET_POSITION, offset, record.physical_offset)
            time_at = at + STORE_TIMESTAMP_POSITION
            if record.sys_flag & SYS_BORN_HOST_V6:
                time_at += 12
            _TIME.pack_into(data, time_at, now_ms)
            at += record.size
            position += size
            room -= size
            record.next_offset = position
            if enters:
                queue.next_offset += 1
        parts.append(data[begin:] if begin else data)
    writes.append((start, b"".join(parts)))
    return writes


def _enters(
    record: MessageRecord, dispatch_filter: Callable[[MessageRecord], bool] | None
) -> bool:
    """Return whether a record enters its queue."""
    return has_queue_entry(record.sys_flag) and (
        dispatch_filter is None or dispatch_filter(record))


def _queue_of(
    record: MessageRecord, queues: Queues, make_queue: Callable[[str, int], ConsumeQueue]
) -> ConsumeQueue:
    """Return the queue of a record, creating it if it does not exist."""
    cached_queue = record.queue
    if isinstance(cached_queue, ConsumeQueue) and (
            cached_queue.topic is record.topic and cached_queue.queue_id == record.queue_id
            and not cached_queue.is_removed):
        return cached_queue
    by_id = queues.get(record.topic)
    queue = None if by_id is None else by_id.get(record.queue_id)
    if queue is None:
        queue = make_queue(record.topic, record.queue_id)
    record.queue = queue
    # Share one string object, so that the next look-up compares no characters.
    record.topic = queue.topic
    return queue


def _begin_inner_batch(record: MessageRecord, queue: ConsumeQueue) -> None:
    """Write the first queue offset of an inner batch into its properties.

    :raises MessageIllegal: when the record is not a batch, or the queue does not accept batches.
    """
    if not isinstance(queue, BatchQueue):
        raise MessageIllegal("an inner batch needs a batch queue, this one is plain")
    if not record.sys_flag & SYS_INNER_BATCH:
        raise MessageIllegal(f"{record.message_count} messages in a record that is not an inner "
                             "batch")
    if not 0 < record.message_count <= BATCH_MESSAGES_MAX:
        raise MessageIllegal(
            f"{record.message_count} messages in an inner batch, {BATCH_MESSAGES_MAX} fit")
    record.properties = with_property(record.properties, INNER_BASE, str(record.queue_offset))


def give_back_offsets(records: Sequence[MessageRecord], queues: Queues) -> None:
    """Release the queue offsets that ``encode_records`` took."""
    for record in records:
        if record.enters_queue:
            queues[record.topic][record.queue_id].next_offset -= record.message_count


def set_tags_codes(records: Sequence[MessageRecord], tags_codes: Mapping[str, TagsCode]) -> None:
    """Set the tags codes of records whose topic does not use the hash of the tag."""
    for record in records:
        if record.topic in tags_codes:
            record.tags_code = tags_codes[record.topic](record)


def records_in_queues(records: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Return the records that entered a queue."""
    return [record for record in records if record.enters_queue]


def dispatch_records(
    records: Sequence[MessageRecord],
    queues: Queues,
    make_queue: Callable[[str, int], ConsumeQueue],
    restart_queue: Callable[[ConsumeQueue, int], None],
    dirty: dict[ConsumeQueue, None],
    absurd: Absurd,
    index: IndexTail | None,
    next_index: Callable[[], IndexTail] | None,
) -> int:
    """Enter stored records into their queues and the index.

    :param restart_queue: empties a queue and sets its next offset, or leaves it as it is; the
        message then enters only the index.
    :param dirty: receives each queue whose tail was empty.
    :param absurd: receives records with an invalid topic, queue id or queue offset; they enter only
        the index.
    :param index: None if it does not exist.
    :param next_index: starts another file when the index is full.
    :returns: the size of the new entries in bytes.
    """
    added = 0
    for record in records:
        key_hash = 0
        queue: ConsumeQueue | None = None
        if record.enters_queue:
            try:
                queue = _queue_of(record, queues, make_queue)
            except MessageIllegal as error:
                # A send of such a record is refused, but the log of another broker may contain one.
                record.enters_queue = False
                absurd.append((record, str(error)))
        if queue is not None:
            key_hash = queue.key_hash
            tail = queue.tail
            before = len(tail)
            if record.queue_offset == queue.tail_start + before // ENTRY_SIZE:
                tail.extend(ENTRY.pack(record.physical_offset, record.size, record.tags_code))
                queue.max_physical = record.next_offset
            else:
                is_offset = 0 <= record.queue_offset <= OFFSET_MAX
                if is_offset and record.queue_offset < queue.max_offset and (
                    0 <= queue.max_physical <= record.physical_offset
                ):
                    # A newer message with an older offset: the topic was deleted and created
                    # again, or a leader has given offsets a second time.
                    restart_queue(queue, record.queue_offset)
                    before = len(tail)
                if not is_offset or (
                        record.queue_offset - queue.max_offset > MISSING_MAX and queue.max_offset):
                    record.enters_queue = False
                    absurd.append((record, f"{record.topic}-{record.queue_id} cannot have queue "
                                           f"offset {record.queue_offset}"))
                elif isinstance(queue, BatchQueue):
                    queue.add_batch(
                        record.queue_offset, record.message_count, record.physical_offset,
                        record.size, record.tags_code, record.store_timestamp
                    )
                else:
                    queue.add(
                        record.queue_offset, record.physical_offset, record.size, record.tags_code
                    )
            if len(tail) > before:
                added += len(tail) - before
                if before == 0:
                    dirty[queue] = None
        elif record.keys:
            key_hash = java_string_hash(record.topic + "#")
        if index is None or record.physical_offset < index.end_physical:
            # The index already contains the records that recovery dispatches again.
            continue
        if record.sys_flag & SYS_TRANSACTION_MASK == SYS_TRANSACTION_ROLLBACK:
            continue
        for key in record.keys:
            if not index.put(key_hash, key, record.physical_offset, record.store_timestamp):
                assert next_index is not None
                index = next_index()
                index.put(key_hash, key, record.physical_offset, record.store_timestamp)
    return added
