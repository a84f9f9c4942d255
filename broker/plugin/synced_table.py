"""Tables that a slave copies from its master, beyond topics, groups and consumer offsets.

Source: SlaveSynchronize @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred

__all__ = ["SyncedTable"]


@dataclass(frozen=True, slots=True)
class SyncedTable:
    """A table of a plugin that a slave copies from its master.

    Tables with the same code are taken from one answer.

    :param name: of the table, for logs.
    :param code: of the request, with an empty header, whose answer's body has the table.
    :param take: makes the table here equal to that body, and saves it; it may return a Deferred
        that is waited for. It changes what differs alone, and nothing when it raises WireError:
        the body is no such table.
    :param period_ms: from one copy to the next.
    :param vip: whether the master is asked on its VIP port.
    :param follows_log: whether the table says what was done with messages, so that it is taken
        only once the log here has all that the master's had when it answered.
    :param take_back: of a master that returns: takes what its slave did beyond it, from that
        body of the slave's answer; None: a slave does nothing of it.
    """

    name: str
    code: int
    take: Callable[[bytes], Deferred[None] | None]
    period_ms: int
    vip: bool = False
    follows_log: bool = False
    take_back: Callable[[bytes], None] | None = None
