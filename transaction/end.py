"""END_TRANSACTION (37): a producer says how its local transaction ended.

A commit stores the message in its own topic and queue; commit and rollback note that the half
message needs no more checks; "not known" changes nothing, and the check asks again.

Source: EndTransactionProcessor @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import BrokerError, RequestRefused
from twistmq.broker.remoting import Reply, Request
from twistmq.broker.topic_names import HALF_TOPIC
from twistmq.broker.wire import properties as names
from twistmq.broker.wire.headers.transaction import EndTransactionRequestHeader
from twistmq.broker.wire.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_ROLLBACK,
    StoredMessage,
    decode_record,
)
from twistmq.transaction.half import final_record, immunity_ms, origin_of

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel
    from twistmq.transaction.service import TransactionService

__all__ = ["EndTransaction"]

_ENDS: Final = (SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK)


class EndTransaction:
    """The handler of one broker."""

    log = Logger()

    def __init__(self, kernel: Kernel, service: TransactionService) -> None:
        self._kernel = kernel
        self._service = service

    def handle(self, request: Request[EndTransactionRequestHeader]) -> Reply | None:
        """End a transaction.

        :returns: None, no reply, when the producer says that it does not know.
        :raises BrokerError: when there is no such half message, or it cannot be committed now.
        """
        header = request.header
        if self._kernel.is_slave:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave ends no transactions")
        if header.commit_or_rollback not in _ENDS:
            self.log.debug("{peer} does not know how {transaction} ended: {remark}",
                           peer=request.channel.remote_address, transaction=header.transaction_id,
                           remark=request.command.remark)
            return None
        message = self._find(header.commit_log_offset)
        properties = message.properties_map()
        self._require_in_time(header, message, properties, request.now_ms)
        _require_same(header, message, properties)
        origin = origin_of(message, properties)
        before = self._service.how_ended(message.queue_id, origin)
        if before is not None:
            # Differs from Apache, which delivers a message as often as it is committed.
            if before != header.commit_or_rollback:
                raise BrokerError("The transaction has ended otherwise")
            return Reply()
        if header.commit_or_rollback == SYS_TRANSACTION_COMMIT:
            self._commit(message)
        self._service.ended(message.queue_id, message.queue_offset, origin,
                            properties.get(names.REAL_TOPIC, ""), header.commit_or_rollback)
        return Reply()

    def _find(self, place: int) -> StoredMessage:
        """:raises BrokerError: when there is no half message at this place."""
        data = self._kernel.store.look_message(place)
        message = None if data is None else decode_record(data)
        if message is None or message.topic != HALF_TOPIC:
            raise BrokerError("Find prepared transaction message failed")
        return message

    def _require_in_time(
        self, header: EndTransactionRequestHeader, message: StoredMessage,
        properties: dict[str, str], now_ms: int,
    ) -> None:
        """:raises RequestRefused: when a producer that set its own time for the first check has
            let it pass; it is asked.
        """
        timeout_ms = self._kernel.settings.int("transactionTimeOut")
        own_ms = immunity_ms(properties, timeout_ms)
        if (own_ms is not None and not header.from_transaction_check
                and now_ms - message.born_timestamp > max(own_ms, timeout_ms)):
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                "the message's own time for its first check is over, its producer will be asked")

    def _commit(self, message: StoredMessage) -> None:
        """:raises BrokerError: when the message cannot be stored; it stays half."""
        record = final_record(message)
        topic = record.topic
        for error in self._kernel.append([record]).values():
            raise error
        self._kernel.stats.messages_put({topic: (record.message_count, record.size)})


def _require_same(
    header: EndTransactionRequestHeader, message: StoredMessage, properties: dict[str, str]
) -> None:
    """:raises BrokerError: when the half message is not the one that is meant."""
    group = properties.get(names.PGROUP)
    if group is None or group != header.producer_group:
        raise BrokerError("The producer group wrong")
    if message.queue_offset != header.tran_state_table_offset:
        raise BrokerError("The transaction state table offset wrong")
    if message.physical_offset != header.commit_log_offset:
        raise BrokerError("The commit log offset wrong")
