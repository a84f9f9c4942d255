"""Timed messages on a slave: the wheel is filled as far as the master's, without deliveries.

When a master is lost, its slave must deliver the remaining timed messages, and must neither repeat
the delivered ones nor miss any. The slave therefore copies its master's check point. It enters
messages of the timer topic up to the queue offset in the check point, and forgets slots that the
master has delivered. A slave that becomes master can then continue where its master was. It also
searches its copy of the log for messages that the master delivered after the last copied check
point, so that no message is delivered twice and none is lost.

With enableSlaveActingMaster a slave that stands in for its master continues in the same way. The
returning master then adopts the progress that the slave has made.

Source: TimerMessageStore with brokerRole=SLAVE, SlaveSynchronize.syncTimerCheckPoint @5.3.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from twistmq.broker.api.bodies import next_counter
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.plugins.timer.checkpoint import VALUES_SIZE, TimerCheckpoint

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.timer.checkpoint import TimerCheckpointFile
    from twistmq.plugins.timer.delivered import Delivered
    from twistmq.plugins.timer.dequeue import Dequeue
    from twistmq.plugins.timer.enqueue import Enqueue
    from twistmq.plugins.timer.timer_log import TimerLog
    from twistmq.plugins.timer.wheel import TimerWheel

__all__ = ["TimerFollower"]

#: The number of changes that a lost master may have counted after its last copied check point.
_COUNTS_MORE: Final = 60
#: How far the clock of another broker may be ahead, ms.
_CLOCKS_DIFFER_MS: Final = 3_600_000


class TimerFollower:
    """Keeps the timers of one broker at the progress of its master."""

    def __init__(
        self, broker: Broker, wheel: TimerWheel, timer_log: TimerLog,
        checkpoint: TimerCheckpointFile, enqueue: Enqueue, dequeue: Dequeue, delivered: Delivered,
    ) -> None:
        self._broker = broker
        self._wheel = wheel
        self._timer_log = timer_log
        self._checkpoint = checkpoint
        self._enqueue = enqueue
        self._dequeue = dequeue
        self._delivered = delivered
        #: The last copied check point, until this broker is a master and has reached it.
        self._master: TimerCheckpoint | None = None
        #: The check point for which the delivered slots were forgotten last.
        self._moved_to: TimerCheckpoint | None = None
        #: Whether this broker has continued on its own after the last copied check point.
        self.has_gone_on = False
        #: The ends of the local log when the last two check points were taken, the latest first.
        self._ends = (0, 0)
        #: When the last check point was taken, on the clock for durations, ms.
        self._received_ms = 0

    def begin(self) -> None:
        """Start to follow; the store is already loaded."""
        self._ends = (self._broker.store.raw.whole_offset,) * 2

    def take(self, body: bytes) -> None:
        """Adopt the master's check point.

        :raises WireError: when the body is not a check point.
        """
        master = self._decoded(body)
        self._master = master
        self.has_gone_on = False
        self._received_ms = self._broker.steady.now_ms()
        # This check point was requested after the previous one was taken.
        self._ends = (self._broker.store.raw.whole_offset, self._ends[0])
        self._take_version(master)

    def _be_newer(self) -> None:
        """Make the version newer than that of the lost master, which counts one change a second."""
        values = self._checkpoint.values
        silent_ms = self._broker.steady.now_ms() - self._received_ms
        self._checkpoint.values = replace(
            values, counter=next_counter(values.counter, silent_ms // 1000 + _COUNTS_MORE),
            timestamp=self._broker.now_ms())

    def _take_version(self, other: TimerCheckpoint) -> None:
        self._checkpoint.values = replace(
            self._checkpoint.values, state_version=other.state_version, timestamp=other.timestamp,
            counter=other.counter)

    def take_back(self, body: bytes) -> None:
        """Adopt the check point of a slave that stood in for this master and delivered messages.

        Without an escape a slave does not deliver any messages. Apache's slave then gives them up,
        and reports the same check point.

        :raises WireError: when the body is not a check point.
        """
        slave = self._decoded(body)
        broker = self._broker
        if broker.escape is None or slave.master_timer_queue_offset > (
                broker.store.queues.max_offset(TIMER_TOPIC, 0)):
            return
        self._delivered.take(slave.master_timer_queue_offset, slave.last_read_ms)
        if _version(slave) > _version(self._checkpoint.values):
            self._take_version(slave)

    @property
    def is_behind(self) -> bool:
        """Whether the master has entered messages that are not entered here."""
        return self._master is not None and (
            self._enqueue.offset < self._master.master_timer_queue_offset
            and self._enqueue.backlog > 0)

    @property
    def has_master(self) -> bool:
        """Whether a copied check point counts until :meth:`end`."""
        return self._master is not None

    @property
    def has_news(self) -> bool:
        """Whether :meth:`step` has not handled the last copied check point yet."""
        return self._master is not self._moved_to

    def _decoded(self, body: bytes) -> TimerCheckpoint:
        """:raises WireError: when the body is not a check point of the past."""
        if len(body) < VALUES_SIZE:
            raise WireError(f"a timer check point has {VALUES_SIZE} bytes, not {len(body)}")
        checkpoint = TimerCheckpoint.decode(body)
        # A message that seems to be delivered already would never be delivered here.
        if checkpoint.master_timer_queue_offset < 0 or not (
                0 <= checkpoint.last_read_ms <= self._broker.now_ms() + _CLOCKS_DIFFER_MS):
            raise WireError(f"this timer check point is not possible: {checkpoint}")
        return checkpoint

    def step(self, now_ms: int) -> bool:
        """Enter some of the master's messages; :returns: whether there may be more."""
        self._moved_to = self._master
        if self._master is None:
            return False
        self._move()
        return self.is_behind and self._enqueue.follow(
            self._master.master_timer_queue_offset, now_ms)

    def _move(self) -> None:
        """Forget the slots that the master has delivered, unless it entered less than this broker.

        Messages that were entered only here are not delivered, whatever time the master has
        reached.
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
        """Restore slots that were delivered here but not on the master, as after a lost log end."""
        self._wheel.forget()
        for position, unit in self._timer_log.units(self._timer_log.begin, self._timer_log.end):
            if unit.slot_ms >= read_ms:
                self._wheel.add(position, unit)

    def end(self, now_ms: int) -> None:
        """Continue without the master: this broker delivers, and has reached the check point."""
        if self._master is not None:
            self._move()
            self._master = None
            self._enqueue.go_on(now_ms)
            self._delivered.look_from(self._ends[1])
            if self._broker.is_slave:
                self._be_newer()
        self.has_gone_on = True


def _version(values: TimerCheckpoint) -> tuple[int, int, int]:
    """The numbers that order two check points. Source: DataVersion.compare @5.3.3."""
    return values.state_version, values.counter, values.timestamp
