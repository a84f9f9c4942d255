"""Offsets of queues and groups: 14, 15, 29-32, 43.

Source: ConsumerManageProcessor, AdminBrokerProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twistmq.broker.remoting.long_answers import LongAnswers
from twistmq.broker.remoting.messages import Handled, Reply, Request, RequestHandler
from twistmq.broker.request.tables import Tables
from twistmq.broker.store.batch_queue import NO_MIN_OFFSET
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.header import EmptyHeader
from twistmq.protocol.headers import offset as headers

__all__ = ["OffsetRequests"]


class OffsetRequests:
    """The handlers of offsets."""

    def __init__(
        self, store: MessageStore, tables: Tables, long_answers: LongAnswers
    ) -> None:
        self._store = store
        self._tables = tables
        self._long_answers = long_answers

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.QUERY_CONSUMER_OFFSET, self._query,
                           headers.QueryConsumerOffsetRequestHeader),
            RequestHandler(RequestCode.UPDATE_CONSUMER_OFFSET, self._update,
                           headers.UpdateConsumerOffsetRequestHeader),
            RequestHandler(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self._search,
                           headers.SearchOffsetRequestHeader),
            RequestHandler(RequestCode.GET_MAX_OFFSET, self._max_offset,
                           headers.GetMaxOffsetRequestHeader),
            RequestHandler(RequestCode.GET_MIN_OFFSET, self._min_offset,
                           headers.GetMinOffsetRequestHeader),
            RequestHandler(RequestCode.GET_EARLIEST_MSG_STORETIME, self._earliest_time,
                           headers.GetEarliestMsgStoretimeRequestHeader),
            RequestHandler(RequestCode.GET_ALL_CONSUMER_OFFSET, self._all, EmptyHeader),
        ]

    def _query(self, request: Request[headers.QueryConsumerOffsetRequestHeader]) -> Reply:
        header = request.header
        offset = self._tables.consumer_offset.query(
            header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, "
                                     "maybe this group boot first")
            # If the queue still has its first message in memory, the group starts there: nothing
            # was lost yet that a new group would have to skip.
            minimum = self._store.queues.min_offset(header.topic, header.queue_id)
            if minimum > 0 or not self._store.reader.is_in_memory(header.topic, header.queue_id, 0):
                raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT "
                                     "maybe this group consumer boot first")
            offset = 0
        return Reply(header=headers.QueryConsumerOffsetResponseHeader(offset=offset))

    def _update(self, request: Request[headers.UpdateConsumerOffsetRequestHeader]) -> Reply:
        header = request.header
        if not self._tables.subscription_group.has(header.consumer_group):
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                                 f"Group {header.consumer_group} not exist!")
        if self._tables.topic_config.get(header.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if header.queue_id is None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"QueueId is null, topic is {header.topic}")
        if header.commit_offset is None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"Offset is null, topic is {header.topic}")
        self._check_place(header.topic, header.queue_id, header.commit_offset)
        table = self._tables.consumer_offset
        if table.is_reset(header.consumer_group, header.topic, header.queue_id):
            return Reply(remark="Offset has been previously reset")
        if not table.has_room(header.consumer_group, header.topic, header.queue_id):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"there is no room for more offsets than {table.size_bytes} bytes")
        table.commit(request.channel.remote_address, header.consumer_group, header.topic,
                     header.queue_id, header.commit_offset)
        return Reply()

    def _check_place(self, topic: str, queue_id: int, offset: int) -> None:
        """:raises RequestRefused: when the topic has no such queue, or the queue no such offset.

        Differs from Apache, which accepts any place.
        """
        config = self._tables.topic_config.get(topic)
        assert config is not None, topic
        count = max(config.read_queue_nums, config.write_queue_nums)
        end = self._store.queues.max_offset(topic, queue_id)
        if not end and (not 0 <= queue_id < count or topic not in self._tables.topic_config.table):
            # A queue that the topic had before it was reduced is still consumed. A light queue
            # without messages does not exist.
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"topic {topic} has no queue {queue_id}")
        if offset < 0:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"offset {offset} of topic {topic} is negative")
        if offset > end:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"offset {offset} is beyond the end of queue "
                f"{queue_id} of topic {topic}, {end}")

    def _search(self, request: Request[headers.SearchOffsetRequestHeader]) -> Reply:
        header = request.header
        upper = (header.boundary_type or "").lower() == "upper"
        offset = self._store.reader.offset_by_time(
            header.topic, header.queue_id, header.timestamp, "upper" if upper else "lower")
        return Reply(header=headers.SearchOffsetResponseHeader(offset=offset))

    def _max_offset(self, request: Request[headers.GetMaxOffsetRequestHeader]) -> Reply:
        header = request.header
        offset = self._store.queues.max_offset(header.topic, header.queue_id)
        return Reply(header=headers.GetMaxOffsetResponseHeader(offset=offset))

    def _min_offset(self, request: Request[headers.GetMinOffsetRequestHeader]) -> Reply:
        header = request.header
        store = self._store
        offset = store.queues.min_offset(header.topic, header.queue_id)
        if not offset and store.queues.is_empty_batch(header.topic, header.queue_id):
            offset = NO_MIN_OFFSET
        return Reply(header=headers.GetMinOffsetResponseHeader(offset=offset))

    def _earliest_time(
        self, request: Request[headers.GetEarliestMsgStoretimeRequestHeader]
    ) -> Reply:
        header = request.header
        timestamp = self._store.reader.earliest_store_time(header.topic, header.queue_id)
        return Reply(header=headers.GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def _all(self, request: Request[EmptyHeader]) -> Handled:
        return self._long_answers.answer(self._read_all(), request.channel)

    def _read_all(self) -> Generator[None, None, Reply]:
        return Reply(body=(yield from self._tables.consumer_offset.encoding()))
