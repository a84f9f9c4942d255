"""What connections may take of the process together: memory kept for them, descriptors.

Apache has a bound for neither: each half frame may grow to 16 MiB, and connections are taken until
the process has no descriptor left for its own files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from twistmq.broker.constants import KEPT_BYTES_TOTAL_MAX

__all__ = ["ConnectionCount", "KeptBytes"]


class Keeper(Protocol):
    """A connection, as it is seen here."""

    def abort(self, why: str) -> None:
        """Cut it off."""


class KeptBytes:
    """Half frames, and replies that are not taken, over all connections.

    When they are too much, those go first that keep the process waiting longest: who sends one
    large frame after the other is never among them while others let theirs lie.

    :param maximum_bytes: over all connections.
    """

    def __init__(self, maximum_bytes: int = KEPT_BYTES_TOTAL_MAX) -> None:
        self.maximum_bytes = maximum_bytes
        self.total_bytes = 0
        #: The first has kept the process waiting longest.
        self._sizes: OrderedDict[Keeper, int] = OrderedDict()

    def set(self, connection: Keeper, size_bytes: int) -> None:
        """Note what is kept for a connection now; this may cut off this one or others."""
        self.total_bytes += size_bytes - self._sizes.get(connection, 0)
        assert self.total_bytes >= 0
        if not size_bytes:
            self._sizes.pop(connection, None)
            return
        self._sizes[connection] = size_bytes
        while self.total_bytes > self.maximum_bytes:
            longest, kept_bytes = self._sizes.popitem(last=False)
            self.total_bytes -= kept_bytes
            longest.abort("keeps the broker waiting, with half a frame or replies it does not take,"
                          " longer than all others")


class ConnectionCount:
    """How many connections a process has, and how many it may have.

    :param maximum: asked at each connection.
    """

    log = Logger()

    def __init__(self, maximum: Callable[[], int]) -> None:
        self._maximum = maximum
        self.count = 0
        self.refused = 0

    def may_add(self) -> bool:
        """Whether there is room for one more; a refusal is counted and, now and then, logged."""
        maximum = self._maximum()
        if self.count < maximum:
            return True
        self.refused += 1
        # Every power of two, so that a flood of connections is no flood of lines.
        if self.refused & (self.refused - 1) == 0:
            self.log.warn("connection refused: there are {count}, as many as the limit of open "
                          "files allows; number {refused}", count=self.count,
                          refused=self.refused)
        return False

    def add(self) -> None:
        self.count += 1

    def remove(self) -> None:
        self.count -= 1
        assert self.count >= 0
