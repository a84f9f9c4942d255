"""One cluster of our broker and Apache's, with our name server and with Apache's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.interop.clients import JavaTestCase, java_round
from tests.interop.kept import kept
from tests.interop.peer import Peer
from tests.interop.ports import free_port
from tests.interop.servers import servers


def name_servers(folder: Path, stack: ExitStack) -> tuple[str, str]:
    """Return two brokers that are registered with both name servers, and the name servers."""
    apaches = f"127.0.0.1:{free_port()}"
    peer = Peer(folder / "apache", namesrv_port=int(apaches.rpartition(":")[2]),
                broker_port=free_port(), heap="512m")
    stack.callback(peer.stop, kill=True)
    peer.start_namesrv()
    ours = stack.enter_context(servers(
        folder / "ours", "brokerName=broker-ours", f"namesrvAddr={apaches}")).namesrv
    peer.namesrv_address = f"{apaches};{ours}"
    peer.start_broker()
    return apaches, ours


class MixedClusterTests(JavaTestCase):
    """A client that knows only a name server uses both brokers at the same time."""

    def use_both(self, namesrv: str) -> None:
        output = java_round(self.version, "cluster", namesrv, self.folder / "unused")
        self.assertRegex(output, r"ok \d+ checks")

    def test_apaches_broker_registers_with_our_name_server(self) -> None:
        """Our name server tells clients of both brokers."""
        self.use_both(kept(self, name_servers)[1])

    def test_our_broker_registers_with_apaches_name_server(self) -> None:
        """Apache's name server tells clients of both brokers."""
        self.use_both(kept(self, name_servers)[0])
