"""Errors for ``with`` and ``for`` on objects of an event loop, which need ``async with`` and so on.

Python's own error says that the object "does not support the context manager protocol", which does
not help a user who has just replaced a blocking producer.
"""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn

from twistmq.client.base.errors import OptionError

__all__ = ["AsyncOnly", "AsyncOnlyLoop"]


class AsyncOnly:
    """An object whose block begins with ``async with``."""

    def __enter__(self) -> NoReturn:
        """:raises OptionError: always."""
        raise OptionError(f"{self!r} belongs to an event loop: use `async with` in place of `with`")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The block cannot begin, so it never ends."""


class AsyncOnlyLoop(AsyncOnly):
    """An object that is iterated by ``async for``."""

    def __iter__(self) -> NoReturn:
        """:raises OptionError: always."""
        raise OptionError(f"{self!r} belongs to an event loop: use `async for` in place of `for`")
