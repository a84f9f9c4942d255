"""A static topic on two brokers, created and moved by mqadmin, used by a Java client.

A producer sends to all its queues, a consumer that keeps order reads them; then all queues are
moved to one of the brokers, another producer sends, and the same consumer goes on. The same is
asserted of our brokers, by mqadmin and by our commands, and by ``python -m tests.long.interop`` of
Apache's, whose stores our brokers and Apache's then open in turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tests.interop.clients import JavaTestCase, java_program
from tests.interop.java_process import JavaProcess
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import Peer, wait_for_registration
from tests.interop.servers import MAIN, Servers, free_port, wait_until
from twistmq.client import Client

TOPIC, GROUP, QUEUES, COUNT = "Static", "static_group", 4, 25
BLOCK = 10_000
LOGICAL = "__syslo__global__"
Change = Callable[[str, str], None]


def by_mqadmin(namesrv: str, command: str) -> None:
    """Run a command of mqadmin; :raises AssertionError: when it says that it failed."""
    [printed] = mqadmin(namesrv, [command])
    assert "The new mapping data is written" in printed or "written to file" in printed, printed
    assert "xception" not in printed, printed


def by_ours(namesrv: str, command: str) -> None:
    """Run a command of ours."""
    done = subprocess.run([sys.executable, "-c", MAIN, "admin", *command.split(), "-n", namesrv],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class StaticTopicCase(JavaTestCase):
    """The checks of two brokers, broker-a and broker-b, of either kind."""

    def producer(self, namesrv: str, prefix: str) -> list[list[str]]:
        """Run a producer; :returns: the words of its output."""
        printed = java_program(self.version, "StaticProducer", namesrv, TOPIC, "static_producer",
                               prefix, str(COUNT))
        return [line.split() for line in printed.splitlines() if line]

    def use(self, namesrv: str, change: Change) -> None:
        change(namesrv, f"updateStaticTopic -t {TOPIC} -qn {QUEUES} -b broker-a,broker-b")
        before = self.producer(namesrv, "before")
        self.assertEqual(sorted(line[1:] for line in before if line[0] == "queue"),
                         [[LOGICAL, str(queue)] for queue in range(QUEUES)])
        self.assertEqual(self.offsets(before), {
            queue: list(range(COUNT)) for queue in range(QUEUES)})
        consumer = JavaProcess(self.version, "OrderlyMember", namesrv, TOPIC, GROUP, "0")
        self.addCleanup(consumer.kill)
        half = QUEUES * COUNT
        consumer.wait_for("success", half)
        leads = self.leads(namesrv)
        self.assertEqual(sorted(leads.values()), ["broker-a", "broker-a", "broker-b", "broker-b"])
        change(namesrv, f"remappingStaticTopic -t {TOPIC} -b broker-b")
        self.assertEqual(set(self.leads(namesrv).values()), {"broker-b"})
        after = self.producer(namesrv, "after")
        for queue, offsets in self.offsets(after).items():
            begin = COUNT if leads[queue] == "broker-b" else BLOCK
            self.assertEqual(offsets, list(range(begin, begin + COUNT)), msg=f"queue {queue}")
        for line in after:
            if line[0] == "bounds":
                end = (COUNT if leads[int(line[1])] == "broker-b" else BLOCK) + COUNT
                self.assertEqual(line[2:], ["0", str(end)], msg=line[1])
        consumer.wait_for("success", 2 * half)
        consumer.leave()
        self.consumed(consumer.told("success"), [*before, *after])
        # A group that begins now reads the moved part from the broker that has it.
        late = JavaProcess(self.version, "OrderlyMember", namesrv, TOPIC, "late_group", "0")
        self.addCleanup(late.kill)
        late.wait_for("success", 2 * half)
        late.leave()
        self.consumed(late.told("success"), [*before, *after])

    @staticmethod
    def offsets(lines: Sequence[Sequence[str]]) -> dict[int, list[int]]:
        """Return the offsets of the sent messages, by queue."""
        found: dict[int, list[int]] = {}
        for line in lines:
            if line[0] == "sent":
                found.setdefault(int(line[1]), []).append(int(line[2]))
        return found

    def consumed(self, told: Sequence[str], sent: Sequence[Sequence[str]]) -> None:
        """Check that each message was delivered once, with its queue and offset, in order."""
        places = {line[3]: (int(line[1]), int(line[2])) for line in sent if line[0] == "sent"}
        words = [line.split() for line in told]
        self.assertEqual({line[5]: (int(line[2]), int(line[3])) for line in words}, places)
        self.assertEqual(len(words), len(places))
        for queue in range(QUEUES):
            offsets = [int(line[3]) for line in words if line[2] == str(queue)]
            for one, other in pairwise(offsets):
                self.assertLess(one, other, msg=f"queue {queue}")

    def leads(self, namesrv: str) -> dict[int, str]:
        """Return the broker that leads each queue, by the route."""
        route = self.route(namesrv)
        return {int(queue): name for name, info in route["topicQueueMappingByBroker"].items()
                for queue in info["currIdMap"]}

    def route(self, namesrv: str) -> Any:
        with Client(namesrv) as cluster:
            return json.loads(cluster.route(TOPIC, again=True).encode_standard())

    def ours(self, name: str, *settings: str) -> Servers:
        """Start our servers, with a broker of this name; they stop when the test ends."""
        running = Servers(self.folder / name, f"brokerName={name}", *settings)
        running.start()
        # Its own comes first; a restart is to use that port again.
        running.namesrv = running.namesrv.partition(";")[0]
        self.addCleanup(running.stop)
        return running


class OurBrokersTests(StaticTopicCase):
    """Two brokers of ours."""

    def cluster(self) -> tuple[Servers, Servers]:
        first = self.ours("broker-a")
        return first, self.ours("broker-b", f"namesrvAddr={first.namesrv}")

    def test_mqadmin_makes_and_moves_a_static_topic(self) -> None:
        """mqadmin makes and moves the topic."""
        first, _ = self.cluster()
        self.use(first.namesrv, by_mqadmin)

    def test_our_commands(self) -> None:
        """Our commands of the same names do the same; a restart loses nothing."""
        first, second = self.cluster()
        self.use(first.namesrv, by_ours)
        leads = self.leads(first.namesrv)
        second.stop()
        second.start()
        wait_until("the broker is registered again", lambda: self.leads(first.namesrv) == leads)


class ApacheBrokersTests(StaticTopicCase):
    """Two brokers of Apache's, and their files."""

    def long_mqadmin(self) -> None:
        """The same holds; then our brokers go on with their stores, and they with ours."""
        namesrv_port = free_port()
        namesrv = f"127.0.0.1:{namesrv_port}"
        peers = [Peer(self.folder / name, broker_port=free_port(), heap="256m",
                      namesrv_port=namesrv_port, with_namesrv=name == "broker-a",
                      namesrv_address=namesrv, settings={"brokerName": name})
                 for name in ("broker-a", "broker-b")]
        for peer in peers:
            self.addCleanup(peer.stop, kill=True)
            peer.start()
        wait_for_registration(namesrv_port, peers[1].broker_port)
        self.use(namesrv, by_mqadmin)
        leads = self.leads(namesrv)
        for peer in peers:
            peer.stop()
        ours = self.on_stores(peers)
        wait_until("both are registered", lambda: self.leads(ours[0].namesrv) == leads)
        self.read_all(ours[0].namesrv, "ours", 2)
        by_mqadmin(ours[0].namesrv, f"remappingStaticTopic -t {TOPIC} -b broker-a")
        self.producer(ours[0].namesrv, "ours")
        leads = self.leads(ours[0].namesrv)
        self.assertEqual(set(leads.values()), {"broker-a"})
        for servers in ours:
            servers.stop()
        for peer in peers:
            peer.start()
        wait_for_registration(namesrv_port, peers[1].broker_port)
        wait_until("both are registered", lambda: self.leads(namesrv) == leads)
        self.read_all(namesrv, "theirs", 3)

    def on_stores(self, peers: Sequence[Peer]) -> list[Servers]:
        """Our servers on the stores of stopped brokers, with their names."""
        running: list[Servers] = []
        for peer in peers:
            name = peer.settings["brokerName"]
            more = [f"namesrvAddr={running[0].namesrv}"] if running else []
            running.append(self.ours(f"{name}", f"storePathRootDir={peer.home}/store", *more))
        return running

    def read_all(self, namesrv: str, group: str, rounds: int) -> None:
        """A new group reads every message."""
        consumer = JavaProcess(self.version, "OrderlyMember", namesrv, TOPIC, group, "0")
        self.addCleanup(consumer.kill)
        consumer.wait_for("success", rounds * QUEUES * COUNT)
        consumer.leave()
        bodies = {line.split()[5] for line in consumer.told("success")}
        self.assertEqual(len(bodies), rounds * QUEUES * COUNT)
