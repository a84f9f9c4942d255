"""Statistics, metrics and log lines.

A patch release keeps these names; a minor release may change them, and CHANGELOG.md says so.
"""

from __future__ import annotations

from twistmq.broker.compiled import describe_build
from twistmq.broker.interfaces import ServeHttp
from twistmq.broker.observe.log_rate import LineRate, Outage
from twistmq.broker.observe.metrics import MetricKind, single
from twistmq.broker.observe.statistics import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, Sums

__all__ = [
    "DAY_SECONDS",
    "HOUR_SECONDS",
    "MINUTE_SECONDS",
    "LineRate",
    "MetricKind",
    "Outage",
    "ServeHttp",
    "Sums",
    "describe_build",
    "single",
]
