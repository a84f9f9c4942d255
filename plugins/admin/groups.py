"""What groups there are and how far each has come: 201, 208, 352.

Source: AdminBrokerProcessor.getAllSubscriptionGroup, getConsumeStats, getSubscriptionGroup @5.3.3.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.remoting import Handled, Reply, Request, RequestHandler
from twistmq.broker.wire.bodies import (
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    SubscriptionGroupWrapper,
)
from twistmq.broker.wire.header import EmptyHeader
from twistmq.broker.wire.headers.topic import (
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from twistmq.plugins.admin.long_answers import LongAnswers, Work
from twistmq.plugins.admin.rows import encode_with_rows, map_row

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["GroupQuestions"]


class GroupQuestions:
    """The handlers about groups."""

    def __init__(self, kernel: Kernel, long_answers: LongAnswers) -> None:
        self._kernel = kernel
        self.long_answers = long_answers

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._all, EmptyHeader),
            RequestHandler(RequestCode.GET_CONSUME_STATS, self._progress,
                           GetConsumeStatsRequestHeader),
            RequestHandler(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self._config,
                           GetSubscriptionGroupConfigRequestHeader),
        ]

    def _all(self, request: Request[EmptyHeader]) -> Handled:
        return self.long_answers.answer(self._read_all(), request.channel)

    def _read_all(self) -> Work:
        """The version is that of the beginning, so who compares versions will ask again."""
        table = self._kernel.subscription_group
        version = copy(table.data_version)
        rows = []
        for name, config in list(table.table.items()):
            rows.append(map_row(name, config))
            yield
        wrapper = SubscriptionGroupWrapper({}, version, table.forbidden)
        return Reply(body=encode_with_rows(wrapper, b'"subscriptionGroupTable":{}', rows))

    def _config(self, request: Request[GetSubscriptionGroupConfigRequestHeader]) -> Reply:
        """A group's settings; asking for one creates it where consuming with it would."""
        config = self._kernel.subscription_group.find(request.header.group)
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                                 "No group in this broker")
        return Reply(body=config.encode_standard())

    # --- progress

    def _progress(self, request: Request[GetConsumeStatsRequestHeader]) -> Handled:
        return self.long_answers.answer(
            self._read_progress(request.header.consumer_group, self._topics(request.header)),
            request.channel)

    def _topics(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        """The topics asked for: a list as it is, others only if a live group subscribes to them."""
        listed = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        if listed:
            return sorted(set(listed))
        if header.topic and header.topic.strip():
            topics = {header.topic}
        else:
            topics = self._kernel.consumer_offset.topics_of_group(header.consumer_group)
        group = self._kernel.clients.consumer_group(header.consumer_group)
        if group is not None and group.subscriptions:
            topics &= group.subscriptions.keys()
        return sorted(topics)

    def _read_progress(self, group: str, topics: list[str]) -> Work:
        kernel = self._kernel
        rows = []
        tps = 0.0
        for topic in topics:
            config = kernel.topic_config.get(topic)
            if config is None:
                continue
            for queue_id in range(config.read_queue_nums):
                rows.append(map_row(MessageQueue(topic, kernel.broker_name, queue_id),
                                    self._queue_progress(group, topic, queue_id)))
                yield
            tps += kernel.stats.group_get_tps(group, topic, kernel.now_ms())
        stats = ConsumeStats(consume_tps=tps)
        return Reply(body=encode_with_rows(stats, b'"offsetTable":{}', rows))

    def _queue_progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        store, offsets = self._kernel.store, self._kernel.consumer_offset
        consumed = max(offsets.query(group, topic, queue_id), 0)
        pulled = max(offsets.query_pulled(group, topic, queue_id), consumed)
        time_ms = store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetWrapper(store.max_offset_in_queue(topic, queue_id), consumed, pulled,
                             max(time_ms, 0))
