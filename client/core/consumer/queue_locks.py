"""Locks of queues, which ensure that one member at a time handles the messages of an ordered queue.

A broker grants a queue's lock to one member for 60 s. The member renews it every 20 s, and relies
on it for 30 s. Apache's broker handles requests of one connection on several threads, and it knows
members by their clients. A lock that is given back too late would therefore be taken from the next
member of the same client, so the response is awaited.

Source: RebalanceImpl (lock, lockAll, unlock), ProcessQueue, RebalanceLockManager @5.3.3.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from twistmq.client.base.errors import refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError

__all__ = ["Locks"]

log = logging.getLogger("twistmq.client")

#: The delay before the first renewal of all locks and the interval between renewals, in ms.
RENEW_FIRST_MS: Final = 1000
RENEW_MS: Final = 20_000
_TIMEOUT_MS: Final = 1000


class Locks:
    """The locks of a member.

    :param group: the group's name at brokers.
    :param queue_windows: returns the member's queues with their windows.
    """

    def __init__(
        self, client: ClientCore, group: str,
        queue_windows: Callable[[], list[tuple[MessageQueue, QueueWindow[Any]]]],
    ) -> None:
        self._client = client
        self._group = group
        self._queue_windows = queue_windows

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Request locks; :returns: the queues whose lock this member holds now."""
        tasks = [self._client.tasks.spawn(self._lock_at(name, each), "lock")
                 for name, each in self._by_broker(queues).items()]
        outcomes = await self._client.tasks.all_of(tasks)
        return {queue for outcome in outcomes if not isinstance(outcome, BaseException)
                for queue in outcome}

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        body = LockBatchRequestBody(consumer_group=self._group, client_id=self._client.client_id,
                                    mq_set=tuple(queues)).encode_standard()
        try:
            reply = await self._ask(broker_name, RequestCode.LOCK_BATCH_MQ, body)
            return set(LockBatchResponseBody.decode_reply(reply).lock_ok_mq_set)
        except BrokerError as error:
            log.warning("no locks from broker %s: %s", broker_name, error)
            return set()

    async def renew_always(self) -> None:
        """Renew all locks every 20 s."""
        await self._client.tasks.sleep(RENEW_FIRST_MS)
        loop = Loop(f"the renewal of the locks of group {self._group}", None)
        while True:
            await loop.turn(self.renew())
            await self._client.tasks.sleep(RENEW_MS)

    async def renew(self) -> None:
        """Renew the locks of all queues of the member."""
        windows = [(queue, window) for queue, window in self._queue_windows()
                   if not window.is_dropped]
        if not windows:
            return
        locked = await self.lock([queue for queue, _ in windows])
        for queue, window in windows:
            if queue in locked:
                window.locked(int(self._client.tasks.now_ms))
            else:
                window.unlocked()

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; the wait for the brokers takes at most a second."""
        await self._client.tasks.all_of(
            [self._client.tasks.spawn(self._unlock_at(name, each), "unlock")
             for name, each in self._by_broker(queues).items()])

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(
            consumer_group=self._group, client_id=self._client.client_id,
            mq_set=tuple(queues)).encode_standard()
        try:
            await self._ask(broker_name, RequestCode.UNLOCK_BATCH_MQ, body)
        except BrokerError as error:
            log.warning("the locks of broker %s were not given back: %s", broker_name, error)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        """Group queues by the names of their brokers."""
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[self._client.routes.broker_of(queue)].append(queue)
        return by_broker

    async def _ask(self, broker_name: str, code: RequestCode, body: bytes) -> bytes:
        """Send a request to the master of a broker, and return the body of its reply.

        :raises BrokerError: when there is no reply, or the broker refuses the request.
        """
        address = self._client.routes.master(broker_name)
        reply = await self._client.engine.invoke(address, code, None, body, timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return reply.body
