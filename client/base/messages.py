"""The messages that a program sends.

The messages that it reads (``twistmq.client.base.received_message``) and the results of brokers
(``twistmq.client.base.answers``) can be imported from here too.

Source: Message @5.3.3.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from twistmq.client.base.answers import PullResult, PullStatus, SendResult
from twistmq.client.base.errors import OptionError
from twistmq.client.base.received_message import ReceivedMessage
from twistmq.client.base.times import Time, unix_ms
from twistmq.client.base.unknown_names import unknown_name
from twistmq.protocol import properties as names
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.topic_names import key_fault, tag_fault

__all__ = ["Message", "MessageQueue", "PullResult", "PullStatus", "ReceivedMessage", "SendResult",
           "check_iterable", "check_message", "check_properties", "check_queue", "message_list",
           "message_of"]

T = TypeVar("T")

#: The longest delay in seconds, about 3,000 years. A greater number is probably in milliseconds.
_SECONDS_MAX: Final = 10**11
#: The highest priority, an int32 in Apache's client.
_PRIORITY_MAX: Final = 2**31 - 1


class _TopicAndBody(msgspec.Struct, frozen=True, gc=False):
    """The parts of a message that are positional arguments."""

    topic: str
    body: Any


class Message(_TopicAndBody, frozen=True, kw_only=True, gc=False):
    """A message to send: ``Message("orders", b"paid", tags="eu")``.

    :param topic: the topic of the message.
    :param body: the bytes of the message, or a value for a producer with an encoder.
    :param tags: the tag by which consumers filter; only one, without ``||`` and without blanks
        around it.
    :param keys: the keys by which the message can be found; a key does not contain blanks.
    :param sharding_key: all messages with the same key go to one queue, in order.
    :param properties: the application's properties; set the system's own names only if you know
        their meaning.
    :param delay_level: deliver the message after the broker's delay of this level; 0: at once. By
        default, the levels 1 to 18 are 1, 5, 10 and 30 seconds, 1 to 10 minutes, 20 and 30 minutes,
        one hour and two. A higher level is the broker's last one. Such a message cannot be
        recalled.
    :param delay_s: deliver the message after this number of seconds; needs a broker of 5.0 or
        later.
    :param deliver_at: deliver the message at a time: a datetime, or seconds since 1970; needs a
        broker of 5.0 or later.
    :param priority: the priority, from 0; a greater number is a higher priority. The message goes
        to the queue with this number, or to the last queue, so a topic has as many priorities as
        queues. Needs a broker of 5.5 or later, and consumers that pop from a topic of the type
        PRIORITY get the highest priority first. A message with a priority has neither a sharding
        key nor a delay nor a given queue, and is not part of a batch or a transaction.
    :param wait_stored: whether the broker answers only after the message is flushed and copied, as
        the broker's configuration requires.
    :param flag: the application's int32.
    :param sys_flag: bits of the record's system flag, for bodies that are already compressed.
    """

    tags: str = ""
    keys: Sequence[str] = ()
    sharding_key: str = ""
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    delay_s: float = 0
    deliver_at: Time | None = None
    priority: int | None = None
    wait_stored: bool = True
    flag: int = 0
    sys_flag: int = 0

    @property
    def is_timed(self) -> bool:
        """Whether the message is delivered later."""
        return bool(self.delay_level or self.delay_s or self.deliver_at is not None)

    @property
    def is_plain(self) -> bool:
        """Whether the message has no properties except WAIT and the unique id."""
        return not (self.tags or self.keys or self.properties or self.sharding_key
                    or self.delay_level or self.delay_s or self.deliver_at is not None
                    or self.priority is not None)

    def all_properties(self) -> dict[str, str]:
        """Return the properties as they are sent, except for the unique id.

        :raises OptionError: when a name or a value is not valid for a property, when the tag or a
            key is one by which the message could not be found, or when the times, or the priority
            and something else that determines the queue, contradict.
        """
        try:
            properties = dict(self.properties)
        except (TypeError, ValueError):
            raise OptionError(f"properties are {self.properties!r}: give a dict of texts") from None
        if self.tags:
            properties[names.TAGS] = self.tags
        if self.keys:
            properties[names.KEYS] = _joined(self.keys)
        if self.sharding_key:
            properties[names.SHARDING_KEY] = self.sharding_key
        if self.is_timed:
            _add_time(self, properties)
        if self.priority is not None:
            properties[names.PRIORITY] = _priority_text(self)
        if not self.wait_stored:
            properties[names.WAIT] = "false"
        elif names.WAIT not in properties:
            properties[names.WAIT] = "true"
        check_properties(properties)
        return properties


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that the broker would not return unchanged, and a tag that never matches.

    :raises OptionError: with the name of the property and the reason.
    """
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise OptionError(f"property {name!r} is {value!r}: names and values are texts")
        if not value or not name or "\x01" in name or "\x02" in name or (
                "\x01" in value or "\x02" in value):
            raise OptionError(f"property {name!r}: empty, or with a separator in it")
        if not (value.isascii() and name.isascii()) and _has_no_utf8(name + value):
            raise OptionError(f"property {name!r}: half of a surrogate pair is not a character")
    tag = properties.get(names.TAGS)
    if tag is not None and (fault := tag_fault(tag)) is not None:
        raise OptionError(f"tag {tag!r}: {fault}")


def _has_no_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _joined(keys: object) -> str:
    """Return the keys as one property.

    :raises OptionError: when a key is not a text, or is not a key by which a message can be found.
    """
    if isinstance(keys, str):
        keys = (keys,)
    if not isinstance(keys, Iterable) or not all(isinstance(key, str) for key in keys):
        raise OptionError(f"keys are {keys!r}: give a list of texts")
    for key in keys:
        fault = key_fault(key)
        if fault is not None:
            raise OptionError(f"key {key!r}: {fault}")
    return names.KEY_SEPARATOR.join(keys)


def _add_time(message: Message, properties: dict[str, str]) -> None:
    level, delay_s, at = message.delay_level, message.delay_s, message.deliver_at
    if type(level) is not int or level < 0:
        raise OptionError(f"delay_level is {level!r}: give a whole number of at least 0")
    if type(delay_s) not in (int, float) or not 0 <= delay_s < _SECONDS_MAX:
        raise OptionError(f"delay_s is {delay_s!r}: give seconds, a number of at least 0")
    at_ms = None if at is None else unix_ms(at, "deliver_at")
    if sum([level > 0, delay_s > 0, at is not None]) != 1:
        raise OptionError("a message has one of delay_level, delay_s and deliver_at")
    if level > 0:
        properties[names.DELAY] = str(level)
    elif delay_s > 0:
        # A message with any delay waits for at least a millisecond.
        properties[names.TIMER_DELAY_MS] = str(max(1, round(delay_s * 1000)))
    elif at_ms is not None:
        properties[names.TIMER_DELIVER_MS] = str(at_ms)


def _priority_text(message: Message) -> str:
    """Return the property for the priority of a message.

    :raises OptionError: when it is not a priority, or the broker would ignore it.
    """
    priority = message.priority
    if type(priority) is not int or not 0 <= priority <= _PRIORITY_MAX:
        raise OptionError(f"priority is {priority!r}: give a whole number from 0 to "
                          f"{_PRIORITY_MAX}")
    if message.is_timed or message.sharding_key:
        raise OptionError("a message with a priority has no sharding_key and no delay: brokers "
                          "ignore the priority of such a message")
    return str(priority)


#: The keywords of a send that belong to its message.
_ARGUMENTS: Final = frozenset(Message.__struct_fields__) - {"topic", "body"}


def message_of(
    topic: str | Message, body: Any, options: Mapping[str, Any], queue: MessageQueue | None = None
) -> Message:
    """Return the message that the arguments of a send describe.

    :param queue: the queue to which the program sends it; None: the producer chooses one.
    :raises OptionError: when an option is unknown, when options are given together with a message,
        when the topic is not a text, or when a queue and something that determines it are given.
    """
    if queue is not None:
        _check_queue(topic, options, queue)
    if isinstance(topic, Message):
        if options or (body is not None and body != b""):
            raise OptionError("give a Message, or topic and body with their options, not both")
        return topic
    if not isinstance(topic, str):
        raise OptionError(f"the topic is {topic!r}: give its name, or a Message")
    if not options:
        return Message(topic, body)
    if "delay_ms" in options and isinstance(options["delay_ms"], int):
        warnings.warn("give delay_s, in seconds, in place of delay_ms", DeprecationWarning,
                      stacklevel=3)
        options = {name: value for name, value in options.items() if name != "delay_ms"} | {
            "delay_s": options["delay_ms"] / 1000}
    for name in options:
        if name not in _ARGUMENTS:
            raise OptionError(unknown_name(
                "argument of a message", name, {*_ARGUMENTS, "queue", "timeout_s"}))
    if isinstance(options.get("keys"), str):
        options = {**options, "keys": (options["keys"],)}
    return Message(topic=topic, body=body, **options)


def check_queue(queue: object, name: str = "queue") -> None:
    """:raises OptionError: when an argument of a program is not a queue."""
    if not isinstance(queue, MessageQueue):
        raise OptionError(f"{name} is {queue!r}: give a MessageQueue, as queues() returns them")


def _check_queue(topic: str | Message, options: Mapping[str, Any], queue: object) -> None:
    """:raises OptionError: when a send names no queue, or a sharding key or a priority as well."""
    check_queue(queue)
    priority = topic.priority if isinstance(topic, Message) else options.get("priority")
    if priority is not None:
        raise OptionError(f"queue is {queue} and priority is {priority}: give one of them, because "
                          "the priority determines the queue")
    key = topic.sharding_key if isinstance(topic, Message) else options.get("sharding_key")
    if key:
        raise OptionError(f"queue is {queue} and sharding_key is {key!r}: give one of them, "
                          "because the key determines the queue")


def check_iterable(messages: object) -> None:
    """:raises OptionError: when an argument cannot be a list, or another iterable, of messages."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise OptionError(f"messages are {messages!r}: give a list of objects of Message")


def message_list(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that a program gave to a call as a list.

    :raises OptionError: when it is not a list, or another iterable, of messages.
    """
    if isinstance(messages, list):
        several = messages
    else:
        check_iterable(messages)
        several = list(messages)
    for each in several:
        if not isinstance(each, Message):
            raise OptionError(f"messages contain {each!r}: give objects of Message")
    return several


def check_message(message: object) -> None:
    """:raises OptionError: when an argument of a program is not a message that was received."""
    if not isinstance(message, ReceivedMessage):
        raise OptionError(f"message is {message!r}: give a message that the consumer returned")
