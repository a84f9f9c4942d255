"""Messages as a program sees them, on their way out and when they come in.

The answers of brokers about them (``twistmq.client.answers``) have their names here too.

Source: Message, MessageExt, MessageDecoder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

import msgspec

from twistmq.broker.wire import properties as names
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.record import SYS_COMPRESSED, StoredMessage, host_text
from twistmq.broker.wire.record_parts import RecordParts, whole_record
from twistmq.client.answers import PullResult, PullStatus, SendResult
from twistmq.client.errors import OptionError, Undecodable

__all__ = ["Message", "MessageQueue", "PullResult", "PullStatus", "ReceivedMessage", "SendResult",
           "message_of"]

T = TypeVar("T")

class _TopicAndBody(msgspec.Struct, frozen=True, gc=False):
    """The parts of a message that are given by place."""

    topic: str
    body: Any


class Message(_TopicAndBody, frozen=True, kw_only=True, gc=False):
    """A message to send: ``Message("orders", b"paid", tags="eu")``.

    :param topic: its topic.
    :param body: its bytes, or a value for a producer with an encoder.
    :param tags: what consumers filter by; Apache's clients use one tag.
    :param keys: what it can be found by.
    :param sharding_key: messages of one key go to one queue, in order.
    :param properties: of the application; names of the system are for those who know them.
    :param delay_level: deliver after the broker's delay of this level; 0: at once.
    :param delay_ms: deliver after so many milliseconds; needs a broker of 5.0 or later.
    :param deliver_at: deliver at a time: a datetime or Unix ms; needs a broker of 5.0 or later.
    :param wait_stored: whether the broker answers only when it is flushed and copied as set up.
    :param flag: the application's int32.
    :param sys_flag: bits of the record, for bodies that are compressed already.
    """

    tags: str = ""
    keys: Sequence[str] = ()
    sharding_key: str = ""
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    delay_ms: int = 0
    deliver_at: datetime | int | None = None
    wait_stored: bool = True
    flag: int = 0
    sys_flag: int = 0

    @property
    def is_timed(self) -> bool:
        """Whether it is delivered later."""
        return bool(self.delay_level or self.delay_ms or self.deliver_at is not None)

    @property
    def is_plain(self) -> bool:
        """Whether it has no properties but WAIT and the unique id."""
        return not (self.tags or self.keys or self.properties or self.sharding_key
                    or self.delay_level or self.delay_ms or self.deliver_at is not None)

    def all_properties(self) -> dict[str, str]:
        """The properties as they are sent, but for the unique id.

        :raises OptionError: when a name or a value cannot be a property's, or times contradict.
        """
        found = dict(self.properties)
        if self.tags:
            found[names.TAGS] = self.tags
        if self.keys:
            found[names.KEYS] = _joined(self.keys)
        if self.sharding_key:
            found[names.SHARDING_KEY] = self.sharding_key
        if self.is_timed:
            _add_time(self, found)
        if not self.wait_stored:
            found[names.WAIT] = "false"
        elif names.WAIT not in found:
            found[names.WAIT] = "true"
        for name, value in found.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise OptionError(f"property {name!r} is {value!r}: names and values are texts")
            if not value or not name or "\x01" in name or "\x02" in name or (
                    "\x01" in value or "\x02" in value):
                raise OptionError(f"property {name!r}: empty, or with a separator in it")
        return found


def _joined(keys: object) -> str:
    """The keys as one property; :raises OptionError: when one of them is no text."""
    if isinstance(keys, str):
        return keys
    if not isinstance(keys, Iterable) or not all(isinstance(key, str) for key in keys):
        raise OptionError(f"keys are {keys!r}: give a list of texts")
    return names.KEY_SEPARATOR.join(keys)


def _add_time(message: Message, found: dict[str, str]) -> None:
    for name in ("delay_level", "delay_ms"):
        value = getattr(message, name)
        if type(value) is not int or value < 0:
            raise OptionError(f"{name} is {value!r}: give a whole number of at least 0")
    if not isinstance(message.deliver_at, datetime | int | None):
        raise OptionError(f"deliver_at is {message.deliver_at!r}: give a datetime or Unix ms")
    given = [message.delay_level > 0, message.delay_ms > 0, message.deliver_at is not None]
    if sum(given) != 1:
        raise OptionError("a message has one of delay_level, delay_ms and deliver_at")
    if message.delay_level > 0:
        found[names.DELAY] = str(message.delay_level)
    elif message.delay_ms > 0:
        found[names.TIMER_DELAY_MS] = str(message.delay_ms)
    elif isinstance(message.deliver_at, datetime):
        found[names.TIMER_DELIVER_MS] = str(int(message.deliver_at.timestamp() * 1000))
    else:
        found[names.TIMER_DELIVER_MS] = str(message.deliver_at)


def message_of(topic: str | Message, body: Any, options: Mapping[str, Any]) -> Message:
    """The message of the arguments of a send.

    :raises OptionError: for an unknown option, a message and options beside it, or a topic that is
        no text.
    """
    if isinstance(topic, Message):
        if options or (body is not None and body != b""):
            raise OptionError("give a Message, or topic and body with their options, not both")
        return topic
    if not isinstance(topic, str):
        raise OptionError(f"the topic is {topic!r}: give its name, or a Message")
    if not options:
        return Message(topic, body)
    try:
        if isinstance(options.get("keys"), str):
            options = {**options, "keys": (options["keys"],)}
        return Message(topic=topic, body=body, **options)
    except TypeError as error:
        raise OptionError(str(error)) from None


class ReceivedMessage(Generic[T]):
    """A message that was read.

    ``body`` is its body, decompressed. ``value`` is what the consumer's decoder made of it, or the
    body. ``lost`` is true once another member has the message's queue.

    :param record: as it is stored; parts are decoded when a field of theirs is asked for.
    :param queue: where it was read, the topic named as in the namespace.
    :param offset: its logical index there.
    :param topic: its topic; of a retry, the topic it was first sent to.
    :param decode: makes the value; None: the value is the body.
    """

    __slots__ = ("_body", "_decode", "_properties", "_record", "_value", "earlier_attempts",
                 "error", "lost", "offset", "queue", "topic")

    def __init__(
        self, record: StoredMessage | RecordParts, queue: MessageQueue, offset: int, topic: str,
        decode: Callable[[ReceivedMessage[T]], T] | None = None,
    ) -> None:
        self._record = record
        self.queue = queue
        self.offset = offset
        self.topic = topic
        self.lost = False
        #: Attempts that its handler had with it in this process, in order.
        self.earlier_attempts = 0
        #: The last error of its handler in this process.
        self.error: Exception | None = None
        self._decode = decode
        self._body: bytes | None = None
        self._value: T | None = None
        self._properties: dict[str, str] | None = None

    @property
    def record(self) -> StoredMessage:
        """The record, as it is stored."""
        record = self._record
        if isinstance(record, tuple):
            record = self._record = whole_record(record)
        return record

    @property
    def size(self) -> int:
        """Bytes of the record."""
        record = self._record
        return record[1] if isinstance(record, tuple) else record.size

    @property
    def body(self) -> bytes:
        """The body.

        :raises Undecodable: when it cannot be decompressed.
        """
        record = self._record
        if isinstance(record, tuple):
            # It is not compressed.
            return record[3]
        body = self._body
        if body is None:
            body = record.body
            if record.sys_flag & SYS_COMPRESSED:
                # Few bodies are compressed.
                from twistmq.client.codecs import decompress

                try:
                    body = decompress(body, record.sys_flag)
                except Undecodable as error:
                    raise Undecodable(f"{self!r}: {error}") from None
            self._body = body
        return body

    @property
    def value(self) -> T:
        """The value.

        :raises Undecodable: when the body cannot be decompressed, or the decoder raises.
        """
        if self._decode is None:
            return cast(T, self.body)
        if self._value is None:
            try:
                self._value = self._decode(self)
            except Exception as error:
                raise Undecodable(f"{self!r} cannot be decoded: {error}") from error
        return self._value

    @property
    def properties(self) -> dict[str, str]:
        """All properties, those of the system too."""
        if self._properties is None:
            self._properties = self.record.properties_map()
        return self._properties

    @property
    def tags(self) -> str:
        """Its tag, or ""."""
        return self.properties.get(names.TAGS, "")

    @property
    def keys(self) -> list[str]:
        """Its keys."""
        return [key for key in self.properties.get(names.KEYS, "").split(names.KEY_SEPARATOR)
                if key]

    @property
    def sharding_key(self) -> str:
        """The key that chose its queue, or ""."""
        return self.properties.get(names.SHARDING_KEY, "")

    @property
    def id(self) -> str:
        """The unique id, or the offset id of a message without one."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id by which its broker finds the record."""
        from twistmq.broker.wire.message_id import offset_message_id

        return offset_message_id(self.record.store_host, self.record.physical_offset)

    @property
    def attempt(self) -> int:
        """Which time it is delivered, from 1."""
        return self.record.reconsume_times + self.earlier_attempts + 1

    @property
    def born_at(self) -> datetime:
        """When its producer made it, by the producer's clock."""
        return datetime.fromtimestamp(self.record.born_timestamp / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        """When its broker stored it, by the broker's clock."""
        return datetime.fromtimestamp(self.record.store_timestamp / 1000, UTC)

    @property
    def born_host(self) -> str:
        """The "ip:port" of its producer."""
        return host_text(self.record.born_host)

    @property
    def lag(self) -> int | None:
        """How many messages were behind it in its queue when it was read."""
        end = self.properties.get(names.MAX_OFFSET)
        return None if end is None else max(int(end) - self.offset - 1, 0)

    @property
    def flag(self) -> int:
        """The application's int32."""
        return self.record.flag

    def __repr__(self) -> str:
        return (f"<{type(self).__name__} {self.id} of {self.queue.topic}, broker "
                f"{self.queue.broker_name}, queue {self.queue.queue_id}, offset {self.offset}>")
