"""The clients of a broker: producers and consumers by group, according to their heartbeats.

A pull needs the subscription of its group, the members of a group must be notified when one of them
joins or leaves, and replies and checks of transactions are sent to a live producer. All of this
depends on knowing the clients, but a client that dies does not report it. Therefore a client is
registered by its heartbeats, and forgotten when it unregisters, when its connection is lost, or
after a silence. Each change of a group is reported to the listeners.

Source: ProducerManager, ConsumerManager, ConsumerGroupInfo, ClientChannelInfo @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from msgspec.structs import replace
from twisted.logger import Logger

from twistmq.broker.remoting.messages import Channel
from twistmq.broker.request.client_quotas import (
    ClientSpace,
    GroupKey,
    consumer_key,
    consumer_size,
    producer_key,
    producer_size,
)
from twistmq.broker.request.filters import MadeFilters
from twistmq.protocol.bodies import ConsumerData, MessageModel, SubscriptionData
from twistmq.protocol.log_rate import LimitedLog

__all__ = ["ChangeKind", "Client", "ClientChange", "ClientTable", "ConsumerGroup"]

#: The number of groups that a log line names.
_NAMES_MAX: Final = 5


class ChangeKind(Enum):
    """The kinds of changes of a group."""

    #: A producer group got a member, or a consumer group has the given members and subscriptions.
    REGISTER = auto()
    #: A group lost its last member.
    UNREGISTER = auto()
    #: The members or their subscriptions changed, so the members must rebalance.
    CHANGE = auto()
    #: A client left or its connection was lost.
    CLIENT_GONE = auto()


@dataclass(slots=True)
class Client:
    """One client of one group."""

    #: The id that the client gave itself. It is the same in all groups of the client.
    client_id: str
    #: Its connection.
    channel: Channel
    #: As in the header of its commands: "JAVA", "GO", ...
    language: str
    #: The protocol version, in Apache's numbering: 479 is V5_3_3.
    version: int
    #: The wall-clock time of the last heartbeat, Unix ms.
    last_heartbeat_ms: int
    #: The same time by the clock that measures the silence of peers, ms.
    heard_ms: int
    #: The client's account for each validator that has accounts; empty without access control.
    owner: tuple[str | None, ...] = ()


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group that has members."""

    name: str
    data: ConsumerData
    #: The clients by channel id.
    clients: dict[int, Client] = field(default_factory=dict)
    #: The subscriptions by topic.
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    #: The fingerprint of the last heartbeat; 0 for the older kind, which has no fingerprint.
    fingerprint: int = 0
    #: The filters of the subscriptions that pulls used.
    filters: MadeFilters = field(default_factory=dict)

    @property
    def message_model(self) -> str | None:
        model = self.data.message_model
        return None if model is None else model.value

    @property
    def is_broadcast(self) -> bool:
        """Whether each member gets every message, so that the members do not share queues."""
        return self.data.message_model is MessageModel.BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.clients.values()]

    def find(self, client_id: str) -> Client | None:
        for client in self.clients.values():
            if client.client_id == client_id:
                return client
        return None


@dataclass(frozen=True, slots=True)
class ClientChange:
    """The change of a group, as listeners get it."""

    #: One of REGISTER, UNREGISTER, CHANGE and CLIENT_GONE.
    kind: ChangeKind
    #: The group's name.
    group: str
    #: Whether it is a consumer group or a producer group.
    is_consumer: bool
    #: The client that joined or left; None when the group as a whole changed.
    client: Client | None = None
    #: Whether the members of the group must be notified.
    notify: bool = True


class ClientTable:
    """Producers and consumers by group.

    :param on_change: called after every change.
    """

    log = Logger()

    def __init__(self, on_change: Callable[[ClientChange], None]) -> None:
        self._on_change = on_change
        self.consumers: dict[str, ConsumerGroup] = {}
        #: The clients by group and channel id.
        self.producers: dict[str, dict[int, Client]] = {}
        #: The clients by client id and (group, channel id). A client id has several entries if it
        #: has several groups, or if it reconnected before the loss of its old connection is known.
        self._producers_by_id: dict[str, dict[tuple[str, int], Client]] = {}
        self._next_producer = 0
        #: The memory that all clients use.
        self.space = ClientSpace()
        self._lines = LimitedLog(self.log)
        #: The time of the latest heartbeat or check, by the clock of ``heard_ms``.
        self._now_ms = 0

    # --- look-up

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self.consumers.get(group)

    def find_consumer(self, group: str, client_id: str) -> Client | None:
        members = self.consumers.get(group)
        return members.find(client_id) if members else None

    def find_producer(self, client_id: str) -> Client | None:
        """Find the latest producer with a client id whose connection is still open.

        Differs from Apache: a client id belongs to the account that used it first, as long as a
        connection of that account lives. Other accounts may register the same id, but they do not
        receive the messages that are sent to it.
        """
        live = [client for client in self._producers_by_id.get(client_id, {}).values()
                if client.channel.active]
        return next((client for client in reversed(live) if client.owner == live[0].owner), None)

    def available_producer(
        self, group: str, may_be_asked: Callable[[Client], bool] | None = None
    ) -> Client | None:
        """Return a live producer of a group, a different one each time.

        :param may_be_asked: selects the producers to consider; None selects all of them.
        """
        clients = [client for client in self.producers.get(group, {}).values()
                   if client.channel.active]
        for _ in clients:
            self._next_producer += 1
            client = clients[self._next_producer % len(clients)]
            if may_be_asked is None or may_be_asked(client):
                return client
        return None

    def groups_consuming(self, topic: str) -> list[str]:
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    def group_count(self, channel: Channel) -> int:
        """Count the groups of a connection."""
        return len(self.space.groups(channel.channel_id))

    # --- heartbeats

    def log_new(self, client: Client, known_count: int) -> None:
        """Log in one line which groups a client's heartbeat added.

        :param known_count: the number of the connection's groups before the heartbeat.
        """
        self._now_ms = client.heard_ms
        groups = self.space.groups(client.channel.channel_id)
        if len(groups) > known_count:
            self._lines.info(
                self._now_ms, "client {client} of {groups} connected from {peer}",
                client=client.client_id, groups=_some_names(list(groups)[known_count:]),
                peer=client.channel.remote_address)

    def register_producer(self, group: str, client: Client) -> None:
        clients = self.producers.setdefault(group, {})
        previous = clients.get(client.channel.channel_id)
        clients[client.channel.channel_id] = client
        if previous is not None and previous.client_id != client.client_id:
            self._forget_id(group, previous)
        same_id = self._producers_by_id.setdefault(client.client_id, {})
        if previous is None and any(other.owner != client.owner for other in same_id.values()):
            self._lines.warn(
                client.heard_ms, "a producer of {group} at {peer} uses the client id {client} of "
                "another account, so it does not receive reply messages", group=group,
                peer=client.channel.remote_address, client=client.client_id)
        same_id[group, client.channel.channel_id] = client
        if previous is None:
            self.space.set(client.channel.channel_id, producer_key(group), producer_size(group))
            self._on_change(ClientChange(ChangeKind.REGISTER, group, False, client))

    def register_consumer(
        self, data: ConsumerData, client: Client, *, notify: bool, keep_subscriptions: bool = False
    ) -> bool:
        """Register a consumer from its heartbeat.

        :param notify: whether a change is announced to the members of the group.
        :param keep_subscriptions: whether the heartbeat leaves out its subscriptions.
        :returns: whether members or subscriptions changed.
        """
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(data.group_name, data)
        # The subscriptions are kept in a separate table, by topic.
        group.data = replace(data, subscription_data_set=())
        # It is not a change if a connection uses another client id than before: the number of
        # members stays the same, and each member asks for the ids before it shares the queues.
        new_client = client.channel.channel_id not in group.clients
        group.clients[client.channel.channel_id] = client
        self._note_size(data, client.channel, keep_subscriptions)
        changed = new_client
        if not keep_subscriptions and self._subscribe(group, data.subscription_data_set):
            changed = True
        if changed:
            self._on_change(ClientChange(ChangeKind.CHANGE, group.name, True,
                                         notify=notify and not group.is_broadcast))
        self._on_change(ClientChange(ChangeKind.REGISTER, group.name, True, client))
        return changed

    def _note_size(self, data: ConsumerData, channel: Channel, keep_subscriptions: bool) -> None:
        key = consumer_key(data.group_name)
        size = consumer_size(data)
        if keep_subscriptions:
            size = max(size, self.space.size(channel.channel_id, key))
        self.space.set(channel.channel_id, key, size)

    @staticmethod
    def _subscribe(group: ConsumerGroup, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over subscriptions, the newer of two for one topic, and drop all other topics."""
        table = group.subscriptions
        topics = set()
        changed = False
        for subscription in subscriptions:
            topics.add(subscription.topic)
            old = table.get(subscription.topic)
            if old is None:
                changed = True
            if old is None or subscription.sub_version > old.sub_version:
                table[subscription.topic] = subscription
        for topic in [topic for topic in table if topic not in topics]:
            del table[topic]
            group.filters.pop(topic, None)
            changed = True
        return changed

    # --- leaving

    def unregister_producer(self, group: str, channel: Channel) -> None:
        clients = self.producers.get(group, {})
        client = clients.pop(channel.channel_id, None)
        if client is None:
            return
        self._forget_id(group, client)
        self.space.free(channel.channel_id, producer_key(group))
        self._on_change(ClientChange(ChangeKind.CLIENT_GONE, group, False, client))
        if not clients:
            del self.producers[group]
            self._on_change(ClientChange(ChangeKind.UNREGISTER, group, False))

    def _forget_id(self, group: str, client: Client) -> None:
        """Forget the client id of a producer of a group."""
        producers = self._producers_by_id[client.client_id]
        del producers[group, client.channel.channel_id]
        if not producers:
            del self._producers_by_id[client.client_id]

    def unregister_consumer(self, group: str, channel: Channel, *, notify: bool = True) -> None:
        members = self.consumers.get(group)
        client = members.clients.pop(channel.channel_id, None) if members else None
        if members is None or client is None:
            return
        self.space.free(channel.channel_id, consumer_key(group))
        self._on_change(ClientChange(ChangeKind.CLIENT_GONE, group, True, client))
        if members.clients:
            self._on_change(ClientChange(ChangeKind.CHANGE, group, True,
                                         notify=notify and not members.is_broadcast))
        else:
            del self.consumers[group]
            self._on_change(ClientChange(ChangeKind.UNREGISTER, group, True))

    def connection_lost(self, channel: Channel) -> None:
        """Forget every client that used a connection."""
        # Producers come first.
        groups = sorted(self.space.groups(channel.channel_id), key=lambda key: key[0])
        if groups:
            self._lines.info(
                self._now_ms, "the client of {groups} at {peer} is gone",
                groups=_some_names(groups), peer=channel.remote_address)
        for is_consumer, group in groups:
            if is_consumer:
                self.unregister_consumer(group, channel)
            else:
                self.unregister_producer(group, channel)

    def expire(self, now_ms: int, silence_max_ms: int) -> None:
        """Forget clients that were silent for too long and close their connections; periodic.

        :param now_ms: the time of the same clock as ``heard_ms``.
        """
        self._now_ms = now_ms
        for group, client, leave in list(self._all()):
            if now_ms - client.heard_ms > silence_max_ms:
                self._lines.warn(
                    now_ms, "no heartbeat from client {client} of {group} for {silence} ms",
                    client=client.client_id, group=group, silence=now_ms - client.heard_ms)
                leave(group, client.channel)
                client.channel.close()

    def _all(self) -> Iterator[tuple[str, Client, Callable[[str, Channel], None]]]:
        for group, clients in self.producers.items():
            for client in clients.values():
                yield group, client, self.unregister_producer
        for group, members in self.consumers.items():
            for client in members.clients.values():
                yield group, client, self.unregister_consumer


def _some_names(groups: list[GroupKey]) -> str:
    """Format groups for the log: the first ones by name, and the number of further ones."""
    names = ", ".join([f"{'consumer' if is_consumer else 'producer'} group {name}"
                       for is_consumer, name in groups[:_NAMES_MAX]])
    more = len(groups) - _NAMES_MAX
    return f"{names} and {more} more" if more > 0 else names
