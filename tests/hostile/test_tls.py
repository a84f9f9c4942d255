"""Attacks before the first frame: TLS handshakes and PROXY headers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct

from tests.hostile.case import HostileCase
from tests.hostile.wire import WAIT_SECONDS, Closed, RawConnection, json_frame
from tests.interop.servers import wait_until
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.frame import FrameDecoder

_QUESTION = json_frame(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), '{"topic":"good_topic"}')
_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
#: One for all attackers, without the system's authorities, which take long to read.
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE
_HEADER = b"PROXY TCP4 192.0.2.7 10.0.0.1 555 10911\r\n"


class TlsAttacker:
    """A client of TLS whose bytes the attack sends as it likes.

    :param cut: bytes that are sent at a time; 0: all there are.
    """

    def __init__(self, address: str, cut: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WAIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cut = cut
        self._heard, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = _CONTEXT.wrap_bio(self._heard, self.out)

    def flush(self) -> None:
        data = self.out.read()
        size = self.cut or max(len(data), 1)
        for begin in range(0, len(data), size):
            self.socket.sendall(data[begin:begin + size])

    def hello(self) -> bytes:
        """The first bytes of a handshake, which are not sent."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self.out.read()
        raise AssertionError("a handshake ends with no answer")

    def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._hear()
            else:
                self.flush()
                return

    def _hear(self) -> None:
        data = self.socket.recv(65_536)
        if not data:
            raise Closed("the server closed the connection")
        self._heard.write(data)

    def ask(self) -> RemotingCommand:
        """Send a request that every server serves; :returns: the response."""
        self.tls.write(_QUESTION)
        self.flush()
        decoder, frames = FrameDecoder(), []
        while not frames:
            try:
                frames = list(decoder.feed(self.tls.read(65_536)))
            except ssl.SSLWantReadError:
                self._hear()
        return decode_command(frames[0])


class TlsAttackTests(HostileCase):
    """Handshakes that are invalid, stop or are slow; other clients do not notice them."""

    def attacker(self, address: str | None = None, cut: int = 0) -> TlsAttacker:
        attacker = TlsAttacker(address or self.broker, cut)
        self.addCleanup(attacker.socket.close)
        return attacker

    def assertCloses(self, attacker: TlsAttacker) -> None:
        """Check that the server closes the connection with one line, which may be later."""
        with contextlib.suppress(ConnectionResetError):
            while attacker.socket.recv(65_536):
                continue
        line = "{}:{} closed: TLS: ".format(*attacker.socket.getsockname())
        wait_until(line, lambda: self.logged(line))
        self.assertEqual(len(self.logged(line)), 1)

    def test_garbage_like_tls_is_closed_with_one_line(self) -> None:
        """The line says that it is no TLS."""
        for address in (self.broker, self.namesrv):
            for data in (b"\x16\x03\x01\x02\x00" + bytes(512), b"\x16" * 70_000,
                         b"\x16\x03\x03\x40\x00\x01" + b"\xff" * 16_384):
                attacker = self.attacker(address)
                attacker.socket.sendall(data)
                self.assertCloses(attacker)

    def test_byte_by_byte(self) -> None:
        """A handshake and a request in single bytes are answered like any other."""
        for address in (self.broker, self.namesrv):
            attacker = self.attacker(address, cut=1)
            attacker.shake_hands()
            self.assertEqual(attacker.ask().opaque, 7)

    def test_cut_anywhere(self) -> None:
        """A connection that ends within a handshake or a record is not logged."""
        attacker = self.attacker()
        hello = attacker.hello()
        for size in range(1, len(hello), 7):
            with RawConnection(self.broker) as connection:
                connection.says(hello[:size])
        for size in range(1, 60, 7):
            attacker = self.attacker()
            attacker.shake_hands()
            attacker.tls.write(_QUESTION)
            attacker.socket.sendall(attacker.out.read()[:size])
            attacker.socket.close()
        self.good.wait_for_rounds(5)
        self.assertEqual(self.logged("TLS: "), [])

    def test_half_open(self) -> None:
        """Hundreds of incomplete handshakes cost little, and do not delay other clients."""
        attackers = [self.attacker() for _ in range(200)]
        for attacker in attackers:
            attacker.socket.sendall(attacker.hello())
        for attacker in attackers:
            self.assertTrue(attacker.socket.recv(1))
        self.good.wait_for_rounds(20)

    def test_handshakes_without_end(self) -> None:
        """One client after the other makes a handshake and disconnects."""
        for number in range(150):
            attacker = self.attacker()
            attacker.shake_hands()
            if number % 2:
                attacker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                           struct.pack("ii", 1, 0))
            attacker.socket.close()
        self.good.wait_for_rounds(5)

    def test_records_that_lie(self) -> None:
        """After the handshake a record with another key ends the connection, with a line."""
        attacker = self.attacker()
        attacker.shake_hands()
        self.assertEqual(attacker.ask().opaque, 7)
        attacker.socket.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        self.assertCloses(attacker)


class ProxyAttackTests(HostileCase):
    """Headers that are invalid, endless or false."""

    def test_malformed_proxy_headers_are_closed_with_one_line(self) -> None:
        """The line has the real address."""
        for address in (self.broker, self.namesrv):
            for header, why in (
                (b"PROXY TCP4 a b c d\r\n", "not one of TCP4"),
                (b"PROXY " + b"9" * 10_000, "longer than 107"),
                (_SIGNATURE + b"\x21\x11\xff\xff", "65551 bytes"),
                (_SIGNATURE + b"\x21\x11\x00\x04" + bytes(4), "too few"),
            ):
                connection = self.connect(address)
                connection.says(header + _QUESTION)
                self.assertTrue(connection.is_closed())
                self.assertEqual(connection.heard, [])
                self.assertIn(why, self.assertLoggedOnce(connection, repr(header[:40])))

    def test_byte_by_byte(self) -> None:
        """A header and a request in single bytes are answered."""
        for header in (_HEADER, _SIGNATURE + b"\x21\x11\x00\x0c" + bytes(12)):
            connection = self.connect()
            for byte in header + _QUESTION:
                connection.says(bytes([byte]))
            self.assertEqual(connection.hears().opaque, 7)

    def test_half_headers(self) -> None:
        """Hundreds of incomplete headers cost almost nothing; those that are
        completed are served.
        """
        connections = [self.connect() for _ in range(300)]
        for connection in connections:
            connection.says(_SIGNATURE + b"\x21\x11\x0f\x00" + bytes(3000))
        self.good.wait_for_rounds(20)
        for connection in connections:
            connection.says(bytes(840) + _QUESTION)
        for connection in connections:
            self.assertEqual(connection.hears().opaque, 7)

    def test_header_within_header(self) -> None:
        """A second header, or TLS after one, is not accepted as a header."""
        connection = self.connect()
        connection.says(_HEADER + _HEADER + _QUESTION)
        self.assertTrue(connection.is_closed())
        self.assertEqual(connection.heard, [])
