"""Metrics that Apache's broker lacks: the reactor thread, the memory of connections, disks."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import MetricKind, describe_build, single

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, NameServer

__all__ = ["collect", "of_store"]

#: The figures of a server that are exported: their kind and help text.
_FIGURES: Final[dict[str, tuple[MetricKind, str]]] = {
    "connections": ("gauge", "Connections of clients."),
    "connections_refused": ("counter", "Connections refused for lack of file descriptors."),
    "requests_in_flight_bytes": ("gauge", "Bytes of requests that wait for their responses."),
    "kept_bytes": ("gauge", "Bytes of partial frames, and of responses that are not read."),
    "held_pulls": ("gauge", "Pulls that wait for a message."),
    "reactor_stalls": ("counter", "Times that one piece of work held the reactor for over 10 ms."),
    "reactor_stall_longest_seconds": ("gauge", "The longest of these stalls."),
    "slow_requests": ("counter", "Requests that took longer than log.slow_request."),
    "slow_request_longest_seconds": ("gauge", "The longest of these requests."),
}


def collect(server: Broker | NameServer) -> Iterator[MetricFamily]:
    """Make the families that every server has."""
    yield single("twistmq_build_info", "The running version and build; always 1.", 1,
                 labels={"version": version("twistmq"), "build": describe_build()})
    yield single("twistmq_start_time_seconds", "When the server started, Unix time.",
                 server.started_ms / 1000)
    for name, (kind, text) in _FIGURES.items():
        figure = server.figures.get(name)
        if figure is not None:
            yield single(f"twistmq_{name}", text, figure(), kind)


def of_store(broker: Broker) -> Iterator[MetricFamily]:
    """Make the families of a store."""
    yield single("twistmq_messages_not_stored", "Messages that the store refused.",
                 broker.store.stats.put_failed, "counter")
    disks = MetricFamily("twistmq_disk_used_ratio", "gauge",
                         "Used share of the disks of commit log and queues, 0 to 1.", ("of",))
    for of, ratio in zip(("commitlog", "store"), broker.store.disk_ratios(), strict=True):
        if ratio >= 0:
            disks.add(ratio, of)
    yield disks
