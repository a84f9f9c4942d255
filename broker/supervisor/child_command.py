"""The brokers of one command: how many, and the command line of each.

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
from twistmq.broker.supervisor.members import broker_count

__all__ = ["ChildCommand", "child_command"]

#: Settings whose defaults under ``twistmq up`` are not those of ``twistmq broker``.
_OF_UP: Final = ("bindAddress", "brokerIP1", "brokerIP2", "brokerConfigPath", "namesrvAddr")


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A command ``twistmq broker``, but for the settings that each broker has of its own.

    :param count: how many brokers are started with it.
    :param file: of settings, absolute: brokers may start in another working directory. All of them
        read it.
    :param overrides: settings of the command line.
    :param is_optional: whether the file need not be there; else a broker does not start without it.
    """

    count: int
    file: str | None
    overrides: Mapping[str, str]
    is_optional: bool = False

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """The arguments for one broker.

        :param values: the settings of its own.
        """
        pairs = [f"{name}={text}" for name, text in {**self.overrides, **values}.items()]
        file = self._file()
        return ["broker", *([] if file is None else ["-c", file]), *pairs]

    def settings(self, values: Mapping[str, str]) -> Settings:
        """The settings of one broker.

        :raises SettingsError: when they cannot be a broker's.
        """
        return boot.broker_settings(self._file(), {**self.overrides, **values})

    def _file(self) -> str | None:
        """The file to read."""
        if self.file is None or (self.is_optional and not os.path.exists(self.file)):
            return None
        return self.file


def child_command(
    brokers: str | None, kind: str, settings: Settings, file: str | None,
    overrides: Mapping[str, str],
) -> ChildCommand | None:
    """The command of the brokers of a command; None when it runs one, in its own process.

    :param brokers: the text of the option ``--brokers``; None: it was not given.
    :param kind: "broker" or "up".
    :param settings: those of the command.
    :param file: the file of settings it was given; None: none.
    :param overrides: the settings it was given.
    :raises StartRefused: as a bad command line, when ``brokers`` is not a number of them.
    """
    if brokers is None:
        return None
    count = broker_count(brokers)
    if kind == "broker":
        return ChildCommand(count, None if file is None else os.path.abspath(file), overrides)
    of_namesrv = {row.name for row in up_rows()} - {row.name for row in broker_rows()}
    own = {name: text for name, text in overrides.items() if name not in of_namesrv}
    assert settings.file is not None
    return ChildCommand(count, os.path.abspath(settings.file), {
        **{name: settings.text(name) for name in _OF_UP}, **own}, is_optional=file is None)
