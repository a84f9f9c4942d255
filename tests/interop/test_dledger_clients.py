"""Stock clients of Java, Go and Python before a group of three brokers of ours."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SkipTest

from tests.interop import clients
from tests.interop.clients import JavaTestCase, go_missing, java_missing, python_client_missing
from tests.interop.java_process import JavaProcess
from tests.interop.ledger_group import IDS, LedgerGroup, LedgerMember
from tests.interop.servers import wait_until
from tests.interop.test_pair_consumers import GO, JAVA, MEMBERS, QUEUES, Members
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import ConsumerOffsetSerializeWrapper
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError

#: Messages of each topic before the leader is killed, and after it.
COUNT: Final = 40
#: Consumers ask for routes every 30 s, and the client of PyPI loses some of these questions.
PATIENCE_SECONDS: Final = 300.0


class ClientGroup(LedgerGroup):
    """Three brokers of ours that take the large messages of the rounds."""

    def make_ours(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        return super().make_ours(folder, {
            **settings, "maxMessageSize": str(4 << 20), "mappedFileSizeCommitLog": str(16 << 20)})


class ClientTests(JavaTestCase):
    """The clients are unchanged, and know the name server only."""

    timeout = 1200

    def setUp(self) -> None:
        super().setUp()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.group = self.stack.enter_context(ClientGroup(self.folder, self.version, IDS))
        self.group.start()
        self.numbers = count()

    def send(self, topics: Sequence[str]) -> set[str]:
        """Send numbered messages to the leader; :returns: the bodies, which each topic has."""
        sent: list[str] = []

        def is_sent() -> bool:
            leader = self.group.members[self.group.wait_for_leader()]
            try:
                with RawClient(leader.address, 10) as client:
                    while len(sent) < COUNT:
                        body = f"m{next(self.numbers)}"
                        for topic in topics:
                            client.send(topic, body.encode(), queue_id=len(sent) % QUEUES)
                        sent.append(body)
            except BrokerError:
                return False
            return True

        wait_until("messages are acknowledged", is_sent, 60)
        return set(sent)

    def consume(self, topics: Sequence[str]) -> None:
        """Kill the leader while clients send and consume, and start it again."""
        group = self.group
        sent = self.send(topics)
        members = Members(self.stack, group.namesrv.address, tuple(topics))
        producer = JavaProcess(self.version, "LedgerProducer", group.namesrv.address, JAVA)
        self.addCleanup(producer.close)
        producer.wait_for("sent", COUNT)
        for topic in topics:
            self.wait_for_all(members, topic, sent)
        leader = group.wait_for_leader()
        group.kill(leader)
        sent |= self.send(topics)
        producer.wait_for("sent", len(producer.told("sent")) + COUNT)
        group.start(leader)
        sent |= self.send(topics)
        producer.leave()
        by_java = {line.split(" ")[3] for line in producer.told("sent")}
        for topic in topics:
            self.wait_for_all(members, topic, sent | by_java if topic == JAVA else sent)
        group.wait_for_equal_logs()

    def wait_for_all(self, members: Members, topic: str, bodies: set[str]) -> None:
        """Wait until a member has consumed these messages; some may come twice after a kill."""
        try:
            wait_until(f"{topic} has consumed {len(bodies)} messages",
                       lambda: bodies <= members.bodies(topic).keys(), PATIENCE_SECONDS)
        except AssertionError as error:
            lacks = sorted(bodies - members.bodies(topic).keys())
            raise AssertionError(f"{error}; it lacks {len(lacks)}: {lacks[:20]}") from None

    def are_copied(self) -> bool:
        """Return whether all members have the same consumer offsets."""
        tables = []
        for member in self.group.members.values():
            with RawClient(member.address, 10) as client:
                tables.append(ConsumerOffsetSerializeWrapper.decode_reply(client.request(
                    RequestCode.GET_ALL_CONSUMER_OFFSET).body).offset_table)
        return tables[1:] == tables[:-1]

    def test_java_and_go_go_on_when_the_leader_is_killed(self) -> None:
        """Each acknowledged message is consumed by the group of each client."""
        if go_missing():
            raise SkipTest(go_missing())
        self.consume((JAVA, GO))

    def long_all_clients_go_on_when_the_leader_is_killed(self) -> None:
        """The same with PyPI's rocketmq 0.4.4, which finds the next leader late."""
        for reason in (go_missing(), python_client_missing()):
            if reason:
                raise SkipTest(reason)
        self.consume(MEMBERS)

    def long_rounds_of_all_clients(self) -> None:
        """The rounds that other tests run with a lone broker; Java's spans a change of leaders."""
        for reason in (go_missing(), python_client_missing(), java_missing("4.9.4")):
            if reason:
                raise SkipTest(reason)
        group, namesrv = self.group, self.group.namesrv.address
        for version in ("5.3.3", "4.9.4"):
            state = self.folder / f"state-{version}"
            self.assertRegex(clients.java_round(version, "phase1", namesrv, state),
                             r"ok \d{3,} checks")
            # Offsets that were committed in the last seconds before a kill may be lost.
            wait_until("the followers have the offsets of the leader", self.are_copied, 60)
            leader = group.wait_for_leader()
            group.end(leader, signal.SIGKILL)
            group.wait_for_leader()
            self.send(("Ready",))
            group.start(leader)
            self.assertRegex(clients.java_round(version, "phase2", namesrv, state),
                             r"ok \d+ checks")
        self.assertRegex(clients.go_round(namesrv), r"ok \d{3,} checks")
        self.assertRegex(clients.python_client_round(namesrv), r"ok \d{3,} checks")
