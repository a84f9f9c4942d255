"""Our master returns to its slave, and consumers start at that moment."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.interop.clients import HERE, JavaTestCase
from tests.interop.java_process import JavaProcess, LineProcess
from tests.interop.replicas import Group, Replica, same_log
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)

#: A topic and a group of the name for a member of each client; IDLE is for their other consumers.
JAVA, OURS, IDLE = "ReturnJava", "ReturnOurs", "ReturnIdle"
QUEUES, COUNT = 4, 40
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
#: A slave of Apache's copies its first tables after more than a minute.
TABLES_SECONDS: Final = 200.0


def send(master: Replica, first: int) -> set[str]:
    """Send messages to the topic of each member; :returns: their bodies."""
    bodies = [f"m{number}" for number in range(first, first + COUNT)]
    with RawClient(master.address) as client:
        for topic in (JAVA, OURS):
            for number, body in enumerate(bodies):
                client.send(topic, body.encode(), queue_id=number % QUEUES)
    return set(bodies)


def committed(broker: Replica, group: str) -> int:
    """Up to where a group has committed at a broker, all queues together."""
    total = 0
    with RawClient(broker.address) as client:
        for queue_id in range(QUEUES):
            reply = client.request(
                RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
                    consumer_group=group, topic=group, queue_id=queue_id))
            if reply.code == ResponseCode.SUCCESS:
                offset = reply.header(QueryConsumerOffsetResponseHeader).offset
                total += offset or 0
    return total


class ReturnTests(JavaTestCase):
    """A member of Apache's client and one of ours, each in a group of its own."""

    def start_members(self) -> dict[str, LineProcess]:
        """Start a member of each client."""
        words = (self.group.namesrv.address,)
        members = {
            JAVA: JavaProcess("5.3.3", "GroupMember", *words, JAVA, IDLE + JAVA, "1"),
            OURS: LineProcess([sys.executable, "-P", str(HERE / "group_member.py"), *words, OURS,
                               IDLE + OURS, "1"])}
        for member in members.values():
            self.stack.callback(member.close)
        return members

    def consume(
        self, bodies: set[str], members: dict[str, LineProcess], broker: Replica | None = None,
        count: int = 0,
    ) -> None:
        """Wait until each member has consumed these messages, once and no others; they leave.

        :param broker: where they commit before they leave; None: no member goes on from there.
        :param count: up to where they do so, all queues together.
        """
        for name, member in members.items():
            def found(member: LineProcess = member, name: str = name) -> Counter[str]:
                return Counter(line.split(" ")[-1] for line in member.told("end")
                               if line.split(" ")[1] == name)

            wait_until(f"{name} has consumed {len(bodies)}",
                       lambda found=found: bodies <= found().keys(), 120)
            if broker is not None:
                # A member says so before its client knows, which could leave without the last ones.
                wait_until(f"{name} has committed {count}",
                           lambda name=name: committed(broker, name) == count, 120)
            member.leave()
            self.assertEqual(found(), Counter(bodies), name)

    def wait_for_offsets(self, slave: Replica, count: int) -> None:
        """Wait until the slave has the offsets of both groups."""
        for name in (JAVA, OURS):
            wait_until(f"the slave has the offsets of {name}",
                       lambda name=name: committed(slave, name) == count, TABLES_SECONDS)

    def returns(self, make_slave: Callable[[Group], Replica]) -> None:
        """The master ends, members use its slave, and others start while it returns."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.group = self.stack.enter_context(Group(self.folder))
        master = self.group.ours("master", slaveReadEnable="true")
        slave = make_slave(self.group)
        master.start()
        slave.start()
        with RawClient(master.address) as client:
            for name in (JAVA, OURS):
                client.send(IDLE + name, b"x")
        sent = send(master, 0)
        self.consume(sent, self.start_members(), master, COUNT)
        self.wait_for_offsets(slave, COUNT)
        more = send(master, COUNT)
        same_log(master, [slave])
        master.end()
        self.consume(more, self.start_members(), slave, 2 * COUNT)
        self.wait_for_offsets(slave, 2 * COUNT)
        members = self.start_members()
        master.start()
        for name in (JAVA, OURS):
            self.assertEqual(committed(master, name), 2 * COUNT, name)
        self.consume(send(master, 2 * COUNT), members)

    def test_to_our_slave(self) -> None:
        """New members get the messages after it, each once."""
        self.returns(lambda group: group.ours("slave", **SLAVE))

    def long_to_apaches_slave(self) -> None:
        """The same: `python -m tests.long.interop test_replica_returns`."""
        self.returns(lambda group: group.apache("slave", self.version, **SLAVE))
