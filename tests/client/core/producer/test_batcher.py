"""The automatic batching of a producer: its batches, and the result of each message."""

from __future__ import annotations

from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from twistmq.client.base.errors import Closed, Rejected, Unsupported
from twistmq.client.base.messages import Message, SendResult
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.send import SendMessageResponseHeader

A = "10.0.0.2:10911"


def stored_at_7(command: RemotingCommand) -> Answer:
    """A broker that stores every message at offset 7, and names the place of each."""
    if command.code == RequestCode.HEART_BEAT:
        return ResponseCode.SUCCESS, None, b"", None
    places = ",".join(f"P{index}" for index in range(command.body.count(b"UNIQ_KEY") or 1))
    return (ResponseCode.SUCCESS,
            SendMessageResponseHeader(places, int(command.fields()["e"]), 7), b"", None)


class BatchingTests(SynchronousTestCase):
    """A producer with ``auto_batch``."""

    def setUp(self) -> None:
        """Make it, with the topic's route known."""
        self.box = Box()
        self.box.servers[NAMESRV] = routes({"T": route({"a": A}), "U": route({"a": A})})
        self.box.servers[A] = stored_at_7
        ids = count()
        self.sender = Sender(self.box.core, ProducerOptions(group="g", auto_batch=True),
                             lambda now_ms: f"ID{next(ids)}")
        self.outcomes: dict[bytes, SendResult | Exception] = {}
        for topic in ("T", "U"):
            self.box.run(self.box.core.routes.find_for_send(topic))
        self.box.requests.clear()

    def send(self, body: bytes, topic: str = "T", **options: Any) -> None:
        """Send without waiting."""
        def done(outcome: SendResult | Exception) -> None:
            self.assertNotIn(body, self.outcomes)
            self.outcomes[body] = outcome

        self.sender.begin_soon(
            self.sender.prepare(Message(topic, body, **options)), done)

    def codes(self) -> list[int]:
        """The codes of the requests that the broker got."""
        return [command.code for where, command in self.box.requests if where == A]

    def test_messages_go_together_after_a_while_and_each_has_its_own_result(self) -> None:
        """The result has its id, the offset, and its index in the batch."""
        for body in (b"0", b"1", b"2"):
            self.send(body)
        self.box.advance(9)
        self.assertEqual(self.codes(), [])
        self.box.advance(2)
        self.assertEqual(self.codes(), [RequestCode.SEND_BATCH_MESSAGE])
        found = [self.outcomes[body] for body in (b"0", b"1", b"2")]
        self.assertEqual(
            [(each.id, each.offset, each.offset_id) for each in found
             if isinstance(each, SendResult)],
            [("ID0", 7, "P0"), ("ID1", 8, "P1"), ("ID2", 9, "P2")])

    def test_one_message_alone_is_sent_as_a_message(self) -> None:
        """A batch of one message would be useless."""
        self.send(b"1")
        self.box.advance(11)
        self.assertEqual(self.codes(), [RequestCode.SEND_MESSAGE_V2])
        self.assertIsInstance(self.outcomes[b"1"], SendResult)

    def test_a_full_batch_does_not_wait(self) -> None:
        """32 KiB are sent at once; the rest waits."""
        for number in range(20):
            self.send(b"%04d" % number + b"x" * 2000)
        self.box.settle()
        self.assertEqual(self.codes(), [RequestCode.SEND_BATCH_MESSAGE])
        self.assertIn(len(self.outcomes), range(14, 17))
        self.box.advance(11)
        self.assertEqual(len(self.outcomes), 20)

    def test_a_flush_sends_what_waits(self) -> None:
        """Topics and tags are sent separately."""
        for tags in ("", "x"):
            for topic in ("T", "U"):
                for number in range(2):
                    self.send(f"{topic}{tags}{number}".encode(), topic, tags=tags)
        self.sender.flush_batches()
        self.box.settle()
        self.assertEqual(self.codes(), [RequestCode.SEND_BATCH_MESSAGE] * 4)
        self.assertEqual(len(self.outcomes), 8)

    def test_messages_that_brokers_take_alone_go_alone_at_once(self) -> None:
        """They have a delay, a sharding key or a compressed body."""
        self.box.core.versions[A] = 479
        self.send(b"delayed", delay_level=1)
        self.send(b"timed", delay_s=0.005)
        self.send(b"sharded", sharding_key="k")
        self.send(b"x" * 5000)
        self.send(b"waits")
        self.box.settle()
        self.assertEqual(self.codes(), [RequestCode.SEND_MESSAGE_V2] * 4)
        self.assertNotIn(b"waits", self.outcomes)

    def test_a_message_for_a_time_is_not_sent_to_an_old_broker(self) -> None:
        """It would deliver the message at once."""
        self.box.core.versions[A] = 401
        self.send(b"timed", delay_s=0.005)
        self.box.settle()
        self.assertEqual(self.codes(), [])
        self.assertIsInstance(self.outcomes[b"timed"], Unsupported)

    def test_a_batch_that_is_refused_fails_each_of_its_messages(self) -> None:
        """Each has the error of the batch."""
        self.box.servers[A] = lambda command: (ResponseCode.MESSAGE_ILLEGAL, None, b"", "no")
        self.send(b"0")
        self.send(b"1")
        self.box.advance(11)
        self.assertEqual([type(each) for each in self.outcomes.values()], [Rejected, Rejected])

    def test_a_client_that_is_closed_fails_what_waits(self) -> None:
        """No message remains without a result."""
        self.send(b"0")
        self.send(b"1")
        self.box.run(self.box.core.close())
        self.assertEqual([type(each) for each in self.outcomes.values()], [Closed, Closed])
