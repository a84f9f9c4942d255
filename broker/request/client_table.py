"""The clients of a broker: producers and consumers by group, as their heartbeats say.

Source: ProducerManager, ConsumerManager, ConsumerGroupInfo, ClientChannelInfo @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from msgspec.structs import replace
from twisted.logger import Logger

from twistmq.broker.observe.log_rate import LimitedLog
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
from twistmq.broker.wire.bodies import ConsumerData, MessageModel, SubscriptionData

__all__ = ["ChangeKind", "Client", "ClientChange", "ClientTable", "ConsumerGroup"]

#: Groups that a line of the log names.
_NAMES_MAX: Final = 5


class ChangeKind(Enum):
    """The kind of change of a group."""

    #: A producer group got a member; a consumer group's members or subscriptions are as given.
    REGISTER = auto()
    #: A group lost its last member.
    UNREGISTER = auto()
    #: The members or what they subscribe to changed: they must rebalance.
    CHANGE = auto()
    #: One client left or was lost.
    CLIENT_GONE = auto()


@dataclass(slots=True)
class Client:
    """One client of one group."""

    #: As it calls itself; the same in all its groups.
    client_id: str
    #: Its connection.
    channel: Channel
    #: As in the header of its commands: "JAVA", "GO", ...
    language: str
    #: Of its protocol, as Apache counts them: 479 is V5_3_3.
    version: int
    #: Unix ms.
    last_heartbeat_ms: int
    #: The same by the clock for the silence of peers, ms.
    heard_ms: int
    #: Its account by each validator that knows accounts; empty without access control.
    owner: tuple[str | None, ...] = ()


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group that has members."""

    name: str
    data: ConsumerData
    #: By channel id.
    clients: dict[int, Client] = field(default_factory=dict)
    #: By topic.
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    #: Of the last heartbeat; 0 when that was of the first kind, which has no fingerprint.
    fingerprint: int = 0
    #: Filters of subscriptions that pulls asked for.
    filters: MadeFilters = field(default_factory=dict)

    @property
    def message_model(self) -> str | None:
        model = self.data.message_model
        return None if model is None else model.value

    @property
    def is_broadcast(self) -> bool:
        """Whether each member gets every message: they have no queues to share."""
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
    """The change of a group, for listeners."""

    #: REGISTER, UNREGISTER, CHANGE or CLIENT_GONE.
    kind: ChangeKind
    #: The group's name.
    group: str
    #: Whether it is a consumer group, or one of producers.
    is_consumer: bool
    #: The client that came or went; None when the group as a whole changed.
    client: Client | None = None
    #: Whether the members of the group are to be told.
    notify: bool = True


class ClientTable:
    """Producers and consumers by group.

    :param on_change: told of every change, after it.
    """

    log = Logger()

    def __init__(self, on_change: Callable[[ClientChange], None]) -> None:
        self._on_change = on_change
        self.consumers: dict[str, ConsumerGroup] = {}
        #: Group, channel id, client.
        self.producers: dict[str, dict[int, Client]] = {}
        #: Client id, (group, channel id), client: a client has several groups, or a new connection
        #: before the old one is known to be lost.
        self._producers_by_id: dict[str, dict[tuple[str, int], Client]] = {}
        self._next_producer = 0
        #: The size of all of it.
        self.space = ClientSpace()
        self._lines = LimitedLog(self.log)
        #: The last time that is known here, by the clock of ``heard_ms``.
        self._now_ms = 0

    # --- look-up

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self.consumers.get(group)

    def find_consumer(self, group: str, client_id: str) -> Client | None:
        members = self.consumers.get(group)
        return members.find(client_id) if members else None

    def find_producer(self, client_id: str) -> Client | None:
        """The producer of a client id that came last and whose connection is there.

        Differs from Apache: a client id belongs to the account that came with it first, as long as
        a connection of that account lives. Others may say that the id is theirs, but they get
        nothing that is sent to it.
        """
        live = [client for client in self._producers_by_id.get(client_id, {}).values()
                if client.channel.active]
        return next((client for client in reversed(live) if client.owner == live[0].owner), None)

    def available_producer(
        self, group: str, may_be_asked: Callable[[Client], bool] | None = None
    ) -> Client | None:
        """Any live producer of a group, another one each time.

        :param may_be_asked: the producers that count; None: all of them.
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
        """How many groups a connection is in."""
        return len(self.space.groups(channel.channel_id))

    # --- heartbeats

    def log_new(self, client: Client, known_count: int) -> None:
        """Log in one line which groups a client's heartbeat brought.

        :param known_count: of the connection's groups before it.
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
        known = clients.get(client.channel.channel_id)
        clients[client.channel.channel_id] = client
        if known is not None and known.client_id != client.client_id:
            self._forget_id(group, known)
        same_id = self._producers_by_id.setdefault(client.client_id, {})
        if known is None and any(other.owner != client.owner for other in same_id.values()):
            self._lines.warn(
                client.heard_ms, "a producer of {group} at {peer} says that it is {client}, which "
                "is a client of another account: it gets no reply messages", group=group,
                peer=client.channel.remote_address, client=client.client_id)
        same_id[group, client.channel.channel_id] = client
        if known is None:
            self.space.set(client.channel.channel_id, producer_key(group), producer_size(group))
            self._on_change(ClientChange(ChangeKind.REGISTER, group, False, client))

    def register_consumer(
        self, data: ConsumerData, client: Client, *, notify: bool, keep_subscriptions: bool = False
    ) -> bool:
        """Take a consumer's heartbeat.

        :param notify: whether a change is to be told to the group's members.
        :param keep_subscriptions: the heartbeat leaves its subscriptions out.
        :returns: whether members or subscriptions changed.
        """
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(data.group_name, data)
        # The subscriptions are in a table of their own, by topic.
        group.data = replace(data, subscription_data_set=())
        # A client that is there under another id than before is not news: the members still are
        # as many, and each of them asks for their ids before it shares the queues.
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
    def _subscribe(group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        """Take over subscriptions: of two for one topic the newer, none for topics not named."""
        table = group.subscriptions
        topics = set()
        changed = False
        for subscription in wanted:
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
        """Forget which client id a producer of a group has."""
        found = self._producers_by_id[client.client_id]
        del found[group, client.channel.channel_id]
        if not found:
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
        # Producers first.
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
        """Forget clients that are silent for too long and close their connections; periodic.

        :param now_ms: by the clock that ``heard_ms`` goes by.
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
    """Groups for the log: the first of them, and how many there are beside."""
    names = ", ".join([f"{'consumer' if is_consumer else 'producer'} group {name}"
                       for is_consumer, name in groups[:_NAMES_MAX]])
    more = len(groups) - _NAMES_MAX
    return f"{names} and {more} more" if more > 0 else names
