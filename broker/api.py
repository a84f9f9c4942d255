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
from twistmq.broker.plugin.protocols import Broker, NameServer
from twistmq.broker.remoting.messages import AnyHandler, Handled, Reply, Request, RequestHandler
from twistmq.broker.request.client_table import ChangeKind, ClientChange
from twistmq.broker.request.consume_context import ConsumeContext
from twistmq.broker.request.send_context import SendBatch
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.wire.header import CommandHeader, EmptyHeader
from twistmq.broker.wire.properties import format_properties, parse_properties
from twistmq.broker.wire.record import MessageRecord, StoredMessage, decode_record

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
