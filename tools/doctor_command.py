"""``twistmq doctor``: what is wrong with a set-up, and what to mend.

Exit statuses: 0 when nothing is broken, 1 when something is or the command line is bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from twistmq.broker.errors import SettingsError

if TYPE_CHECKING:
    from twistmq.tools.doctor.findings import Finding
    from twistmq.tools.doctor.host_checks import Host

__all__ = ["doctor", "examine", "examine_brokers"]

EXIT_BROKEN: Final = 1


@click.command()
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--for", "kind", type=click.Choice(["up", "broker", "namesrv"]),
              help="Which server it is about.  [default: broker with -c or -n, else up]")
@click.option("-c", "--configFile", "file", metavar="FILE",
              help="The server's file of settings.")
@click.option("-n", "--namesrvAddr", "name_servers", metavar="HOST:PORT;...",
              help="The name servers to register with.")
@click.option("--data", default="~/.twistmq", show_default=True, metavar="DIR",
              help="The folder of `up`.")
@click.option("--brokers", metavar="N", help="The number of brokers, as the server is given it.")
@click.option("--running", is_flag=True,
              help="The server is meant to run: its ports must answer, its store be locked.")
@click.option("--json", "as_lines", is_flag=True, help="Print JSON.")
def doctor(
    settings: tuple[str, ...], kind: str | None, file: str | None, name_servers: str | None,
    data: str, brokers: str | None, running: bool, as_lines: bool,
) -> int:
    """Look for what is wrong with a set-up, and say what to mend.

    Give it what the server is given. Looked at: settings, plugins, the installation, limits,
    ports, the address clients are told, name servers, disk and store. Nothing is changed.

    The exit status is 1 when anything is broken.
    """
    from twistmq.tools.command_line import parse_overrides
    from twistmq.tools.doctor import findings as shown

    kind = kind or ("broker" if file or name_servers else "up")
    overrides = parse_overrides(settings, name_servers)
    if brokers is None:
        found = examine(kind, data, file, overrides, running=running)
    else:
        found = examine_brokers(kind, data, file, overrides, brokers, running=running)
    if as_lines:
        click.echo(shown.as_json(found))
    else:
        click.echo(shown.as_table(found))
        click.echo(shown.summary(found))
    return EXIT_BROKEN if any(each.level is shown.Level.BROKEN for each in found) else 0


def examine(
    kind: str, data: str, file: str | None, overrides: Mapping[str, str], *, running: bool = False
) -> list[Finding]:
    """Look at a set-up.

    :param kind: "up", "broker" or "namesrv".
    :returns: what was found, in the order it was looked at.
    """
    from twistmq.tools.doctor.host_checks import Host, host_findings

    host = Host.here()
    return [*host_findings(host),
            *_examine_server(host, kind, data, file, overrides, running=running)]


def examine_brokers(
    kind: str, data: str, file: str | None, overrides: Mapping[str, str], brokers: str, *,
    running: bool = False,
) -> list[Finding]:
    """Look at the set-up of several brokers of one command.

    :param kind: "up" or "broker".
    :param brokers: how many; "auto": one a core, less one.
    :returns: what was found, in the order it was looked at; that of a broker with its name.
    :raises SettingsError: when it is no number of brokers.
    """
    from twistmq.broker.edge.boot import EXIT_USAGE, StartRefused
    from twistmq.broker.supervisor.members import broker_count, members_of
    from twistmq.tools.doctor.findings import broken
    from twistmq.tools.doctor.host_checks import Host, cores_finding, host_findings
    from twistmq.tools.doctor.settings_checks import read_settings

    if kind == "namesrv":
        raise StartRefused(EXIT_USAGE, "--brokers: a name server has no brokers")
    count = broker_count(brokers)
    host = Host.here()
    found = [*host_findings(host), cores_finding(count)]
    settings = read_settings(kind, data, file, overrides, found)
    if settings is None:
        return found
    try:
        members = members_of(settings, count)
    except SettingsError as error:
        return [*found, broken("brokers", str(error), "choose another value, leave it out, or "
                                                      "start fewer brokers")]
    said = {(each.check, each.text) for each in found}
    for member in members:
        of_it = _examine_server(host, kind, data, file, {**overrides, **member.values},
                                running=running)
        found += [replace(each, text=f"{member.name}: {each.text}") for each in of_it
                  if (each.check, each.text) not in said]
        said |= {(each.check, each.text) for each in of_it}
    return found


def _examine_server(
    host: Host, kind: str, data: str, file: str | None, overrides: Mapping[str, str], *,
    running: bool,
) -> list[Finding]:
    """Look at all of a server but its host."""
    from twistmq.tools.doctor.health_checks import health_findings
    from twistmq.tools.doctor.network_checks import network_findings
    from twistmq.tools.doctor.pair_checks import pair_findings
    from twistmq.tools.doctor.settings_checks import read_settings, start_findings
    from twistmq.tools.doctor.store_checks import store_findings
    from twistmq.tools.doctor.tls_checks import tls_findings

    found: list[Finding] = []
    settings = read_settings(kind, data, file, overrides, found)
    if settings is None:
        return found
    found += tls_findings(settings, host.now_ms)
    found += network_findings(kind, settings, host, running=running)
    if kind != "namesrv":
        found += pair_findings(settings, running=running)
        found += store_findings(settings, host.now_ms, running=running)
        if running:
            found += health_findings(settings)
    found += start_findings(settings, found, running=running)
    return found
