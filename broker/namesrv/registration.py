"""The data of a registration, its reply, and the topics that it contributes.

Source: RouteInfoManager.registerBroker, RegisterBrokerResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twistmq.broker.constants import BROKERS_OF_NAME_MAX, TOPIC_QUEUES_MAX
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.namesrv.route_tables import PART_COUNT, BrokerKey, RouteTables
from twistmq.protocol.bodies import (
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from twistmq.protocol.flags import MASTER_ID, PERM_WRITE
from twistmq.protocol.limits import FILTER_SERVERS_MAX, ROUTE_TEXT_SIZE_MAX

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Channel

__all__ = ["MasterOfGroup", "Registration", "is_text_short", "put_topics", "why_refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The identity of a registering broker.

    :param timeout_ms: the silence after which it is removed; None from brokers before version 5.
    :param acting_master: whether a slave may stand in for its master; None from old brokers.
    :param filter_servers: its filter servers; None keeps the known ones.
    """

    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str
    topics: TopicConfigSerializeWrapper
    channel: Channel
    zone_name: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    filter_servers: Sequence[str] | None = None

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.cluster, self.address, self.broker_name)

    @property
    def host(self) -> str:
        """The host whose share of the tables the broker uses."""
        return host_of(self.channel.charged_address)


@dataclass(frozen=True, slots=True)
class MasterOfGroup:
    """The master in the reply to a slave; empty without a master or for the master itself."""

    address: str | None = None
    ha_address: str | None = None


def why_refused(tables: RouteTables, new: Registration) -> str:
    """Return why a broker is refused, whatever its topics are; empty if it is accepted."""
    for name, text in (("brokerName", new.broker_name), ("clusterName", new.cluster),
                       ("brokerAddr", new.address), ("haServerAddr", new.ha_address),
                       ("the zone's name", new.zone_name or "")):
        if not is_text_short(text):
            return f"{name} has over {ROUTE_TEXT_SIZE_MAX} bytes"
    servers = new.filter_servers or ()
    if len(servers) > FILTER_SERVERS_MAX:
        return f"there are {len(servers)} filter servers, the limit is {FILTER_SERVERS_MAX}"
    if not all(map(is_text_short, servers)):
        return f"the address of a filter server has over {ROUTE_TEXT_SIZE_MAX} bytes"
    if new.key in tables.live:
        return ""
    group = tables.brokers.get(new.broker_name)
    if (group is not None and len(group.broker_addrs) >= BROKERS_OF_NAME_MAX
            and new.broker_id not in group.broker_addrs):
        return f"{new.broker_name} has {BROKERS_OF_NAME_MAX} brokers, which is the limit"
    return tables.room.why_no_place(new.key, new.host, new.channel.channel_id)


def is_text_short(text: str) -> bool:
    """Whether a name or an address is short enough to be kept and repeated in routes."""
    return (len(text) <= ROUTE_TEXT_SIZE_MAX
            and len(text.encode("utf-8", "replace")) <= ROUTE_TEXT_SIZE_MAX)


def put_topics(
    tables: RouteTables, new: Registration, is_changed: bool, *, drop_missing: bool,
    is_current: Callable[[], bool],
) -> Generator[None, None, str]:
    """Enter the topics of a master, or of the first slave if the master is missing.

    Yields where it can pause. It continues only as long as this is the broker's last registration.

    :param is_changed: whether the version of the broker's data has changed; if not, only unknown
        topics are entered.
    :param drop_missing: whether topics that the broker no longer names are removed.
    :param is_current: whether the broker is still registered with this registration.
    :returns: the reason why some topics were not entered; empty if all were.
    """
    group = tables.brokers[new.broker_name]
    is_master = new.broker_id == MASTER_ID
    is_prime_slave = (not is_master and new.acting_master is not None
                      and new.broker_id == min(group.broker_addrs))
    if not is_master and not is_prime_slave:
        return ""
    mappings = new.topics.topic_queue_mapping_info_map or {}
    if drop_missing and not mappings:
        for number, name in enumerate(list(tables.queues_of(new.broker_name)), 1):
            if name not in new.topics.topic_config_table:
                tables.drop_queues(name, [new.broker_name])
            if number % PART_COUNT == 0:
                yield
                if not is_current():
                    return ""
    tables.room.name_came(new.broker_name, new.host)
    old_queues = tables.queues_of(new.broker_name)
    read_only = is_prime_slave and group.enable_acting_master
    too_long = without_room = 0
    for number, topic in enumerate(new.topics.topic_config_table.values()):
        if number and number % PART_COUNT == 0:
            yield
            if not is_current():
                return ""
        if is_changed or topic.topic_name not in old_queues:
            if not is_text_short(topic.topic_name):
                too_long += 1
            elif not tables.put_queues(
                    topic.topic_name, _queue_data(new.broker_name, topic, read_only)):
                without_room += 1
    if is_changed:
        for number, (topic_name, mapping) in enumerate(mappings.items(), 1):
            if number % PART_COUNT == 0:
                yield
                if not is_current():
                    return ""
            if not _is_mapping_short(mapping, new.broker_name):
                too_long += 1
            elif not tables.put_mapping(topic_name, new.broker_name, mapping):
                without_room += 1
    tables.room.settle(new.broker_name)
    if too_long:
        return f"{too_long} topics have a name or a mapping that is too long"
    if without_room:
        return (f"there is no room for {without_room} topics: all have {tables.room.size_bytes} "
                "bytes, see routes.size_max")
    return ""


def _is_mapping_short(mapping: TopicQueueMappingInfo, broker_name: str) -> bool:
    return (len(mapping.curr_id_map) <= TOPIC_QUEUES_MAX
            and mapping.bname in (None, broker_name)
            and is_text_short(mapping.topic) and is_text_short(mapping.scope))


def _queue_data(name: str, topic: TopicConfig, read_only: bool) -> QueueData:
    perm = topic.perm & ~PERM_WRITE if read_only else topic.perm
    return QueueData(name, topic.read_queue_nums, topic.write_queue_nums, perm,
                     topic.topic_sys_flag)
