"""The thread of the blocking client: sockets, timers and engines of a process.

One daemon thread serves all blocking clients of a process; it starts with the first of them. Other
threads post functions to it (:meth:`Loop.post`, :meth:`Loop.call`). Functions that block, such as
DNS look-ups, run on a few threads of their own.

A child of ``fork`` has no such thread, and the sockets are its parent's. The child closes its
copies without a word to the servers, and calls of the parent's clients raise ``ForkedError``.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twistmq.broker.wire.addresses import split_address
from twistmq.client.core.engine import Close, Connect, Effect, Engine, Work, Write
from twistmq.client.core.tasks import Future, Task
from twistmq.client.errors import ForkedError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["Loop", "shared_loop"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: Bytes one read asks for, and how many reads of a socket follow each other before others are
#: served.
_READ_SIZE: Final = 1 << 18
#: Bytes that wait for a server that does not read; with more the connection is closed.
_UNSENT_MAX: Final = 256 << 20
#: Threads for functions that block.
_WORKERS: Final = 4


class _Socket:
    """A socket of one connection, from connecting on."""

    __slots__ = ("deadline", "engine", "host", "is_connected", "number", "offset", "socket", "tls",
                 "unsent", "unsent_bytes", "wanted")

    def __init__(self, engine: Engine, number: int, host: str, tls: ssl.SSLContext | None) -> None:
        self.engine = engine
        self.number = number
        self.host = host
        self.tls = tls
        self.socket: socket.socket | None = None
        self.is_connected = False
        self.unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        #: How much of the first unsent part is sent.
        self.offset = 0
        #: The events that the selector waits for.
        self.wanted = 0
        self.deadline = 0.0


class Loop:
    """The thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_awake = False
        self._engines: dict[Engine, ssl.SSLContext | None] = {}
        self._sockets: dict[tuple[Engine, int], _Socket] = {}
        self._workers: ThreadPoolExecutor | None = None
        self.thread = threading.Thread(target=self._run, name="twistmq-client", daemon=True)
        self.thread.start()

    # --- from any thread

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the thread, soon."""
        self._posted.append((function, arguments))
        if not self._is_awake:
            self._is_awake = True
            with contextlib.suppress(BlockingIOError):
                self._wake_out.send(b"\0")

    def call(self, engine: Engine, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of an engine and wait for its end.

        :param make: makes the coroutine, on the thread.
        :raises ForkedError: in a child of the process that made the client.
        """
        self.check_process()
        if threading.current_thread() is self.thread:
            raise RuntimeError("the client's own thread cannot wait for the client")
        lock = threading.Lock()
        lock.acquire()
        outcome: list[Future[T]] = []
        task: list[Task[T]] = []

        def finished(future: Future[T]) -> None:
            outcome.append(future)
            lock.release()

        def begin() -> None:
            task.append(engine.tasks.spawn(make(), "call"))
            task[0].when_done(finished)

        self.post(begin)
        try:
            lock.acquire()
        finally:
            if not outcome:
                # The caller was interrupted: the call has no purpose any more.
                self.post(_cancel, task)
        return outcome[0].result()

    def run_there(self, function: Callable[[], T]) -> T:
        """Call a function on the thread, and wait for its result.

        :raises ForkedError: in a child of the process that made the client.
        """
        self.check_process()
        done = threading.Event()
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

    def check_process(self) -> None:
        """:raises ForkedError: in a child of the process that made the loop."""
        if os.getpid() != self.pid:
            raise ForkedError("the process was forked after the client was made; "
                              "make a new client in the child")

    def add(self, engine: Engine, tls: ssl.SSLContext | None) -> None:
        """Serve an engine.

        :param tls: what its connections are wrapped in.
        """
        def begin() -> None:
            self._engines[engine] = tls

        self.post(begin)

    def remove(self, engine: Engine) -> None:
        """Serve an engine no more; its connections are closed."""
        def end() -> None:
            self._engines.pop(engine, None)
            for each in [each for each in self._sockets.values() if each.engine is engine]:
                self._drop(each)

        self.post(end)

    # --- the thread

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception:
                log.exception("a function on the client's thread failed")

    def _turn(self) -> None:
        due: float | None = None
        posted = self._posted
        self._is_awake = False
        while posted:
            function, arguments = posted.popleft()
            function(*arguments)
        for engine in list(self._engines):
            try:
                next_ms = self._run_engine(engine)
            except Exception as error:
                log.exception("the client failed, and closes")
                self._fail(engine, error)
                continue
            if next_ms is not None and (due is None or next_ms < due):
                due = next_ms
        for each in self._sockets.values():
            if not each.is_connected and (due is None or each.deadline < due):
                due = each.deadline
        if posted:
            due = 0.0
        timeout = None if due is None else max(due - time.monotonic() * 1000, 0) / 1000
        events = self._selector.select(timeout)
        for key, mask in events:
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    while len(self._wake_in.recv(4096)) == 4096:
                        pass
            else:
                self._ready(key.data, mask)
        if self._connecting_late():
            self._time_out_connecting()

    def _run_engine(self, engine: Engine) -> float | None:
        """Run an engine until it has nothing more to do now; :returns: when it wants to again."""
        while True:
            next_ms = engine.run()
            effects = engine.take_effects()
            if not effects:
                return next_ms
            for effect in effects:
                self._do(engine, effect)

    def _fail(self, engine: Engine, error: Exception) -> None:
        """Close an engine that raised, which is a fault of the client's code."""
        self._engines.pop(engine, None)
        for each in [each for each in self._sockets.values() if each.engine is engine]:
            self._lost(each, f"the client failed: {error}")

    # --- effects

    def _do(self, engine: Engine, effect: Effect) -> None:
        if isinstance(effect, Write):
            each = self._sockets.get((engine, effect.number))
            if each is not None:
                self._write(each, effect.data)
        elif isinstance(effect, Connect):
            self._connect(engine, effect)
        elif isinstance(effect, Close):
            each = self._sockets.get((engine, effect.number))
            if each is not None:
                self._drop(each)
        else:
            self._work(engine, effect)

    def _connect(self, engine: Engine, effect: Connect) -> None:
        try:
            host, port = split_address(effect.address)
        except ValueError as error:
            engine.lost(effect.number, str(error))
            return
        each = _Socket(engine, effect.number, host, self._engines.get(engine))
        each.deadline = time.monotonic() * 1000 + effect.timeout_ms
        self._sockets[engine, effect.number] = each
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM,
                                       flags=socket.AI_NUMERICHOST)
        except OSError:
            self._in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM),
                            lambda result, error: self._resolved(each, result, error))
        else:
            self._open(each, found)

    def _resolved(self, each: _Socket, found: Any, error: BaseException | None) -> None:
        if (each.engine, each.number) not in self._sockets:
            return
        if error is not None:
            self._lost(each, str(error))
        else:
            self._open(each, found)

    def _open(self, each: _Socket, found: list[Any]) -> None:
        """Begin to connect to the first of the addresses that can be tried."""
        reason = "the name has no address"
        for family, kind, protocol, _, where in found:
            opening = socket.socket(family, kind, protocol)
            opening.setblocking(False)
            opening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = opening.connect_ex(where)
            if code in (0, errno.EINPROGRESS):
                each.socket = opening
                self._watch(each, selectors.EVENT_WRITE)
                return
            opening.close()
            reason = os.strerror(code)
        self._lost(each, reason)

    def _work(self, engine: Engine, effect: Work) -> None:
        self._in_thread(effect.function,
                        lambda result, error: engine.worked(effect.number, result, error))

    def _in_thread(
        self, function: Callable[[], object],
        then: Callable[[Any, BaseException | None], object],
    ) -> None:
        if self._workers is None:
            # Few clients need it: for a name server or broker with a name, or for a file.
            from concurrent.futures import ThreadPoolExecutor

            self._workers = ThreadPoolExecutor(_WORKERS, "twistmq-client-work")

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                self.post(then, None, error)
            else:
                self.post(then, result, None)

        self._workers.submit(run)

    def _write(self, each: _Socket, data: bytes) -> None:
        if each.unsent:
            each.unsent.append(data)
            each.unsent_bytes += len(data)
            if each.unsent_bytes > _UNSENT_MAX:
                self._lost(each, f"it reads nothing, and {_UNSENT_MAX} bytes wait for it")
            return
        assert each.socket is not None
        try:
            sent = each.socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError as error:
            self._lost(each, str(error))
            return
        if sent < len(data):
            each.unsent.append(data)
            each.unsent_bytes = len(data) - sent
            each.offset = sent
            self._watch(each, selectors.EVENT_READ | selectors.EVENT_WRITE)

    # --- events

    def _ready(self, each: _Socket, mask: int) -> None:
        if each.socket is None:
            return
        try:
            if not each.is_connected:
                self._connected(each)
                return
            if mask & selectors.EVENT_WRITE:
                self._send_unsent(each)
            if mask & selectors.EVENT_READ:
                self._read(each)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._lost(each, error.strerror or str(error))

    def _connected(self, each: _Socket) -> None:
        assert each.socket is not None
        if each.tls is not None and not isinstance(each.socket, ssl.SSLSocket):
            self._raise_error(each.socket)
            self._unwatch(each)
            each.socket = each.tls.wrap_socket(
                each.socket, server_hostname=each.host, do_handshake_on_connect=False)
        if isinstance(each.socket, ssl.SSLSocket):
            try:
                each.socket.do_handshake()
            except ssl.SSLWantReadError:
                self._watch(each, selectors.EVENT_READ)
                return
            except ssl.SSLWantWriteError:
                self._watch(each, selectors.EVENT_WRITE)
                return
        else:
            self._raise_error(each.socket)
        each.is_connected = True
        self._watch(each, selectors.EVENT_READ)
        host, port = each.socket.getsockname()[:2]
        each.engine.connected(each.number, f"{host}:{port}")

    @staticmethod
    def _raise_error(opening: socket.socket) -> None:
        code = opening.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def _read(self, each: _Socket) -> None:
        assert each.socket is not None
        data = each.socket.recv(_READ_SIZE)
        if not data:
            self._lost(each, "the server closed it")
            return
        each.engine.received(each.number, data)
        if isinstance(each.socket, ssl.SSLSocket):
            # The TLS layer may hold bytes that the selector does not see.
            while each.socket is not None and each.socket.pending():
                each.engine.received(each.number, each.socket.recv(_READ_SIZE))

    def _send_unsent(self, each: _Socket) -> None:
        assert each.socket is not None
        while each.unsent:
            part = memoryview(each.unsent[0])[each.offset:]
            sent = each.socket.send(part)
            each.unsent_bytes -= sent
            if sent < len(part):
                each.offset += sent
                return
            each.unsent.popleft()
            each.offset = 0
        self._watch(each, selectors.EVENT_READ)

    def _connecting_late(self) -> bool:
        now_ms = time.monotonic() * 1000
        return any(not each.is_connected and each.deadline <= now_ms
                   for each in self._sockets.values())

    def _time_out_connecting(self) -> None:
        now_ms = time.monotonic() * 1000
        for each in list(self._sockets.values()):
            if not each.is_connected and each.deadline <= now_ms:
                self._lost(each, "it takes too long")

    def _lost(self, each: _Socket, reason: str) -> None:
        self._drop(each)
        each.engine.lost(each.number, reason)

    def _drop(self, each: _Socket) -> None:
        self._sockets.pop((each.engine, each.number), None)
        self._unwatch(each)
        if each.socket is not None:
            with contextlib.suppress(OSError):
                each.socket.close()
            each.socket = None

    def _watch(self, each: _Socket, events: int) -> None:
        if each.wanted == events or each.socket is None:
            return
        if each.wanted:
            self._selector.modify(each.socket, events, each)
        else:
            self._selector.register(each.socket, events, each)
        each.wanted = events

    def _unwatch(self, each: _Socket) -> None:
        if each.wanted and each.socket is not None:
            self._selector.unregister(each.socket)
            each.wanted = 0

    def abandon(self) -> None:
        """Close the sockets of a forked child without a word to the servers."""
        for each in list(self._sockets.values()):
            if each.socket is not None:
                with contextlib.suppress(OSError):
                    os.close(each.socket.detach())
        self._sockets.clear()
        for end in (self._wake_in, self._wake_out):
            with contextlib.suppress(OSError):
                os.close(end.detach())
        with contextlib.suppress(OSError):
            self._selector.close()


def _cancel(tasks: list[Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


_lock = threading.Lock()
_loop: Loop | None = None
_loops: weakref.WeakSet[Loop] = weakref.WeakSet()


def shared_loop() -> Loop:
    """The loop of this process; it starts with the first call."""
    global _loop
    with _lock:
        if _loop is None or _loop.pid != os.getpid():
            _loop = Loop()
            _loops.add(_loop)
        return _loop


def _forked() -> None:
    global _lock, _loop
    _lock = threading.Lock()
    _loop = None
    for loop in list(_loops):
        if loop.pid != os.getpid():
            loop.abandon()
            _loops.discard(loop)


os.register_at_fork(after_in_child=_forked)
