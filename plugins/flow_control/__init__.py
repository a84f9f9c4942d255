"""The plugin ``flow_control``: a broker that gets more than it can serve refuses the rest at once.

What is answered is Apache's: SYSTEM_BUSY, with the remarks clients and people know. README.md
beside this file says what each of the scenes means for a broker with one thread. Without the plugin
a broker that gets too much reads it later, and every client waits.

Source: BrokerFastFailure, SendMessageProcessor.rejectRequest @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from twistmq.broker import hookimpl
from twistmq.broker.config.settings import Setting, SettingCheck
from twistmq.broker.interfaces import IFlowControl
from twistmq.broker.observe.metrics import MetricFamily
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.plugins.flow_control.classes import KIND_SETTINGS
from twistmq.plugins.flow_control.guard import PAGE_CACHE, QUEUE_BYTES, SWITCH, FlowControl
from twistmq.plugins.flow_control.rate_limits import (
    RATE_SETTINGS,
    TOPIC_RATES,
    RateLimits,
    read_topic_rates,
)

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["flow_control_of"]

#: The name under which the hook of the rates is registered.
_RATES: Final = "flow_control_rates"
_LINE_PERIOD_MS: Final = 10_000

#: A process may run several brokers.
_controls: WeakKeyDictionary[Kernel, FlowControl] = WeakKeyDictionary()
_rates: WeakKeyDictionary[Kernel, RateLimits] = WeakKeyDictionary()


def flow_control_of(kernel: Kernel) -> FlowControl:
    """The broker's own, made when it is first asked for."""
    if kernel not in _controls:
        _controls[kernel] = FlowControl(kernel)
    return _controls[kernel]


@hookimpl
def register_settings() -> Sequence[Setting]:
    return (
        Setting(SWITCH, "flag", True,
                "Whether requests that waited too long, or behind a slow append, are refused.",
                source="BrokerConfig"),
        *KIND_SETTINGS,
        Setting(PAGE_CACHE, "int", 1000,
                "When an append took longer, the sends that came meanwhile are refused.",
                unit="ms", least=1, source="MessageStoreConfig"),
        Setting(QUEUE_BYTES, "int", 64 * 1024**2,
                "Sends are refused while waiting requests have so many bytes together.",
                unit="bytes", least=1),
        *RATE_SETTINGS,
    )


@hookimpl
def register_setting_checks() -> Sequence[SettingCheck]:
    return [SettingCheck((TOPIC_RATES,), read_topic_rates)]


@hookimpl
def provide_flow_control(kernel: Kernel) -> IFlowControl:
    return flow_control_of(kernel)


@hookimpl
def on_start(kernel: Kernel) -> None:
    def settings_changed(changes: Mapping[str, object]) -> None:
        if any(name.startswith("flow_control.") for name in changes):
            _set_rates(kernel)

    _set_rates(kernel)
    kernel.settings.on_change.append(settings_changed)


def _set_rates(kernel: Kernel) -> None:
    """Limit rates as the settings say now; no hook is there while they say nothing."""
    limits = RateLimits(kernel.settings)
    if _rates.pop(kernel, None) is not None:
        kernel.hooks.manager.unregister(name=_RATES)
    if limits.is_any:
        _rates[kernel] = limits
        kernel.hooks.register(_RATES, limits)
    kernel.hooks.freeze()


@hookimpl
def on_role_change(kernel: Kernel, role: str, broker_id: int) -> None:
    flow_control_of(kernel).settings_changed()


@hookimpl
def register_periodic_tasks(kernel: Kernel) -> Sequence[PeriodicTask]:
    def forget(now_ms: int) -> None:
        if kernel in _rates:
            _rates[kernel].forget(now_ms)

    return (
        PeriodicTask("log what was refused", _LINE_PERIOD_MS, _LINE_PERIOD_MS,
                     flow_control_of(kernel).log_refusals),
        PeriodicTask("forget who sends no more", _LINE_PERIOD_MS, _LINE_PERIOD_MS, forget),
    )


@hookimpl
def collect_metrics(kernel: Kernel) -> Sequence[MetricFamily]:
    return flow_control_of(kernel).families()


@hookimpl
def add_runtime_info(kernel: Kernel) -> Mapping[str, str]:
    rates = _rates.get(kernel)
    return {**flow_control_of(kernel).runtime_info(),
            **({"flowControl_RATE_LIMIT": str(rates.refused)} if rates is not None else {})}
