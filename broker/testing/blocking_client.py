"""A blocking client for tests: one connection, plain calls, replies matched by opaque.

It knows one address and no routes, retries or groups; it shows what a broker answers. A client
for programs comes later and elsewhere.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from itertools import count
from types import TracebackType

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RemotingSendError, RemotingTimeout, RequestRefused
from twistmq.broker.topic_names import TEMPLATE_TOPIC
from twistmq.broker.wire.command import RemotingCommand, decode_command, encode_request
from twistmq.broker.wire.frame import JSON, FrameDecoder
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
)
from twistmq.broker.wire.headers.pull import PullMessageRequestHeader
from twistmq.broker.wire.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.broker.wire.properties import KEYS, TAGS, format_properties
from twistmq.broker.wire.record import StoredMessage, decode_record

__all__ = ["BlockingClient", "pull_header", "records_of", "send_header"]

#: Bits of a pull's system flag: may be held, subscription is given.
_SUSPEND, _SUBSCRIPTION = 2, 4


class BlockingClient:
    """One connection to a broker or a name server.

    :param address: "host:port".
    :param timeout_s: bound on connecting and on each reply, seconds.

    ``requests`` holds what the server asked or told meanwhile.
    """

    def __init__(self, address: str, timeout_s: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self.timeout_s = timeout_s
        self.requests: list[RemotingCommand] = []
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._replies: dict[int, RemotingCommand] = {}
        self._opaques = count(1)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    # --- requests and replies

    def begin(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        oneway: bool = False, serialize_type: int = JSON,
    ) -> int:
        """Send a request.

        :returns: its opaque, for :meth:`reply`.
        :raises RemotingSendError: when the connection is lost.
        """
        opaque = next(self._opaques)
        self._socket.settimeout(self.timeout_s)
        try:
            self._socket.sendall(encode_request(code, opaque, header, body, oneway=oneway,
                                                serialize_type=serialize_type))
        except OSError as error:
            raise RemotingSendError(f"the connection was lost: {error}") from None
        return opaque

    def reply(self, opaque: int, timeout_s: float | None = None) -> RemotingCommand:
        """Wait for the reply to a request.

        :raises RemotingTimeout: when it does not come in time.
        :raises RemotingSendError: when the connection is lost first.
        """
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while opaque not in self._replies:
            self._receive(deadline)
        return self._replies.pop(opaque)

    def request(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"",
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request and wait for its reply, whatever its code."""
        return self.reply(self.begin(code, header, body), timeout_s)

    def wait_for_request(self, code: int) -> RemotingCommand:
        """Wait until the server sends a request of this code; :returns: it."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            for command in self.requests:
                if command.code == code:
                    self.requests.remove(command)
                    return command
            self._receive(deadline)

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RemotingTimeout("no reply in time")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            raise RemotingTimeout("no reply in time") from None
        except OSError as error:
            raise RemotingSendError(f"the connection was lost: {error}") from None
        if not data:
            raise RemotingSendError("the server closed the connection")
        for frame in self._decoder.feed(data):
            command = decode_command(frame)
            if command.is_response:
                self._replies[command.opaque] = command
            else:
                self.requests.append(command)
        if self._decoder.failure:
            raise RemotingSendError(self._decoder.failure)

    # --- what tests mostly do

    def send(
        self, topic: str, body: bytes, *, queue_id: int = 0, tag: str | None = None,
        keys: str | None = None, properties: Mapping[str, str] | None = None,
    ) -> SendMessageResponseHeader:
        """Send one message; a topic that is not there is created with four queues.

        :returns: where it is.
        :raises RequestRefused: with the broker's code and remark.
        """
        header = send_header(topic, time.time_ns() // 1_000_000, queue_id=queue_id, tag=tag,
                             keys=keys, properties=properties)
        reply = self.request(RequestCode.SEND_MESSAGE_V2, header, body)
        _require(reply, ResponseCode.SUCCESS)
        return reply.header(SendMessageResponseHeader)

    def pull(
        self, topic: str, offset: int = 0, *, queue_id: int = 0, group: str = "test_consumer",
        expression: str = "*", expression_type: str = "TAG", max_count: int = 32,
        hold_ms: int = 0,
    ) -> list[StoredMessage]:
        """Pull messages of one queue.

        :param hold_ms: how long the broker may wait for a message when there is none.
        :returns: none when there is none.
        :raises RequestRefused: with the broker's code and remark.
        """
        header = pull_header(topic, offset, queue_id=queue_id, group=group, expression=expression,
                             expression_type=expression_type, max_count=max_count, hold_ms=hold_ms)
        reply = self.request(RequestCode.PULL_MESSAGE, header,
                             timeout_s=self.timeout_s + hold_ms / 1000)
        _require(reply, ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                 ResponseCode.PULL_RETRY_IMMEDIATELY)
        return records_of(reply.body)

    def max_offset(self, topic: str, queue_id: int = 0) -> int:
        """The offset the next message of a queue will have."""
        reply = self.request(RequestCode.GET_MAX_OFFSET,
                             GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id))
        _require(reply, ResponseCode.SUCCESS)
        return reply.header(GetMaxOffsetResponseHeader).offset


def _require(reply: RemotingCommand, *codes: int) -> None:
    if reply.code not in codes:
        raise RequestRefused(reply.code, reply.remark or f"the reply's code is {reply.code}")


def send_header(
    topic: str, now_ms: int, *, queue_id: int = 0, tag: str | None = None,
    keys: str | None = None, properties: Mapping[str, str] | None = None,
) -> SendMessageRequestHeaderV2:
    """The header of a send of one message, as clients write it."""
    fields = dict(properties or {})
    if tag is not None:
        fields[TAGS] = tag
    if keys is not None:
        fields[KEYS] = keys
    return SendMessageRequestHeaderV2(
        producer_group="test_producer", topic=topic, default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=4, queue_id=queue_id, sys_flag=0, born_timestamp=now_ms, flag=0,
        properties=format_properties(fields))


def pull_header(
    topic: str, offset: int = 0, *, queue_id: int = 0, group: str = "test_consumer",
    expression: str = "*", expression_type: str = "TAG", max_count: int = 32, hold_ms: int = 0,
) -> PullMessageRequestHeader:
    """The header of a pull that brings its own subscription."""
    return PullMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, queue_offset=offset,
        max_msg_nums=max_count, sys_flag=_SUBSCRIPTION | (_SUSPEND if hold_ms else 0),
        commit_offset=0, suspend_timeout_millis=hold_ms, sub_version=0, subscription=expression,
        expression_type=expression_type)


def records_of(body: bytes) -> list[StoredMessage]:
    """The messages of a pull's body."""
    messages: list[StoredMessage] = []
    position = 0
    while position < len(body):
        messages.append(decode_record(body, position))
        position += messages[-1].size
    return messages
