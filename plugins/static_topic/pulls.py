"""Pulls from static topics: each pull reads the part that contains its offset.

A part on this broker is read by the wrapped handler with physical offsets. A part on another broker
is pulled from there, without a wait for new messages. The answer has logical offsets, and
``offsetDelta``, which the client adds to the offsets of the messages. At the end of a part the
client is directed to the beginning of the next one.

Source: PullMessageProcessor.rewriteRequestForStaticTopic, rewriteResponseForStaticTopic @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as changed
from twisted.internet.defer import Deferred

from twistmq.broker.api import AnyHandler, Handled, Reply, Request, RequestCode, ResponseCode
from twistmq.broker.api.headers import PullMessageRequestHeader, PullMessageResponseHeader
from twistmq.broker.api.requests import forwarded
from twistmq.broker.api.wire import PULL_COMMIT_OFFSET, PULL_SUSPEND
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    find_item,
    latest_item,
    next_item,
)
from twistmq.plugins.static_topic.remote import OtherBrokers
from twistmq.plugins.static_topic.table import LogicalPlace, QueueMappings, wrapped_row

__all__ = ["PULL_CODES", "Bounds", "physical_header", "rewritten", "wrapped_pull"]

PULL_CODES: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
#: Answer codes of another broker that are passed on.
_ACCEPTED: Final = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                    ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


def wrapped_pull(row: AnyHandler, mappings: QueueMappings, others: OtherBrokers) -> AnyHandler:
    """Wrap the handler of a pull code for static topics."""
    def _pull(request: Request[PullMessageRequestHeader], queue: LogicalPlace) -> Handled:
        item = find_item(queue.items, request.header.queue_offset)
        if item is None:
            # Differs from Apache, which answers with an exception until the offset is decided.
            return Reply(ResponseCode.PULL_NOT_FOUND, _nothing(request.header.queue_offset))
        header = physical_header(request.header, queue, item)
        if not queue.is_here(item):
            return Deferred.fromCoroutine(_pull_remote(request, header, queue, item))
        physical = Request(request.command, header, request.channel, request.now_ms)
        answer = row.handle(physical)
        if isinstance(answer, Deferred):
            request.kept_bytes = getattr(physical, "kept_bytes", 0)
            return answer.addCallback(lambda reply: None if reply is None else _logical(
                reply, header.queue_offset, queue, item))
        assert isinstance(answer, Reply)
        return _logical(answer, header.queue_offset, queue, item)

    async def _pull_remote(
        request: Request[PullMessageRequestHeader], header: PullMessageRequestHeader,
        queue: LogicalPlace, item: LogicQueueMappingItem,
    ) -> Reply:
        answer = await others.ask(
            item.bname, RequestCode.PULL_MESSAGE, forwarded(header, item.bname, request), _ACCEPTED)
        reply = Reply(answer.code, answer.header(PullMessageResponseHeader), answer.body,
                      answer.remark)
        return _logical(reply, header.queue_offset, queue, item)

    return wrapped_row(row, mappings, _pull)


def physical_header(
    header: PullMessageRequestHeader, queue: LogicalPlace, item: LogicQueueMappingItem
) -> PullMessageRequestHeader:
    """Return the header of a pull from one part of a logical queue."""
    sys_flag = header.sys_flag
    commit_offset = header.commit_offset
    committed = find_item(queue.items, commit_offset) if sys_flag & PULL_COMMIT_OFFSET else None
    if committed is item and queue.is_here(item):
        # Differs from Apache, which commits the logical offset as if it were a physical one.
        commit_offset = item.physical(commit_offset)
    else:
        # The client also sends its offsets in separate requests.
        sys_flag &= ~PULL_COMMIT_OFFSET
    if item is not queue.leader:
        # This part receives no new messages.
        sys_flag &= ~PULL_SUSPEND
    count = header.max_msg_nums
    if item.is_end_decided:
        count = min(count, item.end_offset - item.start_offset)
    return changed(header, queue_id=item.queue_id, max_msg_nums=count, sys_flag=sys_flag,
                   queue_offset=item.physical(header.queue_offset), commit_offset=commit_offset)


@dataclass(slots=True)
class Bounds:
    """The offsets in the answer to a pull: physical offsets of one part of a logical queue."""

    code: int
    next_begin: int
    minimum: int
    maximum: int
    item: LogicQueueMappingItem


def rewritten(bounds: Bounds, requested_offset: int, items: list[LogicQueueMappingItem]) -> Bounds:
    """Adapt the answer to a pull that found no messages to the parts of the logical queue.

    :param requested_offset: the physical offset of the pull.
    :param items: the parts of the logical queue.
    """
    item, code = bounds.item, bounds.code
    result = replace(bounds)
    is_leader = items[-1].gen == item.gen
    earliest = find_item(items, 0)
    is_earliest = earliest is not None and earliest.gen == item.gen
    if is_leader:
        if requested_offset > bounds.maximum:
            if code == ResponseCode.PULL_OFFSET_MOVED:
                result.next_begin = bounds.maximum
        elif requested_offset < bounds.minimum:
            result.next_begin = bounds.minimum
            result.code = ResponseCode.PULL_RETRY_IMMEDIATELY
    if is_earliest or not is_leader:
        if requested_offset < bounds.minimum:
            result.next_begin = bounds.minimum
            result.code = (ResponseCode.PULL_OFFSET_MOVED if is_earliest
                           else ResponseCode.PULL_RETRY_IMMEDIATELY)
        elif requested_offset >= bounds.maximum:
            following = next_item(items, item)
            if following is None:
                # The next part does not exist, or its start is not decided yet.
                result.code = ResponseCode.PULL_NOT_FOUND
            else:
                begin = following.start_offset
                return Bounds(ResponseCode.PULL_RETRY_IMMEDIATELY, begin, begin, begin, following)
        else:
            result.code = code
    return result


def _logical(
    reply: Reply, requested_offset: int, queue: LogicalPlace, item: LogicQueueMappingItem
) -> Reply:
    """Convert the offsets of an answer to those in the logical queue."""
    header = reply.header
    if not isinstance(header, PullMessageResponseHeader):
        return reply
    bounds = Bounds(reply.code, header.next_begin_offset, header.min_offset, header.max_offset,
                    item)
    if reply.code != ResponseCode.SUCCESS:
        bounds = rewritten(bounds, requested_offset, queue.items)
    item = bounds.item
    next_begin = bounds.next_begin
    if item.is_end_decided:
        next_begin = min(next_begin, item.end_offset)
    latest = latest_item(queue.items)
    assert latest is not None
    reply.code = bounds.code
    reply.header = changed(
        header, next_begin_offset=item.logical(next_begin),
        min_offset=item.logical(max(item.start_offset, bounds.minimum)),
        max_offset=max(item.logical(bounds.maximum), latest.logical_end),
        offset_delta=item.offset_delta)
    return reply


def _nothing(offset: int) -> PullMessageResponseHeader:
    return PullMessageResponseHeader(suggest_which_broker_id=0, next_begin_offset=offset,
                                     min_offset=0, max_offset=offset)
