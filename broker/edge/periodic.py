"""Runs periodic tasks on a reactor's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

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
        #: Tasks that fail each time.
        self._outages: dict[PeriodicTask, Outage] = {}

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        for task in self._tasks:
            self._schedule(task, task.first_ms)

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()

    def _schedule(self, task: PeriodicTask, delay_ms: int) -> None:
        delay_s = delay_ms / 1000
        if delay_s >= _GRAIN_S:
            # A little more than nothing, because a product of binary fractions is not exact.
            delay_s = max(delay_s - (self._reactor.seconds() + delay_s) % _GRAIN_S, 0.001)
        self._calls[task] = self._reactor.callLater(delay_s, self._run, task)

    def _run(self, task: PeriodicTask) -> None:
        del self._calls[task]
        begin = self._monotonic()
        waiting: object = None
        try:
            waiting = task.run(self._now_ms())
        except Exception:
            self._failed(Failure(), task)
        else:
            # Most tasks return nothing, and a Deferred costs more than what they do.
            if waiting is None:
                self._done(None, task)
        self._stalls.observe(task.name, self._monotonic() - begin)
        if waiting is None:
            self._again(None, task)
            return
        ended = maybeDeferred(lambda: waiting)
        ended.addCallbacks(self._done, self._failed, (task,), {}, (task,))
        ended.addBoth(self._again, task)

    def _done(self, _: object, task: PeriodicTask) -> None:
        if self._outages:
            self._outages.pop(task, None)

    def _failed(self, failure: Failure, task: PeriodicTask) -> None:
        if failure.check(StoreError) is None:
            self.log.failure("periodic task {task} failed", failure=failure, task=task.name)
        elif self._outages.setdefault(task, Outage()).begins():
            # The store reports this error as long as its files are missing.
            self.log.error("periodic task {task} failed: {error}", error=str(failure.value),
                           task=task.name)

    def _again(self, _: object, task: PeriodicTask) -> None:
        if self.running:
            self._schedule(task, self._period_ms(task))

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
