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

    Tables with the same code are copied from a single answer.

    :param name: the name of the table in logs.
    :param code: the code of a request with an empty header; the body of its answer contains the
        table.
    :param take: makes the local table equal to that body, and saves it; it may return a Deferred to
        wait for. It changes only entries that differ. If the body is not a valid table, it raises
        WireError and changes nothing.
    :param period_ms: the time between two copies, ms.
    :param vip: whether the request goes to the VIP port of the master.
    :param follows_log: whether the table records the processing of messages, so that it is used
        only once the local log has everything that the master's log had at the time of the answer.
    :param take_back: on a master that returns: takes over the further progress of its slave from
        the body of the slave's answer; None: a slave makes no such progress.
    """

    name: str
    code: int
    take: Callable[[bytes], Deferred[None] | None]
    period_ms: int
    vip: bool = False
    follows_log: bool = False
    take_back: Callable[[bytes], None] | None = None
