"""The plugin ``trace``: the broker traces clients that do not, if ``trace.server`` is set.

The kernel supports clients that trace themselves: the answer to a send and each message contain the
region and the trace switch, and ``traceTopicEnable`` provides the trace topic.

While the setting is off, no hooks are registered that a send or a pull would call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import PeriodicTask, Setting, hookimpl
from twistmq.trace.server_trace import PERIOD_MS, ServerTrace

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]

#: The name under which the send and pull hooks are registered.
_SERVER: Final = "trace_server"


_SETTINGS: Final = (
    Setting("trace.server", "flag", False,
            "Whether the broker traces sends and consumption of clients that do not trace "
            "themselves."),
    Setting("trace.topics", "text", "",
            "The topics that trace.server covers, separated by `;`; empty: all topics except the "
            "broker's system topics."),
    Setting("trace.buffer_max", "int", 20_000,
            "The number of records that may wait to be written, and of messages that may wait to "
            "be consumed; further ones are dropped and counted.", unit="records", least=1),
    Setting("trace.consume_timeout", "int", 900_000,
            "A message that is not consumed within this time is recorded as timed out.",
            unit="ms", least=1),
)


class Plugin:
    """The traces that one broker makes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Set while the broker traces.
        self._server: ServerTrace | None = None

    def _switch(self) -> None:
        """Start or stop tracing according to the present settings."""
        broker = self._broker
        if self._server is not None:
            broker.hooks.remove(_SERVER)
            self._server.write_all(broker.now_ms())
            self._server = None
        if broker.settings.flag("trace.server"):
            self._server = ServerTrace(broker)
            broker.hooks.add(_SERVER, self._server)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def on_start(self) -> None:
        def settings_changed(changes: Mapping[str, object]) -> None:
            if any(name.startswith("trace.") or name == "traceOn" for name in changes):
                self._switch()

        self._switch()
        self._broker.settings.on_change.append(settings_changed)

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        def period_ms() -> int:
            server = self._server
            return PERIOD_MS if server is None else server.period_ms()

        def write(now_ms: int) -> None:
            server = self._server
            if server is not None and not self._broker.is_slave:
                server.write(now_ms)

        return (PeriodicTask("write trace records", PERIOD_MS, period_ms, write),)

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str] | None:
        server = self._server
        return None if server is None else server.runtime_info()

    @hookimpl
    def on_stop(self) -> None:
        server = self._server
        if server is not None:
            server.write_all(self._broker.now_ms())
