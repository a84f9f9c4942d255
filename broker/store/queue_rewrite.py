"""Checks the entries of queues whose sync failed against the messages in the log.

After a failed sync, the kernel may present bytes that it could not write as if they were on disk,
or may return the previous bytes. Entries are therefore compared with the log, as in a recovery. If
all are right, their files are rewritten with the same bytes, which the next sync then covers.
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

#: The number of bytes of records that are skipped between two checks of the clock.
_STEP_SIZE: Final = 256 * 1024


def compare_entries(
    log: CommitLog, queues: QueueTable, dispatch: Dispatch, begin: int, end: int
) -> Iterator[None]:
    """Compare the entries of a range of the log that are in files; yields now and then.

    :param begin: a commit-log offset at which a record begins or a file ends.
    :param end: the log is dispatched at least up to this offset.
    :raises StoreDamaged: when an entry does not match its message, or the log cannot be read.
    """
    entries = EntryCheck(queues, begin, dispatch)
    reached, passed = begin, 0

    def pass_some(chunk: bytes, at: int, offset: int) -> int:
        nonlocal reached, passed
        if passed >= _STEP_SIZE:
            # Check one record in the slow way, so that the caller gets a turn.
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
                f"an entry of {message.topic}-{message.queue_id} at {message.queue_offset} does "
                f"not match its message at {message.physical_offset}")
        reached = message.physical_offset + message.size
        yield
    if reached < end:
        raise StoreDamaged(f"the commit log cannot be read at {reached}")
