"""The records of a history of an append-only log: sends, reads, deliveries, faults, final logs.

A history is what clients saw of a group of brokers, and what the logs hold in the end. All times
are in one clock of the recorder, in any unit that is used throughout; ``check.py`` uses
milliseconds for its one bound. A *place* orders the whole log (an index or a physical offset); an
*offset* orders one queue of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Commit", "Derivation", "Entry", "Failover", "FinalLog", "History", "Outcome", "Read",
           "Send"]


class Outcome(Enum):
    """The outcome of a send, as its client knows it."""

    #: The broker acknowledged it.
    OK = "ok"
    #: The broker refused it before it appended anything: codes 14, 404, 415, 503 and 506, a
    #: message that is illegal, and the code 2 of a broker that does not lead.
    REFUSED = "refused"
    #: Everything else: a time-out, a lost connection, an error that came after the append.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One attempt of a client to append a body to a queue. A retry is another attempt."""

    client: str
    node: str
    queue: str
    #: Identifies the message; a retry has the same.
    body: str
    #: The time of the request, and of its answer or of the end of waiting.
    begin: float
    end: float
    outcome: Outcome
    #: The place and the offset that the broker acknowledged.
    place: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Read:
    """One answer to a read of a queue, by a pull, a query, a pop or a delivery."""

    client: str
    node: str
    queue: str
    begin: float
    end: float
    #: The first offset that the client asked for, and the bodies of the answer with their offsets.
    start: int
    bodies: Sequence[tuple[int, str]]
    #: The bounds of the queue that the broker answered; the offset ``high`` is not used yet.
    low: int
    high: int
    #: The term of the node when it answered, and whether it led that term.
    term: int = 0
    leads: bool = True
    #: Counts the restarts of the node. A follower may know less after a restart.
    life: int = 0


@dataclass(frozen=True, slots=True)
class Derivation:
    """A message that the brokers append by themselves: delayed, timed, committed or retried."""

    body: str
    #: The earliest time at which it may be appended.
    due: float


@dataclass(frozen=True, slots=True)
class Failover:
    """A change of the leader. Derivations that were made until ``settled`` are not made again."""

    time: float
    settled: float


@dataclass(frozen=True, slots=True)
class Commit:
    """A consumer group's committed offset, and the end of the queue at that broker."""

    group: str
    queue: str
    offset: int
    high: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a final log."""

    place: int
    queue: str
    offset: int
    body: str
    #: The time at which it was appended.
    stored: float = 0.0


@dataclass(frozen=True, slots=True)
class FinalLog:
    """The committed log of one node in the end, read from its files."""

    entries: Sequence[Entry]
    #: The first place that retention has kept.
    begin: int = 0


@dataclass(slots=True)
class History:
    """All records of one run."""

    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    derivations: list[Derivation] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    #: By consumer group, the bodies that its members handled.
    handled: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Times without a fault, with a majority of nodes that can reach each other.
    calm: list[tuple[float, float]] = field(default_factory=list)
    #: By node. A node of Apache's whose queues are not judged has its log here as well.
    logs: Mapping[str, FinalLog] = field(default_factory=dict)
