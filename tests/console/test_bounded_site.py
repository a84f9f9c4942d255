"""The bounds of requests and connections."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web import http
from twisted.web.resource import Resource

from twistmq.console import bounded_site
from twistmq.console.bounded_site import (
    FIELDS_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_S,
    BoundedSite,
)

ADDRESS = IPv4Address("TCP", "127.0.0.1", 1)
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"


class Echo(Resource):
    """Answers with the number of fields."""

    isLeaf = True

    def render(self, request: Any) -> bytes:
        return b"%d fields" % len(request.args)


class BoundedSiteTests(SynchronousTestCase):
    """BoundedSite, without a network."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.site = BoundedSite(Echo(), self.clock)  # type: ignore[no-untyped-call]

    def connect(self) -> tuple[Any, StringTransport]:
        """Connect a client."""
        channel, transport = self.site.buildProtocol(ADDRESS), StringTransport()
        channel.makeConnection(transport)
        self.addCleanup(channel.connectionLost, Failure(ConnectionDone()))
        return channel, transport

    def answer(self, *parts: bytes) -> bytes:
        """The answer to a request that arrives in parts."""
        channel, transport = self.connect()
        for part in parts:
            channel.dataReceived(part)
        return transport.value()

    def form(self, body: bytes, kind: bytes = b"") -> bytes:
        """The answer to a form."""
        return self.answer(POST + kind + b"Content-Length: %d\r\n\r\n" % len(body), body)

    def test_a_form(self) -> None:
        """Fields up to the bound are read."""
        body = b"&".join(b"f%d=1" % at for at in range(FIELDS_MAX))
        self.assertIn(b"%d fields" % FIELDS_MAX, self.form(body))

    def test_very_many_fields(self) -> None:
        """They are not read, because that would hold the reactor."""
        with patch.object(http, "parse_qs", side_effect=AssertionError):
            for body in (b"a=&" * 300_000, b"&" * FIELDS_MAX):
                self.assertIn(b" 413 ", self.form(body))
            self.assertIn(b" 413 ", self.answer(
                b"GET /?" + b"&" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"))

    def test_parts(self) -> None:
        """The forms of the console have no parts, so no parser of parts is run."""
        for kind in (b"multipart/form-data; boundary=x", b" Multipart/Form-Data"):
            self.assertIn(b" 415 ", self.answer(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: %b\r\n"
                b"Content-Length: 5\r\n\r\n--x--" % kind))

    def test_a_body_that_is_too_large(self) -> None:
        """Its length is enough to refuse it."""
        self.assertIn(b" 413 ", self.answer(
            POST + b"Content-Length: %d\r\n\r\n" % (REQUEST_BYTES_MAX + 1)))

    def test_a_request_that_comes_line_by_line(self) -> None:
        """Its time does not begin anew with each line; an idle connection ends as well."""
        channel, transport = self.connect()
        channel.dataReceived(b"GET / HTTP/1.1\r\n")
        for at in range(4):
            self.assertFalse(transport.disconnecting)
            self.clock.advance(REQUEST_S / 4)
            channel.dataReceived(b"x%d: y\r\n" % at)
        self.assertTrue(transport.disconnecting)
        channel, transport = self.connect()
        channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b" 200 ", transport.value())
        self.clock.advance(REQUEST_S)
        self.assertTrue(transport.disconnecting)

    def test_connections(self) -> None:
        """A further one is refused until another one has ended."""
        self.patch(bounded_site, "CONNECTIONS_MAX", 2)
        self.connect()
        self.connect()
        self.assertIs(self.site.buildProtocol(ADDRESS), None)
        self.doCleanups()
        self.assertIsNot(self.site.buildProtocol(ADDRESS), None)
