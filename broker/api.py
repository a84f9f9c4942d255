"""The names that a plugin may use of the broker, in one place.

    from twistmq.broker.api import Broker, RequestRefused, ResponseCode, hookimpl

What is in ``__all__``, and the members of :class:`Broker` and :class:`NameServer`, keep their names
and their meaning through a minor version: 0.2 may add to what 0.1 has, and changes or removes
a name only after a release in which that name worked and CHANGELOG.md said what replaces it.
Every other name of ``twistmq.broker`` may change in any release, except those of
``twistmq.broker.testing``.

``Broker`` and ``NameServer`` are protocols: what the constructor of a plugin is given has these
members, and a test may give it an object of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred

from twistmq.broker import hookimpl
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.config.settings import Setting, SettingCheck, Settings
from twistmq.broker.errors import BrokerError, RequestRefused, SettingsError, StoreError
from twistmq.broker.interfaces import (
    IAccessValidator,
    IBroadcastOffsets,
    IConsumerFilters,
    IFilterLanguage,
    IFlowControl,
    IQueueLocks,
    IResourceValidator,
    ITimedDelivery,
    ITransactionService,
)
from twistmq.broker.observe.metrics import Histogram, MetricFamily
from twistmq.broker.remoting.messages import AnyHandler, Handled, Reply, Request, RequestHandler
from twistmq.broker.request.client_table import ChangeKind, ClientChange
from twistmq.broker.request.consume_context import ConsumeContext
from twistmq.broker.request.send_context import SendBatch
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.wire.header import CommandHeader, EmptyHeader
from twistmq.broker.wire.properties import format_properties, parse_properties
from twistmq.broker.wire.record import MessageRecord, StoredMessage, decode_record

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel
    from twistmq.broker.namesrv import requests
    from twistmq.broker.plugin.hooks import Hooks
    from twistmq.broker.remoting.channels import ChannelTable
    from twistmq.broker.request.acknowledgement import Acknowledgement
    from twistmq.broker.request.client_table import ClientTable
    from twistmq.broker.request.consumer_offset import ConsumerOffsetTable
    from twistmq.broker.request.filters import FilterLanguages
    from twistmq.broker.request.subscription_group import SubscriptionGroupTable
    from twistmq.broker.request.topic_config import TopicConfigTable
    from twistmq.broker.scheduling.steady_clock import SteadyClock
    from twistmq.broker.store.message_store import MessageStore

__all__ = [
    "AnyHandler",
    "Broker",
    "BrokerError",
    "ChangeKind",
    "ClientChange",
    "CommandHeader",
    "ConsumeContext",
    "EmptyHeader",
    "Handled",
    "Histogram",
    "IAccessValidator",
    "IBroadcastOffsets",
    "IConsumerFilters",
    "IFilterLanguage",
    "IFlowControl",
    "IQueueLocks",
    "IResourceValidator",
    "ITimedDelivery",
    "ITransactionService",
    "MessageRecord",
    "MetricFamily",
    "NameServer",
    "PeriodicTask",
    "Reply",
    "Request",
    "RequestCode",
    "RequestHandler",
    "RequestRefused",
    "ResponseCode",
    "SendBatch",
    "Setting",
    "SettingCheck",
    "Settings",
    "SettingsError",
    "StoreError",
    "StoredMessage",
    "decode_record",
    "format_properties",
    "hookimpl",
    "parse_properties",
]


class _Server(Protocol):
    """What a broker and a name server have in common."""

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


class Broker(_Server, Protocol):
    """What a plugin may use of its broker."""

    @property
    def broker_name(self) -> str:
        """As routes have it."""

    @property
    def cluster_name(self) -> str:
        """The cluster's name."""

    @property
    def broker_address(self) -> str:
        """``host:port`` that clients are told."""

    @property
    def is_slave(self) -> bool:
        """Whether it refuses writes."""

    @property
    def store(self) -> MessageStore:
        """Reads: ``get_message``, ``look_message``, ``max_offset_in_queue``; ``config_file``."""

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
    def consumer_offset(self) -> ConsumerOffsetTable:
        """How far each group has read each queue."""

    @property
    def acknowledgement(self) -> Acknowledgement:
        """``wait(record.next_offset)`` until a record is as safe as the settings demand."""

    @property
    def filters(self) -> FilterLanguages:
        """``make_filter`` of an expression."""

    @property
    def transaction_service(self) -> ITransactionService | None:
        """The service in use, once it is chosen; None if no plugin provides it."""

    @property
    def on_topic_deletion(self) -> list[Callable[[str], Sequence[str]]]:
        """Called with a topic that is being deleted; each names the topics that go with it."""

    @property
    def on_group_deletion(self) -> list[Callable[[str, bool], None]]:
        """Called with a group that was deleted, and whether its offsets were."""

    def append(
        self, records: Sequence[MessageRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        """Append records to the store; returns the refusals by index."""

    def require_access(
        self, request: Request[Any], publishes: Collection[str] = (),
        consumes: Collection[str] = (), groups: Collection[str] = (),
    ) -> None:
        """Ask the validators whether a request may touch topics and groups."""

    def require_readable(
        self, request: Request[Any], message: StoredMessage, groups: Collection[str] = ()
    ) -> None:
        """Ask the validators whether a request may read a message."""

    def topics_changed(self) -> Deferred[None] | None:
        """Save the topics soon and register them with the name servers."""


class NameServer(_Server, Protocol):
    """What a plugin may use of its name server."""

    @property
    def address(self) -> str:
        """``host:port`` where it listens, once it does."""


if TYPE_CHECKING:
    # mypy says here when one of the two no longer has what plugins may use.
    def _broker(kernel: Kernel) -> Broker:
        return kernel

    def _name_server(name_server: requests.NameServer) -> NameServer:
        return name_server
