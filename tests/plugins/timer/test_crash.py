"""The process or the power fails at every change of the disk while timed messages wait.

Messages are sent, some of them for far ahead, some taken back, while others are entered and
delivered; the process ends at the nth change of the disk, for each n. The next broker is left to
deliver all. What was acknowledged must come, never before its time, and what is taken back must
not; twice comes only what had come before the end.
"""

from __future__ import annotations

from collections import Counter

from tests.every_change import EveryChangeCase
from tests.plugins.timer.case import TimerTestCase, shrink_wheel
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import RecallMessageRequestHeader


class CrashTests(EveryChangeCase, TimerTestCase):
    """A failure at every change of the disk."""

    told = ("due", "back", "taken_back")
    settings = {  # noqa: RUF012
        "flushDiskType": "SYNC_FLUSH", "recallMessageEnable": "true", "timerRollWindowSlot": "6",
        # Six units a file.
        "mappedFileSizeTimerLog": "340"}

    def setUp(self) -> None:
        shrink_wheel(self)
        super().setUp()

    def begin(self) -> None:
        """Create a store."""
        self.disk = PowerLossDisk()
        self.box = self.start()
        #: When what was acknowledged may come, Unix ms.
        self.due: dict[bytes, int] = {}
        #: What is to be taken back, or was.
        self.back: set[bytes] = set()
        self.taken_back: set[bytes] = set()

    def timed(self, body: bytes, delay_ms: int) -> str:
        """Send a message; :returns: its handle."""
        due_ms = self.box.now_ms + delay_ms
        handle = self.send(body, TIMER_DELAY_MS=str(delay_ms)).recall_handle
        self.due[body] = due_ms
        assert handle is not None
        return handle

    def recall(self, body: bytes, handle: str) -> None:
        self.back.add(body)
        reply = self.box.ask(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(
            topic="T", recall_handle=handle, producer_group="P"))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.taken_back.add(body)

    def pass_time(self, elapsed_ms: int) -> None:
        for _ in range(elapsed_ms // 500):
            self.turn(500)
            self.box.kernel.store.flush_step(self.box.now_ms)
            if self.box.now_ms % 1000 == 0:
                self.save()

    def live(self) -> None:
        """Run a broker through every course that a message can take."""
        self.box.now_ms += 300
        for number in range(3):
            self.timed(b"soon %d" % number, 1500)
        handles = {body: self.timed(body, delay_ms) for body, delay_ms in (
            (b"back", 3500), (b"far back", 12_500))}
        self.timed(b"far", 12_500)
        self.pass_time(1000)
        self.recall(b"back", handles[b"back"])
        self.timed(b"later", 2500)
        self.pass_time(3000)
        self.recall(b"far back", handles[b"far back"])
        self.timed(b"last", 900)
        self.pass_time(1000)
        self.box.stop()

    def look(self, message: str) -> int:
        """Open the store again, let time pass, compare; :returns: how many came twice."""
        self.box = self.start()
        before = Counter(self.bodies())
        early = [body for body, due_ms in self.due.items()
                 if before[body] and due_ms > self.box.now_ms]
        self.assertEqual(early, [], msg=message)
        seen = before
        while self.service.enqueue.backlog or self.service.wheel.next_ms is not None:
            self.pass_time(500)
            now = Counter(self.bodies())
            for body in now - seen:
                self.assertGreaterEqual(
                    self.box.now_ms, self.due.get(body, 0), msg=f"{message}: {body!r} is early")
            seen = now
        for body in seen | Counter(self.due.keys()):
            least = 0 if body in self.back or body not in self.due else 1
            most = 0 if body in self.taken_back else 1 + (body in before)
            self.assertTrue(least <= seen[body] <= most,
                            msg=f"{message}: {body!r} came {seen[body]} times, {before[body]} "
                                f"before the end; {least} to {most} are allowed")
        return sum(count - 1 for count in seen.values())

    def test_the_process_ends(self) -> None:
        """The process ends; all that it wrote remains."""
        self.killed_at_every_change()

    def test_power_is_cut(self) -> None:
        """The power fails; only a part of the data that was not synced remains."""
        self.cut_at_every_change()
