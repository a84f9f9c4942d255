"""Checks of functions that a program gives to the client: whether a call of them would do anything.

A call of a coroutine function only makes a coroutine, which does nothing unless it is awaited. The
same holds for a generator. The client refuses such a function at once; otherwise it would be
accepted and never run.
"""

from __future__ import annotations

from functools import partial
from typing import Final

__all__ = ["call_fault"]

#: Code flags of coroutine functions and of generators, including async generators. Source: inspect.
_COROUTINE: Final = 0x80
_GENERATOR: Final = 0x20 | 0x200


def call_fault(function: object, *, is_awaited: bool) -> str | None:
    """Return the reason why a call of a function would do nothing; None if it does something.

    :param function: a function, a method, a ``partial``, or an object with ``__call__``.
    :param is_awaited: whether the client awaits the result.
    """
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    flags = 0 if code is None else code.co_flags
    if flags & _GENERATOR:
        return "is a generator function: its call would do nothing"
    if flags & _COROUTINE and not is_awaited:
        return "is a coroutine function, which is not awaited here"
    return None
