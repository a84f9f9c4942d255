"""Work that is done soon, once for all callers that ask for it in the meantime.

If callers ask while the work runs, it is done again. A flag or a Deferred that marks work in
progress must be set before the work begins and cleared when it ends. Otherwise work that ends
within the call that starts it would leave the flag set forever, and the work would never be done
again. This module is the only place that handles this.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

__all__ = ["Soon"]


class Soon:
    """One kind of work.

    :param work: does the work; its exceptions are logged.
    :param name: the name of the work in the log, such as "the registration".
    """

    log = Logger()

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work = work
        self._name = name
        self._is_running = self._is_working = False
        #: The callers that asked before the current run began, and those that have asked since.
        self._current: list[Deferred[None]] = []
        self._waiting: list[Deferred[None]] = []

    @property
    def is_running(self) -> bool:
        """Whether the work is in progress."""
        return self._is_running

    def ask(self, *, again: bool = True) -> Deferred[None]:
        """Ask for the work to be done.

        :param again: whether a run that has already begun does not count; otherwise the call waits
            for that run.
        :returns: fires when the work has ended, with or without success. Never fails.
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
