"""Metrics of the process, and HTTP ports for pages of plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twistmq.broker.net.factory import StallWatch
from twistmq.broker.net.limits import ConnectionCount
from twistmq.broker.net.slow_requests import SlowRequests
from twistmq.broker.remoting.interfaces import OpenHttpPort

__all__ = ["process_metrics", "serve_http"]


def process_metrics(
    connections: ConnectionCount, stalls: StallWatch, slow: SlowRequests
) -> dict[str, Callable[[], float]]:
    """Return the figures that every server has, by name; each is computed on request."""
    return {
        "connections": lambda: connections.count,
        "connections_refused": lambda: connections.refused,
        "reactor_stalls": lambda: stalls.count,
        "reactor_stall_longest_seconds": lambda: stalls.longest_seconds,
        "slow_requests": lambda: slow.count,
        "slow_request_longest_seconds": lambda: slow.longest_ms / 1000,
    }


def serve_http(reactor: Any, resource: Any, port: int, interface: str) -> OpenHttpPort:
    """Open a port for pages of plugins; :raises OSError: when it cannot be opened."""
    from twistmq.broker.net.http_port import HttpPort  # twisted.web uses megabytes of memory

    return HttpPort(reactor, resource, port, interface)
