"""One broker of several: its starts, its ends, and the pauses between them."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence
from typing import Any

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.supervisor.broker_process import (
    BACK_OFF_MAX,
    BrokerProcess,
    StartFailed,
)

BOOT = b"The broker[b-0, 127.0.0.1:1] boot success. serializeType=JSON\n"


class Spawned:
    """A process that the supervisor has started."""

    def __init__(self, protocol: ProcessProtocol, arguments: Sequence[str], pid: int) -> None:
        self.protocol = protocol
        self.arguments = arguments
        self.pid = pid
        self.signals: list[int] = []
        self.is_gone = False

    def signalProcess(self, number: int) -> None:
        """Note a signal, as the transport of a process."""
        if self.is_gone:
            raise ProcessExitedAlready
        self.signals.append(number)

    def end(self, status: int = 0, number: int | None = None) -> None:
        """End the process."""
        reason = ProcessDone(0) if not status and number is None else ProcessTerminated(
            status if number is None else None, number, status)
        self.protocol.processEnded(Failure(reason))


class SpawningClock(Clock):
    """A clock that records the processes that are started."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[Spawned] = []
        #: Why there is no process; None: there is.
        self.fault: OSError | None = None

    def spawnProcess(
        self, protocol: ProcessProtocol, executable: str, args: Sequence[str], env: Any
    ) -> Spawned:
        """Note it; :raises OSError: when there is a fault."""
        if self.fault is not None:
            raise self.fault
        self.spawned.append(Spawned(protocol, args, 100 + len(self.spawned)))
        return self.spawned[-1]


class BrokerProcessTests(SynchronousTestCase):
    """A broker process that becomes ready, ends, and is started again."""

    def setUp(self) -> None:
        self.clock = SpawningClock()
        self.lines: list[tuple[str, str, bool]] = []
        self.starts = 0
        self.broker = BrokerProcess(
            self.clock, "b-0", self.arguments, lambda *line: self.lines.append(line))

    def arguments(self) -> list[str]:
        """Return different arguments for each start."""
        self.starts += 1
        return ["broker", f"start={self.starts}"]

    @property
    def process(self) -> Spawned:
        return self.clock.spawned[-1]

    def start(self) -> None:
        """Start it, and let it answer."""
        started = self.broker.start()
        self.process.protocol.childDataReceived(1, BOOT)
        self.assertIsNone(self.successResultOf(started))

    def test_the_boot_line_makes_it_ready(self) -> None:
        """The broker is ready after its boot line, even if that arrives in two reads; all lines are
        printed.
        """
        started = self.broker.start()
        self.process.protocol.childDataReceived(2, b"twistmq: a notice\n")
        self.process.protocol.childDataReceived(1, BOOT[:5])
        self.assertNoResult(started)
        self.process.protocol.childDataReceived(1, BOOT[5:])
        self.successResultOf(started)
        self.assertEqual(self.broker.state, "ready")
        self.assertEqual(self.lines, [("b-0", "twistmq: a notice", True),
                                      ("b-0", BOOT.decode().strip(), False)])

    def test_a_first_start_that_fails_is_not_tried_again(self) -> None:
        """A broker that never answered fails its start, with its status and its last words."""
        started = self.broker.start()
        self.process.protocol.childDataReceived(2, b"twistmq: port in use")
        self.process.end(255)
        error = self.failureResultOf(started, StartFailed).value
        self.assertEqual((error.status, str(error)), (
            255, "the broker b-0 did not start: it ended with status 255, and its last line was: "
                 "port in use"))
        self.clock.advance(BACK_OFF_MAX)
        self.assertEqual(len(self.clock.spawned), 1)

    def test_a_broker_that_ends_is_started_again_after_longer_waits(self) -> None:
        """The waits are 1, 2, 4 s and so on, up to a minute."""
        self.start()
        for wait in (1, 2, 4, 8, 16, 32, 60, 60):
            count = len(self.clock.spawned)
            self.process.end(number=signal.SIGKILL)
            self.assertEqual((self.broker.state, self.broker.status), ("waiting", 256 + 9))
            self.clock.advance(wait - 0.1)
            self.assertEqual(len(self.clock.spawned), count)
            self.clock.advance(0.2)
            self.assertEqual(len(self.clock.spawned), count + 1)
        self.assertEqual(self.broker.restarts, 8)
        self.assertEqual(self.process.arguments[-1], "start=9")

    def test_a_first_start_without_a_process_fails(self) -> None:
        """If the system cannot create a process, the first start fails with the reason."""
        self.clock.fault = OSError(errno.EAGAIN, "Resource temporarily unavailable")
        error = self.failureResultOf(self.broker.start(), StartFailed).value
        self.assertEqual((error.status, str(error)), (
            255, "the broker b-0 did not start: no process can be created for it: Resource "
                 "temporarily unavailable"))
        self.successResultOf(self.broker.stop())

    def test_a_later_start_without_a_process_is_tried_again(self) -> None:
        """Each attempt is logged, and the pauses become longer."""
        self.start()
        lines: list[str] = []
        self.patch(BrokerProcess, "log", Logger(observer=lambda event: lines.append(
            formatEvent(event))))
        self.process.end(1)
        self.clock.fault = OSError(errno.ENOMEM, "Cannot allocate memory")
        self.clock.advance(1)
        self.assertEqual((self.broker.state, lines), ("waiting", [
            "the broker b-0 ended with status 1 after 0 s; it is started again in 1 s",
            "the broker b-0 cannot be started: no process can be created for it: Cannot allocate "
            "memory; it is started again in 2 s"]))
        self.clock.fault = None
        self.clock.advance(2)
        self.assertEqual((self.broker.state, len(self.clock.spawned)), ("starting", 2))

    def test_a_stop_before_it_answers_is_a_clean_one(self) -> None:
        """A process that ends by SIGTERM before its boot line has stopped cleanly."""
        started = self.broker.start()
        self.broker.stop()
        self.process.end(number=signal.SIGTERM)
        self.assertEqual((self.broker.state, self.broker.status), ("stopped", 0))
        self.assertNoResult(started)

    def test_a_signal_that_ends_a_broker_is_no_clean_stop(self) -> None:
        """SIGTERM after the boot line, or another signal, is not a clean stop."""
        self.start()
        self.broker.stop()
        self.process.end(number=signal.SIGTERM)
        self.assertEqual(self.broker.status, 256 + signal.SIGTERM)
        other = BrokerProcess(self.clock, "b-1", self.arguments, lambda *line: None)
        other.start()
        other.stop()
        self.process.end(number=signal.SIGKILL)
        self.assertEqual(other.status, 256 + signal.SIGKILL)

    def test_what_a_former_process_said_is_no_reason(self) -> None:
        """The error quotes the last line of the process that ended, and of no earlier one."""
        self.start()
        self.process.protocol.childDataReceived(2, b"old\n")
        self.process.end(1)
        self.clock.advance(1)
        self.assertEqual(self.broker.last_error, "")

    def test_nothing_is_imported_from_the_working_directory(self) -> None:
        """Python runs with the option that excludes the working directory from its path."""
        self.broker.start()
        self.assertEqual(self.process.arguments[1], "-P")

    def test_it_is_ready_when_its_boot_line_is_told(self) -> None:
        """The process is already ready when its boot line is printed."""
        states: list[str] = []
        broker = BrokerProcess(
            self.clock, "b-0", self.arguments, lambda *line: states.append(broker.state))
        broker.start()
        self.process.protocol.childDataReceived(1, BOOT)
        self.assertEqual(states, ["ready"])

    def test_a_long_life_makes_the_wait_short_again(self) -> None:
        """After a minute of life the next wait is the first one again."""
        self.start()
        for _ in range(3):
            self.process.end(1)
            self.clock.advance(BACK_OFF_MAX)
        self.process.protocol.childDataReceived(1, BOOT)
        self.clock.advance(BACK_OFF_MAX + 1)
        self.process.end(1)
        self.clock.advance(1)
        self.assertEqual(self.broker.state, "starting")

    def test_a_stop_ends_the_process_for_good(self) -> None:
        """A stop sends SIGTERM and waits for the process, which is not started again."""
        self.start()
        stopped = [self.broker.stop(), self.broker.stop()]
        self.assertEqual(self.process.signals, [signal.SIGTERM])
        self.assertNoResult(stopped[0])
        self.process.end(0)
        for each in stopped:
            self.successResultOf(each)
        self.clock.advance(BACK_OFF_MAX)
        self.assertEqual((len(self.clock.spawned), self.broker.state), (1, "stopped"))

    def test_a_stop_while_it_waits_starts_nothing(self) -> None:
        """A broker that waits for its next start is stopped immediately."""
        self.start()
        self.process.end(1)
        self.successResultOf(self.broker.stop())
        self.clock.advance(BACK_OFF_MAX)
        self.assertEqual(len(self.clock.spawned), 1)

    def test_a_signal_for_a_process_that_is_gone_is_dropped(self) -> None:
        """A process may end just before it gets the signal."""
        self.broker.signal(signal.SIGTERM)
        self.start()
        self.process.is_gone = True
        self.broker.signal(signal.SIGTERM)
        self.assertEqual(self.process.signals, [])

    def test_a_line_without_an_end_takes_no_memory(self) -> None:
        """Output without line ends is cut into parts."""
        self.start()
        for _ in range(100):
            self.process.protocol.childDataReceived(1, b"x" * 10_000)
        self.assertLess(max(len(text) for _, text, _ in self.lines), 80_000)
        self.assertGreater(sum(len(text) for _, text, _ in self.lines), 900_000)
