"""The members of a broker and of a name server that plugins may use.

The constructor of a plugin is given an object with these members; a test may give it one of its
own. ``twistmq.broker.api`` exports both protocols and says how long their members stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from random import Random

    from twisted.internet.defer import Deferred

    from twistmq.broker.client.name_servers import Registered
    from twistmq.broker.config.identity import Identity
    from twistmq.broker.config.settings import Settings
    from twistmq.broker.namesrv.kv_config import KVConfig
    from twistmq.broker.namesrv.route_info import RouteInfoManager
    from twistmq.broker.observe.statistics import BrokerStats
    from twistmq.broker.plugin.hooks import Hooks
    from twistmq.broker.plugin.interfaces import ITransactionService
    from twistmq.broker.remoting.channels import ChannelTable
    from twistmq.broker.remoting.interfaces import ServeHttp
    from twistmq.broker.remoting.long_answers import LongAnswers
    from twistmq.broker.remoting.messages import Request
    from twistmq.broker.request.acknowledgement import Acknowledgement
    from twistmq.broker.request.appender import Escape
    from twistmq.broker.request.client_table import ClientTable
    from twistmq.broker.request.consumer_offset import ConsumerOffsetTable
    from twistmq.broker.request.filters import FilterLanguages
    from twistmq.broker.request.host import Host
    from twistmq.broker.request.persisted_table import Persistable
    from twistmq.broker.request.persistence import TableSaves
    from twistmq.broker.request.subscription_group import SubscriptionGroupTable
    from twistmq.broker.request.topic_config import TopicConfigTable
    from twistmq.broker.scheduling.scheduler import Lane, Scheduler
    from twistmq.broker.scheduling.steady_clock import SteadyClock
    from twistmq.broker.store.message_store import MessageStore
    from twistmq.protocol.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
    from twistmq.protocol.errors import BrokerError
    from twistmq.protocol.message_id import UniqueIdMaker
    from twistmq.protocol.record import MessageRecord, StoredMessage

__all__ = ["Broker", "NameServer", "Server"]


class Server(Protocol):
    """The members that a broker and a name server share."""

    #: The clock, Unix ms: call it. It may jump.
    now_ms: Callable[[], int]

    @property
    def settings(self) -> Settings:
        """``settings.int("mine.rate")``, ``.text``, ``.flag``, ``.names``, ``.number``."""

    @property
    def hooks(self) -> Hooks:
        """``provider(interface)`` of other plugins; ``add`` and ``remove`` objects with hooks."""

    @property
    def steady(self) -> SteadyClock:
        """For durations: ``now_ms()``, and ``awake_ms()`` for the silence of peers."""

    @property
    def started_ms(self) -> int:
        """When it was made, Unix ms."""

    @property
    def figures(self) -> dict[str, Callable[[], float]]:
        """Figures of the process by name, for metrics; each is called when it is read."""

    @property
    def health_checks(self) -> dict[str, Callable[[], str]]:
        """Checks by name; each returns the fault, or an empty text."""


class Broker(Server, Protocol):
    """The members of its broker that a plugin may use."""

    @property
    def broker_name(self) -> str:
        """The broker's name in routes."""

    @property
    def cluster_name(self) -> str:
        """The cluster's name."""

    @property
    def broker_address(self) -> str:
        """``host:port`` that clients connect to."""

    @property
    def broker_id(self) -> int:
        """0 for a master."""

    @property
    def identity(self) -> Identity:
        """Names, role and address, and what registrations tell beyond: ``ha_port``."""

    @property
    def role(self) -> str:
        """ASYNC_MASTER, SYNC_MASTER or SLAVE."""

    @property
    def is_slave(self) -> bool:
        """Whether it refuses writes."""

    async def change_role(self, role: str, broker_id: int) -> None:
        """Become master or slave while the broker runs; see ``on_role_change``."""

    @property
    def host(self) -> Host:
        """Other servers, ports for HTTP, ``run_soon``."""

    @property
    def store_host(self) -> bytes:
        """The address in the binary form that message ids have."""

    @property
    def unique_ids(self) -> UniqueIdMaker:
        """Makes the unique keys of messages that the broker itself sends."""

    @property
    def random(self) -> Random:
        """Chooses queues."""

    @property
    def store(self) -> MessageStore:
        """Reads: ``get_message``, ``look_message``; ``config_file``; the store's parts.

        ``queues`` has the offsets and entries of queues, ``commit_log`` where the log begins, ends
        and is durable, ``reader`` times and keys, ``dispatch`` what is readable, and ``flush``
        waits until a place is durable.
        """

    @property
    def channels(self) -> ChannelTable:
        """The live connections."""

    @property
    def clients(self) -> ClientTable:
        """Producers and consumers by group."""

    @property
    def topic_config(self) -> TopicConfigTable:
        """Topics: ``table`` by name, ``get``, ``update``."""

    @property
    def subscription_group(self) -> SubscriptionGroupTable:
        """Consumer groups and their settings: ``find``."""

    @property
    def stats(self) -> BrokerStats:
        """Counts by topic and group."""

    @property
    def saves(self) -> TableSaves:
        """``save`` and ``save_if_changed`` of a table, without blocking the reactor."""

    @property
    def slices(self) -> Lane:
        """``run`` of long work that must be finished, in slices."""

    @property
    def background(self) -> Scheduler:
        """``lane`` for long work without haste: it has half of the reactor's time at most."""

    @property
    def foreground(self) -> Scheduler:
        """``lane`` for work that clients wait for: it continues once other connections had their
        turn.
        """

    @property
    def long_answers(self) -> LongAnswers:
        """``answer`` of a slow reply, in slices; dropped when its client disconnects."""

    @property
    def consumer_offset(self) -> ConsumerOffsetTable:
        """The offset up to which each group has consumed each queue; ``merging`` of others'."""

    @property
    def acknowledgement(self) -> Acknowledgement:
        """``wait(record.next_offset)`` until a record is as safe as the settings demand; a plugin
        that demands more appends a ``Stage`` to ``stages``."""

    @property
    def filters(self) -> FilterLanguages:
        """``make_filter`` of an expression."""

    @property
    def transaction_service(self) -> ITransactionService | None:
        """The service in use, once it is chosen; None if no plugin provides it."""

    @property
    def claimed_properties(self) -> frozenset[str]:
        """Message properties whose features plugins provide, once they are resolved."""

    @property
    def send_forbidden_topics(self) -> set[str]:
        """Topics that no client may send to; a plugin that uses a topic for itself adds it."""

    @property
    def escape(self) -> Escape | None:
        """Stores records on other masters, for a slave that stands in for its own; None: it cannot.
        """

    @property
    def delivers(self) -> bool:
        """Whether it delivers what falls due now; a slave does so only by ``escape``."""

    def use_escape(self, escape: Escape | None) -> None:
        """Store what a slave that stands in for its master delivers by this; None: it waits."""

    @property
    def on_registered(self) -> list[Callable[[Sequence[Registered]], None]]:
        """Called with the answers of name servers to each registration: where the master is."""

    @property
    def on_topic_deletion(self) -> list[Callable[[str], Sequence[str]]]:
        """Called with a topic before it is deleted; each returns topics to delete with it."""

    @property
    def on_group_deletion(self) -> list[Callable[[str, bool], None]]:
        """Called with a deleted group, and whether its offsets were deleted."""

    def replacing_topics(
        self, topics: Mapping[str, TopicConfig], version: DataVersion
    ) -> Generator[None, None, None]:
        """Make the topics equal to another broker's; for ``slices``."""

    def replacing_groups(
        self, groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]] | None, version: DataVersion,
    ) -> Generator[None, None, None]:
        """Make the groups equal to another broker's; for ``slices``."""

    def append(
        self, records: Sequence[MessageRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        """Append records to the store; returns the refusals by index."""

    def require_access(
        self, request: Request[Any], publishes: Collection[str] = (),
        consumes: Collection[str] = (), groups: Collection[str] = (),
    ) -> None:
        """Ask the validators whether a request may touch topics and groups."""

    def may_publish(self, owner: tuple[str | None, ...], address: str, topic: str) -> bool:
        """Ask the validators whether a client may send to a topic now.

        :param owner: ``Client.owner``.
        :param address: ``Client.channel.remote_address``.
        """

    def require_readable(
        self, request: Request[Any], message: StoredMessage, groups: Collection[str] = ()
    ) -> None:
        """Ask the validators whether a request may read a message."""

    def persist(self, tables: Sequence[Persistable] | None = None) -> None:
        """Save tables at once, on this thread; None for the broker's own."""

    def topics_changed(self) -> Deferred[None] | None:
        """Save the topics soon and register them with the name servers."""

    def topics_saved_and_registered(self) -> Deferred[None] | None:
        """Like ``topics_changed``, but also waits until topics.json is written."""


class NameServer(Server, Protocol):
    """The members of its name server that a plugin may use."""

    @property
    def address(self) -> str:
        """``host:port`` where it listens, once it does."""

    @property
    def routes(self) -> RouteInfoManager:
        """The registered brokers: ``tables`` by name, with their topics."""

    @property
    def kv_config(self) -> KVConfig:
        """The key-value configuration."""

    @property
    def serve_http(self) -> ServeHttp | None:
        """Serves a resource of twisted.web on a port; None beside a broker, which serves both."""
