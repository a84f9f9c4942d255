"""The command lines of the brokers that one command starts.

Source: design of twistmq.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.config.setting_rows import broker_rows, up_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.boot import EXIT_USAGE, StartRefused
from twistmq.broker.supervisor.members import broker_count, member_count

__all__ = ["ChildCommand", "child_command"]

#: The settings whose defaults differ between ``twistmq up`` and ``twistmq broker``.
_OF_UP: Final = ("bindAddress", "brokerIP1", "brokerIP2", "brokerConfigPath", "namesrvAddr")


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A command ``twistmq broker`` without the settings that differ between the brokers.

    :param count: the number of brokers that are started with it.
    :param file: the settings file that all brokers read; its path is absolute, because brokers may
        start in another working directory.
    :param overrides: the settings of the command line.
    :param is_optional: whether the file may be missing; otherwise a broker does not start without
        it.
    :param is_group: whether the brokers are the members of one group.
    """

    count: int
    file: str | None
    overrides: Mapping[str, str]
    is_optional: bool = False
    is_group: bool = False

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """Return the arguments for one broker.

        :param values: the settings of this broker.
        """
        pairs = [f"{name}={text}" for name, text in {**self.overrides, **values}.items()]
        file = self._file()
        return ["broker", *([] if file is None else ["-c", file]), *pairs]

    def settings(self, values: Mapping[str, str]) -> Settings:
        """Return the settings of one broker.

        :raises SettingsError: when they are not valid for a broker.
        """
        return boot.broker_settings(self._file(), {**self.overrides, **values})

    def _file(self) -> str | None:
        """Return the file to read, or None."""
        if self.file is None or (self.is_optional and not os.path.exists(self.file)):
            return None
        return self.file


def child_command(
    brokers: str | None, kind: str, settings: Settings, file: str | None,
    overrides: Mapping[str, str], group: str | None = None,
) -> ChildCommand | None:
    """Return the command of each broker; None if there is one broker, in the same process.

    :param brokers: the text of the option ``--brokers``; None if it was not given.
    :param kind: "broker" or "up".
    :param settings: the settings of the command.
    :param file: the settings file of the command line; None if there is no such file.
    :param overrides: the settings of the command line.
    :param group: the text of the option ``--group``; None if it was not given.
    :raises StartRefused: as a bad command line, when ``brokers`` or ``group`` is not a valid number
        of brokers, or both are given.
    """
    if brokers is None and group is None:
        return None
    if brokers is not None and group is not None:
        raise StartRefused(EXIT_USAGE, "--brokers and --group cannot both be given")
    is_group = group is not None
    count = member_count(group) if group is not None else broker_count(brokers or "")
    if kind == "broker":
        return ChildCommand(count, None if file is None else os.path.abspath(file), overrides,
                            is_group=is_group)
    of_namesrv = {row.name for row in up_rows()} - {row.name for row in broker_rows()}
    own = {name: text for name, text in overrides.items() if name not in of_namesrv}
    assert settings.file is not None
    return ChildCommand(count, os.path.abspath(settings.file), {
        **{name: settings.text(name) for name in _OF_UP}, **own}, is_optional=file is None,
        is_group=is_group)
