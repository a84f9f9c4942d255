"""One cluster of our broker and Apache's, with our name server and with Apache's."""

from __future__ import annotations

import subprocess
import sys

from tests.interop.clients import JavaTestCase, java_round
from tests.interop.servers import PEER, Servers, free_port


class MixedClusterTests(JavaTestCase):
    """A stock client that knows nothing but a name server uses both brokers at once."""

    timeout = 300

    def peer(self, *options: str) -> None:
        """Start Apache's servers; they stop when the test ends."""
        command = [sys.executable, str(PEER)]
        subprocess.run([*command, "start", str(self.folder / "peer"), "--heap", "512m", *options],
                       check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [*command, "stop", str(self.folder / "peer")], check=True)

    def ours(self, *settings: str) -> Servers:
        running = Servers(self.folder / "ours", "brokerName=broker-ours", *settings)
        running.start()
        self.addCleanup(running.stop)
        return running

    def use_both(self, namesrv: str) -> None:
        output = java_round(self.version, "cluster", namesrv, self.folder / "unused")
        self.assertRegex(output, r"ok \d+ checks")

    def test_apaches_broker_registers_with_our_name_server(self) -> None:
        """Our name server tells clients of both brokers."""
        namesrv = self.ours().namesrv
        self.peer("--no-namesrv", "--namesrv-addr", namesrv, "--broker", str(free_port()))
        self.use_both(namesrv)

    def test_our_broker_registers_with_apaches_name_server(self) -> None:
        """Apache's name server tells clients of both brokers."""
        port = free_port()
        self.peer("--namesrv", str(port), "--broker", str(free_port()))
        self.ours(f"namesrvAddr=127.0.0.1:{port}")
        self.use_both(f"127.0.0.1:{port}")
