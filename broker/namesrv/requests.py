"""The name server: its tables, its handlers, its periodic tasks.

Source: NamesrvController, BrokerHousekeepingService @5.3.3.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.namesrv.broker_requests import BrokerRequests
from twistmq.broker.namesrv.changes import Changes
from twistmq.broker.namesrv.config_requests import ConfigRequests
from twistmq.broker.namesrv.kv_config import KVConfig
from twistmq.broker.namesrv.room import RouteRoom
from twistmq.broker.namesrv.route_info import RouteInfoManager
from twistmq.broker.namesrv.route_requests import RouteRequests
from twistmq.broker.namesrv.route_tables import RouteTables
from twistmq.broker.namesrv.route_views import RouteViews
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.interfaces import ServeHttp
from twistmq.broker.remoting.long_answers import LongAnswers
from twistmq.broker.remoting.messages import AnyHandler, Channel
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.scheduler import CONTINUE_PERIOD_MS, Scheduler
from twistmq.broker.scheduling.steady_clock import SteadyClock
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.interfaces import IStoreIO

__all__ = ["NameServer"]

#: The number of connections for which a long list, up to the size of a frame, or a long route is
#: made at the same time.
_LISTS_MAX: Final = 4
_ROUTES_MAX: Final = 16
_FIRST_SCAN_MS: Final = 5
_FIRST_PRINT_MS: Final = 60_000
_PRINT_INTERVAL_MS: Final = 600_000


class NameServer:
    """One name server, without its port.

    :param settings: the settings of ``namesrv_rows``; read each time, so that changes take effect.
    :param io: stores the key-value configuration.
    :param now_ms: the wall clock, Unix ms.
    :param steady: the clock for durations; None for ``now_ms``, if the clock never jumps.
    :param hooks: the plugins in use.
    :param in_thread: runs a blocking write of the configuration; None to write on this thread.
    :param serve_http: serves a resource of twisted.web; None next to a broker, which serves both.
    :param figures: metrics of the process by name.
    """

    log = Logger()

    def __init__(
        self, settings: Settings, io: IStoreIO | None = None,
        in_thread: Callable[[Callable[[], bool]], Deferred[bool]] | None = None, *,
        now_ms: Callable[[], int], hooks: Hooks | None = None,
        steady: SteadyClock | None = None, serve_http: ServeHttp | None = None,
        figures: Mapping[str, Callable[[], float]] | None = None,
    ) -> None:
        #: The settings, under the same name as in a kernel.
        self.settings = settings
        self.hooks = hooks or Hooks()
        #: Returns the wall-clock time, Unix ms.
        self.now_ms = now_ms
        self.steady = steady or SteadyClock(now_ms)
        self.started_ms = now_ms()
        #: The listening address, "host:port"; empty until it listens.
        self.address = ""
        self.serve_http = serve_http
        #: Metrics of the process by name; each function is called when its value is read.
        self.figures = dict(figures or {})
        #: Checks by name; each returns a fault, or an empty text.
        self.health_checks: dict[str, Callable[[], str]] = {
            "answers": self._answers_fault, "key-value configuration": self._kv_fault}
        self._running = False
        path = os.path.abspath(settings.text("kvConfigPath"))
        self.kv_config = KVConfig(
            io or RealDisk(), path, settings.int, in_thread, now_ms=now_ms)
        tables = RouteTables(room=RouteRoom(lambda: settings.int("routes.size_max")))
        #: Gives slices to long registrations, long lists and routes of many brokers.
        self.background = Scheduler(self.steady.now_ms)
        changes = self._changes = Changes(self.background, self.now_ms)
        #: The registered brokers; ``tables`` contains them by name, with their topics.
        self.routes = RouteInfoManager(tables, settings.flag, later=changes.begin)
        self.views = RouteViews(tables, settings.flag)
        self._route_requests = RouteRequests(
            self.views, self.kv_config, settings, LongAnswers(self.background, _LISTS_MAX),
            LongAnswers(self.background, _ROUTES_MAX), self.steady.now_ms)
        self._broker_requests = BrokerRequests(
            self.routes, self.kv_config, settings, changes, self.steady.awake_ms)
        self._config_requests = ConfigRequests(self.kv_config, settings)

    def handlers(self) -> list[AnyHandler]:
        return [*self._route_requests.handlers(), *self._broker_requests.handlers(),
                *self._config_requests.handlers()]

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [
            PeriodicTask("forget silent brokers", _FIRST_SCAN_MS,
                         lambda: self.settings.int("scanNotActiveBrokerInterval"), self._scan),
            PeriodicTask("log the size of the key-value configuration", _FIRST_PRINT_MS,
                         _PRINT_INTERVAL_MS, lambda now_ms: self.kv_config.log_size()),
            PeriodicTask("continue long work", CONTINUE_PERIOD_MS,
                         self.background.period_ms, self.background.step,
                         self.background.rest_ms),
        ]

    def start(self) -> None:
        """Read the key-value configuration; called before the port is opened.

        :raises StoreDamaged: when it cannot be read.
        """
        self.kv_config.load()
        self._route_requests.started_ms = self.steady.now_ms()
        self._running = True

    def stop(self) -> None:
        """Stop. Connections that are lost from now on do not indicate the loss of brokers."""
        self._running = False

    def connection_lost(self, channel: Channel) -> None:
        """Remove the brokers that registered over a connection."""
        if self._running:
            self.routes.on_channel_destroy(channel)
            self._changes.lost(channel)

    def _answers_fault(self) -> str:
        return "" if self._running else "the name server has not started or has stopped"

    def _kv_fault(self) -> str:
        return self.kv_config.fault

    def _scan(self, _: int) -> None:
        for channel in self.routes.scan_not_active_broker(self.steady.awake_ms()):
            channel.close()
