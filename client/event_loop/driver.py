"""Provides sockets, timers and threads to an engine, with any event loop.

``twistmq.client.aio`` and ``twistmq.client.tx`` give a :class:`Driver` their functions for
connecting, for delayed calls and for running a function on a thread. The driver runs the engine
after each event, carries out its effects, and sets one timer.

The engine is a state machine without input or output. It takes bytes and calls, and it produces
effects, such as a connection to open or bytes to write, and the time at which it has to run again.
The driver is the only part that needs an event loop. After an event of a connection it runs the
engine at once. After a call of the program it only schedules a run for the loop's next turn, so
that all calls of one turn share one run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from twistmq.client.core.connection.engine import Close, Connect, Engine, Work, Write
from twistmq.client.core.connection.tasks import Future, Task

__all__ = ["Driver", "EventLoop", "Stream"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a client waits for the servers' TLS closing messages, seconds; they usually come at
#: once.
CLOSE_S: Final = 1.0
#: How long it then waits for connections that it closed without a TLS closing message, seconds.
_KILL_S: Final = 0.1
#: The bytes that may wait for a server that does not read; beyond that the connection is closed.
UNSENT_MAX: Final = 256 << 20


class Stream(Protocol):
    """An open connection of an event loop."""

    def write(self, data: bytes) -> None:
        """Send bytes, later if necessary."""

    def unsent_bytes(self) -> int:
        """The number of bytes that wait to be sent."""

    def abort(self) -> None:
        """Close the connection; the driver's ``lost`` is called when it is closed.

        With TLS it first sends the closing message and waits for the response.
        """

    def kill(self) -> None:
        """Close the connection without sending anything to the server."""


class EventLoop(Protocol):
    """The part of an event loop that a driver needs."""

    #: The driver of this loop; it is set before the first call.
    driver: Driver | None

    def connect(self, number: int, address: str) -> None:
        """Open a connection, and then call the driver's ``connected`` or ``lost``."""

    def cancel_connect(self, number: int) -> None:
        """Stop opening a connection."""

    def call_later(self, delay_s: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function later; :returns: a function that cancels it."""

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop's next turn."""

    def in_thread(
        self, function: Callable[[], object],
        then: Callable[[Any, BaseException | None], object],
    ) -> None:
        """Run a function on a thread, and call back in the loop."""

    def at_end(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], object]:
        """Run a coroutine of the program when the loop ends; the loop waits for it.

        :returns: a function that undoes this.
        """

    def from_thread(self, function: Callable[[], object]) -> bool:
        """Call a function in the loop, from another thread; :returns: whether the loop runs."""


class Driver:
    """Runs an engine in an event loop."""

    def __init__(self, engine: Engine, loop: EventLoop) -> None:
        self.engine = engine
        self._loop = loop
        self._streams: dict[int, Stream] = {}
        #: Connections that are being closed.
        self._closing: dict[int, Stream] = {}
        self._when_closed: Callable[[], object] | None = None
        self._cancel_timer: Callable[[], object] | None = None
        self._due_ms: float | None = None
        self._is_planned = False
        self._is_running = False
        self.is_stopped = False
        engine.unsent_bytes = lambda: sum(
            stream.unsent_bytes() for stream in self._streams.values())

    # --- from the shell

    def spawn(
        self, coroutine: Coroutine[Any, Any, T], then: Callable[[Future[T]], object]
    ) -> Task[T]:
        """Run a coroutine of the core, and call back when it has ended."""
        task = self.engine.tasks.spawn(coroutine, "call")
        task.when_done(then)
        self.run_soon()
        return task

    def run_soon(self) -> None:
        """Run the engine in the loop's next turn, once for all events until then."""
        if not self._is_planned and not self._is_running:
            self._is_planned = True
            self._loop.call_soon(self._run_planned)

    def stop(self) -> None:
        """Close all connections, and set no further timers."""
        self.run()
        self.is_stopped = True
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        for number in list(self._streams):
            self._abort(number, self._streams.pop(number))

    def when_closed(self, then: Callable[[], object]) -> None:
        """Call back once, when all connections are closed or a time limit has passed."""
        # This may be called while the engine runs and still has effects, so it waits for a turn.
        self._loop.call_soon(lambda: self._wait_closed(then))

    def _wait_closed(self, then: Callable[[], object]) -> None:
        if not self._closing:
            then()
            return
        cancels: list[Callable[[], object]] = []

        def ended() -> None:
            if self._when_closed is ended:
                self._when_closed = None
                for cancel in cancels:
                    cancel()
                then()

        def kill() -> None:
            cancels.append(self._loop.call_later(_KILL_S, ended))
            for stream in list(self._closing.values()):
                stream.kill()

        self._when_closed = ended
        cancels.append(self._loop.call_later(CLOSE_S, kill))

    def _abort(self, number: int, stream: Stream) -> None:
        """Close a connection, which may take a while."""
        self._closing[number] = stream
        stream.abort()

    def closing(self, number: int, stream: Stream) -> None:
        """A connection that was never open is being closed; ``closed`` is called afterwards."""
        self._closing[number] = stream

    def closed(self, number: int) -> None:
        """A connection is closed."""
        self._closing.pop(number, None)
        if not self._closing and self._when_closed is not None:
            self._when_closed()

    # --- from connections

    def connected(self, number: int, stream: Stream, local_address: str) -> None:
        """A connection is open."""
        if self.is_stopped:
            self._abort(number, stream)
            return
        self._streams[number] = stream
        self.engine.tasks.now_ms = self.engine.tasks.clock.monotonic_ms()
        self.engine.connected(number, local_address)
        self.run()

    def received(self, number: int, data: bytes) -> None:
        """Bytes arrived."""
        self.engine.tasks.now_ms = self.engine.tasks.clock.monotonic_ms()
        self.engine.received(number, data)
        self.run()

    def lost(self, number: int, reason: str) -> None:
        """A connection ended, or could not be opened."""
        self._streams.pop(number, None)
        self.closed(number)
        self.engine.tasks.now_ms = self.engine.tasks.clock.monotonic_ms()
        self.engine.lost(number, reason)
        self.run()

    # --- the engine

    def _run_planned(self) -> None:
        self._is_planned = False
        self.run()

    def run(self) -> None:
        """Run the engine until it has nothing left to do."""
        if self._is_running or self.is_stopped:
            return
        self._is_running = True
        try:
            while True:
                due_ms = self.engine.run()
                effects = self.engine.take_effects()
                if not effects:
                    break
                for effect in effects:
                    self._do(effect)
        finally:
            self._is_running = False
        self._plan(due_ms)

    def _do(self, effect: Connect | Write | Close | Work) -> None:
        if isinstance(effect, Write):
            stream = self._streams.get(effect.number)
            if stream is not None:
                stream.write(effect.data)
                if stream.unsent_bytes() > UNSENT_MAX:
                    self._abort(effect.number, self._streams.pop(effect.number))
                    self.engine.lost(effect.number, "it reads nothing")
        elif isinstance(effect, Connect):
            self._loop.connect(effect.number, effect.address)
        elif isinstance(effect, Close):
            stream = self._streams.pop(effect.number, None)
            if stream is None:
                self._loop.cancel_connect(effect.number)
            else:
                self._abort(effect.number, stream)
        else:
            number = effect.number

            def worked(result: Any, error: BaseException | None) -> None:
                self.engine.worked(number, result, error)
                self.run()

            self._loop.in_thread(effect.function, worked)

    def _plan(self, due_ms: float | None) -> None:
        """Set the timer for the engine's next run."""
        if due_ms is None or self.is_stopped:
            return
        if self._cancel_timer is not None:
            if self._due_ms is not None and self._due_ms <= due_ms:
                return
            self._cancel_timer()
        self._due_ms = due_ms
        now_ms = self.engine.tasks.clock.monotonic_ms()
        self._cancel_timer = self._loop.call_later(max(due_ms - now_ms, 0) / 1000, self._timer)

    def _timer(self) -> None:
        self._cancel_timer = None
        self._due_ms = None
        self.run()
