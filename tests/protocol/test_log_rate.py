"""How many lines of a kind are written."""

from __future__ import annotations

from twisted.logger import Logger, LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.log_rate import LimitedLog, LineRate, Outage


class LineRateTests(SynchronousTestCase):
    """A few a minute, then their number."""

    def test_the_first_are_written(self) -> None:
        """The first are written, the others counted; the next minute's first says how many."""
        rate = LineRate(3)
        self.assertEqual([rate.left_out(1_000_000 + number) for number in range(1000)],
                         [0] * 3 + [None] * 997)
        self.assertEqual(rate.left_out(1_060_000), 997)
        self.assertEqual(rate.left_out(1_060_001), 0)

    def test_lines_that_are_seldom_are_all_written(self) -> None:
        """Lines that are seldom are all written, also when the clock goes back."""
        rate = LineRate(1)
        for now_ms in (10**12, 10**12 + 60_000, 10**12 + 120_000, 10**12):
            self.assertEqual(rate.left_out(now_ms), 0)


class LimitedLogTests(SynchronousTestCase):
    """Lines of a logger, each kind at a rate of its own."""

    def test_faults_and_events(self) -> None:
        """Ten faults of a kind are written of a minute, and a hundred events."""
        log = LimitedLog(Logger())
        with capturedLogs() as events:
            for number in range(200):
                log.info(0, "client {number} comes", number=number)
                log.warn(0, "client {number} is odd", number=number)
                log.error(0, "client {number} is bad", number=number)
            log.warn(60_000, "client {number} is odd", number=200)
            log.warn(60_001, "client {number} is odd", number=201)
        self.assertEqual([[event["number"] for event in events if event["log_level"] is level]
                          for level in (LogLevel.info, LogLevel.warn, LogLevel.error)],
                         [[*range(100)], [*range(10), 200, 201], [*range(10)]])
        self.assertEqual([formatEvent(event) for event in events[-2:]], [
            "client 200 is odd (190 such lines were left out before)", "client 201 is odd"])

    def test_failures(self) -> None:
        """A failure is the one that is given, or the exception that is being handled."""
        log = LimitedLog(Logger())
        for number in range(20):
            try:
                raise ValueError(number)
            except ValueError:
                log.failure(0, "broken")
        self.assertEqual([failure.value.args for failure in self.flushLoggedErrors(ValueError)],
                         [(number,) for number in range(10)])


class OutageTests(SynchronousTestCase):
    """One line for each time that something begins to fail."""

    def test_begins_once(self) -> None:
        """And once more when it had not failed between."""
        outage = Outage()
        self.assertEqual([outage.begins() for _ in range(3)], [True, False, False])
        outage.ends()
        self.assertEqual([outage.begins() for _ in range(2)], [True, False])
