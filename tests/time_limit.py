"""A time limit for every test, under pytest and under trial.

A test that hangs is failed, with the stacks of all threads, and the others run on. Twisted's
``TestCase`` has a time-out of its own, which works while the reactor runs; ``SynchronousTestCase``
has none, and neither has one that could interrupt a blocking call. Here an alarm of the system
raises :class:`Hung` in the main thread, wherever that waits: for a lock, a socket, a queue, or the
end of a thread. It comes again every few seconds, because clean-ups may hang as well.

What an alarm cannot interrupt, such as a call in C that holds the interpreter, ends the process a
minute later with all stacks: xdist then starts another worker, and without xdist the run ends,
which is better than a run that never does.

``tests/__init__.py`` installs this, so that both runners have it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, TextIO

from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.rings import ring_of

__all__ = ["LIMITS_S", "Hung", "install", "limit_of", "limited", "report_to", "stacks"]

#: Seconds that a test may take, by its ring; a class that needs longer says so by ``timeout``.
#: They are generous, because the machine may be slow.
LIMITS_S: Final = {"hostile": 300.0, "clients": 600.0, "crash": 300.0, "install": 1200.0,
                   "spark": 600.0, "interop": 600.0}
_DEFAULT_S: Final = 120.0
#: Seconds from one alarm to the next.
_AGAIN_S: Final = 10.0
#: Alarms without effect after which the process is ended.
_ALARMS_MAX: Final = 6
#: Seconds for threads to end at the end of a run in which a test hung.
_LEAVE_S: Final = 5.0
#: Calls of each thread that are shown, the last ones.
_CALLS_MAX: Final = 15
#: Replaces the limit, in seconds, for the tests of this module.
_VARIABLE: Final = "TWISTMQ_TEST_LIMIT"


class Hung(BaseException):
    """A test took too long. No ``except Exception`` of the code under test catches it."""


class _State:
    """The state of the process with regard to hanging tests."""

    #: Where stacks are printed: under pytest not what the test's output is collected in.
    report: TextIO | None = sys.__stderr__
    #: Whether a test hung, so that threads may be left at the end.
    has_hung = False


def report_to(stream: TextIO) -> None:
    """Print stacks to this file."""
    _State.report = stream


def limit_of(module: str, name: str, timeout: object = None) -> float:
    """Return the seconds that a test may take.

    :param module: its import name.
    :param name: of its method.
    :param timeout: what its class says.
    """
    given = os.environ.get(_VARIABLE)
    if given:
        return float(given)
    file = module.removeprefix("tests.").replace(".", "/") + ".py"
    limit = LIMITS_S.get(ring_of(file, name), _DEFAULT_S)
    return max(limit, float(timeout)) if isinstance(timeout, int | float) else limit


def stacks(frame: FrameType | None = None) -> str:
    """Return the last calls of all threads, with the main thread last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()
    if main is not None and frame is not None:
        frames[main] = frame
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n"
        f"{''.join(traceback.format_list(traceback.extract_stack(each)[-_CALLS_MAX:])).rstrip()}"
        for ident, each in sorted(frames.items(), key=lambda item: item[0] == main))


class _Watch:
    """The alarms of one test.

    :param is_first_told: whether the first alarm only prints the stacks, because another time-out
        fails the test at that moment.
    """

    def __init__(self, name: str, limit_s: float, is_first_told: bool) -> None:
        self._name = name
        self._limit_s = limit_s
        self._is_first_told = is_first_told
        self.alarms = 0

    def alarm(self, _: int, frame: FrameType | None) -> None:
        """Fail the test at the current line of its main thread."""
        self.alarms += 1
        text = f"{self._name} did not end within {self._limit_s:g} s"
        if self.alarms == 1:
            _State.has_hung = True
            text += f"; this is where its threads are:\n{stacks(frame)}"
            report = _State.report
            if report is not None:
                with contextlib.suppress(OSError, ValueError):
                    print(text, file=report, flush=True)
            if self._is_first_told:
                return
        raise Hung(text)


@contextlib.contextmanager
def limited(name: str, limit_s: float, is_first_told: bool = False) -> Iterator[None]:
    """Raise Hung in a call that takes longer; only the main thread can be interrupted.

    :param name: of the test.
    :param is_first_told: see ``_Watch``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(name, limit_s, is_first_told)
    again_s = min(_AGAIN_S, limit_s)
    before = signal.signal(signal.SIGALRM, watch.alarm)
    signal.setitimer(signal.ITIMER_REAL, limit_s, again_s)
    if _State.report is not None:
        faulthandler.dump_traceback_later(
            limit_s + _ALARMS_MAX * again_s, exit=True, file=_State.report)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
        if watch.alarms:
            _forget_busy_threads()


def install() -> None:
    """Give every test of Twisted's classes its limit."""
    run = SynchronousTestCase.run
    if getattr(run, "has_limit", False):
        return

    def run_limited(self: Any, result: Any) -> None:
        timeout = getattr(self, "timeout", None)
        is_async = isinstance(self, TestCase)
        limit_s = self.getTimeout() if is_async else limit_of(
            type(self).__module__, self._testMethodName, timeout)
        try:
            with limited(self.id(), limit_s, is_async):
                run(self, result)
        except Hung:
            # It came between the methods of the test, whose own errors are reported already.
            result.addError(self, Failure())  # type: ignore[no-untyped-call]
            result.stopTest(self)

    run_limited.has_limit = True  # type: ignore[attr-defined]
    SynchronousTestCase.run = run_limited  # type: ignore[method-assign]
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_leave)


def _forget_busy_threads() -> None:
    """Give the reactor another pool of threads, because it would wait for those that hang."""
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    pool = getattr(reactor, "threadpool", None)
    if pool is None or not pool.working:
        return
    for trigger in (reactor._threadpoolStartupID, reactor.threadpoolShutdownID):
        if trigger is not None:
            with contextlib.suppress(KeyError, ValueError, TypeError):
                reactor.removeSystemEventTrigger(trigger)
    reactor._threadpoolStartupID = reactor.threadpoolShutdownID = None
    reactor.threadpool = None


def _leave() -> None:
    """End the process although threads of a test still hang; all results are reported."""
    if not _State.has_hung:
        return
    end = time.monotonic() + min(_LEAVE_S, float(os.environ.get(_VARIABLE) or _LEAVE_S))
    while time.monotonic() < end and _left():
        time.sleep(0.05)
    left = _left()
    if left:
        names = ", ".join(thread.name for thread in left)
        print(f"threads of a test that hung do not end: {names}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # A worker of "trial -j" has told its tests by now, and must not seem to have crashed.
        os._exit(int(not sys.argv[0].endswith("workertrial.py")))


def _left() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate()
            if thread is not threading.main_thread() and not thread.daemon]
