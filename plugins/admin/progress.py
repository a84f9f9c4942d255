"""Queries and changes of consumer progress: 303, 308, 314, 317.

Source: AdminBrokerProcessor.queryConsumeTimeSpan, queryCorrectionOffset, cloneGroupOffset,
fetchAllConsumeStatsInBroker, ConsumerOffsetManager @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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
    GroupList,
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

#: The queues whose progress is read between two checks of the clock.
_QUEUES_AT_ONCE: Final = 16
#: The begin of the progress in a topic from which the group consumes nothing at the moment.
_IDLE_HEAD: Final = b'{"consumeTps":0.0,"offsetTable":{'


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
        groups = GroupList.decode(request.body).group_list if request.body else None
        return self._broker.long_answers.answer(
            self._read_all(request.header, groups), request.channel)

    def _read_all(self, header: GetConsumeStatsInBrokerHeader, groups: set[str] | None) -> Work:
        """Return the progress of all groups.

        Differs from Apache: pull offsets are known, so the number in flight is never negative. The
        client can leave out groups, topics, and the reads of the store for times.

        :param groups: the groups that are included; None: all groups.
        """
        broker = self._broker
        has_times = header.with_times is not False
        rows = []
        diff = inflight = 0
        topics_of = yield from broker.consumer_offset.reading_topics()
        for group in list(broker.subscription_group.table):
            if groups is not None and group not in groups:
                continue
            stats = []
            for topic in sorted(topics_of.get(group, ())):
                config = broker.topic_config.get(topic)
                if config is None or (header.is_order and not config.order):
                    continue
                if header.topic not in (None, topic) or not self._subscribes(group, topic):
                    continue
                queues = _TopicQueues(broker, group, topic, has_times=has_times)
                for queue_id in range(config.write_queue_nums):
                    queues.add(queue_id)
                    if not queue_id % _QUEUES_AT_ONCE:
                        yield
                diff += queues.diff
                inflight += queues.inflight
                stats.append(queues.encode())
            rows.append(b"{%b:[%b]}" % (_text(group).encode(), b",".join(stats)))
            yield
        body = ConsumeStatsList([], broker.broker_address, diff, inflight)
        return Reply(body=encode_with_rows(body, b'"consumeStatsList":[]', rows))


def _text(name: str) -> str:
    """Return a name as a text in JSON."""
    if name.isascii() and name.isprintable() and '"' not in name and "\\" not in name:
        return f'"{name}"'
    return map_row(name, 0).decode()[:-2]


class _TopicQueues:
    """The progress of a group in the queues of one topic, collected as the text of a reply.

    A reply may contain tens of thousands of queues, and the general writer takes longer for one of
    them than all look-ups together. It writes the names once for each topic, and the numbers are
    put in between.

    :ivar diff: the messages that are stored and not consumed.
    :ivar inflight: the messages that are pulled and not consumed.
    """

    def __init__(self, broker: Broker, group: str, topic: str, *, has_times: bool) -> None:
        self._broker = broker
        self._group = group
        self._topic = topic
        self._has_times = has_times
        self._queues = broker.store.queues.by_topic.get(topic, {})
        self._consumed, self._pulled = broker.consumer_offset.progress_in(group, topic)
        self._head = f'{{"brokerName":{_text(broker.broker_name)},"queueId":'
        self._tail = f',"topic":{_text(topic)}}}'
        self._rows: list[str] = []
        self.diff = 0
        self.inflight = 0

    def add(self, queue_id: int) -> None:
        """Add a queue."""
        queue = self._queues.get(queue_id)
        end = 0 if queue is None else queue.max_offset
        consumed = max(self._consumed.get(queue_id, 0), 0)
        pulled = max(self._pulled.get(queue_id, consumed), consumed)
        time_ms = 0
        if consumed and self._has_times:
            time_ms = max(self._broker.store.reader.store_time(
                self._topic, queue_id, consumed - 1), 0)
        self.diff += end - consumed
        self.inflight += pulled - consumed
        self._rows.append(
            f'{self._head}{queue_id}{self._tail}:{{"brokerOffset":{end},"consumerOffset":{consumed},'
            f'"lastTimestamp":{time_ms},"pullOffset":{pulled}}}')

    def encode(self) -> bytes:
        """Return the object of the topic in the reply."""
        tps = self._broker.stats.group_get_tps(
            self._group, self._topic, self._broker.steady.now_ms())
        rows = ",".join(self._rows).encode()
        if not tps:
            return b"%b%b}}" % (_IDLE_HEAD, rows)
        return encode_with_rows(ConsumeStats(consume_tps=tps), b'"offsetTable":{}', (rows,))
