"""Converts the record of a timed message on its way into the timer topic and out of it.

A producer asks for a delay in seconds or milliseconds, or for a time. The property TIMER_OUT_MS
holds the last tick before that time; REAL_TOPIC and REAL_QID hold the real topic and queue. The
delivered message keeps all three properties, which show that it has waited.

Source: HookUtils.handleScheduleMessage, transformTimerMessage, TimerMessageStore.convert,
buildDeleteKey @5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from twistmq.broker.api.topics import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    TIMER_TOPIC,
    can_be_directory,
)
from twistmq.broker.api.wire import (
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    SYS_INNER_BATCH,
    has_queue_entry,
    record_again,
    utf8,
)
from twistmq.broker.api.wire import properties as names

__all__ = ["ENTERED_NEVER", "TIMER_MARK", "TIMER_NAMES", "asks_for_time", "delete_key", "due_ms_of",
           "due_record", "illegal", "rolled_record", "timed_again", "timed_ms", "wait_record"]

#: The properties by which a message asks for a time.
TIMER_NAMES: Final = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
#: TIMER_ENQUEUE_MS of a message that was due before it could be entered. Source: Long.MAX_VALUE.
ENTERED_NEVER: Final = 2**63 - 1
#: The number of bytes that delivery or a roll adds to the properties.
_ADDED_SIZE_MAX: Final = 160

#: Occurs in the properties of every message that asks for a time, and of few other messages.
TIMER_MARK: Final = "TIMER_DEL"
_MARKS: Final = tuple(f"{name}{NAME_VALUE_SEPARATOR}" for name in TIMER_NAMES)
_OUT_MARK: Final = f"{names.TIMER_OUT_MS}{NAME_VALUE_SEPARATOR}"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_QUEUE_ID: Final = re.compile(r"[0-9]{1,9}")


def illegal(delay_max_ms: int) -> RequestRefused:
    """Make the refusal of a time that is not a number or is too far in the future."""
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{delay_max_ms}ms; or if set del msg, the delay time should be bigger than the current "
        "time")


def asks_for_time(record: MessageRecord) -> dict[str, str] | None:
    """Return a record's parsed properties if it has to wait for a time; None for most records.

    Half messages and rollbacks do not wait; the messages that they later become may wait. A half
    message that is given up does not wait either. A delay level overrides a time.
    """
    text = record.properties
    if not any(mark in text for mark in _MARKS) or _OUT_MARK in text:
        return None
    if not has_queue_entry(record.sys_flag) or record.topic in (
            HALF_TOPIC, TIMER_TOPIC, CHECK_MAX_TIME_TOPIC):
        return None
    properties = parse_properties(text)
    if names.TIMER_OUT_MS in properties or properties.keys().isdisjoint(TIMER_NAMES):
        return None
    level = properties.get(names.DELAY, "0")
    return None if _NUMBER.fullmatch(level) and int(level) > 0 else properties


def timed_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """Return the delivery time of a message, Unix ms; None if it is not a number."""
    for name, unit_ms in ((names.TIMER_DELAY_SEC, 1000), (names.TIMER_DELAY_MS, 1)):
        text = properties.get(name)
        if text is not None:
            return now_ms + int(text) * unit_ms if _NUMBER.fullmatch(text) else None
    text = properties[names.TIMER_DELIVER_MS]
    return int(text) if _NUMBER.fullmatch(text) else None


def wait_record(record: MessageRecord, properties: dict[str, str], out_ms: int) -> None:
    """Redirect a record to the timer topic.

    :param properties: the record's properties, parsed.
    :param out_ms: the value of TIMER_OUT_MS.
    :raises RequestRefused: when the message could not be delivered from there.
    """
    if record.sys_flag & SYS_INNER_BATCH:
        # Differs from Apache, which turns it into one message in a queue that holds no batches.
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "an inner batch cannot wait for a time")
    properties[names.TIMER_OUT_MS] = str(out_ms)
    properties[names.REAL_TOPIC] = record.topic
    properties[names.REAL_QID] = str(record.queue_id)
    text = format_properties(properties)
    if len(utf8(text)) > PROPERTIES_LENGTH_MAX - _ADDED_SIZE_MAX:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties of a timed message may have {PROPERTIES_LENGTH_MAX - _ADDED_SIZE_MAX} "
            "bytes at most, because the broker adds some")
    record.properties = text
    record.topic, record.queue_id = TIMER_TOPIC, 0


def due_ms_of(properties: Mapping[str, str]) -> int:
    """Return TIMER_OUT_MS of a message of the timer topic.

    :raises BrokerError: when the message does not have a time.
    """
    text = properties.get(names.TIMER_OUT_MS, "")
    if _NUMBER.fullmatch(text) is None:
        raise BrokerError("its properties do not state when it is due")
    return int(text)


def due_record(message: StoredMessage, properties: dict[str, str], write_ms: int, now_ms: int
               ) -> MessageRecord:
    """Make the record to deliver from a message of the timer topic.

    :param properties: the message's properties, parsed; changed to the ones of the record.
    :param write_ms: the time at which the message was entered, or ENTERED_NEVER.
    :raises BrokerError: when the properties do not name the message's topic and queue.
    """
    topic, queue_id = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if (not topic or not can_be_directory(topic) or topic == TIMER_TOPIC
            or _QUEUE_ID.fullmatch(queue_id) is None):
        raise BrokerError("its properties do not name its topic and queue")
    record = _again(message, properties, write_ms, now_ms)
    record.topic, record.queue_id = topic, int(queue_id)
    return record


def rolled_record(message: StoredMessage, properties: dict[str, str], write_ms: int, now_ms: int
                  ) -> MessageRecord:
    """Make a record that enters a message again because it is not due yet; see due_record."""
    rolls = properties.get(names.TIMER_ROLL_TIMES, "0")
    properties[names.TIMER_ROLL_TIMES] = str(
        int(rolls) + 1 if _NUMBER.fullmatch(rolls) else 1)
    return _again(message, properties, write_ms, now_ms)


def timed_again(record: MessageRecord) -> MessageRecord:
    """Make a record that asks another broker to let a message wait, from one of the timer topic.

    :param record: a record that ``rolled_record`` made.
    """
    properties = parse_properties(record.properties)
    topic, queue_id = properties.pop(names.REAL_TOPIC), int(properties.pop(names.REAL_QID))
    out_ms = due_ms_of(properties)
    for name in (*TIMER_NAMES, names.TIMER_OUT_MS, names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS,
                 names.TIMER_ROLL_TIMES):
        properties.pop(name, None)
    # The other broker lets it wait until the tick before this time.
    properties[names.TIMER_DELIVER_MS] = str(out_ms + 1)
    other = record_again(record, properties)
    other.properties = format_properties(properties)
    other.topic, other.queue_id = topic, queue_id
    return other


def _again(message: StoredMessage, properties: dict[str, str], write_ms: int, now_ms: int
           ) -> MessageRecord:
    properties[names.TIMER_ENQUEUE_MS] = str(write_ms)
    properties[names.TIMER_DEQUEUE_MS] = str(now_ms)
    record = record_again(message, properties)
    record.properties = format_properties(properties)
    return record


def delete_key(topic: str, unique_key: str) -> str:
    """Return the form in which TIMER_DEL_UNIQKEY names the message that it recalls.

    :param topic: the real topic of the message.
    """
    return f"{topic}+{unique_key}"
