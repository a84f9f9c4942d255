"""Collects the failures that the servers of a simulation log, which nothing else would raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

__all__ = ["logged_failures"]


@contextmanager
def logged_failures() -> Iterator[list[Failure]]:
    """Return a list that grows by each failure that is logged within the block."""
    failures: list[Failure] = []

    def note(event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            failures.append(failure)

    globalLogPublisher.addObserver(note)
    try:
        yield failures
    finally:
        globalLogPublisher.removeObserver(note)
