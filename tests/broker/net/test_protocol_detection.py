"""The first bytes of a connection: stages that wait for bytes, consume them, and
follow each other.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel, capturedLogs

from tests.broker.net.test_protocol import ECHO, ProtocolTestCase
from twistmq.broker.net.protocol import RemotingProtocol
from twistmq.broker.net.protocol_detection import TlsRefused
from twistmq.broker.testing.conversation import Conversation
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.log_rate import EVENTS_A_MINUTE


class _Proxy:
    """A stage like that of the PROXY protocol, whose line has the address of the peer."""

    def recognise(self, data: bytes) -> bool | None:
        if not b"PROXY ".startswith(data[:6]):
            return False
        return True if b"\r\n" in data else None

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        line, _, rest = data.partition(b"\r\n")
        words = line.decode().split()
        connection.set_remote_address(words[2], int(words[4]))
        return rest


class _Reverse:
    """A stage in place of TLS, which inverts each byte after its mark."""

    def recognise(self, data: bytes) -> bool | None:
        return data[:1] == b"\x16"

    def take(self, connection: RemotingProtocol, data: bytes) -> bytes:
        return bytes(255 - byte for byte in data[1:])


class FirstBytesStageTests(ProtocolTestCase):
    """A stage that looks at the first bytes: TLS, the PROXY protocol."""

    def client_of(self, *stages: Any) -> Conversation:
        return Conversation(self.make_server(first_bytes=stages))

    def test_tls_is_refused_by_name(self) -> None:
        """A TLS hello closes the connection and is not called a bad frame."""
        self.client.says(b"\x16\x03\x01\x02\x00")
        self.assertTrue(self.client.is_closed)
        self.assertEqual(self.client.connection.writes, [])

    def test_lines_of_the_log(self) -> None:
        """Many connections that are closed do not fill the log, whatever they sent."""
        for data in (b"\x16\x03\x01\x02\x00", b"\xff" * 64):
            with capturedLogs() as events:
                for _ in range(EVENTS_A_MINUTE + 50):
                    client = Conversation(self.server)
                    client.says(data)
                    self.assertTrue(client.is_closed)
            self.assertEqual(len([event for event in events
                                  if event["log_level"] is LogLevel.warn]), EVENTS_A_MINUTE)

    def test_plain_clients_pass(self) -> None:
        """Bytes that belong to no stage are passed on, together or one by one."""
        frame = encode_request(ECHO, 1)
        for data in ([frame], [frame[i:i + 1] for i in range(len(frame))]):
            client = self.client_of(_Proxy(), _Reverse())
            for part in data:
                client.says(part)
            self.assertEqual(client.hears(), [(1, ResponseCode.SUCCESS)])
            self.assertEqual(client.protocol.remote_address, "10.1.2.3:40000")

    def test_stages_follow_each_other(self) -> None:
        """The next stage gets the remaining bytes; each may wait for more."""
        frame = encode_request(ECHO, 1)
        data = b"PROXY TCP4 192.0.2.7 10.0.0.1 555 10911\r\n\x16" + bytes(255 - b for b in frame)
        line_end = data.index(b"\n") + 1
        for cuts in ([len(data)], [3, 20, len(data)], [line_end, len(data)]):
            client = self.client_of(_Proxy(), _Reverse())
            begin = 0
            for end in cuts:
                client.says(data[begin:end])
                begin = end
            self.assertEqual(client.hears(), [(1, ResponseCode.SUCCESS)], msg=repr(cuts))
            self.assertEqual(client.protocol.remote_address, "192.0.2.7:555")
            self.assertEqual(client.protocol.remote_host, bytes([192, 0, 2, 7, 0, 0, 2, 43]))

    def test_only_the_first_bytes(self) -> None:
        """Later bytes are frames, whatever they look like."""
        client = self.client_of(_Proxy(), TlsRefused())
        client.says(encode_request(ECHO, 1))
        client.says(b"PROXY TCP4 192.0.2.7 10.0.0.1 555 10911\r\n")
        self.assertTrue(client.is_closed)
        self.assertEqual(client.protocol.remote_address, "10.1.2.3:40000")
