"""Starts several brokers for a command line, and says what they print.

Source: design of twistmq.
"""

from __future__ import annotations

import sys
from typing import Any

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import services
from twistmq.broker.edge.boot import DURABILITY_MARK
from twistmq.broker.edge.starter import Starter, namesrv_line
from twistmq.broker.edge.unserved_stores import unserved_notices
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.supervisor.child_command import ChildCommand

__all__ = ["SupervisorStarter"]


class SupervisorStarter(Starter):
    """Makes the service of several brokers.

    :param command: that of the brokers.
    """

    service: Any

    def __init__(
        self, reactor: Any, kind: str, settings: Settings, command: ChildCommand, *,
        prints: bool = True,
    ) -> None:
        self._command = command
        #: Said of all brokers, each of which prints it.
        self._durability_lines: set[str] = set()
        super().__init__(reactor, kind, settings, prints=prints)

    def _make(self) -> Any:
        return services.make_supervisor_service(
            self._reactor, self.kind, self.settings, self._command, self._told)

    def _told(self, name: str, line: str, is_error: bool) -> None:
        """A broker printed a line."""
        if is_error:
            self._warn(f"{name}: {line.removeprefix('twistmq: ')}")
            return
        if line.startswith(DURABILITY_MARK):
            if line in self._durability_lines:
                return
            self._durability_lines.add(line)
        self.log.info("{line}", line=line)
        self._print(line, sys.stdout)

    def _store_notices(self) -> list[str]:
        return unserved_notices(
            RealDisk(), self.settings.text("storePathRootDir"),
            {member.values["storePathRootDir"] for member in self.service.members})

    def _plugin_notices(self) -> list[str]:
        # The brokers say the rest, each for itself.
        name_server = self.service.name_server
        return [] if name_server is None else list(name_server.name_server.hooks.notices)

    def _unreached(self) -> dict[str, str]:
        return {}

    def boot_lines(self) -> list[str]:
        """The lines when all brokers answer; each has printed its own."""
        name_server = self.service.name_server
        lines = [f"{self._command.count} brokers are up: "
                 f"{', '.join(member.name for member in self.service.members)}"]
        if name_server is None:
            return lines
        return [namesrv_line(name_server), *lines, *self.next_steps(name_server)]

    def end_status(self) -> int:
        """See Starter: the first status of a broker that is not 0."""
        status: int = self.status or self.service.status
        if status and not self.status:
            self._print("twistmq: not all brokers could be stopped cleanly", sys.stderr)
        return status
