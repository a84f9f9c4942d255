"""Traces: records of sent and consumed messages, which the client sends to the brokers.

Records wait until there are ``BATCH`` of them, or for ``FLUSH_MS``, and go in one message to the
trace topic. At most ``QUEUE_MAX`` records wait; later ones are dropped. The first drop is logged at
once, and the number of all of them at the close. A close sends the waiting records, for at most
``CLOSE_MS``. As in Apache's client, failed sends have no record.

Source: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl @5.3.3. Differs
from Apache: ends of transactions and recalls have no record.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final

from twistmq.client.base.errors import NoRoute
from twistmq.client.base.messages import Message, ReceivedMessage, SendResult
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Task, Timer
from twistmq.client.core.producer.outgoing_message import OutgoingMessage, Preparer
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol import properties as names
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.protocol.trace_records import (
    ContextCode,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    encode_records,
    record_keys,
)

__all__ = ["TRACE_GROUP", "Trace"]

log = logging.getLogger("twistmq.client")

#: The prefix of the groups of senders of traces. Source: TraceConstants.GROUP_NAME_PREFIX.
TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
BATCH: Final = 20
QUEUE_MAX: Final = 2048
FLUSH_MS: Final = 5000
CLOSE_MS: Final = 5000
#: The number of characters of the keys of one message; its properties have at most 32 KiB.
_KEYS_MAX: Final = 16_000
#: The number of consumptions that have not ended; beyond it, the oldest is forgotten.
_OPEN_MAX: Final = 10_000
_OUTCOMES: Final = {"success": ContextCode.SUCCESS, "time-out": ContextCode.TIME_OUT,
                    "exception": ContextCode.EXCEPTION, "no result": ContextCode.RETURN_NULL,
                    "retry": ContextCode.FAILED}
_TIMED: Final = (names.DELAY, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC, names.TIMER_DELIVER_MS)


class Trace:
    """The records of one producer or consumer.

    :param sender: sends the records; its group begins with ``TRACE_GROUP``.
    :param preparer: makes the messages with the records.
    :param group: the group of the producer or consumer, without the namespace.
    """

    def __init__(
        self, client: ClientCore, sender: Sender, preparer: Preparer, group: str
    ) -> None:
        self._client = client
        self._sender = sender
        self._preparer = preparer
        self._group = group
        self._records: deque[TraceRecord] = deque()
        self._dropped = 0
        self._timer: Timer | None = None
        self._sending: Task[None] | None = None
        #: The id and the start of each consumption, by queue and offset.
        self._open: OrderedDict[tuple[MessageQueue, int], tuple[str, int]] = OrderedDict()
        client.before_close.append(self.close)

    # --- recording

    def sent(self, message: OutgoingMessage, result: SendResult, duration_ms: float) -> None:
        """Record a message or a batch that was stored."""
        if not result.is_traced:
            return
        properties = parse_properties(message.properties)
        kind = MessageType.NORMAL
        if names.TRAN_MSG in properties:
            kind = MessageType.TRANSACTION_HALF
        elif any(name in properties for name in _TIMED):
            kind = MessageType.DELAY
        try:
            host = self._client.routes.master(self._client.routes.broker_of(result.queue))
        except NoRoute:
            host = None
        self._add(Pub(
            int(self._client.tasks.clock.wall_ms() - duration_ms), result.region, self._group,
            result.queue.topic, message.ids, properties.get(names.TAGS),
            properties.get(names.KEYS), host, len(message.body), int(duration_ms), kind,
            result.offset_id, True))

    def consuming(
        self, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]]
    ) -> None:
        """Record messages that are passed to a handler."""
        now_ms = self._client.tasks.clock.wall_ms()
        request_id = self._preparer.new_id()
        for message in messages:
            properties = message.properties
            if properties.get(names.TRACE_ON) == "false":
                continue
            if len(self._open) >= _OPEN_MAX:
                self._open.popitem(last=False)
            self._open[(queue, message.offset)] = request_id, now_ms
            self._add(SubBefore(
                now_ms, properties.get(names.MSG_REGION), self._group, request_id, message.id,
                message.record.reconsume_times, properties.get(names.KEYS)))

    def consumed(
        self, queue: MessageQueue, messages: Sequence[ReceivedMessage[Any]], outcome: str
    ) -> None:
        """Record the end of a handler; ``outcome`` is the result for interceptors."""
        now_ms = self._client.tasks.clock.wall_ms()
        for message in messages:
            begun = self._open.pop((queue, message.offset), None)
            if begun is not None:
                code = _OUTCOMES[outcome]
                self._add(SubAfter(
                    begun[0], message.id, (now_ms - begun[1]) // len(messages),
                    code is ContextCode.SUCCESS, message.properties.get(names.KEYS), code, now_ms,
                    self._group))

    # --- sending

    def _add(self, record: TraceRecord) -> None:
        if len(self._records) >= QUEUE_MAX:
            if not self._dropped:
                log.warning("traces of %s are dropped, because %d are already waiting",
                            self._group, QUEUE_MAX)
            self._dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= BATCH:
            self._flush()
        elif self._timer is None:
            self._timer = self._client.tasks.call_later(FLUSH_MS, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None or self._sending.is_done:
            self._sending = self._client.tasks.spawn(self._send_all(), "traces")

    async def _send_all(self) -> None:
        while self._records:
            batch, keys = self._take()
            try:
                await self._sender.send(self._preparer.prepare(
                    Message(TRACE_TOPIC, encode_records(batch), keys=list(keys))))
            except BrokerError as error:
                log.warning("%d traces of %s are lost: %s", len(batch), self._group, error)

    def _take(self) -> tuple[list[TraceRecord], dict[str, None]]:
        """Take the records for one message; return them with the message's keys, in order."""
        batch: list[TraceRecord] = []
        keys: dict[str, None] = {}
        size = 0
        while self._records and len(batch) < BATCH:
            record_key_set = record_keys(self._records[0])
            size += sum(len(key) + 1 for key in record_key_set)
            if batch and size > _KEYS_MAX:
                break
            batch.append(self._records.popleft())
            keys.update(dict.fromkeys(record_key_set))
        return batch, keys

    async def close(self) -> None:
        """Send the waiting records; a second call does nothing."""
        if self.close not in self._client.before_close:
            return
        self._client.before_close.remove(self.close)
        await self.flush()
        if self._dropped:
            log.warning("%d traces of %s were dropped in all", self._dropped, self._group)

    async def flush(self) -> None:
        """Send the waiting records, for at most the time of a close."""
        self._flush()
        assert self._sending is not None
        try:
            await self._client.tasks.wait_for(CLOSE_MS, self._sending, lambda: TimeoutError())
        except TimeoutError:
            log.warning("%d traces of %s are lost: the brokers take too long",
                        len(self._records), self._group)
