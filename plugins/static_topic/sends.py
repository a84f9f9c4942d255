"""Sends to static topics: stored in the physical queue, answered with the logical offset.

The handlers of sends are wrapped. Sends to other topics pass unchanged. While a broker has no
static topic, a batch of requests costs only one truth test.

Source: SendMessageProcessor.processRequest, rewriteResponseForStaticTopic @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as changed
from twisted.internet.defer import Deferred

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    Handled,
    Reply,
    Request,
    RequestCode,
    ResponseCode,
)
from twistmq.broker.api.headers import SendMessageResponseHeader
from twistmq.broker.api.requests import DeferredReply
from twistmq.broker.api.wire import TRAN_MSG
from twistmq.plugins.static_topic.table import LogicalPlace, QueueMappings

__all__ = ["SEND_CODES", "wrapped_send"]

SEND_CODES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2,
                     RequestCode.SEND_BATCH_MESSAGE)
_HALF: Final = f"{TRAN_MSG}\x01true"


def wrapped_send(row: AnyHandler, mappings: QueueMappings) -> AnyHandler:
    """Wrap the handler of a send code for static topics.

    :param row: the handler that stores the sends.
    """
    inner = row.handle_batch
    assert inner is not None
    table = mappings.table

    def handle_batch(requests: Sequence[Request[Any]]) -> Sequence[Handled]:
        if not table:
            return inner(requests)
        return _send(requests)

    def _send(requests: Sequence[Request[Any]]) -> Sequence[Handled]:
        queues: dict[int, LogicalPlace] = {}
        refused: dict[int, Handled] = {}
        passed: list[Request[Any]] = []
        for index, request in enumerate(requests):
            queue = None
            if request.header.topic in table:
                try:
                    queue = mappings.logical_queue(request, choose=True)
                except BrokerError as error:
                    refused[index] = Reply(error.response_code, remark=str(error))
                    continue
            if queue is not None:
                queues[index] = queue
                request = Request(request.command, changed(
                    request.header, queue_id=queue.leader.queue_id), request.channel,
                    request.now_ms)
            passed.append(request)
        answers = iter(inner(passed) if passed else ())
        return [refused[index] if index in refused else _answered(
            next(answers), queues.get(index), request) for index, request in enumerate(requests)]

    return replace(row, handle=lambda request: handle_batch([request])[0],
                   handle_batch=handle_batch)


def _answered(answer: Handled, queue: LogicalPlace | None, request: Request[Any]) -> Handled:
    """Let an answer name the logical queue."""
    if queue is None:
        return answer
    if isinstance(answer, DeferredReply):
        _rewrite(answer.reply, queue, request)
    elif isinstance(answer, Reply):
        _rewrite(answer, queue, request)
    elif isinstance(answer, Deferred):
        return answer.addCallback(_rewrite, queue, request)
    return answer


def _rewrite(reply: Reply, queue: LogicalPlace, request: Request[Any]) -> Reply:
    header = reply.header
    if reply.code == ResponseCode.SUCCESS and isinstance(header, SendMessageResponseHeader):
        # The offset of a half message belongs to the half topic, and the producer uses it to end
        # the transaction. Differs from Apache, whose transactions fail after a queue was moved.
        is_half = _HALF in (request.header.properties or "")
        reply.header = changed(header, queue_id=queue.number, queue_offset=header.queue_offset
                               if is_half else queue.leader.logical_inside(header.queue_offset))
    return reply
