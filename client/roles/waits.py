"""Methods that wait: written once as coroutine functions, and typed for each style.

Most methods of a client, a producer or a consumer check their arguments, and then wait for one
coroutine of the core. Only the wait differs between the styles, so these methods are written once,
in this folder, and have the decorator :func:`waits`.

- asyncio's classes use such a method unchanged, so a call is a coroutine.
- Twisted's classes (``twistmq.client.tx``) wrap it, so a call returns a ``Deferred``.
- The classes for threads (:class:`ForThreads`) run the coroutine on the calling thread, up to each
  function of the core that it waits for. The client's own thread runs that function, and the
  calling thread blocks until it ends. An interruption such as KeyboardInterrupt is raised in the
  coroutine at this point, as a cancellation is in the other styles.

Type checkers find the right form by the base class :class:`ForAsyncio`, :class:`ForTwisted` or
:class:`ForThreads`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from types import coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["ForAsyncio", "ForThreads", "ForTwisted", "waits", "wrap_waits"]

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Concatenate, Generic, overload

    from twisted.internet.defer import Deferred

    #: Runs a coroutine function of the core to its end, while the calling thread blocks.
    Runner = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def wrap_waits(cls: type, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the methods of a class, and of its bases, that have the decorator :func:`waits`.

    :param wrapper: returns the replacement of a method.
    """
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        if getattr(function, "waits", False):
            wrapped = wraps(function)(wrapper(function))
            # A subclass must not wrap the method a second time.
            del wrapped.__dict__["waits"]
            setattr(cls, name, wrapped)


class ForAsyncio:
    """A class in which the methods that wait are coroutine functions."""


class ForTwisted:
    """A class in which the methods that wait return a ``Deferred``."""


class ForThreads:
    """A class in which the methods that wait block the calling thread."""

    #: Runs a coroutine function of the core.
    _run: Runner

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        wrap_waits(cls, _blocking)

    # This is a generator with one step, because each further coroutine or object between a method
    # and its runner costs a blocking send about a microsecond.
    @coroutine
    def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Generator[Callable[[], Coroutine[Any, Any, T]], T, T]:
        """Run a coroutine function of the core."""
        return (yield partial(function, *args, **kwargs))


def _blocking(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    def call(self: ForThreads, *arguments: Any, **named: Any) -> T:
        method = function(self, *arguments, **named)
        resume: Callable[[Any], Any] = method.send
        value: Any = None
        while True:
            try:
                step = resume(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                value = self._run(step)
                resume = method.send
            except BaseException as error:
                value = error
                resume = method.throw

    return call


if TYPE_CHECKING:
    class waits(Generic[P, T]):
        """Marks a method that waits."""

        def __init__(
            self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
        ) -> None: ...

        @overload
        def __get__(self, instance: ForThreads, owner: type) -> Callable[P, T]: ...
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
