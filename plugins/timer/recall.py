"""RECALL_MESSAGE (370): a producer recalls a message that waits for its time.

The response to a send of a timed message contains a handle, which holds the message's topic, broker
and time. To recall the message, the broker stores another message for the same tick, which names
the first one in TIMER_DEL_UNIQKEY.

Source: RecallMessageProcessor, RecallMessageHandle, SendMessageProcessor.attachRecallHandle @5.3.3.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from twistmq.broker.api import (
    Handled,
    MessageRecord,
    Reply,
    Request,
    RequestCode,
    ResponseCode,
    format_properties,
    parse_properties,
)
from twistmq.broker.api.headers import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    RecallRefusedResponseHeader,
    SendMessageResponseHeader,
)
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.requests import DeferredReply
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.api.wire import PERM_WRITE, index_keys, tags_code, utf8
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.timer.records import delete_key

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, SendBatch

__all__ = ["RecallHandle", "RecallMessage", "add_recall_handles", "decode_handle", "encode_handle"]

_VERSION: Final = "v1"
_TAG: Final = "_RECALL_TAG_"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NOT_AVAILABLE: Final = "recall failed, broker service not available"
_NOT_DONE: Final = "recall failed, execute error"


class RecallHandle(NamedTuple):
    """The fields of a handle after its version."""

    topic: str
    broker_name: str
    #: Unix ms, as text.
    timestamp: str
    unique_key: str


def encode_handle(handle: RecallHandle) -> str:
    """Encode a handle in the form that clients pass on."""
    return base64.urlsafe_b64encode(utf8(" ".join((_VERSION, *handle)))).decode("ascii")


def decode_handle(text: str) -> RecallHandle | None:
    """Decode a handle; None for any other text."""
    try:
        data = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4),
                                altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    items = data.decode("utf-8", "replace").split(" ")
    return RecallHandle(*items[1:5]) if items[0] == _VERSION and len(items) >= 5 else None


def add_recall_handles(batch: SendBatch, broker_name: str) -> None:
    """Add to the responses the handles by which waiting messages can be recalled."""
    for request, records, answer in zip(
            batch.requests, batch.records, batch.replies, strict=True):
        reply = answer.reply if isinstance(answer, DeferredReply) else answer
        if (len(records) != 1 or request.command.code == RequestCode.SEND_BATCH_MESSAGE
                or not isinstance(reply, Reply) or reply.code != ResponseCode.SUCCESS
                or names.TIMER_OUT_MS not in records[0].properties):
            continue
        properties = parse_properties(records[0].properties)
        topic = properties.get(names.REAL_TOPIC, RETRY_GROUP_TOPIC_PREFIX)
        out_ms = properties.get(names.TIMER_OUT_MS, "")
        header = reply.header
        if (not topic.startswith(RETRY_GROUP_TOPIC_PREFIX) and _NUMBER.fullmatch(out_ms)
                and isinstance(header, SendMessageResponseHeader)):
            # The handle has the earliest time for which the message's tick is the last one before.
            header.recall_handle = encode_handle(RecallHandle(
                topic, broker_name, str(int(out_ms) + 1), properties.get(names.UNIQ_KEY, "")))


class RecallMessage:
    """The handler of one broker.

    :param has_wheel: whether the broker supports timed messages.
    """

    log = Logger()

    def __init__(self, broker: Broker, has_wheel: bool) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._has_wheel = has_wheel
        self._region = broker.settings.text("regionId")

    def handle(self, request: Request[RecallMessageRequestHeader]) -> Handled:
        """Recall a message."""
        refusal = self._refusal() or self._topic_refusal(request.header.topic)
        if refusal is not None:
            return self._refused(*refusal)
        handle = decode_handle(request.header.recall_handle)
        if handle is None:
            return self._refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        fault = self._fault(request, handle)
        if fault:
            return self._refused(ResponseCode.ILLEGAL_OPERATION, fault)
        if not self._has_wheel:
            return self._refused(ResponseCode.SYSTEM_ERROR, _NOT_DONE)
        record = self._record(request, handle)
        for error in self._broker.append([record]).values():
            self._lines.warn(request.now_ms, "a message of {topic} cannot be recalled: {error}",
                             topic=handle.topic, error=str(error))
            return self._refused(ResponseCode.SYSTEM_ERROR, _NOT_DONE)
        self._broker.stats.messages_put([record])
        reply = Reply(header=RecallMessageResponseHeader(
            msg_id=handle.unique_key, msg_region=self._region))
        safe = self._broker.acknowledgement.wait(record.next_offset)
        if safe is None:
            return reply

        # Differs from Apache, which responds SUCCESS however the flush ends.
        def set_code(code: ResponseCode) -> None:
            reply.code = code

        return DeferredReply(reply, safe.addCallback(set_code))

    def _refused(self, code: int, remark: str) -> Reply:
        return Reply(code, RecallRefusedResponseHeader(msg_region=self._region), remark=remark)

    def _refusal(self) -> tuple[int, str] | None:
        """Return the reason why no message can be recalled now."""
        settings = self._broker.settings
        if not settings.flag("recallMessageEnable"):
            return ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
        if self._broker.is_slave:
            return ResponseCode.SLAVE_NOT_AVAILABLE, _NOT_AVAILABLE
        if not (settings.int("brokerPermission") & PERM_WRITE
                or settings.flag("allowRecallWhenBrokerNotWriteable")):
            return ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_AVAILABLE
        return None

    def _topic_refusal(self, topic: str) -> tuple[int, str] | None:
        if self._broker.topic_config.get(topic) is None:
            return (ResponseCode.TOPIC_NOT_EXIST,
                    f"recall failed, the topic[{topic}] not exist")
        return None

    def _fault(self, request: Request[RecallMessageRequestHeader], handle: RecallHandle) -> str:
        """Return the fault of a handle; an empty text for a valid one."""
        for text in (handle.unique_key, request.header.producer_group or ""):
            if "\x01" in text or "\x02" in text:
                # It would add properties: another message to recall, or light queues.
                return "recall failed, the unique key or the producer group has a separator"
        if handle.topic != request.header.topic:
            return "recall failed, topic not match"
        if handle.broker_name != self._broker.broker_name:
            return _NOT_AVAILABLE
        time_ms = int(handle.timestamp) if _NUMBER.fullmatch(handle.timestamp) else -1
        remaining_ms = time_ms - self._broker.now_ms()
        if not 0 < remaining_ms < self._broker.settings.int("timerMaxDelaySec") * 1000:
            return "recall failed, timestamp invalid"
        return ""

    def _record(
        self, request: Request[RecallMessageRequestHeader], handle: RecallHandle
    ) -> MessageRecord:
        """Make the message that recalls another message."""
        now_ms = self._broker.now_ms()
        properties = {
            names.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.unique_key),
            names.UNIQ_KEY: handle.unique_key, names.TIMER_DELIVER_MS: handle.timestamp,
            names.BORN_TIMESTAMP: str(now_ms), names.PGROUP: request.header.producer_group or "",
            names.TAGS: _TAG,
        }
        properties = {name: text for name, text in properties.items() if text}
        return MessageRecord(
            handle.topic, 0, b"0", format_properties(properties), now_ms,
            request.channel.remote_host, self._broker.store_host, index_keys(properties),
            tags_code(_TAG))
