"""Queue locks that need a majority of the brokers of a group, for lockInStrictMode.

Ordered consumers lock their queues at the broker that is shown as the master. While a slave takes
the master's place, or gives it back, consumers may ask two different brokers. With this setting the
broker that is asked grants a lock only if more than half of totalReplicas do, including itself.

Source: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    Handled,
    Reply,
    Request,
    RequestCode,
    ResponseCode,
)
from twistmq.broker.api.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from twistmq.broker.api.requests import now_or_later

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.acting_master import ActingMaster

__all__ = ["StrictLocks"]

#: How long the response of another broker may take, ms. Source: AdminBrokerProcessor.lockBatchMQ.
_TIMEOUT_MS: Final = 1000


class StrictLocks:
    """The handlers of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ of one broker of a group.

    :param acting: knows the brokers of the group.
    """

    log = Logger()

    def __init__(self, broker: Broker, acting: ActingMaster) -> None:
        self._broker = broker
        self._acting = acting

    def rows(self, handlers: Mapping[int, AnyHandler]) -> list[AnyHandler]:
        """Return the handlers that also ask the group; none if slaves do not stand in."""
        if not self._acting.is_on:
            return []
        return [replace(handlers[code], handle=wrap(handlers[code]))
                for code, wrap in ((RequestCode.LOCK_BATCH_MQ, self._locking),
                                   (RequestCode.UNLOCK_BATCH_MQ, self._unlocking))
                if code in handlers]

    @property
    def _others(self) -> list[str]:
        own_id = self._broker.broker_id
        return [address for broker_id, address in sorted(self._acting.members.items())
                if broker_id != own_id]

    # --- locking

    def _locking(self, row: AnyHandler) -> Any:
        inner = row.handle

        def handle(request: Request[Any]) -> Handled:
            reply = inner(request)
            quorum = self._broker.settings.int("totalReplicas") // 2 + 1
            if quorum <= 1 or not self._broker.settings.flag("lockInStrictMode") or not (
                    isinstance(reply, Reply)):
                return reply
            body = LockBatchRequestBody.decode(request.body)
            if body.only_this_broker:
                return reply
            held = LockBatchResponseBody.decode(reply.body).lock_ok_mq_set
            return now_or_later(Deferred.fromCoroutine(self._lock(body, held, quorum)))

        return handle

    async def _lock(
        self, body: LockBatchRequestBody, held: tuple[MessageQueue, ...], quorum: int
    ) -> Reply:
        """Ask the group for the queues that this broker has locked."""
        lock_body = LockBatchRequestBody(body.consumer_group, body.client_id, True, held).encode()
        counts = Counter(held)
        answers = await gatherResults([
            Deferred.fromCoroutine(self._ask_lock(address, lock_body))
            for address in (self._others if held else ())])
        for answer in answers:
            counts.update(set(answer))
        return Reply(body=LockBatchResponseBody(tuple(
            queue for queue in held if counts[queue] >= quorum)).encode())

    async def _ask_lock(self, address: str, body: bytes) -> tuple[MessageQueue, ...]:
        """:returns: the queues that another broker locked; none when it does not answer."""
        try:
            reply = await self._broker.host.ask_server(
                address, RequestCode.LOCK_BATCH_MQ, None, body, timeout_ms=_TIMEOUT_MS)
            if reply.code == ResponseCode.SUCCESS:
                return LockBatchResponseBody.decode(reply.body).lock_ok_mq_set
            fault = f"it answered {reply.code}: {reply.remark or 'no remark'}"
        except BrokerError as error:
            fault = str(error)
        self.log.warn("the broker at {address} does not lock queues: {fault}", address=address,
                      fault=fault)
        return ()

    # --- unlocking

    def _unlocking(self, row: AnyHandler) -> Any:
        inner = row.handle

        def handle(request: Request[Any]) -> Handled:
            reply = inner(request)
            if self._broker.settings.flag("lockInStrictMode"):
                body = UnlockBatchRequestBody.decode(request.body)
                if not body.only_this_broker:
                    # The client does not wait for the responses of the group.
                    unlock_body = UnlockBatchRequestBody(
                        body.consumer_group, body.client_id, True, body.mq_set).encode()
                    for address in self._others:
                        Deferred.fromCoroutine(self._tell_unlock(address, unlock_body))
            return reply

        return handle

    async def _tell_unlock(self, address: str, body: bytes) -> None:
        try:
            await self._broker.host.ask_server(
                address, RequestCode.UNLOCK_BATCH_MQ, None, body, timeout_ms=_TIMEOUT_MS)
        except BrokerError as error:
            self.log.warn("the broker at {address} does not unlock queues: {error}",
                          address=address, error=str(error))
