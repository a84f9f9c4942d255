"""Messages that were read.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: MessageExt, MessageDecoder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar, cast

from twistmq.broker.wire import properties as names
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.plain_record import body_of
from twistmq.broker.wire.record import (
    SYS_COMPRESSED,
    StoredMessage,
    decode_record,
    host_text,
)
from twistmq.client.errors import Undecodable

__all__ = ["DamagedMessage", "Read", "ReceivedMessage"]

T = TypeVar("T")

#: The first and the last time that a datetime can say, Unix ms.
_TIME_MS_MIN: Final = -62_135_596_800_000
_TIME_MS_MAX: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Digits of the greatest offset.
_OFFSET_DIGITS: Final = 19


class Read:
    """A message that was read, with no more than the window of its queue needs.

    :param offset: its logical index in its queue.
    :param size: bytes of its record.
    """

    __slots__ = ("began_ms", "offset", "size")

    def __init__(self, offset: int, size: int) -> None:
        self.offset = offset
        self.size = size
        #: When it was handed out, by the steady clock; -1 while it is not.
        self.began_ms = -1


class _Decoded(Generic[T]):
    """Stands in for the decoder of a copy: decoders are often local functions.

    :param value: what the decoder made of the body.
    :param fault: why it made nothing of it; None when it did.
    """

    __slots__ = ("_fault", "_value")

    def __init__(self, value: T | None, fault: str | None) -> None:
        self._value = value
        self._fault = fault

    def __call__(self, message: object) -> T:
        if self._fault is not None:
            raise Undecodable(self._fault)
        return cast(T, self._value)


def _moment(time_ms: int) -> datetime:
    """Unix ms as a time: a record may have any int64, and some have no datetime."""
    return _EPOCH + timedelta(milliseconds=min(max(time_ms, _TIME_MS_MIN), _TIME_MS_MAX))


def _picklable(error: Exception | None) -> Exception | None:
    """The error, or None if another process could not rebuild it.

    A handler may raise anything. One error that cannot be rebuilt would lose the whole message.
    """
    if error is None:
        return None
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error's own code runs here
        return None
    return error


class ReceivedMessage(Read, Generic[T]):
    """A message that was read.

    ``body`` is its body, decompressed. ``value`` is what the consumer's decoder made of it, or the
    body. ``lost`` is true once another member has the message's queue.

    :param record: as it is stored; the bytes of a plain one are decoded when a field is asked for.
    :param queue: where it was read, the topic named as in the namespace.
    :param offset: its logical index there.
    :param topic: its topic; of a retry, the topic it was first sent to.
    :param decode: makes the value; None: the value is the body.
    """

    __slots__ = ("_body", "_decode", "_properties", "_record", "_value", "earlier_attempts",
                 "error", "lost", "queue", "topic")

    def __init__(
        self, record: StoredMessage | bytes, queue: MessageQueue, offset: int, topic: str,
        decode: Callable[[ReceivedMessage[T]], T] | None = None,
    ) -> None:
        super().__init__(offset, len(record) if isinstance(record, bytes) else record.size)
        self._record = record
        self.queue = queue
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

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._arguments(), self._state()

    def _arguments(self) -> tuple[object, ...]:
        """What the constructor of a copy is called with; a copy has a value but no decoder."""
        return self._record, self.queue, self.offset, self.topic, None

    def _state(self) -> tuple[object, ...]:
        """What a copy has beside the arguments of its constructor."""
        value, fault = self._value, None
        if self._decode is not None and value is None:
            try:
                value = self._decode(self)
            except Exception as error:  # a decoder raises anything; the copy says it when asked
                fault = str(error)
        return (self.began_ms, self.lost, self.earlier_attempts, _picklable(self.error),
                self._decode is not None, value, fault)

    def __setstate__(
        self, state: tuple[int, bool, int, Exception | None, bool, T | None, str | None]
    ) -> None:
        (self.began_ms, self.lost, self.earlier_attempts, self.error, has_decoder, value,
         fault) = state
        if has_decoder:
            self._decode = _Decoded(value, fault)

    @property
    def record(self) -> StoredMessage:
        """The record, as it is stored."""
        record = self._record
        if isinstance(record, bytes):
            # Its body was checked when it came.
            record = self._record = decode_record(record, 0, False)
        return record

    @property
    def body(self) -> bytes:
        """The body.

        :raises Undecodable: when it cannot be decompressed.
        """
        body = self._body
        if body is None:
            record = self._record
            if isinstance(record, bytes):
                # It is not compressed.
                body = self._body = body_of(record)
                return body
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
        """When its producer made it, by the producer's clock.

        A time that no datetime can say is the first or the last one.
        """
        return _moment(self.record.born_timestamp)

    @property
    def stored_at(self) -> datetime:
        """When its broker stored it, by the broker's clock; see :attr:`born_at`."""
        return _moment(self.record.store_timestamp)

    @property
    def born_host(self) -> str:
        """The "ip:port" of its producer."""
        return host_text(self.record.born_host)

    @property
    def lag(self) -> int | None:
        """How many messages were behind it in its queue when it was read."""
        end = self.properties.get(names.MAX_OFFSET, "")
        # A producer may have set it to anything.
        if not end.isascii() or not end.isdecimal() or len(end) > _OFFSET_DIGITS:
            return None
        return max(int(end) - self.offset - 1, 0)

    @property
    def flag(self) -> int:
        """The application's int32."""
        return self.record.flag

    @property
    def damage(self) -> str:
        """The reason why the content cannot be read; "" for a whole message."""
        return ""

    def __repr__(self) -> str:
        from twistmq.broker.printable import escaped

        # Its id is its producer's, who must not forge a line of a log.
        return escaped(
            f"<{type(self).__name__} {self.id} of {self.queue.topic}, broker "
            f"{self.queue.broker_name}, queue {self.queue.queue_id}, offset {self.offset}>")


class DamagedMessage(ReceivedMessage[T]):
    """A message whose record cannot be read: a program gets it by ``damaged="deliver"`` only.

    ``body`` and ``value`` raise ``Undecodable``. Other fields are those of the record as far as
    they can be read.

    :param raw: the bytes that the broker sent.
    :param record: what can be read of them.
    :param is_cut: whether its length is damaged too, so that nothing behind it can be found.
    """

    __slots__ = ("_damage", "is_cut", "raw")

    def __init__(
        self, raw: bytes, record: StoredMessage, queue: MessageQueue, offset: int, topic: str,
        damage: str, is_cut: bool,
    ) -> None:
        super().__init__(record, queue, offset, topic)
        self.raw = raw
        self.is_cut = is_cut
        self._damage = damage
        self.size = len(raw)

    def _arguments(self) -> tuple[object, ...]:
        return (self.raw, self.record, self.queue, self.offset, self.topic, self._damage,
                self.is_cut)

    @property
    def damage(self) -> str:
        """The reason why the content cannot be read."""
        return self._damage

    @property
    def body(self) -> bytes:
        """No body.

        :raises Undecodable: always.
        """
        raise Undecodable(f"{self!r} is damaged: {self._damage}")

    def __repr__(self) -> str:
        from twistmq.broker.printable import escaped

        return escaped(
            f"<{type(self).__name__} of {self.queue.topic}, broker {self.queue.broker_name}, "
            f"queue {self.queue.queue_id}, offset {self.offset}, commit log offset "
            f"{self.record.physical_offset}>")
