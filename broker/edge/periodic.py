"""Runs periodic tasks on a reactor's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
_PERIOD_UNKNOWN_MS = 60_000


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
        self._calls[task] = self._reactor.callLater(delay_ms / 1000, self._run, task)

    def _run(self, task: PeriodicTask) -> None:
        del self._calls[task]
        begin = self._monotonic()
        waiting = maybeDeferred(task.run, self._now_ms())
        self._stalls.observe(task.name, self._monotonic() - begin)
        waiting.addCallbacks(self._done, self._failed, (task,), {}, (task,))
        waiting.addBoth(lambda _: self._again(task))

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

    def _again(self, task: PeriodicTask) -> None:
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
