"""A client for tests, with one connection to one address and plain calls.

It is based on ``twistmq.client.blocking.connection.Connection``: it has no routes, retries or
groups, and does not add properties to messages. Programs use ``twistmq.client`` instead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from twistmq.client.blocking.connection import Connection
from twistmq.client.core.consumer import pull_request as pulling
from twistmq.client.core.producer import outgoing_message as outgoing
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
)
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.protocol.properties import KEYS, TAGS, format_properties
from twistmq.protocol.record import StoredMessage, records_of

__all__ = ["RawClient", "pull_header", "records_of", "send_header"]


class RawClient(Connection):
    """One connection to a broker or a name server, with the requests that tests use most."""

    def send(
        self, topic: str, body: bytes, *, queue_id: int = 0, tag: str | None = None,
        keys: str | None = None, properties: Mapping[str, str] | None = None,
    ) -> SendMessageResponseHeader:
        """Send a message; a topic that does not exist is created with four queues.

        :returns: the position of the message.
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

        :param hold_ms: the time that the broker may hold the pull until a message arrives.
        :returns: the messages; empty if no message arrived.
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
        """Return the offset that the next message of a queue will have."""
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
    """Return the header for sending one message, as clients write it."""
    fields = dict(properties or {})
    if tag is not None:
        fields[TAGS] = tag
    if keys is not None:
        fields[KEYS] = keys
    return outgoing.send_header("test_producer", topic, queue_id, now_ms, format_properties(fields))


def pull_header(
    topic: str, offset: int = 0, *, queue_id: int = 0, group: str = "test_consumer",
    expression: str = "*", expression_type: str = "TAG", max_count: int = 32, hold_ms: int = 0,
) -> PullMessageRequestHeader:
    """Return the header of a pull that contains its own subscription."""
    return pulling.pull_header(
        MessageQueue(topic, "", queue_id), offset, group, max_count=max_count,
        expression=expression, expression_type=expression_type, hold_ms=hold_ms)
