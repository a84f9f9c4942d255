"""The thread of the blocking client, which runs the sockets, timers and engines of a process.

One daemon thread serves all blocking clients of a process; it starts with the first client. Other
threads post functions to it (:meth:`Loop.post`, :meth:`Loop.call`). Functions that block, such as
DNS look-ups, run on a small pool of separate threads.

The thread waits for two kinds of events: bytes on a socket, and calls from the program's threads. A
selector can wait only for sockets, so a thread that posts a function also writes one byte to a
socket pair that the selector watches. This system call costs more than everything else that a post
does. Therefore only the first post of a turn writes the byte; the functions posted after it are
found without another byte, because the turn that the byte starts calls all of them.

A child of ``fork`` does not have this thread, and the sockets belong to its parent. The child
closes its copies without sending anything to the servers
(``twistmq.client.blocking.process_loop``). Calls to the parent's clients then raise
``ForkedError``, except for a close, which does nothing: a ``with`` block that the fork copied ends
in the child too, and everything that it would close belongs to the parent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twistmq.client.base.errors import Closed, ForkedError, client_error
from twistmq.client.blocking.sockets import ClientSocket
from twistmq.client.core.connection.engine import Close, Connect, Effect, Engine, Work, Write
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.shell.flag import Flag
from twistmq.protocol.addresses import split_address
from twistmq.protocol.errors import BrokerError

if TYPE_CHECKING:
    import ssl
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["Loop"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The number of threads for functions that block.
_WORKERS: Final = 4
#: How long the end of a program waits for the thread, seconds; the work it waits for ends earlier.
_END_S: Final = 35.0
#: The maximum delay until an engine that failed runs again, ms.
_FAILED_MS: Final = 1000.0


class Loop:
    """The thread that serves all blocking clients of a process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_awake = False
        #: Whether the main thread is about to wake this one and has not done so yet.
        self._is_main_waking = False
        self._main_ident = threading.main_thread().ident
        self._engines: dict[Engine, ssl.SSLContext | None] = {}
        self._sockets: dict[tuple[Engine, int], ClientSocket] = {}
        self._workers: ThreadPoolExecutor | None = None
        #: For each engine, a function that delivers its work to the brokers when the program ends.
        self._finishing: dict[Engine, Callable[[], Coroutine[Any, Any, None]]] = {}
        #: Functions that are called at the end of the program, before and after that work.
        self.before_end: set[Callable[[], object]] = set()
        self.at_end: set[Callable[[], object]] = set()
        #: Functions that are called in a forked child, before it notices anything else.
        self.at_fork: set[Callable[[], object]] = set()
        #: Whether this is the copy of a forked child.
        self.is_abandoned = False
        self.thread = threading.Thread(target=self._run, name="twistmq-client", daemon=True)
        self.thread.start()

    # --- from any thread

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Schedule a function to be called on the thread soon.

        :raises ForkedError: in a child of the process that made the client.
        """
        self._posted.append((function, arguments))
        # A signal handler may interrupt the main thread just before that has woken this one, and
        # may wait for a post of its own or of another thread, so these posts wake it as well. If
        # they did so for other threads too, every post of many threads would write a byte: the
        # write lets the next thread run before it has ended.
        if not self._is_awake or self._is_main_waking:
            is_main = threading.get_ident() == self._main_ident
            if is_main:
                self._is_main_waking = True
            self._is_awake = True
            try:
                self._wake_out.send(b"\0")
            except BlockingIOError:
                pass
            except OSError:
                # A forked child has closed its copies of the sockets.
                self.check_process()
                raise
            if is_main:
                self._is_main_waking = False

    def call(self, engine: Engine, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of an engine and wait for its result.

        :param make: makes the coroutine, on the thread.
        :raises Closed: when the engine is no longer served, or the interpreter ends.
        :raises ForkedError: in a child of the process that made the client.
        :raises RuntimeError: when it is called on the thread itself.
        """
        self.check_process()
        self.check_thread()
        lock = threading.Lock()
        lock.acquire()
        outcome: list[Future[T]] = []
        task: list[Task[T]] = []

        def finished(future: Future[T]) -> None:
            outcome.append(future)
            lock.release()

        def begin() -> None:
            try:
                if engine not in self._engines:
                    raise Closed("the client is closed")
                coroutine = make()
            except Exception as error:
                failed: Future[T] = Future()
                failed.set_error(error)
                finished(failed)
                return
            task.append(engine.tasks.spawn(coroutine, "call"))
            task[0].when_done(finished)

        self.post(begin)
        try:
            lock.acquire()
        finally:
            if not outcome:
                # The caller was interrupted, so the result of the call is no longer needed.
                self.post(_cancel, task)
        try:
            return outcome[0].result()
        except BrokerError as error:
            raised = client_error(error)
            if raised is error:
                raise
            raise raised from error

    def call_in_loop(self, function: Callable[[], T]) -> T:
        """Call a function on the thread and wait for its result.

        :raises Closed: when the interpreter ends.
        :raises ForkedError: in a child of the process that made the client.
        """
        self.check_process()
        self.check_program()
        if threading.current_thread() is self.thread:
            # The caller is a call-back of the program, such as ``on_assigned``.
            return function()
        done = Flag()
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except Exception as error:
                outcome.set_error(error)
            done.set()

        self.post(run)
        done.wait()
        return outcome.result()

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the client's own thread."""
        return threading.current_thread() is self.thread

    def check_thread(self) -> None:
        """Check that the caller can wait for this thread.

        :raises RuntimeError: on the client's own thread, which cannot wait for itself.
        :raises Closed: when the interpreter ends.
        """
        self.check_program()
        # Each blocking call comes here, so the condition of `is_own_thread` is written out.
        if threading.current_thread() is self.thread:
            raise RuntimeError(
                "this waits for the client, and is called on the client's own thread, which calls "
                "on_assigned, on_lost, interceptors and the call-backs of futures: do it on "
                "another thread")

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended: in a forked child, or while the interpreter ends.

        A close has nothing to do then.
        """
        return self.is_abandoned or sys.is_finalizing()

    def check_program(self) -> None:
        """:raises Closed: when the interpreter ends, and no thread runs any more.

        A destructor, or a generator that was left in a ``with`` block, may still call the client
        then, and would wait forever. Everything was delivered before.
        """
        if sys.is_finalizing():
            raise Closed("the program has ended, so the client can do nothing more")

    def check_process(self) -> None:
        """:raises ForkedError: in a child of the process that made the loop."""
        if os.getpid() != self.pid:
            raise ForkedError("the process was forked after the client was made; "
                              "make a new client in the child")

    def add(
        self, engine: Engine, tls: ssl.SSLContext | None,
        finish: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Serve an engine.

        :param tls: the TLS context that wraps its connections.
        :param finish: delivers its work to the brokers when the program ends without a close; it
            has its own time limit.
        """
        def begin() -> None:
            self._engines[engine] = tls
            engine.unsent_bytes = lambda: sum(
                each.unsent_bytes for each in self._sockets.values() if each.engine is engine)
            if finish is not None:
                self._finishing[engine] = finish

        self.post(begin)

    def remove(self, engine: Engine) -> None:
        """Stop serving an engine and close its connections."""
        def end() -> None:
            if engine in self._engines:
                del self._engines[engine]
                self._finishing.pop(engine, None)
                # Calls that arrived at the last moment end now.
                self._run_engine(engine)
            for each in [each for each in self._sockets.values() if each.engine is engine]:
                each.drop()

        self.post(end)

    def finish(self) -> None:
        """Wait until the work of all engines is delivered, because the program ends.

        Nothing is closed: other parts of the program may still use the clients while it ends.
        """
        done = Flag()
        for function in list(self.before_end):
            function()

        def begin() -> None:
            tasks = [engine.tasks.spawn(make(), "end of the program")
                     for engine, make in self._finishing.items()]
            unfinished_count = len(tasks)

            def ended(_: Future[None]) -> None:
                nonlocal unfinished_count
                unfinished_count -= 1
                if not unfinished_count:
                    done.set()

            for task in tasks:
                task.when_done(ended)
            if not tasks:
                done.set()

        self.post(begin)
        done.wait(_END_S)
        for function in list(self.at_end):
            function()

    # --- the thread

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception:
                log.exception("a function on the client's thread failed")

    def _turn(self) -> None:
        """Call the posted functions, run the engines, and wait for the next event."""
        posted = self._posted
        self._is_awake = False
        while posted:
            function, arguments = posted.popleft()
            function(*arguments)
        due_ms = self._run_engines()
        if posted:
            due_ms = 0.0
        timeout_s = (None if due_ms is None
                     else max(due_ms - time.monotonic() * 1000, 0) / 1000)
        for key, mask in self._selector.select(timeout_s):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    while len(self._wake_in.recv(4096)) == 4096:
                        pass
            else:
                key.data.ready(mask)

    def _run_engines(self) -> float | None:
        """Run all engines; :returns: when the first one has to run again, monotonic ms."""
        due_ms: float | None = None
        for engine in list(self._engines):
            try:
                next_ms = self._run_engine(engine)
            except Exception:
                # A bug in the client. The delay keeps a permanent failure from filling the log.
                log.exception("the client failed, and continues")
                next_ms = time.monotonic() * 1000 + _FAILED_MS
            if next_ms is not None and (due_ms is None or next_ms < due_ms):
                due_ms = next_ms
        return due_ms

    def _run_engine(self, engine: Engine) -> float | None:
        """Run an engine until it has nothing left to do; :returns: when it has to run again."""
        while True:
            next_ms = engine.run()
            effects = engine.take_effects()
            if not effects:
                return next_ms
            for effect in effects:
                self._do(engine, effect)

    # --- effects

    def _do(self, engine: Engine, effect: Effect) -> None:
        if isinstance(effect, Write):
            each = self._sockets.get((engine, effect.number))
            if each is not None:
                each.write(effect.data)
        elif isinstance(effect, Connect):
            self._connect(engine, effect)
        elif isinstance(effect, Close):
            each = self._sockets.get((engine, effect.number))
            if each is not None:
                each.drop()
        else:
            self._work(engine, effect)

    def _connect(self, engine: Engine, effect: Connect) -> None:
        try:
            host, port = split_address(effect.address)
        except ValueError as error:
            engine.lost(effect.number, str(error))
            return
        each = ClientSocket(engine, effect.number, host, self._engines.get(engine),
                            self._selector, self._dropped)
        self._sockets[engine, effect.number] = each
        try:
            # The name is passed as bytes. A text would load the codec for names, and a fork at that
            # moment would leave a child that cannot load it.
            addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM,
                                           flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeEncodeError):
            self._in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM),
                            lambda result, error: self._resolved(each, result, error))
        else:
            each.open(addresses)

    def _dropped(self, each: ClientSocket) -> None:
        self._sockets.pop((each.engine, each.number), None)

    def _resolved(self, each: ClientSocket, addresses: Any, error: BaseException | None) -> None:
        if (each.engine, each.number) not in self._sockets:
            return
        if error is not None:
            each.lost(str(error))
        else:
            each.open(addresses)

    def _work(self, engine: Engine, effect: Work) -> None:
        self._in_thread(effect.function,
                        lambda result, error: engine.worked(effect.number, result, error))

    def _in_thread(
        self, function: Callable[[], object],
        then: Callable[[Any, BaseException | None], object],
    ) -> None:
        def run() -> None:
            try:
                result = function()
            except Exception as error:
                self.post(then, None, error)
            else:
                self.post(then, result, None)

        try:
            if self._workers is None:
                # Few clients need it: only for a file, or for a name server or broker given by its
                # name.
                from concurrent.futures import ThreadPoolExecutor

                self._workers = ThreadPoolExecutor(_WORKERS, "twistmq-client-work")
            self._workers.submit(run)
        except RuntimeError:
            # The interpreter is shutting down and refuses new threads, so the function runs here.
            run()

    def abandon(self) -> None:
        """Close the sockets of a forked child without sending anything to the servers."""
        self.is_abandoned = True
        for each in list(self._sockets.values()):
            each.abandon()
        self._sockets.clear()
        for function in list(self.at_fork):
            function()
        # The next call of ``post`` has to notice that the sockets are closed.
        self._is_awake = False
        for end in (self._wake_in, self._wake_out):
            with contextlib.suppress(OSError):
                os.close(end.detach())
        with contextlib.suppress(OSError):
            self._selector.close()


def _cancel(tasks: list[Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
