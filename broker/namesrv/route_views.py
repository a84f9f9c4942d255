"""What is read from the tables: routes, clusters, groups, lists of topics.

Source: RouteInfoManager (pickupTopicRouteData and the getters), ZoneRouteRPCHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twistmq.broker.namesrv.route_tables import MASTER_ID, PERM_WRITE, BrokerKey, RouteTables
from twistmq.broker.wire.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)

__all__ = ["UNIT_FLAG", "UNIT_SUB_FLAG", "RouteViews", "filter_by_zone"]

#: Bits of a topic's ``topicSysFlag``. Source: TopicSysFlag.
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2

#: Topics over which the brokers of a group find each other: they need to see who is really there.
#: Source: TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX.
_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class RouteViews:
    """Reads the tables; what it returns may share parts with them and is to be encoded at once.

    :param flag: a setting's value by name, asked each time.
    """

    def __init__(self, tables: RouteTables, flag: Callable[[str], bool]) -> None:
        self._tables = tables
        self._flag = flag

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; None when no broker has it."""
        tables = self._tables
        queues = tables.queues_at(topic)
        if not queues:
            return None
        groups = [_copy(tables.brokers[name]) for name in queues]
        route = TopicRouteData(
            queue_datas=list(queues.values()), broker_datas=groups,
            filter_server_table=self._filter_servers(groups),
            topic_queue_mapping_by_broker=tables.mappings.get(topic))
        if self._flag("supportActingMaster") and not topic.startswith(_MEMBER_TOPIC_PREFIX):
            for group in groups:
                assert group.broker_name is not None
                _let_slave_stand_in(group, queues[group.broker_name])
        return route

    def _filter_servers(self, groups: list[BrokerData]) -> dict[str, list[str]]:
        if not self._tables.filter_servers:
            return {}
        found = {}
        for group in groups:
            for address in group.broker_addrs.values():
                key = BrokerKey(group.cluster or "", address, group.broker_name or "")
                if key in self._tables.filter_servers:
                    found[address] = self._tables.filter_servers[key]
        return found

    def cluster_info(self) -> ClusterInfo:
        """Every broker name and every cluster."""
        return ClusterInfo(self._tables.brokers, self._tables.clusters)

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The brokers of a name, none when it is not known; the cluster is only repeated."""
        group = self._tables.brokers.get(broker_name)
        return BrokerMemberGroup(cluster, broker_name, group.broker_addrs if group else {})

    def all_topics(self) -> TopicList:
        return TopicList(set(self._tables.topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The topics that a broker of the cluster has; none for a cluster that is not known."""
        names = self._tables.clusters.get(cluster, set())
        return TopicList(set().union(*[self._tables.queues_of(name) for name in names]))

    def system_topics(self) -> TopicList:
        """Names of clusters and brokers, which are topics too, and an address to ask for more."""
        tables = self._tables
        names = set(tables.clusters).union(*tables.clusters.values())
        group = next(iter(tables.brokers.values()), None)
        address = group.broker_addrs[min(group.broker_addrs)] if group else None
        return TopicList(names, address)

    def topics_with_flags(self, required: int, excluded: int = 0) -> TopicList:
        """The topics whose flags, on the broker first known to have them, are these.

        :param required: bits that must be set.
        :param excluded: bits that must not be set.
        """
        return TopicList({
            topic for topic, queues in self._tables.topics.items()
            if next(iter(queues.values())).topic_sys_flag & (required | excluded) == required})


def _copy(group: BrokerData) -> BrokerData:
    return BrokerData(group.cluster, group.broker_name, dict(group.broker_addrs),
                      group.zone_name, group.enable_acting_master)


def _let_slave_stand_in(group: BrokerData, queue: QueueData) -> None:
    """Give the slave with the lowest id the master's, when there is none to be written to."""
    addresses = group.broker_addrs
    if MASTER_ID in addresses or not group.enable_acting_master or queue.perm & PERM_WRITE:
        return
    addresses[MASTER_ID] = addresses.pop(min(addresses))


def filter_by_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Leave the brokers of a client's own zone, and those whose master is gone.

    :param zone_name: compared without regard to case.
    """
    def is_near(group: BrokerData) -> bool:
        return (MASTER_ID not in group.broker_addrs
                or (group.zone_name or "").lower() == zone_name.lower())

    far = [group for group in route.broker_datas if not is_near(group)]
    far_names = {group.broker_name for group in far}
    far_addresses = {address for group in far for address in group.broker_addrs.values()}
    return TopicRouteData(
        route.order_topic_conf,
        [each for each in route.queue_datas if each.broker_name not in far_names],
        [group for group in route.broker_datas if is_near(group)],
        {address: servers for address, servers in route.filter_server_table.items()
         if address not in far_addresses},
        route.topic_queue_mapping_by_broker)
