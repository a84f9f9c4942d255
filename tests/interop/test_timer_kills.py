"""A broker is killed in every state of timed messages, and the next one continues.

Each test brings a broker's process into a state, kills it with SIGKILL, starts another, and counts
what was delivered: all that was acknowledged, nothing early, twice only what came before the kill.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import RecallMessageRequestHeader

COUNT = 60
TOPIC = "Timed"
RECALL = "recallMessageEnable=true"
#: It is seldom saved how far things have come, or at once.
SAVED_NEVER = "timerFlushIntervalMs=3600000"
SAVED_SOON = "timerFlushIntervalMs=20"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """A running broker, with the messages that were sent to it."""

    def __init__(self, client: RawClient, due: dict[bytes, int], back: set[bytes]) -> None:
        self.client = client
        #: When each body may come, Unix ms.
        self.due = due
        #: What was taken back.
        self.back = back

    def send(self, number: int, delay_ms: int) -> str:
        """Send a message; :returns: its handle."""
        body = b"%d" % number
        due_ms = now_ms() + delay_ms
        header = self.client.send(TOPIC, body, properties={"TIMER_DELIVER_MS": str(due_ms)})
        self.due[body] = due_ms
        assert header.recall_handle is not None
        return header.recall_handle

    def recall(self, number: int, handle: str) -> None:
        reply = self.client.request(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(
            topic=TOPIC, recall_handle=handle, producer_group="P"))
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        self.back.add(b"%d" % number)

    def delivered(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        offset = 0
        while messages := self.client.pull(TOPIC, offset):
            found.update(message.body for message in messages)
            offset += len(messages)
        early = [body for body in found if self.due[body] > now_ms()]
        assert not early, early
        return found

    def figure(self, name: str) -> int:
        """Return a row of the runtime table."""
        body = self.client.request(RequestCode.GET_BROKER_RUNTIME_INFO).body
        return int(KVTable.decode(body).table[name])

    def wait_entered(self) -> None:
        wait_until("all is entered", lambda: self.figure("timerOffsetBehind") == 0)


class KillTests(SynchronousTestCase):
    """Each test kills the broker in another state."""

    def kill_in(
        self, state: Callable[[Broker], object], *settings: str
    ) -> tuple[Counter[bytes], Counter[bytes]]:
        """Bring a broker into a state, kill it, and let the next one finish.

        :returns: what was delivered before the kill, and at the end.
        """
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.due: dict[bytes, int] = {}
        self.back: set[bytes] = set()
        broker, servers = self.start(folder.name, *settings)
        state(broker)
        before = broker.delivered()
        servers.stop(signal.SIGKILL)
        self.killed_ms = now_ms()
        broker, _ = self.start(folder.name, SAVED_SOON)
        wanted = self.due.keys() - self.back
        wait_until("all have come", lambda: broker.delivered().keys() >= wanted)
        wait_until("nothing waits", lambda: broker.figure("timerCongestNum") == 0)
        after = broker.delivered()
        self.assertEqual(after.keys(), wanted)
        return before, after

    def start(self, folder: str, *settings: str) -> tuple[Broker, Servers]:
        servers = Servers(Path(folder), RECALL, *settings)
        servers.start()
        self.addCleanup(servers.stop)
        client = RawClient(f"127.0.0.1:{servers.broker_port}")
        self.addCleanup(client.close)
        return Broker(client, self.due, self.back), servers

    def assert_once(self, after: Counter[bytes]) -> None:
        self.assertEqual(set(after.values()), {1})

    @staticmethod
    def send_all(broker: Broker) -> None:
        for number in range(COUNT):
            broker.send(number, 4000 + number * 20)

    def test_not_entered(self) -> None:
        """All messages wait in the timer topic."""
        before, after = self.kill_in(self.send_all, "timerStopEnqueue=true")
        self.assertEqual(before, Counter())
        self.assert_once(after)

    def test_entered_not_saved(self) -> None:
        """The timer log has them, but the check point does not."""
        def state(broker: Broker) -> None:
            self.send_all(broker)
            broker.wait_entered()

        _, after = self.kill_in(state, SAVED_NEVER, "timerStopDequeue=true")
        self.assert_once(after)

    def test_entered_and_saved(self) -> None:
        """The check point has them all."""
        def state(broker: Broker) -> None:
            self.send_all(broker)
            broker.wait_entered()

        _, after = self.kill_in(state, SAVED_SOON, "timerStopDequeue=true")
        self.assert_once(after)

    def test_delivered_not_saved(self) -> None:
        """Some were delivered without a save: only these are delivered again."""
        def state(broker: Broker) -> None:
            for number in range(COUNT):
                broker.send(number, 1500 if number % 2 else 15_000)
            wait_until("half have come", lambda: sum(broker.delivered().values()) == COUNT // 2)

        before, after = self.kill_in(state, SAVED_NEVER)
        self.assertEqual(len(before), COUNT // 2)
        self.assertEqual(after, before + Counter(self.due.keys()))

    def test_some_were_rolled_and_wait_for_the_second_time(self) -> None:
        """Some were rolled and wait for the second time."""
        def state(broker: Broker) -> None:
            for number in range(COUNT):
                broker.send(number, 9000)
            wait_until("all are rolled", lambda: broker.client.max_offset(
                "rmq_sys_wheel_timer") >= 2 * COUNT)

        _, after = self.kill_in(state, SAVED_SOON, "timerRollWindowSlot=4")
        self.assertLessEqual(max(after.values()), 2)

    def test_recalled_messages_do_not_come_after_kills(self) -> None:
        """Every third is recalled, half of these before the check point; none is delivered."""
        def state(broker: Broker) -> None:
            for number in range(COUNT):
                handle = broker.send(number, 8000)
                if number % 3 == 0:
                    broker.recall(number, handle)

        _, after = self.kill_in(state, SAVED_SOON)
        self.assert_once(after)
        self.assertEqual(len(after), COUNT - COUNT // 3)

    def test_while_delivering(self) -> None:
        """Only messages that may have been delivered before are delivered twice."""
        def state(broker: Broker) -> None:
            for number in range(COUNT):
                broker.send(number, 500 + number * 60)
            wait_until("some have come", lambda: sum(broker.delivered().values()) > COUNT // 4)

        _, after = self.kill_in(state, SAVED_SOON)
        for body, count in after.items():
            self.assertLessEqual(count, 1 + (self.due[body] <= self.killed_ms), msg=repr(body))
