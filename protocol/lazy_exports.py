"""Exports names of a package that are imported when they are first used.

A program then loads only the modules that it uses: a command that asks one question does not need a
consumer. Completion and ``help()`` still know the names, because the package lists them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

__all__ = ["lazy_exports", "listed_names"]


def lazy_exports(
    package: str, homes: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package.

    :param package: the ``__name__`` of the package.
    :param homes: the module of each name.
    :param modules: the names of public modules of the package.
    """
    def get(name: str) -> object:
        """:raises AttributeError: when the package exports no such name."""
        if name in modules:
            try:
                return import_module(f"{package}.{name}")
            except ImportError as error:
                raise AttributeError(
                    f"module {package}.{name} cannot be imported: {error}") from error
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, listed_names(package, {*homes, *modules})


def listed_names(module: str, names: Collection[str]) -> Callable[[], list[str]]:
    """Make the function ``__dir__`` of a module, which lists only its public names.

    :param module: the ``__name__`` of the module.
    """
    def listed() -> list[str]:
        """The public names, and the names that Python itself keeps in every module."""
        own = (name for name in vars(sys.modules[module])
               if name.startswith("__") and name.endswith("__"))
        return sorted({*names, *own})

    return listed
