"""``twistmq doctor`` finds faults in a set-up and suggests how to fix them.

Exit statuses: 0 if nothing is broken, 1 if something is broken or the command line is bad.
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
              help="The server to check.  [default: broker with -c or -n, else up]")
@click.option("-c", "--configFile", "file", metavar="FILE",
              help="The settings file of the server.")
@click.option("-n", "--namesrvAddr", "name_servers", metavar="HOST:PORT;...",
              help="The name servers to register with.")
@click.option("--data", default="~/.twistmq", show_default=True, metavar="DIR",
              help="The folder of `up`.")
@click.option("--brokers", metavar="N", help=
              "The number of brokers, as in the command of the server.")
@click.option("--group", metavar="N", help=
              "The number of brokers of a group, as in the command of the server.")
@click.option("--running", is_flag=True,
              help="The server is expected to run: its ports must answer, and its store must be "
                   "locked.")
@click.option("--json", "as_lines", is_flag=True, help="Print JSON.")
def doctor(
    settings: tuple[str, ...], kind: str | None, file: str | None, name_servers: str | None,
    data: str, brokers: str | None, group: str | None, running: bool, as_lines: bool,
) -> int:
    """Find faults in a set-up, and suggest how to fix them.

    Use the same arguments as for the server. The checks cover settings, plugins, the installation,
    limits, ports, the address for clients, name servers, the disk and the store. Nothing is
    changed.

    The exit status is 1 if anything is broken.
    """
    from twistmq.tools.command_line import parse_overrides
    from twistmq.tools.doctor import findings as shown

    kind = kind or ("broker" if file or name_servers else "up")
    overrides = parse_overrides(settings, name_servers)
    if brokers is not None and group is not None:
        raise click.UsageError("give one of --brokers and --group")
    several = brokers or group
    if several is None:
        findings = examine(kind, data, file, overrides, running=running)
    else:
        findings = examine_brokers(kind, data, file, overrides, several, running=running,
                                   is_group=group is not None)
    if as_lines:
        click.echo(shown.as_json(findings))
    else:
        click.echo(shown.as_table(findings))
        click.echo(shown.summary(findings))
    return EXIT_BROKEN if any(each.level is shown.Level.BROKEN for each in findings) else 0


def examine(
    kind: str, data: str, file: str | None, overrides: Mapping[str, str], *, running: bool = False
) -> list[Finding]:
    """Check a set-up.

    :param kind: "up", "broker" or "namesrv".
    :returns: the findings, in the order of the checks.
    """
    from twistmq.tools.doctor.host_checks import Host, host_findings

    host = Host.current()
    return [*host_findings(host),
            *_examine_server(host, kind, data, file, overrides, running=running)]


def examine_brokers(
    kind: str, data: str, file: str | None, overrides: Mapping[str, str], brokers: str, *,
    running: bool = False, is_group: bool = False,
) -> list[Finding]:
    """Check the set-up of several brokers of one command.

    :param kind: "up" or "broker".
    :param brokers: the number of brokers; "auto": one less than the number of cores.
    :param is_group: whether they are the members of one group.
    :returns: the findings, in the order of the checks; the findings of a broker have its name.
    :raises SettingsError: when ``brokers`` is not a valid number of brokers.
    """
    from twistmq.broker.edge.boot import EXIT_USAGE, StartRefused
    from twistmq.broker.supervisor.child_command import ChildCommand
    from twistmq.broker.supervisor.groups import members_of_command
    from twistmq.broker.supervisor.members import broker_count, member_count
    from twistmq.tools.doctor.findings import broken
    from twistmq.tools.doctor.host_checks import Host, cores_finding, host_findings
    from twistmq.tools.doctor.settings_checks import read_settings

    if kind == "namesrv":
        raise StartRefused(EXIT_USAGE, "--brokers and --group: a name server has no brokers")
    count = member_count(brokers) if is_group else broker_count(brokers)
    host = Host.current()
    findings = [*host_findings(host), cores_finding(count)]
    settings = read_settings(kind, data, file, overrides, findings)
    if settings is None:
        return findings
    try:
        members = members_of_command(settings, ChildCommand(count, None, {}, is_group=is_group))
    except SettingsError as error:
        return [*findings, broken("brokers", str(error), "choose another value, leave it out, or "
                                                         "start fewer brokers")]
    reported = {(each.check, each.text) for each in findings}
    for member in members:
        of_it = _examine_server(host, kind, data, file, {**overrides, **member.values},
                                running=running)
        findings += [replace(each, text=f"{member.name}: {each.text}") for each in of_it
                     if (each.check, each.text) not in reported]
        reported |= {(each.check, each.text) for each in of_it}
    return findings


def _examine_server(
    host: Host, kind: str, data: str, file: str | None, overrides: Mapping[str, str], *,
    running: bool,
) -> list[Finding]:
    """Check everything of a server except its host."""
    from twistmq.tools.doctor.access_checks import denial_findings
    from twistmq.tools.doctor.group_checks import group_findings
    from twistmq.tools.doctor.health_checks import health_findings
    from twistmq.tools.doctor.network_checks import network_findings
    from twistmq.tools.doctor.pair_checks import pair_findings
    from twistmq.tools.doctor.settings_checks import read_settings, start_findings
    from twistmq.tools.doctor.store_checks import store_findings
    from twistmq.tools.doctor.tls_checks import tls_findings

    findings: list[Finding] = []
    settings = read_settings(kind, data, file, overrides, findings)
    if settings is None:
        return findings
    findings += tls_findings(settings, host.now_ms)
    findings += network_findings(kind, settings, host, running=running)
    if kind != "namesrv":
        findings += pair_findings(settings, running=running)
        findings += group_findings(settings, running=running)
        findings += store_findings(settings, host.now_ms, running=running)
        if running:
            findings += health_findings(settings)
            findings += denial_findings(kind, settings, host.now_ms)
    findings += start_findings(settings, findings, running=running)
    return findings
