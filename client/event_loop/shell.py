"""Runs coroutines of the core in an event loop, and defines the requirements on that loop."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from twistmq.client.base.errors import Closed, ForkedError, WrongLoop, client_error
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.producer.in_flight_limit import InFlightLimit
from twistmq.client.event_loop.driver import Driver, EventLoop
from twistmq.client.shell.client_builder import build_client
from twistmq.client.shell.clock import SystemClock
from twistmq.client.shell.flag import Flag

if TYPE_CHECKING:
    import ssl

    from twistmq.client.shell.options import NameServers

__all__ = ["Shell"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How often the loop is checked, and the delays that cause a warning and an error, seconds.
_WATCH_S: Final = 1.0
_BLOCKED_WARN_S: Final = 1.0
_BLOCKED_ERROR_S: Final = 60.0
#: How long the end of the process waits for a loop that runs on another thread, seconds; the work
#: that it waits for ends earlier.
_END_S: Final = 35.0

#: The shells that are running and not closed.
_open: set[Shell] = set()
#: All shells of the process, for its forked children.
_shells: WeakSet[Shell] = WeakSet()


class Shell(ABC):
    """Runs the core of a client in an event loop."""

    #: Whether this is the copy of a forked child.
    is_abandoned = False
    #: The thread of the loop; None: the client has not started.
    _thread_id: int | None = None

    def __init__(self, name_servers: NameServers, arguments: dict[str, Any]) -> None:
        built = build_client(name_servers, SystemClock(), arguments)
        self.core = built.core
        self._tls = built.tls
        self._loop: EventLoop
        self._driver: Driver | None = None
        self._watch: _Watch | None = None
        #: The rooms of the producers, with their groups, which are checked at the end of the loop.
        self.rooms: WeakKeyDictionary[InFlightLimit, str] = WeakKeyDictionary()
        _shells.add(self)
        #: Cancels the work that was scheduled for the end of the loop.
        self._forget_end: Callable[[], object] = lambda: None

    # --- the loop's part

    @abstractmethod
    def make_loop(self, tls: ssl.SSLContext | None) -> EventLoop:
        """The loop in which the client runs.

        :param tls: the TLS context of all connections; None: connections are not encrypted.
        """

    def check_loop(self) -> None:  # noqa: B027
        """:raises WrongLoop: when the client runs in another loop than the caller."""

    @abstractmethod
    def new_future(
        self, cancel: Callable[[], object] | None = None
    ) -> tuple[Any, Callable[[Any], None]]:
        """A future of the loop, and a function that finishes it with a result or an exception.

        :param cancel: is called when the program cancels the future.
        :raises WrongLoop: when the client runs in another loop.
        """

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of the program concurrently."""

    @abstractmethod
    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Run coroutines of the program concurrently; the first error cancels the other ones."""

    @abstractmethod
    async def results(self, futures: Sequence[Any]) -> list[Any]:
        """Wait until all futures of the loop have ended, and then raise the first error."""

    @abstractmethod
    def wrap_handler(self, handler: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """Wrap a program's handler in a function whose result is awaited."""

    # --- the core's part

    @property
    def driver(self) -> Driver:
        """The driver; the first call makes it, in the loop in which the client will run."""
        if self._driver is None:
            loop = self.make_loop(self._tls)
            self._driver = loop.driver = Driver(self.core.engine, loop)
            self._thread_id = threading.get_ident()
            self._watch = _Watch(loop)
            self._loop = loop
            self._forget_end = loop.at_end(self.finish)
            _open.add(self)
        return self._driver

    async def finish(self) -> None:
        """Deliver all pending work to the brokers, because the loop ends; nothing is closed."""
        if self.core.is_closed:
            return
        # This module is loaded only at the end of a program.
        from twistmq.client.core.connection.exit_flush import finish

        # Another part of the program may close the client during the wait.
        with suppress(Closed):
            await self.call(finish(self.core), to_its_end=True)
        self.tell_lost()

    def tell_lost(self) -> None:
        """Log that messages of ``send_soon`` will not be sent, because the loop has ended.

        The loop itself reports failed messages whose future the program never looked at.
        """
        _open.discard(self)
        for room, group in list(self.rooms.items()):
            if room.count:
                log.error("producer group %s: %d messages of send_soon have no answer at the end "
                          "of the event loop: they may be lost", group, room.count)

    def finish_at_exit(self) -> None:
        """Finish the work at the end of the process; the loop may run on another thread."""
        done = Flag()

        async def finish() -> None:
            try:
                await self.finish()
            finally:
                done.set()

        if self._loop.from_thread(lambda: self.spawn(finish())):
            done.wait(_END_S)
        if self in _open:
            self.tell_lost()

    @property
    def is_elsewhere(self) -> bool:
        """Whether the caller runs on another thread than the loop."""
        return self._thread_id not in (None, threading.get_ident())

    def call_from_thread(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, from another thread."""
        self._loop.from_thread(function)

    def wake(self) -> None:
        """Run the core soon, if it has started at all; any thread may call it."""
        if self._driver is None:
            return
        if self.is_elsewhere:
            self.call_from_thread(self._driver.run_soon)
        else:
            self._driver.run_soon()

    def call(self, coroutine: Coroutine[Any, Any, T], *, to_its_end: bool = False) -> Awaitable[T]:
        """Run a coroutine of the core; cancelling the wait cancels the coroutine.

        A request that is already in flight is not affected.

        :param to_its_end: the coroutine continues when the wait is cancelled.
        :raises Closed: when the client is closed.
        :raises ForkedError: in a child of the process that made the client.
        """
        if self.core.is_closed:
            coroutine.close()
            self.check_process()
            raise Closed("the client is closed")

        def cancel() -> None:
            task.cancel()
            self.driver.run_soon()

        future: Awaitable[T]
        try:
            future, end = self.new_future(None if to_its_end else cancel)
        except WrongLoop:
            coroutine.close()
            raise

        def done(outcome: Future[T]) -> None:
            if outcome.error is None:
                end(outcome.result())
            elif isinstance(outcome.error, Exception):
                end(client_error(outcome.error))
            else:
                end(Closed("the client is closed"))

        task = self.driver.spawn(coroutine, done)
        return future

    def check_process(self) -> None:
        """:raises ForkedError: in a child of the process that made the client."""
        if self.is_abandoned:
            raise ForkedError("the process was forked after the client was made; make a new "
                              "client in the child")

    async def run_detached(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of the program to its end, even when the wait is cancelled."""
        try:
            future, end = self.new_future()
        except WrongLoop:
            coroutine.close()
            raise

        async def run() -> None:
            try:
                await coroutine
            except Exception as error:
                end(error)
            else:
                end(None)

        self.spawn(run())
        await future

    async def close(self) -> None:
        """Leave all groups and close the connections, even when the wait is cancelled.

        A forked child does nothing, because everything belongs to its parent.
        """
        if self.is_abandoned:
            return
        await self.run_detached(self._close())

    async def _close(self) -> None:
        if not self.core.is_closed:
            if self._driver is not None:
                await self.call(self.core.close())
            self.core.is_closed = True
        _open.discard(self)
        forget_end, self._forget_end = self._forget_end, lambda: None
        forget_end()
        if self._watch is not None:
            self._watch.stop()
        if self._driver is not None:
            self._driver.stop()
            # A loop that ended now would leave sockets open and would report it.
            closed, end = self.new_future()
            self._driver.when_closed(lambda: end(None))
            await closed


    def abandon(self) -> None:
        """Stop everything in a forked child, whose connections belong to its parent.

        Nothing is closed: the child shares the sockets and the selector of the loop, and a close
        would end them for the parent as well.
        """
        self.is_abandoned = True
        self.core.is_closed = True
        # The next send waits for room, and the wait raises the error.
        for room in self.rooms:
            room.leave_no_room()
        if self._driver is not None:
            self._driver.is_stopped = True


class _Watch:
    """Warns when the loop was blocked, because heartbeats are late then."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._begin()

    def _begin(self) -> None:
        self._due_s = time.monotonic() + _WATCH_S
        self.stop = self._loop.call_later(_WATCH_S, self._look)

    def _look(self) -> None:
        late_s = time.monotonic() - self._due_s
        if late_s > _BLOCKED_ERROR_S:
            log.error("the event loop was blocked for %.1f s: brokers may have given the queues "
                      "of this client to other members", late_s)
        elif late_s > _BLOCKED_WARN_S:
            log.warning("the event loop was blocked for %.1f s", late_s)
        self._begin()


@atexit.register
def _finish_all() -> None:
    """Finish the work of clients whose loop did not report its end, or log the lost messages."""
    for shell in list(_open):
        shell.finish_at_exit()


def _forked() -> None:
    """Leave the clients of the parent alone, in a forked child."""
    for shell in list(_shells):
        shell.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
