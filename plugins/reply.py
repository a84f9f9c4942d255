"""Request and reply: a consumer's reply is delivered to the requesting producer (324, 325).

The requesting producer puts a CORRELATION_ID and its client id (REPLY_TO_CLIENT) into an ordinary
message and waits. The consumer sends the reply to the topic CLUSTER_REPLY_TOPIC, to the broker that
holds the request. This broker pushes the reply to the client with that id (326), stores it, and
reports to the consumer whether the push succeeded. The producer decides how long it waits: a later
reply is still pushed, and the client drops it.

Source: ReplyMessageProcessor, ProducerManager.findChannel, Broker2Client.callClient @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    Handled,
    MessageRecord,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    ResponseCode,
    Setting,
    format_properties,
    hookimpl,
    parse_properties,
)
from twistmq.broker.api.errors import MessageIllegal, RemotingError
from twistmq.broker.api.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    SendRefusedResponseHeader,
)
from twistmq.broker.api.limits import LONG_HEADER_SIZE_MAX
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.requests import SendTopics, queue_refusal
from twistmq.broker.api.wire import (
    FRAME_SIZE_MAX,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    RemotingCommand,
    index_keys,
    offset_message_id,
    tags_code,
)
from twistmq.broker.api.wire import properties as names

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]

#: The time within which the producer must accept the reply, ms. Source: Broker2Client.callClient.
PUSH_TIMEOUT_MS: Final = 10_000
#: The message id in the answer for a reply that is pushed but not stored; clients require one.
_NO_MESSAGE_ID: Final = "0"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A reply message that passed the checks."""

    request: Request[SendMessageRequestHeader]
    queue_id: int
    #: The properties of the message, including those added by the broker.
    properties: dict[str, str]


class ReplyRequests:
    """The reply handlers of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._region = broker.settings.text("regionId")
        self._topics = SendTopics(broker.settings, broker.topic_config, broker.subscription_group,
                                  broker.send_forbidden_topics)

    @property
    def _trace_on(self) -> bool:
        return self._broker.settings.flag("traceOn")

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(code, self._reply, header, header_size_max=LONG_HEADER_SIZE_MAX,
                           body_size_max=FRAME_SIZE_MAX, too_long=ResponseCode.MESSAGE_ILLEGAL)
            for code, header in (
                (RequestCode.SEND_REPLY_MESSAGE, SendMessageRequestHeader),
                (RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestHeaderV2),
            )
        ]

    def _reply(self, request: Request[SendMessageRequestHeader]) -> Handled:
        try:
            answer = self._check(request)
        except BrokerError as error:
            return Reply(error.response_code, self._short_header(), remark=str(error))
        pushed = self._push(answer)
        if not isinstance(pushed, Deferred):
            return self._store(answer, pushed)

        def store(refusal: str | None) -> Reply | Deferred[Reply]:
            return self._store(answer, refusal)

        return pushed.addCallback(store)

    def _check(self, request: Request[SendMessageRequestHeader]) -> _Answer:
        """:raises RequestRefused: when sending to the topic and queue is not allowed."""
        header = request.header
        # Any consumer may answer there: Apache's brokers require no permission.
        if header.topic != f"{self._broker.cluster_name}_REPLY_TOPIC":
            self._broker.require_access(request, publishes=(header.topic,))
        max_size = self._broker.settings.int("maxMessageSize")
        if len(request.body) > max_size:
            raise MessageIllegal(
                f"the message body has {len(request.body)} bytes, more than {max_size}")
        config = self._topics.find(request)
        if self._topics.made:
            self._topics.made = False
            self._broker.topics_changed()
        queue_id = header.queue_id
        if queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            raise queue_refusal(request, config)
        if queue_id < 0:
            queue_id = self._broker.random.randrange(max(config.write_queue_nums, 1))
        properties = parse_properties(header.properties or "")
        properties[names.MSG_REGION] = self._region
        properties[names.TRACE_ON] = "true" if self._trace_on else "false"
        return _Answer(request, queue_id, properties)

    def _warn(self, text: str, **values: object) -> None:
        """Log a fault of a request, at a limited rate."""
        self._lines.warn(self._broker.now_ms(), text, **values)

    # --- delivery to the producer

    def _push(self, answer: _Answer) -> Deferred[str | None] | str | None:
        """Push a reply message to the client that sent the request.

        :returns: None if the client accepted it, otherwise the reason of the failure.
        """
        client_id = answer.properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            self._warn("a reply message from {peer} does not name the client that sent the "
                       "request", peer=answer.request.channel.remote_address)
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        client = self._broker.clients.find_producer(client_id)
        if client is None:
            remark = f"push reply message fail, channel of <{client_id}> not found."
            self._warn("a reply message from {peer} did not reach {client}, which is not connected",
                       peer=answer.request.channel.remote_address, client=client_id)
            return remark
        # Apache's text has no space before "fail.".
        refused = f"push reply message to {client_id}fail."

        def answered(command: RemotingCommand) -> str | None:
            if command.code == ResponseCode.SUCCESS:
                return None
            self._warn("{client} refused a reply message: {remark}", client=client_id,
                       remark=command.remark)
            return refused

        def failed(failure: Failure) -> str:
            failure.trap(RemotingError)
            self._warn("a reply message did not reach {client}: {error}", client=client_id,
                       error=failure.getErrorMessage())
            return refused

        return client.channel.call(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push_header(answer),
            answer.request.body, timeout_ms=PUSH_TIMEOUT_MS).addCallbacks(answered, failed)

    def _push_header(self, answer: _Answer) -> ReplyMessageRequestHeader:
        header, now_ms = answer.request.header, self._broker.now_ms()
        properties = {**answer.properties, names.PUSH_REPLY_TIME: str(now_ms)}
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group, topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums, queue_id=header.queue_id,
            sys_flag=header.sys_flag, born_timestamp=header.born_timestamp, flag=header.flag,
            born_host=answer.request.channel.remote_address,
            store_host=self._broker.broker_address, store_timestamp=now_ms,
            properties=format_properties(properties), reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode))

    # --- the store, and the answer to the consumer

    def _store(self, answer: _Answer, refusal: str | None) -> Reply | Deferred[Reply]:
        """Store a reply message whether or not it was delivered, and answer its sender.

        A failure to store it is only logged, because the delivery is what matters.

        :param refusal: the reason why the reply was not delivered, or None if it was.
        """
        record = None
        if self._broker.settings.flag("storeReplyMessageEnable"):
            record = self._append(answer)
        reply = self._result(answer, record, refusal)
        if record is None:
            return reply
        safe = self._broker.acknowledgement.wait(record.next_offset)
        return reply if safe is None else safe.addCallback(lambda _: reply)

    def _append(self, answer: _Answer) -> MessageRecord | None:
        """Append the record of a reply message; :returns: None if it is not stored."""
        broker, request = self._broker, answer.request
        header = request.header
        # Differs from Apache, which loses the information whether the body is compressed.
        record = MessageRecord(
            header.topic, answer.queue_id, request.body,
            format_properties(answer.properties), header.born_timestamp,
            request.channel.remote_host, broker.store_host, index_keys(answer.properties),
            tags_code(answer.properties.get(names.TAGS)), header.flag,
            header.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_MASK),
            header.reconsume_times or 0)
        try:
            for error in broker.append([record]).values():
                raise error
        except BrokerError as error:
            self._warn("a reply message from {peer} is not stored: {error}",
                       peer=request.channel.remote_address, error=str(error))
            return None
        broker.stats.messages_put([record])
        return record

    def _result(
        self, answer: _Answer, record: MessageRecord | None, refusal: str | None
    ) -> Reply:
        code = ResponseCode.SUCCESS if refusal is None else ResponseCode.SYSTEM_ERROR
        if record is None and refusal is not None:
            return Reply(code, self._short_header(), remark=refusal)
        message_id, queue_offset = _NO_MESSAGE_ID, 0
        if record is not None:
            message_id = offset_message_id(self._broker.store_host, record.physical_offset)
            queue_offset = record.queue_offset
        return Reply(code, SendMessageResponseHeader(
            msg_id=message_id, queue_id=answer.queue_id, queue_offset=queue_offset,
            msg_region=self._region, trace_on=self._trace_on), remark=refusal)

    def _short_header(self) -> SendRefusedResponseHeader:
        return SendRefusedResponseHeader(msg_region=self._region, trace_on=self._trace_on)


_SETTINGS: Final = (Setting("storeReplyMessageEnable", "flag", True,
                "Whether reply messages are also stored in their topic.",
                source="BrokerConfig"),)


class Plugin:
    """Request and reply on one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return ReplyRequests(self._broker).handlers()
