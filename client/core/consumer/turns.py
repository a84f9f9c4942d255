"""The turns of a consumer: the handlers and iterations in which the running code was called.

A close waits for handlers. One that is called in a handler of the same consumer would wait for
itself, so it has to know where it is. The context of the code says that: a thread of workers and
a task of an event loop have one each, and what they call or begin has it too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["Turn"]


class Turn:
    """A worker that calls handlers, or an iteration.

    :param member: the consumer's core.
    :param give_back: lets the messages of an iteration wait again; None: it is a worker, whose
        handler ends by itself.
    """

    def __init__(self, member: object, give_back: Callable[[], object] | None = None) -> None:
        self._member = member
        self.give_back = give_back
        self._is_over = False

    def begin(self) -> None:
        """The code that is called from now on in this context is called in this turn."""
        _turns.set(frozenset({self, *(each for each in _turns.get() if not each._is_over)}))

    def end(self) -> None:
        """The worker or the iteration has ended."""
        self._is_over = True

    @staticmethod
    def of(member: object) -> list[Turn]:
        """The turns of a member in which the caller is."""
        return [each for each in _turns.get() if each._member is member and not each._is_over]


_turns: Final[ContextVar[frozenset[Any]]] = ContextVar("twistmq_turns", default=frozenset())
