"""Outgoing messages: they are checked, compressed and encoded before they enter the engine.

Source: Validators, DefaultMQProducerImpl (tryToCompressMessage, sendKernelImpl), MessageBatch,
MessageClientIDSetter @5.3.3. Differs from Apache: a batch has no unique id, as in 4.9. Apache's
brokers give the id of a batch to each of its messages, so that the messages cannot be found by
their own ids; in a topic of the type BatchCQ, a batch with an id is one record. A body that
compression makes longer is sent as it is: Apache's client sends the longer one, and a broker then
refuses a body of almost 4 MiB that cannot be compressed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from twistmq.client.base.codecs import compress
from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import Message, check_properties, message_list
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.routes import NEW_TOPIC_QUEUES
from twistmq.client.core.producer.batches import may_be_batched
from twistmq.client.core.producer.fault_tolerance import TABLE_5, LatencyTable
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.properties import (
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
    format_properties,
)
from twistmq.protocol.record import SYS_COMPRESSED
from twistmq.protocol.topic_names import (
    RETRY_GROUP_TOPIC_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    TEMPLATE_TOPIC,
    topic_fault,
)

__all__ = ["BODY_SIZE_MAX", "OutgoingMessage", "Preparer", "ProducerOptions", "send_header"]

log = logging.getLogger("twistmq.client")

#: The maximum size of a body and of an encoded batch, in bytes. Source: DefaultMQProducer.
BODY_SIZE_MAX: Final = 4 << 20
#: The properties of most messages, around the unique id.
_WAITS: Final = format_properties({WAIT: "true", UNIQ_KEY: "%s"})
_WAITS_NOT: Final = format_properties({WAIT: "false", UNIQ_KEY: "%s"})
#: The limit of flags, positive or negative, that have a place in a batch.
_FLAG_MAX: Final = 1 << 31
#: The number of checked topic names that are remembered.
_TOPICS_MAX: Final = 4096


#: The properties of a message that is delivered at a given time.
_TIMES: Final = frozenset({TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS})


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a producer."""

    group: str = "twistmq_producer"
    #: The time-out of a send with all its attempts, in ms.
    timeout_ms: float = 3000
    #: The number of times that a send is tried again.
    retries: int = 2
    #: The time-out of one attempt in ms; None: a share of the time while there are other brokers.
    attempt_timeout_ms: float | None = None
    #: Whether to raise ``NotSafe`` when the broker did not wait for a flush or a slave.
    require_safe: bool = False
    #: Bodies of at least this size are compressed; 0: none.
    compress_over: int = 4096
    #: "zlib", "lz4" or "zstd".
    codec: str = "zlib"
    #: The maximum number and size of the messages that ``send_soon`` has in flight.
    in_flight_max: int = 1024
    in_flight_bytes_max: int = 64 << 20
    #: Whether messages that no caller waits for are put into batches.
    auto_batch: bool = False
    #: Whether slow and dead brokers are avoided, and for how long.
    avoid_slow: bool = False
    latencies: LatencyTable = TABLE_5
    #: Whether a send waits for a new master when all masters of its topic are gone.
    await_master: bool = False


def send_header(
    group: str, topic: str, queue_id: int, born_ms: int, properties: str, flag: int = 0,
    sys_flag: int = 0, reconsume_times: int = 0, is_batch: bool = False,
    max_reconsume_times: int | None = None,
) -> SendMessageRequestHeaderV2:
    """Return the header of a send; names are as at brokers, and properties are encoded."""
    return SendMessageRequestHeaderV2(
        group, topic, TEMPLATE_TOPIC, NEW_TOPIC_QUEUES, queue_id, sys_flag, born_ms, flag,
        properties, reconsume_times, False, max_reconsume_times=max_reconsume_times,
        batch=is_batch)


class OutgoingMessage(msgspec.Struct, gc=False):
    """A message, or a batch, that is ready to be sent.

    :param topic: the topic's name at brokers.
    :param ids: the unique ids, joined by commas.
    :param sharding_key: determines the queue; with "", the producer chooses it.
    :param waits: the message's WAIT, which is equal for all messages of a batch.
    :param tag: the message's tag, which is also equal for all messages of a batch.
    :param is_timed: whether it is delivered at a given time, which brokers before 5.0 ignore.
    :param may_be_batched: whether automatic batching may put it into a batch.
    """

    topic: str
    body: bytes
    #: The encoded properties, as in the header.
    properties: str
    ids: str
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    code: int = RequestCode.SEND_MESSAGE_V2
    sharding_key: str = ""
    waits: bool = True
    tag: str | None = None
    may_be_batched: bool = False
    is_timed: bool = False

    @property
    def size(self) -> int:
        """The approximate size in bytes, for limits."""
        return len(self.body) + len(self.properties) + 64


class Preparer:
    """Prepares the messages of a producer; several threads may call it.

    :param make_id: makes a unique id for a Unix time in ms.
    :param encode: converts a value to a body; with None, bodies are bytes.
    """

    def __init__(
        self, client: ClientCore, options: ProducerOptions, make_id: Callable[[int], str],
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        self._client = client
        self._options = options
        self._make_id = make_id
        self._encode = encode
        self._wall_ms = client.tasks.clock.wall_ms
        self._is_intercepted = bool(client.interceptors)
        self._compress_over = options.compress_over or BODY_SIZE_MAX + 1
        #: The names of checked topics, with their names at brokers.
        self._topics: dict[str, str] = {}

    def prepare(self, message: Message, extra: dict[str, str] | None = None) -> OutgoingMessage:
        """Check and encode a message.

        :param extra: system properties in addition to the message's own properties.
        :raises OptionError: when no broker would accept it.
        """
        topic = self._topics.get(message.topic) or self._topic(message.topic)
        body = self._body(message)
        sys_flag = message.sys_flag
        options = self._options
        try:
            if len(body) >= self._compress_over and not sys_flag & SYS_COMPRESSED:
                smaller, bits = compress(body, options.codec)
                # Random bytes get longer, perhaps longer than a broker allows.
                if len(smaller) < len(body):
                    body = smaller
                    sys_flag |= bits
            text, ids, properties = self._properties(message, extra)
            sharding_key = properties.get(SHARDING_KEY, "")
            return OutgoingMessage(
                topic, body, text, ids, flag=message.flag,
                sys_flag=sys_flag, sharding_key=sharding_key, waits=message.wait_stored,
                tag=properties.get(TAGS), is_timed=not _TIMES.isdisjoint(properties),
                may_be_batched=options.auto_batch and not sys_flag and not sharding_key
                and -_FLAG_MAX <= message.flag < _FLAG_MAX and may_be_batched(topic, properties))
        except TypeError:
            for name, flag in (("flag", message.flag), ("sys_flag", sys_flag)):
                if not isinstance(flag, int):
                    raise OptionError(f"{name} is {flag!r}: give a whole number") from None
            raise

    def _properties(
        self, message: Message, extra: dict[str, str] | None = None
    ) -> tuple[str, str, Mapping[str, str]]:
        """Return the encoded properties, the unique id, and the properties.

        If a message has only the properties that every message has, the last result is empty.
        """
        if extra is None and message.is_plain and not self._is_intercepted:
            ids = self.new_id()
            return (_WAITS if message.wait_stored else _WAITS_NOT) % ids, ids, {}
        properties = message.all_properties()
        if extra is not None:
            properties.update(extra)
        if self._is_intercepted:
            if UNIQ_KEY not in properties:
                properties[UNIQ_KEY] = self.new_id()
            self._client.interceptors.call("before_send", message.topic, properties)
            try:
                check_properties(properties)
            except OptionError:
                self._undo_faulty(properties, message, extra or {})
        unique = properties.get(UNIQ_KEY)
        if unique is None:
            unique = properties[UNIQ_KEY] = self.new_id()
        return format_properties(properties), unique, properties

    def _undo_faulty(
        self, properties: dict[str, str], message: Message, extra: Mapping[str, str]
    ) -> None:
        """Undo the changes of interceptors that cannot be sent; an interceptor stops no send."""
        own = {**message.all_properties(), **extra}
        for name, value in list(properties.items()):
            try:
                check_properties({name: value})
            except OptionError as error:
                log.error("before_send of %s made a property that cannot be sent, so the message "
                          "keeps the program's own: %s", self._client.interceptors, error)
                del properties[name]
                if name in own:
                    properties[name] = own[name]

    def _body(self, message: Message) -> bytes:
        body = message.body
        if type(body) is bytes and self._encode is None and 0 < len(body) <= BODY_SIZE_MAX:
            return body
        if self._encode is not None:
            try:
                body = self._encode(body)
            except OptionError:
                raise
            except Exception as error:  # the program's own function
                raise OptionError(f"the option encode failed for a {type(body).__name__}: "
                                  f"{error!r}") from error
        if not isinstance(body, bytes | bytearray | memoryview):
            raise OptionError(f"the body is a {type(body).__name__}, not bytes; a producer with "
                              "the option encode makes bytes of values")
        if not 0 < len(body) <= BODY_SIZE_MAX:
            raise OptionError(f"the body has {len(body)} bytes; 1 to {BODY_SIZE_MAX} may be sent")
        return bytes(body)

    def prepare_batch(self, messages: Sequence[Message]) -> OutgoingMessage:
        """Check and encode messages of one topic as one request.

        :raises OptionError: when the messages cannot be in one batch.
        """
        messages = message_list(messages)
        if not messages:
            raise OptionError("a batch has at least one message")
        first = messages[0]
        if first.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise OptionError("a batch cannot go to a retry topic")
        name, waits = first.topic, first.wait_stored
        topic = self._topic(name)
        parts, ids = [], []
        for message in messages:
            if message.topic != name or message.wait_stored != waits:
                raise OptionError("the messages of a batch have one topic and one wait_stored")
            if message.is_timed:
                raise OptionError("a message with a delay cannot be in a batch")
            if message.priority is not None:
                raise OptionError("a message with a priority cannot be in a batch, because all "
                                  "messages of a batch go to one queue")
            text, unique, _ = self._properties(message)
            # A batch has no place for the flag of a compressed body.
            parts.append((message.flag, self._body(message), text))
            ids.append(unique)
        return self.batch(topic, parts, ids, waits)

    def is_plain(self, message: Message) -> bool:
        """Whether a message, and any plain message of its topic, may be joined as a body alone."""
        return message.is_plain and not (
            self._is_intercepted or self._encode is not None or message.flag or message.sys_flag)

    @property
    def plain_size_max(self) -> int:
        """The maximum size of a body that may be joined alone, in bytes."""
        return min(self._compress_over - 1, BODY_SIZE_MAX)

    def join(
        self, topic: str, items: Sequence[bytes | OutgoingMessage], waits: bool
    ) -> tuple[OutgoingMessage, list[str]]:
        """Make one request from messages.

        :param topic: the topic's name at brokers.
        :param items: prepared messages, and bodies of plain messages, whose ids are made now.
        :returns: the request, and the unique id of each message.
        :raises OptionError: when it is too long.
        """
        text = _WAITS if waits else _WAITS_NOT
        make_id, now_ms = self._make_id, self._wall_ms()
        ids = [make_id(now_ms) if isinstance(item, bytes) else item.ids for item in items]
        parts = [(0, item, text % unique) if isinstance(item, bytes)
                 else (item.flag, item.body, item.properties)
                 for item, unique in zip(items, ids, strict=True)]
        if len(parts) > 1:
            return self.batch(topic, parts, ids, waits), ids
        only = items[0]
        if isinstance(only, bytes):
            only = OutgoingMessage(topic, only, parts[0][2], ids[0], waits=waits)
        return only, ids

    def batch(
        self, topic: str, parts: Sequence[tuple[int, bytes, str]], ids: Sequence[str], waits: bool
    ) -> OutgoingMessage:
        """Make one batch request from messages.

        :param topic: the topic's name at brokers.
        :param parts: the flag, body and encoded properties of each message.
        :param ids: the unique id of each message.
        :raises OptionError: when it is too long.
        """
        try:
            body = encode_batch(parts)
        except MessageIllegal as error:
            raise OptionError(str(error)) from None
        except struct.error as error:
            raise OptionError(f"the flag of a message is not an int32: {error}") from None
        if len(body) > BODY_SIZE_MAX:
            raise OptionError(f"the batch has {len(body)} bytes; {BODY_SIZE_MAX} may be sent")
        return OutgoingMessage(
            topic, body, format_properties({WAIT: "true" if waits else "false"}), ",".join(ids),
            sys_flag=0, is_batch=True, code=RequestCode.SEND_BATCH_MESSAGE, waits=waits)

    def new_id(self) -> str:
        """Return a new unique id."""
        return self._make_id(self._wall_ms())

    def _topic(self, name: str) -> str:
        """Return the name at brokers; :raises OptionError: when sending to it is impossible."""
        topic = self._topics.get(name)
        if topic is None:
            if not isinstance(name, str):
                raise OptionError(f"the topic of a message is {name!r}: give its name")
            topic = self._client.namespace.topic(name)
            fault = topic_fault(topic)
            if fault is not None:
                raise OptionError(f"topic {name!r}: {fault}")
            if topic in SEND_FORBIDDEN_TOPICS:
                raise OptionError(f"topic {name!r} is the system's own")
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            self._topics[name] = topic
        return topic
