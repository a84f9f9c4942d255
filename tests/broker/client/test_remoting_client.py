"""The remoting client against a server on the loopback address."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, ensureDeferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.net import connection_close as closing
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.listener import ListenerService
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.protocol.addresses import split_address
from twistmq.protocol.command import VERSION, encode_reply
from twistmq.protocol.errors import (
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
    RemotingTooLong,
)
from twistmq.protocol.frame import FRAME_SIZE_MAX, FrameDecoder
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.protocol.signature import Credentials, Signer

ECHO, SILENT, ASK, LONG = 901, 902, 903, 904


class SplitAddressTests(SynchronousTestCase):
    """The form host:port."""

    def test_names_ipv4_and_ipv6_addresses(self) -> None:
        """Names, IPv4 and IPv6 addresses; blanks around them do not count."""
        for text, expected in (("a:1", ("a", 1)), (" 10.0.0.1:9876 ", ("10.0.0.1", 9876)),
                               ("[::1]:65535", ("::1", 65535))):
            self.assertEqual(split_address(text), expected)

    def test_an_invalid_address_is_an_error(self) -> None:
        """The error has the invalid text."""
        for text in ("", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:x", "a:1.5", "a:1:"):
            error = self.assertRaises(ValueError, split_address, text)
            self.assertIn("is not host:port", str(error))

    def test_hosts_that_are_neither_names_nor_addresses(self) -> None:
        """apache/rocketmq-dashboard#2741: malformed IPv6 addresses pass for name servers.

        So did hosts with blanks. The zone of an address stays (apache/rocketmq#9987), and an
        address without brackets is what Apache's servers write of themselves.
        """
        for text in ("[1:2:3]:9876", "[1::2::3]:9876", "[]:1", "[a]:1", "[10.0.0.1]:1", "1:2:3:9",
                     "[::1:9876", "::1]:9876", "[[::1]]:1", "[::1%]:1", "[fe80::1%e 0]:1", "a b:1",
                     "http://a:1", "a/b:1", "a,b:1", "a;b:1", "a\0:1", "user@a:1", "a:\uff11",
                     "a:000001", "a:" + "9" * 5000):
            error = self.assertRaises(ValueError, split_address, text)
            self.assertIn("is not host:port", str(error))
        for text, host in (("[fe80::1%eth0]:1", "fe80::1%eth0"), ("::1:1", "::1"),
                           ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1"), ("a_b-1.c.:1", "a_b-1.c.")):
            self.assertEqual(split_address(text), (host, 1))


class RemotingClientTests(TestCase):
    """Calls, shared connections, reconnection, errors."""

    def setUp(self) -> None:
        self.asked: list[bytes] = []
        self.channels = ChannelTable()
        rows = [RequestHandler(ECHO, lambda request: Reply(body=request.body)),
                RequestHandler(SILENT, lambda request: Deferred()),
                RequestHandler(ASK, self.ask)]
        dispatcher = Dispatcher({row.code: row for row in rows}, Hooks())
        self.rows = dispatcher.handlers
        factory = RemotingFactory(reactor, dispatcher, self.channels, now_ms, monotonic)
        self.server = ListenerService(reactor, 0, "127.0.0.1", 50, factory, "a port")
        self.server.startService()
        self.address = f"127.0.0.1:{self.server.port}"
        own = Dispatcher({ECHO: RequestHandler(ECHO, self.answer)}, Hooks())
        self.client = RemotingClient(reactor, now_ms, monotonic, own, connect_timeout_ms=5000)
        self.addCleanup(self.server.stopService)
        self.addCleanup(self.client.close)

    def ask(self, request: Request[Any]) -> Deferred[Reply]:
        """Let a server send a request to its client before it answers."""
        reply = request.channel.call(ECHO, None, b"and you?", timeout_ms=5000)
        return reply.addCallback(lambda command: Reply(body=command.body))

    def answer(self, request: Request[Any]) -> Reply:
        self.asked.append(request.body)
        return Reply(body=b"fine")

    def echo(self, body: bytes, timeout_ms: int = 5000) -> Deferred[bytes]:
        async def call() -> bytes:
            reply = await self.client.invoke(self.address, ECHO, None, body, timeout_ms=timeout_ms)
            return reply.body

        return ensureDeferred(call())

    async def test_one_connection(self) -> None:
        """Simultaneous calls share one connection, and each gets its own reply."""
        bodies = [str(number).encode() for number in range(20)]
        self.assertEqual(await gatherResults([self.echo(body) for body in bodies]), bodies)
        self.assertEqual(await self.echo(b"again"), b"again")
        self.assertEqual(len(self.channels), 1)

    async def test_server_asks(self) -> None:
        """Requests of the server are served."""
        reply = await self.client.invoke(self.address, ASK, None, timeout_ms=5000)
        self.assertEqual((reply.body, self.asked), (b"fine", [b"and you?"]))

    async def test_a_one_way_request_arrives(self) -> None:
        """A one-way request arrives, and the caller does not wait."""
        await self.client.invoke_oneway(self.address, ECHO, None, b"x")
        self.assertEqual(await self.echo(b"after it"), b"after it")

    async def test_requests_are_signed_by_an_account(self) -> None:
        """A server that checks signatures accepts requests with and without a
        header, also one-way.
        """
        credentials = Credentials("rocketmq2", "12345678", "token")
        client = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()),
                                credentials=credentials)
        self.addCleanup(client.close)
        found: list[bool] = []

        def check(request: Request[Any]) -> Reply:
            command = request.command
            found.append(Signer("12345678").has_signed(command.fields(), command.body, VERSION))
            return Reply(body=command.fields().get("topic", "").encode())

        self.rows[ECHO] = RequestHandler(ECHO, check)
        header = GetMaxOffsetRequestHeader(topic="имя", queue_id=3)
        await client.invoke_oneway(self.address, ECHO, header, b"x")
        reply = await client.invoke(self.address, ECHO, header, b"x", timeout_ms=5000)
        self.assertEqual(reply.body.decode(), "имя")
        await client.invoke(self.address, ECHO, None, timeout_ms=5000)
        self.assertEqual(found, [True, True, True])

    async def test_a_missing_reply_fails_the_call_but_not_the_connection(self) -> None:
        """A missing reply fails the call, and the connection remains usable."""
        call = self.client.invoke(self.address, SILENT, None, timeout_ms=20)
        await self.assertFailure(ensureDeferred(call), RemotingTimeout)
        self.assertEqual(await self.echo(b"x"), b"x")
        self.assertEqual(len(self.channels), 1)

    async def test_reply_longer_than_a_frame(self) -> None:
        """A reply that is too long fails only its own call; the connection remains usable."""
        def answer(request: Request[Any]) -> None:
            size = FRAME_SIZE_MAX if request.body else FRAME_SIZE_MAX // 2
            request.channel.write(encode_reply(  # type: ignore[attr-defined]
                0, request.command.opaque, None, bytes(size), None))

        self.rows[LONG] = RequestHandler(LONG, answer)
        begin = [self.echo(b"before"), ensureDeferred(self.client.invoke(
            self.address, LONG, None, b"x", timeout_ms=60_000)), self.echo(b"after")]
        self.assertEqual(await begin[0], b"before")
        error = await self.assertFailure(begin[1], RemotingTooLong)
        self.assertIn(self.address, str(error))
        self.assertEqual(await begin[2], b"after")
        reply = await self.client.invoke(self.address, LONG, None, timeout_ms=60_000)
        self.assertEqual(len(reply.body), FRAME_SIZE_MAX // 2)
        self.assertEqual(len(self.channels), 1)

    async def test_request_longer_than_a_frame(self) -> None:
        """It is not sent, because the other side would close the connection."""
        await self.assertFailure(self.echo(bytes(FRAME_SIZE_MAX)), RemotingTooLong)
        self.assertEqual(await self.echo(b"x"), b"x")
        self.assertEqual(len(self.channels), 1)

    async def test_a_lost_connection_fails_its_calls_and_the_next_reconnects(self) -> None:
        """A lost connection fails its waiting calls; the next call connects again."""
        await self.echo(b"x")
        waiting = ensureDeferred(self.client.invoke(self.address, SILENT, None, timeout_ms=5000))
        for channel in self.channels:
            channel.close()
        await self.assertFailure(waiting, RemotingSendError)
        self.assertEqual(await self.echo(b"y"), b"y")

    async def test_a_refused_connection_names_the_address(self) -> None:
        """The error names the address; a server that is started later is found."""
        await self.server.stopService()
        error = await self.assertFailure(self.echo(b"x"), RemotingConnectError)
        self.assertIn(f"connect to {self.address} failed", str(error))
        self.server.startService()
        self.assertEqual(await self.echo(b"x"), b"x")

    async def test_bad_address(self) -> None:
        """An invalid address fails the call."""
        call = self.client.invoke("nowhere", ECHO, None, timeout_ms=100)
        error = await self.assertFailure(ensureDeferred(call), RemotingConnectError)
        self.assertIn("'nowhere' is not host:port", str(error))

    async def test_a_close_ends_the_connections_and_fires_when_they_are_gone(self) -> None:
        """A close ends the connections and fires when they are closed; it may be repeated."""
        await self.echo(b"x")
        waiting = self.assertFailure(
            ensureDeferred(self.client.invoke(self.address, SILENT, None, timeout_ms=5000)),
            RemotingSendError)
        await self.client.close()
        await waiting
        await self.client.close()
        error = await self.assertFailure(self.echo(b"x"), RemotingConnectError)
        self.assertIn("the client is closed", str(error))
        while len(self.channels):
            await deferLater(reactor, 0)

    async def test_a_server_that_does_not_read(self) -> None:
        """Data that it never reads cannot delay a close for ever."""
        self.patch(closing, "CLOSE_SECONDS", 0.05)
        await self.echo(b"x")
        [channel] = self.channels
        channel.transport.pauseProducing()  # type: ignore[attr-defined]
        body = bytes(FRAME_SIZE_MAX // 2)
        waiting = self.assertFailure(self.echo(body), RemotingSendError)
        await self.client.close()
        await waiting
        channel.transport.resumeProducing()  # type: ignore[attr-defined]

    async def test_close_again_from_a_callback(self) -> None:
        """A callback of the close may close the client again."""
        await self.echo(b"x")
        done: Deferred[Any] = self.client.close()
        done.addCallback(lambda _: self.client.close())
        await done


class TcpTransport(StringTransport):
    """A transport with the options of a socket."""

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def setTcpKeepAlive(self, enabled: bool) -> None: ...


class ConnectTests(SynchronousTestCase):
    """Connections that fail, on a reactor in memory."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.client = RemotingClient(self.reactor, now_ms, self.reactor.seconds,
                                     Dispatcher({}, Hooks()), connect_timeout_ms=3000)
        self.call = ensureDeferred(
            self.client.invoke("127.0.0.1:1", ECHO, None, timeout_ms=10_000))
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_a_connection_attempt_times_out(self) -> None:
        """An attempt that takes too long is cancelled."""
        self.reactor.advance(2.9)
        self.assertNoResult(self.call)
        self.reactor.advance(0.2)
        error = self.failureResultOf(self.call, RemotingConnectError)
        self.assertEqual(str(error.value), "connect to 127.0.0.1:1 failed: timed out")

    def connect(self) -> StringTransport:
        """Let the server accept the connection."""
        _, _, factory, _, _ = self.reactor.tcpClients[-1]
        protocol = factory.buildProtocol(None)
        transport = TcpTransport(
            hostAddress=IPv4Address("TCP", "127.0.0.1", 2),
            peerAddress=IPv4Address("TCP", "127.0.0.1", 1))
        protocol.makeConnection(transport)
        return transport

    def test_a_one_way_request_that_is_late_is_not_sent(self) -> None:
        """A request whose time is over when the connection is made is not sent; others are."""
        late, in_time = (ensureDeferred(self.client.invoke_oneway(
            "127.0.0.1:1", SILENT, None, b"late or not", timeout_ms=timeout_ms))
            for timeout_ms in (1000, 2000))
        self.reactor.advance(1.5)
        sent = self.connect().value()
        self.failureResultOf(late, RemotingTimeout)
        self.successResultOf(in_time)
        self.assertEqual(sent.count(b"late or not"), 1)

    def test_one_time_for_both(self) -> None:
        """The time it took to connect is not there any more for the answer."""
        self.reactor.advance(2.5)
        self.connect()
        self.reactor.advance(7.4)
        self.assertNoResult(self.call)
        self.reactor.advance(0.2)
        self.failureResultOf(self.call, RemotingTimeout)

    def test_no_time_left(self) -> None:
        """Nothing is sent by a connection that was made after the time-out."""
        call = ensureDeferred(self.client.invoke("127.0.0.1:1", ECHO, None, timeout_ms=1000))
        self.reactor.advance(2.5)
        transport = self.connect()
        self.failureResultOf(call, RemotingTimeout)
        self.assertEqual(len(FrameDecoder().feed(transport.value())), 1)  # of the other call
        self.assertNoResult(self.call)

    def test_a_close_gives_up_the_attempts_under_way(self) -> None:
        """A close gives up the attempts under way, and fires."""
        self.successResultOf(self.client.close())
        error = self.failureResultOf(self.call, RemotingConnectError)
        self.assertIn("the client is closed", str(error.value))
        self.assertEqual(
            [call for call in self.reactor.getDelayedCalls() if call.active()], [])
