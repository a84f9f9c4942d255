"""Replication between master and slave with Apache's protocol, also in pairs with Apache's brokers.

A master listens on ``haListenPort`` and sends each slave its commit log as it grows. A slave
appends these bytes to its own log, so that both logs are the same, and reports how far it has come.
The plugin provides the roles SYNC_MASTER and SLAVE; a broker without it is a lone ASYNC_MASTER. If
a group elects the master (``enableDLegerCommitLog``), this plugin does nothing.

Source: DefaultHAService, DefaultHAConnection, DefaultHAClient @4.9.4 and @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from twistmq.broker.api import AnyHandler, PeriodicTask, Setting, SettingCheck, hookimpl
from twistmq.plugins.ha.acting_master import ActingMaster
from twistmq.plugins.ha.acting_settings import ACTING_SETTINGS
from twistmq.plugins.ha.admin import ReplicationRequests
from twistmq.plugins.ha.escape import EscapeBridge
from twistmq.plugins.ha.exchange import Exchange
from twistmq.plugins.ha.families import families
from twistmq.plugins.ha.follower import Follower
from twistmq.plugins.ha.in_sync import InSyncRule
from twistmq.plugins.ha.master import MasterAddress
from twistmq.plugins.ha.members import Members
from twistmq.plugins.ha.pre_online import PreOnline, has_pre_online
from twistmq.plugins.ha.returning_master import return_as_master
from twistmq.plugins.ha.role_change import RoleChange
from twistmq.plugins.ha.settings import CHECKS, SETTINGS, replica_notices
from twistmq.plugins.ha.slaves import Slaves
from twistmq.plugins.ha.strict_locks import StrictLocks
from twistmq.plugins.replica.ask import HA_ADDRESS, HEARS_IDS, ROLE
from twistmq.plugins.replica.commits import Commits
from twistmq.plugins.replica.refusals import refusing_rows
from twistmq.plugins.replica.tables import TableCopies

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MetricFamily

__all__ = ["Plugin"]

#: How often a slave checks which tables it has to copy, ms.
_COPY_PERIOD_MS: Final = 250
#: The time until the lag of slaves is first logged, and the time between two such logs, ms.
_LAG_LOG_MS: Final = (10_000, 60_000)
#: The time from the start to the first heartbeat and the first query of the group, ms.
#: Source: BrokerController.start.
_ACTING_FIRST_MS: Final = 1000
#: How often heartbeats and silences are checked, and lost connections retried, ms.
_TICK_MS: Final = 500
#: The setting by which a group of brokers elects its master.
_GROUP_ELECTS: Final = "enableDLegerCommitLog"


class Plugin:
    """The replication plugin of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: The addresses of this slave's master.
        self.master = MasterAddress(broker.settings)
        self.slaves = Slaves(broker)
        self.follower = Follower(broker, self.master)
        self._has_started = False
        #: Whether a group of brokers elects the master, so that nothing is replicated here.
        self._is_off = (broker.settings.has(_GROUP_ELECTS)
                        and broker.settings.flag(_GROUP_ELECTS))
        broker.on_registered.extend(
            (self.master.registered, lambda answers: self.follower.tick()))
        self._commits = Commits(broker, self.follower)
        self.tables = TableCopies(broker, lambda: self.follower.source, self._commits)
        members = self._members = Members(broker)
        exchange = self._exchange = Exchange(broker, self._master_came)
        self.acting = ActingMaster(broker, members, self.master, exchange, self._master_came)
        self._strict_locks = StrictLocks(broker, self.acting)
        self._in_sync = InSyncRule(broker, self.slaves, lambda: self.acting.alive)
        self.pre_online = PreOnline(broker, members, exchange, self.slaves, self.follower)
        self._role_change = RoleChange(broker, self.tables, self.follower.stop, self._follow)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return (*SETTINGS, *ACTING_SETTINGS)

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return CHECKS

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        if self._is_off:
            return ()
        return [PeriodicTask("check the connections of slaves", _TICK_MS, _TICK_MS,
                             self.slaves.tick, self.slaves.rest_ms),
                PeriodicTask("check the connection to the master", _TICK_MS, _TICK_MS,
                             self.follower.tick, self.follower.rest_ms),
                PeriodicTask("copy the master's tables", _COPY_PERIOD_MS, _COPY_PERIOD_MS,
                             self.tables.copy_due, self.tables.rest_ms),
                PeriodicTask("log the lag of slaves", *_LAG_LOG_MS, self.slaves.log_lag),
                *(self._acting_tasks() if self.acting.is_on else ())]

    def _acting_tasks(self) -> Sequence[PeriodicTask]:
        """The tasks of a group whose slaves may stand in for their master."""
        settings = self._broker.settings
        return (PeriodicTask("send heartbeats to name servers", _ACTING_FIRST_MS,
                             lambda: settings.int("brokerHeartbeatInterval"),
                             self._members.heartbeat),
                PeriodicTask("query the brokers of the group", _ACTING_FIRST_MS,
                             lambda: settings.int("syncBrokerMemberGroupPeriod"),
                             self.acting.sync),
                PeriodicTask("come online", 0, _TICK_MS, self.pre_online.step))

    @hookimpl
    def wrap_request_handlers(self, handlers: Mapping[int, AnyHandler]) -> Sequence[AnyHandler]:
        if self._is_off:
            return ()
        return [*refusing_rows(self._broker, handlers), *self._strict_locks.rows(handlers),
                *self._commits.rows(handlers)]

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        if self._is_off:
            return ()
        requests = ReplicationRequests(self._broker, self.slaves, self.follower)
        return [*requests.handlers(), self._role_change.handler(), self._exchange.handler(),
                self.acting.handler()]

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str]:
        if self._is_off:
            return {}
        broker = self._broker
        rows = {ROLE: broker.role}
        if not broker.is_slave:
            rows[HEARS_IDS] = "true"
            if broker.identity.ha_address:
                rows[HA_ADDRESS] = broker.identity.ha_address
        return rows

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily]:
        if self._is_off:
            return ()
        return families(self._broker, self.slaves, self.follower, self.tables)

    @hookimpl
    def on_start(self) -> Deferred[None] | None:
        if self._is_off:
            return None
        self._broker.hooks.notices.extend(replica_notices(self._broker.settings))
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        """:raises SettingsError: when this broker cannot have its role, or its port."""
        broker = self._broker
        self._exchange.first_end = broker.store.commit_log.max_offset
        if self.acting.is_on:
            broker.identity.enable_acting_master = True
            broker.identity.heartbeat_timeout_ms = broker.settings.int(
                "brokerNotActiveTimeoutMillis")
            broker.identity.registers = not has_pre_online(broker)
            self._in_sync.role_changed()
            if broker.settings.flag("enableRemoteEscape"):
                broker.use_escape(EscapeBridge(broker).store)
        await return_as_master(broker)
        try:
            self.slaves.start()
        except OSError as error:
            raise broker.settings.unavailable(
                "haListenPort", f"cannot be listened on: {error}") from None
        broker.health_checks["replication"] = self._health
        self._has_started = True
        self._follow()

    @hookimpl
    def on_role_change(self, role: str, broker_id: int) -> None:
        if self._has_started:
            self.slaves.role_changed()
            self._commits.role_changed()
            self.acting.role_changed()
            if self.acting.is_on:
                self._in_sync.role_changed()
            self._follow()

    def _health(self) -> str:
        """Return the fault of replication that an operator should see; empty without a fault."""
        return self.follower.health() if self._broker.is_slave else self.slaves.health()

    def _master_came(self, requests: str, replication: str) -> None:
        """Handle an announcement by the master that it is available."""
        self.master.note_available(requests, replication)
        self.follower.retry()

    def _follow(self) -> None:
        """Follow the master if this broker is a slave."""
        if self._broker.is_slave:
            self.follower.start()
        else:
            self.follower.stop()

    @hookimpl
    def on_stop(self) -> Deferred[None] | None:
        self.follower.stop()
        return self.slaves.stop()
