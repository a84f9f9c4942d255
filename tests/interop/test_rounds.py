"""Other people's clients, unchanged, against our name server and broker."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop import clients
from tests.interop.servers import Servers


class RoundTests(SynchronousTestCase):
    """Each round starts servers of its own."""

    timeout = 300

    def servers(self, *settings: str) -> Servers:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        running = Servers(Path(folder.name), *settings)
        running.start()
        self.addCleanup(running.stop)
        return running

    def java(self, version: str, serialize_type: str = "JSON") -> None:
        """Both phases of the Java round, with a restart of the servers between them."""
        reason = clients.java_missing(version)
        if reason:
            raise SkipTest(reason)
        running = self.servers()
        state = running.data / "round-state"
        first = clients.java_round(version, "phase1", running.namesrv, state,
                                   serialize_type=serialize_type)
        self.assertRegex(first, r"ok \d{3,} checks")
        self.assertEqual(running.stop(), 0)
        self.assertFalse((running.data / "store" / "abort").exists())
        running.start()
        second = clients.java_round(version, "phase2", running.namesrv, state,
                                    serialize_type=serialize_type)
        self.assertRegex(second, r"ok \d+ checks")

    def test_java_client_5(self) -> None:
        """Client 5.3.3 sends, consumes, queries, and goes on after a restart."""
        self.java("5.3.3")

    def test_java_client_5_with_binary_headers(self) -> None:
        """The same with ROCKETMQ headers, as Apache's benchmark programs send them."""
        self.java("5.3.3", "ROCKETMQ")

    def test_java_client_4(self) -> None:
        """Client 4.9.4 sends, consumes, queries, and goes on after a restart."""
        self.java("4.9.4")

    def test_go_client(self) -> None:
        """The Go client sends and consumes."""
        reason = clients.go_missing()
        if reason:
            raise SkipTest(reason)
        self.assertRegex(clients.go_round(self.servers().namesrv), r"ok \d{3,} checks")

    def test_python_client(self) -> None:
        """PyPI's rocketmq 0.4.4, a C++ client, sends and consumes."""
        reason = clients.python_client_missing()
        if reason:
            raise SkipTest(reason)
        self.assertRegex(clients.python_client_round(self.servers().namesrv), r"ok \d{3,} checks")
