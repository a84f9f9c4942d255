"""The families of a broker, which all exporters share; they are made in slices."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeVar

from twistmq.broker.api import MetricFamily
from twistmq.plugins.metrics.broker_families import collect as families_of_broker
from twistmq.plugins.metrics.lag_families import collecting as lags_of_groups
from twistmq.plugins.metrics.process_families import collect as families_of_process
from twistmq.plugins.metrics.process_families import of_store as families_of_store
from twistmq.plugins.metrics.queue_lag_families import collecting as lags_of_queues
from twistmq.plugins.metrics.rpc_latency import RpcLatency
from twistmq.plugins.metrics.setting_checks import read_labels

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["APACHES", "Collecting", "Making", "broker_collecting", "broker_labels"]

T = TypeVar("T")

#: A generator that makes something and yields wherever it can pause.
Making = Generator[None, None, T]
#: Returns a generator that makes the families, by name.
Collecting = Callable[[], Making[dict[str, MetricFamily]]]

_RPC_LATENCY: Final = "metrics_rpc_latency"
#: The prefix of Apache's metric names; these metrics have the broker's labels.
APACHES: Final = "rocketmq_"


def broker_labels(broker: Broker) -> dict[str, str]:
    """Return the labels of Apache's metrics; :raises SettingsError: when one is not valid."""
    return read_labels(broker.settings, {
        "cluster": broker.cluster_name, "node_type": "broker", "node_id": broker.broker_name})


def broker_collecting(broker: Broker) -> Collecting:
    """Return what makes the families of a broker, and of the name server in the same process."""
    latency: RpcLatency | None = None
    if broker.settings.flag("metrics.rpc_latency"):
        latency = RpcLatency(broker.now_ms)
        broker.hooks.add(_RPC_LATENCY, latency)

    def collecting() -> Making[dict[str, MetricFamily]]:
        families = {family.name: family for family in (
            *families_of_broker(broker), *families_of_process(broker),
            *families_of_store(broker))}
        yield
        for making in (lags_of_groups(broker), lags_of_queues(broker)):
            for family in (yield from making):
                families[family.name] = family
        if latency is not None:
            family = latency.family()
            families[family.name] = family
        if broker.host.name_server is not None:
            families.update(broker.host.name_server.hooks.namesrv_metrics())
        families.update(broker.hooks.metrics())
        return families

    return collecting
