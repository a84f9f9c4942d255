"""The services a process can be: a name server, a broker, or both.

Each has ``started``, a Deferred that fires once it answers or fails with why it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred

from twistmq.broker.discovery import find_plugins
from twistmq.broker.edge.boot import WILDCARDS, refuse_unread
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.edge.clock import connections_max
from twistmq.broker.edge.limits import ConnectionCount
from twistmq.broker.edge.namesrv_service import NamesrvService
from twistmq.broker.hooks import Hooks
from twistmq.broker.interfaces import IStoreIO
from twistmq.broker.settings import Settings

__all__ = ["UpService", "load_hooks", "make_broker_service", "make_namesrv_service",
           "make_up_service"]


def load_hooks(settings: Settings, plugins: Sequence[tuple[str, object]] = ()) -> Hooks:
    """Import the plugins the settings allow, and let them declare settings of their own.

    :param plugins: (name, plugin) that are there without being installed, as in a test.
    :raises SettingsError: when a plugin that is asked for is not installed, or a setting asks for
        what neither kernel nor plugins have.
    """
    enabled = settings.names("plugins.enabled")
    pinned = enabled if settings.is_given("plugins.enabled") else None
    found = find_plugins(pinned, settings.names("plugins.disabled"))
    hooks = Hooks([*found.plugins, *plugins], found.notices)
    settings.add_rows(hooks.collect_settings(settings.own_rows))
    refuse_unread(settings)
    return hooks


def make_namesrv_service(reactor: Any, settings: Settings) -> NamesrvService:
    return NamesrvService(reactor, settings)


def make_broker_service(reactor: Any, settings: Settings) -> BrokerService:
    """:raises SettingsError: when a plugin that is asked for is not installed."""
    return BrokerService(reactor, settings, load_hooks(settings))


def make_up_service(
    reactor: Any, namesrv_settings: Settings, broker_settings: Settings
) -> UpService:
    """Both in one process; the broker registers with this name server and those configured."""
    return UpService(reactor, namesrv_settings, broker_settings)


class UpService(MultiService):
    """A name server and a broker in one process: the broker starts once the other answers.

    :param plugins: see :func:`load_hooks`.
    :param io: the broker's disk; None: the real one.
    """

    def __init__(
        self, reactor: Any, namesrv_settings: Settings, broker_settings: Settings,
        plugins: Sequence[tuple[str, object]] = (), io: IStoreIO | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        connections = ConnectionCount(connections_max)
        self.namesrv = NamesrvService(reactor, namesrv_settings, connections, "namesrv.port")
        self.broker = BrokerService(
            reactor, broker_settings, load_hooks(broker_settings, plugins), io, connections)
        self.namesrv.setServiceParent(self)  # type: ignore[no-untyped-call]
        self.started: Deferred[UpService] = Deferred()

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        Deferred.fromCoroutine(self._start()).addCallbacks(
            self.started.callback, self.started.errback)

    async def _start(self) -> UpService:
        await self.namesrv.started
        port = self.namesrv.port
        host = self.namesrv.settings.text("bindAddress")
        own = f"{'127.0.0.1' if host in WILDCARDS else host}:{port}"
        # The user may have named it as well, by an address of this host's.
        same = {own, f"localhost:{port}", f"{self.broker.settings.text('brokerIP1')}:{port}"}
        others = [each for each in self.broker.name_servers.addresses if each not in same]
        self.broker.name_servers.addresses = [own, *others]
        self.broker.setServiceParent(self)  # type: ignore[no-untyped-call]
        await self.broker.started
        return self

    def stopService(self) -> Deferred[Any]:
        """Stop the broker first, so that it can still leave the name server."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.broker.running:
            await self.broker.disownServiceParent()  # type: ignore[no-untyped-call]
        await MultiService.stopService(self)
