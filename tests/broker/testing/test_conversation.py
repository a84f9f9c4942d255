"""Conversations: the connection in memory behaves as Twisted's own."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.broker.testing import Conversation, make_server
from twistmq.broker.testing.conversation import read_commands
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import encode_request

ECHO = 901


class ConversationTests(SynchronousTestCase):
    """The data that a client sends and receives."""

    def setUp(self) -> None:
        rows = [RequestHandler(ECHO, lambda request: Reply(body=request.body))]
        self.server = make_server(rows)
        self.client = Conversation(self.server, peer="192.0.2.1", peer_port=5, local_port=7)

    def test_says_and_hears(self) -> None:
        """Replies are returned once, in the order of their arrival."""
        self.client.says(encode_request(ECHO, 1), encode_request(RequestCode.HEART_BEAT, 2))
        self.assertEqual(self.client.hears(), [
            (1, ResponseCode.SUCCESS), (2, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)])
        self.assertEqual(self.client.hears(), [])

    def test_the_protocol_sees_the_addresses_the_test_gives(self) -> None:
        """The protocol has the addresses that the test gives."""
        self.assertEqual(self.client.protocol.remote_address, "192.0.2.1:5")
        self.assertEqual(self.client.protocol.local_port, 7)

    def test_peer_that_does_not_read(self) -> None:
        """Written data waits until the peer reads."""
        self.client.connection.peer_reads = False
        self.client.says(encode_request(ECHO, 1))
        self.assertEqual((self.client.hears(), len(self.client.connection.writes)), ([], 1))
        self.client.connection.peer_reads = True
        self.assertEqual(self.client.hears(), [(1, ResponseCode.SUCCESS)])

    def test_writing_to_a_paused_protocol_is_an_error_of_the_test(self) -> None:
        """To send to a protocol that does not read is an error of the test."""
        self.client.protocol.close()
        self.assertRaises(AssertionError, self.client.says, b"x")

    def test_part_of_a_frame(self) -> None:
        """Bytes of an incomplete frame are reported."""
        frame = encode_request(ECHO, 1)
        self.assertEqual(len(read_commands(frame + frame)), 2)
        self.assertRaises(AssertionError, read_commands, frame[:-1])
        self.assertRaises(AssertionError, read_commands, bytes(8))

    def test_the_servers_time_is_a_clock_the_test_moves(self) -> None:
        """The server uses a clock that the test moves."""
        before = self.server.now_ms()
        self.server.reactor.advance(1.5)  # type: ignore[attr-defined]
        self.assertEqual(self.server.now_ms() - before, 1500)
