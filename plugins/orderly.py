"""The queue locks of ordered consumers: requests 41 and 42.

Members of a group may disagree for a moment about who owns a queue, for example while a member
joins. In ordered consumption, two members would then process messages of the same queue at the same
time. The broker therefore grants a lock of each queue to one member at a time.

An ordered consumer locks the queues that it works on, renews the locks every 20 s, and releases
them when it leaves. A lock that is not renewed for 60 s (``orderly.lock_age_max``) expires. A
client whose connection is lost keeps its locks until then, because it may still be processing a
message.

Source: RebalanceLockManager, AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.api import (
    AnyHandler,
    EmptyHeader,
    IQueueLocks,
    PeriodicTask,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
    Setting,
    hookimpl,
)
from twistmq.broker.api.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from twistmq.broker.api.limits import CLIENT_ID_LENGTH_MAX, LOCK_BODY_SIZE_MAX
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.topics import group_fault

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["LOCK_AGE_MAX_MS", "Plugin", "QueueLocks"]

#: The maximum number of queues in the body of a request. Locking all of them takes some 20 ms.
#: Apache has no limit.
#: A topic may have as many queues as one request can name.
LOCK_QUEUES_MAX: Final = 16_384
#: Limit of bytes of the locks of all groups, enough for a thousand groups with 200 queues each.
LOCKS_BYTES_MAX: Final = 80 * 1024 * 1024
#: A known group may have this many locks even beyond the limit, so that a consumer with the usual
#: number of queues can work although other groups used up the memory. About 30,000 groups can be
#: known, which amounts to 160 MiB at most.
LOCKS_FREE: Final = 16
#: Measured size of a lock without its names, with a margin; and size of a character outside ASCII.
_LOCK_BYTES: Final = 300
_CHARACTER_BYTES: Final = 4
#: Limit of characters in a broker's name: directory names of its host are not longer.
_BROKER_NAME_LENGTH_MAX: Final = 255
#: Interval of the search for expired locks, ms.
_EXPIRE_PERIOD_MS: Final = 60_000
#: The default of the time after which a lock that was not renewed expires, ms.
#: Source: rocketmq.broker.rebalance.lockMaxLiveTime.
LOCK_AGE_MAX_MS: Final = 60_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Records which client of a group works on which queue.

    :param age_max_ms: the time after which a lock that is not renewed expires.

    ``now_ms`` is a time of the clock that is used to measure the silence of peers.
    """

    log = Logger()

    def __init__(self, age_max_ms: int = LOCK_AGE_MAX_MS) -> None:
        self._age_max_ms = age_max_ms
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._lines = LimitedLog(self.log)
        #: The time of the latest call that passed one.
        self._now_ms = 0
        self.count = 0
        #: The approximate size of all locks.
        self.size_bytes = 0

    def is_lock_all_expired(self, group: str, now_ms: int) -> bool:
        """Whether no client of a group holds a lock."""
        return all(self._is_expired(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def _is_expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._age_max_ms

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int,
        is_known: bool = False,
    ) -> tuple[MessageQueue, ...]:
        """Lock queues, or renew existing locks.

        :param is_known: whether the group exists; then it may always have LOCKS_FREE locks.
        :returns: the queues that the client holds now, without duplicates. Missing queues belong to
            another client, or there are too many locks.
        :raises RequestRefused: SYSTEM_BUSY when no queue is locked because there are too many.
        """
        self._now_ms = now_ms
        locks = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        new: list[MessageQueue] = []
        expired: list[tuple[MessageQueue, str]] = []
        refused: list[tuple[MessageQueue, str]] = []
        left_out = 0
        free = LOCKS_FREE if is_known else 0
        for queue in dict.fromkeys(queues):
            lock = locks.get(queue)
            if lock is None:
                if (self.size_bytes + _size(queue, client_id) > LOCKS_BYTES_MAX
                        and len(locks) >= free):
                    left_out += 1
                    continue
                locks[queue] = _Lock(client_id, now_ms)
                self._count(1, _size(queue, client_id))
                new.append(queue)
            elif lock.client_id == client_id:
                lock.renewed_ms = now_ms
            elif self._is_expired(lock, now_ms):
                expired.append((queue, lock.client_id))
                self._count(0, _size(queue, client_id) - _size(queue, lock.client_id))
                lock.client_id = client_id
                lock.renewed_ms = now_ms
            else:
                refused.append((queue, lock.client_id))
                continue
            held.append(queue)
        if not locks:
            del self._groups[group]
        if new:
            self._lines.info(
                now_ms, "{group} locks {queue}{more} for {client}", group=group, queue=new[0],
                more=_and_more(new), client=client_id)
        if expired:
            self._lines.warn(
                now_ms, "{client} of {group} takes {queue}{more}: the lock of {holder} expired",
                client=client_id, group=group, queue=expired[0][0], holder=expired[0][1],
                more=_and_more(expired))
        if refused:
            # This happens for a moment when the queues of a group are rebalanced.
            self._lines.info(
                now_ms, "{client} of {group} does not get {queue}{more}: {holder} holds it",
                client=client_id, group=group, queue=refused[0][0],
                holder=refused[0][1], more=_and_more(refused))
        if left_out:
            self._lines.warn(
                now_ms, "{client} of {group} does not get {left_out} queues: there are {count} "
                "locks already", client=client_id, group=group, left_out=left_out,
                count=self.count)
            if not held:
                raise RequestRefused(ResponseCode.SYSTEM_BUSY,
                                     f"there are {self.count} locks of queues already")
        return tuple(held)

    def _count(self, locks: int, size: int) -> None:
        """Change the counts of locks and bytes."""
        self.count += locks
        self.size_bytes += size

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release queues; a queue that another client holds stays locked."""
        locks = self._groups.get(group, {})
        unlocked: list[MessageQueue] = []
        others: list[tuple[MessageQueue, str]] = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id != client_id:
                others.append((queue, lock.client_id if lock else "nobody"))
                continue
            del locks[queue]
            self._count(-1, -_size(queue, client_id))
            unlocked.append(queue)
        if not locks:
            self._groups.pop(group, None)
        if unlocked:
            self._lines.info(
                self._now_ms, "{client} of {group} unlocks {queue}{more}", client=client_id,
                group=group, queue=unlocked[0], more=_and_more(unlocked))
        if others:
            # This happens after a restart of this broker, which forgets the locks.
            self._lines.info(
                self._now_ms, "{client} of {group} unlocks {queue}{more}, but {holder} holds the "
                "lock", client=client_id, group=group, queue=others[0][0],
                holder=others[0][1], more=_and_more(others))

    def expire(self, now_ms: int) -> None:
        """Remove the expired locks; periodic."""
        self._now_ms = now_ms
        for group, locks in list(self._groups.items()):
            expired = [queue for queue, lock in locks.items() if self._is_expired(lock, now_ms)]
            if not expired:
                continue
            self._lines.info(now_ms, "locks of {group} on {queue}{more} expired", group=group,
                             queue=expired[0], more=_and_more(expired))
            for queue in expired:
                self._count(-1, -_size(queue, locks.pop(queue).client_id))
            if not locks:
                del self._groups[group]


def _size(queue: MessageQueue, client_id: str) -> int:
    """Return the approximate size of a lock, assuming that it does not share its names."""
    return _LOCK_BYTES + sum(
        len(text) if text.isascii() else _CHARACTER_BYTES * len(text)
        for text in (queue.topic, queue.broker_name, client_id))


def _and_more(queues: Sequence[object]) -> str:
    """Format the number of queues besides the one that a log line names."""
    return f" and {len(queues) - 1} more" if len(queues) > 1 else ""


class LockRequests:
    """The lock handlers of one broker.

    With ``lockInStrictMode`` the plugin ha asks the other brokers of a group as well.

    Differs from Apache: only queues of existing topics are locked.
    """

    log = Logger()

    def __init__(self, broker: Broker, age_max_ms: int) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self.locks = QueueLocks(age_max_ms)

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.LOCK_BATCH_MQ, self.lock, EmptyHeader,
                           body_size_max=LOCK_BODY_SIZE_MAX),
            RequestHandler(RequestCode.UNLOCK_BATCH_MQ, self.unlock, EmptyHeader,
                           body_size_max=LOCK_BODY_SIZE_MAX),
        ]

    def lock(self, request: Request[EmptyHeader]) -> Reply:
        body = LockBatchRequestBody.decode(request.body)
        group, client_id = _required(body)
        queues = [queue for queue in body.mq_set if self._may_exist(queue)]
        if len(queues) < len(body.mq_set):
            self._lines.warn(
                request.now_ms, "{peer} cannot lock {count} queues of topics that do not exist",
                peer=request.channel.remote_address, count=len(body.mq_set) - len(queues))
        held = self.locks.lock(group, client_id, queues, self._broker.steady.awake_ms(),
                               self._broker.subscription_group.has(group))
        return Reply(body=LockBatchResponseBody(held).encode())

    def unlock(self, request: Request[EmptyHeader]) -> Reply:
        body = UnlockBatchRequestBody.decode(request.body)
        group, client_id = _required(body)
        self.locks.unlock(group, client_id, body.mq_set)
        return Reply()

    def _may_exist(self, queue: MessageQueue) -> bool:
        """Whether a queue may exist; a static topic may use numbers beyond its physical queues."""
        return (len(queue.broker_name) <= _BROKER_NAME_LENGTH_MAX
                and self._broker.topic_config.get(queue.topic) is not None)


def _required(body: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    """Return the group and the client id of a request.

    :raises RequestRefused: when one of them is missing or invalid, or the body is too large.
    """
    if not body.consumer_group or not body.client_id:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             "the body has no consumerGroup or no clientId")
    fault = group_fault(body.consumer_group)
    if fault is None and len(body.client_id) > CLIENT_ID_LENGTH_MAX:
        fault = f"the clientId is longer than {CLIENT_ID_LENGTH_MAX} characters"
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    if len(body.mq_set) > LOCK_QUEUES_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"the body names {len(body.mq_set)} queues, more than {LOCK_QUEUES_MAX}")
    return body.consumer_group, body.client_id


_SETTINGS: Final = (
    Setting("orderly.lock_age_max", "int", LOCK_AGE_MAX_MS,
            "The time after which a queue whose lock was not renewed is given to the next member "
            "that asks; read at start. Clients renew their locks every 20 s, and stop working on a "
            "queue 30 s after the last successful renewal. Corresponds to Apache's system property "
            "rocketmq.broker.rebalance.lockMaxLiveTime.", unit="ms", least=1000, at_start=True),
)


@implementer(IQueueLocks)
class Plugin:
    """The queue locks of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._requests = LockRequests(broker, broker.settings.int("orderly.lock_age_max"))
        self.locks = self._requests.locks

    def keeps_order(self, group: str) -> bool:
        """See IQueueLocks."""
        return not self.locks.is_lock_all_expired(group, self._broker.steady.awake_ms())

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return self._requests.handlers()

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        return (PeriodicTask("forget expired locks", _EXPIRE_PERIOD_MS, _EXPIRE_PERIOD_MS,
                             lambda _: self.locks.expire(self._broker.steady.awake_ms())),)
