"""Recovery at a start: finds the offsets to continue at, and a wheel that matches them.

Timer log, wheel and check point are separate files, and a crash can leave them in the states of
different moments. Recovery decides how far to trust them, by the way in which the last run ended.

After a clean stop of this broker everything is as the check point states. After any other end of
this broker the check point still describes a single moment: the timer log is cut there, and later
messages are entered again. Apache's broker leaves a check point and a wheel of different moments,
however it ended. In that case the log is followed to its last unit, and messages that are in it are
not entered twice. Unless the stop was clean, the wheel is built again from the whole log, which
takes about a second for a million units.

Source: TimerMessageStore.recover, recoverAndRevise, reviseQueueOffset @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from twisted.logger import Logger

from twistmq.broker.api.topics import TIMER_TOPIC
from twistmq.plugins.timer.checkpoint import CLEAN, RUNNING, TimerCheckpointFile
from twistmq.plugins.timer.entered import UNKNOWN, queue_offset_of
from twistmq.plugins.timer.log_unit import UNIT_SIZE

if TYPE_CHECKING:
    from twistmq.broker.api.store import MessageStore
    from twistmq.plugins.timer.timer_log import TimerLog
    from twistmq.plugins.timer.wheel import TimerWheel

__all__ = ["TimerRecovery"]


class TimerRecovery:
    """A single recovery.

    :param store: the store, already loaded.
    :param checkpoint: the check point, already loaded, like the log's files and the wheel's slots
        from its time on.
    """

    log = Logger()

    def __init__(
        self, store: MessageStore, checkpoint: TimerCheckpointFile, wheel: TimerWheel,
        timer_log: TimerLog,
    ) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._wheel = wheel
        self._timer_log = timer_log
        #: The queue offset at which entering continues.
        self.queue_offset = 0
        #: Places of messages from that offset on that are already in the log.
        self.known_log_offsets: set[int] = set()
        #: Sums of ``LogUnit.change`` of the units in the wheel, by the hash of the real topic; None
        #: when they were not needed.
        self.counts: Counter[int] | None = None

    def run(self) -> None:
        """Find the offsets to continue at, and make wheel and log match them."""
        values, state = self._checkpoint.values, self._checkpoint.state
        timer_log = self._timer_log
        position = values.last_timer_log_flush_position
        if state and not self._fits(position):
            state = 0
        if state == CLEAN and timer_log.unit(timer_log.next_position(position)) is None:
            self.queue_offset = values.master_timer_queue_offset
            timer_log.resume(position)
            return
        if state == RUNNING:
            self.queue_offset = values.master_timer_queue_offset
            end = position
        else:
            end = self._follow(position)
        timer_log.truncate(end)
        count = self._make_wheel(end, values.last_read_ms)
        self.log.info("the timer wheel was rebuilt from {count} units: reading of the timer topic "
                      "continues at {offset}", count=count, offset=self.queue_offset)

    def _fits(self, position: int) -> bool:
        """Whether the log reaches as far as the check point states."""
        timer_log = self._timer_log
        last_end = timer_log.starts[-1] + timer_log.file_size if timer_log.starts else 0
        return position <= last_end and (bool(timer_log.starts) or position == 0)

    def _follow(self, position: int) -> int:
        """Find the end of a log that another broker wrote, and the offset to continue at.

        :param position: a position up to which the log was once durable.
        :returns: the end.
        """
        timer_log, store = self._timer_log, self._store
        begin = timer_log.begin
        if timer_log.starts and position > begin:
            # Start at the beginning of the previous file: a later position may be arbitrary.
            begin = max(begin, position - position % timer_log.file_size - timer_log.file_size)
        end = begin
        for at, unit in timer_log.units(begin, timer_log.end):
            if at >= position and (
                    queue_offset_of(store, unit) == UNKNOWN or unit.previous >= at):
                break
            end = at + UNIT_SIZE
        last = timer_log.unit(end - UNIT_SIZE) if end > begin else None
        last_offset = UNKNOWN if last is None else queue_offset_of(store, last)
        saved = self._checkpoint.values.master_timer_queue_offset
        self.queue_offset = saved if last_offset == UNKNOWN else min(saved, last_offset + 1)
        log_offset = store.queues.commit_log_offset(TIMER_TOPIC, 0, self.queue_offset)
        if log_offset >= 0:
            self.known_log_offsets = {unit.log_offset for _, unit in timer_log.units(begin, end)
                                      if unit.log_offset >= log_offset}
        return end

    def _make_wheel(self, end: int, read_ms: int) -> int:
        """Build the slots from a time on from the units; :returns: the number of units."""
        self._wheel.forget()
        count = 0
        counts = self.counts = Counter[int]()
        for position, unit in self._timer_log.units(self._timer_log.begin, end):
            count += 1
            if unit.slot_ms >= read_ms:
                self._wheel.add(position, unit)
                counts[unit.topic_hash] += unit.change
        return count

    def count(self, end: int, read_ms: int) -> None:
        """Count the messages of a wheel that did not have to be built, unless they are counted."""
        if self.counts is None:
            counts = self.counts = Counter[int]()
            for _, unit in self._timer_log.units(self._timer_log.begin, end):
                if unit.slot_ms >= read_ms:
                    counts[unit.topic_hash] += unit.change
