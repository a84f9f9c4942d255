"""The records of a half message: stored in the half topic, put back into it, and taken out of it.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC. Its properties REAL_TOPIC and REAL_QID contain
its real topic and queue. A half message that is put back for another check is a new record. The
property TRAN_PREPARED_QUEUE_OFFSET of such a copy names the queue offset of the original message,
which identifies the transaction.

Source: TransactionalMessageBridge, TransactionalMessageUtil, EndTransactionProcessor,
DefaultTransactionalMessageCheckListener @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twistmq.broker.api import (
    BrokerError,
    MessageRecord,
    StoredMessage,
    format_properties,
    parse_properties,
)
from twistmq.broker.api.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from twistmq.broker.api.wire import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_MASK,
    encode_record,
    record_again,
    whole_number,
)
from twistmq.broker.api.wire import properties as names

__all__ = ["born_ms", "check_body", "checks_of", "copy_of_half", "discarded_record",
           "escaping_record", "final_record", "immunity_ms", "make_half", "origin_of",
           "require_same", "resumed_record"]

#: Properties of a half message that the broker writes and that a sender does not have to set.
_OF_HALVES: Final = frozenset({
    names.REAL_TOPIC, names.REAL_QID, names.TRANSACTION_ID, names.TRANSACTION_CHECK_TIMES,
    names.TRAN_PREPARED_QUEUE_OFFSET})
#: The largest number of a queue.
_QUEUE_ID_MAX: Final = (1 << 31) - 1


def make_half(record: MessageRecord, properties: Mapping[str, str]) -> dict[str, str]:
    """Turn the record of a send into a half message.

    :param properties: the parsed properties of the sender, and the unique key.
    :returns: the new properties; those that every message receives may be missing.
    """
    added = {names.REAL_TOPIC: record.topic, names.REAL_QID: str(record.queue_id)}
    unique_key = properties.get(names.UNIQ_KEY)
    if unique_key:
        added[names.TRANSACTION_ID] = unique_key
    if _OF_HALVES.isdisjoint(properties):
        fields = {**properties, **added}
        record.properties += format_properties(added)
    else:
        # A client may pass on consumed properties, but this transaction was not checked before.
        fields = {name: value for name, value in parse_properties(record.properties).items()
                  if name not in _OF_HALVES}
        fields.update(added)
        record.properties = format_properties(fields)
    record.sys_flag &= ~SYS_TRANSACTION_MASK
    record.topic, record.queue_id = HALF_TOPIC, 0
    return fields


def final_record(
    message: StoredMessage | MessageRecord, properties: dict[str, str]
) -> MessageRecord:
    """Make the record that consumers see from a half message.

    The properties stay unchanged, including REAL_TOPIC, REAL_QID and TRAN_MSG, as in Apache's
    store.

    :param properties: the parsed properties of the message.
    :raises BrokerError: when the properties do not contain the real topic and queue.
    """
    record = record_again(message, properties)
    record.topic, record.queue_id = _real_queue(properties)
    record.sys_flag = message.sys_flag & ~SYS_TRANSACTION_MASK | SYS_TRANSACTION_COMMIT
    record.prepared_transaction_offset = message.physical_offset
    return record


def copy_of_half(
    message: StoredMessage, properties: dict[str, str], *, checks: int | None = None
) -> MessageRecord:
    """Make the record that puts a half message back into its queue.

    Differs from Apache: the message keeps its flag, and each copy names the original.

    :param properties: the parsed properties of the message; changed to the properties of the copy.
    :param checks: how often the producer was asked, including this time; None for no change.
    """
    if checks is not None:
        properties[names.TRANSACTION_CHECK_TIMES] = str(checks)
    properties[names.TRAN_PREPARED_QUEUE_OFFSET] = str(origin_of(message, properties))
    record = record_again(message, properties)
    record.born_timestamp = born_ms(message)
    record.properties = format_properties(properties)
    return record


def discarded_record(message: StoredMessage) -> MessageRecord:
    """Make the record of a half message that is given up."""
    record = record_again(message, message.properties_map())
    record.topic, record.queue_id = CHECK_MAX_TIME_TOPIC, 0
    return record


def resumed_record(message: StoredMessage) -> MessageRecord:
    """Make a new half message, without any check-back, from one that was given up.

    :raises BrokerError: when its properties do not contain the real topic and queue.
    """
    properties = message.properties_map()
    _real_queue(properties)
    properties.pop(names.TRAN_PREPARED_QUEUE_OFFSET, None)
    properties[names.TRANSACTION_CHECK_TIMES] = "0"
    record = record_again(message, properties)
    record.topic, record.queue_id = HALF_TOPIC, 0
    record.properties = format_properties(properties)
    return record


def escaping_record(message: StoredMessage, properties: dict[str, str]) -> MessageRecord:
    """Make the record with which another broker takes over a half message as it was sent.

    :param properties: the parsed properties of the message.
    :raises BrokerError: when the properties do not contain the real topic and queue.
    """
    topic, queue_id = _real_queue(properties)
    fields = {name: value for name, value in properties.items() if name not in _OF_HALVES}
    fields[names.TRAN_MSG] = "true"
    record = record_again(message, fields)
    record.topic, record.queue_id = topic, queue_id
    record.born_timestamp = born_ms(message)
    record.properties = format_properties(fields)
    return record


def check_body(message: StoredMessage, copy: MessageRecord, properties: dict[str, str]) -> bytes:
    """Encode the message sent to a producer in a check: the copy with its real topic and queue.

    :param message: the message that was copied; its store time is used.
    :param copy: the copy, whose place in the log is used.
    :param properties: the parsed properties of the copy.
    :raises BrokerError: when the properties do not contain the real topic and queue.
    """
    topic, queue_id = _real_queue(properties)
    record = MessageRecord(
        topic, queue_id, copy.body, copy.properties, copy.born_timestamp, copy.born_host,
        copy.store_host, [], 0, copy.flag, copy.sys_flag, copy.reconsume_times,
        copy.prepared_transaction_offset)
    record.queue_offset, record.physical_offset = copy.queue_offset, copy.physical_offset
    record.store_timestamp = message.store_timestamp
    return encode_record(record)


def _real_queue(properties: Mapping[str, str]) -> tuple[str, int]:
    """:raises BrokerError: when the properties do not contain the real topic and queue."""
    topic = properties.get(names.REAL_TOPIC)
    queue_id = whole_number(properties.get(names.REAL_QID, ""), _QUEUE_ID_MAX)
    if not topic or queue_id is None:
        raise BrokerError("the half message's properties do not name its topic and queue")
    return topic, queue_id


def origin_of(message: StoredMessage | MessageRecord, properties: Mapping[str, str]) -> int:
    """Return the queue offset of the original half message, of which this one may be a copy."""
    offset = whole_number(properties.get(names.TRAN_PREPARED_QUEUE_OFFSET, ""))
    return message.queue_offset if offset is None else offset


def checks_of(properties: Mapping[str, str]) -> int:
    """Return how often the producer of a half message was asked for the outcome."""
    return whole_number(properties.get(names.TRANSACTION_CHECK_TIMES, "")) or 0


def born_ms(message: StoredMessage | MessageRecord) -> int:
    """Return the birth time of a half message, Unix ms, limited to its store time.

    Differs from Apache, where a message with a birth time in the future is too young for every
    check until then.
    """
    return min(message.born_timestamp, message.store_timestamp)


def immunity_ms(properties: Mapping[str, str], timeout_ms: int) -> int | None:
    """Return the time after its birth during which a half message must not be checked.

    :param timeout_ms: used when the property is not a number.
    :returns: None when the message does not have the property.
    """
    text = properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    seconds = whole_number(text)
    return timeout_ms if seconds is None else seconds * 1000


def require_same(
    message: StoredMessage | MessageRecord, properties: Mapping[str, str], group: str | None,
    queue_offset: int, log_offset: int,
) -> None:
    """Check that a half message is the one to which its producer refers.

    :param group: the group of the producer.
    :param queue_offset: the queue offset in the half topic according to the producer.
    :param log_offset: the offset in the commit log according to the producer.
    :raises BrokerError: when it is another message.
    """
    if group is None or properties.get(names.PGROUP) != group:
        raise BrokerError("The producer group wrong")
    if message.queue_offset != queue_offset:
        raise BrokerError("The transaction state table offset wrong")
    if message.physical_offset != log_offset:
        raise BrokerError("The commit log offset wrong")
