"""Our brokers with the plugin ``dledger`` and Apache's brokers as members of one group."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection

from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.ledger_group import IDS, LedgerGroup, OurMember
from tests.interop.replicas import FILE_SIZE, bodies
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient

TOPIC = "Mixed"
#: The messages that are acknowledged between two changes of the group.
COUNT = 60


class MixedGroupTests(JavaTestCase):
    """Each kind of broker leads, is killed as the leader, and follows the other kind.

    Apache's client sends all the time. Each acknowledged message is in the log of each member, and
    at its offset in the queues of ours. The queues of a killed broker of Apache's are not judged,
    because some versions enter records into them that the group replaces later.
    """

    version = "5.5.0"

    def lead_in_turn(
        self, version: str, ours: Collection[str], how: signal.Signals = signal.SIGKILL
    ) -> None:
        """End a leader of each kind while the client sends.

        :param how: the signal that ends the leader.
        """
        with LedgerGroup(self.folder, version, ours) as group:
            group.start()
            group.wait_for_leader()
            producer = JavaProcess(version, "LedgerProducer", group.namesrv.address, TOPIC)
            self.addCleanup(producer.close)

            def send_more() -> None:
                producer.wait_for("sent", len(producer.told("sent")) + COUNT)

            send_more()
            first_ours, first_apache = min(ours), min(set(IDS) - set(ours))
            for leader in (first_apache, first_ours):
                group.give_lead(leader)
                send_more()
                group.end(leader, how)
                send_more()
                group.start(leader)
                group.wait_for_leader()
                send_more()
            group.give_lead(first_ours)
            send_more()
            producer.leave()
            group.wait_for_equal_logs()
            self.judge(group, producer, first_ours)

    def judge(self, group: LedgerGroup, producer: JavaProcess, leader: str) -> None:
        """Check that no acknowledged message is lost, and none is stored twice."""
        acknowledged = {}
        for line in producer.told("sent"):
            _, queue_id, offset, body = line.split(" ")
            acknowledged[int(queue_id), int(offset)] = body.encode()
        self.assertEqual(len(acknowledged), len(producer.told("sent")), "an offset given twice")
        for member in IDS:
            counts = bodies(group.members[member].log_folder)
            self.assertEqual(max(counts.values()), 1)
            self.assertEqual(set(acknowledged.values()) - set(counts), set(), member)
        stored = {}
        with RawClient(group.members[leader].address, 30) as client:
            for queue_id in range(max(queue_id for queue_id, _ in acknowledged) + 1):
                offset, end = 0, client.max_offset(TOPIC, queue_id)
                while offset < end:
                    for message in client.pull(TOPIC, offset, queue_id=queue_id):
                        stored[queue_id, message.queue_offset] = message.body
                        offset = message.queue_offset + 1
        self.assertEqual({place: stored.get(place) for place in acknowledged}, acknowledged)

    def long_another_file_size_than_the_leader_of_5_5_0(self) -> None:
        """Ours names the setting in one line before any send, and no other member does."""
        with LedgerGroup(self.folder, "5.5.0", {"n1", "n2"}) as group:
            ours = group.members["n2"]
            assert isinstance(ours, OurMember)
            ours.settings["mappedFileSizeCommitLog"] = str(2 * FILE_SIZE)
            group.start()
            group.give_lead("n0")
            begin = time.monotonic()
            text = (f"mappedFileSizeCommitLog is {2 * FILE_SIZE} here and {FILE_SIZE} at the "
                    "leader n0")
            wait_until("the setting is named", lambda: text in ours.log(), 60)
            print(f"{self.id()}: after {time.monotonic() - begin:.1f} s")
            group.give_lead("n1")
            group.give_lead("n0")
            wait_until("the next lead is compared", lambda: ours.log().count(text) == 2, 60)
            other = group.members["n1"]
            assert isinstance(other, OurMember)
            self.assertNotIn("at the leader", other.log())

    def test_ours_among_two_of_5_5_0(self) -> None:
        """Two of Apache's brokers are a majority without ours."""
        self.lead_in_turn("5.5.0", {"n2"})

    def long_one_of_5_5_0_among_two_of_ours(self) -> None:
        """Ours are a majority, and one of Apache's brokers leads them for a while."""
        self.lead_in_turn("5.5.0", {"n1", "n2"})

    def long_ours_among_two_of_4_9_4(self) -> None:
        """The version of dledger is 0.2.6."""
        self.lead_in_turn("4.9.4", {"n2"})

    def long_one_of_4_9_4_among_two_of_ours(self) -> None:
        """The version of dledger is 0.2.6."""
        self.lead_in_turn("4.9.4", {"n1", "n2"})

    def long_ours_among_two_of_5_3_3(self) -> None:
        """Leaders are stopped: brokers of this version lose entries of queues in a kill."""
        self.lead_in_turn("5.3.3", {"n2"}, signal.SIGTERM)

    def long_one_of_5_3_3_among_two_of_ours(self) -> None:
        """The same with a majority of ours."""
        self.lead_in_turn("5.3.3", {"n1", "n2"}, signal.SIGTERM)
