"""The part of an exhaustive table that a run tests.

README's test command tries a quarter of the cases that a table or a generator has. Each run makes
a new draw, so that many runs see all of them. ``TWISTMQ_TESTS=whole`` tries every case, as one step
of ``.ci/run`` does. A case that fails in a draw therefore fails in a whole run as well.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Final, TypeVar

__all__ = ["SHARE", "WHOLE", "drawn", "examples"]

#: Whether this run tries all cases.
WHOLE: Final = os.environ.get("TWISTMQ_TESTS") == "whole"
#: The part of the cases that another run tries is one in this number.
SHARE: Final = 4
_Case = TypeVar("_Case")


def drawn(cases: Iterable[_Case], *, whole: bool = WHOLE) -> list[_Case]:
    """Return all cases in a whole run, otherwise a quarter of them in order, at least one."""
    every = list(cases)
    if whole or not every:
        return every
    count = -(-len(every) // SHARE)
    return [every[index] for index in sorted(random.sample(range(len(every)), count))]


def examples(count: int, *, whole: bool = WHOLE) -> int:
    """The number of examples that hypothesis makes where a whole run has ``count``."""
    return count if whole else -(-count // SHARE)
