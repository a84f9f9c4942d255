"""What a broker says of itself when it registers, what it is told, and which of its topics count.

Source: RouteInfoManager.registerBroker, RegisterBrokerResult @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twistmq.broker.namesrv.route_tables import MASTER_ID, PERM_WRITE, BrokerKey, RouteTables
from twistmq.broker.wire.bodies import QueueData, TopicConfig, TopicConfigSerializeWrapper

if TYPE_CHECKING:
    from twistmq.broker.remoting import Channel

__all__ = ["MasterOfGroup", "Registration", "put_topics"]

#: Topics that are taken without a pause: a quarter of a millisecond.
_PART_COUNT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself.

    :param timeout_ms: the silence after which it is gone; None from brokers before 5.
    :param acting_master: whether a slave may stand in for its master; None from old brokers.
    :param filter_servers: None leaves those that are known.
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


@dataclass(frozen=True, slots=True)
class MasterOfGroup:
    """What a slave is told of its master; nothing when there is none, or it is the master."""

    address: str | None = None
    ha_address: str | None = None


def put_topics(
    tables: RouteTables, new: Registration, is_changed: bool, *, drop_missing: bool,
    is_current: Callable[[], bool],
) -> Generator[None, None, None]:
    """Take the topics of a master, or of the slave that comes first when there is none.

    Yields where it can pause; goes on only as long as the registration is the broker's last one.

    :param is_changed: whether the version of the broker's data is another than before; if not,
        only topics that are not known of it are taken.
    :param drop_missing: whether topics it no longer names are forgotten.
    :param is_current: whether the broker is there, as it registered here.
    """
    group = tables.brokers[new.broker_name]
    is_master = new.broker_id == MASTER_ID
    is_prime_slave = (not is_master and new.acting_master is not None
                      and new.broker_id == min(group.broker_addrs))
    if not is_master and not is_prime_slave:
        return
    mappings = new.topics.topic_queue_mapping_info_map or {}
    if drop_missing and not mappings:
        for number, name in enumerate(list(tables.queues_of(new.broker_name)), 1):
            if name not in new.topics.topic_config_table:
                tables.drop_queues(name, [new.broker_name])
            if number % _PART_COUNT == 0:
                yield
                if not is_current():
                    return
    known = tables.queues_of(new.broker_name)
    read_only = is_prime_slave and group.enable_acting_master
    for number, topic in enumerate(new.topics.topic_config_table.values()):
        if number and number % _PART_COUNT == 0:
            yield
            if not is_current():
                return
        if is_changed or topic.topic_name not in known:
            tables.put_queues(topic.topic_name, _queue_data(new.broker_name, topic, read_only))
    if is_changed:
        for topic_name, mapping in mappings.items():
            names = tables.mappings.setdefault(topic_name, {})
            names[mapping.bname or new.broker_name] = mapping


def _queue_data(name: str, topic: TopicConfig, read_only: bool) -> QueueData:
    perm = topic.perm & ~PERM_WRITE if read_only else topic.perm
    return QueueData(name, topic.read_queue_nums, topic.write_queue_nums, perm,
                     topic.topic_sys_flag)
