"""Counts of revived and acknowledged messages since the start of the broker, for metrics.

Source: PopMetricsManager @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

from twistmq.broker.api import Histogram, ResponseCode

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, BrokerError
    from twistmq.plugins.pop.check_point import PointKey

__all__ = ["PopCounts", "ReviveKind"]

#: The kinds of messages in the revive topic. Source: PopReviveMessageType.
ReviveKind = Literal["CK", "ACK"]
#: Source: PopMetricsManager.getMetricsView.
_SCAN_ENDS_MS: Final = (1.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
#: The outcome of storing a message, in Apache's terms. Source: PutMessageStatus.
_STORED: Final = "PUT_OK"
_REFUSED: Final = {
    ResponseCode.SERVICE_NOT_AVAILABLE: "SERVICE_NOT_AVAILABLE",
    ResponseCode.MESSAGE_ILLEGAL: "MESSAGE_ILLEGAL",
    ResponseCode.SYSTEM_BUSY: "OS_PAGE_CACHE_BUSY",
}
_OTHERWISE: Final = "UNKNOWN_ERROR"


def _status(refusal: BrokerError | None) -> str:
    if refusal is None:
        return _STORED
    for code, status in _REFUSED.items():
        if refusal.response_code == code:
            return status
    return _OTHERWISE


class PopCounts:
    """The counts of one broker since its start."""

    def __init__(self) -> None:
        #: Attempts to store messages in the revive topic, by group, topic, kind and status.
        self.came: Counter[tuple[str, ...]] = Counter()
        #: Messages read from the revive topic, by group, topic, revive queue and kind.
        self.went: Counter[tuple[str, ...]] = Counter()
        #: Attempts to store messages for a retry, by group, topic and status.
        self.retried: Counter[tuple[str, ...]] = Counter()
        #: Duration of the scans of the check points in memory, ms.
        self.scans = Histogram(_SCAN_ENDS_MS)

    def put(self, key: PointKey, kind: ReviveKind, refusal: BrokerError | None) -> None:
        """Count a message that was stored in the revive topic, or refused."""
        self.came[key.group, key.topic, kind, _status(refusal)] += 1

    def count_read(self, key: PointKey, kind: ReviveKind, revive_queue: int) -> None:
        """Count a message that was read from the revive topic."""
        self.went[key.group, key.topic, str(revive_queue), kind] += 1

    def retry(self, key: PointKey, refusal: BrokerError | None) -> None:
        """Count a message that was stored for a retry, or refused."""
        self.retried[key.group, key.topic, _status(refusal)] += 1

    def forget_gone(self, broker: Broker) -> None:
        """Forget topics and groups that no longer exist."""
        for counts in (self.came, self.went, self.retried):
            for labels in [labels for labels in counts
                           if broker.topic_config.get(labels[1]) is None
                           or not broker.subscription_group.has(labels[0])]:
                del counts[labels]
