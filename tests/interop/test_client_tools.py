"""Apache's mqadmin with members of ours, and the file of offsets that both clients read."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.client_case import Broker, ClientTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.mqadmin import LATE, mqadmin
from tests.interop.servers import wait_until
from twistmq.client import Client, Consumer, Message, Producer, ReceivedMessage, SendResult

TOPIC, GROUP = "Tools", "tools"


class Member:
    """A consumer of ours, with its messages."""

    def __init__(self, broker: Broker, topic: str, group: str, **options: Any) -> None:
        self.bodies: list[bytes] = []
        self.consumer: Consumer[Any] = Consumer(
            broker.where, group=group, topics=topic, start="first", **options)
        self._thread = threading.Thread(target=self.consumer.run, args=(self._handle,))
        self._thread.start()

    def _handle(self, message: ReceivedMessage[Any]) -> None:
        self.bodies.append(message.body)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.stop()
        self._thread.join()
        self.consumer.close()


@contextmanager
def member(broker: Broker, topic: str, group: str, **options: Any) -> Iterator[Member]:
    """Run a member during the block."""
    made = Member(broker, topic, group, **options)
    try:
        yield made
    finally:
        made.close()


def shape(printed: str) -> list[str]:
    """Return the sections, and the names of properties and columns, in the output of a status."""
    found = []
    for line in printed.splitlines():
        if line.startswith("#"):
            found.append(line.split("#")[1] if line.count("#") > 1 else line)
        elif re.match(r"PROP_\w+|[A-Z]\w+ *:", line):
            found.append(re.split(r"[ :=]", line)[0])
    return found


class AdminTests(ClientTestCase):
    """Requests of tools to members."""

    def sends(self, broker: Broker) -> list[SendResult]:
        """Send six messages."""
        with Producer(broker.where, timeout_s=15) as producer:
            return [producer.send(TOPIC, b"%d" % number) for number in range(6)]

    def run_once(self, broker: Broker, command: str) -> str:
        """Run a command of the broker's own release."""
        [text] = mqadmin(broker.where, [command], version=broker.client_version)
        return text

    def tries(self, broker: Broker, command: str) -> list[str]:
        """Repeat a command until it has an answer, because its first requests may time out on a
        busy machine. :returns: the outputs.
        """
        texts: list[str] = []

        def is_answered() -> bool:
            texts.append(self.run_once(broker, command))
            return not any(each in texts[-1] for each in LATE)

        wait_until(f"the tool has an answer to {command}", is_answered)
        return texts

    def ask(self, broker: Broker, command: str) -> str:
        """Run a command until it has an answer; :returns: that."""
        return self.tries(broker, command)[-1]

    def test_mqadmin_sees_and_moves_our_members(self) -> None:
        """mqadmin shows members and messages, resets offsets, and delivers one message again."""
        def check(broker: Broker) -> None:
            sent = self.sends(broker)
            with member(broker, TOPIC, GROUP) as ours:
                wait_until("all came", lambda: len(ours.bodies) == 6)
                client = ours.consumer.client.client_id
                connection, status, state = (self.ask(broker, command) for command in (
                    f"consumerConnection -g {GROUP}", f"consumerStatus -g {GROUP}",
                    f"consumerStatus -g {GROUP} -i {client} -s"))
                self.assertIn(client, connection)
                self.assertRegex(connection, rf"\n{TOPIC} +\*\n")
                self.assertIn(client, status)
                self.assertIn("CONSUME_PASSIVELY", state)
                self.assertIn("twistmq", state)
                direct = self.tries(broker, f"queryMsgByUniqueKey -t {TOPIC} -i {sent[3].id} "
                                            f"-g {GROUP} -d {client}")
                self.assertIn("CR_SUCCESS", direct[-1])
                wait_until("it came again", lambda: ours.bodies.count(b"3") >= 2)
                # Each try without an answer in time may have brought it, too.
                extra = ours.bodies.count(b"3") - 1
                self.assertLessEqual(extra, len(direct))
                self.run_once(broker, f"resetOffsetByTime -t {TOPIC} -g {GROUP} -s 0")
                wait_until("all come again", lambda: len(ours.bodies) == 12 + extra)
                self.assertEqual(sorted(ours.bodies), sorted(
                    [*(b"%d" % number for number in range(6))] * 2 + [b"3"] * extra))
                ours.consumer.commit()
                self.assertRegex(self.ask(broker, f"consumerProgress -g {GROUP}"),
                                 r"Diff Total: 0\b")
            printed = self.ask(broker, f"printMsg -t {TOPIC}")
            for number in range(6):
                self.assertRegex(printed, rf"BODY: {number}\b")

        self.on_each(check)

    def test_the_state_of_our_members_has_javas_fields(self) -> None:
        """The same sections and properties are printed."""
        def check(broker: Broker) -> None:
            with Producer(broker.where, timeout_s=15) as producer:
                for topic in ("Shape", "ShapeJava", "ShapeOrder"):
                    producer.send(topic, b"0")
            java = JavaProcess(broker.client_version, "GroupMember", broker.where, "ShapeJava",
                               "ShapeOrder", "1")
            self.addCleanup(java.close)
            java.wait_for("started")
            with member(broker, "Shape", "shape") as ours:
                wait_until("both got a message", lambda: ours.bodies and java.told("end"))
                shown = self.ask(broker, "consumerConnection -g ShapeJava")
                other = re.search(r"\S+@round-\S+", shown)
                assert other is not None, shown
                mine = self.ask(broker, "consumerStatus -g shape -i "
                                        f"{ours.consumer.client.client_id}")
                javas = self.ask(broker, f"consumerStatus -g ShapeJava -i {other[0]}")
            missing = set(shape(javas)) - set(shape(mine))
            self.assertGreater(len(shape(javas)), 4)
            # Java tells the sizes of its thread pool.
            self.assertEqual(missing - {"PROP_THREADPOOL_CORE_SIZE"}, set(), msg=mine)

        self.on_each(check, ("ours", "5.3.3"))


class CloneTests(ClientTestCase):
    """Groups that go on where a group of the other client is."""

    def test_a_group_goes_on_where_the_other_clients_group_is(self) -> None:
        """Apache's members follow ours, then ours follow Apache's: each gets only new messages."""
        def check(broker: Broker) -> None:
            self.send(broker, range(20))
            with member(broker, "Clone", "cloned") as ours:
                wait_until("ours got them", lambda: len(ours.bodies) >= 20)
            self.send(broker, range(20, 40))
            self.clone(broker, "cloned", "Clone")
            self.assertEqual(self.java(broker), list(range(20, 60)))
            self.send(broker, range(60, 80))
            self.clone(broker, "Clone", "again")
            with member(broker, "Clone", "again") as ours:
                wait_until("ours got them", lambda: len(ours.bodies) >= 20)
                ours.consumer.commit()
                [progress] = mqadmin(broker.where, ["consumerProgress -g again"],
                                     version=broker.client_version)
            self.assertEqual(sorted(map(int, ours.bodies)), list(range(60, 80)))
            self.assertRegex(progress, r"Diff Total: 0\b")

        self.on_each(check)

    def send(self, broker: Broker, numbers: range) -> None:
        """Send a message for each number."""
        with Producer(broker.where, timeout_s=15) as producer:
            producer.send_many([Message("Clone", b"%d" % number) for number in numbers])

    def clone(self, broker: Broker, source: str, destination: str) -> None:
        """Run mqadmin's command, with groups that are not running."""
        commands = [f"updateSubGroup -b {broker.address} -g {destination}",
                    f"cloneGroupOffset -s {source} -d {destination} -t Clone -o true"]
        printed = mqadmin(broker.where, commands, version=broker.client_version)[1]
        self.assertIn(f"clone group offset success. srcGroup[{source}], "
                      f"destGroup=[{destination}], topic[Clone]", printed)

    def java(self, broker: Broker) -> list[int]:
        """Return the messages of Apache's member in the group Clone, while twenty are sent."""
        java = JavaProcess(broker.client_version, "GroupMember", broker.where, "Clone",
                           "CloneOrder", "1")
        self.addCleanup(java.close)
        java.wait_for("end", 20)
        self.send(broker, range(40, 60))
        java.wait_for("end", 40)
        # A member says so before its client knows, which could leave without the last ones.
        with Client(broker.where) as client:
            queues = client.read_queues("Clone")
            wait_until("the group has committed all", lambda: sum(
                client.group_offset("Clone", queue) or 0 for queue in queues) == 60)
        java.leave()
        return sorted(int(line.rpartition(" ")[2]) for line in java.told("end"))


class BroadcastTests(ClientTestCase):
    """A broadcasting member that changes from one client to the other."""

    def test_each_client_reads_the_others_file_of_offsets(self) -> None:
        """Each gets the messages that the other one did not get, and no other."""
        def check(broker: Broker) -> None:
            folder = self.folder / broker.name
            with Producer(broker.where, timeout_s=15) as producer:
                self.send(producer, 0)
                self.ours(broker, folder, 0)
                self.send(producer, 20)
                self.java(broker, folder, 20)
                self.send(producer, 40)
                self.ours(broker, folder, 40)

        self.on_each(check)

    def send(self, producer: Producer, first: int) -> None:
        """Send twenty messages."""
        producer.send_many([Message("Cast", b"%d" % number)
                            for number in range(first, first + 20)])

    def ours(self, broker: Broker, folder: Path, first: int) -> None:
        """Check that our member gets the last twenty."""
        with member(broker, "Cast", "cast", mode="broadcast", offset_folder=folder,
                    instance="cast") as ours:
            wait_until("ours got them", lambda: len(ours.bodies) >= 20)
        self.assertEqual(sorted(map(int, ours.bodies)), list(range(first, first + 20)))

    def java(self, broker: Broker, folder: Path, first: int) -> None:
        """Check that Java's member gets the last twenty."""
        java = JavaProcess(broker.client_version, "CastMember", broker.where, "Cast", "cast",
                           "cast", properties=[f"rocketmq.client.localOffsetStoreDir={folder}"])
        self.addCleanup(java.close)
        java.wait_for("got", 20)
        java.leave()
        self.assertEqual(sorted(int(line.split(" ")[1]) for line in java.told("got")),
                         list(range(first, first + 20)))
