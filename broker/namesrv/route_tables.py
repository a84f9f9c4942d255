"""The tables a name server keeps, and how what depends on each other goes together.

    topics          topic -> broker name -> QueueData
    brokers         broker name -> BrokerData: addresses by broker id
    clusters        cluster -> broker names
    live            (cluster, address, broker name) -> when and by which connection the broker last
                    registered
    filter_servers  (cluster, address, broker name) -> filter servers
    mappings        static topic -> broker name -> TopicQueueMappingInfo

What always holds, and is tested: every address of a name in ``brokers`` has exactly one entry with
that name in ``live`` and the reverse; no broker name is without an address, no cluster without a
name, no topic without a queue; whatever names a broker, ``mappings`` apart, names one of
``brokers``.

What is asked of one broker must not look at all others, nor at all topics: who registers four
thousand brokers, or one with a hundred thousand topics, would hold everybody up. So the tables are
read by everybody and changed here only, where the ways back are kept: from an address and a
connection to brokers, from a broker name to its clusters and its queues.

Differs from Apache: there, entries that point nowhere stay behind when a broker changes its name,
its cluster or its address without leaving first, and are looked at by every scan from then on.

Source: RouteInfoManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from twistmq.broker.wire.bodies import BrokerData, DataVersion, QueueData, TopicQueueMappingInfo

if TYPE_CHECKING:
    from twistmq.broker.remoting import Channel

__all__ = ["MASTER_ID", "PERM_READ", "PERM_WRITE", "BrokerKey", "BrokerLive", "RouteTables"]

_K = TypeVar("_K")

MASTER_ID: Final = 0
#: Bits of a queue's ``perm``.
PERM_READ: Final = 4
PERM_WRITE: Final = 2


class BrokerKey(NamedTuple):
    """What tells one broker from all others: two clusters may use the same addresses.

    The name is a part of it, so that nobody who registers an address under another name takes the
    place of the broker that is there.
    """

    cluster: str
    address: str
    broker_name: str


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

    #: The ways back. Of dicts with None the keys count, in the order they came.
    _keys_by_address: dict[str, dict[BrokerKey, None]] = field(default_factory=dict)
    _keys_by_channel: dict[int, dict[BrokerKey, None]] = field(default_factory=dict)
    _clusters_by_name: dict[str, set[str]] = field(default_factory=dict)
    _queues_by_name: dict[str, dict[str, QueueData]] = field(default_factory=dict)

    # --- brokers

    def keys_of(self, address: str) -> list[BrokerKey]:
        """The keys under which an address is known."""
        return list(self._keys_by_address.get(address, ()))

    def keys_on(self, channel: Channel) -> list[BrokerKey]:
        """The brokers that registered last over a connection."""
        return list(self._keys_by_channel.get(channel.channel_id, ()))

    def put_live(self, key: BrokerKey, live: BrokerLive) -> None:
        """Note a broker's sign of life, the first or another one."""
        known = self.live.get(key)
        if known is not None:
            _drop_way(self._keys_by_channel, known.channel.channel_id, key)
        self.live[key] = live
        self._keys_by_address.setdefault(key.address, {})[key] = None
        self._keys_by_channel.setdefault(live.channel.channel_id, {})[key] = None

    def drop_live(self, key: BrokerKey) -> BrokerLive:
        """Forget that a broker lives, and its filter servers; its name stays."""
        live = self.live.pop(key)
        self.filter_servers.pop(key, None)
        _drop_way(self._keys_by_address, key.address, key)
        _drop_way(self._keys_by_channel, live.channel.channel_id, key)
        return live

    def put_name(self, cluster: str, name: str) -> BrokerData:
        """Make a broker name known in a cluster; :returns: its addresses."""
        self.clusters.setdefault(cluster, set()).add(name)
        self._clusters_by_name.setdefault(name, set()).add(cluster)
        group = self.brokers.get(name)
        if group is None:
            group = self.brokers[name] = BrokerData(cluster, name)
        return group

    def live_as(self, cluster: str, address: str, name: str) -> BrokerLive | None:
        """The live broker of a name at an address; None when there is none."""
        return self.live.get(BrokerKey(cluster, address, name))

    def drop_address(self, key: BrokerKey) -> bool:
        """Forget one live broker, and its name when no other broker has it.

        :returns: whether the name is gone; its topics are the caller's to drop.
        """
        name = self.drop_live(key).broker_name
        addresses = self.brokers[name].broker_addrs
        for broker_id in [each for each, known in addresses.items() if known == key.address]:
            del addresses[broker_id]
        if addresses:
            return False
        del self.brokers[name]
        for cluster in self._clusters_by_name.pop(name):
            names = self.clusters[cluster]
            names.remove(name)
            if not names:
                del self.clusters[cluster]
        return True

    # --- topics

    def queues_of(self, name: str) -> Mapping[str, QueueData]:
        """The queues that a broker name has, by topic."""
        return self._queues_by_name.get(name, {})

    def put_queues(self, topic: str, queue: QueueData) -> None:
        """Take the queues that a broker name has of a topic."""
        name = queue.broker_name
        assert name in self.brokers
        queues = self.topics.get(topic)
        if queues is None:
            queues = self.topics[topic] = {}
        queues[name] = queue
        own = self._queues_by_name.get(name)
        if own is None:
            own = self._queues_by_name[name] = {}
        own[topic] = queue

    def drop_topics_of(self, names: Iterable[str]) -> None:
        """Forget the queues of some broker names."""
        topics = self.topics
        for name in names:
            for topic in self._queues_by_name.pop(name, ()):
                queues = topics[topic]
                del queues[name]
                if not queues:
                    del topics[topic]
                self._drop_mapping(topic, name)

    def drop_queues(self, topic: str, names: Collection[str]) -> None:
        """Forget the queues that some broker names have of one topic."""
        queues = self.topics.get(topic, {})
        for name in [each for each in queues if each in names]:
            del queues[name]
            own = self._queues_by_name[name]
            del own[topic]
            if not own:
                del self._queues_by_name[name]
            self._drop_mapping(topic, name)
        if not queues:
            self.topics.pop(topic, None)

    def _drop_mapping(self, topic: str, name: str) -> None:
        """Forget the logical queues of a topic that a broker name leads, if it has any.

        Differs from Apache, which forgets none, and has them in routes of a topic made anew.
        """
        mappings = self.mappings.get(topic)
        if mappings is not None and mappings.pop(name, None) is not None and not mappings:
            del self.mappings[topic]

    def drop_topic(self, topic: str) -> None:
        """Forget a topic on all brokers."""
        self.drop_queues(topic, list(self.topics.get(topic, ())))

    def wipe_write_permission(self, name: str) -> int:
        """Let no producer choose a broker name; :returns: how many topics it has."""
        queues = self.queues_of(name)
        for each in queues.values():
            each.perm &= ~PERM_WRITE
        return len(queues)

    def add_write_permission(self, name: str) -> int:
        """Let producers and consumers choose a name; :returns: how many topics it has."""
        queues = self.queues_of(name)
        for each in queues.values():
            each.perm = PERM_READ | PERM_WRITE
        return len(queues)


def _drop_way(ways: dict[_K, dict[BrokerKey, None]], begin: _K, key: BrokerKey) -> None:
    """Forget one end of a way back, and its begin when it leads nowhere any more."""
    keys = ways[begin]
    del keys[key]
    if not keys:
        del ways[begin]
