"""Optional limits of the messages per second that a client may send, or that a topic may receive.

The messages of one second may arrive at once. Further messages are refused with SYSTEM_BUSY, and
the allowance is refilled evenly, so a client that sends evenly at the rate is never refused.

Apache's broker has no such limits.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import (
    BrokerError,
    RequestRefused,
    ResponseCode,
    Setting,
    Settings,
    SettingsError,
    hookimpl,
)
from twistmq.broker.api.wire import whole_number

if TYPE_CHECKING:
    from twistmq.broker.api import SendBatch

__all__ = ["RATE_SETTINGS", "TOPIC_RATES", "RateLimits", "read_topic_rates"]

CLIENT_RATE: Final = "flow_control.client_rate_max"
TOPIC_RATE: Final = "flow_control.topic_rate_max"
TOPIC_RATES: Final = "flow_control.topic_rates"

RATE_SETTINGS: Final = (
    Setting(CLIENT_RATE, "int", 0,
            "The number of messages that one connection may send; 0: unlimited.",
            unit="messages/s"),
    Setting(TOPIC_RATE, "int", 0,
            "The number of messages that all clients together may send to a topic that "
            "flow_control.topic_rates does not name; 0: unlimited.", unit="messages/s"),
    Setting(TOPIC_RATES, "names", (),
            "The limits of single topics, as TOPIC=MESSAGES; 0: unlimited."),
)


def read_topic_rates(settings: Settings) -> dict[str, int]:
    """Read the setting; :raises SettingsError: when a part of it is not TOPIC=MESSAGES."""
    rates: dict[str, int] = {}
    for part in settings.names(TOPIC_RATES):
        topic, _, number = part.rpartition("=")
        rate = whole_number(number)
        if not topic or rate is None:
            raise SettingsError(f"{TOPIC_RATES}: {part} is not TOPIC=MESSAGES")
        rates[topic] = rate
    return rates


class RateLimits:
    """The counts of one broker; registered as a plugin while a limit is set."""

    def __init__(self, settings: Settings) -> None:
        self._client_rate = settings.int(CLIENT_RATE)
        self._topic_rate = settings.int(TOPIC_RATE)
        self._topic_rates = read_topic_rates(settings)
        #: Client or topic to (remaining allowance, the time of its computation in Unix ms).
        self._allowances: dict[Hashable, tuple[float, int]] = {}
        self.refused = 0

    @property
    def is_any(self) -> bool:
        return bool(self._client_rate or self._topic_rate or any(self._topic_rates.values()))

    @hookimpl
    def before_send(self, batch: SendBatch) -> Mapping[int, BrokerError] | None:
        refusals: dict[int, BrokerError] = {}
        for index, request in enumerate(batch.requests):
            if batch.replies[index] is not None or not batch.records[index]:
                continue
            count = sum(record.message_count for record in batch.records[index])
            topic: str = request.header.topic
            topic_rate = self._topic_rates.get(topic, self._topic_rate)
            if topic_rate and not self._may(topic, topic_rate, count, request.now_ms):
                refusals[index] = _busy(f"the topic {topic}", topic_rate)
            elif self._client_rate and not self._may(
                request.channel.channel_id, self._client_rate, count, request.now_ms
            ):
                # The allowance of the topic stays reduced; it is refilled within a second.
                refusals[index] = _busy("a client", self._client_rate)
        self.refused += len(refusals)
        return refusals or None

    def _may(self, who: Hashable, rate: int, count: int, now_ms: int) -> bool:
        """Return whether a client may send this many messages now, and count them if so."""
        allowance, then_ms = self._allowances.get(who, (float(rate), now_ms))
        allowance = min(rate, allowance + max(0, now_ms - then_ms) * rate / 1000)
        # A batch larger than a second's allowance passes when the full allowance is available.
        is_allowed = allowance >= min(count, rate)
        # Requests that were read later may have been run earlier.
        self._allowances[who] = (
            allowance - count if is_allowed else allowance, max(then_ms, now_ms))
        return is_allowed

    def forget(self, now_ms: int) -> None:
        """Forget entries unused for a second, since their allowance is full again; periodic."""
        self._allowances = {
            who: (allowance, then_ms) for who, (allowance, then_ms) in self._allowances.items()
            if now_ms - then_ms <= 1000 or allowance < 0}


def _busy(who: str, rate: int) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_BUSY,
        f"[RATE_LIMIT]{who} may send {rate} messages a second, start flow control for a while")
