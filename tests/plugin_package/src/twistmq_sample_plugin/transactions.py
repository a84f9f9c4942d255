"""Half messages in the smallest form: kept in a topic no consumer reads, ended by their producer.

There are no checks back to producers: a half message whose producer says nothing stays one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zope.interface import implementer

from twistmq.broker.api import (
    Broker,
    ITransactionService,
    MessageRecord,
    Reply,
    Request,
    RequestRefused,
    ResponseCode,
    StoredMessage,
    decode_record,
    format_properties,
)
from twistmq.broker.api.headers import EndTransactionRequestHeader
from twistmq.broker.api.wire import index_keys, tags_code

__all__ = ["Transactions"]

HALF_TOPIC: Final = "SAMPLE_HALF"
_REAL_TOPIC: Final = "SAMPLE_REAL_TOPIC"
_REAL_QUEUE: Final = "SAMPLE_REAL_QUEUE"
_COMMIT, _ROLL_BACK = 8, 12


@implementer(ITransactionService)
class Transactions:
    """Takes half messages and ends them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Places of half messages that were ended: what is ended stays so.
        self._ended: set[int] = set()

    def prepare(self, record: MessageRecord, properties: Mapping[str, str]) -> None:
        record.properties = format_properties({
            **properties, _REAL_TOPIC: record.topic, _REAL_QUEUE: str(record.queue_id)})
        record.topic, record.queue_id = HALF_TOPIC, 0

    def end(self, request: Request[EndTransactionRequestHeader]) -> Reply:
        """Make a half message a whole one, or give it up."""
        offset = request.header.commit_log_offset
        stored = self._broker.store.look_message(offset)
        message = decode_record(stored) if stored else None
        if message is None or message.topic != HALF_TOPIC or offset in self._ended:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no half message at {offset}")
        if request.header.commit_or_rollback == _COMMIT:
            for error in self._broker.append([self._whole(message)]).values():
                raise error
        elif request.header.commit_or_rollback == _ROLL_BACK:
            assert stored is not None
            self._broker.hooks.half_message_discarded(stored)
        else:
            return Reply()
        self._ended.add(offset)
        return Reply()

    @staticmethod
    def _whole(message: StoredMessage) -> MessageRecord:
        fields = message.properties_map()
        topic, queue_id = fields.pop(_REAL_TOPIC), int(fields.pop(_REAL_QUEUE))
        fields.pop("TRAN_MSG", None)
        return MessageRecord(
            topic, queue_id, message.body, format_properties(fields), message.born_timestamp,
            message.born_host, message.store_host, index_keys(fields),
            tags_code(fields.get("TAGS")), message.flag, message.sys_flag)
