"""Other people's clients, unchanged, with our name server and broker."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop import clients
from tests.interop.kept import kept
from tests.interop.servers import Servers, servers


def ours(folder: Path, stack: ExitStack) -> Servers:
    """Return our name server and broker."""
    return stack.enter_context(servers(folder))


class RoundTests(SynchronousTestCase):
    """The rounds follow each other; those of Java start the same servers again."""

    def java(self, version: str, serialize_type: str = "JSON") -> None:
        """Run both phases of the Java round, with a restart of the servers between them."""
        reason = clients.java_missing(version)
        if reason:
            raise SkipTest(reason)
        running = kept(self, ours)
        state = running.data / self.id()
        first = clients.java_round(version, "phase1", running.namesrv, state,
                                   serialize_type=serialize_type)
        self.assertRegex(first, r"ok \d{3,} checks")
        # The other rounds need the servers, whatever this one finds.
        status, abort = running.stop(), (running.data / "store" / "abort").exists()
        running.start()
        self.assertEqual((status, abort), (0, False))
        second = clients.java_round(version, "phase2", running.namesrv, state,
                                    serialize_type=serialize_type)
        self.assertRegex(second, r"ok \d+ checks")

    def test_java_client_5(self) -> None:
        """Client 5.3.3 sends, consumes, queries, and continues after a restart."""
        self.java("5.3.3")

    def test_java_client_5_with_binary_headers(self) -> None:
        """The same with ROCKETMQ headers, as Apache's benchmark programs send them."""
        self.java("5.3.3", "ROCKETMQ")

    def test_java_client_5_5(self) -> None:
        """Client 5.5.0 sends, consumes, queries, and continues after a restart."""
        self.java("5.5.0")

    def test_java_client_4(self) -> None:
        """Client 4.9.4 sends, consumes, queries, and continues after a restart."""
        self.java("4.9.4")

    def test_go_client(self) -> None:
        """The Go client sends and consumes."""
        reason = clients.go_missing()
        if reason:
            raise SkipTest(reason)
        self.assertRegex(clients.go_round(kept(self, ours).namesrv), r"ok \d{3,} checks")

    def test_python_client(self) -> None:
        """PyPI's rocketmq 0.4.4, a C++ client, sends and consumes."""
        reason = clients.python_client_missing()
        if reason:
            raise SkipTest(reason)
        self.assertRegex(clients.python_client_round(kept(self, ours).namesrv), r"ok \d{3,} checks")
