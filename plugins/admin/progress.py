"""Queries and changes of consumer progress: 303, 308, 314, 317.

Source: AdminBrokerProcessor.queryConsumeTimeSpan, queryCorrectionOffset, cloneGroupOffset,
fetchAllConsumeStatsInBroker, ConsumerOffsetManager @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twistmq.broker.api import (
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
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    TopicConfig,
    encode_with_rows,
    map_row,
)
from twistmq.broker.api.config import LONG_MAX
from twistmq.broker.api.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
)
from twistmq.broker.api.requests import Work

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ProgressRequests", "queue_progress"]


def queue_progress(broker: Broker, group: str, topic: str, queue_id: int) -> OffsetWrapper:
    """Return the progress of a group in a queue."""
    store, offsets = broker.store, broker.consumer_offset
    consumed = max(offsets.query(group, topic, queue_id), 0)
    pulled = max(offsets.query_pulled(group, topic, queue_id), consumed)
    time_ms = store.reader.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
    return OffsetWrapper(store.queues.max_offset(topic, queue_id), consumed, pulled,
                         max(time_ms, 0))


class ProgressRequests:
    """The handlers of requests about groups' progress."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.QUERY_CONSUME_TIME_SPAN, self._time_span,
                           QueryConsumeTimeSpanRequestHeader),
            RequestHandler(RequestCode.QUERY_CORRECTION_OFFSET, self._slowest,
                           QueryCorrectionOffsetHeader),
            RequestHandler(RequestCode.CLONE_GROUP_OFFSET, self._clone,
                           CloneGroupOffsetRequestHeader),
            RequestHandler(RequestCode.GET_BROKER_CONSUME_STATS, self._all,
                           GetConsumeStatsInBrokerHeader),
        ]

    # --- times

    def _time_span(self, request: Request[QueryConsumeTimeSpanRequestHeader]) -> Handled:
        header = request.header
        config = self._broker.topic_config.get(header.topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        return self._broker.long_answers.answer(
            self._read_time_span(config, header.group, request.now_ms), request.channel)

    def _read_time_span(self, config: TopicConfig, group: str, now_ms: int) -> Work:
        rows = []
        for queue_id in range(config.write_queue_nums):
            span = self._queue_time_span(config.topic_name, queue_id, group, now_ms)
            rows.append(span.with_letters().encode())
            yield
        return Reply(body=encode_with_rows(
            QueryConsumeTimeSpanBody(), b'"consumeTimeSpanSet":[]', rows))

    def _queue_time_span(
        self, topic: str, queue_id: int, group: str, now_ms: int
    ) -> QueueTimeSpan:
        store = self._broker.store
        begin, end = (store.queues.min_offset(topic, queue_id),
                      store.queues.max_offset(topic, queue_id))
        consumed = self._broker.consumer_offset.query(group, topic, queue_id)
        earliest_ms = store.reader.earliest_store_time(topic, queue_id)
        consumed_ms = store.reader.store_time(topic, queue_id, consumed - 1)
        # Differs from Apache, where a message that is gone appears to have waited since 1970.
        following = max(consumed, begin)
        waits = following < end
        return QueueTimeSpan(
            MessageQueue(topic, self._broker.broker_name, queue_id), earliest_ms,
            store.reader.store_time(topic, queue_id, end - 1),
            consumed_ms if consumed > 0 else earliest_ms,
            now_ms - store.reader.store_time(topic, queue_id, following) if waits else 0)

    # --- the slowest group

    def _slowest(self, request: Request[QueryCorrectionOffsetHeader]) -> Reply:
        """Return the smallest offsets of all groups that still have a message.

        Differs from Apache: excluded groups are only left out of the answer and keep their
        offsets, and a queue that only the compared group knows is not an error.
        """
        header, offsets = request.header, self._broker.consumer_offset
        min_offsets: dict[int, int] = {}
        excluded_groups = (header.filter_groups or "").split(",")
        for group in offsets.groups_of_topic(header.topic) - set(excluded_groups):
            for queue_id, offset in offsets.offsets_in(group, header.topic).items():
                if offset >= self._broker.store.queues.min_offset(header.topic, queue_id):
                    min_offsets[queue_id] = min(offset, min_offsets.get(queue_id, offset))
        for queue_id, offset in offsets.offsets_in(header.compare_group, header.topic).items():
            if min_offsets.get(queue_id, offset) > offset:
                min_offsets[queue_id] = LONG_MAX
        return Reply(body=QueryCorrectionOffsetBody(min_offsets).encode())

    # --- cloning

    def _clone(self, request: Request[CloneGroupOffsetRequestHeader]) -> Reply:
        """Clone offsets. Differs from Apache, which clones nothing when no topic is named."""
        header, offsets = request.header, self._broker.consumer_offset
        if self._broker.subscription_group.find(header.dest_group) is None:
            # Differs from Apache, which keeps the offsets of groups that do not exist.
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                                 f"Group {header.dest_group} not exist!")
        is_named = bool(header.topic and not header.topic.isspace())
        topics = {header.topic or ""} if is_named else offsets.topics_of_group(header.src_group)
        for topic in topics:
            if self._broker.topic_config.get(topic) is None:
                continue
            if header.offline or self._subscribes(header.src_group, topic):
                offsets.clone(header.src_group, header.dest_group, topic)
        return Reply()

    def _subscribes(self, group: str, topic: str) -> bool:
        """Whether a group subscribes to a topic, as far as its members report anything."""
        members = self._broker.clients.consumer_group(group)
        return members is None or not members.subscriptions or topic in members.subscriptions

    # --- all groups

    def _all(self, request: Request[GetConsumeStatsInBrokerHeader]) -> Handled:
        return self._broker.long_answers.answer(
            self._read_all(request.header.is_order), request.channel)

    def _read_all(self, is_order: bool) -> Work:
        """Return the progress of all groups.

        Differs from Apache: pull offsets are known, so the number in flight is never negative.
        """
        broker = self._broker
        rows = []
        diff = inflight = 0
        topics_of = yield from broker.consumer_offset.reading_topics()
        for group in list(broker.subscription_group.table):
            stats = []
            for topic in sorted(topics_of.get(group, ())):
                config = broker.topic_config.get(topic)
                if config is None or (is_order and not config.order):
                    continue
                if not self._subscribes(group, topic):
                    continue
                queues = []
                for queue_id in range(config.write_queue_nums):
                    row = queue_progress(broker, group, topic, queue_id)
                    queues.append(map_row(MessageQueue(topic, broker.broker_name, queue_id), row))
                    diff += row.broker_offset - row.consumer_offset
                    inflight += row.pull_offset - row.consumer_offset
                    yield
                tps = broker.stats.group_get_tps(group, topic, broker.steady.now_ms())
                stats.append(encode_with_rows(
                    ConsumeStats(consume_tps=tps), b'"offsetTable":{}', queues))
            rows.append(b"{" + map_row(group, [])[:-1] + b",".join(stats) + b"]}")
            yield
        body = ConsumeStatsList([], broker.broker_address, diff, inflight)
        return Reply(body=encode_with_rows(body, b'"consumeStatsList":[]', rows))
