"""Virtual time, and the links between the machines of a simulated group.

Everything that happens is an event of one queue, and every choice is a draw of one generator, so
a seed determines a run. Time is in whole milliseconds and starts at 0.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["InvariantBroken", "Links", "World"]

#: More events at one moment than this are a loop that does not end.
_EVENTS_AT_ONCE_MAX: Final = 5_000


class InvariantBroken(Exception):
    """An invariant does not hold. ``rule`` is its number in the table of ``ghosts.py``."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class World:
    """The queue of events, the time and the random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        #: Counts the events that have happened.
        self.count = 0
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        self._at_once = 0
        #: The steps so far, with their times; None: steps are not kept.
        self.steps: list[str] | None = None

    def call_later(self, delay_ms: int, function: Callable[..., object], *args: Any) -> None:
        """Call a function after a time of at least 0 ms; of one moment, in the order of calls."""
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._number, function, args))

    def run_until(self, end_ms: int) -> None:
        """Let everything happen up to a time, and be there."""
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            time_ms, _, function, args = heapq.heappop(queue)
            if time_ms > self.now_ms:
                self.now_ms = time_ms
                self._at_once = 0
            self._at_once += 1
            if self._at_once > _EVENTS_AT_ONCE_MAX:
                raise InvariantBroken("I17", f"more than {_EVENTS_AT_ONCE_MAX} events at once")
            self.count += 1
            function(*args)
        self.now_ms = end_ms

    def note(self, text: str) -> None:
        """Keep a step, if steps are kept."""
        if self.steps is not None:
            self.steps.append(f"{self.now_ms:7} {text}")


class Links:
    """A link in each direction between any two machines: it loses, delays, doubles and reorders."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: The chances of a loss and of a copy.
        self.loss = 0.0
        self.copies = 0.0
        self.delay_ms_max = 4
        #: Directed links that carry nothing, as (sender, receiver).
        self.cuts: set[tuple[str, str]] = set()
        #: Directed links with a further delay.
        self.slow_ms: dict[tuple[str, str], int] = {}

    def repair(self) -> None:
        """Make all links good ones."""
        self.loss = self.copies = 0.0
        self.delay_ms_max = 4
        self.cuts.clear()
        self.slow_ms.clear()

    def cut_off(self, name: str, others: Iterable[str]) -> None:
        """Carry nothing from and to a machine."""
        self.cuts |= {pair for other in others for pair in ((name, other), (other, name))}

    def carry(self, sender: str, receiver: str, function: Callable[..., object], *args: Any
              ) -> bool:
        """Call a function when a message has arrived; once, twice or, with False, never."""
        world = self._world
        if (sender, receiver) in self.cuts or (
                self.loss and world.random.random() < self.loss):
            return False
        slow_ms = self.slow_ms.get((sender, receiver), 0) if self.slow_ms else 0
        world.call_later(slow_ms + int(world.random.random() * (self.delay_ms_max + 1)),
                         function, *args)
        if self.copies and world.random.random() < self.copies:
            world.call_later(slow_ms + int(world.random.random() * 50 * (self.delay_ms_max + 1)),
                             function, *args)
        return True
