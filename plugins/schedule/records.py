"""Converts the record of a delayed message on its way into the schedule topic and out of it.

While a message waits, the properties REAL_TOPIC and REAL_QID hold its real topic and queue. As with
Apache's broker, the delivered message keeps the property DELAY. Only the code that appends a
message can therefore know whether it still has to wait.

Source: HookUtils.handleScheduleMessage, transformDelayLevelMessage,
ScheduleMessageService.messageTimeUp @5.3.3.
"""

from __future__ import annotations

import re
from typing import Final

from twistmq.broker.api import (
    BrokerError,
    MessageRecord,
    RequestRefused,
    ResponseCode,
    StoredMessage,
    format_properties,
    parse_properties,
)
from twistmq.broker.api.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC
from twistmq.broker.api.wire import has_queue_entry, record_again
from twistmq.broker.api.wire import properties as names

__all__ = ["DELAY_MARK", "delay_level", "delay_record", "due_record"]

#: Occurs in the properties of every message that has a delay level, and of few other messages.
DELAY_MARK: Final = f"{names.DELAY}{names.NAME_VALUE_SEPARATOR}"
_LEVEL: Final = re.compile(r"[+-]?\d{1,9}")
_QUEUE_ID: Final = re.compile(r"\d{1,9}")
#: Properties of timer messages, which a delay level overrides.
_TIMER_NAMES: Final = (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)


def delay_level(properties: dict[str, str]) -> int:
    """Return the delay level that a message asks for; 0 or less means no delay.

    :raises RequestRefused: when the property DELAY is not a delay level.
    """
    text = properties.get(names.DELAY, "0")
    if _LEVEL.fullmatch(text) is None:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL,
                             f"the property {names.DELAY} is {text[:40]!r}, not a delay level")
    return int(text)


def delay_record(record: MessageRecord, max_level: int) -> None:
    """Redirect a record to the schedule topic if the message has to wait.

    Half messages and rollbacks do not wait; the messages that they later become may wait. Differs
    from Apache, which delays a half message and then drops it. A half message that is given up does
    not wait either.

    :raises RequestRefused: when the property DELAY is not a delay level.
    """
    if not has_queue_entry(record.sys_flag) or record.topic in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
        return
    properties = parse_properties(record.properties)
    level = delay_level(properties)
    if level <= 0:
        return
    for name in _TIMER_NAMES:
        properties.pop(name, None)
    properties[names.REAL_TOPIC] = record.topic
    properties[names.REAL_QID] = str(record.queue_id)
    record.properties = format_properties(properties)
    record.topic = SCHEDULE_TOPIC
    record.queue_id = min(level, max_level) - 1


def due_record(message: StoredMessage) -> MessageRecord:
    """Make the record to deliver from a message of the schedule topic.

    :raises BrokerError: when the message's properties do not name its topic and queue.
    """
    properties = message.properties_map()
    topic, queue_id = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or _QUEUE_ID.fullmatch(queue_id) is None:
        raise BrokerError("its properties do not name its topic and queue")
    record = record_again(message, properties)
    record.topic, record.queue_id = topic, int(queue_id)
    return record
