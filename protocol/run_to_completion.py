"""Work that can pause is a generator: it yields where other work may take a turn.

Source: none; Apache's broker uses threads for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

__all__ = ["run_to_completion"]

T = TypeVar("T")


def run_to_completion(work: Generator[None, None, T]) -> T:
    """Run the work to its end, however long it takes; :returns: its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
