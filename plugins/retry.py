"""Retries of messages that a consumer could not process: CONSUMER_SEND_MSG_BACK (36) and sends.

A message that is sent back is stored again in the group's topic %RETRY%GROUP, with an incremented
number of tries, and with a delay level that grows with the tries and is handled by the plugin that
delays messages. When its tries are used up, it is stored in %DLQ%GROUP, from which it is not
delivered automatically. A client that cannot send a message back sends it to the retry topic as an
ordinary message; after too many tries such a message also goes to %DLQ%GROUP.

Source: AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.handleRetryAndDLQ
@5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    IQueueLocks,
    MessageRecord,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
    StoredMessage,
    decode_record,
    format_properties,
    hookimpl,
    parse_properties,
)
from twistmq.broker.api.bodies import SubscriptionGroupConfig, TopicConfig
from twistmq.broker.api.headers import ConsumerSendMsgBackRequestHeader
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SUBSCRIPTION_GROUP_SUGGESTION,
    dlq_topic,
    retry_topic,
)
from twistmq.broker.api.wire import (
    PERM_READ_WRITE,
    PERM_WRITE,
    UNIT_SUB,
    offset_message_id,
    record_again,
)
from twistmq.broker.api.wire import properties as names

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, SendBatch

__all__ = ["Plugin"]

#: Source: AbstractSendMessageProcessor.DLQ_NUMS_PER_GROUP.
_DLQ_QUEUE_NUMS: Final = 1
_INT_MAX: Final = 2**31 - 1
#: The delay level of the first retry.
_FIRST_LEVEL: Final = 3
#: Clients from this version on send their maximum number of tries. Source: MQVersion.V3_4_9.
_SAYS_TRIES_VERSION: Final = 121

_log = Logger()


class SendBack:
    """The handler of messages that are sent back to one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines = LimitedLog(_log)

    def handle(
        self, request: Request[ConsumerSendMsgBackRequestHeader]
    ) -> Reply | Deferred[Reply]:
        """Store a message again.

        Differs from Apache, which answers before the message is durable: the consumer continues,
        and a message that is then lost in a power failure is never delivered.

        :returns: the answer, which comes later under SYNC_FLUSH.
        :raises BrokerError: when the message cannot be stored.
        """
        broker, header = self._broker, request.header
        if broker.is_slave:
            raise BrokerError(f"no master available along with {broker.settings.text('brokerIP1')}")
        group = _find_group(broker, header.group)
        if not broker.settings.int("brokerPermission") & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.settings.text('brokerIP1')}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return Reply()
        topic = retry_topic(header.group)
        config = broker.topic_config.create_in_send_back(
            topic, group.retry_queue_nums, PERM_READ_WRITE, UNIT_SUB if header.unit_mode else 0)
        if not config.perm & PERM_WRITE:
            raise RequestRefused(ResponseCode.NO_PERMISSION,
                                 f"the topic[{topic}] sending message is forbidden")
        data = broker.store.look_message(header.offset)
        if data is None:
            raise BrokerError(f"look message by offset failed, {header.offset}")
        message = decode_record(data)
        broker.require_readable(request, message, (header.group,))
        max_tries = _max_tries(request, group)
        is_dead = message.reconsume_times >= max_tries or header.delay_level < 0
        level = header.delay_level or _FIRST_LEVEL + message.reconsume_times
        if is_dead:
            topic, queue_id, level = _dead_letter_queue(broker, header.group), 0, 0
        else:
            queue_id = broker.random.randrange(_retry_queue_nums(group, config))
        properties = message.properties_map()
        record = self._again(message, properties, topic, queue_id, level)
        for error in broker.append([record]).values():
            raise BrokerError(str(error))
        broker.stats.messages_put([record])
        origin = _counted_topic(broker, header.group, properties)
        broker.stats.message_sent_back(header.group, origin)
        if is_dead:
            broker.stats.dead_letter(header.group, origin)
            self._lines.info(
                request.now_ms,
                "message {key} of {topic} goes to {dlq}: {group} tried it {times} times",
                key=properties.get(names.UNIQ_KEY), topic=header.origin_topic, dlq=topic,
                group=header.group, times=message.reconsume_times)
        safe = broker.acknowledgement.wait(record.next_offset)
        return Reply() if safe is None else safe.addCallback(_reply_when_safe)

    def _again(
        self, message: StoredMessage, properties: dict[str, str], topic: str, queue_id: int,
        level: int,
    ) -> MessageRecord:
        """Make the record of a message's next delivery.

        :param properties: the message's properties; changed for the next delivery.
        """
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, offset_message_id(
            message.store_host, message.physical_offset))
        properties[names.WAIT] = "false"
        properties[names.DELAY] = str(level)
        record = record_again(message, properties)
        record.topic, record.queue_id = topic, queue_id
        record.properties = format_properties(properties)
        record.store_host = self._broker.store_host
        record.reconsume_times = min(record.reconsume_times + 1, _INT_MAX)
        record.prepared_transaction_offset = 0
        return record


def _reply_when_safe(code: ResponseCode) -> Reply:
    """:param code: SUCCESS, or the reason for doubt; in this case the client sends it again."""
    if code == ResponseCode.SUCCESS:
        return Reply()
    return Reply(code, remark="the message is stored, but it may not be on disk yet")


def _find_group(broker: Broker, name: str) -> SubscriptionGroupConfig:
    """:raises RequestRefused: when the group does not exist."""
    group = broker.subscription_group.find(name)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {name} {SUBSCRIPTION_GROUP_SUGGESTION}")
    return group


def _retry_queue_nums(group: SubscriptionGroupConfig, config: TopicConfig) -> int:
    """Return the number of queues among which a group's retries are distributed.

    Differs from Apache, which uses the group's number even if the topic has fewer queues: the
    additional queues are not in any route, so they are never read.

    :raises RequestRefused: when the topic has no queue that can be written and read.
    """
    count = min(group.retry_queue_nums, config.write_queue_nums, config.read_queue_nums)
    if count <= 0:
        raise RequestRefused(ResponseCode.NO_PERMISSION,
                             f"the topic[{config.topic_name}] has no queue for a retry")
    return count


def _max_tries(request: Request[Any], group: SubscriptionGroupConfig) -> int:
    """Return the limit of a group's tries: the value of the client, if it sends one."""
    requested: int | None = request.header.max_reconsume_times
    if requested is None or request.command.version < _SAYS_TRIES_VERSION:
        return group.retry_max_times
    return requested


def _counted_topic(broker: Broker, group: str, properties: Mapping[str, str]) -> str:
    """Return the topic in whose statistics a retry is counted: the message's topic if it exists.

    Differs from Apache, which counts under any name that a sender provides.
    """
    topic = properties.get(names.RETRY_TOPIC)
    if topic is not None and broker.topic_config.get(topic) is not None:
        return topic
    return retry_topic(group)


def _dead_letter_queue(broker: Broker, group: str) -> str:
    """Return the dead-letter topic of a group, creating it if it does not exist."""
    topic = dlq_topic(group)
    broker.topic_config.create_in_send_back(topic, _DLQ_QUEUE_NUMS, PERM_READ_WRITE, 0)
    return topic


class Plugin:
    """Retries and dead letters of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines = LimitedLog(_log)

    def _redirect(self, request: Request[Any], record: MessageRecord) -> None:
        broker = self._broker
        name = record.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        group = _find_group(broker, name)
        locks: IQueueLocks | None = broker.hooks.provider(IQueueLocks)
        keeps_order = locks is not None and locks.keeps_order(name)
        if record.reconsume_times <= _max_tries(request, group) and not keeps_order:
            return
        self._lines.info(
            request.now_ms,
            "message {key} goes to the dead letters of {group} after {times} tries",
            key=record.keys[0] if record.keys else None, group=name, times=record.reconsume_times)
        record.topic = _dead_letter_queue(broker, name)
        record.queue_id = 0
        properties = parse_properties(record.properties)
        broker.stats.dead_letter(name, _counted_topic(broker, name, properties))
        properties[names.DELAY] = "-1"
        record.properties = format_properties(properties)

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return (RequestHandler(RequestCode.CONSUMER_SEND_MSG_BACK, SendBack(self._broker).handle,
                               ConsumerSendMsgBackRequestHeader),)

    @hookimpl
    def on_start(self) -> None:
        """Make all stored retries and dead letters available to clients."""
        queues = self._broker.store.queues.ids_by_topic()
        self._make_dead_letter_topics(queues)
        if not self._broker.is_slave:
            self._show_unread_retries(queues)

    def _show_unread_retries(self, queues: Mapping[str, Collection[int]]) -> None:
        """Add queues to retry topics if unread retries are waiting in missing queues.

        An Apache broker, or an earlier version of this one, may have stored retries in queues
        that the topic does not have.
        """
        broker = self._broker
        for topic, ids in queues.items():
            group = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
            config = broker.topic_config.get(topic)
            if group == topic or config is None:
                continue
            unread = [queue_id for queue_id in ids if queue_id >= config.read_queue_nums
                      and broker.store.queues.max_offset(topic, queue_id)
                      > max(broker.consumer_offset.query(group, topic, queue_id),
                            broker.store.queues.min_offset(topic, queue_id))]
            if unread:
                broker.topic_config.give_queues(topic, max(unread) + 1)

    def _make_dead_letter_topics(self, topics: Iterable[str]) -> None:
        """Recreate dead-letter topics lost in a crash, because clients do not create them again.

        A topic is saved shortly after its creation, and the request that caused the creation does
        not wait for that. A retry topic is recreated by the group's next heartbeat.
        """
        for topic in topics:
            group = topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
            if group != topic and topic not in self._broker.topic_config.table:
                try:
                    _dead_letter_queue(self._broker, group)
                except RequestRefused as error:
                    _log.error("{topic} has messages, but cannot be read: {error}", topic=topic,
                               error=str(error))

    @hookimpl
    def before_send(self, batch: SendBatch) -> Mapping[int, BrokerError]:
        """Redirect messages to a retry topic that were tried too often to the dead letters.

        The same applies to all such messages of a group that holds queue locks: an ordered
        consumer retries in place, and sends a message only when it gives up.
        """
        refusals: dict[int, BrokerError] = {}
        # One search in the joined text is faster than one search for each topic.
        if RETRY_GROUP_TOPIC_PREFIX not in " ".join(batch.topics):
            return refusals
        for index, records in enumerate(batch.records):
            if len(records) == 1 and records[0].topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                try:
                    self._redirect(batch.requests[index], records[0])
                except BrokerError as error:
                    refusals[index] = error
        return refusals
