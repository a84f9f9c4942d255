"""Statistics by topic and group: 315.

Source: AdminBrokerProcessor.viewBrokerStatsData, BrokerStatsManager @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import (
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import BrokerStatsData, BrokerStatsItem
from twistmq.broker.api.headers import ViewBrokerStatsDataRequestHeader
from twistmq.broker.api.observe import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["StatsQuestions"]

#: Apache's name to (the kernel's name, the number of names in the key, whether bytes are counted).
#: The statistics of the whole broker have the cluster's name as their key.
_STATS: Final = {
    "TOPIC_PUT_NUMS": ("TOPIC_PUT", 1, False),
    "TOPIC_PUT_SIZE": ("TOPIC_PUT", 1, True),
    "GROUP_GET_NUMS": ("GROUP_GET", 2, False),
    "GROUP_GET_SIZE": ("GROUP_GET", 2, True),
    "SNDBCK_PUT_NUMS": ("GROUP_SEND_BACK", 2, False),
    "BROKER_PUT_NUMS": ("BROKER_PUT", 0, False),
    "BROKER_GET_NUMS": ("BROKER_GET", 0, False),
}


class StatsQuestions:
    """The handler of statistics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.VIEW_BROKER_STATS_DATA, self._view,
                               ViewBrokerStatsDataRequestHeader)]

    def _view(self, request: Request[ViewBrokerStatsDataRequestHeader]) -> Reply:
        """Differs from Apache: hours and days count from the start, not from their first sample."""
        name, key = request.header.stats_name, request.header.stats_key
        counted = self._counted(name, key)
        if counted is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        is_size = _STATS[name][2]
        minute, hour, day = (self._item(seconds, counted, is_size)
                             for seconds in (MINUTE_SECONDS, HOUR_SECONDS, DAY_SECONDS))
        return Reply(body=BrokerStatsData(minute, hour, day).encode())

    def _counted(self, name: str, key: str) -> tuple[str, ...] | None:
        """Return the kernel's key of a statistic, or None if it does not exist."""
        table, names, _ = _STATS.get(name, ("", 0, False))
        # The name of a topic never contains @.
        parts = tuple(key.split("@", 1)) if names else ()
        if len(parts) != names or (not names and key != self._broker.cluster_name):
            return None
        counted = (table, *parts)
        return counted if self._broker.stats.has(*counted) else None

    def _item(self, seconds: int, counted: tuple[str, ...], is_size: bool) -> BrokerStatsItem:
        window = self._broker.stats.window(seconds, self._broker.steady.now_ms(), *counted)
        total = window.size if is_size else window.count
        return BrokerStatsItem(total, window.bytes_per_second if is_size else window.tps,
                               total / window.requests if window.requests else 0.0)
