"""The metrics of all servers by name, each with its labels, as their exporters make them."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from twistmq.broker.api import MetricFamily
from twistmq.broker.testing import running_broker
from twistmq.plugins.dledger.families import families as families_of_group
from twistmq.plugins.ha.families import families as families_of_pair
from twistmq.plugins.metrics import Plugin
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["SCRAPE_LABELS", "metric_table"]

#: The labels that Prometheus itself gives to each sample.
SCRAPE_LABELS: Final = {"job", "instance"}
#: The labels that the exporter adds to Apache's metrics.
_COMMON: Final = {"cluster", "node_type", "node_id"}
#: What Prometheus and its client library make.
_OTHERS: Final = ("up", "process_cpu_seconds_total", "process_resident_memory_bytes",
                  "process_open_fds", "process_max_fds", "process_start_time_seconds")
_SETTINGS: Final = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0",
                    "metrics.rpc_latency": "true"}


@cache
def metric_table() -> dict[str, set[str]]:
    """The names of samples, with all labels that they may have."""
    table = {name: set(SCRAPE_LABELS) for name in _OTHERS}
    for family in (*_of_running_servers(), *_of_pair(), *_of_group(), *_of_supervisor()):
        labels = {*family.labels, *SCRAPE_LABELS}
        if family.name.startswith("rocketmq_"):
            labels |= _COMMON
        if family.kind == "counter":
            table[f"{family.name}_total"] = labels
        elif family.kind == "histogram":
            table |= {f"{family.name}_{part}": labels for part in ("sum", "count")}
            table[f"{family.name}_bucket"] = {*labels, "le"}
        else:
            table[family.name] = labels
    return table


def _of_running_servers() -> list[MetricFamily]:
    """The families of a broker and a name server, with the settings of this project's boards."""
    with running_broker(_SETTINGS) as broker, broker.client() as client:
        # Some families exist once there is a message.
        client.send("T", b"x")
        plugin = broker.kernel.hooks.find(Plugin)
        exporter = plugin and plugin.exporter
        assert exporter is not None
        families = broker.call(lambda: run_to_completion(exporter._collecting()))
        return list(families.values())


def _of_pair() -> list[MetricFamily]:
    """Return the families of a slave, since the running broker has the families of a master."""
    slave: Any = SimpleNamespace(is_slave=True)
    follower: Any = SimpleNamespace(is_connected=True, connections=1, received_bytes=1)
    tables: Any = SimpleNamespace(ages_ms=dict)
    return families_of_pair(slave, slave, follower, tables)


def _of_group() -> list[MetricFamily]:
    progress = SimpleNamespace(peer="n1", lag=0, is_reachable=True)
    node: Any = SimpleNamespace(leads=0, member=SimpleNamespace(
        role=None, leader="", term=0, committed_index=0, has_joined=True,
        list_progress=lambda: [progress]))
    roles: Any = SimpleNamespace(elections=0)
    stage: Any = SimpleNamespace(count=0, waits=0, timeouts=0)
    log: Any = SimpleNamespace(begin_index=0, end_index=0)
    return families_of_group(node, roles, stage, log, {("T", 0): 1})


def _of_supervisor() -> list[MetricFamily]:
    from prometheus_client.parser import text_string_to_metric_families

    from twistmq.plugins.metrics.joined_pages import join_metrics

    [family] = text_string_to_metric_families(join_metrics({}, {"b": 1}).text.decode())
    return [MetricFamily(family.name, "counter", family.documentation,
                         tuple(family.samples[0].labels))]
