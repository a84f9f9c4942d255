"""What the plugin counts, for each broker of the process."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["Counts", "counts_of"]


@dataclass
class Counts:
    """The counts of one broker, since its start."""

    sent: int = 0
    refused: int = 0
    stored: int = 0
    arrived: int = 0
    client_changes: int = 0
    discarded_half_messages: int = 0
    #: How often somebody asked where a queue ends.
    ends_asked: int = 0
    #: How often name servers were told of all topics.
    registrations: int = 0
    #: Runs of the periodic task.
    ticks: int = 0
    role: str = ""
    started: bool = False
    #: Messages by "topic@group".
    consumed: Counter[str] = field(default_factory=Counter)

    def encode(self) -> bytes:
        """As the JSON that request code 31,001 is answered with."""
        return json.dumps(vars(self), sort_keys=True).encode()


#: A process may run several brokers: a test does. A broker that is gone takes its counts along.
_counts: WeakKeyDictionary[Kernel, Counts] = WeakKeyDictionary()


def counts_of(kernel: Kernel) -> Counts:
    """The counts of a broker."""
    counts = _counts.get(kernel)
    if counts is None:
        counts = _counts[kernel] = Counts()
    return counts
