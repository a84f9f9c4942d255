"""Routes: which brokers there are, and which queues of a topic they have.

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

#: MQVersion V4_9_4's ordinal: clients from here on read routes as plain JSON.
STANDARD_JSON_VERSION_MIN: Final = 401

field: Final = msgspec.field


def wants_standard_json(version: int, header: GetRouteInfoRequestHeader) -> bool:
    """Say which form a route's asker reads: plain JSON, or bare keys.

    :param version: of the request's header. The Go client always says 317 and so gets bare
        keys, which its older releases need.
    """
    return version >= STANDARD_JSON_VERSION_MIN or bool(header.accept_standard_json_only)


class QueueData(Body):
    """How many queues of a topic a broker name has."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    #: Bits: 4 read, 2 write, 1 inherit.
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class BrokerData(Body):
    """The brokers that share a name: a master and its slaves."""

    cluster: str | None = None
    broker_name: str | None = None
    #: Address by broker id; 0 is the master.
    broker_addrs: dict[Int64, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """Where a topic is."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    #: Filter servers by broker address.
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body):
    """Every broker by name, and the broker names of every cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, set[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body):
    """The brokers that share a name."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(Body):
    """The answer that holds them."""

    broker_member_group: BrokerMemberGroup | None = None
