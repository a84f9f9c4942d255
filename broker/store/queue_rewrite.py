"""Queues whose sync failed: are their entries still those of the messages that are in the log?

After a failed sync the kernel may show bytes that it could not write as if they were on disk, or
what was on disk before. So entries are compared with the log as a recovery does; when all are right
their files are written again with the same bytes, which the next sync then covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.entry_check import EntryCheck
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.recovery import scan_log
from twistmq.protocol.errors import StoreDamaged

__all__ = ["compare_entries"]

#: Bytes of records that are passed between two looks at the clock.
_STEP_SIZE: Final = 256 * 1024


def compare_entries(
    log: CommitLog, queues: QueueTable, dispatch: Dispatch, begin: int, end: int
) -> Iterator[None]:
    """Compare the entries of a part of the log that are in files; stops now and then.

    :param begin: in the log, where a record begins or a file ends.
    :param end: the log is dispatched up to here at least.
    :raises StoreDamaged: when an entry is not that of its message, or the log cannot be read.
    """
    entries = EntryCheck(queues, begin, dispatch)
    reached, passed = begin, 0

    def pass_some(chunk: bytes, at: int, offset: int) -> int:
        nonlocal reached, passed
        if passed >= _STEP_SIZE:
            # One record is looked at closely, and the caller has a turn.
            passed = 0
            return 0
        size = entries.skip_indexed_records(chunk, at, offset, False, None)[0]
        reached = offset + size
        passed += size
        return size

    messages = scan_log(log, begin, end, False, None if dispatch.filter else pass_some)
    for message in messages:
        if not entries.is_right(message):
            raise StoreDamaged(
                f"an entry of {message.topic}-{message.queue_id} at {message.queue_offset} is not "
                f"that of its message at {message.physical_offset}")
        reached = message.physical_offset + message.size
        yield
    if reached < end:
        raise StoreDamaged(f"the commit log cannot be read at {reached}")
