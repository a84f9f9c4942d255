"""The common parts of tests of a port with TLS in memory."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.edge.tls_peer import TlsPeer
from tests.certificates import Authority
from twistmq.broker.edge import boot
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.tls import PortSecurity
from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.broker.testing.conversation import BEGIN_MS, make_server
from twistmq.protocol.command import encode_request
from twistmq.protocol.frame import FRAME_SIZE_MAX

ECHO, BIG = 901, 903
FRAME = encode_request(ECHO, 1)
#: A TLS record that holds the beginning of a handshake.
HELLO = b"\x16\x03\x01\x02\x00\x01"


class TlsTestCase(SynchronousTestCase):
    """A port with its own settings, an authority and certificates."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.authority = Authority(self.folder)
        self.server_pair = self.authority.pair("server")
        self.clock = Clock()
        self.batches: list[int] = []
        #: What was to run on a thread, until a test runs it.
        self.later: list[tuple[Any, Deferred[Any]]] | None = None
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def own(self, **more: str) -> dict[str, str]:
        """Return the settings of a server that uses the test's certificate."""
        return {"tls.server.certPath": str(self.server_pair.cert),
                "tls.server.keyPath": str(self.server_pair.key),
                **{f"tls.server.{name}": text for name, text in more.items()}}

    def make_server(self, settings: dict[str, str] | None = None) -> RemotingFactory:
        self.security = PortSecurity(
            self.clock, boot.broker_settings(None, settings or {}),
            lambda: BEGIN_MS + round(self.clock.seconds() * 1000), self.in_thread)
        return make_server(
            [RequestHandler(ECHO, lambda request: Reply(body=request.body),
                            handle_batch=self.echo, body_size_max=FRAME_SIZE_MAX),
             RequestHandler(BIG, lambda _: Reply(body=bytes(4 * 1024 * 1024)))],
            first_bytes=self.security.stages, clock=self.clock)

    def echo(self, requests: Any) -> list[Reply]:
        self.batches.append(len(requests))
        return [Reply(body=request.body) for request in requests]

    def in_thread(self, work: Any) -> Deferred[Any]:
        if self.later is None:
            return maybeDeferred(work)
        done: Deferred[Any] = Deferred()
        self.later.append((work, done))
        return done

    def check(self) -> None:
        """Let the periodic look at the files run twice: they changed, and go on like that."""
        [task] = self.security.tasks
        for _ in range(2):
            task.run(BEGIN_MS)

    def lines(self, part: str) -> list[str]:
        """Return the logged lines that contain a text."""
        from twisted.logger import formatEvent

        return [line for line in map(formatEvent, self.events) if part in line]

    def assertEchoes(self, peer: TlsPeer, opaque: int = 1) -> None:
        peer.says(encode_request(ECHO, opaque))
        self.assertEqual(peer.hears(), [(opaque, 0)])

    def assertRefused(self, peer: TlsPeer, why: str) -> None:
        """Check that the handshake fails, and that one line gives the reason."""
        with contextlib.suppress(ssl.SSLError):
            peer.shake_hands()
        self.assertTrue(peer.is_closed)
        [line] = self.lines("closed: TLS")
        self.assertIn(why, line)
