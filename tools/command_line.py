"""The command ``twistmq``.

``up`` runs a name server and a broker in one process, ``namesrv`` and ``broker`` run one of them;
``store`` inspects the files of a broker, which may be running; ``admin`` queries and changes
servers; ``console`` serves a web console; ``doctor`` searches for faults in a set-up. Plugins add
further commands through ``register_commands``; they are imported only for help, or if a command is
not one of these. Options and boot lines are the same as with ``mqnamesrv`` and ``mqbroker`` of
Apache; exit statuses are in ``boot``.

Source: ServerUtil, BrokerStartup, NamesrvStartup @5.3.3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.errors import SettingsError
from twistmq.broker.supervisor.child_command import ChildCommand, child_command
from twistmq.broker.supervisor.groups import members_of_command
from twistmq.client.commands import NAMES, command_named
from twistmq.client.commands.common import run_command
from twistmq.tools.doctor_command import doctor
from twistmq.tools.store_commands import EXIT_USAGE as STORE_EXIT_USAGE
from twistmq.tools.store_commands import store

if TYPE_CHECKING:
    from twistmq.broker.edge.starter import Companion

__all__ = ["main", "parse_overrides", "print_each", "print_settings", "put_ports",
           "twistmq", "version_text"]

F = TypeVar("F", bound=Callable[..., Any])


def parse_overrides(pairs: Sequence[str], name_servers: str | None = None) -> dict[str, str]:
    """Return the settings of a command line; ``namesrvAddr=`` takes precedence over ``-n``.

    :raises StartRefused: as a bad command line, when an argument is not ``key=value``.
    """
    overrides = {} if name_servers is None else {"namesrvAddr": name_servers}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            raise boot.StartRefused(
                boot.EXIT_USAGE, f"{pair!r} is not a setting: key=value is expected")
        overrides[key.strip()] = value
    return overrides


def put_ports(overrides: dict[str, str], namesrv_port: object, broker_port: object) -> None:
    """Add the ports from options of ``up``; None: not given.

    :raises StartRefused: as a bad command line, when a port is also given as a setting.
    """
    for name, option, port in (("namesrv.port", "--namesrv-port", namesrv_port),
                               ("listenPort", "--broker-port", broker_port)):
        if port is None:
            continue
        if name in overrides:
            raise boot.StartRefused(boot.EXIT_USAGE, f"{option} {port} and {name}="
                                    f"{overrides[name]} mean the same: give one of them")
        overrides[name] = str(port)


def print_settings(settings: Settings, *, important_only: bool) -> None:
    """Print the output of ``-p`` and ``-m``."""
    for name, text in settings.items(important_only):
        click.echo(f"{name}={text}")


def print_each(
    kind: str, settings: Settings, command: ChildCommand | None, *, important_only: bool
) -> None:
    """Print the output of ``-p`` and ``-m``, including the settings of plugins.

    The settings of several brokers are printed one after the other.

    :param kind: "up", "namesrv" or "broker".
    :param command: the command of brokers with their own processes; None: there are no such
        brokers.
    :raises SettingsError: when the settings are not valid for brokers.
    """
    from twistmq.broker.edge.services import declare_plugins

    declare_plugins(kind, settings)
    if command is None:
        print_settings(settings, important_only=important_only)
        return
    for member in members_of_command(settings, command):
        own = command.settings(member.values)
        declare_plugins("broker", own)
        click.echo(f"# {member.name}")
        print_settings(own, important_only=important_only)


#: The key under which click keeps the commands of plugins for one run.
_OF_PLUGINS: Final = "twistmq.commands_of_plugins"
#: The modules of commands that are imported when they are needed.
_LATE: Final = {"admin": "twistmq.tools.admin.command_line", "console": "twistmq.console.command"}


class Commands(click.Group):
    """The built-in commands, followed by the commands of plugins.

    ``admin``, ``console`` and the commands of the client are imported when they are needed.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        own = sorted([*super().list_commands(context), *_LATE, *NAMES])
        return own + sorted(self._of_plugins(context))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in _LATE:
            late: click.Command = getattr(import_module(_LATE[name]), name)
            return late
        if name in NAMES:
            return command_named(name)
        return super().get_command(context, name) or self._of_plugins(context).get(name)

    def _of_plugins(self, context: click.Context) -> dict[str, click.Command]:
        """Return the commands of plugins by name; the plugin called first wins; imported once."""
        if _OF_PLUGINS not in context.meta:
            context.meta[_OF_PLUGINS] = self._load_commands()
        commands: dict[str, click.Command] = context.meta[_OF_PLUGINS]
        return commands

    def _load_commands(self) -> dict[str, click.Command]:
        """Import the plugins; a plugin that is left out is named on standard error."""
        from twistmq.broker.edge.services import load_hooks

        hooks = load_hooks(Settings(broker_rows()))
        for notice in hooks.notices:
            click.echo(f"twistmq: {notice}", err=True)
        commands = {command.name: command for command in reversed(hooks.collect_commands())}
        return {name: command for name, command in commands.items()
                if name and name not in self.commands and name not in (*_LATE, *NAMES)}


def version_text() -> str:
    """Return the version, and whether the hot modules are compiled and up to date."""
    from twistmq.broker.compiled import build_warning, describe_build

    warning = build_warning()
    return (f"twistmq {version('twistmq')} ({describe_build()}), Python "
            f"{sys.version.split()[0]}" + (f"\n{warning}" if warning else ""))


def _say_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(version_text())
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_say_version,
              help="Show the version and whether the hot modules are compiled.")
def twistmq() -> None:
    """A name server and message broker that speak Apache RocketMQ's protocol."""


def _options(*, of_broker: bool) -> Callable[[F], F]:
    """Return the options of every server; ``-m`` and the purpose of ``-n`` are for brokers."""
    options = [
        click.argument("settings", nargs=-1, metavar="[KEY=VALUE]..."),
        click.option("-c", "--configFile", "file", metavar="FILE",
                     help="A Java .properties file with settings."),
        click.option("-p", "--printConfigItem", "print_all", is_flag=True,
                     help="Print all settings and exit."),
        click.option("-n", "--namesrvAddr", "name_servers", metavar="HOST:PORT;...",
                     help="The name servers to register with." if of_broker else
                     "Accepted as by mqnamesrv; a name server has no use for it."),
    ]
    if of_broker:
        options += [
            click.option("-m", "--printImportantConfig", "print_important", is_flag=True,
                         help="Print important settings and exit."),
            click.option("--brokers", metavar="N",
                         help="Run N brokers, each in its own process; auto: one per core, minus "
                              "one."),
        ]

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@twistmq.command()
@_options(of_broker=True)
@click.option("--group", metavar="N",
              help="Run N brokers of one name, each in its own process, which elect their master "
                   "and replace a lost one.")
@click.option("--data", default="~/.twistmq", show_default=True, metavar="DIR",
              help="The folder of all data.")
@click.option("--namesrv-port", type=click.IntRange(0, 65_535), metavar="N",
              help="The name server's port.  [default: 9876]")
@click.option("--broker-port", type=click.IntRange(0, 65_535), metavar="N",
              help="The broker's port.  [default: 10911]")
@click.option("--console", "has_console", is_flag=True,
              help="Serve the web console on 127.0.0.1 as well.")
@click.option("--console-port", type=click.IntRange(0, 65_535), metavar="N",
              help="The console's port, which implies --console.  [default: 8082]")
def up(
    settings: tuple[str, ...], file: str | None, name_servers: str | None, print_all: bool,
    print_important: bool, brokers: str | None, group: str | None, data: str,
    namesrv_port: int | None, broker_port: int | None, has_console: bool,
    console_port: int | None,
) -> int:
    """Run a name server and a broker in one process, for this host.

    All data is kept in one folder, and both servers listen on 127.0.0.1 unless bindAddress= and
    brokerIP1= are set. With --console, the address of the web console is printed with a token.
    """
    overrides = parse_overrides(settings, name_servers)
    put_ports(overrides, namesrv_port, broker_port)
    server_settings = boot.up_settings(data, file, overrides)
    companion: Companion | None = None
    if has_console or console_port is not None:
        from twistmq.tools.console_option import console_companion, doctor_arguments

        companion = console_companion(
            server_settings, console_port, doctor_arguments(data, file, overrides, brokers),
            can_print=True)
    return _print_or_run("up", server_settings, print_all, print_important,
                         child_command(brokers, "up", server_settings, file, overrides, group),
                         companion)


@twistmq.command()
@_options(of_broker=False)
def namesrv(
    settings: tuple[str, ...], file: str | None, name_servers: str | None, print_all: bool,
) -> int:
    """Run a name server."""
    server_settings = boot.namesrv_settings(file, parse_overrides(settings))
    if file is not None:
        click.echo(f"load config properties file OK, {file}")
    return _print_or_run("namesrv", server_settings, print_all)


@twistmq.command()
@_options(of_broker=True)
def broker(
    settings: tuple[str, ...], file: str | None, name_servers: str | None, print_all: bool,
    print_important: bool, brokers: str | None,
) -> int:
    """Run a broker, or several of one cluster."""
    overrides = parse_overrides(settings, name_servers)
    server_settings = boot.broker_settings(file, overrides)
    return _print_or_run("broker", server_settings, print_all, print_important,
                         child_command(brokers, "broker", server_settings, file, overrides))


twistmq.add_command(store)
twistmq.add_command(doctor)


def _print_or_run(
    kind: str, settings: Settings, print_all: bool, print_important: bool = False,
    command: ChildCommand | None = None, companion: Companion | None = None,
) -> int:
    if print_all or print_important:
        print_each(kind, settings, command, important_only=not print_all)
        return boot.EXIT_OK
    from twistmq.tools import tap

    return tap.run(kind, settings, command, companion)


def _usage_status(error: click.ClickException) -> int:
    """Return the exit status of a bad command line: 2 for some of our commands, else Apache's 1."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    while context is not None:
        if context.command is store or context.command.name in NAMES:
            return STORE_EXIT_USAGE
        context = context.parent
    return boot.EXIT_USAGE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    :returns: the exit status.
    """
    try:
        return run_command(twistmq, arguments, "twistmq", _usage_status)
    except SettingsError as error:
        click.echo(f"twistmq: {error}", err=True)
        return boot.exit_status(error)
