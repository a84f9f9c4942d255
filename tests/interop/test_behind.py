"""The offsets of clients that brokers keep: `java/BehindRound.java` asks both brokers.

Members of broadcast groups that change between a proxy and the broker, and groups that are stopped
because they are far behind.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.interop.clients import JavaTestCase, java_program
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port

#: Of both brokers; the threshold is in bytes.
SETTINGS: Final = {"disableConsumeIfConsumerReadSlowly": "true",
                   "consumerFallbehindThreshold": "10000"}


class BehindTests(JavaTestCase):
    """The same checks for both brokers at the same time."""

    def setUp(self) -> None:
        super().setUp()
        self.ours = Servers(self.folder / "ours", "brokerName=broker-a",
                            *(f"{name}={value}" for name, value in SETTINGS.items()))
        self.addCleanup(self.ours.stop)
        self.peer = Peer(self.folder / "peer", namesrv_port=free_port(), broker_port=free_port(),
                         heap="512m", settings=dict(SETTINGS))
        self.addCleanup(self.peer.stop, kill=True)
        self.ours.start()
        self.peer.start()

    def keeps(self, part: str) -> None:
        def run(namesrv: str, port: int, name: str) -> str:
            return java_program(self.version, "BehindRound", namesrv, f"127.0.0.1:{port}", name,
                                part, timeout=500)

        runs: list[Callable[[], str]] = [
            lambda: run(self.ours.namesrv, self.ours.broker_port, "broker-a"),
            lambda: run(self.peer.namesrv_address, self.peer.broker_port, "broker-peer")]
        with ThreadPoolExecutor() as threads:
            for output in threads.map(lambda each: each(), runs):
                self.assertRegex(output, r"ok \d{2,} checks")

    def test_between_proxy_and_broker_a_client_goes_on_where_it_was(self) -> None:
        """A client that changes between proxy and broker continues at its offset."""
        self.keeps("broadcast")

    def long_far_behind(self) -> None:
        """A group that is far behind is stopped, another one is not; brokers look every 180 s."""
        self.keeps("behind")
