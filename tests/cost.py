"""How the cost of work grows, in time of a processor: other processes do not count."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["GROWTH_MAX", "growth"]

#: Four times the work may cost so many times as much: linear work costs 4 times, quadratic 16.
GROWTH_MAX = 9.0


def growth(
    prepare: Callable[[int], Callable[[], object]], count: int, at_once: int = 3
) -> float:
    """How many times as much four times the work costs.

    :param prepare: makes work of a size, which is done once and timed.
    :param count: the smaller size; milliseconds of work at the least.
    :param at_once: each size is done so often, the fastest counts.
    """
    few, many = (min(_seconds(prepare(size)) for _ in range(at_once))
                 for size in (count, 4 * count))
    return many / few


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()
