"""Requests that create, change, delete and describe static topics: 513, 215, 351, 208.

Source: AdminBrokerProcessor.updateAndCreateStaticTopic, deleteTopic, getTopicConfig,
getConsumeStats @5.3.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from twisted.internet.defer import Deferred

from twistmq.broker.api import (
    AnyHandler,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import DIALECT_SIZE_MAX, ConsumeStats, TopicConfig, TopicFilterType
from twistmq.broker.api.headers import CreateTopicRequestHeader
from twistmq.broker.api.limits import TOPIC_QUEUES_MAX
from twistmq.broker.api.requests import now_or_later
from twistmq.broker.api.topics import is_system_topic, topic_fault
from twistmq.plugins.static_topic.mapping import (
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from twistmq.plugins.static_topic.table import QueueMappings

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["StaticTopicRequests"]


class StaticTopicRequests:
    """The handler of 513, and wrappers for the handlers of other requests about topics."""

    def __init__(self, broker: Broker, mappings: QueueMappings) -> None:
        self._broker = broker
        self._mappings = mappings

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, self._update,
                               CreateTopicRequestHeader, body_size_max=DIALECT_SIZE_MAX)]

    # --- 513

    def _update(self, request: Request[CreateTopicRequestHeader]) -> Handled:
        """Create or change this broker's part of a static topic.

        Differs from Apache, which has already changed the topic when it refuses the mapping.
        """
        header, broker, mappings = request.header, self._broker, self._mappings
        fault = topic_fault(header.topic)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        if is_system_topic(header.topic) or broker.topic_config.is_system_topic(header.topic):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"The topic[{header.topic}] is conflict with system topic.")
        for number in (header.read_queue_nums, header.write_queue_nums):
            if not 0 <= number <= TOPIC_QUEUES_MAX:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"The numbers of queues must be from 0 to {TOPIC_QUEUES_MAX}.")
        detail = TopicQueueMappingDetail.decode(request.body)
        if detail.topic != header.topic:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"the mapping is of topic {detail.topic}, not {header.topic}")
        config = TopicConfig(
            header.topic, header.read_queue_nums, header.write_queue_nums, header.perm,
            TopicFilterType(header.topic_filter_type), header.topic_sys_flag or 0)
        broker.topic_config.require_room((config,))
        detail = mappings.checked(detail, header.force, header.write_queue_nums)
        broker.topic_config.update(config, {})
        mappings.put(detail)
        saved = broker.saves.save(mappings)
        registration = broker.topics_saved_and_registered()
        if registration is None:
            return now_or_later(saved.addCallback(lambda _: Reply()))
        both: Deferred[Reply] = saved.addCallback(lambda _: registration).addCallback(
            lambda _: Reply())
        return now_or_later(both)

    # --- wrapped handlers

    def wrapped_delete(self, row: AnyHandler) -> AnyHandler:
        """A handler of 215 that also removes the mapping and registers the change at once."""
        mappings = self._mappings

        def handle(request: Request[Any]) -> Handled:
            if request.header.topic in mappings.table:
                mappings.delete(request.header.topic)
                self._broker.saves.save(mappings)
            return row.handle(request)

        return replace(row, handle=handle)

    def wrapped_config(self, row: AnyHandler) -> AnyHandler:
        """A handler of 351 that also returns the logical queues, if they are requested."""
        table = self._mappings.table

        def handle(request: Request[Any]) -> Handled:
            answer = row.handle(request)
            detail = table.get(request.header.topic)
            if detail is None or not isinstance(answer, Reply) or (
                    request.command.fields().get("lo", "").lower() != "true"):
                return answer
            config = TopicConfig.decode(answer.body)
            answer.body = TopicConfigAndQueueMapping(
                **asdict(config), mapping_detail=detail).encode()
            return answer

        return replace(row, handle=handle)

    def wrapped_progress(self, row: AnyHandler) -> AnyHandler:
        """A handler of 208 that returns -1 where a group has no offset.

        For a logical queue, a tool uses the offset of the last part that has one.
        """
        table = self._mappings.table

        def handle(request: Request[Any]) -> Handled:
            answer = row.handle(request)
            if not table:
                return answer
            if isinstance(answer, Deferred):
                return answer.addCallback(self._without_zeros, request)
            return self._without_zeros(answer, request) if isinstance(answer, Reply) else answer

        return replace(row, handle=handle)

    def _without_zeros(self, reply: Reply, request: Request[Any]) -> Reply:
        if reply is None or reply.code != ResponseCode.SUCCESS:
            return reply
        table, group = self._mappings.table, request.header.consumer_group
        stats = ConsumeStats.decode_saved(reply.body)
        is_other = False
        for queue, row in stats.offset_table.items():
            if queue.topic in table and not row.consumer_offset and (
                    self._broker.consumer_offset.query(group, queue.topic, queue.queue_id) < 0):
                row.consumer_offset = -1
                is_other = True
        if is_other:
            reply.body = stats.encode()
        return reply
