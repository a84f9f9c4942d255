"""Work that is done soon, once for all who ask meanwhile; asked for while it runs, done again.

A flag or a Deferred that stands for work under way must be set before the work begins and cleared
when it ends. Work that ends within the call that begins it would else leave it set for good, and
nothing would ever be done again. This is the one place that does so.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

__all__ = ["Soon"]


class Soon:
    """One kind of work.

    :param work: does it; what it raises is logged.
    :param name: of the work, for the log: "the registration".
    """

    log = Logger()

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work = work
        self._name = name
        self._is_running = self._is_working = False
        #: Those who asked before the work that runs began, and since.
        self._current: list[Deferred[None]] = []
        self._waiting: list[Deferred[None]] = []

    @property
    def is_running(self) -> bool:
        """Whether the work is under way."""
        return self._is_running

    def ask(self, *, again: bool = True) -> Deferred[None]:
        """Have the work done.

        :param again: whether work that began before does not count; else that is waited for.
        :returns: fires when the work has ended, however it did. Never fails.
        """
        done: Deferred[None] = Deferred()
        if self._is_working and not again:
            self._current.append(done)
            return done
        self._waiting.append(done)
        if not self._is_running:
            self._is_running = True
            Deferred.fromCoroutine(self._run())
        return done

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._current, self._waiting = self._waiting, []
                self._is_working = True
                try:
                    await self._work()
                except Exception:
                    self.log.failure("{name} failed", name=self._name)
                finally:
                    self._is_working = False
                ended, self._current = self._current, []
                for done in ended:
                    done.callback(None)
        finally:
            self._is_running = False
