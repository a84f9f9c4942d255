"""Pull consumers with a running broker."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.defer import Deferred

from tests.client.test_shells import ShellCase
from twistmq.client import MessageQueue, Producer, PullConsumer, aio


class PullTests(ShellCase):
    """Twenty messages."""

    def setUp(self) -> None:
        """Send the messages."""
        super().setUp()
        with Producer(self.where) as producer:
            for number in range(20):
                producer.send("T", b"%d" % number)
            self.queues: list[MessageQueue] = producer.client.read_queues("T")

    def test_a_restart_continues_behind_what_a_later_poll_acknowledged(self) -> Deferred[Any]:
        """The blocking style is tested."""
        def run() -> None:
            seen: list[int] = []
            last: list[int] = []
            with PullConsumer(self.where, group="g", topics="T", start="first") as consumer:
                while len(seen) < 20:
                    last = [int(message.body) for message in consumer.poll(7)]
                    seen += last
            self.assertEqual(sorted(seen), list(range(20)))
            again: list[int] = []
            with PullConsumer(self.where, group="g", topics="T") as consumer:
                while len(again) < len(last):
                    again += [int(message.body) for message in consumer.poll(7)]
                self.assertEqual(sorted(again), sorted(last))
                self.assertEqual(consumer.poll(timeout_s=0.1), [])
                consumer.commit()
                offsets = [consumer.committed(queue) or 0 for queue in self.queues]
                self.assertEqual(sum(offsets), 20)

        return self.in_thread(run)

    def test_a_poll_in_the_middle_of_another_one(self) -> Deferred[Any]:
        """A signal handler or a second task polls; the next poll acknowledges both."""
        def run() -> None:
            with PullConsumer(self.where, group="n", topics="T", start="first") as consumer:
                seen: list[Any] = []
                run_core = consumer.client._run

                def interrupted(make: Any) -> Any:
                    consumer.client._run = run_core  # type: ignore[method-assign]
                    while not seen:
                        seen.extend(consumer.poll(3))
                    return run_core(make)

                consumer.client._run = interrupted  # type: ignore[method-assign]
                seen += consumer.poll(3)
                self.assertGreater(len(seen), 3)
                rest = consumer.poll(100, 0)
                consumer.commit()
                offsets = [consumer.committed(queue) or 0 for queue in self.queues]
                self.assertEqual(sum(offsets), len(seen))
                self.assertFalse({each.id for each in rest} & {each.id for each in seen})

        return self.in_thread(run)

    def test_two_tasks_that_poll(self) -> Deferred[Any]:
        """Each message is returned once, and all are acknowledged."""
        async def main() -> None:
            async with aio.PullConsumer(
                    self.where, group="two", topics="T", start="first") as consumer:
                seen: list[int] = []
                while len(seen) < 20:
                    for found in await asyncio.gather(consumer.poll(3, 0.2), consumer.poll(3, 0.2)):
                        seen += [int(message.body) for message in found]
                self.assertEqual(sorted(seen), list(range(20)))
                await consumer.poll(1, 0)
                await consumer.commit()
                offsets = [await consumer.committed(queue) or 0 for queue in self.queues]
                self.assertEqual(sum(offsets), 20)

        return self.in_thread(lambda: asyncio.run(main()))
