"""Sends the due messages of a slave that stands in for its master to other masters.

Only one batch is in flight at a time. Messages that no other broker accepts are tried again after a
second, for as long as the slave stands in. After that they wait for the slave's own master.

Source: TimerMessageStore.doPut, EscapeBridge.putMessage @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.plugins.timer.records import timed_again

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from twistmq.broker.api import Broker, BrokerError, MessageRecord

__all__ = ["RemoteSender"]

#: The time from a failure to the next attempt, ms.
_AGAIN_MS: Final = 1000


class RemoteSender:
    """Sends the messages of one broker to other brokers."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: The last batch that was sent, and the part of it that is left; None while it is awaited.
        self._batch: list[MessageRecord] | None = None
        self._remaining: list[MessageRecord] | None = None
        self._again_ms = 0
        #: Whether a batch is in flight, and whether the last batch was not accepted completely.
        self.is_waiting = self.is_failing = False

    def has(self, records: list[MessageRecord]) -> bool:
        """Whether this batch was sent and its result was not fetched yet."""
        return self._batch is records

    def store(self, records: list[MessageRecord]) -> list[MessageRecord]:
        """Send a batch, or fetch the result of sending it.

        :returns: the records that are not stored yet, for the next call. This is the batch itself
            while it is in flight, or waits for the previous batch or for the next attempt.
        """
        if not self.is_waiting and not self.has(records) and (
                self._broker.steady.now_ms() >= self._again_ms):
            self._send(records)
        if self.is_waiting or not self.has(records):
            return records
        remaining, self._batch = self._remaining, None
        return records if remaining is None else remaining

    def _send(self, records: list[MessageRecord]) -> None:
        escape = self._broker.escape
        if escape is None:
            return
        sent = [timed_again(each) if each.topic == TIMER_TOPIC else each for each in records]
        # Set only now, so that an earlier failure leaves nothing that would be awaited.
        self._batch, self._remaining, self.is_waiting = records, None, True
        escape(sent).addCallbacks(self._answered, self._failed, callbackArgs=(records,))

    def _answered(
        self, refusals: dict[int, BrokerError], records: list[MessageRecord]
    ) -> None:
        self._remaining = [records[index] for index in sorted(refusals)]
        if refusals and not self.is_failing:
            self.log.warn("timed messages cannot be stored on other brokers: {error}",
                          error=str(next(iter(refusals.values()))))
        self._end(bool(refusals))

    def _failed(self, failure: Failure) -> None:
        self.log.failure("timed messages cannot be stored on other brokers", failure)
        self._end(True)

    def _end(self, is_failing: bool) -> None:
        self.is_waiting, self.is_failing = False, is_failing
        if is_failing:
            self._again_ms = self._broker.steady.now_ms() + _AGAIN_MS
