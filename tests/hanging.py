"""Tests that hang in many ways, for the test of the time limit; no runner collects this file."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import socket
import threading
import time
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase


def wait_in_a_thread(event: threading.Event) -> None:
    """A thread waits here; its name must be in the report."""
    event.wait()


class BlockingTests(SynchronousTestCase):
    """Calls that block the main thread of a test."""

    def tearDown(self) -> None:
        (Path(os.environ["HANGING_FOLDER"]) / f"torn_{self._testMethodName}").touch()

    def test_event(self) -> None:
        threading.Event().wait()

    def test_lock_that_another_thread_has(self) -> None:
        event = threading.Event()
        thread = threading.Thread(target=wait_in_a_thread, args=(event,), name="the waiting thread")
        thread.start()
        thread.join()

    def test_queue(self) -> None:
        queue.Queue[int]().get()

    def test_socket(self) -> None:
        left, right = socket.socketpair()
        self.addCleanup(left.close)
        self.addCleanup(right.close)
        left.recv(1)

    def test_loop_that_catches_errors(self) -> None:
        while True:
            try:
                time.sleep(0.05)
                raise ValueError
            except Exception:
                continue

    def test_cleanup(self) -> None:
        self.addCleanup(threading.Event().wait)

    def test_passes(self) -> None:
        (Path(os.environ["HANGING_FOLDER"]) / "passed").touch()


class ReactorTests(TestCase):
    """Tests that run the reactor."""

    timeout = 2

    def test_deferred_that_never_fires(self) -> Deferred[None]:
        return Deferred()

    def test_reactor_that_is_blocked(self) -> Deferred[None]:
        reactor.callLater(0, threading.Event().wait)  # type: ignore[attr-defined]
        return Deferred()

    def test_thread_of_the_reactor(self) -> Deferred[None]:
        return deferToThread(wait_in_a_thread, threading.Event())

    def test_passes(self) -> Deferred[None]:
        return deferToThread((Path(os.environ["HANGING_FOLDER"]) / "passed_too").touch)


class DeafTests(SynchronousTestCase):
    """Calls that no alarm interrupts."""

    def test_in_c(self) -> None:
        """The signal is blocked, as by a call that never looks for one."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        # PyDLL keeps the interpreter's lock, so that no other thread runs either.
        ctypes.PyDLL(None).sleep(600)
