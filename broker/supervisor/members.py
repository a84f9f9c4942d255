"""The number of brokers of a command, and the settings in which they differ.

The row of a setting states how its values differ (``Setting.of_each``), so that a port or folder of
a plugin also differs between the brokers.

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
from twistmq.broker.supervisor.cores import usable_cores
from twistmq.protocol.decimal_text import PORT_MAX, whole_number

__all__ = ["AUTO", "BROKERS_MAX", "GROUP_MAX", "PORT_STEP", "Member", "broker_count",
           "inner_values", "member_count", "members_of"]

#: Stands for one broker less than the number of cores that this process may use.
AUTO: Final = "auto"
BROKERS_MAX: Final = 64
#: The largest number of brokers of a group; each of them has the whole log.
GROUP_MAX: Final = 9
#: The difference between the ports of two consecutive brokers.
PORT_STEP: Final = 10
_LOCAL: Final = "127.0.0.1"
_STORE: Final = "storePathRootDir"
#: A broker's own settings file, below its store.
_OWN_FILE: Final = os.path.join("config", "broker.conf")


@dataclass(frozen=True, slots=True)
class Member:
    """One of the brokers of a command.

    :param index: its number, counted from 0.
    :param name: its ``brokerName``.
    :param values: the texts of the settings in which it differs, by name.
    """

    index: int
    name: str
    values: dict[str, str]


def broker_count(text: str) -> int:
    """Return the number of brokers that ``--brokers`` requests.

    :param text: a number, or "auto" for the number of usable cores minus one.
    :raises StartRefused: as a bad command line, when the text is neither or the number is out of
        bounds.
    """
    if text == AUTO:
        return min(max(1, usable_cores() - 1), BROKERS_MAX)
    count = whole_number(text, BROKERS_MAX)
    if not count:
        raise StartRefused(EXIT_USAGE, f"--brokers {text}: a number from 1 to {BROKERS_MAX} is "
                                       f"expected, or {AUTO}")
    return count


def member_count(text: str) -> int:
    """Return the number of brokers that ``--group`` requests.

    :param text: an odd number, because a group of an even number survives no more losses than a
        group with one member less.
    :raises StartRefused: as a bad command line, when it is not such a number, or out of bounds.
    """
    count = whole_number(text, GROUP_MAX)
    if not count or count % 2 == 0:
        raise StartRefused(EXIT_USAGE, f"--group {text}: an odd number from 1 to {GROUP_MAX} is "
                                       "expected")
    return count


def members_of(settings: Settings, count: int) -> list[Member]:
    """Return the brokers, with the settings in which each one differs.

    :param settings: the settings of the command, with the rows of plugins.
    :raises SettingsError: when ports are out of bounds or equal, or when a setting that can only
        apply to one broker would apply to all.
    """
    ports = _Ports(settings)
    members = []
    for index in range(count):
        name = f"{settings.text('brokerName')}-{index}"
        # The supervisor reads what the brokers print.
        values = {"log.dir": log_folder(settings), "log.output": "file",
                  "isolateLogEnable": "true"}
        for row in settings.rows:
            if row.of_each == "one_broker" and count > 1 and settings.value(row.name):
                raise settings.error(row.name, f"would apply to all {count} brokers, but may "
                                               "apply to only one")
            value = _WAYS[row.of_each](settings, row, index, name) if row.of_each in _WAYS else None
            if value is not None:
                values[row.name] = value
        for row in settings.rows:
            if row.of_each in ("port", "inner_port"):
                ports.take(row, int(values[row.name]), f"the broker {name}")
        members.append(Member(index, name, values))
    if settings.has("namesrv.port"):
        for each, port in inner_values(settings, count).items():
            if isinstance(port, int):
                ports.take(settings.row(each), port, "the name server")
    return members


def inner_values(settings: Settings, count: int) -> dict[str, SettingValue]:
    """Return the settings for the name server's pages, which follow the pages of the brokers.

    :param count: the number of brokers.
    """
    return {row.name: _LOCAL if row.of_each == "inner_host" else int(
                _inner_port(settings, row, count, ""))
            for row in settings.rows if row.of_each.startswith("inner")}


def _name(settings: Settings, row: Setting, index: int, name: str) -> str:
    return f"{settings.text(row.name)}-{index}"


def _port(settings: Settings, row: Setting, index: int, name: str) -> str:
    # 0 requests a free port each time.
    port = settings.int(row.name)
    return str(port and port + PORT_STEP * index)


def _inner_port(settings: Settings, row: Setting, index: int, name: str) -> str:
    return _port(settings, row, index + 1, name)


def _folder(settings: Settings, row: Setting, index: int, name: str) -> str | None:
    if not settings.is_given(row.name) and not row.default_value():
        return None  # it is derived from another folder
    # A broker may start in a different working directory than the command: twistd has --rundir.
    return os.path.abspath(os.path.join(setting_text(settings.value(row.name)), name))


def _above_store(settings: Settings, row: Setting, index: int, name: str) -> str | None:
    if settings.text(row.name):
        return None
    return os.path.dirname(os.path.abspath(settings.text(_STORE)))


def _own_file(settings: Settings, row: Setting, index: int, name: str) -> str:
    if settings.is_given(row.name):
        raise settings.error(row.name, "can apply to a single broker only: with --brokers, each "
                                       "broker has such a file in the folder of its store")
    return os.path.abspath(os.path.join(settings.text(_STORE), name, _OWN_FILE))


def _inner_host(settings: Settings, row: Setting, index: int, name: str) -> str:
    return _LOCAL


#: Functions that return the text of a setting for one broker, or None if the broker has the value
#: of the command.
_WAYS: Final[dict[OfEach, Callable[[Settings, Setting, int, str], str | None]]] = {
    "name": _name, "port": _port, "folder": _folder, "inner_port": _inner_port,
    "inner_host": _inner_host, "above_store": _above_store, "own_file": _own_file,
}


class _Ports:
    """The ports of all servers of a command; only one server may have each port.

    The ports of the name server and of the supervisor are taken first.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: The server of each port.
        self._servers: dict[int, str] = {}
        for row in settings.rows:
            if row.name == "namesrv.port":
                self.take(row, settings.int(row.name), "the name server")
            elif row.of_each == "inner_port":
                self.take(row, settings.int(row.name), "the supervisor")

    def take(self, row: Setting, port: int, who: str) -> None:
        """Take a port for a server, if the server listens on it.

        :param who: the server.
        :raises SettingsError: when the port does not exist or another server has it.
        """
        settings = self._settings
        if not port or not settings.is_read(row):
            return
        if port > PORT_MAX:
            raise settings.error(
                row.name, f"leaves no port for {who}: {port} is above {PORT_MAX}")
        ports = [port]
        if row.name == "listenPort" and port > VIP_PORT_DISTANCE:
            ports.append(port - VIP_PORT_DISTANCE)
        for each in ports:
            if each in self._servers:
                raise settings.error(row.name, f"gives {who} the port {each}, which "
                                               f"{self._servers[each]} already has")
            self._servers[each] = f"{who} ({row.name})"
