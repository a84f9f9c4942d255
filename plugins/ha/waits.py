"""Sends that wait for slaves, under SYNC_MASTER.

A message is safe when ``inSyncReplicas`` brokers have it, including this one; the number of slaves
that must have reported the end of the message is therefore smaller by one. The required number is
fixed when the message is sent. A single report can complete all earlier sends that wait for the
same number of slaves.

Source: GroupTransferService, CommitLog.handleHA @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from twistmq.broker.api import ResponseCode
from twistmq.broker.api.requests import Stage
from twistmq.plugins.replica.offset_waits import OffsetWaits

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ReplicaWaits"]


class ReplicaWaits:
    """The waiting sends of one master.

    :param acked: lists how far each connected slave has the log.
    """

    def __init__(self, broker: Broker, acked: Callable[[], Iterable[int]]) -> None:
        self._settings = broker.settings
        self._steady_ms = broker.steady.now_ms
        self._acked = acked
        #: Returns how many brokers must have a message that is sent now, including this one.
        self.required_count: Callable[[], int] = lambda: self._settings.int("inSyncReplicas")
        #: How far slaves have the log, the largest offset first.
        self._best: list[int] = []
        #: The waits by the number of slaves that must have the record.
        self._waiting: dict[int, OffsetWaits] = {}
        #: The number of sends that waited for slaves, and the number that waited too long.
        self.waits = self.timeouts = 0

    def stage(self) -> Stage:
        """Make the condition that each send has to meet."""
        return Stage(self.begin, ResponseCode.FLUSH_SLAVE_TIMEOUT,
                     lambda: self._settings.int("slaveTimeout"))

    @property
    def count(self) -> int:
        """The number of sends that wait."""
        return sum(map(len, self._waiting.values()))

    def _safe(self, slaves: int) -> int:
        """Return the offset up to which this number of slaves have the log."""
        return self._best[slaves - 1] if len(self._best) >= slaves else 0

    def begin(self, offset: int) -> Deferred[None] | None:
        """Wait until enough slaves have the log up to ``offset``; None if no wait is needed."""
        slaves = self.required_count() - 1
        if slaves < 1 or offset <= self._safe(slaves):
            return None
        self.waits += 1
        due_ms = self._steady_ms() + self._settings.int("slaveTimeout")
        waiting = self._waiting.get(slaves)
        if waiting is None:
            waiting = self._waiting[slaves] = OffsetWaits()
        return waiting.wait(offset, due_ms)

    def reported(self) -> None:
        """Complete the sends that are safe now, after the offsets of slaves have changed."""
        self._best = sorted(self._acked(), reverse=True)
        for slaves, waiting in list(self._waiting.items()):
            waiting.end_up_to(self._safe(slaves))

    def expire(self) -> None:
        """Drop the sends whose response was sent because they waited too long; periodic."""
        now_ms = self._steady_ms()
        for waiting in self._waiting.values():
            self.timeouts += waiting.drop_late(now_ms)

    def release(self) -> None:
        """End all waits after a change of role, because their slaves may never report."""
        waiting, self._waiting = self._waiting, {}
        self._best = []
        for each in waiting.values():
            each.fail_all(RuntimeError("the role of the broker changed"))
