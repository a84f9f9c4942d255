"""Checks of the settings file and the command line: values that are not valid, unknown names.

A start stops at the first fault. Here all faults are reported, and the remaining settings are used
for the other checks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from twistmq.broker.config.properties_file import Property, decode_properties, parse_properties
from twistmq.broker.config.setting_rows import broker_rows, namesrv_rows, up_rows
from twistmq.broker.config.settings import OWN_FILE, Setting, Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import declare_plugins
from twistmq.broker.errors import SettingsError
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.findings import Finding, Level, broken, fine, warning

__all__ = ["read_settings", "start_findings"]

_ROWS: Final = {"up": up_rows, "broker": broker_rows, "namesrv": namesrv_rows}
_FILE: Final = "settings file"
_VALUES: Final = "settings"
_PLUGINS: Final = "plugins"


def read_settings(
    kind: str, data: str, file: str | None, overrides: Mapping[str, str],
    findings: list[Finding],
) -> Settings | None:
    """Read the settings as a start would, and add the results to ``findings``.

    :param kind: "up", "broker" or "namesrv".
    :param data: the folder of ``up``.
    :returns: the settings without the invalid ones; None if they cannot be used.
    """
    if kind == "up" and file is None:
        of_up = os.path.join(os.path.expanduser(data), "broker.conf")
        file = of_up if os.path.exists(of_up) else None
    given: dict[str, tuple[str, str]] = {}
    if file is not None and not _read_file(file, given, findings):
        return None
    own = os.path.expanduser(overrides.get(OWN_FILE, given.get(OWN_FILE, ("", ""))[0]))
    if own and os.path.exists(own) and not _read_file(own, given, findings):
        return None
    given |= {name: (text, "command line") for name, text in overrides.items()}
    rows = {row.name: row for row in _all_rows(kind, given, findings)}
    good: dict[str, str] = {}
    for name, (text, origin) in given.items():
        try:
            if name in rows:
                rows[name].parse(text, origin)
            good[name] = text
        except SettingsError as error:
            # Only numbers, flags and choices can be invalid here, so no secret is shown.
            findings.append(
                broken(_VALUES, str(error), f"{rows[name].help} {_allowed(rows[name])}"))
    good.pop(OWN_FILE, None)  # its contents have been read
    return _checked(kind, data, good, findings)


def _read_file(
    file: str, given: dict[str, tuple[str, str]], findings: list[Finding]
) -> bool:
    """Read a settings file into ``given``: texts and their origins, by name.

    :returns: whether the file can be read.
    """
    try:
        with open(file, "rb") as stream:
            entries = parse_properties(decode_properties(stream.read())[0], file)
    except OSError as error:
        findings.append(broken(_FILE, f"{file}: {error.strerror}",
                               "name an existing, readable file with -c"))
        return False
    except SettingsError as error:
        findings.append(broken(_FILE, str(error), "correct that line"))
        return False
    findings.append(fine(_FILE, f"{file}, {len(entries)} settings"))
    findings += _twice(file, entries)
    given |= {entry.key: (entry.value, f"{file}:{entry.first}") for entry in entries}
    return True


def _all_rows(
    kind: str, given: Mapping[str, tuple[str, str]], findings: list[Finding]
) -> list[Setting]:
    """Return the rows of the kernel and of the plugins in use."""
    settings = Settings.load(_ROWS[kind](), None, {
        name: text for name, (text, _) in given.items() if name.startswith("plugins.")})
    try:
        hooks = declare_plugins(kind, settings)
    except SettingsError as error:
        findings.append(broken(_PLUGINS, str(error), "install it, or leave its name out"))
        return settings.rows
    findings += [warning(_PLUGINS, notice, "see which plugins should be on")
                 for each in hooks for notice in each.notices]
    if not any(each.notices for each in hooks):
        findings.append(fine(_PLUGINS, ", ".join(hooks[0].plugin_names) or "none"))
    return settings.rows


def _checked(
    kind: str, data: str, good: Mapping[str, str], findings: list[Finding]
) -> Settings | None:
    """Run the checks of a start on the remaining settings."""
    try:
        if kind == "namesrv":
            settings = boot.namesrv_settings(None, good)
        elif kind == "broker":
            settings = boot.broker_settings(None, good)
        else:
            settings = boot.up_settings(data, os.devnull, good)
        _declare_plugins_rows(kind, settings)
        if kind != "namesrv":
            settings.store_settings()
    except SettingsError as error:
        findings.append(broken(_VALUES, str(error), "choose another value, or leave it out"))
        return None
    findings += _unknown(settings)
    if not any(finding.check == _VALUES for finding in findings):
        findings.append(fine(_VALUES, f"{len(good)} given, all have a meaning"))
    return settings


def start_findings(
    settings: Settings, findings: Sequence[Finding], *, running: bool
) -> Iterator[Finding]:
    """Run the checks of a start, and return the first failure of each part.

    :param findings: earlier findings; a part that is already broken in them is left out.
    :param running: whether the ports and locks in use belong to this server.
    """
    broken_parts = {finding.check for finding in findings if finding.level is Level.BROKEN}
    for check in (*settings.checks, *settings.start_checks):
        part = check.part or _VALUES
        if part in broken_parts or (running and check.part):
            continue
        try:
            check.run(settings)
        except (SettingsError, BrokerError) as error:
            broken_parts.add(part)
            yield broken(part, str(error), "choose another value, or leave it out")


def _declare_plugins_rows(kind: str, settings: Settings) -> None:
    """:raises SettingsError: as a start would. A missing plugin has been reported before."""
    try:
        declare_plugins(kind, settings)
    except SettingsError as error:
        if not str(error).startswith("plugins."):
            raise


def _unknown(settings: Settings) -> Iterator[Finding]:
    for notice in boot.unknown_names(settings):
        if "did you mean" in notice:
            yield broken(_VALUES, f"nothing reads {notice}", "spell it as its setting is spelt")
        else:
            yield warning(_VALUES, f"nothing reads {notice}",
                          "leave it out, unless it is for another program: SETTINGS.md lists all "
                          "settings")


def _twice(file: str, entries: list[Property]) -> Iterator[Finding]:
    counts = Counter(entry.key for entry in entries)
    for name in sorted(name for name, count in counts.items() if count > 1):
        lines = ", ".join(str(entry.first) for entry in entries if entry.key == name)
        yield warning(_FILE, f"{file}: {name} occurs {counts[name]} times, lines {lines}; "
                             "the last is used", "leave one")


def _allowed(row: Setting) -> str:
    if row.choices:
        return f"One of {', '.join(row.choices)}."
    if row.kind in ("int", "float"):
        return f"From {row.least} to {row.most}{' ' + row.unit if row.unit else ''}."
    return "true or false." if row.kind == "flag" else ""
