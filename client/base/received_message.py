"""Messages that were read.

A leaf module of the hot path: it is typed so that mypyc can compile it.

Source: MessageExt, MessageDecoder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar, cast

from twistmq.client.base.errors import Undecodable
from twistmq.protocol import properties as names
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.plain_record import body_of
from twistmq.protocol.record import (
    SYS_COMPRESSED,
    StoredMessage,
    decode_record,
    host_text,
)

__all__ = ["DamagedMessage", "Read", "ReceivedMessage"]

T = TypeVar("T")

#: The first and the last time that a datetime can express, in Unix ms.
_TIME_MS_MIN: Final = -62_135_596_800_000
_TIME_MS_MAX: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Read:
    """A message that was read, with only the attributes that the window of its queue needs.

    :param offset: the logical offset in its queue.
    :param size: the size of its record in bytes.
    """

    __slots__ = ("began_ms", "offset", "size")

    def __init__(self, offset: int, size: int) -> None:
        self.offset = offset
        self.size = size
        #: When the message was handed out, by the monotonic clock; -1 before that.
        self.began_ms = -1


class _Decoded(Generic[T]):
    """Replaces the decoder in a pickled copy, because decoders are often local functions.

    :param value: the value that the decoder returned for the body.
    :param fault: the reason why the decoder failed; None if it succeeded.
    """

    __slots__ = ("_fault", "_value")

    def __init__(self, value: T | None, fault: str | None) -> None:
        self._value = value
        self._fault = fault

    def __call__(self, message: object) -> T:
        if self._fault is not None:
            raise Undecodable(self._fault)
        return cast(T, self._value)


def _datetime_of(time_ms: int) -> datetime:
    """Convert Unix ms; a record may have any int64, so the range of datetime is enforced here."""
    return _EPOCH + timedelta(milliseconds=min(max(time_ms, _TIME_MS_MIN), _TIME_MS_MAX))


def _picklable(error: Exception | None) -> Exception | None:
    """Return the error, or None if another process could not rebuild it.

    A handler may raise any exception. Without this check, one error that cannot be rebuilt would
    lose the whole message.
    """
    if error is None:
        return None
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickling runs the error's own code
        return None
    return error


class ReceivedMessage(Read, Generic[T]):
    """A message that was read; consumers and ``Client.read`` make it, programs do not.

    A program usually needs ``body`` or ``value``, and ``topic``, ``tags``, ``keys``,
    ``properties``, ``id`` and ``attempt``. ``queue`` and ``offset`` are where it was read.

    ``body`` is the decompressed body. ``value`` is the result of the consumer's decoder, or the
    body if the consumer has no decoder. ``lost`` is true once another member has the message's
    queue. ``size`` is the size of the stored record in bytes. ``error`` is the last error of its
    handler in this process, and ``earlier_attempts`` is the number of attempts that the record does
    not count, on an ordered queue. ``began_ms`` is when the message was handed out, in ms of
    ``time.monotonic``, and -1 before that.

    :param record: the stored record; the bytes of a plain record are decoded when a field is
        requested.
    :param queue: the queue where the message was read, with the topic's name in the namespace.
    :param offset: the logical offset in that queue.
    :param topic: the topic of the message; for a retry, the topic to which it was first sent.
    :param decode: returns the value; with None, the value is the body.
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
        #: The number of earlier attempts on an ordered queue, which the record does not count.
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
        """Return the arguments for the constructor of a copy, which has a value but no decoder."""
        return self._record, self.queue, self.offset, self.topic, None

    def _state(self) -> tuple[object, ...]:
        """Return the other attributes of a copy."""
        value, fault = self._value, None
        if self._decode is not None and value is None:
            try:
                value = self._decode(self)
            except Exception as error:  # any error; the copy raises it when its value is read
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
        """The stored record."""
        record = self._record
        if isinstance(record, bytes):
            # The body was checked when the record arrived.
            record = self._record = decode_record(record, 0, False)
        return record

    @property
    def body(self) -> bytes:
        """The bytes of the message, decompressed.

        :raises Undecodable: when it cannot be decompressed.
        """
        body = self._body
        if body is None:
            record = self._record
            if isinstance(record, bytes):
                # A plain record is not compressed.
                body = self._body = body_of(record)
                return body
            body = record.body
            if record.sys_flag & SYS_COMPRESSED:
                # Few bodies are compressed, so the import is done here.
                from twistmq.client.base.codecs import decompress

                try:
                    body = decompress(body, record.sys_flag)
                except Undecodable as error:
                    raise Undecodable(f"{self!r}: {error}") from None
            self._body = body
        return body

    @property
    def value(self) -> T:
        """The result of the consumer's option ``decode``; without it, the body.

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
        """The properties that the producer set, and the system's own."""
        if self._properties is None:
            self._properties = self.record.properties_map()
        return self._properties

    @property
    def tags(self) -> str:
        """The tag by which consumers filter; "" if it has none. A message has only one tag."""
        return self.properties.get(names.TAGS, "")

    @property
    def keys(self) -> list[str]:
        """The keys by which the message can be found; an empty list if it has none."""
        return [key for key in self.properties.get(names.KEYS, "").split(names.KEY_SEPARATOR)
                if key]

    @property
    def sharding_key(self) -> str:
        """The key that determined the queue, or ""."""
        return self.properties.get(names.SHARDING_KEY, "")

    @property
    def priority(self) -> int | None:
        """The priority with which the message was sent; None without one."""
        # A producer may have set the property to any text.
        return whole_number(self.properties.get(names.PRIORITY, ""))

    @property
    def id(self) -> str:
        """The unique id, or the offset id if the message has no unique id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id by which the broker finds the record."""
        from twistmq.protocol.message_id import offset_message_id

        return offset_message_id(self.record.store_host, self.record.physical_offset)

    @property
    def attempt(self) -> int:
        """The number of this delivery, counted from 1."""
        return self.record.reconsume_times + self.earlier_attempts + 1

    @property
    def born_at(self) -> datetime:
        """When the producer made the message, by the producer's clock.

        A time outside the range of datetime is replaced by the first or the last datetime.
        """
        return _datetime_of(self.record.born_timestamp)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored the message, by the broker's clock; see :attr:`born_at`."""
        return _datetime_of(self.record.store_timestamp)

    @property
    def born_host(self) -> str:
        """The "ip:port" of the producer."""
        return host_text(self.record.born_host)

    @property
    def lag(self) -> int | None:
        """The number of messages that followed this one in its queue when it was read.

        It is None if the message does not have the property ``MAX_OFFSET``. Brokers do not store
        it; ``Client.max_offset`` returns the end of a queue.
        """
        # A producer may have set the property to any text.
        end = whole_number(self.properties.get(names.MAX_OFFSET, ""))
        return None if end is None else max(end - self.offset - 1, 0)

    @property
    def flag(self) -> int:
        """The ``flag`` that the producer gave the message: an int32 of the application."""
        return self.record.flag

    @property
    def damage(self) -> str:
        """The reason why the content cannot be read; "" for an intact message."""
        return ""

    def __repr__(self) -> str:
        from twistmq.protocol.printable import escaped

        # The producer chose the id, and must not forge a line of a log with it.
        return escaped(
            f"<{type(self).__name__} {self.id} of {self.queue.topic}, broker "
            f"{self.queue.broker_name}, queue {self.queue.queue_id}, offset {self.offset}>")


class DamagedMessage(ReceivedMessage[T]):
    """A message whose record cannot be read; delivered only with ``damaged="deliver"``.

    ``body`` and ``value`` raise ``Undecodable``. The other fields come from the record, as far as
    it can be read.

    :param raw: the bytes that the broker sent.
    :param record: the fields that can be read.
    :param is_cut: whether the length is damaged too, so that no record after this one can be found.
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
        """A damaged message has no body.

        :raises Undecodable: always.
        """
        raise Undecodable(f"{self!r} is damaged: {self._damage}")

    def __repr__(self) -> str:
        from twistmq.protocol.printable import escaped

        return escaped(
            f"<{type(self).__name__} of {self.queue.topic}, broker {self.queue.broker_name}, "
            f"queue {self.queue.queue_id}, offset {self.offset}, commit log offset "
            f"{self.record.physical_offset}>")
