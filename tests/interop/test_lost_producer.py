"""A producer of transactions is killed, and another one of its group answers for it.

`java/TransactionMember.java`, twice: the first is killed (SIGKILL) with its transactions open, the
second, which knew nothing of them, is asked. The same is asserted with Apache's broker.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port, wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode

TOPIC, GROUP, COUNT = "LostProducer", "lost_producers", 20
#: The broker asks no producer until the first one is gone and the first setting is changed.
SETTINGS: Final = {"transactionTimeOut": "3600000", "transactionCheckInterval": "1000",
                   "transactionOpBatchInterval": "100"}
ASKED_AT_ONCE: Final = b"transactionTimeOut=1000"
#: What comes in the end; the first message makes the topic.
COMMITTED: Final = {b"first", b"heir-0", *[b"killed-%d" % n for n in range(0, COUNT, 2)]}


class LostProducerTests(JavaTestCase):
    """The same with each broker."""

    def lose_a_producer(self, namesrv: str, broker: str) -> None:
        # An heir is known to a broker only when it has sent something there.
        heir = JavaProcess(self.version, "TransactionMember", namesrv, TOPIC, GROUP, "heir", "1")
        self.addCleanup(heir.close)
        killed = JavaProcess(self.version, "TransactionMember", namesrv, TOPIC, GROUP, "killed",
                             str(COUNT))
        self.addCleanup(killed.close)
        heir.wait_for("sent")
        killed.wait_for("sent")
        killed.kill()
        self.assertEqual(killed.told("asked"), [])
        with RawClient(broker, 30) as client:
            reply = client.request(RequestCode.UPDATE_BROKER_CONFIG, None, ASKED_AT_ONCE)
            self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
        heir.wait_for("asked", COUNT + 1)
        self.assertEqual(Counter(heir.told("asked")), Counter(
            ["asked heir-0", *[f"asked killed-{number}" for number in range(COUNT)]]))
        with RawClient(broker, 30) as client:
            wait_until("what is committed is there",
                       lambda: sum(self.delivered(client).values()) >= len(COMMITTED))
            heir.leave()
            self.assertEqual(self.delivered(client), Counter(COMMITTED))

    @staticmethod
    def delivered(client: RawClient) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for queue_id in range(4):
            offset = 0
            while messages := client.pull(TOPIC, offset, queue_id=queue_id):
                offset += len(messages)
                found.update(message.body for message in messages)
        return found

    def test_our_broker_asks_another_producer(self) -> None:
        """The broker is ours."""
        running = Servers(self.folder, *[f"{name}={value}" for name, value in SETTINGS.items()])
        running.start()
        self.addCleanup(running.stop)
        self.make_topic(f"127.0.0.1:{running.broker_port}")
        self.lose_a_producer(running.namesrv, f"127.0.0.1:{running.broker_port}")

    def long_apaches(self) -> None:
        """The broker is Apache's."""
        peer = Peer(self.folder, self.version, free_port(), free_port(), "512m",
                    settings=dict(SETTINGS))
        peer.start()
        self.addCleanup(peer.stop, kill=True)
        self.make_topic(f"127.0.0.1:{peer.broker_port}")
        self.lose_a_producer(peer.namesrv_address, f"127.0.0.1:{peer.broker_port}")

    @staticmethod
    def make_topic(broker: str) -> None:
        """Create the topic by a first message."""
        with RawClient(broker) as client:
            client.send(TOPIC, b"first")
