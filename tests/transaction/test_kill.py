"""A broker is killed in every state of a transaction, and the next one continues its store.

The producer is a client of ours in this process. Each test brings a broker's process into a state,
kills it with SIGKILL, starts another, answers what that asks, and counts what was delivered.
"""

from __future__ import annotations

import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import Servers, wait_until
from tests.transaction.producer import Producer
from twistmq.broker.testing import RawClient
from twistmq.protocol.headers.send import SendMessageResponseHeader

COUNT = 60
#: Checks follow each other closely; ends are written at once or, where a test says so, never.
FAST = ("transactionTimeOut=200", "transactionCheckInterval=100", "transactionCheckMax=10000",
        "transactionOpBatchInterval=50", "flushConsumerOffsetInterval=100")
NEVER_CHECKED = ("transactionCheckInterval=3600000", *FAST[2:])
#: A check writes the ends that wait as well.
NEVER_WRITTEN = (NEVER_CHECKED[0], "transactionOpBatchInterval=3600000")
ASKED_SELDOM = (FAST[0], "transactionCheckInterval=2000", NEVER_WRITTEN[1])


def bodies(times: dict[int, int]) -> dict[bytes, int]:
    """Return numbers as bodies."""
    return {b"%d" % number: count for number, count in times.items()}


class KillTests(SynchronousTestCase):
    """Each test kills the broker in another state."""

    def kill_in(self, state: Callable[[Producer], object], *settings: str) -> Counter[bytes]:
        """Bring a broker into a state, kill it, and let the next one finish.

        :returns: what was delivered before the kill.
        """
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        servers = Servers(Path(folder.name), *settings)
        servers.start()
        self.addCleanup(servers.stop)
        producer = self.producer_of(servers)
        state(producer)
        before = producer.delivered()
        servers.stop(signal.SIGKILL)
        servers = Servers(Path(folder.name), *FAST)
        servers.start()
        self.addCleanup(servers.stop)
        self.producer = self.producer_of(servers)
        wait_until("all half messages are ended", self.producer.is_all_checked)
        return before

    def producer_of(self, servers: Servers) -> Producer:
        client = RawClient(f"127.0.0.1:{servers.broker_port}")
        self.addCleanup(client.close)
        return Producer(client=client)

    def assert_delivered(self, times: dict[int, int]) -> None:
        """Check that each committed message arrived as often as expected, and no other message."""
        self.assertEqual(self.producer.delivered(), Counter(bodies(times)))

    @staticmethod
    def send_all(producer: Producer) -> list[SendMessageResponseHeader]:
        return [producer.half(number) for number in range(COUNT)]

    def send_and_end(self, producer: Producer) -> None:
        for number, half in enumerate(self.send_all(producer)):
            producer.end_half(number, half)

    def once(self) -> dict[int, int]:
        return dict.fromkeys(range(0, COUNT, 2), 1)

    def test_half_is_stored(self) -> None:
        """The half messages are stored: the next broker asks about each of them once."""
        before = self.kill_in(self.send_all, *NEVER_CHECKED)
        self.assertEqual(before, Counter())
        self.assert_delivered(self.once())

    def test_end_is_not_written(self) -> None:
        """A commit without an op message is asked about again, so a message may arrive twice."""
        before = self.kill_in(self.send_and_end, *NEVER_WRITTEN)
        self.assertEqual(before, Counter(bodies(self.once())))
        self.assert_delivered(dict.fromkeys(range(0, COUNT, 2), 2))

    def test_end_is_written(self) -> None:
        """With the op messages written, no producer is asked, and every message arrives once."""
        def state(producer: Producer) -> None:
            self.send_and_end(producer)
            wait_until("the ends are written", lambda: len(producer.ended()) == COUNT)

        self.kill_in(state, *NEVER_CHECKED)
        self.assert_delivered(self.once())

    def test_half_messages_put_back_before_a_kill_are_checked_after_it(self) -> None:
        """The half messages are put back and asked about, but the offsets are not saved."""
        def state(producer: Producer) -> None:
            self.send_all(producer)
            for _ in range(COUNT):
                producer.next_question()

        self.kill_in(state, *FAST[:4], "flushConsumerOffsetInterval=3600000")
        self.assert_delivered(self.once())

    def test_answered_but_not_written(self) -> None:
        """Half of them are answered after they were put back, but the ends are not written."""
        answered: list[int] = []

        def state(producer: Producer) -> None:
            self.send_all(producer)
            answered.extend(int(producer.answer_next()) for _ in range(COUNT // 2))

        self.kill_in(state, *ASKED_SELDOM)
        self.assertEqual(len(set(answered)), COUNT // 2)
        delivered = self.producer.delivered()
        self.assertEqual(set(delivered), set(bodies(self.once())))
        twice = {int(body) for body, count in delivered.items() if count == 2}
        self.assertEqual(max(delivered.values()), 2)
        self.assertEqual(twice - set(answered), set())

    def test_while_checking(self) -> None:
        """In the middle of a check, an end that is written is not delivered again."""
        written: set[bytes] = set()

        def state(producer: Producer) -> None:
            for number, half in enumerate(self.send_all(producer)):
                if number % 3 == 0:
                    producer.end_half(number, half)
            for _ in range(COUNT // 3):
                producer.answer_next()
            written.update(producer.ended())

        before = self.kill_in(state, *FAST)
        delivered = self.producer.delivered()
        self.assertEqual(set(delivered), set(bodies(self.once())))
        for body, count in delivered.items():
            allowed = 2 if body in before and body not in written else 1
            self.assertLessEqual(count, allowed, msg=f"{body!r}")
