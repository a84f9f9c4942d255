"""The client of the commands."""

from __future__ import annotations

from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import ScriptedServer, answer
from twistmq.client.blocking.client import Client
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import RemotingTimeout
from twistmq.tools.admin.session import Session


class SilenceTests(SynchronousTestCase):
    """Servers that accept requests and answer none."""

    def test_a_silent_server_is_waited_for_once(self) -> None:
        """Later requests of a command wait half a second, until it answers one."""
        is_silent = True
        server = ScriptedServer(lambda request: None if is_silent else answer(request))
        self.addCleanup(server.close)
        given: list[float | None] = []
        ask = Client.ask

        def noted(client: Client, *arguments: object, **options: object) -> object:
            given.append(options["timeout_s"])  # type: ignore[arg-type]
            # The test does not wait for so long.
            return ask(client, *arguments,  # type: ignore[arg-type]
                       **{**options, "timeout_s": 0.05 if is_silent else 10.0})

        with patch.object(Client, "ask", noted), Session("127.0.0.1:1", timeout_s=5) as session:
            def one() -> object:
                return session.ask(server.address, RequestCode.GET_BROKER_RUNTIME_INFO)

            for _ in range(2):
                self.assertRaises(RemotingTimeout, one)
            is_silent = False
            one()
            one()
        self.assertEqual(given, [None, 0.5, 0.5, None])
