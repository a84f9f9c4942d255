"""The sent messages, the acknowledged ones, and those that brokers lost for good.

A body is sent once, whatever becomes of it, so that a row that comes twice is the reader's. A queue
has a new *life* when its topic is made again: its messages are others, though their offsets are the
same.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Ledger", "Loss", "Outcome", "Place", "Sent"]

#: Topic, broker and id of a queue.
Place = tuple[str, str, int]


class Outcome(Enum):
    """The result of a send."""

    #: It is stored as safely as the broker's settings promise.
    ACKNOWLEDGED = "acknowledged"
    #: There was no answer, or one that promises less.
    UNSAFE = "unsafe"
    #: It is not stored.
    REFUSED = "refused"


@dataclass(slots=True)
class Sent:
    """A sent message."""

    body: str
    place: Place
    life: int
    outcome: Outcome = Outcome.UNSAFE
    #: -1 where no answer says it.
    offset: int = -1
    #: When its send began and was answered, Unix seconds.
    begin_s: float = 0.0
    end_s: float = 0.0
    #: Why it is gone for good, and since when.
    lost: str = ""
    lost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A fault that may have cost messages of a queue."""

    place: Place
    kind: str
    time_s: float


@dataclass
class Ledger:
    """All messages, for several threads."""

    sent: dict[str, Sent] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    _lives: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _number: int = 0

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def begin(self, place: Place) -> Sent:
        """Note a message before it is sent; :returns: it, with a body of its own."""
        with self._lock:
            self._number += 1
            body = f"{place[0]}/{place[1]}/{place[2]}/{self._number}"
            found = self.sent[body] = Sent(body, place, self._lives[place],
                                           begin_s=time.time())
            return found

    def end(self, sent: Sent, outcome: Outcome, offset: int = -1) -> None:
        """Note the answer to a send."""
        with self._lock:
            sent.outcome, sent.offset, sent.end_s = outcome, offset, time.time()

    def all(self) -> list[Sent]:
        """Return all messages in the order in which their sends began."""
        with self._lock:
            return list(self.sent.values())

    def lose(self, kind: str, places: Iterable[Place], is_lost: Callable[[Sent], bool],
             since_s: float) -> None:
        """Record that messages of queues are lost.

        :param since_s: since when, at the earliest.
        """
        with self._lock:
            wanted = set(places)
            self.losses += [Loss(place, kind, since_s) for place in sorted(wanted)]
            for each in self.sent.values():
                if each.place in wanted and not each.lost and is_lost(each):
                    each.lost, each.lost_s = kind, since_s

    def new_life(self, places: Iterable[Place]) -> None:
        """Record that the next messages of queues are new ones with the offsets of earlier ones."""
        with self._lock:
            for place in places:
                self._lives[place] += 1
