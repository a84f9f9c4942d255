"""The attributes of spans, by OpenTelemetry's semantic conventions for messaging and RocketMQ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from twistmq.client import ReceivedMessage, SendResult
from twistmq.protocol import properties as names
from twistmq.protocol.decimal_text import whole_number

__all__ = ["ERROR_TYPE", "SCHEMA_URL", "consumer_attributes", "result_attributes",
           "send_attributes"]

Attributes = dict[str, str | int | Sequence[str]]

#: The version of the conventions.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
ERROR_TYPE: Final = "error.type"
_SYSTEM: Final = "messaging.system"
_OPERATION: Final = "messaging.operation.name"
_OPERATION_TYPE: Final = "messaging.operation.type"
_DESTINATION: Final = "messaging.destination.name"
_PARTITION: Final = "messaging.destination.partition.id"
_GROUP: Final = "messaging.consumer.group.name"
_COUNT: Final = "messaging.batch.message_count"
_ID: Final = "messaging.message.id"
_SIZE: Final = "messaging.message.body.size"
_ROCKETMQ: Final = "messaging.rocketmq.message."


def _message_attributes(properties: Mapping[str, str]) -> Attributes:
    """Return the attributes of one message from its properties."""
    attributes: Attributes = {}
    if names.UNIQ_KEY in properties:
        attributes[_ID] = properties[names.UNIQ_KEY]
    if properties.get(names.TAGS):
        attributes[f"{_ROCKETMQ}tag"] = properties[names.TAGS]
    keys = [key for key in properties.get(names.KEYS, "").split(names.KEY_SEPARATOR) if key]
    if keys:
        attributes[f"{_ROCKETMQ}keys"] = keys
    if properties.get(names.SHARDING_KEY):
        attributes[f"{_ROCKETMQ}group"] = properties[names.SHARDING_KEY]
    return attributes


def send_attributes(topic: str, properties: Mapping[str, str]) -> Attributes:
    """Return the attributes of a send.

    :param properties: the properties of the message as it is sent.
    """
    attributes: Attributes = {
        _SYSTEM: "rocketmq", _OPERATION: "send", _OPERATION_TYPE: "send", _DESTINATION: topic,
        **_message_attributes(properties)}
    kind = "fifo" if properties.get(names.SHARDING_KEY) else "normal"
    if properties.get(names.TRAN_MSG) == "true":
        kind = "transaction"
    for name, attribute in ((names.DELAY, "delay_time_level"),
                            (names.TIMER_DELIVER_MS, "delivery_timestamp")):
        number = whole_number(properties.get(name, ""))
        if number is not None:
            attributes[f"{_ROCKETMQ}{attribute}"] = number
            kind = "delay"
    if names.TIMER_DELAY_MS in properties:
        kind = "delay"
    attributes[f"{_ROCKETMQ}type"] = kind
    return attributes


def result_attributes(result: SendResult) -> Attributes:
    """Return the attributes of a send that are known when it has ended."""
    return {_PARTITION: str(result.queue.queue_id)}


def consumer_attributes(
    operation: str, kind: str, group: str, messages: Sequence[ReceivedMessage[Any]]
) -> Attributes:
    """Return the attributes of a receive or of a call of a handler.

    :param operation: its name, such as "receive".
    :param kind: its type in the conventions, such as "process".
    :param group: the consumer group, or "" if it is not known.
    :param messages: the messages, of one topic.
    """
    first = messages[0]
    attributes: Attributes = {
        _SYSTEM: "rocketmq", _OPERATION: operation, _OPERATION_TYPE: kind,
        _DESTINATION: first.topic}
    if group:
        attributes[_GROUP] = group
    if len(messages) > 1 or operation == "receive":
        attributes[_COUNT] = len(messages)
    if len(messages) == 1:
        attributes |= _message_attributes(first.properties)
        attributes[_SIZE] = len(first.record.body)
        attributes[_PARTITION] = str(first.queue.queue_id)
    return attributes
