"""Every kind of send in each style is read by Apache's clients, and the reverse."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.client_case import NAMES, Broker, ClientTestCase
from tests.interop.clients import HERE, java_program, run
from tests.interop.mqadmin import LATE, mqadmin
from tests.interop.servers import MAIN, take_default_signals, wait_until
from twistmq.protocol.properties import UNIQ_KEY, WAIT

SHELLS = ("blocking", "aio", "tx")
#: Seconds that a program of ours may take.
PATIENCE = 120.0


class Told(NamedTuple):
    """A message that a program has printed."""

    id: str
    body: bytes
    flag: int
    properties: dict[str, str]


def shell(style: str, broker: Broker, *words: str) -> list[Told]:
    """Run ``client_shell.py``; returns the messages that it printed."""
    output = run([sys.executable, "-P", HERE / "client_shell.py", style, broker.where, *words],
                 PATIENCE)
    # A warning that is logged is not a message.
    rows: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()
                                  if line.startswith("{")]
    return [Told(row["id"], base64.b64decode(row["body"]), row["flag"], row["properties"])
            for row in rows]


def java(broker: Broker, *words: str) -> dict[str, list[Told]]:
    """Run ``EveryByte.java``; returns the messages that it printed, by topic."""
    output = java_program(broker.client_version, "EveryByte", broker.where, *words)
    found: dict[str, list[Told]] = {}
    for line in output.splitlines():
        event, topic, identity, body, flag, pairs = line.split(" ")
        assert event in ("message", "sent"), line
        names = [pair.split(":") for pair in pairs.split(",") if pair]
        found.setdefault(topic, []).append(Told(
            identity, base64.b64decode(body), int(flag),
            {_text(name): _text(value) for name, value in names}))
    return found


def _is_batched(message: Told) -> bool:
    return message.body.startswith((b"batch", b"auto"))


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


class SendTests(ClientTestCase):
    """Sends with all brokers."""

    def assert_same(
        self, sent: list[Told], read: list[Told], *, batch_ids: bool = True
    ) -> None:
        """Check that each message was read once, with its id, body, flag and properties.

        :param batch_ids: whether messages of batches have ids of their own.
        """
        self.assertEqual(sorted(each.body for each in read), sorted(each.body for each in sent))
        by_body = {each.body: each for each in read}
        for each in sent:
            found = by_body[each.body]
            self.assertEqual(found.flag, each.flag)
            # Brokers do not store that the producer waits.
            given = {name: value for name, value in each.properties.items() if name != WAIT}
            if not batch_ids and _is_batched(each):
                given.pop(UNIQ_KEY, None)
            elif each.id:  # A one-way send gives none.
                self.assertEqual(found.id, each.id)
            self.assertEqual({**found.properties, **given}, found.properties)
        ids = [each.id for each in read if batch_ids or not _is_batched(each)]
        self.assertEqual(len(set(ids)), len(ids))

    def test_java_reads_every_byte_of_our_sends(self) -> None:
        """All kinds of sends, in three styles, to three brokers, are read by both Java clients."""
        def check(broker: Broker) -> None:
            codecs = ["zlib"] if broker.name == "4.9.4" else ["zlib", "lz4", "zstd"]
            sent = {f"Sent-{style}": shell(style, broker, "send", f"Sent-{style}", *codecs)
                    for style in SHELLS}
            counts = {len(told) for told in sent.values()}
            self.assertEqual(counts, {66 + len(codecs)})
            read = java(broker, "read", str(counts.pop()), *sent)
            for topic, told in sent.items():
                self.assert_same(told, read[topic])

        self.on_each(check)

    def test_each_style_reads_every_byte_of_javas_sends(self) -> None:
        """Sync, async, one-way, batches, and bodies of each codec.

        Java's batches have an id of their own, which Apache's brokers give to each message.
        """
        def check(broker: Broker) -> None:
            topic = "SentByJava"
            sent = java(broker, "send", topic)[topic]
            self.assertGreaterEqual(len(sent), 17)
            for style in SHELLS:
                self.assert_same(sent, shell(style, broker, "read", topic, str(len(sent))),
                                 batch_ids=broker.name == "ours")

        self.on_each(check)

    def test_mqadmin_finds_our_messages_by_their_unique_id(self) -> None:
        """Apache's tool finds the messages of one style on each broker, also those of batches."""
        def check(broker: Broker) -> None:
            style = dict(zip(NAMES, SHELLS, strict=True))[broker.name]
            self.assert_found(broker, "Found", [
                each for each in shell(style, broker, "send", "Found")
                if each.body.startswith((b"many", b"batch", b"auto")) and each.flag == 1])

        self.on_each(check)

    def test_mqadmin_finds_messages_of_batches_in_a_batch_queue(self) -> None:
        """The topic's queues keep batches of Apache's producers as one record."""
        def check(broker: Broker) -> None:
            mqadmin(broker.where, [
                f"updateTopic -b {broker.address} -t Batches -r 2 -w 2 -a +queue.type=BatchCQ"])
            sent = [each for each in shell("blocking", broker, "send", "Batches")
                    if _is_batched(each)]
            self.assertEqual(len({each.id for each in sent}), 46)
            self.assert_found(broker, "Batches", [each for each in sent if each.flag == 1])

        self.on_each(check, ("ours", "5.3.3"))

    def query(self, broker: Broker, topic: str, identity: str) -> str:
        """Return the output of Apache's tool, whose first requests may time out on
        a busy machine.
        """
        text = ""

        def is_answered() -> bool:
            nonlocal text
            # The tool's second command of this kind in one process finds nothing.
            [text] = mqadmin(broker.where, [f"queryMsgByUniqueKey -t {topic} -i {identity}"],
                             version=broker.client_version)
            return not any(each in text for each in LATE)

        wait_until("the tool has an answer", is_answered, PATIENCE)
        return text

    def assert_found(self, broker: Broker, topic: str, sent: list[Told]) -> None:
        """Check that Apache's tool finds each message with the flag 1 by its id."""
        self.assertGreaterEqual(len(sent), 2)
        for each in sent:
            text = self.query(broker, topic, each.id)
            self.assertRegex(text, rf"Topic: +{topic}\n")
            self.assertRegex(text, r"Tags: +\[b\]")
            self.assertRegex(text, r"Keys: +\[k1 all\]")


class CommandTests(ClientTestCase):
    """The command line in pipes."""

    def command(self, broker: Broker, *words: str) -> list[str | Path]:
        """Return the words of a command."""
        return [sys.executable, "-c", MAIN, *words, "--timeout", "15", "-n", broker.where]

    def test_lines_go_through_each_broker(self) -> None:
        """All lines are printed; a member that is interrupted commits those."""
        self.pipes(10_000)

    def long_lines(self) -> None:
        """The same is tested with more lines."""
        self.pipes(100_000)

    def pipes(self, count: int) -> None:
        """Send lines and read them, at each broker."""
        def check(broker: Broker) -> None:
            lines = "".join(f"{number}\n" for number in range(count))
            sent = subprocess.run(
                self.command(broker, "produce", "Lines"), input=lines, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
            self.assertEqual((sent.returncode, sent.stdout), (0, ""))
            read = run(self.command(broker, "consume", "Lines", "--from", "first", "--to", "end"),
                       PATIENCE)
            self.assertEqual(sorted(map(int, read.split())), list(range(count)))
            first = self.interrupted(broker, 1000)
            second = self.interrupted(broker, 1000)
            # The last one was printed and not acknowledged.
            self.assertLessEqual(len(set(first) & set(second)), 1)

        self.on_each(check)

    def interrupted(self, broker: Broker, count: int) -> list[str]:
        """Read so many lines as a group, then interrupt it; :returns: all that it printed."""
        process = subprocess.Popen(
            self.command(broker, "consume", "Lines", "-g", "lines", "--from", "first"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=take_default_signals)
        assert process.stdout is not None
        found = [process.stdout.readline().strip() for _ in range(count)]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, errors), (130, ""))
        return [*found, *rest.split()]
