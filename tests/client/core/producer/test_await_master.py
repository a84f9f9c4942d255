"""Sends that wait for a new master, with the option ``await_master``."""

from __future__ import annotations

from typing import Any

from tests.client.core.box import NAMESRV, Answer, route, routes, stored
from tests.client.core.producer.test_sender import A, B, SendCase
from twistmq.client.base.errors import Rejected, SendFailed
from twistmq.client.base.messages import Message, MessageQueue, SendResult
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand

SLAVE = "[REJECTREQUEST]system busy, start flow control for a while"


class AwaitMasterTests(SendCase):
    """A topic on one broker name, whose master changes its address."""

    def setUp(self) -> None:
        """Put the master at A, and nothing at B."""
        super().setUp()
        self.sender = build_producer(self.box.core, {"await_master": True})
        self.box.servers[NAMESRV] = routes({"T": route({"a": A})})
        del self.box.servers[B]
        self.assertEqual(self.send().queue.broker_name, "a")

    def begin(self, **options: Any) -> list[SendResult | Exception]:
        """Begin a send without waiting for it; :returns: a list for its result."""
        outcomes: list[SendResult | Exception] = []
        self.sender.begin_soon(self.sender.prepare(Message(topic="T", body=b"1")),
                               outcomes.append, **options)
        return outcomes

    def refuse(self, code: int, remark: str) -> None:
        """Let the broker at A refuse all messages."""
        self.box.servers[A] = lambda command: self.refused(command, code, remark)

    def refused(self, command: RemotingCommand, code: int, remark: str) -> Answer:
        return ((code, None, b"", remark) if command.code == RequestCode.SEND_MESSAGE_V2
                else stored(command))

    def kill(self) -> None:
        """Kill the broker at A."""
        del self.box.servers[A]
        self.box.cut(A)

    def elect(self) -> None:
        """Make another broker the master, and register it."""
        self.box.servers[B] = stored
        self.box.servers[NAMESRV] = routes({"T": route({"a": B})})

    def test_a_send_goes_to_the_next_master(self) -> None:
        """The old master was killed; the new one is known after a while."""
        self.kill()
        outcomes = self.begin()
        self.box.advance(1500)
        self.assertEqual(outcomes, [])
        self.elect()
        self.box.advance(250)
        self.assertIsInstance(outcomes[0], SendResult)
        self.assertEqual(self.sends(B), 1)

    def test_a_route_without_a_master_is_asked_for_again(self) -> None:
        """Name servers remove a dead master before they know the next one."""
        self.kill()
        data = route({"a": A})
        data.broker_datas[0].broker_addrs = {2: B}
        self.box.servers[NAMESRV] = routes({"T": data})
        outcomes = self.begin()
        self.box.advance(1500)
        self.assertEqual(outcomes, [])
        self.elect()
        self.box.advance(250)
        self.assertIsInstance(outcomes[0], SendResult)

    def test_a_master_that_became_a_slave_is_left(self) -> None:
        """It may answer that it is a slave, or that it is no longer the leader."""
        for code, remark in ((ResponseCode.SYSTEM_BUSY, SLAVE),
                             (ResponseCode.SERVICE_NOT_AVAILABLE, "it is a slave"),
                             (ResponseCode.SYSTEM_ERROR, "it no longer leads")):
            self.setUp()
            self.refuse(code, remark)
            outcomes = self.begin()
            self.box.advance(500)
            self.assertEqual(outcomes, [])
            self.elect()
            self.box.advance(250)
            self.assertIsInstance(outcomes[0], SendResult)

    def test_without_a_master_it_fails_in_its_time(self) -> None:
        """The error contains the reason of the last attempt."""
        self.kill()
        begin_ms = self.box.clock.now_ms
        error = self.assertRaises(SendFailed, self.send)
        self.assertIn(self.box.clock.now_ms - begin_ms, range(2800, 3051))
        self.assertIn("10.0.0.2:10911", str(error))

    def test_another_broker_is_tried_first(self) -> None:
        """While one of the topic's brokers can be reached, the send does not wait."""
        self.box.servers[NAMESRV] = routes({"T": route({"a": A, "b": B})})
        self.box.servers[B] = stored
        self.box.run(self.box.core.routes.find("T", again=True))
        self.kill()
        begin_ms = self.box.clock.now_ms
        self.assertEqual({self.send().queue.broker_name for _ in range(4)}, {"b"})
        self.assertLess(self.box.clock.now_ms - begin_ms, 100)

    def test_other_refusals_and_chosen_queues_do_not_wait(self) -> None:
        """An invalid message would be invalid for another master as well."""
        self.refuse(ResponseCode.MESSAGE_ILLEGAL, "no")
        self.assertRaises(Rejected, self.send)
        self.kill()
        outcomes = self.begin(queue=MessageQueue("T", "a", 0))
        self.box.advance(300)
        self.assertIsInstance(outcomes[0], Exception)

    def test_without_the_option_a_send_fails_at_once(self) -> None:
        """The send fails as it does with Apache's client."""
        self.sender = build_producer(self.box.core, {})
        self.kill()
        begin_ms = self.box.clock.now_ms
        self.assertRaises(SendFailed, self.send)
        self.assertLess(self.box.clock.now_ms - begin_ms, 500)
