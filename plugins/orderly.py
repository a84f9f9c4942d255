"""Queue locks of consumers that keep order: 41, 42.

A consumer that keeps order locks the queues it works on, asks again every 20 s, and gives them
back when it leaves. A lock nobody renewed for 60 s counts for nothing. A client that is lost keeps
its locks until then: it may be in the middle of a message on a connection that only broke.

Source: RebalanceLockManager, AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from twistmq.broker import hookimpl
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.remoting import AnyHandler, Reply, Request, RequestHandler
from twistmq.broker.wire.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from twistmq.broker.wire.header import EmptyHeader

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["LOCK_AGE_MAX_MS", "QueueLocks", "find_queue_locks"]

#: A lock that was not renewed for longer than this is free, ms.
#: Source: rocketmq.broker.rebalance.lockMaxLiveTime.
LOCK_AGE_MAX_MS: Final = 60_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return now_ms - self.renewed_ms > LOCK_AGE_MAX_MS


class QueueLocks:
    """Which client of a group works on which queue."""

    log = Logger()

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def is_lock_all_expired(self, group: str, now_ms: int) -> bool:
        """Whether no client of a group holds a queue."""
        return all(lock.is_expired(now_ms) for lock in self._groups.get(group, {}).values())

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> tuple[MessageQueue, ...]:
        """Lock queues, or renew what is locked.

        :returns: those the client holds now; the others are another client's.
        """
        return tuple(queue for queue in queues if self._lock_one(group, client_id, queue, now_ms))

    def _lock_one(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        locks = self._groups.setdefault(group, {})
        lock = locks.get(queue)
        if lock is None:
            locks[queue] = _Lock(client_id, now_ms)
            self.log.info("{group} locks {queue} for {client}", group=group, queue=queue,
                          client=client_id)
            return True
        if lock.client_id != client_id:
            if not lock.is_expired(now_ms):
                self.log.warn("{client} of {group} does not get {queue}: {holder} holds it",
                              client=client_id, group=group, queue=queue, holder=lock.client_id)
                return False
            self.log.warn("{client} of {group} takes {queue}: the lock of {holder} expired",
                          client=client_id, group=group, queue=queue, holder=lock.client_id)
            lock.client_id = client_id
        lock.renewed_ms = now_ms
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give queues back; one that another client holds stays locked."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id != client_id:
                self.log.warn("{client} of {group} gives back {queue}, which {holder} holds",
                              client=client_id, group=group, queue=queue,
                              holder=lock.client_id if lock else "nobody")
                continue
            del locks[queue]
            self.log.info("{client} of {group} gives back {queue}", client=client_id, group=group,
                          queue=queue)
        if not locks:
            self._groups.pop(group, None)


class LockRequests:
    """The handlers of locks.

    Differs from Apache: ``lockInStrictMode`` asks nobody else, because this broker has no replicas
    that could hold locks.
    """

    def __init__(self) -> None:
        self.locks = QueueLocks()

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.LOCK_BATCH_MQ, self.lock, EmptyHeader),
            RequestHandler(RequestCode.UNLOCK_BATCH_MQ, self.unlock, EmptyHeader),
        ]

    def lock(self, request: Request[EmptyHeader]) -> Reply:
        body = LockBatchRequestBody.decode(request.body)
        group, client_id = _required(body)
        held = self.locks.lock(group, client_id, body.mq_set, request.now_ms)
        return Reply(body=LockBatchResponseBody(held).encode())

    def unlock(self, request: Request[EmptyHeader]) -> Reply:
        body = UnlockBatchRequestBody.decode(request.body)
        group, client_id = _required(body)
        self.locks.unlock(group, client_id, body.mq_set)
        return Reply()


def _required(body: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    """:raises RequestRefused: when it is not said who wants something."""
    if not body.consumer_group or not body.client_id:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             "the body names no consumerGroup or no clientId")
    return body.consumer_group, body.client_id


def find_queue_locks(kernel: Kernel) -> QueueLocks | None:
    """The locks of a running broker, for other plugins.

    :returns: None when this plugin does not serve the broker's lock requests.
    """
    row = kernel.dispatcher.handlers.get(RequestCode.LOCK_BATCH_MQ)
    requests = getattr(row.handle, "__self__", None) if row else None
    return requests.locks if isinstance(requests, LockRequests) else None


@hookimpl
def register_request_handlers() -> Sequence[AnyHandler]:
    """A broker's own rows; its locks live in them."""
    return LockRequests().handlers()
