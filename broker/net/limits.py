"""Limits over all connections of the process: the memory kept for them, and the descriptors.

Apache's broker limits neither: each incomplete frame may grow to 16 MiB, and connections are
accepted until the process has no descriptor left for its own files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from twistmq.broker.constants import KEPT_BYTES_TOTAL_MAX

__all__ = ["ConnectionCount", "KeptBytes"]


class Keeper(Protocol):
    """The part of a connection that this module uses."""

    def abort(self, why: str) -> None:
        """Abort the connection."""


class KeptBytes:
    """The memory of incomplete frames and of unread replies, over all connections.

    Beyond the limit, the connections that have kept the process waiting longest are aborted first.
    A client that sends one large frame after another completes each of them, so it is not affected
    while other clients leave their frames incomplete.

    :param maximum_bytes: the limit over all connections.
    """

    def __init__(self, maximum_bytes: int = KEPT_BYTES_TOTAL_MAX) -> None:
        self.maximum_bytes = maximum_bytes
        self.total_bytes = 0
        #: Kept bytes by connection; the first one has kept the process waiting longest.
        self._sizes: OrderedDict[Keeper, int] = OrderedDict()

    def set(self, connection: Keeper, size_bytes: int) -> None:
        """Record the memory kept for a connection; this may abort this or other connections."""
        self.total_bytes += size_bytes - self._sizes.get(connection, 0)
        assert self.total_bytes >= 0
        if not size_bytes:
            self._sizes.pop(connection, None)
            return
        self._sizes[connection] = size_bytes
        while self.total_bytes > self.maximum_bytes:
            longest, kept_bytes = self._sizes.popitem(last=False)
            self.total_bytes -= kept_bytes
            longest.abort("has left a frame half sent or its replies unread for longer than any "
                          "other connection")


class ConnectionCount:
    """The number of connections of the process, and its limit.

    :param maximum: returns the limit; called for each connection.
    """

    log = Logger()

    def __init__(self, maximum: Callable[[], int]) -> None:
        self._maximum = maximum
        self.count = 0
        self.refused = 0

    def may_add(self) -> bool:
        """Return whether one more is allowed; a refusal is counted and logged at a limited rate."""
        maximum = self._maximum()
        if self.count < maximum:
            return True
        self.refused += 1
        # Log at each power of two: a flood of connections gives few lines.
        if self.refused & (self.refused - 1) == 0:
            self.log.warn("connection refused: {count} are open, as many as the limit of open "
                          "files allows; {refused} refused so far", count=self.count,
                          refused=self.refused)
        return False

    def add(self) -> None:
        self.count += 1

    def remove(self) -> None:
        self.count -= 1
        assert self.count >= 0
