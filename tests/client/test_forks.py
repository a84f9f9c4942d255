"""Forks within blocks: the child cannot use objects of its parent, and ends its blocks quietly.

Each test forks a child inside of ``with`` blocks. The child calls methods, leaves the blocks, and
exits with the number of mistakes. Then the parent goes on as if there were no child.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SkipTest

from tests.client.test_shells import ShellCase
from twistmq.client import (
    COMMIT,
    Client,
    Consumer,
    ForkedError,
    PopConsumer,
    Producer,
    PullConsumer,
    aio,
)
from twistmq.client.event_loop.shell import _finish_all


class ForkCase(ShellCase):
    """A test that forks, and counts the errors of the child."""

    def setUp(self) -> None:
        """Start a broker."""
        if not hasattr(os, "fork"):
            raise SkipTest("no fork on this system")
        super().setUp()

    def assert_fine(self, child: int) -> None:
        """Check that the child made no errors."""
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


class BlockingForkTests(ForkCase):
    """The blocking shell."""

    def test_the_blocks_of_a_child_end_without_an_error(self) -> Deferred[Any]:
        """Each object is tested; afterwards the parent sends and consumes with all of them."""
        def run() -> None:
            parent = os.getpid()
            child = 0
            with Producer(self.where, group="p", on_check=lambda message: COMMIT) as producer:
                for number in range(4):
                    producer.send("T", b"%d" % number)
                try:
                    with (Client(self.where) as client,
                          Consumer(client=client, group="a", topics="T", start="first") as consumer,
                          PullConsumer(self.where, group="b", topics="T", start="first") as puller,
                          PopConsumer(self.where, group="c", topics="T", start="first") as popper,
                          producer.transaction("T", b"4")):
                        messages = iter(consumer)
                        next(messages)
                        child = os.fork()
                        if not child:
                            for call in (client.topics, lambda: next(messages), puller.poll,
                                         popper.receive, consumer.commit,
                                         lambda: producer.send("T", b"5"),
                                         lambda: producer.send_soon("T", b"5")):
                                self.assertRaises(ForkedError, call)
                            producer.close()
                        else:
                            self.assert_fine(child)
                            next(messages)
                            self.assertTrue(puller.poll())
                            self.assertTrue(popper.receive())
                            client.topics()
                    if not child:
                        os._exit(0)
                finally:
                    if os.getpid() != parent:
                        os._exit(1)
                # The block of the transaction has ended in both processes.
                self.assertEqual(len(self.bodies(producer)), 5)

        return self.in_thread(run)

    def bodies(self, producer: Producer) -> list[bytes]:
        """Return the bodies of the topic."""
        return [message.body for queue in producer.client.read_queues("T")
                for message in producer.client.read(queue)]

    def test_a_loop_of_the_child_raises_and_its_break_does_not(self) -> Deferred[Any]:
        """The messages belong to the parent, which acknowledges them."""
        def run() -> None:
            with Producer(self.where) as producer:
                for number in range(8):
                    producer.send("T", b"%d" % number)
            for does_break in (True, False):
                with Consumer(self.where, group=f"g{does_break}", topics="T",
                              start="first") as consumer:
                    child, count = -1, 0
                    try:
                        for message in consumer:
                            count += 1
                            if child == -1 and count == 2:
                                child = os.fork()
                            if not child and does_break:
                                break
                            if count == 8:
                                consumer.acknowledge(message)
                                break
                    except ForkedError:
                        os._exit(7 if does_break or child else 0)
                    if not child:
                        consumer.close()
                        os._exit(0 if does_break else 8)
                    self.assert_fine(child)

        return self.in_thread(run)


class AioForkTests(ForkCase):
    """The shell for asyncio; the child leaves its blocks in the step in which it was forked."""

    def test_the_blocks_of_a_child_end_without_an_error(self) -> Deferred[Any]:
        """Nothing is sent over the connections of the parent, which continues."""
        async def main() -> None:
            parent = os.getpid()
            child = -1
            async with aio.Producer(self.where, group="p", on_check=lambda _: COMMIT) as producer:
                for number in range(4):
                    await producer.send("T", b"%d" % number)
                try:
                    async with (
                            aio.Client(self.where) as client,
                            aio.Consumer(client=client, group="a", topics="T",
                                         start="first") as consumer,
                            aio.PullConsumer(self.where, group="b", topics="T",
                                             start="first") as puller,
                            aio.PopConsumer(self.where, group="c", topics="T",
                                            start="first") as popper,
                            producer.transaction("T", b"4")):
                        messages = consumer.__aiter__()
                        await anext(messages)
                        await client.topics()
                        child = os.fork()
                        if not child:
                            for call in (client.topics, lambda: anext(messages), puller.poll,
                                         popper.receive, consumer.commit,
                                         lambda: producer.send("T", b"5"),
                                         lambda: producer.send_soon("T", b"5")):
                                try:
                                    await call()
                                except ForkedError:
                                    continue
                                os._exit(9)
                            await producer.close()
                        else:
                            self.assert_fine(child)
                            await anext(messages)
                            self.assertTrue(await puller.poll())
                            self.assertTrue(await popper.receive())
                            await client.topics()
                    if not child:
                        os._exit(0)
                finally:
                    if os.getpid() != parent:
                        os._exit(1)
                self.assertEqual(
                    sum([await producer.client.max_offset(queue)
                         for queue in await producer.client.read_queues("T")]), 5)

        return self.in_thread(lambda: asyncio.run(main()))

    def test_the_end_of_a_child_sends_nothing(self) -> Deferred[Any]:
        """A client that was never started belongs to the parent as well."""
        async def main() -> None:
            new = aio.Producer(self.where, group="new")
            async with aio.Producer(self.where, group="p") as producer:
                await producer.send("T", b"1")
                child = os.fork()
                if not child:
                    # Whatever happens, the child must not go on in the loop of its parent.
                    try:
                        for each in (new, producer):
                            with self.assertRaises(ForkedError):
                                await each.send("T", b"2")
                        _finish_all()
                        os._exit(0)
                    finally:
                        os._exit(1)
                self.assert_fine(child)
                await producer.send("T", b"3")
                await new.send("T", b"4")
                await new.close()

        return self.in_thread(lambda: asyncio.run(main()))
