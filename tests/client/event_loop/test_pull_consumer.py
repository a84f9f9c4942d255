"""Polls in an event loop return at once if messages exist."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.event_loop.memory_shell import MemoryShell
from twistmq.client import Closed, ReceivedMessage
from twistmq.client.event_loop.client import LoopClient
from twistmq.client.event_loop.pull_consumer import LoopPullConsumer
from twistmq.client.roles.parts import parts_of
from twistmq.client.shell.options import PULL_CONSUMER
from twistmq.client.testing import MemoryCluster


class PollTests(SynchronousTestCase):
    """Nine messages of a topic in a cluster in memory."""

    def setUp(self) -> None:
        """Send them, and have the consumer read them with its first poll."""
        self.cluster = MemoryCluster()
        self.cluster.create_topic("T", 1)
        producer = self.cluster.producer()
        for number in range(9):
            producer.send("T", b"%d" % number)
        client = self.cluster.client()
        shell = MemoryShell(client)
        self.tasks = client.engine.tasks
        parts = parts_of(None, LoopClient(shell), LoopClient, PULL_CONSUMER, {"start": "first"})
        self.consumer: LoopPullConsumer[LoopClient, bytes] = LoopPullConsumer(parts, "g", "T")
        self.assertEqual(self.numbers(self.run_to_end(self.consumer.poll(2, 60))), [0, 1])

    def run_to_end(self, coroutine: Any) -> Any:
        """Run a coroutine of the program."""
        task = self.tasks.spawn(coroutine)
        self.cluster.wait_for(lambda: task.is_done)
        return task.result()

    def begun(self, coroutine: Any) -> Any:
        """Run a coroutine up to its first wait; :returns: its result; None when it waits."""
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        coroutine.close()
        return None

    def numbers(self, messages: list[ReceivedMessage[bytes]]) -> list[int]:
        """Return the bodies of messages as numbers."""
        return [int(message.body) for message in messages]

    def test_messages_that_are_there_need_no_turn_of_the_loop(self) -> None:
        """A poll returns them at once, and acknowledges earlier ones; otherwise it waits."""
        self.assertEqual(self.numbers(self.begun(self.consumer.poll(3))), [2, 3, 4])
        self.assertEqual(self.numbers(self.begun(self.consumer.poll())), [5, 6, 7, 8])
        self.assertIsNone(self.begun(self.consumer.poll()))
        self.assertEqual(self.run_to_end(self.consumer.poll(timeout_s=0)), [])
        self.run_to_end(self.consumer.close())
        after = self.cluster.member("g", "T", start="first")
        self.cluster.producer().send("T", b"9")
        self.assertEqual(self.numbers(after.take()), [9])

    def test_a_program_that_holds_the_loop_gives_it_a_turn(self) -> None:
        """If the core has not run for a while, a poll waits for a turn although messages exist."""
        self.tasks.now_ms -= 50
        self.assertIsNone(self.begun(self.consumer.poll(3)))
        self.assertEqual(self.numbers(self.run_to_end(self.consumer.poll(3))), [2, 3, 4])

    def test_a_poll_after_the_close_is_an_error(self) -> None:
        """A poll after the close is an error, and so is one of no messages."""
        with self.assertRaises(ValueError):
            self.begun(self.consumer.poll(0))
        self.run_to_end(self.consumer.close())
        with self.assertRaises(Closed):
            self.run_to_end(self.consumer.poll())
