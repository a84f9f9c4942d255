"""The timed messages of one broker: entering, delivering, and the progress of both.

A turn spends a few milliseconds on entering some messages and delivering others. The progress is
saved each second, and only as far as it is settled: neither a loss of power nor another master can
undo it. After a crash a message may therefore be delivered twice, but no message is lost.

Source: TimerMessageStore, TimerFlushService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import BrokerError, MessageRecord, RequestRefused, ResponseCode, StoreError
from twistmq.broker.api.bodies import next_counter
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.requests import SettledProgress
from twistmq.broker.api.wire import indexes_with
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.timer.checkpoint import (
    CLEAN,
    RUNNING,
    TimerCheckpoint,
    TimerCheckpointFile,
)
from twistmq.plugins.timer.delivered import Delivered
from twistmq.plugins.timer.delivery import Delivery
from twistmq.plugins.timer.dequeue import Dequeue
from twistmq.plugins.timer.enqueue import Enqueue
from twistmq.plugins.timer.follower import TimerFollower
from twistmq.plugins.timer.handover import Handover
from twistmq.plugins.timer.metrics import TimerMetrics
from twistmq.plugins.timer.pending_recalls import PendingRecalls
from twistmq.plugins.timer.rates import Rates
from twistmq.plugins.timer.records import (
    TIMER_MARK,
    asks_for_time,
    illegal,
    timed_ms,
    wait_record,
)
from twistmq.plugins.timer.recovery import TimerRecovery
from twistmq.plugins.timer.settings import TimerSettings
from twistmq.plugins.timer.slot_chooser import SlotChooser
from twistmq.plugins.timer.timer_log import TimerLog
from twistmq.plugins.timer.wheel import TimerWheel

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["TimerService"]

#: The length of a turn, ms.
TURN_MS: Final = 5
#: The part of a turn in which the log is searched, ms. A broker that has just become master has
#: other work as well.
SEARCH_MS: Final = 2
#: The number of turns per tick. Source: TimerEnqueueGetService.
TURNS_PER_TICK: Final = 10
#: How often the responses of other brokers are looked at, ms.
ANSWER_MS: Final = 10
#: How often the progress is saved while nothing happens, ms.
IDLE_SAVE_MS: Final = 60_000


class TimerService:
    """The timed messages of one broker; see the module.

    :param settings: the settings, with ``enabled`` set.
    """

    log = Logger()

    def __init__(self, broker: Broker, settings: TimerSettings) -> None:
        self._broker = broker
        store = broker.store
        path = store.settings.path
        self.tick_ms = settings.tick_ms
        self.wheel = TimerWheel(store.io, path("timerwheel"), settings.tick_ms)
        self.timer_log = TimerLog(store.io, path("timerlog"), settings.log_file_size)
        self.checkpoint = TimerCheckpointFile(
            store.io, path("config", "timercheck"), settings.tick_ms)
        self.metrics = TimerMetrics(broker)
        #: Delivery of messages that were already due when they were entered, and of waiting ones.
        self.late, self.due = Delivery(broker), Delivery(broker)
        rolling = SlotChooser(self.wheel, settings.roll_window)
        self.delivered = Delivered(store, rolling.slot_on_slave)
        recalls = self._recalls = PendingRecalls()
        self.enqueue = Enqueue(broker, self.wheel, self.timer_log, self.metrics, self.late,
                               rolling, self.delivered, recalls)
        self.dequeue = Dequeue(broker, self.wheel, self.timer_log, self.metrics, self.due,
                               self.delivered, recalls)
        #: Follows the progress of this broker's master, if this broker is a slave.
        self.following = TimerFollower(broker, self.wheel, self.timer_log, self.checkpoint,
                                   self.enqueue, self.dequeue, self.delivered)
        self._settling = Handover(broker, self.following, self.enqueue, self.dequeue, self.due,
                                  self.late)
        #: Whether any record of the sends that are being handled has to wait.
        self.has_timed = False
        self._is_loaded = self._is_stopped = False
        self._has_more = False
        self._saved = (0, 0, 0, 0)
        self._saved_ms = 0
        self._lock = DeferredLock()
        self._is_failing = False
        self._rates = Rates()
        self._progress = SettledProgress(store, TimerCheckpoint())
        #: Whether the broker still has to return to the settled progress, or to forget lost
        #: messages.
        self._goes_back = False

    # --- start

    def load(self) -> None:
        """Load the existing files; the store is already loaded.

        :raises StoreError: when a file is damaged, or the disk fails.
        """
        try:
            has_checkpoint = self.checkpoint.load()
            has_counts = self.metrics.load()
            self.timer_log.load()
            now_ms = self._broker.now_ms()
            read_ms = (self.checkpoint.values.last_read_ms if has_checkpoint
                       else self.wheel.floor_ms(now_ms))
            self.wheel.load(read_ms)
            recovery = TimerRecovery(
                self._broker.store, self.checkpoint, self.wheel, self.timer_log)
            recovery.run()
            if not has_counts and self.wheel.slots:
                recovery.count(self.timer_log.end, read_ms)
            if recovery.counts is not None:
                self.metrics.recount(recovery.counts)
            self.dequeue.begin(read_ms)
            self.following.begin()
            self.enqueue.begin(recovery.queue_offset, recovery.known_log_offsets, read_ms, now_ms)
            # From here on only an orderly stop counts as clean.
            self.checkpoint.write(self._values(), RUNNING)
            self._progress.reset(self._values())
            self._broker.store.log_cut.on_cut.append(self._log_cut)
        except OSError as error:
            raise StoreDamaged(f"the files of timed messages cannot be used: {error}") from error
        self._is_loaded = True

    # --- messages that arrive

    def before_append(self, records: Sequence[MessageRecord]) -> dict[int, BrokerError] | None:
        """Redirect timed records to the timer topic; :returns: the refusals."""
        refusals: dict[int, BrokerError] | None = None
        for index in indexes_with(records, TIMER_MARK):
            record = records[index]
            properties = asks_for_time(record)
            if properties is not None:
                try:
                    self._wait(record, properties)
                except BrokerError as error:
                    refusals = refusals or {}
                    refusals[index] = error
        return refusals

    def _wait(self, record: MessageRecord, properties: dict[str, str]) -> None:
        """:raises RequestRefused: when the message asks for more than is allowed."""
        now_ms = self._broker.now_ms()
        delay_max_ms = self._broker.settings.int("timerMaxDelaySec") * 1000
        deliver_ms = timed_ms(properties, now_ms)
        if deliver_ms is None or deliver_ms - now_ms > delay_max_ms:
            raise illegal(delay_max_ms)
        if deliver_ms <= now_ms:
            if names.TIMER_DEL_UNIQKEY in properties:
                raise illegal(delay_max_ms)
            return
        # The last tick before the time: a slot is delivered when its tick is over.
        out_ms = self.wheel.floor_ms(deliver_ms - 1)
        self._require_room(out_ms)
        wait_record(record, properties, out_ms)
        self.has_timed = True

    def _require_room(self, out_ms: int) -> None:
        """:raises RequestRefused: when too many messages wait for one tick."""
        least = self._broker.settings.int("timerCongestNumEachSlot")
        waiting = self.wheel.waiting(out_ms)
        if waiting <= least:
            return
        if waiting < 2 * least and self._broker.random.randrange(1000) <= (
                1000 * (waiting - least) / (least + 0.1)):
            return
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control, max num limit is {2 * least} or the current "
            f"value is greater than {least} and less than {2 * least}, trigger random flow "
            "control")

    # --- messages that are due

    def period_ms(self) -> int:
        """Return the time until the next turn: 1 ms while work is left, else part of a tick."""
        if self._has_more:
            return 1
        if self._settling.is_on_its_way:
            return ANSWER_MS
        part_ms = self.tick_ms // TURNS_PER_TICK
        return part_ms - self._broker.now_ms() % part_ms

    def rest_ms(self) -> int | None:
        """Return how long :meth:`turn` has nothing to do unless something happens, ms.

        :returns: 0 when it has work; None while it would do nothing.
        """
        if not self._is_loaded or self._is_stopped or self._goes_back:
            return None
        broker, following = self._broker, self.following
        if self._has_more or self._settling.is_unsettled or following.is_behind:
            return 0
        if not broker.delivers:
            return 0 if broker.is_slave and following.has_news else None
        if following.has_master or self.delivered.is_searching or self._has_due():
            return 0
        tick_ms, now_ms = self.tick_ms, broker.now_ms()
        is_over = self.wheel.floor_ms(now_ms) > self.enqueue.write_ms
        return 0 if is_over else tick_ms - now_ms % tick_ms

    def _has_due(self) -> bool:
        """Whether messages can be entered or delivered now."""
        settings, enqueue, dequeue = self._broker.settings, self.enqueue, self.dequeue
        if not settings.flag("timerStopEnqueue") and (enqueue.backlog or not enqueue.is_whole):
            return True
        return not settings.flag("timerStopDequeue") and dequeue.has_due(enqueue.ready_ms)

    def turn(self, now_ms: int) -> None:
        """Enter some messages and deliver some."""
        self._has_more = False
        if not self._is_loaded or self._is_stopped or self._goes_back:
            return
        settings, clock = self._broker.settings, self._broker.steady.now_ms
        broker = self._broker
        # A slave that became master, or stands in for it, first enters all its master's messages.
        if self.following.is_behind or (broker.is_slave and not broker.delivers):
            self._has_more = self._settling.step() | _repeat(
                lambda: self.following.step(self._broker.now_ms()), clock, TURN_MS)
            return
        if not broker.delivers:
            return
        self.following.end(now_ms)
        if _repeat(self.delivered.look_on, clock, SEARCH_MS):
            self._has_more = True
            return
        self.enqueue.advance(now_ms)
        is_stopped = settings.flag("timerStopEnqueue")
        if not is_stopped:
            self._has_more = _repeat(
                lambda: self.enqueue.step(self._broker.now_ms()), clock, TURN_MS // 2)
        if not settings.flag("timerStopDequeue"):
            self.enqueue.note_ready(is_stopped=is_stopped)
            ready_ms = self.enqueue.ready_ms
            self._has_more |= _repeat(lambda: self.dequeue.step(ready_ms), clock, TURN_MS // 2)

    # --- progress

    @property
    def delivered_ms(self) -> int | None:
        """Messages due before this time were delivered, Unix ms; None before the start."""
        return self.dequeue.read_ms if self._is_loaded else None

    @property
    def delivered_count(self) -> int:
        """The number of messages delivered, or rolled, since the start."""
        return self.due.count + self.late.count

    def settled(self) -> Deferred[None]:
        """Wait until no message is being sent to another broker."""
        if not self._is_loaded or self._is_stopped:
            return succeed(None)
        return self._settling.settled()

    def _values(self) -> TimerCheckpoint:
        """Return the check point of this moment."""
        values = self.checkpoint.values
        progress = (self.dequeue.read_ms, self.timer_log.end, self.enqueue.offset)
        counter, timestamp = values.counter, values.timestamp
        if (values.last_read_ms, values.master_timer_queue_offset) != (progress[0], progress[2]):
            counter, timestamp = next_counter(counter), self._broker.now_ms()
        return TimerCheckpoint(*progress, progress[2], values.state_version, timestamp, counter)

    @property
    def current(self) -> TimerCheckpoint:
        """The check point that other brokers receive: this moment's if this broker delivers."""
        if self._is_loaded and not self._is_stopped and self.enqueue.is_whole and (
                self.following.has_gone_on or not self._broker.is_slave):
            return self._progress.agreed_value(self._values())
        return self.checkpoint.values

    def save_if_due(self, now_ms: int) -> Deferred[None] | None:
        """Save the progress if it has changed."""
        if not self._is_loaded or self._is_stopped or not self.enqueue.is_whole:
            return None
        values = self._values()
        # A slave delivers nothing, but must not deliver again what its master has delivered.
        progress = (values.last_timer_log_flush_position, values.last_timer_queue_offset,
                    self.delivered_count, self.dequeue.finished_count)
        is_saved = progress == self._saved and (
            _progress_of(self._progress.settled) == _progress_of(self.checkpoint.values))
        if is_saved and now_ms - self._saved_ms < IDLE_SAVE_MS:
            return None
        self._saved, self._saved_ms = progress, now_ms
        self._rates.note(now_ms, self.enqueue.count, self.delivered_count)
        return self._lock.run(self._save, RUNNING)

    def role_changed(self) -> None:
        """Save the progress and publish it at once, because another broker continues from here.

        A master flushes its log before it becomes a slave, unless it steps down.
        """
        if self._is_loaded and not self._is_stopped and self.enqueue.is_whole:
            self.checkpoint.values = self._progress.agreed_value(self._values())
            self._lock.run(self._save, RUNNING)

    def _log_cut(self) -> None:
        """Return to the settled progress after a cut, which may have removed deliveries.

        A slave whose master alone determines the log gets the progress from that master instead.
        """
        # This must precede further stores, which could make the queue as long as the offset.
        self.enqueue.correct_offset()
        settled, current = self._progress.settled, self._values()
        if self._is_stopped:
            return
        if self._broker.store.dispatch.confirm_follows or (
                self.enqueue.is_whole and _progress_of(settled) == _progress_of(current)):
            if self.enqueue.has_lost:
                self._goes_back = True
                self._lock.run(self._forget_lost)
            return
        self._goes_back = True
        self._lock.run(self._go_back)

    def _forget_lost(self) -> Deferred[None] | None:
        """Forget messages that were entered and cut, and save that; no other save is under way."""
        self._goes_back = False
        self.dequeue.begin_again()
        self.enqueue.forget_lost()
        # The values that wait name units that do not exist any more.
        self._progress.reset(self._values())
        return self._save(RUNNING) if self.enqueue.is_whole else None

    def _go_back(self) -> None:
        """Continue like a broker that was killed at the settled progress, and search the later log.

        Deliveries that are still in the log are not made again.
        """
        self._goes_back = False
        values = self.checkpoint.values = self._progress.go_back()
        self.checkpoint.state = RUNNING
        recovery = TimerRecovery(self._broker.store, self.checkpoint, self.wheel, self.timer_log)
        recovery.run()
        self.metrics.recount(recovery.counts or {})
        self._recalls.clear()
        self.dequeue.pass_to(values.last_read_ms)
        self.enqueue.begin(recovery.queue_offset, recovery.known_log_offsets, values.last_read_ms,
                           self._broker.now_ms())
        self.delivered.look_from(self._progress.settled_end)

    def _save(self, state: int) -> Deferred[None]:
        """Flush the log, and save what is settled; fires when the save is done or has failed."""
        self._progress.note(self._values())
        metrics = self.metrics.encode()
        store = self._broker.store
        values = TimerCheckpoint()

        def write(_: None) -> Deferred[None]:
            nonlocal values
            values = self._progress.settled
            written_state = RUNNING if self._progress.waits else state
            sync_log = self.timer_log.sync_job()
            write_wheel, take_back = self.wheel.write_job()

            def job() -> None:
                sync_log()
                write_wheel()
                self.checkpoint.write(values, written_state)
                self.metrics.write(metrics)

            def undo(failure: Failure) -> Failure:
                take_back()
                return failure

            return store.in_thread(job).addErrback(undo)

        def done(_: None) -> None:
            self.checkpoint.values = values
            self._is_failing = False

        durable = store.flush.flushed(store.commit_log.max_offset) or succeed(None)
        return durable.addCallback(write).addCallbacks(done, self._not_saved)

    def _not_saved(self, failure: Failure) -> None:
        failure.trap(StoreError, OSError)
        self._saved_ms = 0
        if not self._is_failing:
            self.log.error("the progress of timed messages cannot be saved: {error}",
                           error=failure.getErrorMessage())
        self._is_failing = True

    def stop(self) -> Deferred[None] | None:
        """Save everything and mark the stop as clean."""
        if not self._is_loaded:
            return None
        self._is_stopped = True
        saved = self._lock.run(self._save, CLEAN) if self.enqueue.is_whole else succeed(None)
        return saved.addCallback(lambda _: self.timer_log.close())

    def drop_old_files(self, now_ms: int) -> None:
        """Remove files of the timer log whose messages are all gone from the commit log."""
        if not self._is_loaded or self._is_stopped:
            return
        last = self.timer_log.last_unit_of_first_file()
        while last is not None and last.log_offset < self._broker.store.commit_log.min_offset:
            self.log.info("timer log file {begin} is removed: its messages no longer exist",
                          begin=self.timer_log.begin)
            self.timer_log.drop_first()
            last = self.timer_log.last_unit_of_first_file()

    # --- figures

    def log_progress(self, now_ms: int) -> None:
        """Log how late entering and delivering are, if this broker delivers and is late."""
        if not self._broker.delivers:
            return
        if self.enqueue.backlog or now_ms - self.dequeue.read_ms > 2 * self.tick_ms:
            self.log.info("timed messages: {behind} to enter, delivery is {ms} ms late, "
                          "{count} wait", behind=self.enqueue.backlog,
                          ms=now_ms - self.dequeue.read_ms, count=self.wheel.waiting_count)

    def runtime_info(self) -> dict[str, str]:
        """Return the rows of the runtime table."""
        now_ms = self._broker.now_ms()
        entered, delivered = self._rates.update(now_ms, self.enqueue.count, self.delivered_count)
        return {"timerReadBehind": str(max(now_ms - self.dequeue.read_ms, 0) // 1000),
                "timerOffsetBehind": str(self.enqueue.backlog),
                "timerCongestNum": str(self.wheel.waiting_count),
                "timerEnqueueTps": str(entered), "timerDequeueTps": str(delivered)}


def _repeat(step: Callable[[], bool], clock: Callable[[], int], max_ms: int) -> bool:
    """Repeat a step until the time is over; :returns: whether work is left."""
    end_ms = clock() + max_ms
    while step():
        if clock() >= end_ms:
            return True
    return False


def _progress_of(values: TimerCheckpoint) -> tuple[int, int, int]:
    """Return the values of a check point without its version."""
    return (values.last_read_ms, values.last_timer_log_flush_position,
            values.last_timer_queue_offset)
