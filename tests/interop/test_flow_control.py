"""A Java producer that sends more than a broker accepts: `java/FlowRound.java`, both brokers.

Both have room for few waiting sends, and a producer that waits for no answer. It is told
SYSTEM_BUSY in the same words, what is accepted is stored, and afterwards all is well.
"""

from __future__ import annotations

import re

from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.peer import Peer
from tests.interop.servers import free_port, servers
from twistmq.broker.testing import RawClient

TOPIC, COUNT, AFTER = "FlowRound", 20_000, 5
#: What waits too long is refused, as other tests do not have it.
SETTINGS = {"sendThreadPoolQueueCapacity": "50", "defaultTopicQueueNums": "1",
            "brokerFastFailureEnable": "true"}


class FlowControlTests(JavaTestCase):
    """The answers that the producer gets."""

    def round(self, namesrv: str, broker_port: int, broker_name: str) -> dict[str, int]:
        """Run it; :returns: how often each result came."""
        process = JavaProcess(self.version, "FlowRound", namesrv, TOPIC, str(COUNT), str(AFTER),
                              broker_name)
        self.addCleanup(process.close)
        process.wait_for("done")
        self.assertEqual(process.told("after"), ["after SEND_OK"] * AFTER)
        results = {}
        for line in process.told("result"):
            found = re.fullmatch(r"result (\d+) (.+)", line)
            assert found is not None, line
            results[found[2]] = int(found[1])
        self.assertEqual(sum(results.values()), COUNT, msg=str(results))
        with RawClient(f"127.0.0.1:{broker_port}") as client:
            # More when the client sends again what it could not write at once.
            self.assertGreaterEqual(client.max_offset(TOPIC), 1 + results["0 SEND_OK"] + AFTER)
        return results

    def test_java_client(self) -> None:
        """It gets OVERLOAD from both, and no answer that only one of them sends.

        What it was told is accepted is stored.
        """
        with servers(self.folder / "data",
                     *[f"{name}={value}" for name, value in SETTINGS.items()],
                     "brokerName=flow") as ours:
            results = self.round(ours.namesrv, ours.broker_port, "flow")
        # How slow this machine is decides whether some also wait too long.
        results.pop("2 [TIMEOUT_CLEAN_QUEUE]", None)
        self.assertEqual(set(results), {"0 SEND_OK", "2 [OVERLOAD]"})
        peer = Peer(self.folder / "peer", self.version, free_port(), free_port(),
                    settings={**SETTINGS, "sendMessageThreadPoolNums": "1"})
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        apache = self.round(peer.namesrv_address, peer.broker_port, "broker-peer")
        apache.pop("2 [TIMEOUT_CLEAN_QUEUE]", None)
        self.assertEqual(set(apache), {"0 SEND_OK", "2 [OVERLOAD]"})
