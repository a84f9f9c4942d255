"""Loops that last as long as their member: an error of one turn does not end them.

What a turn expects to go wrong, it handles itself. A fault of the program's own parts (a strategy,
a listener), or one of this library, must not stop a member for good: it would keep its place in
the group, and read nothing of what is assigned to it.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from twistmq.client.base.errors import Closed

__all__ = ["Loop"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class Loop(Generic[T]):
    """The turns of one loop.

    :param name: of the loop, for the log: "the rebalance of group g".
    :param otherwise: the result of a turn that failed.
    """

    def __init__(self, name: str, otherwise: T) -> None:
        self._name = name
        self._otherwise = otherwise
        #: Why the last turn failed; empty: it did not fail.
        self._fault = ""

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one turn. An error is logged, once as long as it stays the same.

        :raises Closed: when the client is closed, because there is no next turn.
        """
        try:
            result = await work
        except Closed:
            raise
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            if fault != self._fault:
                self._fault = fault
                log.exception("%s failed, and is tried again: %s", self._name, fault)
            return self._otherwise
        self._fault = ""
        return result
