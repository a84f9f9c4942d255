"""The delays of tasks, which the broker's timer keeps.

A delay above the broker's limit is divided: a reader that receives a message long before its time
sends it again with the remaining delay. The timer may also deliver a message up to a second early;
the reader keeps such a message until its time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from twistmq.integrations.base.options import QueueOptions
from twistmq.protocol.decimal_text import whole_number

__all__ = ["SentDelays", "delivery_time", "due_of", "due_properties", "is_too_early"]

#: The property with the time of a task in Unix milliseconds.
_DUE: Final = "task_due_ms"

#: The latest time of a task, Unix seconds, about 300,000 years from now; a later time is this one.
_DUE_MAX_S: Final = 10**13

#: A message that is received at most this long before its time waits in the process, seconds.
_EARLY_S: Final = 1.5
#: How long after its time a delayed message may still be on its way to its queue, seconds.
_LATE_S: Final = 2.0


class SentDelays:
    """The last time of a delayed message that this process has sent to each queue."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def note(self, queue: str, due: float | None) -> None:
        """Note a message that is sent; :param due: its time in Unix seconds; None: at once."""
        if due is not None:
            self._last[queue] = max(due, self._last.get(queue, 0.0))

    def are_over(self, queue: str) -> bool:
        """Whether all delayed messages of a queue have arrived in it."""
        return time.time() > self._last.get(queue, 0.0) + _LATE_S


def delivery_time(due: float | None, options: QueueOptions) -> float | None:
    """Return the time at which the broker delivers a message that is sent now.

    :param due: the time of its task; None: at once.
    :returns: Unix seconds; None: at once.
    """
    now = time.time()
    if due is None or due <= now:
        return None
    return min(due, now + options.delay_max_s)


def due_properties(due: float | None) -> dict[str, str]:
    """Return the properties of a message that tell its readers the time of its task."""
    return {} if due is None else {_DUE: str(round(min(due, _DUE_MAX_S) * 1000))}


def due_of(properties: Mapping[str, str]) -> float | None:
    """Return the time of a task in Unix seconds from the properties of its message."""
    due_ms = whole_number(properties.get(_DUE, ""))
    return None if due_ms is None else due_ms / 1000


def is_too_early(due: float | None) -> bool:
    """Whether a message that was received now has to be sent again for the rest of its delay."""
    return due is not None and due > time.time() + _EARLY_S
