"""The addresses from an address server, and the limits for such a server."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler
from threading import Event

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.broker.client.http_page import HttpPage
from twistmq.broker.client import address_server
from twistmq.broker.client.address_server import AddressServer
from twistmq.protocol.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    RemotingTooLong,
)


class AddressServerTests(TestCase):
    """Requests to a real HTTP server."""

    timeout = 30

    def setUp(self) -> None:
        self.page = HttpPage("10.0.0.1:9876;ns.example:9877")
        self.addCleanup(self.page.stop)
        self.server = AddressServer(reactor)
        self.url = f"http://{self.page.address}/rocketmq/nsaddr"

    async def refused(self, kind: type[RemotingError] = RemotingError) -> str:
        """Send a request; :returns: the reason why there are no addresses."""
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.server.fetch(self.url)), RemotingError)
        self.assertIs(type(error), kind)
        return str(error)

    async def test_the_first_line_gives_each_address_once(self) -> None:
        """The first line is used, and each address once."""
        for text in ("10.0.0.1:9876;ns.example:9877", "10.0.0.1:9876;ns.example:9877\n",
                     "\r\n 10.0.0.1:9876;ns.example:9877;10.0.0.1:9876;\r\nwhatever follows\n"):
            self.page.text = text
            self.assertEqual(await self.server.fetch(self.url),
                             ["10.0.0.1:9876", "ns.example:9877"], msg=repr(text))
        self.assertEqual(set(self.page.requests), {"/rocketmq/nsaddr"})

    async def test_answer_without_length(self) -> None:
        """A server may mark the end of its response by closing the connection."""
        self.page.answer = lambda handler: self.raw(handler, b"HTTP/1.0 200 OK\r\n\r\nh:1\n")
        self.assertEqual(await self.server.fetch(self.url), ["h:1"])

    @staticmethod
    def raw(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        handler.close_connection = True
        handler.wfile.write(data)

    async def test_no_addresses(self) -> None:
        """Either the whole line consists of addresses, or none of it is used."""
        for text in ("", "\n\n", "<html><body>welcome</body></html>", "h:1;i", "h:1;i:x",
                     "h:1;i:70000", "h:1;:2"):
            self.page.text = text
            self.assertIn("the answer cannot be used", await self.refused(), msg=repr(text))

    async def test_bytes_that_are_not_text_are_refused(self) -> None:
        """Such a response is refused."""
        self.page.answer = lambda handler: self.raw(
            handler, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\xff:1")
        self.assertIn("the answer cannot be used", await self.refused())

    async def test_a_status_other_than_200_is_no_answer(self) -> None:
        """A response with a status other than 200 is ignored, whatever its content is."""
        for status in (204, 403, 404, 500):
            self.page.status = status
            self.page.text = "" if status == 204 else "h:1"
            self.assertEqual(await self.refused(), f"the answer is HTTP status {status}")

    async def test_redirects_are_followed_up_to_a_limit(self) -> None:
        """Redirects are followed up to a limit."""
        other = HttpPage("h:1")
        self.addCleanup(other.stop)
        self.page.status, self.page.text = 302, "moved"
        self.page.headers["Location"] = f"http://{other.address}/x"
        self.assertEqual(await self.server.fetch(self.url), ["h:1"])
        self.assertEqual(other.requests, ["/x"])
        self.page.headers["Location"] = "/again"
        self.page.requests.clear()
        self.assertIn("another page's address", await self.refused())
        self.assertEqual(self.page.requests, ["/rocketmq/nsaddr", *["/again"] * 3])
        del self.page.headers["Location"]
        self.assertIn("another page's address", await self.refused())
        self.page.headers["Location"] = "ftp://127.0.0.1/"
        self.assertIn("ftp", await self.refused(RemotingConnectError))

    async def test_an_endless_answer_is_cut_off(self) -> None:
        """A response without an end is cut off, and its connection is closed."""
        is_closed = Event()

        def endless(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.end_headers()
            try:
                while not self.page.is_over.is_set():
                    handler.wfile.write(b"h:1;" * 1000)
            except OSError:
                is_closed.set()

        self.page.answer = endless
        self.assertIn("more than 8192 bytes", await self.refused(RemotingTooLong))
        await self.until(is_closed)

    async def until(self, happened: Event) -> None:
        while not happened.is_set():
            await deferLater(reactor, 0.001)

    async def test_a_slow_answer_is_given_up(self) -> None:
        """However it is slow: no answer at all, or a byte now and then."""
        self.patch(address_server, "_TIMEOUT_SECONDS", 0.3)

        def silent(handler: BaseHTTPRequestHandler) -> None:
            self.page.is_over.wait()

        def slow(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.end_headers()
            try:
                while not self.page.is_over.wait(0.02):
                    handler.wfile.write(b"h")
            except OSError:
                is_closed.set()

        for answer in (silent, slow):
            is_closed = Event()
            self.page.answer = answer
            self.assertEqual(await self.refused(RemotingTimeout), "no answer within 0.3 s")
        await self.until(is_closed)

    async def test_a_server_that_does_not_listen_or_hangs_up_is_an_error(self) -> None:
        """No server listens, or the server closes the connection."""
        self.page.answer = lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)
        self.assertNotIn("Failure", await self.refused(RemotingConnectError))
        with socket.create_server(("127.0.0.1", 0)) as port:
            self.url = f"http://127.0.0.1:{port.getsockname()[1]}/"
        self.assertIn("refused", (await self.refused(RemotingConnectError)).lower())

    async def test_a_question_that_is_being_asked_ends_at_once(self) -> None:
        """A request that waits ends immediately when it is cancelled."""
        is_asked = Event()

        def silent(handler: BaseHTTPRequestHandler) -> None:
            is_asked.set()
            self.page.is_over.wait()

        self.server.stop()
        self.page.answer = silent
        asking = Deferred.fromCoroutine(self.server.fetch(self.url))
        await self.until(is_asked)
        self.assertFalse(asking.called)
        self.server.stop()
        self.assertTrue(asking.called)
        await self.assertFailure(asking, RemotingError)
