"""The tables of a name server, and the operations that keep them consistent with each other.

    topics          topic -> broker name -> QueueData
    brokers         broker name -> BrokerData: addresses by broker id
    clusters        cluster -> broker names
    live            (cluster, address, broker name) -> time and connection of the broker's last
                    registration
    filter_servers  (cluster, address, broker name) -> filter servers
    mappings        static topic -> broker name -> TopicQueueMappingInfo

The following always holds, and is tested: every address of a name in ``brokers`` has exactly one
entry with that name in ``live``, and the reverse. No broker name is without an address, no cluster
without a name, and no topic without a queue. Every broker name in a table other than ``mappings``
is a name in ``brokers``. There is one exception: the queues of a removed name are taken out of
``topics`` in parts, and until then ``queues_at`` leaves them out.

A request about one broker must not walk all brokers or topics: four thousand brokers, or one with a
hundred thousand topics, would delay all other clients. The tables may therefore be read anywhere,
but they are changed only in this module, which maintains the reverse indexes: from an address and a
connection to brokers, and from a broker name to its clusters and its queues.

Differs from Apache: there, dangling entries remain when a broker changes its name, its cluster or
its address without leaving first, and every later scan looks at them.

Source: RouteInfoManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from twistmq.broker.constants import (
    ROUTE_MAPPING_BYTES,
    ROUTE_MAPPING_QUEUE_BYTES,
    ROUTE_ROW_BYTES,
)
from twistmq.broker.namesrv.room import RouteRoom, host_of
from twistmq.protocol.bodies import BrokerData, DataVersion, QueueData, TopicQueueMappingInfo
from twistmq.protocol.flags import PERM_READ, PERM_WRITE
from twistmq.protocol.run_to_completion import run_to_completion

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Channel

__all__ = ["PART_COUNT", "BrokerKey", "BrokerLive",
           "RouteTables"]

_K = TypeVar("_K")


#: The number of topics that are processed without a pause, in a quarter of a millisecond.
PART_COUNT: Final = 256


class BrokerKey(NamedTuple):
    """The key of a broker; it contains the cluster, as two clusters may use the same addresses.

    The name is part of the key, so that an address registered under another name does not replace
    the existing broker.
    """

    cluster: str
    address: str
    broker_name: str


@dataclass(slots=True)
class BrokerLive:
    """A broker's last sign of life.

    :param last_update_ms: its time, by the clock for the silence of brokers.
    :param timeout_ms: the broker is removed after a silence longer than this.
    """

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Channel
    ha_address: str


@dataclass(slots=True)
class RouteTables:
    """The tables; the docstring of this module describes them."""

    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    live: dict[BrokerKey, BrokerLive] = field(default_factory=dict)
    filter_servers: dict[BrokerKey, list[str]] = field(default_factory=dict)
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = field(default_factory=dict)

    #: The reverse indexes. Dicts with None values are ordered sets of their keys.
    _keys_by_address: dict[str, dict[BrokerKey, None]] = field(default_factory=dict)
    _keys_by_channel: dict[int, dict[BrokerKey, None]] = field(default_factory=dict)
    _clusters_by_name: dict[str, set[str]] = field(default_factory=dict)
    _queues_by_name: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    #: Names that were removed, and their queues, which are still in ``topics``.
    _removed: list[tuple[str, dict[str, QueueData]]] = field(default_factory=list)
    #: The shares of these tables by host.
    room: RouteRoom = field(default_factory=RouteRoom, compare=False)
    #: The number of characters in all topic names: any list of all topics is at least as long.
    topic_chars: int = 0

    # --- brokers

    def keys_of(self, address: str) -> list[BrokerKey]:
        """Return the keys under which an address is known."""
        return list(self._keys_by_address.get(address, ()))

    def keys_on(self, channel: Channel) -> list[BrokerKey]:
        """Return the brokers that registered last over a connection."""
        return list(self._keys_by_channel.get(channel.channel_id, ()))

    def put_live(self, key: BrokerKey, live: BrokerLive) -> None:
        """Record a sign of life of a broker, the first or a later one."""
        previous = self.live.get(key)
        if previous is not None:
            _drop_way(self._keys_by_channel, previous.channel.channel_id, key)
        self.live[key] = live
        self.room.broker_came(key, host_of(live.channel.charged_address), live.channel.channel_id)
        self._keys_by_address.setdefault(key.address, {})[key] = None
        self._keys_by_channel.setdefault(live.channel.channel_id, {})[key] = None

    def drop_live(self, key: BrokerKey) -> BrokerLive:
        """Remove the entry of a live broker, and its filter servers; its name is kept."""
        live = self.live.pop(key)
        self.room.broker_left(key)
        self.filter_servers.pop(key, None)
        _drop_way(self._keys_by_address, key.address, key)
        _drop_way(self._keys_by_channel, live.channel.channel_id, key)
        return live

    def put_name(self, cluster: str, name: str) -> BrokerData:
        """Register a broker name in a cluster; :returns: its addresses."""
        self.clusters.setdefault(cluster, set()).add(name)
        self._clusters_by_name.setdefault(name, set()).add(cluster)
        group = self.brokers.get(name)
        if group is None:
            group = self.brokers[name] = BrokerData(cluster, name)
        return group

    def live_as(self, cluster: str, address: str, name: str) -> BrokerLive | None:
        """Return the live broker of a name at an address, or None."""
        return self.live.get(BrokerKey(cluster, address, name))

    def drop_address(self, key: BrokerKey) -> bool:
        """Remove a live broker, and its name if no other broker has it.

        :returns: whether the name was removed; its topics are removed too, see :meth:`dropping`.
        """
        name = self.drop_live(key).broker_name
        addresses = self.brokers[name].broker_addrs
        for broker_id in [each for each, address in addresses.items() if address == key.address]:
            del addresses[broker_id]
        if addresses:
            return False
        del self.brokers[name]
        self.room.name_left(name)
        queues = self._queues_by_name.pop(name, None)
        if queues:
            self._removed.append((name, queues))
        for cluster in self._clusters_by_name.pop(name):
            names = self.clusters[cluster]
            names.remove(name)
            if not names:
                del self.clusters[cluster]
        return True

    # --- topics

    def queues_of(self, name: str) -> Mapping[str, QueueData]:
        """Return the queues of a broker name, by topic."""
        return self._queues_by_name.get(name, {})

    def queues_at(self, topic: str) -> Mapping[str, QueueData]:
        """Return the queues of a topic by broker name; empty if the topic is unknown."""
        queues = self.topics.get(topic)
        if queues is None:
            return {}
        if not self._removed:
            return queues
        return {name: queue for name, queue in queues.items()
                if self.queues_of(name).get(topic) is queue}

    def put_queues(self, topic: str, queue: QueueData) -> bool:
        """Enter the queues of a topic on a broker name.

        :returns: False when there is no room for them; nothing is changed then.
        """
        name = queue.broker_name
        assert name in self.brokers
        queues = self.topics.get(topic)
        own = self._queues_by_name.get(name)
        if queues is None or name not in queues:
            if not self.room.take(name, _row_size(topic)):
                return False
            if queues is None:
                queues = self.topics[topic] = {}
                self.topic_chars += len(topic)
        elif own is None or own.get(topic) is not queues[name]:
            # The mapping is left from before the name was removed.
            self._drop_mapping(topic, name)
        queues[name] = queue
        if own is None:
            own = self._queues_by_name[name] = {}
        own[topic] = queue
        return True

    def put_mapping(self, topic: str, name: str, mapping: TopicQueueMappingInfo) -> bool:
        """Enter the logical queues of a static topic that a broker name leads.

        :returns: False when there is no room for them, or the name has no queues of the topic.
        """
        if topic not in self.queues_of(name):
            return False
        self._drop_mapping(topic, name)
        if not self.room.take(name, _mapping_size(mapping)):
            return False
        self.mappings.setdefault(topic, {})[name] = mapping
        return True

    def dropping(self) -> Generator[None, None, None]:
        """Take out the queues of removed names; yields where it can pause."""
        count = 0
        while self._removed:
            name, own = self._removed[-1]
            while own:
                topic, queue = own.popitem()
                if self.topics.get(topic, {}).get(name) is queue:
                    self._drop_row(topic, name)
                count += 1
                if count % PART_COUNT == 0:
                    yield
            self._removed = [each for each in self._removed if each[1] is not own]

    def _drop_row(self, topic: str, name: str) -> None:
        """Remove one row of ``topics``, and the data that depends on it."""
        self._drop_mapping(topic, name)
        queues = self.topics[topic]
        del queues[name]
        if not queues:
            del self.topics[topic]
            self.topic_chars -= len(topic)
        self.room.release_row(name, _row_size(topic))

    def drop_queues(self, topic: str, names: Collection[str]) -> None:
        """Remove the queues of one topic on some broker names."""
        queues = self.topics.get(topic, {})
        for name in [each for each in queues if each in names]:
            own = self._queues_by_name.get(name)
            if own is not None and own.get(topic) is queues[name]:
                del own[topic]
                if not own:
                    del self._queues_by_name[name]
            self._drop_row(topic, name)

    def _drop_mapping(self, topic: str, name: str) -> None:
        """Remove the logical queues of a topic that a broker name leads, if it has any.

        Differs from Apache, which keeps them, and includes them in the route of a topic that is
        created again.
        """
        mappings = self.mappings.get(topic)
        mapping = None if mappings is None else mappings.pop(name, None)
        if mapping is not None:
            self.room.release_row(name, _mapping_size(mapping))
            if not mappings:
                del self.mappings[topic]

    def drop_topic(self, topic: str) -> None:
        """Remove a topic on all brokers."""
        self.drop_queues(topic, list(self.topics.get(topic, ())))

    def wiping_write_permission(self, name: str) -> Generator[None, None, int]:
        """Prevent producers from choosing a broker name; yields where it can pause.

        :returns: the number of its topics.
        """
        queues = list(self.queues_of(name).values())
        for number, each in enumerate(queues, 1):
            each.perm &= ~PERM_WRITE
            if number % PART_COUNT == 0:
                yield
        return len(queues)

    def adding_write_permission(self, name: str) -> Generator[None, None, int]:
        """Allow producers and consumers to choose a broker name; yields where it can pause.

        :returns: the number of its topics.
        """
        queues = list(self.queues_of(name).values())
        for number, each in enumerate(queues, 1):
            each.perm = PERM_READ | PERM_WRITE
            if number % PART_COUNT == 0:
                yield
        return len(queues)

    def wipe_write_permission(self, name: str) -> int:
        """Do the same as :meth:`wiping_write_permission`, in one step."""
        return run_to_completion(self.wiping_write_permission(name))

    def add_write_permission(self, name: str) -> int:
        """Do the same as :meth:`adding_write_permission`, in one step."""
        return run_to_completion(self.adding_write_permission(name))


def _row_size(topic: str) -> int:
    """Return the size of a topic on one broker name, bytes."""
    return ROUTE_ROW_BYTES + len(topic)


def _mapping_size(mapping: TopicQueueMappingInfo) -> int:
    return ROUTE_MAPPING_BYTES + ROUTE_MAPPING_QUEUE_BYTES * len(mapping.curr_id_map)


def _drop_way(ways: dict[_K, dict[BrokerKey, None]], begin: _K, key: BrokerKey) -> None:
    """Remove an entry of a reverse index, and its key when no entries are left."""
    keys = ways[begin]
    del keys[key]
    if not keys:
        del ways[begin]
