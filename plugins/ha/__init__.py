"""Replication between master and slave, as Apache's brokers do it, with them or among ours.

A master listens on ``haListenPort`` and sends each slave its commit log as it grows. A slave
appends these bytes to its own log, so that both are the same, and reports how far it has come. The
plugin provides the roles SYNC_MASTER and SLAVE; a broker without it is a lone ASYNC_MASTER.

Source: DefaultHAService, DefaultHAConnection, DefaultHAClient @4.9.4 and @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from twistmq.broker.api import PeriodicTask, Setting, SettingCheck, hookimpl
from twistmq.plugins.ha.master import MasterAddress
from twistmq.plugins.ha.offsets_return import take_offsets_back
from twistmq.plugins.ha.settings import CHECKS, SETTINGS, replica_notices
from twistmq.plugins.ha.tables import TableCopies

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]

#: How often a slave looks which tables are to be copied, ms.
_COPY_PERIOD_MS = 250


class Plugin:
    """The replication of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Where this slave's master is.
        self.master = MasterAddress(broker.settings)
        broker.on_registered.append(self.master.registered)
        self.tables = TableCopies(broker, lambda: self.master.requests)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return CHECKS

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        return [PeriodicTask("copy tables of the master", _COPY_PERIOD_MS, _COPY_PERIOD_MS,
                             self.tables.copy_due)]

    @hookimpl
    def on_start(self) -> Deferred[None]:
        self._broker.hooks.notices.extend(replica_notices(self._broker.settings))
        return Deferred.fromCoroutine(take_offsets_back(self._broker))
