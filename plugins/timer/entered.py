"""What the timer log says of the timer topic: which of its messages were entered.

A saved position may be beyond the end of the topic: the store is an older copy, or its log lost its
end or was cut. Differs from Apache, which goes on at the end then: messages that were never entered
would be skipped.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import decode_record
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from twistmq.broker.api.store import MessageStore
    from twistmq.plugins.timer.log_unit import LogUnit
    from twistmq.plugins.timer.timer_log import TimerLog

__all__ = ["UNKNOWN", "offset_after_last", "queue_offset_of"]

#: Queue offset of a unit whose message cannot be found in the timer topic.
UNKNOWN: Final = -1
#: Units at the log's end that are looked at. Each is read from the disk, on the reactor.
_LOOK_COUNT: Final = 20_000


def queue_offset_of(store: MessageStore, unit: LogUnit) -> int:
    """Queue offset of a unit's message, or UNKNOWN for a message of another topic."""
    data = store.look_message(unit.place)
    if data is None or len(data) != unit.message_size:
        return UNKNOWN
    try:
        message = decode_record(data, 0, False)
    except StoreDamaged:
        # It is entered again, which says what is wrong with it.
        return UNKNOWN
    return message.queue_offset if message.topic == TIMER_TOPIC else UNKNOWN


def offset_after_last(store: MessageStore, timer_log: TimerLog) -> int:
    """The queue offset after the last message of the timer topic that the log has, or UNKNOWN.

    Messages are entered in the order of the topic, so that those before it were entered.
    """
    for unit in islice(timer_log.units_from_end(), _LOOK_COUNT):
        offset = queue_offset_of(store, unit)
        if offset != UNKNOWN and (
                store.queues.commit_log_offset(TIMER_TOPIC, 0, offset) == unit.place):
            return offset + 1
    return UNKNOWN
