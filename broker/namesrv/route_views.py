"""Views of the tables: routes, clusters, groups, and lists of topics.

Source: RouteInfoManager (pickupTopicRouteData and the getters), ZoneRouteRPCHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final

from twistmq.broker.namesrv.route_tables import PART_COUNT, BrokerKey, RouteTables
from twistmq.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from twistmq.protocol.flags import MASTER_ID, PERM_WRITE
from twistmq.protocol.limits import FILTER_SERVERS_MAX
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["LONG_COUNT", "RouteViews", "filter_by_zone"]

#: The number of brokers or topics up to which a reply is made at once; others are made in slices.
LONG_COUNT: Final = 256

#: The number of addresses, or of queues of a mapping, that take as long as a broker or a topic.
_PARTS_OF_ROW: Final = 8

#: The number of topics that are examined without a pause, in half a millisecond.
_TOPICS_AT_ONCE: Final = 1024

#: Topics by which the brokers of a group find each other; their routes must show the real members.
#: Source: TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX.
_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class RouteViews:
    """Reads the tables. Results may share parts with them, so they must be encoded at once.

    :param flag: returns the value of a setting by name; called each time.
    """

    def __init__(self, tables: RouteTables, flag: Callable[[str], bool]) -> None:
        self._tables = tables
        self._flag = flag

    def is_long(self, topic: str) -> bool:
        """Whether the route of a topic is so long that it must be made in slices.

        Even a few broker names may have hundreds of addresses, or mappings of thousands of queues.
        """
        tables = self._tables
        names = tables.topics.get(topic, ())
        if len(names) > LONG_COUNT:
            return True
        groups = [tables.brokers[name] for name in names if name in tables.brokers]
        parts = sum(len(group.broker_addrs) for group in groups)
        if tables.filter_servers:
            parts *= 1 + FILTER_SERVERS_MAX
        parts += sum(len(each.curr_id_map) for each in tables.mappings.get(topic, {}).values())
        return len(names) + parts // _PARTS_OF_ROW > LONG_COUNT

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic; None if no broker has it."""
        return run_to_completion(self.routing(topic))

    def routing(self, topic: str) -> Generator[None, None, TopicRouteData | None]:
        """Do the same as :meth:`route`; yields where it can pause.

        Brokers that leave in between are left out.
        """
        tables = self._tables
        if not tables.queues_at(topic):
            return None
        mappings = tables.mappings.get(topic)
        route = TopicRouteData(
            topic_queue_mapping_by_broker=None if mappings is None else dict(mappings))
        may_stand_in = self._flag("supportActingMaster") and not topic.startswith(
            _MEMBER_TOPIC_PREFIX)
        for number, (name, queue) in enumerate(list(tables.queues_at(topic).items()), 1):
            broker_data = tables.brokers.get(name)
            if broker_data is None:
                continue
            group = _copy(broker_data)
            route.filter_server_table.update(self._filter_servers(group))
            if may_stand_in:
                _let_slave_stand_in(group, queue)
            route.queue_datas.append(queue)
            route.broker_datas.append(group)
            if number % PART_COUNT == 0:
                yield
        return route

    def _filter_servers(self, group: BrokerData) -> dict[str, list[str]]:
        if not self._tables.filter_servers:
            return {}
        by_address = {}
        for address in group.broker_addrs.values():
            key = BrokerKey(group.cluster or "", address, group.broker_name or "")
            if key in self._tables.filter_servers:
                by_address[address] = self._tables.filter_servers[key]
        return by_address

    def cluster_info(self) -> ClusterInfo:
        """Return every broker name and every cluster."""
        return ClusterInfo(self._tables.brokers, self._tables.clusters)

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Return the brokers of a name, if it is known; the cluster is only repeated."""
        group = self._tables.brokers.get(broker_name)
        return BrokerMemberGroup(cluster, broker_name, group.broker_addrs if group else {})

    @property
    def topic_count(self) -> int:
        """The number of topics, or a little more."""
        return len(self._tables.topics)

    @property
    def topic_chars(self) -> int:
        """The number of characters in all topic names."""
        return self._tables.topic_chars

    @property
    def broker_count(self) -> int:
        """The number of broker names."""
        return len(self._tables.brokers)

    def all_topics(self) -> Generator[None, None, list[str]]:
        """Return every topic; like all lists of topics, it yields where it can pause."""
        return (yield from self._chosen(lambda topic, queues: True))

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """Return the topics of a cluster's brokers; empty for an unknown cluster."""
        topic_names: dict[str, None] = {}
        for name in list(self._tables.clusters.get(cluster, ())):
            topics = list(self._tables.queues_of(name))
            for begin in range(0, len(topics), _TOPICS_AT_ONCE):
                topic_names.update(dict.fromkeys(topics[begin:begin + _TOPICS_AT_ONCE]))
                yield
            yield
        return list(topic_names)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, which are topics too, and one address."""
        tables = self._tables
        names = set(tables.clusters).union(*tables.clusters.values())
        group = next(iter(tables.brokers.values()), None)
        address = group.broker_addrs[min(group.broker_addrs)] if group else None
        return list(names), address

    def topics_with_flags(
        self, required: int, excluded: int = 0
    ) -> Generator[None, None, list[str]]:
        """Return the topics with the given flags, as set on the first known broker of a topic.

        :param required: bits that must be set.
        :param excluded: bits that must not be set.
        """
        return (yield from self._chosen(
            lambda topic, queues:
            next(iter(queues.values())).topic_sys_flag & (required | excluded) == required))

    def _chosen(
        self, is_chosen: Callable[[str, Mapping[str, QueueData]], bool]
    ) -> Generator[None, None, list[str]]:
        """Return the existing topics that pass a test."""
        tables = self._tables
        chosen: list[str] = []
        for number, topic in enumerate(list(tables.topics), 1):
            queues = tables.queues_at(topic)
            if queues and is_chosen(topic, queues):
                chosen.append(topic)
            if number % _TOPICS_AT_ONCE == 0:
                yield
        return chosen


def _copy(group: BrokerData) -> BrokerData:
    return BrokerData(group.cluster, group.broker_name, dict(group.broker_addrs),
                      group.zone_name, group.enable_acting_master)


def _let_slave_stand_in(group: BrokerData, queue: QueueData) -> None:
    """Give the slave with the lowest id the master's id, when there is no writable master."""
    addresses = group.broker_addrs
    if MASTER_ID in addresses or not group.enable_acting_master or queue.perm & PERM_WRITE:
        return
    addresses[MASTER_ID] = addresses.pop(min(addresses))


def filter_by_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Keep only brokers in a client's own zone, and brokers whose master is gone.

    :param zone_name: the zone; its case is ignored.
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
