"""Jobs for threads that a test runs when it wants to."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from twistmq.broker.testing.store import StoreBox

__all__ = ["hold_jobs"]


def hold_jobs(box: StoreBox) -> list[tuple[Callable[[], None], Deferred[None]]]:
    """Hold the jobs that a store gives to threads.

    :returns: a list that gets each job with the Deferred that tells the store of its end.
    """
    held: list[tuple[Callable[[], None], Deferred[None]]] = []

    def hold(job: Callable[[], None]) -> Deferred[None]:
        held.append((job, Deferred()))
        return held[-1][1]

    box.in_thread = hold
    return held
