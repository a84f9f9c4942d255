"""Timed messages with Apache's client, and over stores that both brokers open."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.interop import clients
from tests.interop.clients import JavaTestCase
from tests.interop.exchange import Exchange
from tests.interop.kept import at_once, kept
from tests.interop.peer import Peer
from tests.interop.servers import free_port, servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import RecallMessageRequestHeader

#: What the Java round counts on.
ROUND_SETTINGS = {"timerRollWindowSlot": "8", "recallMessageEnable": "true"}


def rounds(folder: Path, stack: ExitStack) -> dict[str, Future[str]]:
    """Start both brokers, and the round with each, which waits for its messages."""
    version = RoundTests.version
    peer = Peer(folder / "apache", version, free_port(), free_port(), "512m",
                settings=dict(ROUND_SETTINGS))
    stack.callback(peer.stop, kill=True)
    peer.start()
    pairs = [f"{name}={value}" for name, value in ROUND_SETTINGS.items()]
    running = stack.enter_context(servers(folder / "ours", *pairs))
    return at_once(stack, {
        "ours": partial(clients.java_program, version, "TimerRound", running.namesrv, "halves"),
        "apache": partial(clients.java_program, version, "TimerRound", peer.namesrv_address)})


class RoundTests(JavaTestCase):
    """Delays, times, rolls, taking back, refusals: one Java program."""

    def test_java_client_5_3_3_sends_timed_messages_to_our_broker(self) -> None:
        """Client 5.3.3 is used."""
        self.assertRegex(kept(self, rounds)["ours"].result(), r"ok \d{3,} checks")

    def test_java_client_5_3_3_sends_timed_messages_to_apaches_broker(self) -> None:
        """The program passes the same checks with Apache's broker."""
        self.assertRegex(kept(self, rounds)["apache"].result(), r"ok \d{3,} checks")


def _last_tick(due_ms: int) -> int:
    """Return the last tick before a message's time, with whose slot it is delivered."""
    return (due_ms - 1) // 1000 * 1000


COUNT = 60
#: Small files of the timer log, so that both brokers cross from one to the next.
SETTINGS = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": str(20 * 52 + 30),
            "timerFlushIntervalMs": "100"}
TOPIC = "HandOverTimers"


class HandOverTests(JavaTestCase):
    """One broker accepts messages and delivers some, and the other one delivers the rest.

    ``twistmq store check`` finds the store whole beside each broker and after the end of each.
    """

    def setUp(self) -> None:
        super().setUp()
        self.exchange = Exchange(self.folder, free_port(), self.version, SETTINGS)
        #: When each body may come, Unix ms.
        self.due: dict[bytes, int] = {}
        #: When the first broker had ended, Unix ms.
        self.ended_ms = 0
        #: The same as due of what is far ahead, also of what is taken back.
        self.later: dict[bytes, int] = {}

    def send(self, client: RawClient, body: bytes, delay_ms: int) -> str:
        """Send a message; :returns: its handle."""
        due_ms = int(time.time() * 1000) + delay_ms
        header = client.send(TOPIC, body, queue_id=0, properties={
            "TIMER_DELIVER_MS": str(due_ms)})
        self.due[body] = due_ms
        assert header.recall_handle is not None
        return header.recall_handle

    def leave(self, client: RawClient) -> None:
        """Send messages for soon and later; one of six is recalled, and some are delivered."""
        # A broker that was just started takes its time over the first message of all.
        client.send(f"{TOPIC}First", b"first")
        for number in range(COUNT):
            body = b"%d" % number
            if number % 3 == 0:
                self.send(client, body, 5000)
                continue
            handle = self.send(client, body, 14_000 + number * 50)
            self.later[body] = self.due[body]
            if number % 6 == 1:
                reply = client.request(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(
                    topic=TOPIC, recall_handle=handle, producer_group="P"))
                self.assertEqual(reply.code, ResponseCode.SUCCESS)
                del self.due[body]
        wait_until("the first third has come", lambda: sum(
            self.delivered(client).values()) >= COUNT // 3)
        self.exchange.check_store("beside the first broker")

    def look(self) -> None:
        """Check that the store lists the waiting messages and the recalled ones."""
        self.exchange.check_store("after the first broker")
        rows = self.exchange.timers()
        times = [row["due"] for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertLessEqual({row["topic"] for row in rows}, {TOPIC})
        # Apache's broker may have taken long to stop.
        begin_ms = max(self.exchange.timers_read_ms(), _last_tick(min(self.later.values())))
        for is_back in (False, True):
            expected = Counter(tick_ms for body, due_ms in self.later.items()
                               if (tick_ms := _last_tick(due_ms)) >= begin_ms
                               and (body in self.due) != is_back)
            found = Counter(row["due"] for row in rows if row["due"] >= begin_ms
                            and (row["state"] == "taken back") == is_back)
            self.assertEqual(found, expected, msg=f"taken back: {is_back}")

    def finish(self, client: RawClient) -> Counter[bytes]:
        """Wait for the rest; an early message is a failure."""
        def is_all_there() -> bool:
            found = self.delivered(client)
            now_ms = int(time.time() * 1000)
            early = [body for body in found if self.due.get(body, 0) > now_ms]
            assert not early, early
            return found.keys() >= self.due.keys()

        wait_until("all have come", is_all_there)
        self.exchange.check_store("beside the second broker")
        return self.delivered(client)

    def begin(self, broker: Callable[..., object], kill: bool = False) -> None:
        broker(self.leave, kill=kill)
        self.ended_ms = int(time.time() * 1000)
        self.look()

    @staticmethod
    def delivered(client: RawClient) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        offset = 0
        while True:
            messages = client.pull(TOPIC, offset)
            if not messages:
                return found
            found.update(message.body for message in messages)
            offset += len(messages)

    def assert_finished(self, delivered: Counter[bytes], twice: bool) -> None:
        """Check that all but the recalled messages were delivered, and the store is whole.

        :param twice: whether what may have come before the end may have come again.
        """
        self.exchange.check_store("after the second broker")
        self.assertEqual(delivered.keys(), self.due.keys())
        for body, count in delivered.items():
            self.assertLessEqual(count, 1 + (twice and self.due[body] <= self.ended_ms),
                                 msg=repr(body))

    def test_ours_then_apaches(self) -> None:
        """The broker is stopped."""
        self.begin(self.exchange.ours)
        self.assert_finished(self.exchange.apache(self.finish), twice=False)

    def test_ours_killed_then_apaches(self) -> None:
        """The broker is killed."""
        self.begin(self.exchange.ours, kill=True)
        self.assert_finished(self.exchange.apache(self.finish), twice=True)

    def test_apaches_then_ours(self) -> None:
        """The broker is stopped."""
        self.begin(self.exchange.apache)
        self.assert_finished(self.exchange.ours(self.finish), twice=False)

    def test_apaches_killed_then_ours(self) -> None:
        """The broker is killed."""
        self.begin(self.exchange.apache, kill=True)
        self.assert_finished(self.exchange.ours(self.finish), twice=True)
