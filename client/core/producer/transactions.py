"""Transactions: half messages, their outcomes, and the checks that brokers make.

A half message is stored but hidden until its producer reports the outcome of its local transaction.
If the broker gets no report, it asks this producer, or any other producer of its group. The report
is a one-way request: if it is lost, the broker asks as well.

Checks are answered one after the other, at the address that asked. At most ``HELD_MAX`` checks
wait; a check that is dropped is sent again.

Source: DefaultMQProducerImpl (sendMessageInTransaction, endTransaction, checkTransactionState),
TransactionMQProducer, ClientRemotingProcessor.checkTransactionState @5.3.3. Differs from Apache: a
delay on a half message is an error, and is not silently ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from twistmq.client.base.errors import Busy, NoRoute, NotSafe, OptionError, RemotingError
from twistmq.client.base.handlers import Decision
from twistmq.client.base.messages import Message, MessageQueue, ReceivedMessage, SendResult
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.engine import Connection
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.producer.outgoing_message import OutgoingMessage
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.properties import PGROUP, TRAN_MSG
from twistmq.protocol.record import SYS_TRANSACTION_PREPARED, decode_record

__all__ = ["HELD_MAX", "Checks", "end_half", "prepare_half", "send_half"]

log = logging.getLogger("twistmq.client")

#: The maximum number of waiting checks. Source: TransactionMQProducer.checkRequestHoldMax.
HELD_MAX: Final = 2000
#: The maximum size of the bodies of their messages, in bytes.
HELD_BYTES_MAX: Final = 64 << 20


def prepare_half(sender: Sender, message: Message) -> OutgoingMessage:
    """Check and encode a half message.

    :raises OptionError: when it is not valid, when it has a delay or a priority, or when
        ``on_check`` is not set.
    """
    if sender.checks is None:
        raise OptionError("a transaction needs the option on_check: a broker that is not "
                          "informed how it ended asks the group's producers")
    if message.is_timed:
        raise OptionError("a message of a transaction cannot have a delay")
    if message.priority is not None:
        raise OptionError("a message of a transaction cannot have a priority: brokers ignore it")
    ready = sender.prepare(message, {TRAN_MSG: "true", PGROUP: sender.group})
    ready.sys_flag |= SYS_TRANSACTION_PREPARED
    ready.may_be_batched = False
    return ready


async def send_half(
    sender: Sender, message: OutgoingMessage, queue: MessageQueue | None = None
) -> SendResult:
    """Store a half message.

    :raises NotSafe: when the broker did not wait for a flush or a slave; it is then rolled back.
    :raises SendFailed, RequestRefused: as for a send.
    """
    try:
        result = await sender.send(message, queue)
    except NotSafe as error:
        result = error.result
    if result.code != ResponseCode.SUCCESS:
        end_half(sender, result, Decision.ROLLBACK)
        raise NotSafe(result)
    return result


def end_half(sender: Sender, result: SendResult, decision: Decision) -> None:
    """Report the outcome of a transaction to the broker with a one-way request.

    If the broker cannot be reached, it will ask later; this is logged.
    """
    client = sender.client
    name = client.routes.broker_of(result.queue)
    header = EndTransactionRequestHeader(
        topic=client.namespace.topic(result.queue.topic), producer_group=sender.group,
        tran_state_table_offset=result.offset,
        commit_log_offset=parse_offset_message_id(result.offset_id)[2],
        commit_or_rollback=decision.value, msg_id=result.id,
        transaction_id=result.transaction_id or result.id, broker_name=name)
    try:
        client.engine.send_oneway(
            client.routes.master(name), RequestCode.END_TRANSACTION, header)
    except (NoRoute, RemotingError) as error:
        log.warning("the broker %s was not informed how the transaction %s ended, and will ask: "
                    "%s", name, result.id, error)


class Checks:
    """Answers the checks of transactions of a producer's group.

    :param sender: the producer.
    :param on_check: decides about a message; it runs outside of the engine.

    A shell that runs ``on_check`` in another way may replace ``decide``.
    """

    def __init__(
        self, sender: Sender, on_check: Callable[[ReceivedMessage[Any]], Any]
    ) -> None:
        self._client = sender.client
        self._group = sender.group
        self.on_check = on_check
        self.decide: Callable[[ReceivedMessage[Any]], Future[Any]] = self._decide_in_thread
        #: The waiting checks, by the asking address and the position of the half message.
        self._held: dict[
            tuple[str, int], tuple[CheckTransactionStateRequestHeader, ReceivedMessage[Any]]] = {}
        self._held_bytes = 0
        self._is_running = False
        sender.client.engine.handlers.setdefault(
            RequestCode.CHECK_TRANSACTION_STATE, partial(_serve, sender.client))

    def _decide_in_thread(self, message: ReceivedMessage[Any]) -> Future[Any]:
        return self._client.engine.in_thread(lambda: self.on_check(message))

    def asked(
        self, address: str, header: CheckTransactionStateRequestHeader,
        message: ReceivedMessage[Any],
    ) -> None:
        """Accept a check, unless it already waits.

        :raises Busy: when too many checks wait; the broker asks again.
        """
        if (address, header.commit_log_offset) in self._held:
            return
        size = len(message.record.body)
        if len(self._held) >= HELD_MAX or self._held_bytes + size > HELD_BYTES_MAX:
            raise Busy(ResponseCode.SYSTEM_BUSY, f"the check of {message!r} is dropped: "
                       f"{len(self._held)} checks with {self._held_bytes} bytes are waiting")
        self._held[(address, header.commit_log_offset)] = header, message
        self._held_bytes += size
        if not self._is_running:
            self._is_running = True
            self._client.tasks.spawn(self._run(), "transaction checks")

    async def _run(self) -> None:
        try:
            while self._held:
                key = next(iter(self._held))
                header, message = self._held[key]
                decision = await self._decision(message)
                del self._held[key]
                self._held_bytes -= len(message.record.body)
                self._answer(key[0], header, message, decision)
        finally:
            self._is_running = False

    async def _decision(self, message: ReceivedMessage[Any]) -> Decision:
        try:
            decision = await self.decide(message)
        except Exception:
            log.warning("on_check failed for %r", message, exc_info=True)
            return Decision.UNKNOWN
        if hasattr(decision, "__await__"):
            if isinstance(decision, Coroutine):
                decision.close()
            log.warning("on_check returned an awaitable for %r, which is not awaited: in "
                        "twistmq.client.aio and twistmq.client.tx, give a coroutine function",
                        message)
            return Decision.UNKNOWN
        if not isinstance(decision, Decision):
            log.warning("on_check returned %r for %r, not COMMIT, ROLLBACK or UNKNOWN",
                        decision, message)
            return Decision.UNKNOWN
        return decision

    def _answer(
        self, address: str, header: CheckTransactionStateRequestHeader,
        message: ReceivedMessage[Any], decision: Decision,
    ) -> None:
        answer = EndTransactionRequestHeader(
            topic=message.record.topic, producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset, commit_or_rollback=decision.value,
            from_transaction_check=True, msg_id=message.id,
            transaction_id=header.transaction_id, broker_name=header.broker_name)
        try:
            self._client.engine.send_oneway(address, RequestCode.END_TRANSACTION, answer)
        except RemotingError as error:
            log.warning("the outcome of %r was not sent to %s: %s", message, address, error)


def _serve(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Pass a broker's check to the producer of the message's group.

    :raises HeaderError, StoreDamaged: when the request is malformed.
    :raises Busy: when too many checks wait.
    :raises LookupError: when no producer of this client can answer.
    """
    header = request.header(CheckTransactionStateRequestHeader)
    record = decode_record(request.body)
    group = record.properties_map().get(PGROUP)
    queue = MessageQueue(client.namespace.without(record.topic), header.broker_name or "",
                         record.queue_id)
    for member in client.members:
        if isinstance(member, Sender) and member.group == group and member.checks is not None:
            message: ReceivedMessage[Any] = ReceivedMessage(
                record, queue, header.tran_state_table_offset, queue.topic)
            member.checks.asked(connection.address, header, message)
            return
    raise LookupError(f"the group {group} of the checked transaction has no producer with "
                      "on_check in this client")
