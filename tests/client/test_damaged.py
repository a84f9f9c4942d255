"""One byte of a body is changed in a running broker's log; each reader must report the damage."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from twistmq.broker.testing import running_broker
from twistmq.client import (
    Client,
    Consumer,
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Undecodable,
    aio,
)
from twistmq.tools.command_line import twistmq

BODIES = [b"body %d of six" % number for number in range(6)]
BAD = 2
WHOLE = [body for number, body in enumerate(BODIES) if number != BAD]


class OneByteTests(TestCase):
    """Six messages in one queue, of which the third is damaged."""

    timeout = 120

    def setUp(self) -> None:
        """Start a broker and store them."""
        running = running_broker({"brokerFastFailureEnable": "false", "defaultTopicQueueNums": "1"})
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.where = self.broker.namesrv_address

    def send(self) -> None:
        """Store them, and flip the byte."""
        with Producer(self.where, group="p") as producer:
            # A first message makes the topic, with as many queues as it gets.
            queue = producer.send("T", b"first").queue
            for body in BODIES:
                producer.send("T", body, queue=queue)
        self.queue = queue
        self.flip(BODIES[BAD])

    def flip(self, body: bytes) -> None:
        """Change one byte of a body in the log."""
        [path] = Path(self.broker.data, "store", "commitlog").glob("0*")
        with open(path, "r+b") as log:
            # The file is a gibibyte, and its messages are in the beginning.
            at = log.read(1 << 20).index(body)
            log.seek(at + 3)
            log.write(b"#")

    def in_thread(self, function: Callable[[], None]) -> Deferred[Any]:
        """Run blocking code beside the reactor."""
        return deferToThread(function)

    def run_command(self, *arguments: str) -> Result:
        """Run ``twistmq consume``."""
        # Releases of click before 8.2 mix the two outputs unless they are told not to.
        options: dict[str, Any] = (
            {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {})
        return CliRunner(**options).invoke(
            twistmq, ["consume", "T", *arguments, "-n", self.where])

    def test_a_consumer(self) -> Deferred[Any]:
        """It gets the other messages and counts one; a later member has nothing to read."""
        def run() -> None:
            self.send()
            found: list[bytes] = []
            with self.assertLogs("twistmq.client", "ERROR") as logs, Consumer(
                    self.where, group="g", topics="T", start="first") as consumer:
                for message in consumer:
                    found.append(message.body)
                    if len(found) == 6:
                        consumer.stop()
                self.assertEqual((found, consumer.damaged_count), ([b"first", *WHOLE], 1))
            [line] = [each for each in logs.output if "damaged" in each.lower()]
            for part in ("DamagedMessage of T", "offset 3,", "commit log offset ",
                         "CRC does not match"):
                self.assertIn(part, line)
            with Client(self.where) as client:
                self.assertEqual(client.group_offset("g", self.queue), 7)

        return self.in_thread(run)

    def test_a_pull_consumer(self) -> Deferred[Any]:
        """It skips the message, stops, or marks it."""
        def polled(**options: Any) -> list[ReceivedMessage[Any]]:
            found: list[ReceivedMessage[Any]] = []
            with PullConsumer(self.where, group=f"g-{options}".translate(
                    {ord(each): "-" for each in "{}': "}), topics="T", start="first",
                    **options) as consumer:
                while more := consumer.poll(timeout_s=5 if not found else 0.3):
                    found += more
            return found

        def run() -> None:
            self.send()
            self.assertEqual([each.body for each in polled()], [b"first", *WHOLE])
            self.assertEqual([each.body for each in polled(damaged="stop")],
                             [b"first", *BODIES[:BAD]])
            found = polled(damaged="deliver")
            self.assertEqual(len(found), 7)
            marked = [each for each in found if each.damage]
            self.assertEqual([each.offset for each in marked], [BAD + 1])
            self.assertRaises(Undecodable, lambda: marked[0].body)

        return self.in_thread(run)

    def test_an_asyncio_consumer(self) -> Deferred[Any]:
        """An asyncio consumer behaves like a blocking consumer."""
        async def main() -> None:
            found: list[bytes] = []
            async with aio.Consumer(
                    self.where, group="g", topics="T", start="first") as consumer:
                async for message in consumer:
                    found.append(message.body)
                    if len(found) == 6:
                        consumer.stop()
                self.assertEqual((found, consumer.damaged_count), ([b"first", *WHOLE], 1))

        def run() -> None:
            self.send()
            asyncio.run(main())

        return self.in_thread(run)

    def test_a_pop_consumer(self) -> Deferred[Any]:
        """It gets the other messages, and leaves the damaged one to the broker.

        A message that is popped and not acknowledged afterwards comes again all the same.
        """
        def run() -> None:
            with Client(self.where) as client, Producer(client=client, group="p") as producer:
                producer.send("T", b"first")
                with PopConsumer(client=client, group="g", topics="T", start="first",
                                 invisible_s=1.0) as consumer:
                    consumer.acknowledge(consumer.receive(10, wait_s=10))
                    queue = client.read_queues("T")[0]
                    for body in BODIES:
                        producer.send("T", body, queue=queue)
                    self.flip(BODIES[BAD])
                    found: set[bytes] = set()
                    again: set[bytes] = set()
                    with self.assertLogs("twistmq.client", "ERROR") as logs:
                        while len(found) < 5 or b"body 5 of six" not in again:
                            for message in consumer.receive(10, wait_s=20):
                                body = message.body
                                if body in found:
                                    again.add(body)
                                found.add(body)
                                if body != b"body 5 of six" or body in again:
                                    consumer.acknowledge(message)
                    self.assertEqual(found, set(WHOLE))
                    self.assertGreaterEqual(consumer.damaged_count, 1)
                    self.assertIn("is left to the retries of its broker", logs.output[0])

        return self.in_thread(run)

    def test_a_pop_consumer_in_order(self) -> Deferred[Any]:
        """It leaves the damaged one out; the broker would give out nothing behind it."""
        def run() -> None:
            self.send()
            found: list[bytes] = []
            with Producer(self.where, group="p") as producer, PopConsumer(
                    self.where, group="g", topics="T", start="first", order="queue",
                    invisible_s=1.0, pop_count=4) as consumer:
                while found[-1:] != [b"later"]:
                    for message in consumer.receive(10, wait_s=20):
                        found.append(message.body)
                        consumer.acknowledge(message)
                    if len(found) == 6:
                        producer.send("T", b"later", queue=self.queue)
                self.assertEqual((found, consumer.damaged_count),
                                 ([b"first", *WHOLE, b"later"], 1))

        return self.in_thread(run)

    def test_a_read(self) -> Deferred[Any]:
        """``Client.read`` skips the message, raises an error, or marks it."""
        def run() -> None:
            self.send()
            with Client(self.where) as client:
                self.assertEqual([each.body for each in client.read(self.queue, 1)], WHOLE)
                found: list[bytes] = []
                with self.assertRaises(Undecodable) as caught:
                    for message in client.read(self.queue, 1, damaged="stop"):
                        found.append(message.body)
                self.assertEqual(found, BODIES[:BAD])
                self.assertIn("offset 3, commit log offset", str(caught.exception))
                self.assertEqual([each.offset for each in client.read(
                    self.queue, damaged="deliver") if each.damage], [3])

        return self.in_thread(run)

    def test_the_command(self) -> Deferred[Any]:
        """It prints the other messages, names the damaged one, and fails, also with a group."""
        def run() -> None:
            self.send()
            for group in ((), ("-g", "g", "-c", "6")):
                words = group or ("--to", "end")
                found = self.run_command("--from", "first", *words)
                self.assertEqual(found.stdout_bytes.splitlines(), [b"first", *WHOLE])
                self.assertEqual(found.exit_code, 1)
                self.assertIn("twistmq: 1 messages could not be read", found.stderr)
            for group in ((), ("-g", "h", "-c", "7")):
                words = group or ("--to", "end")
                found = self.run_command("--from", "first", "--damaged", "stop", *words)
                self.assertEqual(found.stdout_bytes.splitlines(), [b"first", *BODIES[:BAD]])
                self.assertEqual(found.exit_code, 1)
                self.assertIn("offset 3, commit log offset", found.stderr)
            for group in ((), ("-g", "i", "-c", "7")):
                words = group or ("--to", "end")
                found = self.run_command(
                    "--from", "first", "--damaged", "deliver", "--json", *words)
                rows = [json.loads(line) for line in found.stdout.splitlines()]
                self.assertEqual([row.get("body", row["offset"]) for row in rows],
                                 ["first", *[body.decode() for body in BODIES[:BAD]], 3,
                                  *[body.decode() for body in BODIES[BAD + 1:]]])
                self.assertEqual((rows[3]["damage"], found.exit_code),
                                 ("the body's CRC does not match", 0))

        return self.in_thread(run)

    def test_bodies_that_do_not_decompress(self) -> Deferred[Any]:
        """The command and a read go on behind them; a consumer treats them as ``undecodable``."""
        def run() -> None:
            with Producer(self.where, group="p") as producer:
                producer.send("T", b"first")
                producer.send("T", b"junk", sys_flag=1)
                producer.send("T", b"unknown", sys_flag=1 | 0x700)
                producer.send_batch([Message("T", zlib.compress(b"batched"))])
                producer.send("T", zlib.compress(b"last"), sys_flag=1)
            found = self.run_command("--from", "first", "--to", "end", "-f", "%s\\n")
            self.assertIn(b"first", found.stdout_bytes)
            self.assertIn(b"last", found.stdout_bytes)
            self.assertEqual(found.exit_code, 1)
            self.assertIn("twistmq: 2 messages could not be read", found.stderr)
            self.assertIn("compression type 7 is not known", found.stderr)
            found = self.run_command("--from", "first", "--to", "end", "--json",
                                     "--damaged", "deliver")
            rows = [json.loads(line) for line in found.stdout.splitlines()]
            self.assertEqual((len(rows), sum("damage" in row for row in rows)), (5, 2))

        return self.in_thread(run)
