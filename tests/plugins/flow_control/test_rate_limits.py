"""The rate of messages that one client, or all clients of a topic, may send."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import flow_control
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode

BUSY = ResponseCode.SYSTEM_BUSY


class RateLimitTests(SynchronousTestCase):
    """Sends to a broker with limits."""

    def make(self, **settings: str) -> None:
        self.box = KernelBox(
            [("flow_control", flow_control.Plugin)],
            {f"flow_control.{name}": value for name, value in settings.items()})
        self.addCleanup(self.box.stop)
        self.peer = self.box.peer()

    def send(self, count: int, topic: str = "T", peer: Peer | None = None) -> list[int]:
        return [self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, 1), b"x",
                             peer or self.peer).code for _ in range(count)]

    def test_a_seconds_worth_at_once(self) -> None:
        """A client may send the amount of a second at once; other clients have their own limit."""
        self.make(client_rate_max="4")
        self.assertEqual(self.send(6), [0, 0, 0, 0, BUSY, BUSY])
        self.assertEqual(self.send(1, peer=self.box.peer()), [0])
        self.box.now_ms += 500
        self.assertEqual(self.send(3), [0, 0, BUSY])
        self.box.now_ms += 60_000
        self.assertEqual(self.send(5), [0, 0, 0, 0, BUSY])
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"x", self.peer)
        self.assertEqual(reply.remark, "[RATE_LIMIT]a client may send 4 messages a second, "
                                       "start flow control for a while")

    def test_a_topic_limit_holds_over_all_producers(self) -> None:
        """The limit of a topic is for all producers; a topic can have its own, and
        0 is unlimited.
        """
        self.make(topic_rate_max="2", topic_rates="Loud=3, Free=0")
        self.assertEqual(self.send(2) + self.send(1, peer=self.box.peer()), [0, 0, BUSY])
        self.assertEqual(self.send(4, "Loud"), [0, 0, 0, BUSY])
        self.assertEqual(self.send(9, "Free"), [0] * 9)

    def test_sends_that_were_read_before(self) -> None:
        """A send that was read earlier and is executed later does not earn its time twice."""
        self.make(client_rate_max="10")
        self.assertEqual(self.send(10), [0] * 10)
        for elapsed_ms in (100, -100, 100, -100, 100):
            self.box.now_ms += elapsed_ms
            codes = self.send(1)
        self.assertEqual(codes, [BUSY])

    def test_a_producer_at_the_rate_is_never_refused(self) -> None:
        """A client that sends evenly at the limit is never refused."""
        self.make(client_rate_max="10")
        codes = []
        for _ in range(50):
            codes += self.send(1)
            self.box.now_ms += 100
        self.assertEqual(set(codes), {0})

    def batch(self, count: int) -> int:
        header = send_header("T", 1)
        header.batch = True
        body = encode_batch([(0, b"x", "")] * count)
        return self.box.ask(RequestCode.SEND_BATCH_MESSAGE, header, body, self.peer).code

    def test_messages_count_not_requests(self) -> None:
        """Messages count, not requests; one of more than a second's worth passes now and then."""
        self.make(client_rate_max="4")
        self.assertEqual([self.batch(3), self.batch(2), self.batch(1)], [0, BUSY, 0])
        self.box.now_ms += 1000
        self.assertEqual([self.batch(8), self.batch(1)], [0, BUSY])
        self.box.now_ms += 1000
        self.assertEqual(self.batch(1), BUSY, msg="the large one took two seconds' worth")

    def test_without_limits_no_hook_is_called(self) -> None:
        """Without limits no hook is called for sends; limits may be changed at run time."""
        self.make()
        hooks = self.box.kernel.hooks
        self.assertEqual(hooks.before_send, ())
        self.box.settings.update({"flow_control.client_rate_max": "1"})
        self.assertEqual(len(hooks.before_send), 1)
        self.assertEqual(self.send(2), [0, BUSY])
        self.box.settings.update({"flow_control.client_rate_max": "0"})
        self.assertEqual(hooks.before_send, ())
        self.assertEqual(self.send(2), [0, 0])

    def test_a_producer_is_forgotten_after_a_silent_second(self) -> None:
        """A client that was silent for a second is forgotten."""
        self.make(client_rate_max="4", topic_rate_max="4")
        self.send(2)
        limits: Any = self.box.plugin(flow_control.Plugin)._rates
        self.assertEqual(len(limits._allowances), 2)
        limits.forget(self.box.now_ms + 1000)
        self.assertEqual(len(limits._allowances), 2)
        limits.forget(self.box.now_ms + 1001)
        self.assertEqual(limits._allowances, {})

    def test_an_invalid_limit_refuses_the_start_or_the_change(self) -> None:
        """An invalid limit refuses the start, or the change at run time."""
        for value in ("T", "T=x", "=4", "T=-1"):
            self.assertRaises(SettingsError, self.make, topic_rates=value)
        self.make(topic_rates="T=1")
        self.assertRaises(SettingsError, self.box.settings.update,
                          {"flow_control.topic_rates": "T"})
        self.assertEqual(self.send(2), [0, BUSY])
