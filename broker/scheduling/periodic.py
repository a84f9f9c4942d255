"""Tasks that run again and again.

A task is a row; the edge runs it. One that raises is logged and runs again next period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred

__all__ = ["PeriodicTask"]


@dataclass(frozen=True, slots=True, eq=False)
class PeriodicTask:
    """One task.

    :param name: what the log calls it.
    :param first_ms: from the start to the first run, ms.
    :param period_ms: from one run to the next, ms; a function of no arguments is asked each time.
    :param run: called with the time, Unix ms; while a Deferred it returned waits, the task is
        not run again.
    """

    name: str
    first_ms: int
    period_ms: int | Callable[[], int]
    run: Callable[[int], Deferred[None] | None]
