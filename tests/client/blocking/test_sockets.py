"""Sockets of the blocking client that fail: the client continues."""

from __future__ import annotations

from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import answer, scripted_server
from twistmq.client import Client, RemotingError
from twistmq.client.core.connection.engine import Engine
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand


def serve(request: RemotingCommand) -> bytes:
    """Answer every request."""
    return answer(request)


class FailureTests(SynchronousTestCase):
    """Each failure is the error of one request."""

    def setUp(self) -> None:
        """Create a client, and a server that answers."""
        server = scripted_server(serve)
        self.server = server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.client = Client(self.server.address, timeout_s=30.0, retries=0)
        self.addCleanup(self.client.close)

    def ask(self, address: str = "") -> Any:
        """Send a request."""
        return self.client.ask(address or self.server.address, RequestCode.GET_BROKER_CLUSTER_INFO)

    def test_a_name_that_dns_cannot_have_is_the_error_of_its_request(self) -> None:
        """Python raises no OSError for it."""
        for name in ("a..b", "x" * 70):
            error = self.assertRaises(RemotingError, self.ask, f"{name}:10911")
            self.assertIn(f"connect to {name}:10911 failed", str(error))
        self.assertEqual(self.ask().code, 0)

    def test_a_process_without_room_for_a_file_is_the_error_of_its_request(self) -> None:
        """The next request succeeds."""
        with mock.patch("twistmq.client.blocking.sockets.socket.socket",
                        side_effect=OSError(24, "Too many open files")):
            error = self.assertRaises(RemotingError, self.ask)
        self.assertIn("Too many open files", str(error))
        self.assertEqual(self.ask().code, 0)

    def test_a_fault_of_the_client_ends_one_connection(self) -> None:
        """It is logged with the address, and the next request has a new connection."""
        self.ask()
        with self.assertLogs("twistmq.client", "ERROR") as logs, mock.patch.object(
                Engine, "received", side_effect=ZeroDivisionError("a fault")):
            error = self.assertRaises(RemotingError, self.ask)
        self.assertIn("a fault", str(error))
        self.assertIn("127.0.0.1", logs.output[0])
        self.assertEqual(self.ask().code, 0)

    def test_a_fault_of_the_engine_stops_neither_client_nor_others(self) -> None:
        """Its call times out, and later ones are answered."""
        def fail() -> None:
            raise ZeroDivisionError("a fault")

        with self.assertLogs("twistmq.client", "ERROR") as logs:
            tasks = self.client._core.engine.tasks
            self.client._loop.call_in_loop(lambda: tasks.call_soon(fail))
            self.assertEqual(self.ask().code, 0)
        self.assertIn("the client failed, and continues", logs.output[0])
        self.assertEqual(self.ask().code, 0)

    def test_a_certificate_of_no_possible_name_is_the_error_of_its_request(self) -> None:
        """TLS does not accept a name that begins with a dot."""
        context = mock.Mock()
        context.wrap_socket.side_effect = ValueError("server_hostname cannot start with a dot")
        with Client(self.server.address, timeout_s=30.0, retries=0) as client:
            engine = client._core.engine
            client._loop.call_in_loop(lambda: client._loop._engines.update({engine: context}))
            error = self.assertRaises(RemotingError, client.ask, self.server.address, 1)
            self.assertIn("no certificate can have the name", str(error))
