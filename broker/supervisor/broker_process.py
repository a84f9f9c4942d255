"""The process of one broker of several, and its restart after it has ended.

States::

    stopped  -- start -->        starting
    starting -- boot line -->    ready
    starting -- exit -->         stopped   the first time: the start failed
    ready    -- exit -->         waiting   and starting after the first time
    waiting  -- back-off -->     starting or, if no process can be created, waiting
    any      -- stop -->         stopping, and stopped when the process has ended

Source: design of twistmq.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.edge.boot import EXIT_FAILED
from twistmq.protocol.errors import BrokerError

__all__ = ["BACK_OFF_FIRST", "BACK_OFF_MAX", "BrokerProcess", "StartFailed"]

#: The shortest and the longest wait before a broker that has ended is restarted, seconds.
BACK_OFF_FIRST: Final = 1.0
BACK_OFF_MAX: Final = 60.0
#: The first words of the line that a broker prints once it answers.
_BOOT: Final = b"The broker["
#: The length at which a line without an end is cut, bytes.
_LINE_MAX: Final = 1 << 16
_CHILD: Final = "twistmq.broker.supervisor.child"
#: The beginning of lines on standard error.
_PREFIX: Final = "twistmq: "


class StartFailed(BrokerError):
    """A broker ended before it was ready.

    :param status: its exit status.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class BrokerProcess:
    """A process with a broker.

    :param name: the name of the broker.
    :param arguments: returns the arguments of ``twistmq`` for each start.
    :param on_line: called with the broker's name, each printed line, and whether the line was
        printed on standard error. It must not raise.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, name: str, arguments: Callable[[], Sequence[str]],
        on_line: Callable[[str, str, bool], None],
    ) -> None:
        self._reactor = reactor
        self.name = name
        self._arguments = arguments
        self._on_line = on_line
        #: "stopped", "starting", "ready", "waiting" or "stopping".
        self.state = "stopped"
        #: The exit status of its last process. If a signal ended the process, the status is 256
        #: plus the signal, or 0 if that was the signal of a stop which arrived before the process
        #: could handle it.
        self.status = 0
        #: How often the broker was restarted.
        self.restarts = 0
        #: The last line that its process printed on standard error.
        self.last_error = ""
        self._transport: Any = None
        self._started: Deferred[None] | None = None
        self._stopped: Deferred[None] | None = None
        self._back_off = BACK_OFF_FIRST
        self._since = 0.0
        self._waiting: IDelayedCall | None = None
        #: Whether its last process was ready.
        self._was_ready = False

    @property
    def process_id(self) -> int:
        """The number of its process; 0 while it has none."""
        return 0 if self._transport is None else self._transport.pid or 0

    def start(self) -> Deferred[None]:
        """Start the broker for the first time.

        :returns: fires once the broker answers, or fails with StartFailed.
        """
        started = self._started = Deferred()
        try:
            self._spawn()
        except OSError as error:
            self._fail_start(EXIT_FAILED, _no_process(error))
        return started

    def stop(self) -> Deferred[None]:
        """Ask the broker to stop for good; the Deferred fires once its process has ended."""
        if self._stopped is None:
            self._stopped = Deferred()
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
            if self._transport is None:
                self._end()
            else:
                self.state = "stopping"
                self.signal(signal.SIGTERM)
        answer: Deferred[None] = Deferred()
        self._stopped.addCallback(lambda _: answer.callback(None))
        return answer

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it exists."""
        if self._transport is not None:
            with contextlib.suppress(ProcessExitedAlready):
                self._transport.signalProcess(number)

    def _spawn(self) -> None:
        """:raises OSError: when the system lacks processes, memory or descriptors."""
        self.state = "starting"
        self.last_error = ""
        self._was_ready = False
        self._since = self._reactor.seconds()
        # -P: modules in the working directory are not imported.
        arguments = [sys.executable, "-P", "-m", _CHILD, *self._arguments()]
        # Its standard input stays open until the supervisor ends, which the broker then notices.
        self._transport = self._reactor.spawnProcess(
            _Output(self), sys.executable, arguments, env=None)

    def printed(self, line: bytes, *, is_error: bool) -> None:
        """Handle a line that the process printed."""
        text = line.decode("utf-8", "replace")
        if is_error:
            self.last_error = text
        started: Deferred[None] | None = None
        if line.startswith(_BOOT) and self.state == "starting":
            self.state = "ready"
            self._was_ready = True
            started, self._started = self._started, None
        self._on_line(self.name, text, is_error)
        if started is not None:
            started.callback(None)

    def ended(self, reason: Failure) -> None:
        """Handle the end of the process."""
        self._transport = None
        self.status = _status(reason)
        if self._stopped is not None:
            if not self._was_ready and self.status == 256 + signal.SIGTERM:
                # The signal ended the process before its handler was installed, so it had opened
                # nothing yet.
                self.status = 0
            self._end()
        elif self._started is not None:
            last = self.last_error.removeprefix(_PREFIX)
            self._fail_start(self.status, f"it {self._how()}"
                             + (f", and its last line was: {last}" if last else ""))
        else:
            seconds = self._reactor.seconds() - self._since
            if seconds > BACK_OFF_MAX:
                self._back_off = BACK_OFF_FIRST
            self._wait(f"{self._how()} after {seconds:.0f} s")

    def _fail_start(self, status: int, why: str) -> None:
        self.state = "stopped"
        assert self._started is not None
        started, self._started = self._started, None
        started.errback(StartFailed(status, f"the broker {self.name} did not start: {why}"))

    def _end(self) -> None:
        self.state = "stopped"
        assert self._stopped is not None
        self._stopped.callback(None)

    def _wait(self, what: str) -> None:
        """Restart the broker after a delay that grows each time the broker ends soon.

        :param what: the event that happened to the broker.
        """
        self.log.error("the broker {name} {what}; it is started again in {back_off:.0f} s",
                       name=self.name, what=what, back_off=self._back_off)
        self.state = "waiting"
        self._waiting = self._reactor.callLater(self._back_off, self._again)
        self._back_off = min(2 * self._back_off, BACK_OFF_MAX)

    def _again(self) -> None:
        self._waiting = None
        self.restarts += 1
        try:
            self._spawn()
        except OSError as error:
            self._wait(f"cannot be started: {_no_process(error)}")

    def _how(self) -> str:
        if self.status > 255:
            return f"was ended by signal {self.status - 256}"
        return f"ended with status {self.status}"


class _Output(ProcessProtocol):
    """Splits the output of a process into lines."""

    def __init__(self, owner: BrokerProcess) -> None:
        self._owner = owner
        self._rest = {1: b"", 2: b""}

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        *lines, rest = (self._rest[childFD] + data).split(b"\n")
        if len(rest) > _LINE_MAX:
            lines.append(rest)
            rest = b""
        self._rest[childFD] = rest
        for line in lines:
            self._owner.printed(line, is_error=childFD == 2)

    def processEnded(self, reason: Failure) -> None:
        for descriptor, rest in self._rest.items():
            if rest:
                self._owner.printed(rest, is_error=descriptor == 2)
        self._owner.ended(reason)


def _no_process(error: OSError) -> str:
    return f"no process can be created for it: {error.strerror or error}"


def _status(reason: Failure) -> int:
    """Return the exit status of a process; 256 plus the signal if a signal ended it."""
    value: Any = reason.value
    if isinstance(value, ProcessDone):
        return 0
    return value.exitCode if value.exitCode is not None else 256 + (value.signal or 0)
