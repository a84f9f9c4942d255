"""Messages as a program sees them: on their way out, when they come in, and the answers between.

Source: Message, MessageExt, SendResult, PullResult, MessageDecoder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

from twistmq.broker.codes import ResponseCode
from twistmq.broker.wire import properties as names
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.message_id import offset_message_id
from twistmq.broker.wire.record import StoredMessage, host_text
from twistmq.client.errors import OptionError

__all__ = ["Message", "MessageQueue", "PullResult", "PullStatus", "ReceivedMessage", "SendResult"]

T = TypeVar("T")

#: Answers of a broker that has stored a message, in words.
STORED: Final = {
    ResponseCode.SUCCESS: "safe",
    ResponseCode.FLUSH_DISK_TIMEOUT: "its flush was not waited for",
    ResponseCode.SLAVE_NOT_AVAILABLE: "no slave was there",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "the slaves were not waited for",
}


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to send.

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

    topic: str
    body: Any
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

    def all_properties(self) -> dict[str, str]:
        """The properties as they are sent, but for the unique id.

        :raises OptionError: when a name or a value cannot be a property's, or times contradict.
        """
        found = dict(self.properties)
        if self.tags:
            found[names.TAGS] = self.tags
        if self.keys:
            found[names.KEYS] = (self.keys if isinstance(self.keys, str)
                                 else names.KEY_SEPARATOR.join(self.keys))
        if self.sharding_key:
            found[names.SHARDING_KEY] = self.sharding_key
        if self.delay_level or self.delay_ms or self.deliver_at is not None:
            _add_time(self, found)
        if not self.wait_stored:
            found[names.WAIT] = "false"
        elif names.WAIT not in found:
            found[names.WAIT] = "true"
        for name, value in found.items():
            if not value or not name or "\x01" in name or "\x02" in name or (
                    "\x01" in value or "\x02" in value):
                raise OptionError(f"property {name!r}: empty, or with a separator in it")
        return found


def _add_time(message: Message, found: dict[str, str]) -> None:
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


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored.

    ``id`` is the unique id that the client gave it; of a batch, all of them joined by commas.
    ``offset_id`` is the broker's. ``recall_handle`` takes a timed message back.
    """

    id: str
    offset_id: str
    queue: MessageQueue
    #: Logical index in the queue; of a batch, its first.
    offset: int
    #: The broker's response code: SUCCESS, or stored without a flush or a slave.
    code: int = ResponseCode.SUCCESS
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    #: Whether the broker wants traces of it.
    is_traced: bool = True

    @property
    def safe(self) -> bool:
        """Whether it is as durable as the broker is set up to make it."""
        return self.code == ResponseCode.SUCCESS

    @property
    def status(self) -> str:
        """The response code in words."""
        return STORED.get(ResponseCode(self.code), str(self.code))


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = "found"
    #: Nothing is there yet.
    NO_NEW_MESSAGE = "no new message"
    #: Messages were looked at and none fits the expression, or their file is being removed.
    NO_MATCHED_MESSAGE = "no matched message"
    #: The queue has no such offset; ``next_offset`` is where it continues.
    OFFSET_MOVED = "offset moved"


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to a pull."""

    status: PullStatus
    #: Where the next pull begins, and the queue's bounds: logical offsets.
    next_offset: int
    min_offset: int
    max_offset: int
    #: Stored records, one after the other.
    body: bytes
    #: The broker's own word for what it found, such as MESSAGE_WAS_REMOVING.
    remark: str
    #: Where the next pull should go: 0 is the master.
    broker_id: int = 0
    #: Of a static topic: what is to be added to the offsets in the records.
    offset_delta: int = 0


class ReceivedMessage(Generic[T]):
    """A message that was read.

    ``value`` is its body, decompressed, or what the consumer's decoder made of it. ``attempt``
    counts from 1. ``lost`` is true once another member has the message's queue.
    """

    __slots__ = ("_properties", "lost", "offset", "queue", "record", "topic", "value")

    def __init__(
        self, record: StoredMessage, queue: MessageQueue, offset: int, topic: str, value: T,
    ) -> None:
        self.record = record
        #: The queue it was read from, and its logical index there.
        self.queue = queue
        self.offset = offset
        #: Its topic; of a retry, the topic it was first sent to.
        self.topic = topic
        self.value = value
        self.lost = False
        self._properties: dict[str, str] | None = None

    @property
    def body(self) -> bytes:
        """The body as it is stored, perhaps compressed; ``value`` is the plain one."""
        return self.record.body

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
        return offset_message_id(self.record.store_host, self.record.physical_offset)

    @property
    def attempt(self) -> int:
        """Which time it is delivered, from 1."""
        return self.record.reconsume_times + 1

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
