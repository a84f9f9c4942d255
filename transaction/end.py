"""END_TRANSACTION (37): a producer reports the outcome of its local transaction.

A commit stores the message in its own topic and queue. Both commit and rollback record that the
half message needs no further checks. The outcome "not known" changes nothing, and the next check
asks again.

Source: EndTransactionProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from twistmq.broker.api import (
    BrokerError,
    Handled,
    MessageRecord,
    Reply,
    Request,
    RequestRefused,
    ResponseCode,
    StoredMessage,
    decode_record,
)
from twistmq.broker.api.headers import EndTransactionRequestHeader
from twistmq.broker.api.topics import HALF_TOPIC
from twistmq.broker.api.wire import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK
from twistmq.broker.api.wire import properties as names
from twistmq.transaction.half_message import (
    born_ms,
    final_record,
    immunity_ms,
    origin_of,
    require_same,
)
from twistmq.transaction.recent import Half

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.transaction.service import TransactionService

__all__ = ["End", "EndTransaction"]

_ENDS: Final = (SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK)


class _HasEnded(Exception):
    """The transaction has already ended with the requested outcome."""


class End(NamedTuple):
    """The end of a transaction."""

    #: Id of the half queue, and queue offset of the original half message.
    key: tuple[int, int]
    #: Queue offset of the half message that the request names, which may be a copy.
    offset: int
    #: The offset of this half message in the commit log.
    log_offset: int
    #: The real topic of the message.
    topic: str
    how: int
    #: The message to store, or None for a rollback.
    record: MessageRecord | None


class EndTransaction:
    """The handler of one broker."""

    log = Logger()

    def __init__(self, broker: Broker, service: TransactionService) -> None:
        self._broker = broker
        self._service = service

    def handle(self, request: Request[EndTransactionRequestHeader]) -> Handled:
        """End a transaction."""
        return self.handle_batch([request])[0]

    def handle_batch(
        self, requests: Sequence[Request[EndTransactionRequestHeader]]
    ) -> Sequence[Handled]:
        """End the transactions of one network read, and store their commits with one append.

        :returns: an answer to each request, or None for no reply when the producer reports that the
            outcome is not known.
        """
        answers: list[Handled] = []
        #: (half queue, original offset) to (index of the request, end).
        ends: dict[tuple[int, int], tuple[int, End]] = {}
        for index, request in enumerate(requests):
            answers.append(None)
            try:
                end = self._look(request)
                if end is not None and end.key in ends:
                    # The first of these requests decides the outcome.
                    self._store(ends, answers)
                    ends.clear()
                    end = self._look(request)
                if end is not None:
                    ends[end.key] = index, end
            except BrokerError as error:
                answers[index] = Reply(error.response_code, remark=str(error))
            except _HasEnded:
                answers[index] = Reply()
        self._store(ends, answers)
        return answers

    def _look(self, request: Request[EndTransactionRequestHeader]) -> End | None:
        """Find the half message that a request ends.

        :returns: the end of the transaction, or None when the producer does not know the outcome.
        :raises BrokerError: when the half message does not exist, or has another outcome already.
        """
        header = request.header
        if self._broker.is_slave:
            raise RequestRefused(
                ResponseCode.SLAVE_NOT_AVAILABLE, "a slave does not end transactions")
        how = header.commit_or_rollback
        if how not in _ENDS:
            self.log.debug("{peer} does not know how {transaction} ended: {remark}",
                           peer=request.channel.remote_address, transaction=header.transaction_id,
                           remark=request.command.remark)
            return None
        log_offset, offset = header.commit_log_offset, header.tran_state_table_offset
        message, properties = self._service.recent.find(log_offset) or self._read(log_offset)
        if names.CHECK_IMMUNITY_TIME_IN_SECONDS in properties:
            self._require_in_time(header, message, properties, request.now_ms)
        require_same(message, properties, header.producer_group, offset, log_offset)
        self._broker.require_access(
            request, publishes=(properties.get(names.REAL_TOPIC, ""),))
        key = message.queue_id, origin_of(message, properties)
        earlier_end = self._service.how_ended(key)
        if earlier_end is not None:
            # Differs from Apache, which delivers a message as often as it is committed.
            if earlier_end != how:
                raise BrokerError("The transaction has ended otherwise")
            raise _HasEnded
        record = None
        if how == SYS_TRANSACTION_COMMIT:
            record = final_record(message, properties)
            record.queue_id = self._broker.topic_config.shown_queue(record.topic, record.queue_id)
        return End(key, offset, log_offset, properties.get(names.REAL_TOPIC, ""), how, record)

    def _store(
        self, ends: Mapping[tuple[int, int], tuple[int, End]], answers: list[Handled]
    ) -> None:
        """Store the commits and record the ends; a message that is refused stays a half message."""
        commits = [(index, end.record) for index, end in ends.values() if end.record is not None]
        refused: dict[int, BrokerError] = {}
        ended: list[End] = []
        if commits:
            refusals = self._broker.append([record for _, record in commits])
            refused = {commits[number][0]: error for number, error in refusals.items()}
            self._broker.stats.messages_put(
                [record for index, record in commits if index not in refused])
        for index, end in ends.values():
            error = refused.get(index)
            if error is not None:
                answers[index] = Reply(error.response_code, remark=str(error))
            else:
                answers[index] = Reply()
                ended.append(end)
        self._service.ended(ended)

    def _read(self, log_offset: int) -> Half:
        """:raises BrokerError: when there is no half message at this offset."""
        data = self._broker.store.look_message(log_offset)
        message = None if data is None else decode_record(data)
        if message is None or message.topic != HALF_TOPIC:
            raise BrokerError("Find prepared transaction message failed")
        return Half(message, message.properties_map())

    def _require_in_time(
        self, header: EndTransactionRequestHeader, message: StoredMessage | MessageRecord,
        properties: Mapping[str, str], now_ms: int,
    ) -> None:
        """:raises RequestRefused: when a producer that set its own time for the first check has
            let it pass; the producer will be asked.
        """
        timeout_ms = self._broker.settings.int("transactionTimeOut")
        own_ms = immunity_ms(properties, timeout_ms)
        if (own_ms is not None and not header.from_transaction_check
                and now_ms - born_ms(message) > max(own_ms, timeout_ms)):
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                "the message's own time for its first check is over, its producer will be asked")
