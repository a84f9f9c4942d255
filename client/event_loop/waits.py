"""Methods that wait: written once as coroutine functions, and typed for each event loop.

A method with the decorator :func:`waits` is an ``async def``. asyncio's classes use it unchanged,
so a call is a coroutine. Twisted's classes (``twistmq.client.tx``) wrap it, so a call returns a
``Deferred``. Type checkers find the right form by the base class :class:`ForAsyncio` or
:class:`ForTwisted`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["ForAsyncio", "ForTwisted", "waits"]

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

    from twisted.internet.defer import Deferred

    P = ParamSpec("P")
    T = TypeVar("T")


class ForAsyncio:
    """A class in which the methods that wait are coroutine functions."""


class ForTwisted:
    """A class in which the methods that wait return a ``Deferred``."""


if TYPE_CHECKING:
    class waits(Generic[P, T]):
        """Marks a method that waits."""

        def __init__(
            self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
        ) -> None: ...

        @overload
        def __get__(self, instance: ForTwisted, owner: type) -> Callable[P, Deferred[T]]: ...
        @overload
        def __get__(
            self, instance: ForAsyncio, owner: type
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, instance: object, owner: type) -> Callable[P, Awaitable[T]]: ...
        def __get__(self, instance: object, owner: type) -> Any: ...
else:
    def waits(function):
        """Mark a method that waits."""
        function.waits = True
        return function
