"""Stores due messages: the only module that returns them to the log or sends them to brokers.

Source: TimerMessageStore.doPut @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from twistmq.broker.api import ResponseCode
from twistmq.plugins.timer.remote_sender import RemoteSender

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MessageRecord

__all__ = ["Delivery"]


class Delivery:
    """Stores the due messages of one broker."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Messages delivered, or rolled, since the start.
        self.count = 0
        #: Sends messages to other brokers while this slave stands in for its master.
        self.escaping = RemoteSender(broker)
        self._is_failing = False

    def append(self, records: list[MessageRecord]) -> list[MessageRecord]:
        """Store records; a record that can never be stored is logged and given up.

        Differs from Apache, which gives up after three attempts unless a setting prevents it.

        :returns: the records that could not be stored now, for the next call.
        """
        if not records:
            return []
        if self._broker.is_slave or self.escaping.has(records):
            remaining = self.escaping.store(records)
            self.count += len(records) - len(remaining)
            return remaining
        return self._append(records)

    def _append(self, records: list[MessageRecord]) -> list[MessageRecord]:
        refusals = self._broker.append(records)
        stored: list[MessageRecord] = []
        remaining: list[MessageRecord] = []
        for index, record in enumerate(records):
            error = refusals.get(index)
            if error is None:
                stored.append(record)
            elif error.response_code == ResponseCode.MESSAGE_ILLEGAL:
                self.log.error("a timed message of {topic} is given up: {error}",
                               topic=record.topic, error=str(error))
            else:
                if not self._is_failing:
                    self.log.warn("timed messages cannot be delivered: {error}", error=str(error))
                self._is_failing = True
                remaining.append(record)
        if not remaining:
            self._is_failing = False
        self.count += len(records) - len(remaining)
        self._broker.stats.messages_put(stored)
        return remaining
