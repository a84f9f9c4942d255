"""A listening port on the real reactor and the loopback address."""

from __future__ import annotations

import socket

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import TestCase

from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.net import connection_close as closing
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.listener import ListenerService
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import BrokerError

BIG = 901


class ListenerTests(TestCase):
    """Starts and stops, and the connections at a stop."""

    def setUp(self) -> None:
        body = bytes(8 * 1024 * 1024)
        rows = {BIG: RequestHandler(BIG, lambda request: Reply(body=body))}
        self.channels = ChannelTable()
        self.factory = RemotingFactory(
            reactor, Dispatcher(rows, Hooks()), self.channels, now_ms, monotonic)
        self.service = self.listener(0)
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def test_the_backlog_reaches_the_reactor(self) -> None:
        """The reactor gets the number of connections that may wait."""
        ports = MemoryReactor()
        service = ListenerService(ports, 0, "127.0.0.1", 77, self.factory, "the test's port")
        service.startService()
        self.addCleanup(service.stopService)
        (_, _, backlog, interface), = ports.tcpServers
        self.assertEqual((backlog, interface), (77, "127.0.0.1"))

    def listener(self, port: int) -> ListenerService:
        return ListenerService(reactor, port, "127.0.0.1", 50, self.factory, "the test's port")

    async def connect(self) -> socket.socket:
        """Return a raw connection after the server has accepted it."""
        before = len(self.channels)
        connection = socket.create_connection(("127.0.0.1", self.service.port))
        self.addCleanup(connection.close)
        while len(self.channels) == before:
            await deferLater(reactor, 0)
        return connection

    def test_port_in_use(self) -> None:
        """The error names the port, and its present user continues."""
        other = self.listener(self.service.port)
        error = self.assertRaises(BrokerError, other.startService)
        self.assertEqual(str(error), f"cannot listen on 127.0.0.1:{self.service.port} "
                                     "(the test's port): Address already in use")

    def test_port_0(self) -> None:
        """The port 0 is replaced by a free one."""
        self.assertGreater(self.service.port, 0)

    async def test_stop_listening(self) -> None:
        """No more connections are accepted; existing ones remain."""
        connection = await self.connect()
        await self.service.stop_listening()
        self.assertRaises(OSError, socket.create_connection, ("127.0.0.1", self.service.port))
        self.assertEqual(len(self.channels), 1)
        connection.close()
        await self.service.stopService()

    async def test_stop_closes(self) -> None:
        """A stop closes all connections of the port, and none of another port."""
        connections = [await self.connect() for _ in range(3)]
        other = RemotingFactory(reactor, self.factory.dispatcher, self.channels, now_ms, monotonic)
        foreign = other.buildProtocol(None)
        self.channels.add(foreign)
        await self.service.stopService()
        self.assertEqual(list(self.channels), [foreign])
        self.assertEqual([connection.recv(1) for connection in connections], [b""] * 3)
        self.assertEqual(self.channels.on_lost, [])

    async def test_a_peer_that_does_not_read(self) -> None:
        """A peer that does not read its replies cannot delay a stop for ever."""
        self.patch(closing, "CLOSE_SECONDS", 0.05)
        connection = await self.connect()
        connection.sendall(encode_request(BIG, 1))
        [channel] = self.channels
        while not channel.unsent_bytes:  # type: ignore[attr-defined]
            await deferLater(reactor, 0)
        await self.service.stopService()
        self.assertEqual(len(self.channels), 0)

    def test_stop_without_start(self) -> Deferred[object]:
        """A service that never listened can be stopped."""
        return self.listener(0).stopService()
