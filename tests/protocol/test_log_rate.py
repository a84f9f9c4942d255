"""The number of log lines of a kind."""

from __future__ import annotations

from twisted.logger import Logger, LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.log_rate import LimitedLines, LimitedLog, LineRate, Outage


class LineRateTests(SynchronousTestCase):
    """A few lines a minute are written, and then the number of the omitted ones."""

    def test_the_first_are_written(self) -> None:
        """The first lines are written; the first one of the next minute has the omitted number."""
        rate = LineRate(3)
        self.assertEqual([rate.left_out(1_000_000 + number) for number in range(1000)],
                         [0] * 3 + [None] * 997)
        self.assertEqual(rate.left_out(1_060_000), 997)
        self.assertEqual(rate.left_out(1_060_001), 0)

    def test_lines_that_are_seldom_are_all_written(self) -> None:
        """Rare lines are all written, also if the clock goes back."""
        rate = LineRate(1)
        for now_ms in (10**12, 10**12 + 60_000, 10**12 + 120_000, 10**12):
            self.assertEqual(rate.left_out(now_ms), 0)


class LimitedLinesTests(SynchronousTestCase):
    """Lines of one kind, for a logger of Python's ``logging``."""

    def test_the_next_minute_tells_how_many_lines_were_left_out(self) -> None:
        """The number is in one line; the values are passed to the handler for formatting."""
        written: list[tuple[object, ...]] = []
        lines = LimitedLines(lambda *values: written.append(values), 2)
        for now_ms in (0.5, 1.5, 2.5, 3.5, 60_001.5, 60_002.5):
            lines.write(now_ms, "%s of %d", "T", 5)
        self.assertEqual(written, [
            ("%s of %d%s", "T", 5, ""), ("%s of %d%s", "T", 5, ""),
            ("%s of %d%s", "T", 5, " (2 more since the last line)"),
            ("%s of %d%s", "T", 5, "")])


class LimitedLogTests(SynchronousTestCase):
    """The lines of a logger, with a rate for each kind."""

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
    """One line is written for each time at which something begins to fail."""

    def test_begins_once(self) -> None:
        """Another one is written if it succeeded in between."""
        outage = Outage()
        self.assertEqual([outage.begins() for _ in range(3)], [True, False, False])
        outage.ends()
        self.assertEqual([outage.begins() for _ in range(2)], [True, False])
