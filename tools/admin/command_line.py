"""``twistmq admin``: the table of commands as a command line.

The exit status is 0 if everything was done, 1 if something failed, and 141 if the reader of the
output has closed it. Each failure is one line on standard error. The module of a command is
imported when the command runs, and tables are imported when one is printed, so that help and
completion are fast.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from twistmq.protocol.decimal_text import whole_number
from twistmq.tools.admin.command_rows import COMMANDS
from twistmq.tools.admin.completion import completer
from twistmq.tools.admin.rows import GROUPS, Command, Option, Row, Table

if TYPE_CHECKING:
    import ssl

    from twistmq.protocol.signature import Credentials
    from twistmq.tools.admin.session import Session

__all__ = ["ENTRY_POINT_GROUP", "account_keys", "admin", "all_commands", "parameter", "tls_context"]

#: Packages with commands name a module with ``COMMANDS`` in this entry-point group.
ENTRY_POINT_GROUP: Final = "twistmq.admin"
EXIT_FAILED: Final = 1
EXIT_UNREAD: Final = 128 + 13
#: The file with mqadmin's keys, below ROCKETMQ_HOME.
_TOOLS_FILE: Final = "conf/tools.yml"


def _time(_: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Read a time: now, ms since 1970, mqadmin's yyyy-MM-dd#HH:mm:ss:SSS, or ISO 8601."""
    from datetime import datetime

    if text is None:
        return None
    text = text.strip()
    if text == "now":
        return time.time_ns() // 1_000_000
    number = whole_number(text.removeprefix("-"))
    if number is not None:
        return -number if text.startswith("-") else number
    try:
        moment = (datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f") if "#" in text
                  else datetime.fromisoformat(text))
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither now, nor milliseconds since 1970, nor yyyy-MM-dd#HH:mm:ss:SSS, "
            "nor ISO 8601", param=param) from None


_TYPES: Final[dict[str, Any]] = {
    "text": click.STRING, "int": click.INT, "float": click.FLOAT, "bool": click.BOOL,
    "time": click.STRING, "path": click.Path(exists=True, dir_okay=False), "secret": click.STRING,
}
_METAVARS: Final = {"text": "TEXT", "int": "N", "float": "N", "bool": "true|false",
                    "time": "TIME", "path": "FILE", "secret": "KEY"}


def parameter(option: Option) -> click.Option:
    """Convert an option of the table to an option of click."""
    names = [option.name, *option.flags]
    if option.kind == "flag":
        return click.Option(names, is_flag=True, default=False, help=option.help)
    kind = click.Choice(option.choices) if option.choices else _TYPES[option.kind]
    shown = option.default is not None and option.default != ""
    default = str(option.default).lower() if isinstance(option.default, bool) else option.default
    text = f"{option.help}  [default: {default}]" if shown else option.help
    # In newer versions of click, a default of None is a value, and the option would not be
    # required.
    given: dict[str, Any] = {} if option.default is None else {"default": option.default}
    return click.Option(names, type=kind, required=option.required, help=text,
                        metavar=None if option.choices else _METAVARS[option.kind],
                        shell_complete=completer(option, _completing_session),
                        callback=_time if option.kind == "time" else None, **given)


def _common() -> list[click.Option]:
    """Return the options of every command."""
    return [
        click.Option(["name_servers", "-n", "--namesrv", "--namesrvAddr"], envvar="NAMESRV_ADDR",
                     default="127.0.0.1:9876", metavar="HOST:PORT;...",
                     help="The name servers.  [environment: NAMESRV_ADDR; "
                          "default: 127.0.0.1:9876]"),
        click.Option(["--output"], type=click.Choice(["table", "json"]), default="table",
                     help="The output format of rows.  [default: table]"),
        click.Option(["--access-key"], envvar="ROCKETMQ_ACCESS_KEY", metavar="KEY",
                     help="Sign requests as this account. The secret key is read from "
                          "ROCKETMQ_SECRET_KEY, or prompted for; without this option, both are "
                          f"read from ROCKETMQ_HOME/{_TOOLS_FILE}, if that file exists."),
        click.Option(["--tls"], is_flag=True, default=False, help="Speak TLS."),
        click.Option(["tls_file", "--tls-config"], type=click.Path(exists=True, dir_okay=False),
                     metavar="FILE", help="Speak TLS with the settings tls.client.* of this Java "
                                          ".properties file."),
        click.Option(["--timeout"], type=click.FloatRange(0, min_open=True), default=5.0,
                     metavar="S", help="How long a server may take to answer.  [default: 5]"),
    ]


class AdminCommand(click.Command):
    """A command of the table."""

    def __init__(self, row: Command) -> None:
        self.row = row
        super().__init__(
            row.name, params=[*map(parameter, row.options), *_common()], help=row.help,
            short_help=row.help, context_settings={"help_option_names": ["-h", "--help"]})
        self._flags = {flag: flag for option in row.options for flag in option.flags}
        self._flags.update((option.quoted, option.flags[-1])
                           for option in row.options if option.quoted)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._without_blank(each) for each in args])

    def _without_blank(self, argument: str) -> str:
        """Convert a long name of mqadmin with a blank in it or at its end to the name for click."""
        name, separator, value = argument.partition("=")
        if " " not in name or not name.startswith("--"):
            return argument
        flag = self._flags.get(name.rstrip())
        return argument if flag is None else f"{flag}{separator}{value}"

    def invoke(self, ctx: click.Context) -> int:
        row, options = self.row, dict(ctx.params)
        given = [name for name in row.one_of if options.get(name) is not None]
        if row.one_of and len(given) != 1:
            flags = [option.flags[0] for option in row.options if option.name in row.one_of]
            raise click.UsageError(f"give one of {' and '.join(flags)}", ctx)
        for option in row.options:
            if option.kind == "secret" and options[option.name] == "-":
                options[option.name] = click.prompt(option.flags[-1].lstrip("-"), hide_input=True,
                                                    err=True)
        interval_s = options.pop("interval", None)
        status = _run(row, options)
        while interval_s is not None:
            time.sleep(interval_s)
            status = _run(row, options)
        return status


class Admin(click.Group):
    """All commands, in mqadmin's groups."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            path = (error.ctx or ctx).command_path
            _say(f"{error.format_message()} ({path} --help shows more)")
            return EXIT_FAILED

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(all_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = _own().get(cmd_name) or all_commands().get(cmd_name)
        return None if row is None else AdminCommand(row)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in GROUPS.values()}
        for row in all_commands().values():
            sections.setdefault(GROUPS.get(row.group, row.group), []).append((row.name, row.help))
        for title, lines in sections.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


@cache
def _own() -> dict[str, Command]:
    return {row.name: row for row in COMMANDS}


@cache
def all_commands() -> dict[str, Command]:
    """Return the commands of the table and of other packages, by name."""
    from importlib.metadata import entry_points

    commands = dict(_own())
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            rows = point.load().COMMANDS
        except Exception as error:
            # A fault of a package only removes its own commands.
            _say(f"the commands of {point.name} cannot be had: {type(error).__name__}: {error}")
            continue
        for row in rows:
            commands.setdefault(row.name, row)
    return commands


@click.group(cls=Admin, context_settings={"help_option_names": ["-h", "--help"]})
def admin() -> None:
    """Inspect and change a cluster with the commands of Apache's mqadmin.

    They work with this package's servers and with Apache's. Names and options are mqadmin's;
    tools/admin/COMMANDS.md has them all.
    """


def _run(row: Command, given: dict[str, Any]) -> int:
    """Run a command, print its rows, and return the exit status."""
    from twistmq.broker.errors import SettingsError
    from twistmq.protocol.errors import BrokerError
    from twistmq.tools.admin.session import Session

    options = dict(given)
    name_servers, output = options.pop("name_servers"), options.pop("output")
    access_key, timeout_s = options.pop("access_key"), options.pop("timeout")
    tls, tls_file = options.pop("tls"), options.pop("tls_file")
    module, _, function = row.function.rpartition(":")
    if "." not in module:
        module = f"twistmq.tools.admin.{module}"
    try:
        with Session(name_servers, timeout_s=timeout_s, connect_timeout_s=timeout_s, retries=0,
                     credentials=account_keys(access_key),
                     tls=tls_context(tls_file) if tls or tls_file else None) as session:
            result = getattr(import_module(module), function)(session, **options)
            table = result if isinstance(result, Table) else Table(row.columns, result)
            status = _print(table, output, session)
    except (BrokerError, SettingsError, ValueError) as error:
        _say(str(error))
        return EXIT_FAILED
    except BrokenPipeError:
        # Without this, the buffered output would fail again when the interpreter exits.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return EXIT_UNREAD
    return status


def _completing_session(given: Mapping[str, Any], timeout_s: float) -> Session:
    """Return a client for completion, which cannot prompt for a secret key.

    :param given: the options typed up to now.
    :raises ValueError: when a secret key would have to be prompted for.
    """
    from twistmq.tools.admin.session import Session

    access_key, tls_file = given.get("access_key"), given.get("tls_file")
    if access_key is not None and "ROCKETMQ_SECRET_KEY" not in os.environ:
        raise ValueError("no secret key")
    return Session(
        given["name_servers"], timeout_s=timeout_s, connect_timeout_s=timeout_s, retries=0,
        credentials=account_keys(access_key),
        tls=tls_context(tls_file) if given.get("tls") or tls_file else None)


def _print(table: Table, output: str, session: Session) -> int:
    """Print rows, including the rows before a failure."""
    from twistmq.protocol.errors import BrokerError
    from twistmq.tools.admin.output import as_json, as_table, is_coloured

    rows: list[Row] = []
    try:
        _collect(table.rows, rows)
    except BrokerError as error:
        if not rows:
            raise
        session.failures.append(str(error))
    click.echo(as_json(table.columns, rows) if output == "json" else
               as_table(table.columns, rows, coloured=is_coloured()))
    for failure in dict.fromkeys(session.failures):
        _say(failure)
    return EXIT_FAILED if session.failures else 0


def _collect(rows: Iterable[Row], collected: list[Row]) -> None:
    for row in rows:
        collected.append(row)


def _say(text: str) -> None:
    """Print a text as one line of standard error."""
    from twistmq.protocol.printable import one_line

    # The text may come from a server, and must not control the terminal.
    click.echo(click.style("twistmq: ", fg="red") + one_line(text), err=True)


def tls_context(file: str | None) -> ssl.SSLContext:
    """Return the TLS context of connections.

    :param file: a settings file; None: the default of tls.config.file.
    """
    from twistmq.broker.config.setting_rows import broker_rows
    from twistmq.broker.config.settings import Settings
    from twistmq.broker.net.tls_options import tls_client_options
    from twistmq.tools.client_tls import ssl_context

    return ssl_context(tls_client_options(Settings.load(
        broker_rows(), None, {} if file is None else {"tls.config.file": file})))


def account_keys(access_key: str | None) -> Credentials | None:
    """Return the keys that sign requests; :raises ValueError: when one of the two is missing."""
    home = os.environ.get("ROCKETMQ_HOME")
    path = os.path.join(home, _TOOLS_FILE) if home else ""
    if access_key is None and not os.path.exists(path):
        return None
    from twistmq.protocol.signature import Credentials

    if access_key is not None:
        secret = os.environ.get("ROCKETMQ_SECRET_KEY") or click.prompt(
            "Secret key", hide_input=True, err=True)
        return Credentials(access_key, secret)
    import yaml

    with open(path, "rb") as file:
        try:
            content = yaml.load(file, yaml.BaseLoader)
        except yaml.YAMLError:
            content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a YAML file with accessKey and secretKey")
    keys = content.get("accessKey"), content.get("secretKey")
    if not (isinstance(keys[0], str) and isinstance(keys[1], str)):
        return None
    return Credentials(keys[0], keys[1])
