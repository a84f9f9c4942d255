"""Work that can pause is a generator: it yields where others may have their turn.

Source: none; Apache's broker has threads for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

__all__ = ["run_to_completion"]

T = TypeVar("T")


def run_to_completion(work: Generator[None, None, T]) -> T:
    """Do work to its end at once, however long it takes; what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
