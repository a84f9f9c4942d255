"""Servers, and rounds of clients, that the tests of one module share, because starts are slow.

    def broker(folder: Path, stack: ExitStack) -> Peer: ...

    peer = kept(self, broker)

The first test of the module that asks starts them. They end with the module: pytest tells so, and
trial when a test of another module asks, a :class:`JavaTestCase` of another module begins, or the
process ends. Neither calls both of a module's fixtures for a trial test case.

A test must not see what another left behind, so topics and groups are its own. A test that kills a
server, changes its accounts or swaps its store starts one of its own.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import TestCase

__all__ = ["at_once", "end_others", "kept"]

T = TypeVar("T")
#: Of the machine's cores. A round waits for most of its time.
_AT_ONCE: Final = 2


class _Kept:
    """The objects that the current module has created, by the function that created them."""

    def __init__(self) -> None:
        self._module = ""
        self._made: dict[object, Any] = {}
        self._stack = ExitStack()

    def of(self, module: str, make: Callable[[Path, ExitStack], T]) -> T:
        self.end_others(module)
        self._module = module
        if make not in self._made:
            with ExitStack() as stack:
                folder = Path(tempfile.mkdtemp(prefix="twistmq-kept-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                self._made[make] = make(folder, stack)
                # One that fails ends what it started at once.
                self._stack.push(stack.pop_all())
        made: T = self._made[make]
        return made

    def end_others(self, module: str) -> None:
        if module != self._module:
            self.close()

    def close(self) -> None:
        self._made.clear()
        self._stack.close()


_kept = _Kept()
atexit.register(_kept.close)


def kept(case: TestCase, make: Callable[[Path, ExitStack], T]) -> T:
    """Return the servers of the test's module.

    :param make: starts them, once; it is given a folder of their own, and the stack on which it
        puts their ends. A method does not do: each test has another.
    """
    return _kept.of(type(case).__module__, make)


def end_others(module: str) -> None:
    """End the objects unless they belong to this module; "" ends them in any case."""
    _kept.end_others(module)


def at_once(
    stack: ExitStack, rounds: Mapping[str, Callable[[], str]]
) -> dict[str, Future[str]]:
    """Begin rounds of clients, some of which run at the same time."""
    threads = ThreadPoolExecutor(_AT_ONCE)
    stack.callback(threads.shutdown)
    return {name: threads.submit(each) for name, each in rounds.items()}
