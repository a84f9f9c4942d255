"""Tasks that run periodically.

A task is a row, and the edge runs it. A task that raises is logged and runs again after its period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred

__all__ = ["PeriodicTask"]


@dataclass(frozen=True, slots=True, eq=False)
class PeriodicTask:
    """One task.

    :param name: the name of the task in the log.
    :param first_ms: the time from the start to the first run, ms.
    :param period_ms: the time between two runs, ms; a function without arguments is called each
        time.
    :param run: called with the time, Unix ms; the task does not run again until a returned Deferred
        has fired.
    :param rest_ms: returns how long the task has nothing to do unless something happens in the
        process, ms; 0 if it has work, and None if its rest has no limit. While the process is idle,
        runs without work are omitted, and the function is called before each wait of the reactor,
        so it has to be cheap. A task without this function runs in each period.
    """

    name: str
    first_ms: int
    period_ms: int | Callable[[], int]
    run: Callable[[int], Deferred[None] | None]
    rest_ms: Callable[[], int | None] | None = None
