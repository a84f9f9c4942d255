"""Servers that the tests of one module share, since each start of Apache's costs seconds.

    def broker(folder: Path, stack: ExitStack) -> Peer: ...

    peer = kept(self, broker)

The first test of the module that asks starts them. They end when a test of another module asks, or
with the process: neither trial nor pytest calls both of a module's fixtures for a trial test case.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar
from unittest import TestCase

__all__ = ["kept"]

T = TypeVar("T")


class _Kept:
    """What the module whose tests run now has made, by the function that made it."""

    def __init__(self) -> None:
        self._module = ""
        self._made: dict[object, Any] = {}
        self._stack = ExitStack()

    def of(self, module: str, make: Callable[[Path, ExitStack], T]) -> T:
        if module != self._module:
            self.close()
            self._module = module
        if make not in self._made:
            folder = Path(tempfile.mkdtemp(prefix="twistmq-kept-"))
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self._made[make] = make(folder, self._stack)
        made: T = self._made[make]
        return made

    def close(self) -> None:
        self._made.clear()
        self._stack.close()


_kept = _Kept()
atexit.register(_kept.close)


def kept(case: TestCase, make: Callable[[Path, ExitStack], T]) -> T:
    """The servers of the test's module.

    :param make: starts them, once; it is given a folder of their own, and the stack on which it
        puts their ends. A method does not do: each test has another.
    """
    return _kept.of(type(case).__module__, make)
