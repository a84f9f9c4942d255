"""The loop that skips the records that recovery does not have to decode, which are most of them.

After a crash the log is read from the beginning of a file, although the queues already contain
almost all of its records. Such a record is checked here as bytes, without creating an object;
missing index items are added. The loop stops at the first record that is in any way unusual, and
recovery decodes that one. Leaf module: typed, so that mypyc compiles it.

Source: CommitLog.recoverAbnormally, checkMessageAndReturnSize @5.3.3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

from twistmq.broker.store.append_fast_path import Queues
from twistmq.broker.store.consume_queue import ENTRY, ENTRY_SIZE, ConsumeQueue
from twistmq.broker.store.entry_heads import record_follows
from twistmq.broker.store.extension_unit import ADDRESS_MAX
from twistmq.broker.store.index_tail import IndexTail
from twistmq.protocol.properties import (
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    TAGS,
    UNIQ_KEY,
    index_keys,
    pick_marks,
    pick_properties,
)
from twistmq.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_POSITION,
    SYS_BORN_HOST_V6,
    SYS_INNER_BATCH,
    SYS_STORE_HOST_V6,
    has_queue_entry,
)

__all__ = ["Ends", "ReadEntries", "record_keys", "skip_indexed_records"]

#: The queue offset after the last message, by topic and queue id.
Ends = dict[tuple[str, int], int]
#: The entries of a queue that were read, and the offset of the first one.
ReadEntries = dict[ConsumeQueue, tuple[int, bytes]]

#: (size, magic, CRC, queue id, queue offset, physical offset, system flag).
_HEAD: Final = struct.Struct(">iiii4xqqi")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">q")
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_TAGS: Final = TAGS.encode() + b"\x01"
_KEY_MARKS: Final = pick_marks((UNIQ_KEY, KEYS))
_LIGHT: Final = INNER_MULTI_QUEUE_OFFSET.encode()
#: The size of the fields before the body when both hosts are IPv4, and the additional size of an
#: IPv6 host.
_FIXED_SIZE: Final = RECORD_SIZE_MIN - 3
_V6_SIZE: Final = 12


def skip_indexed_records(
    chunk: bytes,
    at: int,
    offset: int,
    check_crc: bool,
    index: IndexTail | None,
    next_index: Callable[[], IndexTail] | None,
    computed_topics: frozenset[str],
    queues: Queues,
    read: ReadEntries,
    ends: Ends,
    head_size: int = 0,
) -> tuple[int, int]:
    """Skip whole records that their queues contain, and add the missing ones to the index.

    :param chunk: bytes of the log; byte ``at`` of it is at commit-log offset ``offset``.
    :param index: contains all records before this one; None if it does not exist.
    :param next_index: starts another file when the index is full.
    :param computed_topics: topics whose entries hold a value that a plugin computed instead of the
        hash of the tag.
    :param read: the entries of the queues; a record whose entry is not among them is not skipped.
    :param ends: updated with the queue offset of each skipped record.
    :param head_size: the size of the head in front of each record, see ``entry_heads``; 0 without
        heads.
    :returns: the number of bytes skipped, and the store time in ms of the last record.
    """
    begin = skipped_end = at
    store_ms = 0
    #: The position of the last record's store time in the chunk.
    newest = -1
    remaining = len(chunk) - at
    while remaining >= RECORD_SIZE_MIN + head_size:
        if head_size:
            if not record_follows(chunk, at, offset):
                break
            at += head_size
            offset += head_size
            remaining -= head_size
        head = _HEAD.unpack_from(chunk, at)
        size: int = head[0]
        magic: int = head[1]
        queue_id: int = head[3]
        queue_offset: int = head[4]
        physical_offset: int = head[5]
        sys_flag: int = head[6]
        if size > remaining or physical_offset != offset or magic not in _MAGICS:
            break
        if sys_flag & SYS_INNER_BATCH or not has_queue_entry(sys_flag):
            break
        end = at + size
        body = at + _FIXED_SIZE
        time = at + STORE_TIMESTAMP_POSITION
        if sys_flag & SYS_BORN_HOST_V6:
            body += _V6_SIZE
            time += _V6_SIZE
        if sys_flag & SYS_STORE_HOST_V6:
            body += _V6_SIZE
        if body > end:
            break
        # The lengths must add up, as in ``decode_record``.
        body_length: int = _INT.unpack_from(chunk, body - 4)[0]
        topic = body + body_length
        if body_length < 0 or topic + 4 > end:
            break
        if magic == MAGIC_V2:
            topic_length: int = _SHORT.unpack_from(chunk, topic)[0]
            topic += 2
        else:
            topic_length = chunk[topic]
            topic += 1
        properties = topic + topic_length + 2
        if topic_length <= 0 or properties > end:
            break
        properties_length: int = _SHORT.unpack_from(chunk, properties - 2)[0]
        if properties_length < 0 or properties + properties_length != end:
            break
        # A zero may come from a sector that was never written.
        if chunk.find(b"\0", topic, properties - 2) >= 0 or chunk.find(b"\0", properties, end) >= 0:
            break
        if chunk.find(_LIGHT, properties, end) >= 0:
            # The record also has entries in light queues.
            break
        body_end = body + body_length
        if check_crc and body_length and zlib.crc32(chunk[body:body_end]) & 0x7FFFFFFF != head[2]:
            break
        name = str(chunk[topic : topic + topic_length], "utf-8", "replace")
        by_id = queues.get(name)
        queue = None if by_id is None else by_id.get(queue_id)
        # The ``tail_start`` of a batch queue is less than any offset.
        if queue is None or not queue.min_offset <= queue_offset < queue.tail_start:
            break
        queue_entries = read.get(queue)
        if queue_entries is None or offset + size > queue.max_physical:
            break
        first, entries = queue_entries
        entry = (queue_offset - first) * ENTRY_SIZE
        if not 0 <= entry <= len(entries) - ENTRY_SIZE:
            break
        entered_offset: int
        entered_size: int
        code: int
        entered_offset, entered_size, code = ENTRY.unpack_from(entries, entry)
        if entered_offset != physical_offset or entered_size != size:
            break
        if code <= ADDRESS_MAX:
            # The extension unit has to be checked.
            break
        # A torn write leaves zeros at the end of an entry; they are correct only for a message
        # without a tag.
        if code & 0xFF == 0 and (
            code != 0 or name in computed_topics or chunk.find(_TAGS, properties, end) >= 0
        ):
            break
        ends[name, queue_id] = queue_offset + 1
        newest = time
        if index is not None and offset >= index.end_physical:
            store_ms = _LONG.unpack_from(chunk, time)[0]
            for key in record_keys(chunk, properties, end):
                if not index.put(queue.key_hash, key, offset, store_ms):
                    assert next_index is not None
                    index = next_index()
                    index.put(queue.key_hash, key, offset, store_ms)
        at = skipped_end = end
        offset += size
        remaining -= size
    if newest >= 0:
        store_ms = _LONG.unpack_from(chunk, newest)[0]
    return skipped_end - begin, store_ms


def record_keys(chunk: bytes, begin: int, end: int) -> list[str]:
    """List the index keys of a record without splitting all its properties.

    :param begin: the position of its properties in the chunk; they extend to ``end``.
    """
    text = str(chunk[begin:end], "utf-8", "replace")
    return index_keys(pick_properties(text, _KEY_MARKS))


assert _HEAD.size == PHYSICAL_OFFSET_POSITION + 12
