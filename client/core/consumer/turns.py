"""The turns of a consumer: the handlers and iterations in which the running code was called.

A close waits for handlers. If it is called in a handler of the same consumer, it would wait for
itself, so it has to detect where it is called. The context variables of the running code hold this
information: each worker thread and each task of an event loop has its own context, and passes it
on to the code that it calls or starts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["Turn"]


class Turn:
    """A worker that calls handlers, or an iteration.

    :param member: the consumer's core.
    :param give_back: lets the messages of an iteration wait again; None for a worker, whose
        handler ends without help.
    """

    def __init__(self, member: object, give_back: Callable[[], object] | None = None) -> None:
        self._member = member
        self.give_back = give_back
        self._is_over = False

    def begin(self) -> None:
        """Mark that code called from now on in this context is called in this turn."""
        _turns.set(frozenset({self, *(each for each in _turns.get() if not each._is_over)}))

    def end(self) -> None:
        """Mark that the worker or the iteration has ended."""
        self._is_over = True

    @staticmethod
    def running(member: object) -> list[Turn]:
        """Return the turns of a member in which the caller is."""
        return [each for each in _turns.get() if each._member is member and not each._is_over]


_turns: Final[ContextVar[frozenset[Any]]] = ContextVar("twistmq_turns", default=frozenset())
