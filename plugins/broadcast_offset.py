"""Offsets of the clients of broadcast groups, for clients that move between proxy and broker.

A client of a broadcast group normally stores its offsets itself. A client that connects through a
proxy cannot do this, and a client that moves from the proxy to the broker, or back, does not know
how far it has read. Therefore the broker records from where each client pulls. If a client arrives
by the other way, or a proxy does not know the offset (it sends one below 0), the broker answers
with OFFSET_RESET and the recorded offset. The smallest offset of all clients is committed for the
group GROUP@broadcast, and new clients of a proxy begin there.

A proxy marks its pulls (requestSource 1) and names the client (proxyFrowardClientId). Broadcast
groups cannot pop, here as in Apache's broker. Nothing is recorded for groups that share their
queues.

Source: BroadcastOffsetManager, BroadcastOffsetStore, PullMessageProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.api import IBroadcastOffsets, PeriodicTask, Request, Setting, hookimpl
from twistmq.broker.api.config import LONG_MAX
from twistmq.broker.api.headers import PullMessageRequestHeader
from twistmq.broker.api.limits import CLIENT_ID_LENGTH_MAX
from twistmq.broker.api.requests import BroadcastClient
from twistmq.broker.api.topics import BROADCAST_GROUP_SUFFIX

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["CLIENTS_MAX", "BroadcastOffsets", "Plugin"]

#: Source: RequestSource.PROXY_FOR_BROADCAST.
_PROXY_FOR_BROADCAST: Final = 1
#: Limit of remembered clients over all groups and topics, because pulls can contain any names.
#: Apache has no limit.
CLIENTS_MAX: Final = 100_000
#: Source: BroadcastOffsetManager.run.
_SCAN_PERIOD_MS: Final = 5000


@dataclass(slots=True)
class _Client:
    """The offsets of one client in one topic."""

    from_proxy: bool
    pulled_ms: int
    #: Queue id to the offset of the last pull.
    offsets: dict[int, int] = field(default_factory=dict)


@implementer(IBroadcastOffsets)
class BroadcastOffsets:
    """The offsets of one broker's broadcast groups.

    :param expire_ms: the time for which a disconnected client is remembered.
    :param expire_max_ms: the time for which a connected client that does not pull is remembered.
    """

    log = Logger()

    def __init__(self, broker: Broker, expire_ms: int, expire_max_ms: int) -> None:
        self._broker = broker
        self._expire_ms = expire_ms
        self._expire_max_ms = expire_max_ms
        #: (topic, group) to client id to client.
        self._table: dict[tuple[str, str], dict[str, _Client]] = {}
        self.client_count = 0
        self._is_scanning = False

    # --- calls from pulls

    def client_of(self, request: Request[PullMessageRequestHeader]) -> BroadcastClient | None:
        """See IBroadcastOffsets."""
        header = request.header
        if header.request_source == _PROXY_FOR_BROADCAST:
            name = header.proxy_froward_client_id
            return (name, True) if name and len(name) <= CLIENT_ID_LENGTH_MAX else None
        group = self._broker.clients.consumers.get(header.consumer_group)
        if group is None or not group.is_broadcast:
            return None
        client = group.clients.get(request.channel.channel_id)
        return None if client is None else (client.client_id, False)

    def begin_offset(
        self, request: Request[PullMessageRequestHeader], client: BroadcastClient
    ) -> int | None:
        """See IBroadcastOffsets."""
        header = request.header
        client_id, from_proxy = client
        clients = self._table.get((header.topic, header.consumer_group))
        consumer = None if clients is None else clients.get(client_id)
        if consumer is None:
            return self._offset(None, header) if from_proxy and header.queue_offset < 0 else None
        if consumer.from_proxy != from_proxy or (from_proxy and header.queue_offset < 0):
            return self._offset(consumer, header)
        return None

    def pulled(
        self, request: Request[PullMessageRequestHeader], client: BroadcastClient, offset: int
    ) -> None:
        """See IBroadcastOffsets."""
        header = request.header
        client_id, from_proxy = client
        key = (header.topic, header.consumer_group)
        clients = self._table.get(key)
        consumer = None if clients is None else clients.get(client_id)
        if consumer is None:
            if self.client_count >= CLIENTS_MAX:
                return
            self.client_count += 1
            consumer = self._table.setdefault(key, {})[client_id] = _Client(
                from_proxy, self._broker.steady.awake_ms())
        consumer.pulled_ms = self._broker.steady.awake_ms()
        consumer.from_proxy = from_proxy
        consumer.offsets[header.queue_id] = max(
            offset, consumer.offsets.get(header.queue_id, offset))

    def _offset(self, consumer: _Client | None, header: PullMessageRequestHeader) -> int:
        """Return where a client continues: its own offset, its group's, or a new group's."""
        topic, queue_id = header.topic, header.queue_id
        offset = -1 if consumer is None else consumer.offsets.get(queue_id, -1)
        if offset < 0:
            offset = self._broker.consumer_offset.query(
                header.consumer_group + BROADCAST_GROUP_SUFFIX, topic, queue_id)
        if offset >= 0:
            return offset
        store = self._broker.store
        if store.reader.is_in_memory(topic, queue_id, 0):
            return 0
        return store.queues.max_offset(topic, queue_id)

    # --- deletion

    def topic_deleted(self, topic: str) -> Sequence[str]:
        """Forget the clients' offsets in a topic; offsets of groups are deleted with the topic."""
        for key in [key for key in self._table if key[0] == topic]:
            self._forget(key)
        return ()

    def group_deleted(self, group: str, clean_offset: bool) -> None:
        """Forget the clients of a group, and also its offsets if they are deleted."""
        for key in [key for key in self._table if key[1] == group]:
            self._forget(key)
        if clean_offset:
            self._broker.consumer_offset.clean_group(group + BROADCAST_GROUP_SUFFIX)

    def _forget(self, key: tuple[str, str]) -> None:
        clients = self._table.pop(key)
        self.client_count -= len(clients)
        clients.clear()

    # --- periodic

    def scan(self, _: int) -> None:
        """Commit the smallest offsets, and forget clients that are gone; in slices."""
        if self._is_scanning or self._broker.is_slave:
            return
        self._is_scanning = True

        def finished(result: object) -> object:
            self._is_scanning = False
            return result

        scanning = self._broker.slices.run(self._scan(self._broker.steady.awake_ms()))
        scanning.addBoth(finished)
        scanning.addErrback(lambda failure: self.log.failure(
            "the check of broadcast groups' offsets failed", failure=failure))

    def _scan(self, now_ms: int) -> Generator[None, None, None]:
        for key, clients in list(self._table.items()):
            topic, group = key
            min_offsets: dict[int, int] = {}
            members = self._broker.clients.consumers.get(group)
            member_ids = set(members.client_ids) if members is not None else set()
            for client_id, client in list(clients.items()):
                if client_id not in clients:
                    continue
                silent_ms = now_ms - client.pulled_ms
                is_member = client_id in member_ids
                if is_member or silent_ms < self._expire_ms:
                    for queue_id, offset in client.offsets.items():
                        min_offsets[queue_id] = min(offset, min_offsets.get(queue_id, offset))
                if silent_ms >= (self._expire_max_ms if is_member else self._expire_ms):
                    del clients[client_id]
                    self.client_count -= 1
                yield
            if self._table.get(key) is not clients:
                # The topic or the group was deleted in the meantime.
                continue
            if not clients:
                del self._table[key]
            for queue_id, offset in min_offsets.items():
                self._broker.consumer_offset.commit(
                    "BroadcastOffset", group + BROADCAST_GROUP_SUFFIX, topic, queue_id, offset)


_SETTINGS: Final = (
    Setting("enableBroadcastOffsetStore", "flag", True,
            "Whether the broker stores the offsets of clients of broadcast groups.",
            source="BrokerConfig", at_start=True),
    Setting("broadcastOffsetExpireSecond", "int", 120,
            "The time for which offsets of a disconnected client of a broadcast group are kept.",
            unit="s", least=1, most=LONG_MAX, source="BrokerConfig", at_start=True),
    Setting("broadcastOffsetExpireMaxSecond", "int", 300,
            "The time for which offsets of a connected client that does not pull are kept.",
            unit="s", least=1, most=LONG_MAX, source="BrokerConfig", at_start=True),
)


class Plugin:
    """The broadcast offsets of one broker; empty if the setting is off."""

    def __init__(self, broker: Broker) -> None:
        settings = broker.settings
        self._offsets: BroadcastOffsets | None = None
        if settings.flag("enableBroadcastOffsetStore"):
            self._offsets = BroadcastOffsets(
                broker, settings.int("broadcastOffsetExpireSecond") * 1000,
                settings.int("broadcastOffsetExpireMaxSecond") * 1000)
            broker.on_topic_deletion.append(self._offsets.topic_deleted)
            broker.on_group_deletion.append(self._offsets.group_deleted)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def provide_broadcast_offsets(self) -> IBroadcastOffsets | None:
        return self._offsets

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        if self._offsets is None:
            return ()
        return (PeriodicTask("check the offsets of broadcast groups", _SCAN_PERIOD_MS,
                             _SCAN_PERIOD_MS, self._offsets.scan),)
