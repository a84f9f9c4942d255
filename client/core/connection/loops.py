"""Loops that last as long as their member: an error of one turn does not end them.

A turn handles the errors that it expects. A fault of the program's own parts (a strategy, a
listener) or of this library must not stop a member for good: the member would keep its place in
the group but read none of the queues that are assigned to it.
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

    :param name: the name of the loop in the log, such as "the rebalance of group g".
    :param otherwise: the result of a turn that failed.
    """

    def __init__(self, name: str, otherwise: T) -> None:
        self._name = name
        self._otherwise = otherwise
        #: The reason why the last turn failed; empty if it did not fail.
        self._fault = ""

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one turn. An error is logged, but only once as long as it stays the same.

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
