"""Starts several brokers for a command line, and prints their lines.

Source: design of twistmq.
"""

from __future__ import annotations

import sys
from typing import Any

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge import services
from twistmq.broker.edge.boot import DURABILITY_MARK
from twistmq.broker.edge.starter import Companion, Starter, namesrv_line
from twistmq.broker.edge.unserved_stores import unserved_notices
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.supervisor.child_command import ChildCommand

__all__ = ["SupervisorStarter"]


class SupervisorStarter(Starter):
    """Makes the service of several brokers.

    :param command: the command of the brokers.
    """

    service: Any

    def __init__(
        self, reactor: Any, kind: str, settings: Settings, command: ChildCommand, *,
        prints: bool = True, companion: Companion | None = None,
    ) -> None:
        self._command = command
        #: Lines about durability, which every broker prints and which are shown only once.
        self._durability_lines: set[str] = set()
        super().__init__(reactor, kind, settings, prints=prints, companion=companion)

    def _make(self) -> Any:
        return services.make_supervisor_service(
            self._reactor, self.kind, self.settings, self._command, self._handle_line)

    def _handle_line(self, name: str, line: str, is_error: bool) -> None:
        """Handle a line that a broker printed."""
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
        # Each broker prints its own notices.
        name_server = self.service.name_server
        return [] if name_server is None else list(name_server.name_server.hooks.notices)

    def _name_server(self) -> Any:
        return self.service.name_server

    def _unreached(self) -> dict[str, str]:
        return {}

    def boot_lines(self) -> list[str]:
        """Return the lines for the time when all brokers answer; each has printed its own."""
        name_server = self.service.name_server
        lines = [f"{self._command.count} brokers are up: "
                 f"{', '.join(member.name for member in self.service.members)}"]
        if self._command.is_group:
            processes = ", ".join(f"{broker.name} {broker.process_id}"
                                  for broker in self.service.brokers)
            lines.append("They are one group, which elects its master within seconds. Their "
                         f"processes: {processes}")
        if name_server is None:
            return lines
        return [namesrv_line(name_server), *lines, *self.next_steps(name_server)]

    def end_status(self) -> int:
        """Return the exit status; see Starter. It is the first broker's status that is not 0."""
        status: int = self.status or self.service.status
        if status and not self.status:
            self._print("twistmq: not all brokers could be stopped cleanly", sys.stderr)
        return status
