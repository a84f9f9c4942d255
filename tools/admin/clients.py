"""Commands for connections, and queries about connected clients for other commands.

Source: ConsumerConnectionSubCommand, ProducerConnectionSubCommand, ProducerSubCommand, MQVersion
@5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.protocol.bodies import ConsumerConnection, ProducerConnection, ProducerTableInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from twistmq.protocol.topic_names import retry_topic
from twistmq.tools.admin.rows import Millis, Row
from twistmq.tools.admin.session import AdminError, Broker, Session

__all__ = ["NoClientsError", "connected_clients", "consumer_connection", "consumer_connections",
           "group_brokers", "producer_connections", "producers", "version_name"]

#: From this number on Apache counts regularly, each release after its snapshot: V3_9_1_SNAPSHOT.
_REGULAR_FROM, _REGULAR_RELEASE = 194, 391
#: The table of Apache ends above V5_9_9.
_HIGHER: Final = 612


def version_name(version: int) -> str:
    """Return Apache's name of the release that a version number in a header stands for."""
    if version >= _HIGHER:
        return "HIGHER_VERSION"
    if version < _REGULAR_FROM:
        return f"before V3_9_1 ({version})"
    release, is_released = divmod(version - _REGULAR_FROM, 2)
    name = "_".join(str(_REGULAR_RELEASE + release))
    return f"V{name}" if is_released else f"V{name}_SNAPSHOT"


class NoClientsError(AdminError):
    """No client of a group is connected."""


def group_brokers(session: Session, group: str) -> list[Broker]:
    """Return the brokers with a group's retry topic, or all masters if there is no such topic.

    A group whose clients choose their queues themselves, or only read, has no retry topic.
    """
    try:
        return session.brokers_of(retry_topic(group))
    except RequestRefused as error:
        if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
            raise
    return session.brokers()


def consumer_connection(
    session: Session, group: str, broker: str | None = None
) -> ConsumerConnection:
    """Return the clients of a group from the first broker to which any are connected.

    :raises NoClientsError: when no client is connected.
    """
    addresses = [broker] if broker else [each.address for each in group_brokers(session, group)]
    for _, connection in session.for_each(
            addresses, lambda each: connected_clients(session, each, group)):
        assert isinstance(connection, ConsumerConnection)
        if connection.connection_set:
            return connection
    raise NoClientsError(
        f"no consumer of group {group} is connected to {', '.join(addresses)}")


def connected_clients(session: Session, address: str, group: str) -> ConsumerConnection:
    """Return the clients of a group that are connected to a broker."""
    try:
        reply = session.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST,
                            GetConsumerConnectionListRequestHeader(consumer_group=group))
    except RequestRefused as error:
        if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return ConsumerConnection()
    return ConsumerConnection.decode_reply(reply.body)


def consumer_connections(session: Session, *, group: str, broker: str | None) -> Iterator[Row]:
    """Show the clients of a consumer group."""
    connection = consumer_connection(session, group, broker)
    subscriptions = sorted(f"{topic}: {data.sub_string}"
                           for topic, data in connection.subscription_table.items())
    for each in sorted(connection.connection_set, key=lambda each: each.client_id or ""):
        yield (each.client_id, each.client_addr, each.language, version_name(each.version),
               connection.consume_type, connection.message_model, connection.consume_from_where,
               subscriptions)


def producer_connections(session: Session, *, group: str, topic: str) -> Iterator[Row]:
    """Show the clients of a producer group that send to a topic."""
    header = GetProducerConnectionListRequestHeader(producer_group=group)
    brokers = session.brokers_of(topic)
    rows = set()
    for _, connection in session.for_each(brokers,
                                          lambda each: ProducerConnection.decode(session.ask(
            each.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header).body)):
        assert isinstance(connection, ProducerConnection)
        rows |= {(each.client_id or "", each.client_addr or "", each.language or "",
                  version_name(each.version)) for each in connection.connection_set}
    yield from sorted(rows)


def producers(session: Session, *, broker: str) -> Iterator[Row]:
    """Show all producers of a broker."""
    reply = session.ask(broker, RequestCode.GET_ALL_PRODUCER_INFO)
    for group, clients in sorted(ProducerTableInfo.decode_reply(reply.body).data.items()):
        for each in clients:
            yield (group, each.client_id, each.remote_ip, each.language,
                   version_name(each.version), Millis(each.last_update_timestamp))
