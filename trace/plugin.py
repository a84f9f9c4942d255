"""The plugin ``trace``: the broker traces for clients that do not, when ``trace.server`` says so.

What clients need to trace themselves is the kernel's: region and switch in each answer to a send
and in each message, and the trace topic under ``traceTopicEnable``.

While it is off nothing is registered that a send or a pull would call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from twistmq.broker import hookimpl
from twistmq.broker.config.settings import Setting
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.trace.server_trace import PERIOD_MS, ServerTrace

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__: list[str] = []

#: The name under which the hooks of sends and pulls are registered.
_SERVER: Final = "trace_server"
#: The broker's own traces; a process may run several brokers.
_servers: WeakKeyDictionary[Kernel, ServerTrace] = WeakKeyDictionary()


@hookimpl
def register_settings() -> Sequence[Setting]:
    return (
        Setting("trace.server", "flag", False,
                "Whether the broker traces sends and consumption of clients that do not trace "
                "themselves."),
        Setting("trace.topics", "text", "",
                "The topics it does that for, apart by `;`; none: all but the broker's own."),
        Setting("trace.buffer_max", "int", 20_000,
                "Records that may wait to be written, and messages that may wait to be consumed; "
                "what is more is dropped and counted.", unit="records", least=1),
        Setting("trace.consume_timeout", "int", 900_000,
                "A message that is not consumed for so long is recorded as timed out.",
                unit="ms", least=1),
    )


@hookimpl
def on_start(kernel: Kernel) -> None:
    def settings_changed(changes: Mapping[str, object]) -> None:
        if any(name.startswith("trace.") or name == "traceOn" for name in changes):
            _switch(kernel)

    _switch(kernel)
    kernel.settings.on_change.append(settings_changed)


def _switch(kernel: Kernel) -> None:
    """Begin or end to trace, as the settings say now."""
    server = _servers.pop(kernel, None)
    if server is not None:
        kernel.hooks.manager.unregister(name=_SERVER)
        server.write_all(kernel.now_ms())
    if kernel.settings.flag("trace.server"):
        server = _servers[kernel] = ServerTrace(kernel)
        kernel.hooks.register(_SERVER, server)
    kernel.hooks.freeze()


@hookimpl
def register_periodic_tasks(kernel: Kernel) -> Sequence[PeriodicTask]:
    def period_ms() -> int:
        server = _servers.get(kernel)
        return PERIOD_MS if server is None else server.period_ms()

    def write(now_ms: int) -> None:
        server = _servers.get(kernel)
        if server is not None and not kernel.is_slave:
            server.write(now_ms)

    return (PeriodicTask("write trace records", PERIOD_MS, period_ms, write),)


@hookimpl
def add_runtime_info(kernel: Kernel) -> Mapping[str, str] | None:
    server = _servers.get(kernel)
    return None if server is None else server.runtime_info()


@hookimpl
def on_stop(kernel: Kernel) -> None:
    server = _servers.get(kernel)
    if server is not None:
        server.write_all(kernel.now_ms())
