"""TLS on real connections: both servers, registration, clients, and new certificates."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests.certificates import Authority
from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.edge import boot
from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.net.tls import TlsClient
from twistmq.broker.net.tls_options import tls_client_options
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.testing import BrokerTestCase
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RemotingConnectError, RemotingError, RemotingSendError
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from twistmq.tools.client_tls import ssl_context


class TlsServicesCase(BrokerTestCase):
    """Servers that enforce TLS, and clients with certificates of the same authority."""

    def setUp(self) -> Deferred[Any]:  # type: ignore[override]
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()
        self.authority = Authority(self.folder)
        self.own = self.authority.pair("server")
        self.settings = {  # type: ignore[misc]
            "tls.server.mode": "enforcing", "tls.server.authClient": "true",
            "tls.server.certPath": str(self.own.cert), "tls.server.keyPath": str(self.own.key),
            "tls.server.trustCertPath": str(self.authority.cert), **self.client("broker")}
        return super().setUp()

    def client(
        self, name: str, authority: Authority | None = None, trusts: Authority | None = None,
        **more: str,
    ) -> dict[str, str]:
        """Settings of a client that has a certificate and checks servers."""
        pair = (authority or self.authority).pair(name)
        return {"tls.client.authServer": "true", "tls.client.certPath": str(pair.cert),
                "tls.client.keyPath": str(pair.key),
                "tls.client.trustCertPath": str((trusts or self.authority).cert),
                **{f"tls.client.{key}": text for key, text in more.items()}}

    def remoting_client(self, settings: dict[str, str], timeout_ms: int = 5000) -> RemotingClient:
        tls = TlsClient(self.reactor, boot.broker_settings(None, settings))
        client = RemotingClient(self.reactor, now_ms, monotonic, Dispatcher({}, Hooks()),
                                timeout_ms, tls)
        self.addCleanup(client.close)
        return client

    async def ask(self, client: RemotingClient, address: str | None = None) -> int:
        """Ask for the broker's time figures; :returns: the answer's code."""
        reply = await client.invoke(address or self.broker_address,
                                    RequestCode.GET_ALL_TOPIC_CONFIG, None, timeout_ms=5000)
        return reply.code

    async def until(self, what: str, holds: Any) -> None:
        for _ in range(400):
            if await holds():
                return
            await deferLater(self.reactor, 0.025, lambda: None)
        self.fail(f"{what}: not in time")

    def shown(self) -> bytes:
        """Return the certificate that the server shows to a new client; the call blocks."""
        with socket.create_connection(("127.0.0.1", self.service.broker.port), 5) as raw:
            context = ssl.create_default_context(cafile=str(self.authority.cert))
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped:
                certificate = wrapped.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


class ServersTests(TlsServicesCase):
    """Both servers and all their ports."""

    async def test_a_broker_registers_by_tls_and_serves_clients(self) -> None:
        """The broker registers by TLS with its certificate, and clients are served."""
        self.assertEqual(self.service.broker.name_servers.unreached, {})
        reply = await self.send("by_tls", b"secret")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        route = await self.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="by_tls"),
            address=self.namesrv_address)
        self.assertEqual(route.code, ResponseCode.SUCCESS)
        vip = f"127.0.0.1:{self.service.broker.vip_port}"
        self.assertEqual(await self.ask(self.remoting, vip), ResponseCode.SUCCESS)

    async def test_no_port_serves_a_client_without_tls(self) -> None:
        """No port serves a client without TLS."""
        plain = RemotingClient(self.reactor, now_ms, monotonic, Dispatcher({}, Hooks()))
        self.addCleanup(plain.close)
        for address in (self.broker_address, self.namesrv_address,
                        f"127.0.0.1:{self.service.broker.vip_port}"):
            with self.assertRaises(RemotingSendError):
                await self.ask(plain, address)

    async def test_blocking_client(self) -> None:
        """The client without a reactor, by the same settings."""
        settings = boot.broker_settings(None, self.client("tool", host_check="true"))
        context = ssl_context(tls_client_options(settings))

        def work() -> bytes:
            with RawClient(self.broker_address, tls=context) as client:
                client.send("blocking", b"x" * 100_000)
                [message] = client.pull("blocking")
                return message.body

        self.assertEqual(len(await deferToThread(work)), 100_000)

    async def test_a_certificate_is_renewed_during_traffic(self) -> None:
        """New clients get the new certificate, and no send fails."""
        before = await deferToThread(self.shown)
        codes = [(await self.send("traffic", b"first")).code]
        [connection] = self.remoting._connections.values()
        self.own.replace(self.authority.pair("server-2"))

        async def is_shown() -> bool:
            codes.append((await self.send("traffic", b"m" * 50_000)).code)
            return bool(await deferToThread(self.shown) != before)

        await self.until("the new certificate", is_shown)
        codes.append((await self.send("traffic", b"last")).code)
        self.assertEqual(set(codes), {ResponseCode.SUCCESS})
        self.assertTrue(connection.active)
        self.assertEqual(list(self.remoting._connections.values()), [connection])


class ClientTests(TlsServicesCase):
    """The errors of our client."""

    async def assertFails(
        self, client: RemotingClient, why: str, address: str | None = None
    ) -> None:
        with self.assertRaises(RemotingError) as caught:
            await self.ask(client, address)
        self.assertIn(why, str(caught.exception))

    async def test_the_host_is_looked_at_when_that_is_asked_for(self) -> None:
        """The host name is checked if that is asked for; a right name passes."""
        port = self.service.broker.port
        self.own.replace(self.authority.pair("elsewhere", hosts=("elsewhere", "localhost")))

        async def is_shown() -> bool:
            settings = self.client("a", host_check="true")
            try:
                await self.ask(self.remoting_client(settings))
            except RemotingConnectError as error:
                self.assertIn("it is for another host", str(error))
                return True
            return False

        await self.until("the other certificate", is_shown)
        strict = self.remoting_client(self.client("b", host_check="true"))
        self.assertEqual(await self.ask(strict, f"localhost:{port}"), ResponseCode.SUCCESS)
        self.assertEqual(await self.ask(self.remoting_client(self.client("c"))),
                         ResponseCode.SUCCESS)

    async def test_a_server_that_is_not_trusted(self) -> None:
        """A server that is not trusted, a client that is not."""
        foreign = Authority(self.folder, "foreign")
        client = self.remoting_client(self.client("me", trusts=foreign))
        await self.assertFails(client, "TLS: its certificate CN=authority is refused: its chain "
                                       "ends in one that is not trusted")
        client = self.remoting_client(self.client("me", foreign))
        await self.assertFails(client, "alert unknown ca")
        client = self.remoting_client({})
        await self.assertFails(client, "certificate required")

    async def test_not_tls(self) -> None:
        """A server that sends nothing, closes the connection, or speaks another protocol."""
        class Silent(Protocol):
            pass

        class Closes(Protocol):
            def dataReceived(self, data: bytes) -> None:
                assert self.transport is not None
                self.transport.loseConnection()

        class Babbles(Protocol):
            def connectionMade(self) -> None:
                assert self.transport is not None
                self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        for protocol, why, timeout_ms in (
            (Silent, "timed out", 300),
            (Closes, "the connection was closed during the handshake", 20_000),
            (Babbles, "failed: TLS: ", 20_000),
        ):
            factory = Factory.forProtocol(protocol)
            listening = self.reactor.listenTCP(0, factory, interface="127.0.0.1")
            self.addCleanup(listening.stopListening)
            client = self.remoting_client(self.client("me"), timeout_ms=timeout_ms)
            await self.assertFails(client, why, f"127.0.0.1:{listening.getHost().port}")

    async def test_the_clients_files_are_read_again_as_well(self) -> None:
        """The client's files are read again as well, for new connections."""
        foreign = Authority(self.folder, "foreign")
        settings = self.client("me", foreign)
        tls = TlsClient(self.reactor, boot.broker_settings(None, settings))
        client = RemotingClient(self.reactor, now_ms, monotonic, Dispatcher({}, Hooks()), tls=tls)
        self.addCleanup(client.close)
        await self.assertFails(client, "alert unknown ca")
        pair = self.authority.pair("better")
        pair.cert.rename(settings["tls.client.certPath"])
        pair.key.rename(settings["tls.client.keyPath"])
        for _ in range(2):
            tls.tasks[0].run(now_ms())
        self.assertEqual(await self.ask(client), ResponseCode.SUCCESS)
