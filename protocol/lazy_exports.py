"""Exports names of a package that are imported when they are first used.

A program then loads only the modules that it uses: a command that asks one question does not need a
consumer. Completion and ``help()`` still know the names, because the package lists them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_exports"]


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package.

    :param package: the ``__name__`` of the package.
    :param homes: the module of each name.
    """
    def get(name: str) -> object:
        """:raises AttributeError: when the package exports no such name."""
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        """The exported names, and the names that Python itself keeps in every module."""
        own = (name for name in vars(sys.modules[package])
               if name.startswith("__") and name.endswith("__"))
        return sorted({*homes, *own})

    return get, listed
