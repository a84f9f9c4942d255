"""Messages of iterations that the program acknowledges itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.client.test_shells import ShellCase
from twistmq.client import (
    AlreadyHandled,
    Client,
    Closed,
    Consumer,
    NotAssigned,
    PopConsumer,
    Producer,
    ReceiptExpired,
    aio,
    tx,
)


class AcknowledgementCase(ShellCase):
    """Messages 0 to 4 of topic T in one queue, which keeps their order."""

    def setUp(self) -> None:
        super().setUp()
        with Producer(self.where) as producer:
            for number in range(5):
                producer.send("T", b"%d" % number, sharding_key="one")

    def committed(self, group: str = "g") -> int:
        """Return the committed offset of a group, over all queues."""
        with Client(self.where) as client:
            return sum(client.group_offset(group, queue) or 0
                       for queue in client.read_queues("T"))


class BlockingAcknowledgementTests(AcknowledgementCase):
    """The blocking shell."""

    def first(self, acknowledge: Callable[[Any, Any], None]) -> bytes:
        """Return the messages of a program that leaves its loop after one message."""
        with Consumer(self.where, group="g", topics="T", start="first") as consumer:
            for message in consumer:
                acknowledge(consumer, message)
                break
        body: bytes = message.body
        return body

    def test_a_loop_that_is_left_after_an_acknowledgement(self) -> Deferred[Any]:
        """The next run of the program gets the next message."""
        return self.in_thread(lambda: self.assertEqual(
            [self.first(lambda consumer, message: consumer.acknowledge(message))
             for _ in range(3)], [b"0", b"1", b"2"]))

    def test_a_loop_that_is_left_without_one(self) -> Deferred[Any]:
        """The message is delivered again."""
        return self.in_thread(lambda: self.assertEqual(
            [self.first(lambda *_: None) for _ in range(2)], [b"0", b"0"]))

    def test_the_loop_goes_on_after_an_acknowledgement(self) -> Deferred[Any]:
        """A message that was acknowledged counts once, and a second time is an error."""
        def run() -> None:
            seen = []
            with Consumer(self.where, group="g", topics="T", start="first") as consumer:
                for message in consumer:
                    seen.append(message.body)
                    consumer.acknowledge(message)
                    error = self.assertRaises(AlreadyHandled, consumer.acknowledge, message)
                    self.assertIsInstance(error, NotAssigned)
                    self.assertIn("has its result already", str(error))
                    if len(seen) == 5:
                        break
            self.assertEqual(seen, [b"0", b"1", b"2", b"3", b"4"])
            self.assertEqual(self.committed(), 5)
            self.assertRaises(Closed, consumer.acknowledge, message)

        return self.in_thread(run)

    def test_acknowledgements_out_of_order(self) -> Deferred[Any]:
        """Offsets are committed up to the first message that is not acknowledged."""
        def run() -> None:
            assigned: list[Any] = []
            with Consumer(self.where, group="g", topics="T", start="first",
                          auto_acknowledge=False) as consumer:
                for message in consumer:
                    assigned.append(message)
                    if len(assigned) == 5:
                        break
                consumer.acknowledge([assigned[4], assigned[0], assigned[1]])
                consumer.commit()
                self.assertEqual(self.committed(), 2)
                consumer.acknowledge(assigned[2])
            self.assertEqual(self.committed(), 3)
            self.assertEqual(self.first(lambda *_: None), b"3")

        return self.in_thread(run)

    def test_messages_that_are_popped(self) -> Deferred[Any]:
        """One method acknowledges messages of a loop and received ones."""
        def run() -> None:
            with PopConsumer(self.where, group="p", topics="T", invisible_s=30,
                             auto_acknowledge=False, start="first") as consumer:
                [received] = consumer.receive(1)
                taken = []
                for message in consumer:
                    taken.append(message)
                    if len(taken) == 4:
                        break
                consumer.acknowledge([taken[2], received, taken[0]])
                self.assertRaises(ReceiptExpired, consumer.acknowledge, received)
                consumer.acknowledge([taken[3], taken[1]])
            self.assertEqual({each.body for each in (received, *taken)},
                             {b"0", b"1", b"2", b"3", b"4"})

        return self.in_thread(run)


class LoopAcknowledgementTests(AcknowledgementCase):
    """The shells of event loops."""

    async def first(self, shell: Any, acknowledges: bool) -> bytes:
        """Return the messages of a program that leaves its loop after one message."""
        async with shell as consumer:
            async for message in consumer:
                if acknowledges:
                    await consumer.acknowledge(message)
                break
        body: bytes = message.body
        return body

    def test_asyncio(self) -> Deferred[Any]:
        """A loop is left, and each message has its own task."""
        def made(**options: Any) -> Any:
            return aio.Consumer(self.where, group="g", topics="T", start="first", **options)

        async def run() -> None:
            self.assertEqual(await self.first(made(), False), b"0")
            self.assertEqual(await self.first(made(), True), b"0")
            self.assertEqual(await self.first(made(), True), b"1")
            async with made(auto_acknowledge=False) as consumer:
                async def process(message: Any) -> None:
                    # The later ones end first.
                    await asyncio.sleep(0.05 * (5 - int(message.body)))
                    await consumer.acknowledge(message)

                async with asyncio.TaskGroup() as group:
                    async for message in consumer:
                        group.create_task(process(message))
                        if message.body == b"4":
                            break
                await consumer.commit()

        def check() -> None:
            asyncio.run(run())
            self.assertEqual(self.committed(), 5)

        return self.in_thread(check)

    async def test_twisted(self) -> None:
        """A loop is left."""
        def made() -> Any:
            return tx.Consumer(self.where, group="g", topics="T", start="first", reactor=reactor)

        self.assertEqual(await self.first(made(), True), b"0")
        self.assertEqual(await self.first(made(), True), b"1")
        self.assertEqual(await self.first(made(), False), b"2")
        self.assertEqual(await self.first(made(), False), b"2")
