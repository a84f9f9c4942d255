"""The members of a broker and of a name server that plugins may use.

The constructor of a plugin receives an object with these members; a test may pass its own object.
``twistmq.broker.api`` exports both protocols, and states how long their members are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twistmq.broker.constants import LOG_OFFSET_MAX

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

    #: Returns the wall-clock time, Unix ms. It may jump.
    now_ms: Callable[[], int]

    @property
    def settings(self) -> Settings:
        """``settings.int("mine.rate")``, ``.text``, ``.flag``, ``.names``, ``.number``."""

    @property
    def hooks(self) -> Hooks:
        """``provider(interface)`` of other plugins; ``add`` and ``remove`` objects with hooks."""

    @property
    def steady(self) -> SteadyClock:
        """The clock for durations: ``now_ms()``, and ``awake_ms()`` for the silence of peers."""

    @property
    def started_ms(self) -> int:
        """The time at which the server was created, Unix ms."""

    @property
    def figures(self) -> dict[str, Callable[[], float]]:
        """Figures of the process by name, for metrics; each is called when it is needed."""

    @property
    def health_checks(self) -> dict[str, Callable[[], str]]:
        """Health checks by name; each returns the fault, or an empty text."""


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
        """The ``host:port`` to which clients connect."""

    @property
    def broker_id(self) -> int:
        """The id of the broker; 0 for a master."""

    @property
    def identity(self) -> Identity:
        """Names, role and address, and other registered data, such as ``ha_port``."""

    @property
    def role(self) -> str:
        """ASYNC_MASTER, SYNC_MASTER or SLAVE."""

    @property
    def is_slave(self) -> bool:
        """Whether the broker refuses writes because it is a slave."""

    async def change_role(self, role: str, broker_id: int) -> None:
        """Become master or slave while the broker runs; see ``on_role_change``."""

    def step_down(self, broker_id: int) -> None:
        """Become a slave at once without a flush; the caller calls ``topics_changed``."""

    @property
    def host(self) -> Host:
        """Other servers, ports for HTTP, ``run_soon``."""

    @property
    def store_host(self) -> bytes:
        """The address in the binary form that message ids have."""

    @property
    def unique_ids(self) -> UniqueIdMaker:
        """Creates the unique keys of the messages that the broker itself sends."""

    @property
    def random(self) -> Random:
        """The random generator that chooses queues."""

    @property
    def store(self) -> MessageStore:
        """The store: ``get_message``, ``look_message``, ``config_file``, and its parts.

        ``queues`` has the offsets and entries of queues. ``commit_log`` has the offsets at which
        the log begins, ends and is durable. ``reader`` searches by time and by key. ``dispatch``
        knows which messages are readable, and ``flush`` waits until an offset is durable. Up to
        ``settled_offset``, nothing removes records any more.
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
        """``run`` runs long work that must be completed, in slices."""

    @property
    def background(self) -> Scheduler:
        """``lane`` for long work without urgency, at most half of the time of the reactor."""

    @property
    def foreground(self) -> Scheduler:
        """``lane`` for work for which clients wait.

        The work continues after other connections have had their turn.
        """

    @property
    def long_answers(self) -> LongAnswers:
        """``answer`` computes a slow reply in slices, which stop when the client disconnects."""

    @property
    def consumer_offset(self) -> ConsumerOffsetTable:
        """The consumer offset of each group in each queue; ``merging`` adds offsets of others."""

    @property
    def acknowledgement(self) -> Acknowledgement:
        """``wait(record.next_offset)`` waits until a record is as safe as the settings require.

        A plugin with further requirements appends a ``Stage`` to ``stages``. If the stage is
        mandatory, messages with WAIT=false wait for it as well.
        """

    @property
    def filters(self) -> FilterLanguages:
        """``make_filter`` makes a filter from an expression."""

    @property
    def transaction_service(self) -> ITransactionService | None:
        """The transaction service in use, once it is chosen; None if no plugin provides one."""

    @property
    def claimed_properties(self) -> frozenset[str]:
        """The message properties whose features are provided by plugins, once resolved."""

    @property
    def send_forbidden_topics(self) -> set[str]:
        """The topics to which no client may send; a plugin adds topics for its internal use."""

    @property
    def escape(self) -> Escape | None:
        """The service that stores records on other masters, or None.

        A slave that stands in for its master needs it to deliver messages.
        """

    @property
    def delivers(self) -> bool:
        """Whether the broker delivers due messages now; a slave does so only by ``escape``."""

    def use_escape(self, escape: Escape | None) -> None:
        """Set the service that stores the deliveries of a slave; None: deliveries wait."""

    @property
    def on_registered(self) -> list[Callable[[Sequence[Registered]], None]]:
        """Functions that receive the answers to each registration, which name the master."""

    @property
    def on_topic_deletion(self) -> list[Callable[[str], Sequence[str]]]:
        """Functions called with a topic before its deletion; they return topics to delete too."""

    @property
    def on_group_deletion(self) -> list[Callable[[str, bool], None]]:
        """Functions called with a deleted group, and whether its offsets were deleted."""

    def replacing_topics(
        self, topics: Mapping[str, TopicConfig], version: DataVersion, *,
        named_before: Collection[str] = (), log_end: int = LOG_OFFSET_MAX,
    ) -> Generator[None, None, None]:
        """Make the topics equal to the topics of another broker; for ``slices``."""

    def replacing_groups(
        self, groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]] | None, version: DataVersion,
    ) -> Generator[None, None, None]:
        """Make the groups equal to the groups of another broker; for ``slices``."""

    def append(
        self, records: Sequence[MessageRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        """Append records to the store; returns the refusals by index."""

    def require_access(
        self, request: Request[Any], publishes: Collection[str] = (),
        consumes: Collection[str] = (), groups: Collection[str] = (),
    ) -> None:
        """Ask the validators whether a request may use topics and groups."""

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
        """Save tables at once, on this thread; None for the tables of the broker itself."""

    def topics_changed(self) -> Deferred[None] | None:
        """Save the topics soon and register them with the name servers."""

    def topics_saved_and_registered(self) -> Deferred[None] | None:
        """Like ``topics_changed``, but also waits until topics.json is written."""


class NameServer(Server, Protocol):
    """The members of its name server that a plugin may use."""

    @property
    def address(self) -> str:
        """The ``host:port`` on which it listens, once it listens."""

    @property
    def routes(self) -> RouteInfoManager:
        """The registered brokers: ``tables`` by name, with their topics."""

    @property
    def kv_config(self) -> KVConfig:
        """The key-value configuration."""

    @property
    def serve_http(self) -> ServeHttp | None:
        """Serves a resource of twisted.web on a port; None if a broker in the process does so."""
