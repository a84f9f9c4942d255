"""Statistics, metrics and log lines.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.compiled import describe_build
from twistmq.broker.observe.metrics import MetricKind, single
from twistmq.broker.observe.statistics import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, Sums
from twistmq.broker.observe.supervisor_pages import BrokerPages, PageAnswer, SupervisorPages
from twistmq.broker.remoting.interfaces import ServeHttp
from twistmq.protocol.log_rate import LimitedLog, LineRate, Outage

__all__ = [
    "DAY_SECONDS",
    "HOUR_SECONDS",
    "MINUTE_SECONDS",
    "BrokerPages",
    "LimitedLog",
    "LineRate",
    "MetricKind",
    "Outage",
    "PageAnswer",
    "ServeHttp",
    "Sums",
    "SupervisorPages",
    "describe_build",
    "single",
]
