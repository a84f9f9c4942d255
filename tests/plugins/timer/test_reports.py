"""Public bug reports about timed messages, reproduced here; see ``tests/REPORTS.md``."""

from __future__ import annotations

from tests.plugins.timer.case import TimerTestCase
from twistmq.protocol.codes import ResponseCode

LONG_MAX = 2**63 - 1
DAY_S = 86_400


class ReportTests(TimerTestCase):
    """Times that do not fit into the numbers of Java."""

    settings = {"timerMaxDelaySec": str(30 * DAY_S)}  # noqa: RUF012

    def test_delays_that_overflow_are_refused(self) -> None:
        """apache/rocketmq#10872: a delay that overflows a Java long is delivered immediately."""
        now_ms = self.box.now_ms
        beyond = (LONG_MAX, LONG_MAX // 1000, LONG_MAX // 1000 + 1, LONG_MAX - now_ms, 2**64,
                  2**64 + now_ms, 10**18, 10**40)
        for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
            for number in beyond:
                code, remark = self.refused(**{name: str(number)})
                self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL, (name, number, remark))
        self.assertEqual((self.bodies(), self.waiting()), ([], []))

    def test_a_most_of_thirty_days(self) -> None:
        """apache/rocketmq#5376: timerMaxDelaySec beyond 2147483 refuses each timed message."""
        self.send(b"soon", TIMER_DELAY_SEC="2")
        self.send(b"far", TIMER_DELAY_SEC=str(30 * DAY_S))
        code, _ = self.refused(TIMER_DELAY_SEC=str(30 * DAY_S + 1))
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        self.turns(4000)
        self.assertEqual(self.bodies(), [b"soon"])
