"""Request and reply: a message whose consumer sends an answer back to its producer.

The producer gives the message an id (CORRELATION_ID), its client id and a time-out, and waits. The
consumer sends its answer to the cluster's reply topic, and the broker that stores the answer pushes
it to the client with that id (326). A broker knows clients by their heartbeats, so all brokers of
the cluster get a heartbeat before the first request. A reply for which no caller waits is answered
and dropped.

A consumer of this client replies through the broker from which it read the message, because that
broker certainly knows the producer. It uses another broker only if that one does not answer.

Source: RequestFutureHolder, DefaultMQProducerImpl (request, prepareSendRequest), MessageUtil,
ClientRemotingProcessor.receiveReplyMessage @5.3.3. Differs from Apache: a time-out is reported when
its time is over, not within a second; a reply that its broker could not push is not stored at
another broker.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final

from twistmq.client.base.errors import (
    Closed,
    NoRoute,
    OptionError,
    RemotingError,
    RequestRefused,
    RequestTimeout,
    SendFailed,
)
from twistmq.client.base.messages import Message, MessageQueue, ReceivedMessage, SendResult
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.engine import Connection
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.core.producer.busy_brokers import LOOK_MS
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.sender import RETRY_CODES, Sender, is_busy
from twistmq.protocol.addresses import split_address
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import ReplyMessageRequestHeader
from twistmq.protocol.properties import (
    CLUSTER,
    CORRELATION_ID,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TTL,
    parse_properties,
)
from twistmq.protocol.record import MAGIC_V1, StoredMessage, host_bytes

__all__ = ["Replies", "prepare_request", "reply_to", "request"]

log = logging.getLogger("twistmq.client")

_REPLY: Final = "reply"
#: The longest time for which a broker may delay a first request, in ms.
_HEARTBEAT_TIMEOUT_MS: Final = 1000
#: A broker that cannot push a reply answers SYSTEM_ERROR; another broker could not push it either.
_REPLY_RETRY_CODES: Final = RETRY_CODES - {ResponseCode.SYSTEM_ERROR}


def prepare_request(
    sender: Sender, message: Message, timeout_ms: float
) -> tuple[OutgoingMessage, str]:
    """Check and encode a request message; :returns: the message, and the id of its reply.

    :raises OptionError: when it is not valid or has a delay.
    """
    if message.is_timed:
        raise OptionError("a request message cannot have a delay")
    correlation_id = sender.preparer.new_id()
    ready = sender.prepare(message, {
        CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: sender.client.client_id,
        TTL: str(max(int(timeout_ms), 1))})
    return ready, correlation_id


async def request(
    sender: Sender, prepared: tuple[OutgoingMessage, str], queue: MessageQueue | None,
    timeout_ms: float,
) -> ReceivedMessage[Any]:
    """Send a request message and wait for its reply.

    :param prepared: see :func:`prepare_request`.
    :raises RequestTimeout: when there is no reply in time.
    :raises SendFailed, RequestRefused, NotSafe: as for a send.
    """
    client = sender.client
    client.check_open()
    replies = client.replies
    if not isinstance(replies, Replies):
        replies = client.replies = Replies(client)
    return await replies.request(sender, *prepared, queue, timeout_ms)


class Replies:
    """The request messages of a client that wait for their replies."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client
        #: The waiting callers, by the id of the reply.
        self._waiting: dict[str, Future[ReceivedMessage[Any]]] = {}
        #: The heartbeats that registered this client at brokers, by address.
        self._heartbeats: dict[str, Task[bool]] = {}
        client.engine.handlers[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = self._arrived
        client.engine.on_lost.append(
            lambda connection: self._heartbeats.pop(connection.address, None))
        client.on_close.append(self._close)

    async def request(
        self, sender: Sender, message: OutgoingMessage, correlation_id: str,
        queue: MessageQueue | None, timeout_ms: float,
    ) -> ReceivedMessage[Any]:
        """See :func:`request`."""
        tasks = self._client.tasks
        reply: Future[ReceivedMessage[Any]] = Future()
        self._waiting[correlation_id] = reply

        def sent(ended: Future[SendResult]) -> None:
            if isinstance(ended.error, Exception):
                reply.set_error(ended.error)

        sending: Task[SendResult] = tasks.spawn(
            self._send(sender, message, queue, tasks.now_ms + timeout_ms), "request")
        sending.when_done(sent)
        try:
            return await tasks.wait_for(timeout_ms, reply, lambda: RequestTimeout(
                f"topic {message.topic}: no reply within {timeout_ms / 1000:g} s"))
        except RequestTimeout:
            await self._require_sent(sending)
            raise
        finally:
            del self._waiting[correlation_id]
            sending.cancel()

    async def _require_sent(self, sending: Task[SendResult]) -> None:
        """Check whether a request without a reply was never stored because of a busy broker.

        Its send has the same deadline, and fails the next time its gate checks the waiting sends.

        :raises Busy, SendFailed: when a broker was busy until the end. In this case the request was
            not stored there, and a :class:`RequestTimeout` would not express that.
        """
        with suppress(Exception):
            await self._client.tasks.wait_for(2 * LOOK_MS, sending, TimeoutError)
        error = sending.error if sending.is_done else None
        if error is not None and (is_busy(error) or (
                isinstance(error, SendFailed)
                and any(is_busy(each.error) for each in error.attempts))):
            raise error

    async def _send(
        self, sender: Sender, message: OutgoingMessage, queue: MessageQueue | None,
        deadline_ms: float,
    ) -> SendResult:
        try:
            # A broker that hangs must leave time for the message and the reply, which may come
            # through another broker.
            await self._client.tasks.wait_for(
                (deadline_ms - self._client.tasks.now_ms) / 3,
                self._client.tasks.spawn(self._tell_brokers(message.topic), "heartbeats"),
                lambda: TimeoutError())
        except TimeoutError:
            log.debug("a broker did not answer the heartbeat before a request in time")
        remaining_ms = max(deadline_ms - self._client.tasks.now_ms, 1)
        return await sender.send(message, queue, timeout_ms=remaining_ms)

    async def _tell_brokers(self, topic: str) -> None:
        """Register this client at all brokers of the topic's clusters."""
        client = self._client
        route = await client.routes.find_for_send(topic)
        for cluster in {broker.cluster for broker in route.data.broker_datas}:
            try:
                await client.routes.find_for_send(f"{cluster}_REPLY_TOPIC")
            except (RemotingError, RequestRefused, NoRoute) as error:
                log.debug("the cluster %s has no reply topic: %s", cluster, error)
        for address in client.broker_addresses():
            if address not in self._heartbeats:
                self._heartbeats[address] = client.tasks.spawn(
                    client.heartbeat(address, _HEARTBEAT_TIMEOUT_MS), "heartbeat")
        await client.tasks.all_of(heartbeat for heartbeat in self._heartbeats.values()
                                  if not heartbeat.is_done)

    def _arrived(self, connection: Connection, pushed: RemotingCommand) -> None:
        """Handle a reply that a broker pushes.

        :raises HeaderError: when it is not a reply.
        """
        header = pushed.header(ReplyMessageRequestHeader)
        properties = header.properties or ""
        waiting = self._waiting.get(parse_properties(properties).get(CORRELATION_ID, ""))
        if waiting is None:
            log.debug("%s pushed a reply for which no caller waits", connection.address)
        else:
            waiting.set_result(self._message(header, properties, pushed.body))
        connection.link.answer(pushed, ResponseCode.SUCCESS)

    def _message(
        self, header: ReplyMessageRequestHeader, properties: str, body: bytes
    ) -> ReceivedMessage[Any]:
        record = StoredMessage(
            0, MAGIC_V1, 0, header.queue_id, header.flag, 0, 0, header.sys_flag,
            header.born_timestamp, _host(header.born_host), header.store_timestamp,
            _host(header.store_host), header.reconsume_times or 0, 0, body, header.topic,
            properties)
        queue = MessageQueue(header.topic, "", header.queue_id)
        return ReceivedMessage(record, queue, 0, header.topic)

    def _close(self) -> None:
        for waiting in list(self._waiting.values()):
            waiting.set_error(Closed("the client is closed"))


def _host(address: str) -> bytes:
    """:raises ValueError: when the address is not an "ip:port"."""
    return host_bytes(*split_address(address.removeprefix("/")))


async def reply_to(
    sender: Sender, message: ReceivedMessage[Any], body: bytes
) -> SendResult:
    """Send the reply to a request message.

    :raises OptionError: when the message is not a request, or the body cannot be sent.
    :raises RequestRefused: when the producer does not accept it, for example because it is gone.
    :raises SendFailed: when no broker answers.
    """
    properties = message.properties
    cluster, client_id = properties.get(CLUSTER), properties.get(REPLY_TO_CLIENT)
    if not cluster or not client_id or CORRELATION_ID not in properties:
        raise OptionError(f"{message!r} is not a request message: it has no address for a reply")
    topic = f"{cluster}_REPLY_TOPIC"
    ready = sender.prepare(Message(topic, body), {
        MSG_TYPE: _REPLY, CORRELATION_ID: properties[CORRELATION_ID], REPLY_TO_CLIENT: client_id,
        TTL: properties.get(TTL) or "3000"})
    # The cluster's topic does not belong to a namespace.
    ready.topic, ready.code = topic, RequestCode.SEND_REPLY_MESSAGE_V2
    route = await sender.client.routes.find_for_send(topic)
    near = [queue for queue in route.write_queues
            if queue.broker_name == message.queue.broker_name]
    if near:
        try:
            return await sender.send(ready, near[0], retry_codes=_REPLY_RETRY_CODES)
        except SendFailed as error:
            log.warning("the broker of %r does not accept its reply: %s", message, error)
    return await sender.send(ready, retry_codes=_REPLY_RETRY_CODES)
