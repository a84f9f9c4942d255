"""Requests about topics and their offsets: 202, 300, 305, 351.

Source: AdminBrokerProcessor.getTopicStatsInfo, queryTopicConsumeByWho, getTopicConfig,
getSystemTopicListFromBroker @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twistmq.broker.api import (
    EmptyHeader,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    encode_with_rows,
    map_row,
)
from twistmq.broker.api.headers import (
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from twistmq.broker.api.requests import Work
from twistmq.broker.api.topics import SYSTEM_TOPICS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["TopicQuestions"]


class TopicQuestions:
    """The handlers of requests about topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.GET_TOPIC_STATS_INFO, self._offsets,
                           GetTopicStatsInfoRequestHeader),
            RequestHandler(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self._groups,
                           QueryTopicConsumeByWhoRequestHeader),
            RequestHandler(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self._system_topics,
                           EmptyHeader),
            RequestHandler(RequestCode.GET_TOPIC_CONFIG, self._config,
                           GetTopicConfigRequestHeader),
        ]

    def _offsets(self, request: Request[GetTopicStatsInfoRequestHeader]) -> Handled:
        config = self._broker.topic_config.get(request.header.topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST,
                                 f"topic[{request.header.topic}] not exist")
        return self._broker.long_answers.answer(self._read_offsets(config), request.channel)

    def _read_offsets(self, config: TopicConfig) -> Work:
        broker, topic = self._broker, config.topic_name
        rows = []
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            end = broker.store.queues.max_offset(topic, queue_id)
            offset = TopicOffset(
                broker.store.queues.min_offset(topic, queue_id), end,
                broker.store.reader.store_time(topic, queue_id, end - 1) if end > 0 else 0)
            rows.append(map_row(MessageQueue(topic, broker.broker_name, queue_id), offset))
            yield
        tps = broker.stats.topic_put_tps(topic, broker.steady.now_ms())
        table = TopicStatsTable(topic_put_tps=tps)
        return Reply(body=encode_with_rows(table, b'"offsetTable":{}', rows))

    def _groups(self, request: Request[QueryTopicConsumeByWhoRequestHeader]) -> Reply:
        topic = request.header.topic
        groups = {*self._broker.clients.groups_consuming(topic),
                  *self._broker.consumer_offset.groups_of_topic(topic)}
        return Reply(body=GroupList(groups).encode())

    def _system_topics(self, request: Request[EmptyHeader]) -> Reply:
        topics = SYSTEM_TOPICS | self._broker.topic_config.system_topics
        return Reply(body=TopicList(set(topics)).encode())

    def _config(self, request: Request[GetTopicConfigRequestHeader]) -> Reply:
        config = self._broker.topic_config.get(request.header.topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST,
                                 f"No topic in this broker. topic: {request.header.topic}")
        return Reply(body=config.encode_standard())
