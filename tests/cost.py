"""The growth of the cost of work, in processor time of this process."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable

__all__ = ["GROWTH_MAX", "growth"]

#: Eight times the work may cost so many times as much: linear work costs 8 times, quadratic 64.
#: Work on memory that no cache holds costs up to twice as much as well.
GROWTH_MAX = 24.0


def growth(
    prepare: Callable[[int], Callable[[], object]], count: int, at_once: int = 3,
    most: float = GROWTH_MAX,
) -> float:
    """Return the factor by which eight times the work costs more.

    :param prepare: makes work of a size, which is done once and timed.
    :param count: sizes are half of it and four times as much; milliseconds of work at the least.
    :param at_once: the smaller size is done so often, the larger one up to so often until the
        growth is less than ``most``; the fastest counts.
    """
    few = min(_seconds(prepare(count // 2)) for _ in range(at_once))
    many = math.inf
    for _ in range(at_once):
        many = min(many, _seconds(prepare(4 * count)))
        if many < few * most:
            break
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
