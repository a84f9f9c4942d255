"""The counters of the sample plugin."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Counts"]


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
    #: Requests, and those that were refused, by request code.
    requests: Counter[int] = field(default_factory=Counter)
    refusals: Counter[int] = field(default_factory=Counter)
    #: Messages by "topic@group".
    consumed: Counter[str] = field(default_factory=Counter)

    def encode(self) -> bytes:
        """As the JSON that request code 31,001 is answered with."""
        return json.dumps(vars(self), sort_keys=True).encode()
