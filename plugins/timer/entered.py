"""Finds out from the logs which messages of the timer topic were entered.

A saved position can lie beyond the end of the topic when the store is an older copy, or when its
log lost its end or was cut. Differs from Apache, which continues at the end in this case and so
skips messages that were never entered.

The topic can also be behind the commit log: a member of a group makes messages readable again only
as far as it knows after a start that the group has agreed on them. Then the position is right.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import StoreError, decode_record
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.plugins.timer.log_unit import UNIT_SIZE

if TYPE_CHECKING:
    from twistmq.broker.api.store import MessageStore
    from twistmq.plugins.timer.log_unit import LogUnit
    from twistmq.plugins.timer.timer_log import TimerLog

__all__ = ["UNKNOWN", "is_in_log", "offset_after_last", "queue_offset_of"]

#: The queue offset of a unit whose message cannot be found in the timer topic.
UNKNOWN: Final = -1
#: The number of units at the log's end that are looked at. Each is read from disk on the reactor.
_LOOK_COUNT: Final = 20_000
_TOPIC: Final = TIMER_TOPIC.encode()


def queue_offset_of(store: MessageStore, unit: LogUnit) -> int:
    """Return the queue offset of a unit's message, or UNKNOWN for a message of another topic."""
    data = store.look_message(unit.log_offset)
    return UNKNOWN if data is None or len(data) != unit.message_size else _queue_offset(data)


def _queue_offset(data: bytes) -> int:
    """Return the queue offset of a message of the timer topic, or UNKNOWN for another one."""
    if _TOPIC not in data:
        return UNKNOWN
    try:
        message = decode_record(data, 0, False)
    except StoreDamaged:
        # The message is entered again, and that step logs its fault.
        return UNKNOWN
    return message.queue_offset if message.topic == TIMER_TOPIC else UNKNOWN


def offset_after_last(store: MessageStore, timer_log: TimerLog) -> tuple[int, int]:
    """Find the last unit whose message is in the timer topic.

    Messages are entered in the order of the topic, so all earlier messages were entered as well.

    :returns: the queue offset after its message, or UNKNOWN; and the position after the unit.
    """
    for position, unit in islice(timer_log.units_from_end(), _LOOK_COUNT):
        offset = queue_offset_of(store, unit)
        if offset != UNKNOWN and (
                store.queues.commit_log_offset(TIMER_TOPIC, 0, offset) == unit.log_offset):
            return offset + 1, position + UNIT_SIZE
    return UNKNOWN, timer_log.begin


def is_in_log(store: MessageStore, timer_log: TimerLog, queue_offset: int) -> bool:
    """Return whether the commit log has a message of the timer topic that is not in its queue yet.

    The part of the log that is not dispatched yet is read on the reactor, from the message of the
    last unit on.
    """
    log = store.commit_log
    begin = max(store.dispatch.offset, log.min_offset)
    try:
        for _, unit in islice(timer_log.units_from_end(), 1):
            data = log.read_record(unit.log_offset) if unit.log_offset >= begin else None
            if data is not None and UNKNOWN < _queue_offset(data) <= queue_offset:
                begin = unit.log_offset - log.head_size
        for log_offset, _ in store.raw.messages(begin):
            data = log.read_record(log_offset)
            if data is not None and _queue_offset(data) == queue_offset:
                return True
    except (StoreError, OSError):
        # Dispatching meets the same fault, and logs it.
        return False
    return False
