"""The brokers of one command: how many, and the settings in which they differ.

A row of a setting says how its values differ (``Setting.of_each``), so that a plugin's port or
folder is a different one in each broker too.

Source: design of twistmq.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twistmq.broker.config.settings import OfEach, Setting, Settings, SettingValue, setting_text
from twistmq.broker.constants import VIP_PORT_DISTANCE
from twistmq.broker.edge.boot import EXIT_USAGE, StartRefused, log_folder

__all__ = ["AUTO", "BROKERS_MAX", "PORT_STEP", "Member", "broker_count", "inner_values",
           "members_of"]

#: As many brokers as this machine has cores, less one.
AUTO: Final = "auto"
BROKERS_MAX: Final = 64
#: Between the ports of a broker and of the next.
PORT_STEP: Final = 10
_PORT_MAX: Final = 65_535
_LOCAL: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Member:
    """One of the brokers.

    :param index: its number, from 0 on.
    :param name: its ``brokerName``.
    :param values: texts of the settings in which it differs, by name.
    """

    index: int
    name: str
    values: dict[str, str]


def broker_count(text: str) -> int:
    """The number of brokers that ``--brokers`` asks for.

    :param text: a number, or "auto": one for each core that this process may use, less one.
    :raises StartRefused: as a bad command line, when it is neither, or out of bounds.
    """
    if text == AUTO:
        return min(max(1, len(os.sched_getaffinity(0)) - 1), BROKERS_MAX)
    if not text.isdecimal() or not 1 <= int(text) <= BROKERS_MAX:
        raise StartRefused(EXIT_USAGE, f"--brokers {text}: a number from 1 to {BROKERS_MAX} is "
                                       f"expected, or {AUTO}")
    return int(text)


def members_of(settings: Settings, count: int) -> list[Member]:
    """The brokers, with the settings in which each differs.

    :param settings: those of the command, with the rows of plugins.
    :raises SettingsError: when ports are out of bounds, or two of them are one.
    """
    taken: dict[int, str] = {}
    if settings.has("namesrv.port") and settings.int("namesrv.port"):
        taken[settings.int("namesrv.port")] = "the name server"
    found = []
    for index in range(count):
        name = f"{settings.text('brokerName')}-{index}"
        values = {"log.dir": log_folder(settings), "isolateLogEnable": "true"}
        for row in settings.rows:
            value = _WAYS[row.of_each](settings, row, index, name) if row.of_each else None
            if value is not None:
                values[row.name] = value
        for row in settings.rows:
            if row.of_each == "port":
                _take_port(settings, row, int(values[row.name]), name, taken)
        found.append(Member(index, name, values))
    return found


def inner_values(settings: Settings, count: int) -> dict[str, SettingValue]:
    """The settings of the name server's pages, which the supervisor asks for behind the brokers'.

    :param count: of brokers.
    """
    return {row.name: _LOCAL if row.of_each == "inner_host" else int(
                _inner_port(settings, row, count, ""))
            for row in settings.rows if row.of_each.startswith("inner")}


def _name(settings: Settings, row: Setting, index: int, name: str) -> str:
    return f"{settings.text(row.name)}-{index}"


def _port(settings: Settings, row: Setting, index: int, name: str) -> str:
    # 0 asks for a free port, each time.
    port = settings.int(row.name)
    return str(port and port + PORT_STEP * index)


def _inner_port(settings: Settings, row: Setting, index: int, name: str) -> str:
    return _port(settings, row, index + 1, name)


def _folder(settings: Settings, row: Setting, index: int, name: str) -> str | None:
    if not settings.is_given(row.name) and not row.default_value():
        return None  # it follows from another folder
    return os.path.join(setting_text(settings.value(row.name)), name)


def _inner_host(settings: Settings, row: Setting, index: int, name: str) -> str:
    return _LOCAL


#: Each gives the text of a setting of one broker, or None: it has the value of the command.
_WAYS: Final[dict[OfEach, Callable[[Settings, Setting, int, str], str | None]]] = {
    "name": _name, "port": _port, "folder": _folder, "inner_port": _inner_port,
    "inner_host": _inner_host,
}


def _take_port(
    settings: Settings, row: Setting, port: int, name: str, taken: dict[int, str]
) -> None:
    """:raises SettingsError: when there is no such port, or another has it."""
    if not port:
        return
    if port > _PORT_MAX:
        raise settings.error(row.name, f"leaves no port for the broker {name}: {port} is above "
                                       f"{_PORT_MAX}")
    ports = [port]
    if row.name == "listenPort" and port > VIP_PORT_DISTANCE:
        ports.append(port - VIP_PORT_DISTANCE)
    for each in ports:
        if each in taken:
            raise settings.error(row.name, f"gives the broker {name} the port {each}, which is "
                                           f"that of {taken[each]}")
        taken[each] = f"the broker {name} ({row.name})"
