"""Routes: the existing brokers, and the queues that they have of a topic.

Source: TopicRouteData, QueueData, BrokerData, ClusterInfo, BrokerMemberGroup,
ClientRequestProcessor @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.protocol.bodies.body import Body
from twistmq.protocol.bodies.topic import TopicQueueMappingInfo
from twistmq.protocol.header import Int32, Int64
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader

__all__ = ["STANDARD_JSON_VERSION_MIN", "BrokerData", "BrokerMemberGroup", "ClusterInfo",
           "GetBrokerMemberGroupResponseBody", "QueueData", "TopicRouteData",
           "wants_standard_json"]

#: The ordinal of MQVersion V4_9_4; clients since then read routes as plain JSON.
STANDARD_JSON_VERSION_MIN: Final = 401

field: Final = msgspec.field


def wants_standard_json(version: int, header: GetRouteInfoRequestHeader) -> bool:
    """Whether the client that asks for a route reads plain JSON rather than bare keys.

    :param version: the version in the request's header. The Go client always sends 317 and
        therefore gets bare keys, which its older releases need.
    """
    return version >= STANDARD_JSON_VERSION_MIN or bool(header.accept_standard_json_only)


class QueueData(Body):
    """How many queues of a topic the brokers with one name have."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    #: The permission bits: 4 read, 2 write, 1 inherit.
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class BrokerData(Body):
    """The brokers that share a name: a master and its slaves."""

    cluster: str | None = None
    broker_name: str | None = None
    #: The address of each broker, by broker id; id 0 is the master.
    broker_addrs: dict[Int64, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """The route of a topic."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    #: The filter servers, by broker address.
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body):
    """All brokers by name, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, set[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body):
    """The brokers that share a name."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(Body):
    """The response that contains the brokers with a name."""

    broker_member_group: BrokerMemberGroup | None = None
