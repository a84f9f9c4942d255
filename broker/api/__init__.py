"""The broker's public names for plugins; ``plugins/HOOKS.md`` explains how to write a plugin.

    from twistmq.broker.api import Broker, RequestRefused, ResponseCode, hookimpl

The names in ``__all__``, and the members of :class:`Broker` and :class:`NameServer`, keep their
spelling and their meaning through a minor version. Release 0.2 may add to the names of 0.1. It
changes or removes a name only after a release in which that name still worked and CHANGELOG.md
announced its replacement. Every other name of ``twistmq.broker`` may change in any release, except
the names of ``twistmq.broker.testing``.

``Broker`` and ``NameServer`` are protocols: the object that is passed to the constructor of a
plugin has these members, and a test may pass its own object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from twistmq.broker import hookimpl
    from twistmq.broker.config.settings import Setting, SettingCheck, Settings
    from twistmq.broker.errors import SettingsError
    from twistmq.broker.observe.metrics import Histogram, MetricFamily
    from twistmq.broker.plugin.interfaces import (
        IBroadcastOffsets,
        IConsumerFilters,
        IFilterLanguage,
        IQueueLocks,
        ITimedDelivery,
        ITransactionService,
    )
    from twistmq.broker.plugin.protocols import Broker, NameServer
    from twistmq.broker.remoting.interfaces import (
        IAccessValidator,
        IClientValidator,
        IFlowControl,
        IResourceValidator,
        IRunValidator,
    )
    from twistmq.broker.remoting.messages import AnyHandler, Handled, Reply, Request, RequestHandler
    from twistmq.broker.request.client_table import ChangeKind, ClientChange
    from twistmq.broker.request.consume_context import ConsumeContext
    from twistmq.broker.request.send_context import SendBatch
    from twistmq.broker.scheduling.periodic import PeriodicTask
    from twistmq.protocol.codes import RequestCode, ResponseCode
    from twistmq.protocol.errors import BrokerError, RequestRefused, StoreError
    from twistmq.protocol.header import CommandHeader, EmptyHeader
    from twistmq.protocol.properties import format_properties, parse_properties
    from twistmq.protocol.record import MessageRecord, StoredMessage, decode_record

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
    "IClientValidator",
    "IConsumerFilters",
    "IFilterLanguage",
    "IFlowControl",
    "IQueueLocks",
    "IResourceValidator",
    "IRunValidator",
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

#: The module that defines each name. A name is imported when it is first used, because a command of
#: ``twistmq admin`` needs no reactor and starts in a fraction of a second without one.
_HOMES = {
    "AnyHandler": "twistmq.broker.remoting.messages",
    "Broker": "twistmq.broker.plugin.protocols",
    "BrokerError": "twistmq.protocol.errors",
    "ChangeKind": "twistmq.broker.request.client_table",
    "ClientChange": "twistmq.broker.request.client_table",
    "CommandHeader": "twistmq.protocol.header",
    "ConsumeContext": "twistmq.broker.request.consume_context",
    "EmptyHeader": "twistmq.protocol.header",
    "Handled": "twistmq.broker.remoting.messages",
    "Histogram": "twistmq.broker.observe.metrics",
    "IAccessValidator": "twistmq.broker.remoting.interfaces",
    "IBroadcastOffsets": "twistmq.broker.plugin.interfaces",
    "IClientValidator": "twistmq.broker.remoting.interfaces",
    "IConsumerFilters": "twistmq.broker.plugin.interfaces",
    "IFilterLanguage": "twistmq.broker.plugin.interfaces",
    "IFlowControl": "twistmq.broker.remoting.interfaces",
    "IQueueLocks": "twistmq.broker.plugin.interfaces",
    "IResourceValidator": "twistmq.broker.remoting.interfaces",
    "IRunValidator": "twistmq.broker.remoting.interfaces",
    "ITimedDelivery": "twistmq.broker.plugin.interfaces",
    "ITransactionService": "twistmq.broker.plugin.interfaces",
    "MessageRecord": "twistmq.protocol.record",
    "MetricFamily": "twistmq.broker.observe.metrics",
    "NameServer": "twistmq.broker.plugin.protocols",
    "PeriodicTask": "twistmq.broker.scheduling.periodic",
    "Reply": "twistmq.broker.remoting.messages",
    "Request": "twistmq.broker.remoting.messages",
    "RequestCode": "twistmq.protocol.codes",
    "RequestHandler": "twistmq.broker.remoting.messages",
    "RequestRefused": "twistmq.protocol.errors",
    "ResponseCode": "twistmq.protocol.codes",
    "SendBatch": "twistmq.broker.request.send_context",
    "Setting": "twistmq.broker.config.settings",
    "SettingCheck": "twistmq.broker.config.settings",
    "Settings": "twistmq.broker.config.settings",
    "SettingsError": "twistmq.broker.errors",
    "StoreError": "twistmq.protocol.errors",
    "StoredMessage": "twistmq.protocol.record",
    "decode_record": "twistmq.protocol.record",
    "format_properties": "twistmq.protocol.properties",
    "hookimpl": "twistmq.broker",
    "parse_properties": "twistmq.protocol.properties",
}


__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
