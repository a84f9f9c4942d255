"""Runs periodic tasks on a reactor's clock; in an idle process, tasks without work rest.

An idle process would otherwise spend its time on runs that find no work. A task that can tell how
long it has nothing to do rests for that time. Before each wait of the reactor it is asked again
(see ``reactor_watch``), so work that comes in the meantime waits no longer than without a rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.edge.reactor_watch import ReactorWatch
from twistmq.broker.net.factory import StallWatch
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.protocol.errors import StoreError
from twistmq.protocol.log_rate import Outage

__all__ = ["PeriodicService"]

#: The period of a task whose period cannot be computed, ms.
_PERIOD_UNKNOWN_MS: Final = 60_000
#: Delays that are not shorter than this end at a multiple of it, seconds. The tasks of a process
#: then run together, so that an idle process is woken up some twenty times a second.
_GRAIN_S: Final = 0.05
#: The longest rest, seconds. Longer rests end at a multiple of it, so that they end together. After
#: a rest, a task that waits for a time of the wall clock notices that the clock was set.
_REST_MAX_S: Final = 1.0
#: The possible error of a rest, seconds: the clocks in ms are less exact than the timers.
_REST_MARGIN_S: Final = 0.001


class PeriodicService(Service):
    """Runs tasks periodically; a task that raises is logged and runs again after its period."""

    log = Logger()

    def __init__(
        self, reactor: IReactorTime, now_ms: Callable[[], int], monotonic: Callable[[], float],
        tasks: Sequence[PeriodicTask], stalls: StallWatch,
    ) -> None:
        self._reactor = reactor
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._tasks = tasks
        self._stalls = stalls
        self._calls: dict[PeriodicTask, IDelayedCall] = {}
        #: The tasks that rest.
        self._resting: dict[PeriodicTask, None] = {}
        #: The watch that asks them; None if tasks cannot rest on this reactor.
        self._watch = ReactorWatch.find(reactor, monotonic)
        #: The tasks whose ``rest_ms`` has failed. They do not rest.
        self._restless: set[PeriodicTask] = set()
        #: Tasks that fail each time.
        self._outages: dict[PeriodicTask, Outage] = {}

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        for task in self._tasks:
            self._schedule(task, self._delay_s(task.first_ms))

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()
        self._resting.clear()
        if self._watch is not None:
            self._watch.end(self)

    def _schedule(self, task: PeriodicTask, delay_s: float) -> None:
        self._calls[task] = self._reactor.callLater(delay_s, self._run, task)

    def _delay_s(self, delay_ms: int) -> float:
        """Return the time until a run that is due after a delay, seconds."""
        delay_s = delay_ms / 1000
        if delay_s < _GRAIN_S:
            return delay_s
        # A little more than nothing, because a product of binary fractions is not exact.
        return max(delay_s - (self._reactor.seconds() + delay_s) % _GRAIN_S, 0.001)

    def _run(self, task: PeriodicTask) -> None:
        del self._calls[task]
        self._resting.pop(task, None)
        begin = self._monotonic()
        waiting: object = None
        has_failed = True
        try:
            waiting = task.run(self._now_ms())
        except Exception:
            self._failed(Failure(), task)
        else:
            # Most tasks return nothing, and a Deferred costs more than what they do.
            if waiting is None:
                has_failed = self._done(None, task)
        self._stalls.observe(task.name, self._monotonic() - begin)
        if waiting is None:
            self._again(has_failed, task)
            return
        ended = maybeDeferred(lambda: waiting)
        ended.addCallbacks(self._done, self._failed, (task,), {}, (task,))
        ended.addBoth(self._again, task)

    def _done(self, _: object, task: PeriodicTask) -> bool:
        """Note that a run has succeeded; :returns: whether it has failed, as ``_failed`` does."""
        if self._outages:
            self._outages.pop(task, None)
        return False

    def _failed(self, failure: Failure, task: PeriodicTask) -> bool:
        if failure.check(StoreError) is None:
            self.log.failure("periodic task {task} failed", failure=failure, task=task.name)
        elif self._outages.setdefault(task, Outage()).begins():
            # The store reports this error as long as its files are missing.
            self.log.error("periodic task {task} failed: {error}", error=str(failure.value),
                           task=task.name)
        return True

    def _again(self, has_failed: object, task: PeriodicTask) -> None:
        if not self.running:
            return
        delay_s = self._delay_s(self._period_ms(task))
        watch = self._watch
        if watch is not None and task.rest_ms is not None and has_failed is False and watch.is_idle:
            rest_s = self._rest_s(task)
            if rest_s > delay_s:
                self._schedule(task, rest_s)
                self._resting[task] = None
                watch.begin(self)
                return
        self._schedule(task, delay_s)

    # --- rests

    def _rest_s(self, task: PeriodicTask) -> float:
        """Return how long a task may rest from now on, seconds."""
        assert task.rest_ms is not None
        if task in self._restless:
            return 0.0
        try:
            rest_ms = task.rest_ms()
        except Exception:
            self.log.failure("the rest of periodic task {task} cannot be computed", task=task.name)
            self._restless.add(task)
            return 0.0
        now = self._reactor.seconds()
        if rest_ms is None or rest_ms > _REST_MAX_S * 1000:
            return _REST_MAX_S - now % _REST_MAX_S
        if rest_ms <= 0:
            return 0.0
        rest_s = rest_ms / 1000
        if isinstance(task.period_ms, int) and task.period_ms >= _GRAIN_S * 1000:
            # Without a rest, the task would run at the next multiple as well. The rest is too long
            # by the part of a ms that has passed.
            rest_s -= _REST_MARGIN_S
            return rest_s + -(now + rest_s) % _GRAIN_S
        return rest_s + _REST_MARGIN_S

    def check(self) -> None:
        """Let the tasks that have work continue; called before each wait of the reactor."""
        now = self._reactor.seconds()
        for task in list(self._resting):
            rest_s = self._rest_s(task)
            if rest_s <= 0:
                self._continue(task)
            elif now + rest_s < self._calls[task].getTime() - _REST_MARGIN_S:
                self._hasten(task, rest_s)
        if not self._resting and self._watch is not None:
            self._watch.end(self)

    def end_rests(self) -> None:
        """Let all tasks continue, because the reactor is busy."""
        for task in list(self._resting):
            self._continue(task)

    def _continue(self, task: PeriodicTask) -> None:
        """Let a task run periodically again."""
        del self._resting[task]
        self._hasten(task, 0.0)

    def _hasten(self, task: PeriodicTask, delay_s: float) -> None:
        """Let a task run after a delay, or after its period if that is longer, but not later than
        planned.
        """
        delay_s = max(delay_s, self._delay_s(self._period_ms(task)))
        call = self._calls[task]
        if self._reactor.seconds() + delay_s < call.getTime():
            call.reset(delay_s)

    def _period_ms(self, task: PeriodicTask) -> int:
        period = task.period_ms
        if isinstance(period, int):
            return period
        try:
            return int(period())
        except Exception:
            self.log.failure("the period of periodic task {task} cannot be computed",
                             task=task.name)
            return _PERIOD_UNKNOWN_MS
