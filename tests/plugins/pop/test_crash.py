"""The process or the power fails at every change of the disk during pops.

Messages are sent, popped, acknowledged, hidden for another time and left alone, while timed
messages are delivered and the revive topic is worked off; the process ends at the nth change of the
disk, for each n. The next broker's group pops and acknowledges until nothing comes any more. What
was sent and not acknowledged must come. What was acknowledged comes again at most once, where the
group's offset was not saved yet; what was not at most once for each: its check point, one that a
revive did not get to save, and the offset.
"""

from __future__ import annotations

from collections import Counter

from tests.every_change import EveryChangeCase
from tests.plugins.pop.case import Popped, PopTestCase, popped_of
from tests.plugins.timer.case import shrink_wheel
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.protocol.codes import ResponseCode

#: What was acknowledged may come so often again, what was not so often.
AGAIN_ACKNOWLEDGED, AGAIN_OPEN = 1, 3


class CrashTests(EveryChangeCase, PopTestCase):
    """A failure at every change of the disk."""

    told = ("sent", "acked")
    settings = {  # noqa: RUF012
        "flushDiskType": "SYNC_FLUSH", "reviveQueueNum": "1", "popFromRetryProbability": "0",
        "mappedFileSizeTimerLog": "2100"}

    def setUp(self) -> None:
        shrink_wheel(self)
        super().setUp()

    def begin(self) -> None:
        """Create a store."""
        self.disk = PowerLossDisk()
        self.box = self.start()
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()

    def give(self, *bodies: bytes) -> None:
        for body in bodies:
            self.send(body)
            self.sent.add(body)

    def consume(self, *messages: Popped) -> None:
        for popped in messages:
            self.ack(popped)
            self.acked.add(popped.body)

    def pass_time(self, elapsed_ms: int, step_ms: int = 500) -> None:
        for _ in range(elapsed_ms // step_ms):
            super().pass_time(step_ms, step_ms)
            if self.box.now_ms // step_ms % 2:
                self.run_task("save the progress of timed messages")
                self.box.kernel.persist((self.box.kernel.consumer_offset,))

    def live(self) -> None:
        """Run a broker through every course that a message can take."""
        self.box.now_ms += 300
        self.give(b"acked", b"hidden", b"left", b"hidden, acked", b"in order 0", b"in order 1")
        first, hidden, _, short = self.pop(count=4, invisible_ms=2000)
        self.consume(first)
        self.hide(hidden, 2500)
        self.consume(self.hide(short, 3000))
        self.pass_time(1000)
        self.give(b"later 0", b"later 1")
        rest = self.pop(count=3, invisible_ms=3000)
        self.consume(rest[0], rest[2])
        self.pass_time(4500)
        # What was left comes now, perhaps.
        again = self.pop(invisible_ms=2000)
        self.consume(*again[::2])
        self.pass_time(1500)
        self.give(b"last")
        self.box.stop()

    def look(self, message: str) -> int:
        """Open the store again, consume all there is, compare; :returns: how many came again."""
        self.box = self.start()
        # The topic is saved soon after it is made, not before.
        self.send(b"new")
        came: Counter[bytes] = Counter()
        for _ in range(9):
            reply = self.ask_pop(invisible_ms=60_000)
            popped = popped_of(reply)
            came.update(each.body for each in popped)
            self.ack(*popped)
            self.pass_time(1000, 1000)
        missing = self.sent - self.acked - came.keys()
        self.assertEqual(missing, set(), msg=f"{message}: lost")
        for body, count in came.items():
            most = AGAIN_ACKNOWLEDGED if body in self.acked else AGAIN_OPEN
            self.assertLessEqual(count, most, msg=f"{message}: {body!r} of {came}")
        self.assertEqual(self.ask_pop().code, ResponseCode.POLLING_TIMEOUT)
        return sum(count for body, count in came.items() if body in self.acked)

    def test_a_killed_process_keeps_all_it_wrote(self) -> None:
        """All that the process wrote remains."""
        self.killed_at_every_change()

    def test_power_is_cut(self) -> None:
        """Only a part of the data that was not synced remains."""
        self.cut_at_every_change()


class BufferCrashTests(CrashTests):
    """The same with check points that wait in memory."""

    settings = {**CrashTests.settings, "enablePopBufferMerge": "true",  # noqa: RUF012
                "popCkStayBufferTime": "1000", "popCkStayBufferTimeOut": "200"}
