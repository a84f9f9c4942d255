"""The tables a name server keeps, and how what depends on each other goes together.

    topics          topic -> broker name -> QueueData
    brokers         broker name -> BrokerData: addresses by broker id
    clusters        cluster -> broker names
    live            (cluster, address) -> when and over which connection the broker last registered
    filter_servers  (cluster, address) -> filter servers
    mappings        static topic -> broker name -> TopicQueueMappingInfo

What always holds, and is tested: every address of a name in ``brokers`` has exactly one entry with
that name in ``live`` and the reverse; no broker name is without an address, no cluster without a
name, no topic without a queue; whatever names a broker, ``mappings`` apart, names one of
``brokers``.

Differs from Apache: there, entries that point nowhere stay behind when a broker changes its name,
its cluster or its address without leaving first, and are looked at by every scan from then on.

Source: RouteInfoManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from twistmq.broker.wire.bodies import BrokerData, DataVersion, QueueData, TopicQueueMappingInfo

if TYPE_CHECKING:
    from twistmq.broker.remoting import Channel

__all__ = ["MASTER_ID", "PERM_READ", "PERM_WRITE", "BrokerKey", "BrokerLive", "RouteTables"]

MASTER_ID: Final = 0
#: Bits of a queue's ``perm``.
PERM_READ: Final = 4
PERM_WRITE: Final = 2


class BrokerKey(NamedTuple):
    """What tells one broker from all others: two clusters may use the same addresses."""

    cluster: str
    address: str


@dataclass(slots=True)
class BrokerLive:
    """A broker's last sign of life.

    :param last_update_ms: Unix ms.
    :param timeout_ms: a silence longer than this means that it is gone.
    """

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Channel
    ha_address: str


@dataclass(slots=True)
class RouteTables:
    """See the module."""

    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    live: dict[BrokerKey, BrokerLive] = field(default_factory=dict)
    filter_servers: dict[BrokerKey, list[str]] = field(default_factory=dict)
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = field(default_factory=dict)

    def keys_of(self, address: str) -> list[BrokerKey]:
        """The keys under which an address is known, at most one a cluster."""
        keys = [BrokerKey(cluster, address) for cluster in self.clusters]
        return [key for key in keys if key in self.live]

    def live_as(self, cluster: str, address: str, name: str) -> BrokerLive | None:
        """The live broker at an address; None when there it has another name, or is none."""
        live = self.live.get(BrokerKey(cluster, address))
        return live if live is not None and live.broker_name == name else None

    def drop_address(self, key: BrokerKey) -> bool:
        """Forget one live broker, and its name when no other broker has it.

        :returns: whether the name is gone; its topics are the caller's to drop.
        """
        name = self.live.pop(key).broker_name
        self.filter_servers.pop(key, None)
        addresses = self.brokers[name].broker_addrs
        for broker_id in [each for each, known in addresses.items() if known == key.address]:
            del addresses[broker_id]
        if addresses:
            return False
        del self.brokers[name]
        for cluster, names in list(self.clusters.items()):
            names.discard(name)
            if not names:
                del self.clusters[cluster]
        return True

    def drop_topics_of(self, names: Collection[str]) -> None:
        """Forget the queues of some broker names, in one pass over all topics."""
        if not names:
            return
        for topic, queues in list(self.topics.items()):
            for name in names:
                queues.pop(name, None)
            if not queues:
                del self.topics[topic]

    def drop_queues(self, topic: str, names: Collection[str]) -> None:
        """Forget the queues that some broker names have of one topic."""
        queues = self.topics.get(topic, {})
        for name in names:
            queues.pop(name, None)
        if not queues:
            self.topics.pop(topic, None)

    def wipe_write_permission(self, name: str) -> int:
        """Let no producer choose a broker name; :returns: how many topics it has."""
        queues = self._queues_of(name)
        for each in queues:
            each.perm &= ~PERM_WRITE
        return len(queues)

    def add_write_permission(self, name: str) -> int:
        """Let producers and consumers choose a name; :returns: how many topics it has."""
        queues = self._queues_of(name)
        for each in queues:
            each.perm = PERM_READ | PERM_WRITE
        return len(queues)

    def _queues_of(self, name: str) -> list[QueueData]:
        return [queues[name] for queues in self.topics.values() if name in queues]
