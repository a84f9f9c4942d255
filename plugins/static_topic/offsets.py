"""Offsets of groups, and bounds of queues, for static topics: 14, 15, 29-32.

A logical queue consists of parts, which are physical queues on different brokers, and clients know
only its logical offsets. A request may arrive at a broker whose part does not contain the offset or
the message in question, and each part counts its own physical offsets. Therefore each question is
answered by the part of the logical queue that knows the answer, here or on another broker, and the
answer is converted to a logical offset. The consumer offset of a group is stored on the broker of
the physical queue it refers to, so that it moves with the group from part to part.

Source: ConsumerManageProcessor.rewriteRequestForStaticTopic, AdminBrokerProcessor
(rewriteRequestForStaticTopic, handleGetMinOffsetForStaticTopic) @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace as changed
from twisted.internet.defer import Deferred

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    CommandHeader,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.headers import offset as headers
from twistmq.broker.api.requests import forwarded
from twistmq.broker.api.wire import RemotingCommand
from twistmq.plugins.static_topic.mapping import LogicQueueMappingItem, find_item, latest_item
from twistmq.plugins.static_topic.remote import OtherBrokers
from twistmq.plugins.static_topic.table import LogicalPlace, QueueMappings, wrapped_row

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["wrapped_offset_rows"]

#: Answers a request, or returns the request that the wrapped handler should serve.
Answer = Callable[
    [Request[Any], LogicalPlace], "Coroutine[Any, Any, Reply] | Request[Any]"]

_CODES: Final = (
    RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME)


def wrapped_offset_rows(
    broker: Broker, rows: Mapping[int, AnyHandler], mappings: QueueMappings, others: OtherBrokers
) -> list[AnyHandler]:
    """Return the existing handlers of offset requests, wrapped for static topics."""
    questions = _OffsetQuestions(broker, others)
    answers: dict[int, Answer] = dict(zip(_CODES, (
        questions.query, questions.update, questions.search, questions.maximum,
        questions.minimum, questions.earliest_time), strict=True))
    return [_wrapped(rows[code], answer, mappings) for code, answer in answers.items()
            if code in rows]


def _wrapped(row: AnyHandler, answer: Answer, mappings: QueueMappings) -> AnyHandler:
    def handle(request: Request[Any], queue: LogicalPlace) -> Handled:
        result = answer(request, queue)
        if isinstance(result, Request):
            return row.handle(result)
        return Deferred.fromCoroutine(result)

    return wrapped_row(row, mappings, handle)


def _with(request: Request[Any], **fields: object) -> Request[Any]:
    """Return a copy of the request with changed header fields."""
    return Request(request.command, changed(request.header, **fields), request.channel,
                   request.now_ms)


class _OffsetQuestions:
    """Answers offset requests for one broker."""

    def __init__(self, broker: Broker, others: OtherBrokers) -> None:
        self._broker = broker
        self._others = others

    # --- groups

    def query(
        self, request: Request[headers.QueryConsumerOffsetRequestHeader], queue: LogicalPlace
    ) -> Coroutine[Any, Any, Reply] | Request[Any]:
        """Return the offset of a group, taken from the last part that the group has begun."""
        if len(queue.items) == 1 and queue.leader.logic_offset == 0:
            return _with(request, queue_id=queue.leader.queue_id)
        return self._query(request, queue)

    async def _query(
        self, request: Request[headers.QueryConsumerOffsetRequestHeader], queue: LogicalPlace
    ) -> Reply:
        header = request.header
        for item in reversed(queue.items):
            if not item.is_decided:
                # Differs from Apache: no logical offset in this part is known yet.
                continue
            if queue.is_here(item):
                offset = self._broker.consumer_offset.query(
                    header.consumer_group, header.topic, item.queue_id)
            else:
                offset = await self._query_remote(request, item)
            if offset >= 0:
                return Reply(header=headers.QueryConsumerOffsetResponseHeader(
                    offset=item.logical(offset)))
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND,
                             "Not found, maybe this group consumer boot first")

    async def _query_remote(
        self, request: Request[headers.QueryConsumerOffsetRequestHeader],
        item: LogicQueueMappingItem,
    ) -> int:
        """Ask another broker for the offset of a group; -1 if it does not know the group."""
        code = RequestCode.QUERY_CONSUMER_OFFSET
        reply = await self._others.ask(
            item.bname, code, forwarded(
                changed(request.header, queue_id=item.queue_id, set_zero_if_not_found=False),
                item.bname, request),
            (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        return reply.header(headers.QueryConsumerOffsetResponseHeader).offset

    def update(
        self, request: Request[headers.UpdateConsumerOffsetRequestHeader], queue: LogicalPlace
    ) -> Coroutine[Any, Any, Reply] | Request[Any]:
        """Store the offset of a group on the broker of the part that contains the offset."""
        offset = request.header.commit_offset
        if offset is None:
            return request
        item = _required(find_item(queue.items, offset))
        physical = _with(request, queue_id=item.queue_id, commit_offset=item.physical(offset))
        return physical if queue.is_here(item) else self._update_remote(physical, item)

    async def _update_remote(self, request: Request[Any], item: LogicQueueMappingItem) -> Reply:
        reply = await self._others.ask(
            item.bname, RequestCode.UPDATE_CONSUMER_OFFSET,
            forwarded(request.header, item.bname, request))
        return Reply(reply.code, remark=reply.remark)

    # --- queues

    async def maximum(self, request: Request[Any], queue: LogicalPlace) -> Reply:
        """Return the max offset of the queue: the end of the last part whose start is known.

        Differs from Apache, which asks the broker of that part about another queue.
        """
        item = _required(latest_item(queue.items))
        return Reply(header=headers.GetMaxOffsetResponseHeader(
            offset=item.logical(await self._end(request, queue, item))))

    async def _end(
        self, request: Request[Any], queue: LogicalPlace, item: LogicQueueMappingItem
    ) -> int:
        """Return the physical end offset of a part."""
        topic = request.header.topic
        if queue.is_here(item):
            return self._broker.store.queues.max_offset(topic, item.queue_id)
        reply = await self._ask(request, item, RequestCode.GET_MAX_OFFSET,
                                headers.GetMaxOffsetRequestHeader(topic, item.queue_id))
        return reply.header(headers.GetMaxOffsetResponseHeader).offset

    async def minimum(self, request: Request[Any], queue: LogicalPlace) -> Reply:
        """Return the min offset of the queue: the start of its first part."""
        item, topic = _required(find_item(queue.items, 0)), request.header.topic
        if queue.is_here(item):
            offset = self._broker.store.queues.min_offset(topic, item.queue_id)
        else:
            reply = await self._ask(request, item, RequestCode.GET_MIN_OFFSET,
                                    headers.GetMinOffsetRequestHeader(topic, item.queue_id))
            offset = reply.header(headers.GetMinOffsetResponseHeader).offset
        return Reply(header=headers.GetMinOffsetResponseHeader(
            offset=item.logical_inside(offset)))

    async def earliest_time(self, request: Request[Any], queue: LogicalPlace) -> Reply:
        """Return the store time of the oldest message of the first part.

        Differs from Apache, which uses the number of the logical queue as the physical queue id.
        """
        timestamp = await self._begin_time(request, queue, _required(find_item(queue.items, 0)))
        return Reply(header=headers.GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    async def _begin_time(
        self, request: Request[Any], queue: LogicalPlace, item: LogicQueueMappingItem
    ) -> int:
        """Return the store time of a part's oldest message, Unix ms; -1 for an empty part."""
        topic = request.header.topic
        if queue.is_here(item):
            return self._broker.store.reader.earliest_store_time(topic, item.queue_id)
        reply = await self._ask(
            request, item, RequestCode.GET_EARLIEST_MSG_STORETIME,
            headers.GetEarliestMsgStoretimeRequestHeader(topic, item.queue_id))
        return reply.header(headers.GetEarliestMsgStoretimeResponseHeader).timestamp

    async def search(
        self, request: Request[headers.SearchOffsetRequestHeader], queue: LogicalPlace
    ) -> Reply:
        """Return the first message stored at a time or later; for "upper" the last one until then.

        Differs from Apache, which uses the answer of the last part, and ignores offset 0 if that
        part is on this broker.
        """
        header = request.header
        is_upper = (header.boundary_type or "").lower() == "upper"
        parts = [item for item in queue.items if item.is_decided]
        _required(parts[0] if parts else None)
        for item in parts[:0:-1] if is_upper else parts[:-1]:
            if is_upper:
                if 0 <= await self._begin_time(request, queue, item) <= header.timestamp:
                    break
            elif 0 <= (offset := await self._search(request, queue, item)) < (
                    await self._end(request, queue, item)):
                return _search_reply(item, offset)
        else:
            item = parts[0 if is_upper else -1]
        return _search_reply(item, await self._search(request, queue, item))

    async def _search(
        self, request: Request[headers.SearchOffsetRequestHeader], queue: LogicalPlace,
        item: LogicQueueMappingItem,
    ) -> int:
        header = request.header
        if queue.is_here(item):
            is_upper = (header.boundary_type or "").lower() == "upper"
            return self._broker.store.reader.offset_by_time(
                header.topic, item.queue_id, header.timestamp, "upper" if is_upper else "lower")
        reply = await self._ask(request, item, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                                changed(header, queue_id=item.queue_id))
        return reply.header(headers.SearchOffsetResponseHeader).offset

    async def _ask(
        self, request: Request[Any], item: LogicQueueMappingItem, code: int, header: CommandHeader
    ) -> RemotingCommand:
        return await self._others.ask(
            item.bname, code, forwarded(header, item.bname, request))


def _required(item: LogicQueueMappingItem | None) -> LogicQueueMappingItem:
    """:raises BrokerError: when no part of a logical queue is decided."""
    if item is None:
        raise BrokerError("the start of the queue's first part is not decided yet")
    return item


def _search_reply(item: LogicQueueMappingItem, offset: int) -> Reply:
    return Reply(header=headers.SearchOffsetResponseHeader(offset=item.logical(offset)))
