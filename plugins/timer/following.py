"""Timed messages on a slave: the wheel is filled as far as the master's, and nothing delivered.

A slave copies its master's check point. It enters messages of the timer topic up to the queue
offset in it, and forgets slots that the master has delivered. So a slave that becomes master goes
on where its master was: what the master delivered after its last copied check point comes twice,
and no message is lost.

Source: TimerMessageStore with brokerRole=SLAVE, SlaveSynchronize.syncTimerCheckPoint @5.3.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twistmq.broker.api.errors import WireError
from twistmq.plugins.timer.checkpoint import VALUES_SIZE, TimerCheckpoint

if TYPE_CHECKING:
    from twistmq.plugins.timer.checkpoint import TimerCheckpointFile
    from twistmq.plugins.timer.dequeue import Dequeue
    from twistmq.plugins.timer.enqueue import Enqueue
    from twistmq.plugins.timer.timer_log import TimerLog
    from twistmq.plugins.timer.wheel import TimerWheel

__all__ = ["Following"]


class Following:
    """Keeps the timers of one broker where its master's are."""

    def __init__(
        self, wheel: TimerWheel, timer_log: TimerLog, checkpoint: TimerCheckpointFile,
        enqueue: Enqueue, dequeue: Dequeue,
    ) -> None:
        self._wheel = wheel
        self._timer_log = timer_log
        self._checkpoint = checkpoint
        self._enqueue = enqueue
        self._dequeue = dequeue
        #: The last copied check point, until this broker is a master and has reached it.
        self._master: TimerCheckpoint | None = None

    def take(self, body: bytes) -> None:
        """Take the master's check point.

        :raises WireError: when it is not one.
        """
        if len(body) < VALUES_SIZE:
            raise WireError(f"a timer check point has {VALUES_SIZE} bytes, not {len(body)}")
        master = TimerCheckpoint.decode(body)
        if master.last_read_ms < 0 or master.master_timer_queue_offset < 0:
            raise WireError(f"there cannot be such a timer check point: {master}")
        self._master = master
        own = self._checkpoint.values
        self._checkpoint.values = replace(
            own, state_version=master.state_version, timestamp=master.timestamp,
            counter=master.counter)

    @property
    def is_behind(self) -> bool:
        """Whether messages that the master has entered are not entered here."""
        return self._master is not None and (
            self._enqueue.offset < self._master.master_timer_queue_offset
            and self._enqueue.behind > 0)

    def step(self, now_ms: int) -> bool:
        """Enter some of what the master has entered; :returns: whether there may be more."""
        if self._master is None:
            return False
        self._move()
        return self.is_behind and self._enqueue.follow(
            self._master.master_timer_queue_offset, now_ms)

    def _move(self) -> None:
        """Forget the slots that the master has delivered, unless it entered less than this broker.

        What was entered here alone is not delivered, whatever time the master has reached.
        """
        master = self._master
        assert master is not None
        if master.master_timer_queue_offset < self._enqueue.offset:
            return
        read_ms = self._wheel.floor_ms(master.last_read_ms)
        if read_ms < self._dequeue.read_ms:
            self._rebuild(read_ms)
        self._dequeue.pass_to(read_ms)
        self._enqueue.ready_ms = read_ms

    def _rebuild(self, read_ms: int) -> None:
        """Put slots back that are delivered here and not on the master, as after a lost tail."""
        self._wheel.forget()
        for position, unit in self._timer_log.units(self._timer_log.begin, self._timer_log.end):
            if unit.slot_ms >= read_ms:
                self._wheel.add(position, unit)

    def end(self, now_ms: int) -> None:
        """This broker is a master that has reached the check point: it goes on by itself."""
        if self._master is not None:
            self._move()
            self._master = None
            self._enqueue.go_on(now_ms)
