"""The services that a process can run: a name server, a broker, or both.

Each service has an attribute ``started``, a Deferred that fires once the service answers, or fails
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred

from twistmq.broker.config.settings import SettingCheck, Settings
from twistmq.broker.edge.boot import name_server_settings, own_name_server, refuse_unread
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.edge.clock import connections_max
from twistmq.broker.edge.namesrv_service import NamesrvService
from twistmq.broker.edge.start_checks import broker_host_checks, namesrv_host_checks
from twistmq.broker.kernel.kernel_checks import kernel_checks
from twistmq.broker.kernel.store_maker import use_ledger_folder
from twistmq.broker.net.limits import ConnectionCount
from twistmq.broker.plugin.discovery import NAMESRV_GROUP, find_plugins
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.store.interfaces import IStoreIO

if TYPE_CHECKING:
    from twistmq.broker.supervisor.child_command import ChildCommand
    from twistmq.broker.supervisor.service import SupervisorService

__all__ = ["UpService", "declare_plugins", "load_hooks", "load_namesrv_hooks",
           "make_broker_service", "make_namesrv_service", "make_supervisor_service",
           "make_up_service"]


#: The settings that select the plugins.
_PLUGINS: Final = ("plugins.enabled", "plugins.disabled")


def load_hooks(
    settings: Settings, plugins: Sequence[tuple[str, object]] = (), *, on_disk: bool = True
) -> Hooks:
    """Import the plugins that the settings allow, and let them declare settings and checks.

    :param plugins: pairs of (name, plugin) that are used without being installed, as in a test.
    :param on_disk: whether the store is on a disk of the host; a test may use another kind of
        store.
    :raises SettingsError: when a requested plugin is not installed, or a setting requests a feature
        that neither the kernel nor the plugins have.
    """
    installed = find_plugins(_pinned(settings), settings.names("plugins.disabled"))
    hooks = Hooks([*installed.plugins, *plugins], installed.notices)
    settings.add_rows(hooks.collect_settings(settings.own_rows))
    refuse_unread(settings)
    use_ledger_folder(settings, hooks)
    settings.start_checks = [
        *kernel_checks(hooks), *broker_host_checks(on_disk=on_disk),
        _plugins_check(lambda after: [load_hooks(after, plugins, on_disk=on_disk)])]
    return hooks


def _plugins_check(load: Callable[[Settings], object]) -> SettingCheck:
    """Return a check that a start finds the configured plugins and that their checks pass.

    :param load: a function that finds the plugins and adds their checks.
    """
    def run(settings: Settings) -> None:
        if settings.running is None:
            return  # a start has just found the plugins
        fresh = settings.without_plugins()
        load(fresh)
        for check in fresh.start_checks:
            if check.names != _PLUGINS:
                check.run(fresh)

    return SettingCheck(_PLUGINS, run)


def load_namesrv_hooks(
    settings: Settings, plugins: Sequence[tuple[str, object]] = (), up: Settings | None = None
) -> Hooks:
    """Load the plugins of a name server.

    :param up: the settings of the process, if the settings of the name server are a part of them;
        they contain the values of the settings that plugins declare.
    :raises SettingsError: as :func:`load_hooks`.
    """
    installed = find_plugins(_pinned(settings), settings.names("plugins.disabled"), NAMESRV_GROUP)
    # The broker of the process has logged the missing plugins.
    hooks = Hooks([*installed.plugins, *plugins], installed.notices if up is None else ())
    rows = hooks.collect_settings(settings.own_rows)
    settings.add_rows(rows)
    if up is not None:
        up.add_rows(row for row in rows if not up.has(row.name))
        for row in rows:
            settings.put_from(up, row.name)
    refuse_unread(settings)
    settings.start_checks = [
        *namesrv_host_checks("listenPort" if up is None else "namesrv.port"),
        *hooks.collect_setting_checks()]
    return hooks


def declare_plugins(kind: str, settings: Settings) -> list[Hooks]:
    """Load the same plugins as a start, and let them declare their settings.

    :param kind: "up", "namesrv" or "broker".
    :raises SettingsError: as :func:`load_hooks`.
    """
    if kind == "namesrv":
        return [load_namesrv_hooks(settings)]
    all_hooks = [load_hooks(settings)]
    if kind == "up":
        all_hooks.append(load_namesrv_hooks(name_server_settings(settings), up=settings))
    return all_hooks


def _pinned(settings: Settings) -> tuple[str, ...] | None:
    return settings.names("plugins.enabled") if settings.is_given("plugins.enabled") else None


def make_namesrv_service(reactor: Any, settings: Settings) -> NamesrvService:
    """:raises SettingsError: when a requested plugin is not installed."""
    return NamesrvService(reactor, settings, load_namesrv_hooks(settings))


def make_broker_service(reactor: Any, settings: Settings) -> BrokerService:
    """:raises SettingsError: when a requested plugin is not installed."""
    return BrokerService(reactor, settings, load_hooks(settings))


def make_up_service(
    reactor: Any, namesrv_settings: Settings, broker_settings: Settings
) -> UpService:
    """Make both services; the broker registers with this and the configured name servers."""
    return UpService(reactor, namesrv_settings, broker_settings)


def make_supervisor_service(
    reactor: Any, kind: str, settings: Settings, command: ChildCommand,
    on_line: Callable[[str, str, bool], None],
) -> SupervisorService:
    """Make several brokers, each in its own process.

    :param kind: "broker", or "up" for a name server in this process beside them.
    :param command: the command of each broker.
    :param on_line: see SupervisorService.
    :raises SettingsError: as :func:`load_hooks`, and when two brokers have the same port.
    """
    from twistmq.broker.supervisor.groups import members_of_command
    from twistmq.broker.supervisor.members import inner_values
    from twistmq.broker.supervisor.service import SupervisorService

    hooks = load_hooks(settings)
    name_server: NamesrvService | None = None
    if kind == "up":
        own = name_server_settings(settings)
        namesrv_hooks = load_namesrv_hooks(own, up=settings)
        for name, value in inner_values(settings, command.count).items():
            own.put(name, value)
        name_server = NamesrvService(reactor, own, namesrv_hooks, port_setting="namesrv.port")
    return SupervisorService(reactor, settings, members_of_command(settings, command), command,
                             hooks, name_server, on_line)


def _check_namesrv_of_up(plugins: Sequence[tuple[str, object]], settings: Settings) -> None:
    """Run the checks of the name server that would start beside a broker.

    :raises SettingsError, BrokerError: when the name server would not start.
    """
    if settings.running is None:
        return  # a name server runs these checks itself
    fresh = settings.without_plugins()
    namesrv = name_server_settings(fresh)
    load_namesrv_hooks(namesrv, plugins, up=fresh)
    namesrv.running = settings.running
    namesrv.check()


class UpService(MultiService):
    """A name server and a broker in one process; the broker starts once the name server answers.

    :param plugins: see :func:`load_hooks`.
    :param io: the disk of the broker; None: the real one.
    :param namesrv_plugins: see :func:`load_namesrv_hooks`.
    """

    def __init__(
        self, reactor: Any, namesrv_settings: Settings, broker_settings: Settings,
        plugins: Sequence[tuple[str, object]] = (), io: IStoreIO | None = None,
        namesrv_plugins: Sequence[tuple[str, object]] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        connections = ConnectionCount(connections_max)
        hooks = load_hooks(broker_settings, plugins, on_disk=io is None)
        self.namesrv = NamesrvService(
            reactor, namesrv_settings,
            load_namesrv_hooks(namesrv_settings, namesrv_plugins, up=broker_settings), connections,
            "namesrv.port", watched_alone=False)
        self.broker = BrokerService(reactor, broker_settings, hooks, io, connections,
                                    self.namesrv.name_server)
        broker_settings.start_checks.append(SettingCheck(
            tuple(row.name for row in namesrv_settings.rows if row.at_start), partial(
                _check_namesrv_of_up, namesrv_plugins)))
        self.namesrv.setServiceParent(self)  # type: ignore[no-untyped-call]
        self.started: Deferred[UpService] = Deferred()

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        Deferred.fromCoroutine(self._start()).addCallbacks(
            self.started.callback, self.started.errback)

    async def _start(self) -> UpService:
        await self.namesrv.started
        self.broker.name_server_list.keep(*own_name_server(
            self.namesrv.settings.text("bindAddress"), self.broker.settings.text("brokerIP1"),
            self.namesrv.port))
        self.broker.setServiceParent(self)  # type: ignore[no-untyped-call]
        await self.broker.started
        return self

    def stopService(self) -> Deferred[Any]:
        """Stop the broker first, so that it can still unregister from the name server."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.broker.running:
            await self.broker.disownServiceParent()  # type: ignore[no-untyped-call]
        await MultiService.stopService(self)
