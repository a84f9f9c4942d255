"""Acknowledgements of popped messages, and changes of the time for which they are hidden.

    acknowledge    200051, or 200151 for many of one broker at once; again every second
    change         200053: hide for longer or shorter; the message gets a new receipt

Acknowledgements for one broker that arrive while an earlier request is in flight are sent together.
If a broker does not know batches, it gets single acknowledgements. An ordered group also uses
single ones, because the response to a batch does not report on single messages. An acknowledgement
waits for a change in flight, because it would otherwise carry the old receipt.

A receipt whose time is over is no longer valid, because the broker may have given the message to
another member. Therefore nothing is sent for it.

Source: AckMessageRequestHeader, BatchAckMessageRequestBody, ChangeInvisibleTimeRequestHeader,
MQClientAPIImpl @5.3.3. Differs from Apache: its client sends no batches of acknowledgements, and
does not retry any of them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from twistmq.client.base.errors import NoRoute, ReceiptExpired, RemotingError, Unsupported, refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.client.core.pop.receipts import batch_of
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

__all__ = ["Acknowledger"]

log = logging.getLogger("twistmq.client")

#: The maximum number of acknowledgements in one request.
BATCH_MAX: Final = 256
#: The wait before an acknowledgement is tried again, in ms.
AGAIN_MS: Final = 1000


class _Entry:
    """An acknowledgement that is not finished."""

    __slots__ = ("future", "is_patient", "message", "tries")

    def __init__(self, message: PoppedMessage[Any], is_patient: bool) -> None:
        self.message = message
        #: Whether it is retried until the receipt's time is over.
        self.is_patient = is_patient
        self.tries = 0
        self.future: Future[None] = Future()


class Acknowledger:
    """The acknowledgements and changes of one member.

    :param group: the group's name at brokers.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        #: The waiting acknowledgements by broker name.
        self._lines: dict[str, deque[_Entry]] = {}
        self._sending: dict[str, Task[None]] = {}
        #: The brokers that do not know batches.
        self._single: set[str] = set()
        #: The number of acknowledgements without a response.
        self.count = 0

    # --- acknowledgements

    def add(self, message: PoppedMessage[Any], *, is_patient: bool = True) -> Future[None]:
        """Acknowledge a message soon.

        :param is_patient: retry while the receipt is valid, not only ``options.retries`` times.
        :returns: a future that is done when the broker has accepted it; its errors are
            ``ReceiptExpired`` and other types of ``BrokerError``.
        """
        entry = _Entry(message, is_patient)
        self.count += 1
        self._queue(entry)
        return entry.future

    def _queue(self, entry: _Entry) -> None:
        name = entry.message.queue.broker_name
        self._lines.setdefault(name, deque()).append(entry)
        if name not in self._sending:
            self._sending[name] = self._client.tasks.spawn(self._send_all(name), "acknowledgements")

    async def _send_all(self, name: str) -> None:
        line = self._lines[name]
        try:
            while line:
                entries = [line.popleft() for _ in range(min(len(line), BATCH_MAX))]
                ready = [entry for entry in entries if await self._is_ready(entry)]
                if ready:
                    await self._send(name, ready)
        finally:
            del self._sending[name]

    async def _is_ready(self, entry: _Entry) -> bool:
        """Wait for a change of a message; :returns: whether its receipt is still valid."""
        await self._settled(entry.message)
        if entry.message.expires_ms > self._client.tasks.now_ms:
            return True
        self._end(entry, expired([entry.message]))
        return False

    async def _send(self, name: str, entries: list[_Entry]) -> None:
        """Send acknowledgements to one broker, together if possible."""
        alone = [entry for entry in entries if not entry.message.receipt.may_be_batched]
        together = [entry for entry in entries if entry not in alone]
        if len(together) == 1 or name in self._single:
            alone, together = entries, []
        if together:
            body = batch_of([entry.message for entry in together], self._group,
                            self._client.namespace.topic)
            try:
                await self._ask(name, RequestCode.BATCH_ACK_MESSAGE, None, body)
            except Unsupported:
                self._single.add(name)
                alone += together
            except BrokerError as error:
                for entry in together:
                    self._failed(entry, error)
            else:
                for entry in together:
                    self._end(entry, None)
        await self._client.tasks.all_of(
            [self._client.tasks.spawn(self._send_one(name, entry), "acknowledgement")
             for entry in alone])

    async def _send_one(self, name: str, entry: _Entry) -> None:
        message = entry.message
        header = AckMessageRequestHeader(
            consumer_group=self._group, topic=message.line.topic, queue_id=message.line.queue_id,
            extra_info=message.receipt.text, offset=message.receipt.offset)
        try:
            await self._ask(name, RequestCode.ACK_MESSAGE, header)
        except BrokerError as error:
            self._failed(entry, error)
        else:
            self._end(entry, None)

    def _failed(self, entry: _Entry, error: BrokerError) -> None:
        """Try again later, or give up."""
        entry.tries += 1
        again = isinstance(error, RemotingError | NoRoute) or error.retriable
        if again and not self._client.is_closed and (
                entry.is_patient or entry.tries <= self._client.options.retries):
            self._client.tasks.call_later(AGAIN_MS if entry.is_patient
                                     else self._client.options.retry_wait_ms, self._queue, entry)
        else:
            self._end(entry, error)

    def _end(self, entry: _Entry, error: BaseException | None) -> None:
        self.count -= 1
        if error is None:
            entry.future.set_result(None)
        else:
            entry.future.set_error(error)

    async def flush(self) -> None:
        """Wait until every acknowledgement has ended."""
        while self.count:
            sending = list(self._sending.values())
            if sending:
                await self._client.tasks.all_of(sending)
            else:
                await self._client.tasks.sleep(AGAIN_MS)

    # --- changes

    async def change(self, message: PoppedMessage[Any], invisible_ms: float) -> None:
        """Hide a message for ``invisible_ms`` from now on; it gets a new receipt.

        :raises ReceiptExpired: when its time is already over.
        :raises RequestRefused, RemotingError, NoRoute: when the broker did not change it.
        """
        await self._settled(message)
        now_ms = self._client.tasks.now_ms
        if message.expires_ms <= now_ms:
            raise expired([message])
        changing = message.changing = Future()
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group, topic=message.line.topic, queue_id=message.line.queue_id,
            extra_info=message.receipt.text, offset=message.receipt.offset,
            invisible_time=int(invisible_ms))
        try:
            reply = await self._ask(
                message.queue.broker_name, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
            answer = reply.header(ChangeInvisibleTimeResponseHeader)
            message.receipt = message.receipt.changed(answer)
            message.expires_ms = now_ms + invisible_ms
            message.requested_invisible_ms = invisible_ms
        finally:
            message.changing = None
            changing.set_result(None)

    async def change_all(
        self, messages: Sequence[PoppedMessage[Any]], invisible_ms: float
    ) -> list[BaseException]:
        """Hide messages for another period; :returns: the errors."""
        outcomes = await self._client.tasks.all_of([
            self._client.tasks.spawn(self.change(message, invisible_ms), "change of a time")
            for message in messages])
        return [each for each in outcomes if isinstance(each, BaseException)]

    async def _settled(self, message: PoppedMessage[Any]) -> None:
        """Wait until no change of a message is in flight."""
        while message.changing is not None:
            await message.changing

    async def _ask(
        self, name: str, code: int, header: CommandHeader | None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to a master; :raises BrokerError: when it does not answer or refuses."""
        address = self._client.routes.master(name)
        reply = await self._client.engine.invoke(
            address, code, header, body, timeout_ms=self._client.options.timeout_ms)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return reply


def expired(messages: Sequence[PoppedMessage[Any]]) -> ReceiptExpired:
    """Return the error for messages whose receipts are no longer valid."""
    return ReceiptExpired("the invisible time of these messages is over, so they will be delivered "
                          "again: " + ", ".join(map(repr, messages)))
