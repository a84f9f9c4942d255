"""A kernel with the timer plugin, a clock, and a disk that can fail."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.kernel_case import KernelTestCase
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import timer
from twistmq.plugins.timer import wheel
from twistmq.plugins.timer.service import TimerService
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import TIMER_TOPIC

TURN = "enter and deliver timed messages"
SAVE = "save the progress of timed messages"


def shrink_wheel(case: TestCase) -> None:
    """Let the wheel be of four minutes: each life and each crash would copy 38 MB."""
    case.patch(wheel, "RING_SLOTS", 240)
    case.patch(wheel, "WHEEL_SIZE", 240 * wheel.SLOT_SIZE)


class TimerTestCase(KernelTestCase):
    """A test with a kernel that has only the plugin."""

    plugins = (("timer", timer.Plugin),)

    @property
    def service(self) -> TimerService:
        service = self.box.plugin(timer.Plugin).service
        assert service is not None
        return service

    # --- messages

    def ask_send(
        self, body: bytes = b"timed", topic: str = "T", queue_id: int = 1, **properties: str
    ) -> RemotingCommand:
        header = send_header(topic, self.box.now_ms, queue_id=queue_id, tag="red", keys="k",
                             properties=properties)
        return self.box.ask(RequestCode.SEND_MESSAGE_V2, header, body)

    def send(
        self, body: bytes = b"timed", topic: str = "T", queue_id: int = 1, **properties: str
    ) -> SendMessageResponseHeader:
        """Send a message that must be stored."""
        reply = self.ask_send(body, topic, queue_id, **properties)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        return reply.header(SendMessageResponseHeader)

    def refused(self, **properties: str) -> tuple[int, str | None]:
        reply = self.ask_send(b"refused", **properties)
        return reply.code, reply.remark

    def stored(self, topic: str = "T", queue_id: int = 1) -> list[StoredMessage]:
        return self.box.stored(topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 1) -> list[bytes]:
        return [each.body for each in self.stored(topic, queue_id)]

    def waiting(self) -> list[StoredMessage]:
        """Return the messages of the timer topic."""
        return self.stored(TIMER_TOPIC, 0)

    # --- time

    def turn(self, elapsed_ms: int = 0) -> None:
        """Let time pass, then do all that is to be done now."""
        self.box.now_ms += elapsed_ms
        self.run_all(TURN)

    def turns(self, elapsed_ms: int, step_ms: int = 100) -> None:
        """Let time pass as a broker does."""
        for _ in range(elapsed_ms // step_ms):
            self.turn(step_ms)

    def save(self) -> None:
        self.run_task(SAVE)
