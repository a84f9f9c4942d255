"""Lets a slave that stood in for its master finish its work when the master returns.

The returning master asks how far the slave has come, and the answer cannot be finer than a slot of
the wheel. Therefore the slave has other brokers store the rest of the slot that it has begun, and
responds when they have done so. It does not begin another slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.timer.delivery import Delivery
    from twistmq.plugins.timer.dequeue import Dequeue
    from twistmq.plugins.timer.enqueue import Enqueue
    from twistmq.plugins.timer.follower import TimerFollower

__all__ = ["Handover"]


class Handover:
    """Knows which work one broker has to finish.

    :param due: stores the messages that ``dequeue`` finds due.
    :param late: stores the messages that are already due when they are entered.
    """

    def __init__(
        self, broker: Broker, following: TimerFollower, enqueue: Enqueue, dequeue: Dequeue,
        due: Delivery, late: Delivery,
    ) -> None:
        self._broker = broker
        self._following = following
        self._enqueue = enqueue
        self._dequeue = dequeue
        self._due, self._late = due.escaping, late.escaping
        self._waits: list[Deferred[None]] = []

    @property
    def is_on_its_way(self) -> bool:
        """Whether responses of other brokers are awaited."""
        return self._due.is_waiting or self._late.is_waiting

    @property
    def _has_slot(self) -> bool:
        return self._dequeue.is_within_slot and not self._due.is_failing

    @property
    def _has_late(self) -> bool:
        return not self._enqueue.is_whole and not self._late.is_failing

    @property
    def is_unsettled(self) -> bool:
        """Whether :meth:`step` has work, or responses of other brokers are awaited."""
        return bool(self._waits) or self._has_unsettled

    @property
    def _has_unsettled(self) -> bool:
        return self.is_on_its_way or (
            self._following.has_gone_on and self._broker.is_slave
            and (self._has_slot or self._has_late))

    def step(self) -> bool:
        """Finish some of the work; :returns: whether more can be done at once."""
        if self._has_unsettled:
            if self._has_slot:
                self._dequeue.step(self._enqueue.ready_ms)
            if self._has_late:
                self._enqueue.store_late()
        if not self._has_unsettled:
            waits, self._waits = self._waits, []
            for each in waits:
                each.callback(None)
            return False
        return not self.is_on_its_way

    def settled(self) -> Deferred[None]:
        """Wait until all work is finished."""
        if not self._has_unsettled:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waits.append(waiting)
        return waiting
