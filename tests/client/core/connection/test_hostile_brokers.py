"""Brokers that lie, by seed: the client has no fault and no loop, and consumes true messages."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer, Box
from tests.client.core.group_box import BROKER, GroupBox
from tests.client.core.lies import Liar
from tests.client.core.pop_box import PopBox, PopBroker
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.consumer.member import Member
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError

#: More seeds: TWISTMQ_LIES=1000.
SEEDS: Final = int(os.environ.get("TWISTMQ_LIES", "8"))


class LieCase(SynchronousTestCase):
    """The steps of a member during lies."""

    def setUp(self) -> None:
        """Ignore the log, which is full of the brokers' lies."""
        logging.getLogger("twistmq.client").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("twistmq.client").setLevel, logging.NOTSET)

    def begin(self, box: Box, seed: int, faults: list[str]) -> Liar:
        """Lie in every third answer, and record the tasks that fail by a fault of the client."""
        def failed(task: Task[Any], error: Exception) -> None:
            if not isinstance(error, BrokerError):
                faults.append(f"seed {seed}: {task.name}: {error!r}")

        box.engine.tasks.on_failure = failed
        return Liar(box, seed, 0.35)

    def join(self, box: Box, member: Member[Any], liar: Liar) -> None:
        """Join the group, without lies if they keep the member out."""
        try:
            box.run(member.start())
        except BrokerError:
            liar.share = 0.0
            if member.is_closing:
                raise
            liar.share = 0.35

    def consume(self, box: Box, member: Member[Any], liar: Liar, most: int) -> set[bytes]:
        """Take and finish all messages; :returns: the bodies that can be read."""
        found = set()
        for _ in range(most):
            batch = member.take(8)
            if batch is None:
                break
            for message in batch.messages:
                with contextlib.suppress(BrokerError):
                    found.add(message.body)
                _ = message.properties, message.attempt, repr(message)
            if liar.chance.random() < 0.8:
                member.succeed(batch.assigned, batch.messages)
            else:
                member.fail(batch.assigned, batch.messages)
        return found

    def find_all(
        self, box: Box, liar: Liar, rounds: int, seed: int,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """Let the member find the last messages, and close it.

        :param before: called at the begin of each round of two seconds.
        """
        found: set[bytes] = set()
        for _ in range(rounds):
            before()
            box.advance(2000)
            box.cut(BROKER)
            found |= self.consume(box, box.member, liar, 1000)
        self.assertLessEqual({b"1000", b"1001", b"1002", b"1003"}, found, seed)
        box.run(box.member.close(1000))

    def check_seeds(self, lie: Callable[[int, list[str]], None]) -> None:
        """Check that each seed runs without a fault."""
        faults: list[str] = []
        for seed in range(SEEDS):
            lie(seed, faults)
        self.assertEqual(faults, [])


def _strict(broker: PopBroker) -> Callable[[RemotingCommand], Answer]:
    """A broker that refuses the receipts of messages that it does not have."""
    def answer(request: RemotingCommand) -> Answer:
        try:
            return broker(request)
        except (KeyError, BrokerError) as error:
            return ResponseCode.MESSAGE_ILLEGAL, None, b"", repr(error)

    return answer


class PullTests(LieCase):
    """A pull member, with and without order."""

    def lie(self, seed: int, faults: list[str]) -> None:
        """Run one member, with two minutes of lies and one without."""
        box = GroupBox(in_order=bool(seed % 2))
        for number in range(200):
            box.broker.put("T", number % 4, b"%d" % number)
        liar = self.begin(box, seed, faults)
        self.join(box, box.member, liar)
        for _ in range(60):
            box.advance(2000)
            self.consume(box, box.member, liar, 10)
            with contextlib.suppress(ValueError):
                box.push(BROKER, liar.request())
        liar.share = 0.0
        box.advance(180_000)
        self.consume(box, box.member, liar, 1000)
        for number in range(1000, 1004):
            box.broker.put("T", number % 4, b"%d" % number)
        self.find_all(box, liar, 120, seed)

    def test_no_seed_breaks_a_member(self) -> None:
        """It continues with true messages, whatever it was told before."""
        self.check_seeds(self.lie)


class PopTests(LieCase):
    """A pop member, with and without order."""

    def lie(self, seed: int, faults: list[str]) -> None:
        """Run one member, with two minutes of lies and some without."""
        options = {"order": "queue"} if seed % 2 else {}
        box = PopBox(**options)
        box.servers[BROKER] = _strict(box.broker)
        for number in range(100):
            box.broker.put(b"%d" % number, number % 2)
        liar = self.begin(box, seed, faults)
        with contextlib.suppress(BrokerError):
            box.run(box.member.start())
        if box.member.is_closing:
            return
        for _ in range(60):
            box.demand()
            box.advance(2000)
            self.consume(box, box.member, liar, 10)
            with contextlib.suppress(ValueError):
                box.push(BROKER, liar.request())
        liar.share = 0.0
        for number in range(1000, 1004):
            box.broker.put(b"%d" % number, number % 2)
        self.find_all(box, liar, 150, seed, box.demand)

    def test_no_seed_breaks_a_member(self) -> None:
        """It continues with true messages, whatever it was told before."""
        self.check_seeds(self.lie)
