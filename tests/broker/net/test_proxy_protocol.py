"""The PROXY protocol: headers of both versions, whole and incomplete, and trusted proxies."""

from __future__ import annotations

import socket
import struct

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import FIRST_BYTES_SECONDS, PROXY_HEADER_SIZE_MAX
from twistmq.broker.edge import boot
from twistmq.broker.errors import SettingsError
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.net.proxy_protocol import (
    ProxyHeader,
    ProxyHeaderError,
    ProxyProtocol,
    parse_proxy_header,
    proxy_stage,
)
from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.broker.testing.conversation import BEGIN_MS, Conversation, make_server
from twistmq.protocol.command import encode_request
from twistmq.protocol.log_rate import LINES_A_MINUTE

ECHO = 901
FRAME = encode_request(ECHO, 1)
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_SIZES = {socket.AF_INET: (0x11, 4), socket.AF_INET6: (0x21, 16)}


def binary(
    ip: str = "192.0.2.7", port: int = 555, *, command: int = 0x21, family: int | None = None,
    more: bytes = b"", length: int | None = None,
) -> bytes:
    """Return a header of version 2.

    :param more: fields after the addresses.
    :param length: what it says its length is; None: the truth.
    """
    kind = socket.AF_INET6 if ":" in ip else socket.AF_INET
    code, _ = _SIZES[kind]
    packed = socket.inet_pton(kind, ip)
    rest = packed + packed + struct.pack(">HH", port, 10_911) + more
    return SIGNATURE + struct.pack(
        ">BBH", command, code if family is None else family,
        len(rest) if length is None else length) + rest


class ParseTests(SynchronousTestCase):
    """The headers for parse_proxy_header."""

    def test_headers_of_both_versions_and_families_are_read(self) -> None:
        """Headers of both versions and families are read, and those without an address."""
        for data, ip, port in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 555 10911\r\n", "192.0.2.7", 555),
            (b"PROXY TCP6 2001:DB8::1 ::1 65535 1\r\n", "2001:db8::1", 65_535),
            (b"PROXY UNKNOWN\r\n", "", 0),
            (b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n", "", 0),
            (b"PROXY TCP6 " + b" ".join([b"ffff:" * 7 + b"ffff"] * 2) + b" 65535 65535\r\n",
             "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65_535),
            (binary(), "192.0.2.7", 555),
            (binary("2001:db8::1", 1), "2001:db8::1", 1),
            (binary(more=b"\x04\x00\x03abc"), "192.0.2.7", 555),
            (binary(command=0x20), "", 0),
            (binary(family=0x00), "", 0),
            (SIGNATURE + b"\x20\x00\x00\x00", "", 0),
            (SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216), "", 0),
            (binary(more=bytes(PROXY_HEADER_SIZE_MAX - 28)), "192.0.2.7", 555),
        ]:
            expected = ProxyHeader(len(data), ip, port)
            self.assertEqual(parse_proxy_header(data), expected, msg=repr(data))
            self.assertEqual(parse_proxy_header(data + FRAME), expected, msg=repr(data))
            for size in range(6, len(data)):
                self.assertIsNone(parse_proxy_header(data[:size]), msg=repr(data[:size]))

    def test_a_malformed_proxy_header_is_refused_with_the_reason(self) -> None:
        """Bytes that begin as a header and are invalid are refused with the reason."""
        for data, why in [
            (b"PROXY \r\n", "is not: PROXY"),
            (b"PROXY TCP4\r\n", "is not: PROXY"),
            (b"PROXY UDP4 192.0.2.7 10.0.0.1 555 10911\r\n", "is not: PROXY"),
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 555\r\n", "is not: PROXY"),
            (b"PROXY TCP4  192.0.2.7 10.0.0.1 555 1\r\n", "is not: PROXY"),
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 555 1 1\r\n", "is not: PROXY"),
            (b"PROXY TCP4 2001:db8::1 ::1 555 1\r\n", "not one of TCP4"),
            (b"PROXY TCP4 192.0.2.256 10.0.0.1 555 1\r\n", "not one of TCP4"),
            (b"PROXY TCP4 localhost 10.0.0.1 555 1\r\n", "not one of TCP4"),
            (b"PROXY TCP4 \xff 10.0.0.1 555 1\r\n", "not one of TCP4"),
            (b"PROXY TCP6 fe80::1%eth0 ::1 555 1\r\n", "not one of TCP6"),
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 1\r\n", "not valid"),
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 +5 1\r\n", "not valid"),
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 555 \r\n", "not valid"),
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 000555 1\r\n", "not valid"),
            (b"PROXY " + b"x" * 101, "longer than 107"),
            (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "longer than 107"),
            (binary(command=0x11), "version 1 with command 1"),
            (binary(command=0x22), "version 2 with command 2"),
            (binary(family=0x12), "0x12 is not TCP's"),
            (binary(length=11), "11 bytes are too few"),
            (binary("::1", length=35), "35 bytes are too few"),
            (binary(length=PROXY_HEADER_SIZE_MAX - 15), "4097 bytes; the limit is 4096"),
            (binary(length=65_535), "65551 bytes"),
        ]:
            error = self.assertRaises(ProxyHeaderError, parse_proxy_header, data)
            self.assertIn(why, str(error), msg=repr(data))


class StageTests(SynchronousTestCase):
    """The stage in a connection."""

    def setUp(self) -> None:
        self.stage = ProxyProtocol(None, lambda: BEGIN_MS)

    def client_of(self, stage: ProxyProtocol) -> Conversation:
        return Conversation(make_server([RequestHandler(ECHO, lambda _: Reply())],
                                        first_bytes=(stage,)))

    def test_the_clients_address_is_the_connections(self) -> None:
        """The client's address is the connection's, for logs and for records, however it is cut."""
        for header, name, host in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 555 10911\r\n", "192.0.2.7:555",
             bytes([192, 0, 2, 7, 0, 0, 2, 43])),
            (binary("2001:db8::1", 2), "[2001:db8::1]:2",
             socket.inet_pton(socket.AF_INET6, "2001:db8::1") + bytes([0, 0, 0, 2])),
            (b"PROXY UNKNOWN\r\n", "10.1.2.3:40000", bytes([10, 1, 2, 3, 0, 0, 156, 64])),
        ]:
            data = header + FRAME
            for size in (1, 5, 7, 16, len(header), len(data)):
                client = self.client_of(self.stage)
                for begin in range(0, len(data), size):
                    client.says(data[begin:begin + size])
                self.assertEqual(client.hears(), [(1, 0)], msg=f"{header!r} by {size}")
                self.assertEqual(client.protocol.remote_address, name)
                self.assertEqual(client.protocol.remote_host, host)

    def test_frames_pass(self) -> None:
        """A frame is recognised by its first byte, so it does not wait."""
        self.assertIs(self.stage.recognise(FRAME[:1]), False)
        self.assertIs(self.stage.recognise(b"\x16"), False)
        self.assertIs(self.stage.recognise(b"POST /"), False)
        client = self.client_of(self.stage)
        for byte in FRAME:
            client.says(bytes([byte]))
        self.assertEqual(client.hears(), [(1, 0)])

    def test_only_once(self) -> None:
        """A header after the first is a frame, which it is not."""
        client = self.client_of(self.stage)
        client.says(binary() + binary("192.0.2.8") + FRAME)
        self.assertTrue(client.is_closed)
        self.assertEqual(client.protocol.remote_address, "192.0.2.7:555")

    def test_malformed_is_one_line(self) -> None:
        """The connection is closed, and the line has its real address; lines are limited."""
        for number in range(LINES_A_MINUTE + 5):
            client = self.client_of(self.stage)
            client.says(binary(length=65_535))
            self.assertTrue(client.is_closed, msg=str(number))
            self.assertEqual(client.connection.writes, [])

    def test_half_a_header(self) -> None:
        """A peer that does not complete it is disconnected in time, even if it
        sends byte by byte.
        """
        client = self.client_of(self.stage)
        clock = client.server.reactor
        header = binary(more=bytes(4000), length=4012)
        for at in range(20):
            if client.is_closed:
                break
            client.says(header[at:at + 1])
            clock.advance(FIRST_BYTES_SECONDS / 10)  # type: ignore[attr-defined]
        self.assertTrue(client.is_closed)
        self.assertEqual(at, 10)
        whole = self.client_of(self.stage)
        whole.says(header[:20])
        whole.says(header[20:], FRAME)
        whole.server.reactor.advance(2 * FIRST_BYTES_SECONDS)  # type: ignore[attr-defined]
        self.assertEqual(whole.hears(), [(1, 0)])
        gone = self.client_of(self.stage)
        gone.says(header[:20])
        gone.connection.drop()
        self.assertEqual(gone.server.reactor.getDelayedCalls(), [])  # type: ignore[attr-defined]


class TrustTests(SynchronousTestCase):
    """The proxies whose headers are trusted."""

    def address(self, peer: str, **settings: str) -> str | None:
        """Return the address for a connection from ``peer``; None if it is closed."""
        overrides = {name.replace("_", "."): text for name, text in settings.items()}
        stage = proxy_stage(boot.broker_settings(None, overrides), lambda: BEGIN_MS)
        client = Conversation(make_server(first_bytes=(stage,)), peer=peer)
        client.says(binary())
        return None if client.is_closed else client.protocol.remote_address

    def test_trust_follows_the_setting_and_acl(self) -> None:
        """By default all are trusted, under ACL none, otherwise the named ones."""
        told = "192.0.2.7:555"
        for peer, settings, expected in [
            ("10.1.2.3", {}, told),
            ("10.1.2.3", {"aclEnable": "true"}, None),
            ("10.1.2.3", {"aclEnable": "true", "proxy_trusted": "*"}, told),
            ("10.1.2.3", {"aclEnable": "true", "proxy_trusted": "10.1.0.0/16"}, told),
            ("10.2.2.3", {"proxy_trusted": "10.1.0.0/16, 127.0.0.1"}, None),
            ("127.0.0.1", {"proxy_trusted": "10.1.0.0/16, 127.0.0.1"}, told),
            ("::1", {"proxy_trusted": "127.0.0.1"}, None),
            ("::1", {"proxy_trusted": "::/0"}, told),
            ("::ffff:10.1.2.3", {"proxy_trusted": "10.1.2.3"}, told),
        ]:
            self.assertEqual(self.address(peer, **settings), expected, msg=repr((peer, settings)))

    def test_who_is_charged(self) -> None:
        """A host that is not trusted counts as one host, whatever addresses it sends."""
        for settings, expected in (({}, "10.1.2.3"), ({"proxy.trusted": "*"}, "192.0.2.7"),
                                   ({"proxy.trusted": "10.0.0.0/8"}, "192.0.2.7")):
            stage = proxy_stage(boot.broker_settings(None, settings), lambda: BEGIN_MS)
            client = Conversation(make_server(first_bytes=(stage,)), peer="10.1.2.3")
            client.says(binary())
            self.assertEqual(host_of(client.protocol.charged_address), expected)
            self.assertEqual(host_of(client.protocol.remote_address), "192.0.2.7")

    def test_an_invalid_network_stops_the_start(self) -> None:
        """The error has the invalid network and the setting."""
        for text in ("10.0.0.1/8", "proxy.example", "10.0.0.256"):
            settings = boot.broker_settings(None, {"proxy.trusted": text})
            error = self.assertRaises(SettingsError, proxy_stage, settings, lambda: 0)
            self.assertIn(f"proxy.trusted={text} (command line): the value must be", str(error))
