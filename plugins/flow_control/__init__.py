"""The plugin ``flow_control``: an overloaded broker refuses excess requests at once.

The refusals are Apache's: SYSTEM_BUSY, with the remarks that clients and operators know. The
README.md of this folder explains each overload case for a broker with one thread. Without the
plugin an overloaded broker reads requests later, and every client waits.

Source: BrokerFastFailure, SendMessageProcessor.rejectRequest @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import (
    IFlowControl,
    MetricFamily,
    PeriodicTask,
    Setting,
    SettingCheck,
    hookimpl,
)
from twistmq.plugins.flow_control.classes import KIND_SETTINGS
from twistmq.plugins.flow_control.guard import PAGE_CACHE, QUEUE_BYTES, SWITCH, FlowControl
from twistmq.plugins.flow_control.rate_limits import (
    RATE_SETTINGS,
    TOPIC_RATES,
    RateLimits,
    read_topic_rates,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]

#: The name under which the rate-limit hook is registered.
_RATES: Final = "flow_control_rates"
_LINE_PERIOD_MS: Final = 10_000


_SETTINGS: Final = (
    Setting(SWITCH, "flag", True,
            "Whether requests that waited too long, or waited for a slow append, are refused.",
            source="BrokerConfig"),
    *KIND_SETTINGS,
    Setting(PAGE_CACHE, "int", 1000,
            "If an append takes longer, the sends that arrived during the append are refused.",
            unit="ms", least=1, source="MessageStoreConfig"),
    Setting(QUEUE_BYTES, "int", 64 * 1024**2,
            "Sends are refused while the waiting requests together have this many bytes.",
            unit="bytes", least=1),
    *RATE_SETTINGS,
)


class Plugin:
    """The flow control of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.control = FlowControl(broker)
        self._rates: RateLimits | None = None

    def _set_rates(self) -> None:
        """Apply the current rate limits; while no limit is set, no hook is called."""
        hooks = self._broker.hooks
        limits = RateLimits(self._broker.settings)
        hooks.remove(_RATES)
        self._rates = limits if limits.is_any else None
        if limits.is_any:
            hooks.add(_RATES, limits)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return [SettingCheck((TOPIC_RATES,), read_topic_rates)]

    @hookimpl
    def provide_flow_control(self) -> IFlowControl:
        return self.control

    @hookimpl
    def on_start(self) -> None:
        def settings_changed(changes: Mapping[str, object]) -> None:
            if any(name.startswith("flow_control.") for name in changes):
                self._set_rates()

        self._set_rates()
        self._broker.settings.on_change.append(settings_changed)

    @hookimpl
    def on_role_change(self, role: str, broker_id: int) -> None:
        self.control.settings_changed()

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        def forget(now_ms: int) -> None:
            if self._rates is not None:
                self._rates.forget(now_ms)

        return (
            PeriodicTask("log refused requests", _LINE_PERIOD_MS, _LINE_PERIOD_MS,
                         self.control.log_refusals),
            PeriodicTask("forget inactive senders", _LINE_PERIOD_MS, _LINE_PERIOD_MS, forget),
        )

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily]:
        return self.control.families()

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str]:
        rates = self._rates
        return {**self.control.runtime_info(),
                **({"flowControl_RATE_LIMIT": str(rates.refused)} if rates is not None else {})}
