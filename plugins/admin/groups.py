"""Requests about groups, their subscriptions and progress: 201, 208, 343, 345, 352, 353.

Source: AdminBrokerProcessor.getAllSubscriptionGroup, getConsumeStats, queryTopicsByConsumer,
querySubscriptionByConsumer, getSubscriptionGroup, updateAndGetGroupForbidden @5.3.3.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final

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
    ConsumeStats,
    GroupForbidden,
    MessageQueue,
    QuerySubscriptionResponseBody,
    SubscriptionGroupWrapper,
    TopicList,
    encode_with_rows,
    map_row,
)
from twistmq.broker.api.headers import (
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from twistmq.broker.api.requests import Work, now_or_later
from twistmq.broker.api.topics import group_fault, topic_fault
from twistmq.plugins.admin.progress import queue_progress

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["GroupQuestions"]

#: Bit of a group's mask for a topic that forbids reading. Source: PermName.INDEX_PERM_READ.
_READING: Final = 2


class GroupQuestions:
    """The handlers of requests about groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._all, EmptyHeader),
            RequestHandler(RequestCode.GET_CONSUME_STATS, self._progress,
                           GetConsumeStatsRequestHeader),
            RequestHandler(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self._config,
                           GetSubscriptionGroupConfigRequestHeader),
            RequestHandler(RequestCode.QUERY_TOPICS_BY_CONSUMER, self._topics_of,
                           QueryTopicsByConsumerRequestHeader),
            RequestHandler(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, self._subscription,
                           QuerySubscriptionByConsumerRequestHeader),
            RequestHandler(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, self._forbid,
                           UpdateGroupForbiddenRequestHeader),
        ]

    def _all(self, request: Request[EmptyHeader]) -> Handled:
        return self._broker.long_answers.answer(self._read_all(), request.channel)

    def _read_all(self) -> Work:
        """Return the initial version, so that a client that compares versions asks again."""
        table = self._broker.subscription_group
        version = copy(table.data_version)
        rows = []
        for name in list(table.table):
            if name in table.table:
                rows.append(table.reply_row(name))
            yield
        wrapper = SubscriptionGroupWrapper({}, version, table.forbidden)
        return Reply(body=encode_with_rows(wrapper, b'"subscriptionGroupTable":{}', rows))

    def _config(self, request: Request[GetSubscriptionGroupConfigRequestHeader]) -> Reply:
        """Return a group's settings; a missing group is created where consuming would create it."""
        config = self._broker.subscription_group.find(request.header.group)
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                                 "No group in this broker")
        return Reply(body=config.encode_standard())

    def _topics_of(self, request: Request[QueryTopicsByConsumerRequestHeader]) -> Reply:
        topics = self._broker.consumer_offset.topics_of_group(request.header.group)
        return Reply(body=TopicList(topics, self._broker.broker_address).encode())

    def _subscription(self, request: Request[QuerySubscriptionByConsumerRequestHeader]) -> Reply:
        header = request.header
        group = self._broker.clients.consumer_group(header.group)
        subscription = group.subscriptions.get(header.topic or "") if group else None
        return Reply(body=QuerySubscriptionResponseBody(
            subscription, header.group, header.topic).encode())

    def _forbid(self, request: Request[UpdateGroupForbiddenRequestHeader]) -> Handled:
        """Return whether a group may consume a topic, and change this if a value is given.

        Differs from Apache, which keeps names that no group or topic can have.
        """
        header, table = request.header, self._broker.subscription_group
        if header.readable is not None:
            fault = group_fault(header.group) or topic_fault(header.topic)
            if fault is not None:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
            table.forbid(header.group, header.topic, _READING, forbidden=not header.readable)
        readable = not table.is_forbidden(header.group, header.topic, _READING)
        reply = Reply(body=GroupForbidden(header.topic, header.group, readable).encode())
        if header.readable is None:
            return reply
        return now_or_later(self._broker.saves.save(table).addCallback(lambda _: reply))

    # --- progress

    def _progress(self, request: Request[GetConsumeStatsRequestHeader]) -> Handled:
        return self._broker.long_answers.answer(
            self._read_progress(request.header), request.channel)

    def _topics(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        """Return the listed topics, or else the topics to which a live group subscribes."""
        listed = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        if listed:
            # Unknown topics have no progress to report, and are left out.
            return sorted({topic for topic in listed if self._broker.topic_config.get(topic)})
        if header.topic and header.topic.strip():
            topics = {header.topic}
        else:
            topics = self._broker.consumer_offset.topics_of_group(header.consumer_group)
        group = self._broker.clients.consumer_group(header.consumer_group)
        if group is not None and group.subscriptions:
            topics &= group.subscriptions.keys()
        return sorted(topics)

    def _read_progress(self, header: GetConsumeStatsRequestHeader) -> Work:
        """Read the group only when this answer has its turn, because many answers may wait."""
        broker, group = self._broker, header.consumer_group
        rows = []
        tps = 0.0
        for topic in self._topics(header):
            config = broker.topic_config.get(topic)
            if config is None:
                continue
            for queue_id in range(config.read_queue_nums):
                rows.append(map_row(MessageQueue(topic, broker.broker_name, queue_id),
                                    queue_progress(broker, group, topic, queue_id)))
                yield
            tps += broker.stats.group_get_tps(group, topic, broker.steady.now_ms())
        stats = ConsumeStats(consume_tps=tps)
        return Reply(body=encode_with_rows(stats, b'"offsetTable":{}', rows))
