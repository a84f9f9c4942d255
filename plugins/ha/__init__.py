"""Replication between master and slave, as Apache's brokers do it, with them or among ours.

A master listens on ``haListenPort`` and sends each slave its commit log as it grows. A slave
appends these bytes to its own log, so that both are the same, and reports how far it has come. The
plugin provides the roles SYNC_MASTER and SLAVE; a broker without it is a lone ASYNC_MASTER.

Source: DefaultHAService, DefaultHAConnection, DefaultHAClient @4.9.4 and @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twistmq.broker.api import Setting, SettingCheck, hookimpl
from twistmq.plugins.ha.master import MasterAddress
from twistmq.plugins.ha.settings import CHECKS, SETTINGS, replica_notices

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]


class Plugin:
    """The replication of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Where this slave's master is.
        self.master = MasterAddress(broker.settings)
        broker.on_registered.append(self.master.registered)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return CHECKS

    @hookimpl
    def on_start(self) -> None:
        self._broker.hooks.notices.extend(replica_notices(self._broker.settings))
