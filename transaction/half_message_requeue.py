"""RESUME_CHECK_HALF_MESSAGE (323): an administrator requests further checks of a half message.

It is usually a message that was given up. A copy of it, with no checks counted, is stored in the
half topic.

Source: AdminBrokerProcessor.resumeCheckHalfMessage @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, Reply, Request, StoredMessage, decode_record
from twistmq.broker.api.errors import MessageIllegal
from twistmq.broker.api.headers import ResumeCheckHalfMessageRequestHeader
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from twistmq.broker.api.wire import parse_offset_message_id
from twistmq.broker.api.wire import properties as names
from twistmq.transaction.half_message import resumed_record

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.transaction.metrics import TransactionMetrics

__all__ = ["ResumeCheck"]

_FAILED: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_NOT_FOUND: Final = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class ResumeCheck:
    """The handler of one broker."""

    log = Logger()

    def __init__(self, broker: Broker, metrics: TransactionMetrics) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._metrics = metrics

    def handle(self, request: Request[ResumeCheckHalfMessageRequestHeader]) -> Reply:
        """Put a half message back.

        :raises BrokerError: when no message has this id, or the copy cannot be stored.
        """
        message = self._find(request.header.msg_id or "")
        record = resumed_record(message)
        for error in self._broker.append([record]).values():
            self._lines.warn(
                request.now_ms, "half message at {place} cannot be put back: {error}",
                place=message.physical_offset, error=str(error))
            raise BrokerError(_FAILED)
        self._broker.stats.messages_put([record])
        if message.topic == CHECK_MAX_TIME_TOPIC:
            self._metrics.add({message.properties_map()[names.REAL_TOPIC]: 1})
        self._lines.info(request.now_ms, "half message at {place} is put back, at {offset}",
                         place=message.physical_offset, offset=record.queue_offset)
        return Reply()

    def _find(self, message_id: str) -> StoredMessage:
        """:raises BrokerError: when no half message has this id."""
        try:
            log_offset = parse_offset_message_id(message_id)[2]
        except MessageIllegal:
            raise BrokerError(_NOT_FOUND) from None
        data = self._broker.store.look_message(log_offset)
        message = None if data is None else decode_record(data)
        if message is None or message.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
            raise BrokerError(_NOT_FOUND)
        return message
