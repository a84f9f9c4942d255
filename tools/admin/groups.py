"""Commands of consumer groups.

Source: the classes of tools/command/consumer and of tools/command/connection, ConsumerRunningInfo
@5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from twistmq.protocol.bodies import (
    Body,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeType,
    GroupRetryPolicy,
    MessageQueue,
    OffsetWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused, WireError
from twistmq.protocol.header import Int32
from twistmq.protocol.headers.admin import GetConsumeStatsInBrokerHeader
from twistmq.protocol.headers.client import GetConsumerRunningInfoRequestHeader
from twistmq.protocol.headers.topic import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from twistmq.protocol.topic_names import (
    RETRY_GROUP_TOPIC_PREFIX,
    dlq_topic,
    is_system_group,
    retry_topic,
)
from twistmq.tools.admin.clients import (
    NoClientsError,
    consumer_connection,
    group_brokers,
    version_name,
)
from twistmq.tools.admin.files import read_list
from twistmq.tools.admin.rows import Cell, Millis, Result, Row, Table
from twistmq.tools.admin.session import AdminError, Broker, Session
from twistmq.tools.admin.topics import attribute_changes, drop_topic

__all__ = [
    "PROGRESS", "STATUS", "consume_stats", "consumer_progress", "consumer_status", "delete_group",
    "get_group", "running_info", "set_consume_mode", "update_group", "update_group_list",
]

#: The columns for the progress of a group, and for the status of a client.
PROGRESS: Final = ("topic", "broker", "queue", "broker_offset", "consumer_offset", "client",
                   "diff", "inflight", "last_consumed")
STATUS: Final = ("section", "name", "value")


class SetMessageRequestModeRequestBody(Body):
    """The mode in which a group receives the messages of a topic."""

    topic: str
    consumer_group: str
    mode: str
    pop_share_queue_num: Int32 = 0


def update_group(
    session: Session, *, broker: str | None, cluster: str | None, group: str,
    retry_policy: str | None, attributes: str | None, **settings: Any,
) -> Iterator[Row]:
    """Create or change a group; a setting that is not given gets its default.

    :raises AdminError: when the retry policy is malformed.
    """
    config = SubscriptionGroupConfig(
        group_name=group, attributes=attribute_changes(attributes), **settings)
    if retry_policy is not None:
        try:
            config.group_retry_policy = GroupRetryPolicy.decode(retry_policy.encode())
        except WireError as error:
            raise AdminError(f"--groupRetryPolicy {retry_policy}: {error}") from None
    targets = session.brokers(broker, cluster)
    for target, _ in session.for_each(targets, lambda each: session.ask(
            each.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())):
        yield (target.name, target.address, group, config.consume_enable, config.retry_queue_nums,
               config.retry_max_times)


def update_group_list(
    session: Session, *, broker: str | None, cluster: str | None, file: str
) -> Iterator[Row]:
    """Create or change the groups of a file."""
    configs = read_list(file, SubscriptionGroupConfig)
    body = SubscriptionGroupList(group_config_list=configs).encode()
    targets = session.brokers(broker, cluster)
    for target, _ in session.for_each(targets, lambda each: session.ask(
            each.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)):
        for config in configs:
            yield (target.name, target.address, config.group_name, config.consume_enable,
                   config.retry_queue_nums, config.retry_max_times)


def delete_group(
    session: Session, *, broker: str | None, cluster: str | None, group: str, offsets: bool
) -> Iterator[Row]:
    """Delete a group; in a cluster, its retry and dead-letter topics are deleted as well."""
    targets = session.brokers(broker, cluster)
    for target, _ in session.for_each(targets, lambda each: session.ask(
            each.address, RequestCode.DELETE_SUBSCRIPTIONGROUP,
            DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=offsets))):
        yield target.cluster, target.name, target.address, group
    if cluster is not None:
        for topic in (retry_topic(group), dlq_topic(group)):
            drop_topic(session, topic, targets, cluster)


def get_group(session: Session, *, group: str) -> Iterator[Row]:
    """Show the settings of a group on each broker."""
    def one(target: Broker) -> SubscriptionGroupConfig | None:
        try:
            reply = session.ask(target.address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
                                GetSubscriptionGroupConfigRequestHeader(group=group))
        except RequestRefused as error:
            if error.response_code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            return None
        return SubscriptionGroupConfig.decode_reply(reply.body)

    is_known = False
    for target, config in session.for_each(session.brokers(), one):
        if isinstance(config, SubscriptionGroupConfig):
            is_known = True
            for name, value in msgspec.to_builtins(config).items():
                yield target.name, name, _cell(value)
    if not is_known and not session.failures:
        raise AdminError(f"no broker has a group {group}")


def _cell(value: Any) -> Cell:
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return msgspec.json.encode(value).decode()


def set_consume_mode(
    session: Session, *, broker: str | None, cluster: str | None, topic: str, group: str, mode: str,
    share: int,
) -> Iterator[Row]:
    """Set whether a group pulls or pops a topic."""
    body = SetMessageRequestModeRequestBody(topic, group, mode, share).encode()
    targets = session.brokers(broker, cluster)
    for target, _ in session.for_each(targets, lambda each: session.ask(
            each.address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)):
        yield target.name, target.address, topic, group, mode, share


# --- progress

def consume_stats(
    session: Session, group: str, topic: str | None = None, route_topic: str | None = None
) -> ConsumeStats:
    """Return the offsets of a group from all brokers with the group or the given topic."""
    total = ConsumeStats()
    places = group_brokers(session, group) if topic is None and route_topic is None else (
        session.brokers_of(topic or retry_topic(group), route_topic))
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    for _, reply in session.for_each(places, lambda each: ConsumeStats.decode(session.ask(
            each.address, RequestCode.GET_CONSUME_STATS, header).body)):
        assert isinstance(reply, ConsumeStats)
        total.offset_table |= reply.offset_table
        total.consume_tps += reply.consume_tps
    return total


def consumer_progress(
    session: Session, *, group: str | None, topic: str | None, show_clients: bool,
    route_topic: str | None,
) -> Result:
    """Show the backlog of all groups, or the offsets of one group by queue."""
    if group is None:
        return _progress_of_all(session)
    return Table(PROGRESS, _progress(session, group, topic, show_clients, route_topic))


def _progress(
    session: Session, group: str, topic: str | None, show_clients: bool, route_topic: str | None
) -> Iterator[Row]:
    stats = consume_stats(session, group, topic, route_topic)
    if not stats.offset_table and not session.failures:
        _require_group(session, group)
    owners = _owners(session, group) if show_clients else {}
    for queue, offsets in sorted(stats.offset_table.items()):
        yield (queue.topic, queue.broker_name, queue.queue_id, offsets.broker_offset,
               offsets.consumer_offset, owners.get(queue), _difference(offsets),
               offsets.pull_offset - offsets.consumer_offset, Millis(offsets.last_timestamp))


def _require_group(session: Session, group: str) -> None:
    """:raises AdminError: when no broker has a group."""
    def has(broker: Broker) -> bool:
        table = SubscriptionGroupWrapper.decode(session.ask(
            broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
        return group in table.subscription_group_table

    answers = [has_it for _, has_it in session.for_each(group_brokers(session, group), has)]
    if not any(answers) and not session.failures:
        raise AdminError(f"no broker has a group {group}")


def _difference(offsets: OffsetWrapper) -> int:
    return offsets.broker_offset - offsets.consumer_offset


def _owners(session: Session, group: str) -> dict[MessageQueue, str]:
    """Return the client that consumes each queue."""
    owners: dict[MessageQueue, str] = {}
    try:
        connected = consumer_connection(session, group).connection_set
    except NoClientsError:
        return owners
    clients = [each.client_id for each in connected if each.client_id]
    for client, info in session.for_each(clients, lambda each: running_info(session, group, each)):
        assert isinstance(info, ConsumerRunningInfo)
        owners |= dict.fromkeys(info.mq_table, client.partition("@")[0])
    return owners


def _groups_with_progress(session: Session) -> list[str]:
    """Return the groups with a retry topic or a committed offset, without system groups."""
    groups = {topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX) for topic in session.topics()
              if topic.startswith(RETRY_GROUP_TOPIC_PREFIX)}
    for _, stats in session.for_each(session.brokers(), lambda each: ConsumeStatsList.decode_reply(
            session.ask(each.address, RequestCode.GET_BROKER_CONSUME_STATS,
                        GetConsumeStatsInBrokerHeader(is_order=False)).body)):
        assert isinstance(stats, ConsumeStatsList)
        groups |= {group for by_group in stats.consume_stats_list
                   for group, tables in by_group.items()
                   if any(each.offset_table for each in tables) and not is_system_group(group)}
    return sorted(groups)


def _progress_of_all(session: Session) -> Iterator[Row]:
    for group in _groups_with_progress(session):
        try:
            stats = consume_stats(session, group)
        except BrokerError as error:
            # The retry topic may exist without the group; the remaining groups are still shown.
            session.failures += [] if isinstance(error, RequestRefused) else [str(error)]
            stats = ConsumeStats()
        try:
            clients = consumer_connection(session, group)
        except BrokerError:
            clients = ConsumerConnection()
        count = len(clients.connection_set)
        pushed = clients.consume_type == ConsumeType.CONSUME_PASSIVELY
        yield (group, count,
               version_name(min(each.version for each in clients.connection_set)) if count
               else "OFFLINE",
               None if not count else "PUSH" if clients.consume_type !=
               ConsumeType.CONSUME_ACTIVELY else "PULL",
               clients.message_model.value if pushed and clients.message_model else None,
               stats.consume_tps, sum(map(_difference, stats.offset_table.values())))


# # --- the state of the clients of a group

def running_info(
    session: Session, group: str, client: str, broker: str | None = None, *, stack: bool = False
) -> ConsumerRunningInfo:
    """Return a client's report on itself.

    The broker asks the client, which may answer slowly.
    """
    addresses = [broker] if broker else [each.address for each in group_brokers(session, group)]
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client, jstack_enable=stack)
    for address in addresses:
        try:
            reply = session.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header,
                                timeout_s=max(session.timeout_s, 12.0))
        except RequestRefused:
            # The client may be connected to another broker.
            if address == addresses[-1]:
                raise
        else:
            return ConsumerRunningInfo.decode_reply(reply.body)
    raise AdminError(f"no broker has a group {group}")


def consumer_status(
    session: Session, *, group: str, client: str | None, broker: str | None, stack: bool
) -> Result:
    """Show the state of the clients of a group, or the full report of one client."""
    if client is not None:
        return Table(STATUS, _status(running_info(session, group, client, broker, stack=stack)))
    return _status_of_all(session, group, broker, stack)


def _status_of_all(
    session: Session, group: str, broker: str | None, stack: bool
) -> Iterator[Row]:
    clients = sorted(consumer_connection(session, group, broker).connection_set,
                     key=lambda each: each.client_id or "")
    for each, info in session.for_each(clients, lambda each: running_info(
            session, group, each.client_id or "", broker, stack=stack)):
        assert isinstance(info, ConsumerRunningInfo)
        properties = info.properties
        yield (each.client_id, version_name(each.version), properties.get("PROP_CONSUME_TYPE"),
               properties.get("PROP_CONSUMEORDERLY", "").lower() == "true", len(info.mq_table),
               sorted(f"{sub.topic}: {sub.sub_string}" for sub in info.subscription_set),
               Millis(properties.get("PROP_CONSUMER_START_TIMESTAMP", "0")))


def _status(info: ConsumerRunningInfo) -> Iterator[Row]:
    for name, text in sorted(info.properties.items()):
        yield "property", name, text
    for sub in sorted(info.subscription_set, key=lambda sub: sub.topic):
        yield "subscription", sub.topic, sub.sub_string
    for section, table in (("queue", info.mq_table), ("pop queue", info.mq_pop_table)):
        for queue, state in sorted(table.items()):
            yield section, f"{queue.topic} {queue.broker_name} {queue.queue_id}", _cell(state)
    for topic, rates in sorted(info.status_table.items()):
        yield "statistics", topic, _cell(rates)
    for name, text in sorted(info.user_consumer_info.items()):
        yield "user", name, text
    if info.jstack:
        yield "stack", "", info.jstack
