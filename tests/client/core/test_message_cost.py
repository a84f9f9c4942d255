"""The cost of a message in calls of Python functions, which do not depend on load or clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Box, route, routes, stored
from tests.client.core.group_box import GroupBox, GroupBroker
from twistmq.client.base.messages import Message, SendResult
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender

BROKER = "10.0.0.2:10911"
COUNT = 1000


def calls_of(work: Callable[[], object]) -> float:
    """Return the number of calls for each of ``COUNT`` messages."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls / COUNT


class MessageCostTests(SynchronousTestCase):
    """A third more calls for a message fail here, before any benchmark."""

    def produced(self, *, auto_batch: bool) -> float:
        """The number of calls for a sent message, including the calls of the test's broker."""
        box = Box()
        box.servers[NAMESRV] = routes({"T": route({"a": BROKER})})
        box.servers[BROKER] = stored
        ids = count()
        sender = Sender(box.core, ProducerOptions(group="g", auto_batch=auto_batch),
                        lambda now_ms: f"ID{next(ids)}")
        outcomes: list[SendResult | Exception] = []

        def send() -> None:
            for _ in range(COUNT):
                sender.begin_soon(sender.prepare(Message(topic="T", body=b"1")), outcomes.append)
            box.advance(100)

        send()
        calls = calls_of(send)
        self.assertEqual([type(each) for each in outcomes], [SendResult] * 2 * COUNT)
        return calls

    def consumed(self, size: int) -> float:
        """The calls for a message that is read and finished, in lists of a size."""
        broker = GroupBroker(queues=1)
        for number in range(COUNT):
            broker.put("T", 0, b"%d" % number)
        box = GroupBox(broker)
        box.start()
        bodies: list[bytes] = []

        def take() -> None:
            while (batch := box.member.take(size)) is not None:
                bodies.extend(message.body for message in batch.messages)
                box.member.succeed(batch.assigned, batch.messages)
                box.settle()

        calls = calls_of(take)
        self.assertEqual(bodies, [b"%d" % number for number in range(COUNT)])
        return calls

    def test_a_message_that_is_sent_calls_so_many_functions(self) -> None:
        """It is sent alone, or in a batch that the client makes."""
        self.assertLess(self.produced(auto_batch=False), 80)
        self.assertLess(self.produced(auto_batch=True), 17)

    def test_a_message_that_is_consumed_calls_so_many_functions(self) -> None:
        """Messages are consumed one by one, or in lists of 32."""
        self.assertLess(self.consumed(1), 46)
        self.assertLess(self.consumed(32), 8)
