"""The metrics of a name server. Apache's has no metrics, so all names are specific to twistmq.

    twistmq_namesrv_brokers                    gauge      cluster
    twistmq_namesrv_broker_names               gauge
    twistmq_namesrv_topics                     gauge
    twistmq_namesrv_silence_longest_seconds    gauge
    twistmq_namesrv_registrations_total        counter    result: taken, refused
    twistmq_namesrv_brokers_left_total         counter    reason
    twistmq_namesrv_requests_total             counter    request_code, response_code
    twistmq_namesrv_kv_entries                 gauge
    twistmq_namesrv_kv_bytes                   gauge
    twistmq_namesrv_rpc_latency_seconds        histogram  with metrics.rpc_latency only

Connections of a process are counted by ``twistmq_connections``, as they are for a broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import MetricFamily, Reply, Request, hookimpl
from twistmq.broker.api.namesrv import LEAVE_REASONS
from twistmq.broker.api.observe import MetricKind, single
from twistmq.plugins.metrics.rpc_latency import counted_code, request_name, response_name

if TYPE_CHECKING:
    from twistmq.broker.api import NameServer

__all__ = ["PREFIX", "RequestCounts", "collect"]

PREFIX: Final = "twistmq_namesrv_"


class RequestCounts:
    """Counts the requests of one name server, by request code and response code."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        self.counts[counted_code(request.command.code), reply.code] += 1

    def family(self) -> MetricFamily:
        family = _family("requests", "counter", "Requests that were answered.",
                         "request_code", "response_code")
        for (code, answer), count in self.counts.items():
            family.add(count, request_name(code), response_name(answer))
        return family


def collect(name_server: NameServer) -> Iterator[MetricFamily]:
    """Make the families, except for the ones that are counted by request."""
    routes = name_server.routes
    tables = routes.tables
    brokers = _family("brokers", "gauge", "Brokers that are registered.", "cluster")
    for cluster, count in Counter(key.cluster for key in tables.live).items():
        brokers.add(count, cluster)
    yield brokers
    yield single(PREFIX + "broker_names", "Names of brokers: a master and its slaves share one.",
                 len(tables.brokers))
    yield single(PREFIX + "topics", "Topics that have a route.", len(tables.topics))
    now_ms = name_server.steady.awake_ms()
    yield single(PREFIX + "silence_longest_seconds",
                 "How long ago the broker that has been silent longest gave a sign of life.",
                 max((max(now_ms - live.last_update_ms, 0)
                      for live in tables.live.values()), default=0) / 1000)
    registrations = _family("registrations", "counter",
                            "Registrations of brokers; a broker registers each time it reports "
                            "what it serves.",
                            "result")
    registrations.add(routes.taken_count, "taken")
    registrations.add(routes.refused_count, "refused")
    yield registrations
    departures = _family("brokers_left", "counter", "Brokers that were forgotten.", "reason")
    for reason in LEAVE_REASONS:
        departures.add(routes.left_counts[reason], reason)
    yield departures
    entries, size_bytes = name_server.kv_config.size()
    yield single(PREFIX + "kv_entries", "Values of the key-value configuration.", entries)
    yield single(PREFIX + "kv_bytes", "Their size as it counts for kv.total_size_max.", size_bytes)


def _family(name: str, kind: MetricKind, text: str, *labels: str) -> MetricFamily:
    return MetricFamily(PREFIX + name, kind, text, labels)
