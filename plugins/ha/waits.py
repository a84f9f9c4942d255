"""Sends that wait for slaves, under SYNC_MASTER.

A message is safe when ``inSyncReplicas`` brokers have it, this one counted: when so many slaves
have reported its end. One report answers all sends below it.

Source: GroupTransferService, CommitLog.handleHA @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush, nlargest
from itertools import count
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from twistmq.broker.api import ResponseCode
from twistmq.broker.api.requests import Stage

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ReplicaWaits"]


class ReplicaWaits:
    """The waits of one master.

    :param acked: lists up to where each slave that is connected has the log.
    """

    def __init__(self, broker: Broker, acked: Callable[[], Iterable[int]]) -> None:
        self._settings = broker.settings
        self._steady_ms = broker.steady.now_ms
        self._acked = acked
        #: Up to here enough slaves have the log.
        self._safe = 0
        #: A heap of (end of the record, number, when it is given up, what fires).
        self._waiting: list[tuple[int, int, int, Deferred[None]]] = []
        self._numbers = count()
        #: Sends that waited for slaves, and those of them that waited too long.
        self.waits = self.timeouts = 0

    def stage(self) -> Stage:
        """The condition that each send has to meet."""
        return Stage(self.begin, ResponseCode.FLUSH_SLAVE_TIMEOUT,
                     lambda: self._settings.int("slaveTimeout"))

    @property
    def count(self) -> int:
        """The sends that wait."""
        return len(self._waiting)

    @property
    def _slaves(self) -> int:
        """How many slaves must have a message."""
        return self._settings.int("inSyncReplicas") - 1

    def begin(self, offset: int) -> Deferred[None] | None:
        """Wait until enough slaves have the log up to ``offset``; None: they have, or need not."""
        if self._slaves < 1 or offset <= self._safe:
            return None
        self.waits += 1
        waiting: Deferred[None] = Deferred()
        due_ms = self._steady_ms() + self._settings.int("slaveTimeout")
        heappush(self._waiting, (offset, next(self._numbers), due_ms, waiting))
        return waiting

    def reported(self) -> None:
        """Slaves have more or less than before: answer the sends that are safe now."""
        needed = self._slaves
        best = nlargest(needed, self._acked()) if needed > 0 else []
        self._safe = best[-1] if len(best) == needed and best else 0
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._safe:
            heappop(waiting)[3].callback(None)

    def expire(self) -> None:
        """Forget the sends that were answered because they waited too long; periodic."""
        waiting, now_ms = self._waiting, self._steady_ms()
        while waiting and waiting[0][2] <= now_ms:
            heappop(waiting)
            self.timeouts += 1

    def release(self) -> None:
        """The role changed: no send waits any longer for what may never come."""
        waiting, self._waiting = self._waiting, []
        self._safe = 0
        for _, _, _, fires in waiting:
            fires.errback(RuntimeError("the role of the broker changed"))
