"""Provides the connections, timers and Deferreds of a reactor to the client's core."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    FirstError,
    gatherResults,
    maybeDeferred,
)
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from twistmq.client.base.errors import OptionError
from twistmq.client.event_loop.driver import Driver, EventLoop
from twistmq.client.event_loop.shell import Shell
from twistmq.client.roles.waits import ForTwisted, wrap_waits
from twistmq.client.shell.options import NameServers
from twistmq.client.tx.connection import ConnectionAttempt
from twistmq.protocol.addresses import split_address

__all__ = ["DeferredMethods", "TwistedShell"]


class DeferredMethods(ForTwisted):
    """Makes the waiting methods of a class and of its bases return Deferreds."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        wrap_waits(cls, lambda function: lambda *arguments, **named: Deferred.fromCoroutine(
            function(*arguments, **named)))


class Loop:
    """A reactor in the form that a driver needs."""

    def __init__(self, reactor: Any, tls: ssl.SSLContext | None) -> None:
        self.reactor = reactor
        self._tls = tls
        self.driver: Driver | None = None
        self._opening: dict[int, ConnectionAttempt] = {}

    def connect(self, number: int, address: str) -> None:
        """See ``EventLoop``."""
        driver = self.driver
        assert driver is not None
        try:
            host_port = split_address(address)
        except ValueError as error:
            driver.lost(number, str(error))
            return
        opening = self._opening[number] = ConnectionAttempt(
            self.reactor, driver, number, host_port, self._tls,
            lambda: self._opening.pop(number, None))
        opening.begin()

    def cancel_connect(self, number: int) -> None:
        """See ``EventLoop``."""
        opening = self._opening.get(number)
        if opening is not None:
            opening.cancel()

    def call_later(self, delay_s: float, function: Callable[[], object]) -> Callable[[], object]:
        """See ``EventLoop``."""
        call = self.reactor.callLater(delay_s, function)

        def cancel() -> None:
            if call.active():
                call.cancel()

        return cancel

    def call_soon(self, function: Callable[[], object]) -> None:
        """See ``EventLoop``."""
        self.reactor.callLater(0, function)

    def in_thread(
        self, function: Callable[[], object],
        then: Callable[[Any, BaseException | None], object],
    ) -> None:
        """See ``EventLoop``."""
        working = deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function)
        working.addCallbacks(lambda result: then(result, None),
                             lambda failure: then(None, failure.value))

    def at_end(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], object]:
        """See ``EventLoop``; a reactor waits for the Deferreds of its shutdown triggers."""
        add = getattr(self.reactor, "addSystemEventTrigger", None)
        if add is None:
            return lambda: None
        is_fired = False

        def fired() -> Deferred[None]:
            nonlocal is_fired
            is_fired = True
            return Deferred.fromCoroutine(finish())

        trigger = add("before", "shutdown", fired)

        def forget() -> None:
            if not is_fired:
                self.reactor.removeSystemEventTrigger(trigger)

        return forget

    def from_thread(self, function: Callable[[], object]) -> bool:
        """See ``EventLoop``."""
        if getattr(self.reactor, "running", False):
            self.reactor.callFromThread(function)
            return True
        return False


class _HandlerCancelled(BaseException):
    """A worker that was waiting for a handler was cancelled.

    As in asyncio, it is not an ``Exception``, so the handler counts as not called.
    """


class TwistedShell(Shell):
    """Runs coroutines of the core in a reactor."""

    def __init__(self, name_servers: NameServers, reactor: Any, arguments: dict[str, Any]) -> None:
        if reactor is None:
            raise OptionError("give the reactor, or a client that has one")
        super().__init__(name_servers, arguments)
        self._reactor = reactor

    def make_loop(self, tls: ssl.SSLContext | None) -> EventLoop:
        """See ``Shell``."""
        return Loop(self._reactor, tls)

    def new_future(
        self, cancel: Callable[[], object] | None = None
    ) -> tuple[Deferred[Any], Callable[[Any], None]]:
        """See ``Shell``."""
        def cancelled(_: Deferred[Any]) -> None:
            if cancel is not None:
                cancel()

        result: Deferred[Any] = Deferred(cancelled)

        def end(outcome: Any) -> None:
            if result.called:
                return
            if isinstance(outcome, Exception):
                result.errback(outcome)
            else:
                result.callback(outcome)

        return result, end

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """See ``Shell``."""
        Deferred.fromCoroutine(coroutine)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
        """See ``Shell``."""
        running = [Deferred.fromCoroutine(each) for each in coroutines]
        try:
            await gatherResults(running, consumeErrors=True)
        except FirstError as error:
            if error.subFailure.check(_HandlerCancelled):
                raise CancelledError from None
            error.subFailure.raiseException()
        finally:
            for each in running:
                each.cancel()

    async def results(self, futures: Sequence[Any]) -> list[Any]:
        """See ``Shell``."""
        outcomes = await DeferredList(futures, consumeErrors=True)
        for is_success, outcome in outcomes:
            if not is_success:
                cast(Failure, outcome).raiseException()
        return [outcome for _, outcome in outcomes]

    def wrap_handler(self, handler: Callable[[Any], Any]) -> Callable[[Any], Deferred[Any]]:
        """See ``Shell``; a plain function runs in the reactor, and may return a Deferred."""
        def call(argument: Any) -> Deferred[Any]:
            handled = maybeDeferred(handler, argument)
            is_cancelled = False

            def cancel(_: Deferred[Any]) -> None:
                nonlocal is_cancelled
                is_cancelled = True
                handled.cancel()

            def failed(failure: Failure) -> None:
                result.errback(_HandlerCancelled() if is_cancelled else failure)

            result: Deferred[Any] = Deferred(cancel)
            handled.addCallbacks(result.callback, failed)
            return result

        return call
