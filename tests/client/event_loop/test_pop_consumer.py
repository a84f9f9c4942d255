"""Pop consumers in both event loops, with a running broker."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.client.event_loop.test_shells import Loop
from tests.client.test_shells import ShellCase
from twistmq.client import Producer, ReceivedMessage, Retry, aio, tx


class PopTests(ShellCase):
    """Ten messages of a topic; each loop has a group."""

    def setUp(self) -> None:
        """Send the messages."""
        super().setUp()
        with Producer(self.where) as producer:
            for number in range(10):
                producer.send("T", b"%d" % number)

    def consumer(self, loop: Loop, name: str = "", **options: Any) -> Any:
        """Return a consumer with its own client."""
        group = f"g-{loop.module.__name__.rpartition('.')[2]}{name}"
        return loop.module.PopConsumer(
            self.where, group=group, topics="T", start="first", **loop.more, **options)

    def both(self, main: Any) -> Deferred[Any]:
        """Run a test in both loops, one after the other."""
        return Loop(aio).run(main).addCallback(lambda _: Loop(tx).run(main))

    def test_messages_are_handled_and_iterated(self) -> Deferred[Any]:
        """The handler fails once and gets its message again; a loop that is left loses none."""
        async def main(loop: Loop) -> None:
            async with self.consumer(loop) as consumer:
                seen: list[tuple[int, int]] = []

                async def handle(message: ReceivedMessage[Any]) -> None:
                    if int(message.body) == 4 and message.attempt == 1:
                        raise Retry(1)
                    seen.append((int(message.body), message.attempt))
                    if len(seen) == 10:
                        consumer.stop()

                await consumer.run(handle if loop.module is aio else (
                    lambda message: Deferred.fromCoroutine(handle(message))), workers=3)
                self.assertEqual(sorted(seen), [(number, 1 + (number == 4))
                                                for number in range(10)])
            async with self.consumer(loop, "2") as consumer:
                taken = []
                async for message in consumer:
                    taken.append(message.body)
                    if len(taken) == 4:
                        break
                rest: list[bytes] = []
                while len(rest) < 7:
                    messages = await consumer.receive(wait_s=5)
                    await consumer.acknowledge(messages)
                    rest += [message.body for message in messages]
                self.assertEqual(sorted(taken[:3] + rest), [b"%d" % each for each in range(10)])
                self.assertIn(taken[3], rest)

        return self.both(main)

    def test_a_receive_that_is_cancelled_loses_nothing(self) -> Deferred[Any]:
        """It waits for messages of an empty queue, which the next call receives."""
        async def main(loop: Loop) -> None:
            async with self.consumer(loop) as consumer:
                found: list[ReceivedMessage[Any]] = []
                while len(found) < 10:
                    found += await consumer.receive()
                await consumer.acknowledge(found)

                async def receive() -> None:
                    await consumer.receive()

                waiting = loop.begin(receive())
                await loop.until(lambda: consumer._receiver._popping.under_way > 0)
                waiting.cancel()
                with self.assertRaises((asyncio.CancelledError, CancelledError)):
                    await waiting
                async with loop.module.Producer(self.where, **loop.more) as producer:
                    await producer.send("T", b"late")
                [message] = await consumer.receive(wait_s=10)
                self.assertEqual(message.body, b"late")
                await consumer.acknowledge(message)

        return self.both(main)
