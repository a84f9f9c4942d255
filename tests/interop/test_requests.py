"""Java clients send requests and replies through either broker: one program, the same checks."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.interop.clients import JavaTestCase, java_missing, java_program
from tests.interop.kept import kept
from tests.interop.servers import servers


def our_name_server(folder: Path, stack: ExitStack) -> str:
    """Return the address of our name server, beside our broker."""
    return stack.enter_context(servers(folder)).namesrv


class RequestTests(JavaTestCase):
    """`java/RequestRound.java`, by client and broker.

    Rounds of one broker follow each other: each counts all replies that are stored.
    """

    def asks(self, version: str, namesrv: str) -> None:
        reason = java_missing(version)
        if reason:
            self.skipTest(reason)
        wait = "waits" if version == "5.4.0" else "early"
        output = java_program(version, "RequestRound", namesrv, "DefaultCluster", wait)
        self.assertRegex(output, r"ok \d{3,} checks")

    def test_client_5(self) -> None:
        """Client 5.3.3 is used with our broker."""
        self.asks("5.3.3", kept(self, our_name_server))

    def test_client_4(self) -> None:
        """Client 4.9.4 is used with our broker."""
        self.asks("4.9.4", kept(self, our_name_server))

    def test_client_that_waits(self) -> None:
        """Client 5.4.0, whose sync requests wait for the answer, is used with our broker."""
        self.asks("5.4.0", kept(self, our_name_server))

    def long_all_with_apache(self) -> None:
        """The clients pass the same checks with Apache's broker."""
        namesrv = self.start_apache().namesrv_address
        for version in ("5.3.3", "4.9.4", "5.4.0"):
            self.asks(version, namesrv)
