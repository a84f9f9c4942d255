"""The name server: its tables, its handlers, its periodic tasks.

Source: NamesrvController, BrokerHousekeepingService @5.3.3.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.interfaces import IStoreIO
from twistmq.broker.namesrv.broker_requests import BrokerRequests
from twistmq.broker.namesrv.config_requests import ConfigRequests
from twistmq.broker.namesrv.kv_config import KVConfig
from twistmq.broker.namesrv.route_info import RouteInfoManager
from twistmq.broker.namesrv.route_requests import RouteRequests
from twistmq.broker.namesrv.route_tables import RouteTables
from twistmq.broker.namesrv.route_views import RouteViews
from twistmq.broker.periodic import PeriodicTask
from twistmq.broker.remoting import AnyHandler, Channel
from twistmq.broker.settings import Settings
from twistmq.broker.store.disk import RealDisk

__all__ = ["NameServer"]

_FIRST_SCAN_MS: Final = 5
_FIRST_PRINT_MS: Final = 60_000
_PRINT_INTERVAL_MS: Final = 600_000


class NameServer:
    """One name server, without its port.

    :param settings: those of ``namesrv_rows``; read each time, so that changes take effect.
    :param io: where the key-value configuration is kept.
    :param in_thread: runs what writes it; None: it is written at once.
    """

    log = Logger()

    def __init__(
        self, settings: Settings, io: IStoreIO | None = None,
        in_thread: Callable[[Callable[[], bool]], Deferred[bool]] | None = None,
    ) -> None:
        self._settings = settings
        self._running = False
        path = os.path.abspath(settings.text("kvConfigPath"))
        self.kv_config = KVConfig(io or RealDisk(), path, settings.int, in_thread)
        tables = RouteTables()
        self.routes = RouteInfoManager(tables, settings.flag)
        self.views = RouteViews(tables, settings.flag)
        self._route_requests = RouteRequests(self.views, self.kv_config, settings)
        self._broker_requests = BrokerRequests(self.routes, self.kv_config, settings)
        self._config_requests = ConfigRequests(self.kv_config, settings)

    def handlers(self) -> list[AnyHandler]:
        return [*self._route_requests.handlers(), *self._broker_requests.handlers(),
                *self._config_requests.handlers()]

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [
            PeriodicTask("forget silent brokers", _FIRST_SCAN_MS,
                         lambda: self._settings.int("scanNotActiveBrokerInterval"), self._scan),
            PeriodicTask("log the size of the key-value configuration", _FIRST_PRINT_MS,
                         _PRINT_INTERVAL_MS, lambda now_ms: self.kv_config.log_size()),
        ]

    def start(self, now_ms: int) -> None:
        """Read the key-value configuration; called before the port is opened.

        :raises StoreDamaged: when it cannot be read.
        """
        self.kv_config.load()
        self._route_requests.started_ms = now_ms
        self._running = True

    def stop(self) -> None:
        """Connections lost from here on are this server's doing and say nothing of brokers."""
        self._running = False

    def connection_lost(self, channel: Channel) -> None:
        """Forget the brokers that registered over a connection."""
        if self._running:
            self.routes.on_channel_destroy(channel)

    def _scan(self, now_ms: int) -> None:
        for channel in self.routes.scan_not_active_broker(now_ms):
            channel.close()
