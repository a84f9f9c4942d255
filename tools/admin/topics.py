"""Commands of topics.

Source: the classes of tools/command/topic, AllocateMessageQueueAveragely @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.client.core.consumer.strategies import Averagely
from twistmq.protocol.bodies import (
    CreateTopicListRequestBody,
    GroupList,
    TopicConfig,
    TopicList,
    TopicStatsTable,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.flags import UNIT, UNIT_SUB
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
)
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX
from twistmq.tools.admin.files import read_list
from twistmq.tools.admin.rows import Millis, Result, Row, Table
from twistmq.tools.admin.session import AdminError, Broker, Session

__all__ = [
    "allocate_queues", "attribute_changes", "delete_topic", "drop_topic", "groups_of",
    "topic_cluster_list", "topic_list", "topic_route", "topic_stats", "topic_status",
    "update_order_conf", "update_topic", "update_topic_list", "update_topic_perm",
]

#: The namespace in which name servers keep the ordered topics.
_ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
#: Apache's broker requires a default topic, and uses the settings of the topic itself.
_DEFAULT_TOPIC: Final = "TBW102"


def _create(session: Session, broker: Broker, config: TopicConfig) -> None:
    attributes = ",".join(f"{name}={text}" if text else name
                          for name, text in config.attributes.items())
    session.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
        topic=config.topic_name, default_topic=_DEFAULT_TOPIC,
        read_queue_nums=config.read_queue_nums, write_queue_nums=config.write_queue_nums,
        perm=config.perm, topic_filter_type="SINGLE_TAG", topic_sys_flag=config.topic_sys_flag,
        order=config.order, attributes=attributes))


def attribute_changes(text: str | None) -> dict[str, str]:
    """Read +name=value,-name; the broker reports errors in them."""
    parts = [part.partition("=") for part in (text or "").split(",") if part]
    return {name: value for name, _, value in parts}


def update_topic(
    session: Session, *, topic: str, broker: str | None, cluster: str | None,
    attributes: str | None, read_queues: int, write_queues: int, perm: int, order: bool,
    unit: bool, unit_sub: bool,
) -> Iterator[Row]:
    """Create or change a topic on a broker or on the masters of a cluster."""
    config = TopicConfig(
        topic_name=topic, read_queue_nums=read_queues, write_queue_nums=write_queues, perm=perm,
        order=order, topic_sys_flag=unit * UNIT + unit_sub * UNIT_SUB,
        attributes=attribute_changes(attributes))
    targets = session.brokers(broker, cluster)
    done = []
    for target, _ in session.for_each(targets, lambda each: _create(session, each, config)):
        done.append(target)
        yield target.name, target.address, topic, read_queues, write_queues, perm, order
    if order and done:
        _put_order(session, topic, done, write_queues, whole=broker is None)


def _put_order(
    session: Session, topic: str, brokers: list[Broker], queues: int, *, whole: bool
) -> None:
    """Store on the name servers how many ordered queues a topic has on brokers.

    :param whole: whether these are all brokers of the topic; if not, the counts of the remaining
        brokers are kept.
    """
    counts = {} if whole else dict(
        part.split(":", 1) for part in _order(session, topic).split(";") if ":" in part)
    counts |= {broker.name: str(queues) for broker in brokers if broker.name}
    _each_name_server(session, RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(
        namespace=_ORDER_NAMESPACE, key=topic,
        value=";".join(f"{name}:{count}" for name, count in sorted(counts.items()))))


def _order(session: Session, topic: str) -> str:
    """Return the name servers' value for a topic's order; empty if they have no value."""
    try:
        reply = session.ask_name_server(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(
            namespace=_ORDER_NAMESPACE, key=topic))
    except RequestRefused as error:
        if error.response_code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return ""
    return reply.header(GetKVConfigResponseHeader).value or ""


def _each_name_server(session: Session, code: int, header: CommandHeader) -> None:
    for _ in session.for_each(session.name_servers, lambda address: session.ask(address, code,
                                                                                header)):
        pass


def update_topic_list(
    session: Session, *, broker: str | None, cluster: str | None, file: str
) -> Iterator[Row]:
    """Create or change the topics of a file."""
    configs = read_list(file, TopicConfig)
    body = CreateTopicListRequestBody(topic_config_list=configs).encode()
    targets = session.brokers(broker, cluster)
    for target, _ in session.for_each(targets, lambda each: session.ask(
            each.address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)):
        for config in configs:
            yield (target.name, target.address, config.topic_name, config.read_queue_nums,
                   config.write_queue_nums, config.perm, config.order)


def drop_topic(session: Session, topic: str, brokers: list[Broker], cluster: str | None) -> None:
    """Delete a topic on brokers and from the name servers."""
    for _ in session.for_each(brokers, lambda each: session.ask(
            each.address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(
                topic=topic))):
        pass
    _each_name_server(session, RequestCode.DELETE_TOPIC_IN_NAMESRV,
                      DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster))


def delete_topic(session: Session, *, topic: str, cluster: str) -> Iterator[Row]:
    """Delete a topic, its messages and its order configuration."""
    brokers = session.brokers(None, cluster)
    drop_topic(session, topic, brokers, cluster)
    _each_name_server(session, RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(
        namespace=_ORDER_NAMESPACE, key=topic))
    for each in brokers:
        yield each.cluster, each.name, each.address, topic


def update_topic_perm(
    session: Session, *, topic: str, broker: str | None, cluster: str | None, perm: int
) -> Iterator[Row]:
    """Change the permissions for the queues of a topic."""
    queues = {data.broker_name: data for data in session.route(topic).queue_datas}
    targets = [each for each in session.brokers(broker, cluster) if each.name in queues]
    if not targets:
        raise AdminError(f"none of these brokers has the topic {topic}")

    def change(target: Broker) -> int:
        old = queues[target.name]
        # The whole topic is sent, so that only the permission changes and nothing else is lost.
        stats = _config(session, target, topic)
        _create(session, target, TopicConfig(
            topic_name=topic, read_queue_nums=old.read_queue_nums,
            write_queue_nums=old.write_queue_nums, perm=perm, topic_sys_flag=old.topic_sys_flag,
            order=stats.order if stats else False))
        return old.perm

    for target, old in session.for_each(targets, change):
        assert isinstance(old, int)
        yield target.name, target.address, topic, old, perm


def _config(session: Session, broker: Broker, topic: str) -> TopicConfig | None:
    """Return a topic's settings; None if the broker is too old for this request."""
    from twistmq.protocol.headers.topic import GetTopicConfigRequestHeader

    try:
        reply = session.ask(broker.address, RequestCode.GET_TOPIC_CONFIG,
                            GetTopicConfigRequestHeader(topic=topic))
    except RequestRefused as error:
        if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return None
    return TopicConfig.decode_reply(reply.body)


def topic_route(session: Session, *, topic: str, as_list: bool) -> Iterator[Row]:
    """Show the route of a topic."""
    route = session.route(topic)
    queues = {data.broker_name: data for data in route.queue_datas}
    for data in sorted(route.broker_datas, key=lambda data: data.broker_name or ""):
        queue = queues.get(data.broker_name or "")
        for broker_id, address in sorted(data.broker_addrs.items()):
            yield (data.cluster, data.broker_name, broker_id, address,
                   *((None,) * 3 if queue is None else
                     (queue.read_queue_nums, queue.write_queue_nums, queue.perm)))


def topic_stats(session: Session, broker: Broker, topic: str) -> TopicStatsTable:
    """Return the offset bounds of the queues of a topic on a broker."""
    reply = session.ask(broker.address, RequestCode.GET_TOPIC_STATS_INFO,
                        GetTopicStatsInfoRequestHeader(topic=topic))
    return TopicStatsTable.decode_reply(reply.body)


def topic_status(session: Session, *, topic: str, route_topic: str | None) -> Iterator[Row]:
    """Show the offset bounds of the queues of a topic."""
    places = session.brokers_of(topic, route_topic)
    for _, stats in session.for_each(places, lambda each: topic_stats(session, each, topic)):
        assert isinstance(stats, TopicStatsTable)
        for queue, bounds in sorted(stats.offset_table.items()):
            yield (queue.broker_name, queue.queue_id, bounds.min_offset, bounds.max_offset,
                   Millis(bounds.last_update_timestamp))


def topic_cluster_list(session: Session, *, topic: str) -> Iterator[Row]:
    """Show the clusters with a topic."""
    for name in sorted({data.cluster or "" for data in session.route(topic).broker_datas}):
        yield (name,)


def groups_of(session: Session, topic: str) -> list[str]:
    """Return the groups that consume a topic, from the first of its brokers."""
    reply = session.ask(session.brokers_of(topic)[0].address,
                        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                        QueryTopicConsumeByWhoRequestHeader(topic=topic))
    return sorted(GroupList.decode_reply(reply.body).group_list)


def topic_list(session: Session, *, with_clusters: bool) -> Result:
    """Show all topics."""
    if not with_clusters:
        return ((topic,) for topic in session.topics())
    return Table(("cluster", "topic", "group"), _topics_by_cluster(session))


def _topics_by_cluster(session: Session) -> Iterator[Row]:
    for cluster in session.cluster_names():
        reply = session.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER,
                                        GetTopicsByClusterRequestHeader(cluster=cluster))
        for topic in sorted(TopicList.decode_reply(reply.body).topic_list):
            groups: list[str] = []
            if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                try:
                    groups = groups_of(session, topic)
                except BrokerError as error:
                    session.failures.append(str(error))
            for group in groups or [""]:
                yield cluster, topic, group


def update_order_conf(
    session: Session, *, topic: str, value: str | None, method: str
) -> Iterator[Row]:
    """Show, set or delete the name servers' value for a topic's order."""
    if method == "put":
        if not value:
            raise AdminError("-v is needed: brokerName1:num;brokerName2:num")
        _each_name_server(session, RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(
            namespace=_ORDER_NAMESPACE, key=topic, value=value))
    elif method == "delete":
        _each_name_server(session, RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(
            namespace=_ORDER_NAMESPACE, key=topic))
    yield topic, _order(session, topic)


def allocate_queues(session: Session, *, topic: str, clients: str) -> Iterator[Row]:
    """Show how clients of a group would share a topic's queues, evenly and in order."""
    queues = session.read_queues(topic)
    names = [name.strip() for name in clients.split(",") if name.strip()]
    if not names:
        raise AdminError("-i must name a client")
    strategy = Averagely()
    for name in names:
        for queue in strategy.allocate(name, queues, names):
            yield name, queue.broker_name, queue.queue_id
