"""The registry of live channels, and requests from the server to a client."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.messages import Channel
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import encode_reply
from twistmq.protocol.errors import RemotingSendError, RemotingTimeout
from twistmq.protocol.header import CommandHeader


class CheckHeader(CommandHeader):
    """The header of a request of the server."""

    msg_id: str


class ChannelTableTests(SynchronousTestCase):
    """The channels that are live."""

    def setUp(self) -> None:
        self.server = make_server()
        self.table = self.server.channels

    def test_connections_come_and_go(self) -> None:
        """A connection is in the table from its start to its end."""
        first, second = Conversation(self.server), Conversation(self.server, peer="::1")
        self.assertEqual(len(self.table), 2)
        self.assertEqual([channel.remote_address for channel in self.table],
                         ["10.1.2.3:40000", "[::1]:40000"])
        self.assertEqual(first.protocol.remote_host, bytes([10, 1, 2, 3, 0, 0, 0x9C, 0x40]))
        self.assertEqual(len(second.protocol.remote_host), 20)
        self.assertIs(self.table.get(first.protocol.channel_id), first.protocol)
        first.connection.drop()
        self.assertEqual(list(self.table), [second.protocol])
        self.assertIsNone(self.table.get(first.protocol.channel_id))
        self.assertFalse(first.protocol.active)

    def test_each_listener_hears_of_a_lost_channel_once(self) -> None:
        """Each listener is called once for a lost channel, even if another one raises."""
        lost: list[Channel] = []

        def once(channel: Channel) -> None:
            self.table.on_lost.remove(once)
            lost.append(channel)

        def broken(channel: Channel) -> None:
            raise ZeroDivisionError("broken")

        self.table.on_lost += [once, broken, lost.append]
        client = Conversation(self.server)
        client.connection.drop()
        self.assertEqual(lost, [client.protocol, client.protocol])
        self.table.remove(client.protocol)
        self.assertEqual(len(lost), 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_iteration_while_connections_go(self) -> None:
        """Channels may be closed while they are iterated over."""
        clients = [Conversation(self.server) for _ in range(3)]
        for channel in self.table:
            channel.close()
        for client in clients:
            client.connection.pump()
        self.assertEqual(len(ChannelTable()), len(self.table))


class ServerToClientTests(SynchronousTestCase):
    """Requests from server to client, with a reply and a time-out, and one-way ones."""

    def setUp(self) -> None:
        self.server = make_server()
        self.client = Conversation(self.server)
        self.channel = self.client.protocol

    def test_call_and_reply(self) -> None:
        """The reply with the request's opaque is the answer; others are not."""
        answer = self.channel.call(RequestCode.CHECK_TRANSACTION_STATE, CheckHeader(msg_id="m"),
                                   b"body", timeout_ms=3000)
        other = self.channel.call(RequestCode.GET_CONSUMER_RUNNING_INFO, None, timeout_ms=3000)
        request, second = self.client.heard()
        self.assertEqual((request.code, request.body), (39, b"body"))
        self.assertFalse(request.is_response or request.is_oneway)
        self.assertEqual(request.header(CheckHeader).msg_id, "m")
        self.assertNotEqual(request.opaque, second.opaque)
        self.client.says(encode_reply(ResponseCode.SUCCESS, 999, None, b"", None))
        self.assertNoResult(answer)
        self.client.says(encode_reply(ResponseCode.SYSTEM_BUSY, second.opaque, None, b"r", "why"))
        reply = self.successResultOf(other)
        self.assertEqual((reply.code, reply.body, reply.remark),
                         (ResponseCode.SYSTEM_BUSY, b"r", "why"))
        self.assertNoResult(answer)
        self.client.says(encode_reply(ResponseCode.SUCCESS, request.opaque, None, b"", None))
        self.assertEqual(self.successResultOf(answer).code, ResponseCode.SUCCESS)
        self.assertEqual(self.server.reactor.getDelayedCalls(), [])

    def test_a_call_without_a_reply_in_time_fails(self) -> None:
        """A call without a reply in time fails; a late reply is dropped."""
        answer = self.channel.call(RequestCode.CHECK_TRANSACTION_STATE, None, timeout_ms=3000)
        [request] = self.client.heard()
        self.server.reactor.advance(2.999)
        self.assertNoResult(answer)
        self.server.reactor.advance(0.001)
        error = self.failureResultOf(answer, RemotingTimeout).value
        self.assertIn("10.1.2.3:40000", str(error))
        self.client.says(encode_reply(ResponseCode.SUCCESS, request.opaque, None, b"", None))
        self.assertEqual(self.client.hears(), [])

    def test_lost_connection(self) -> None:
        """Calls fail when the connection is lost, and when it was lost before."""
        answer = self.channel.call(RequestCode.CHECK_TRANSACTION_STATE, None, timeout_ms=3000)
        self.client.connection.drop()
        self.failureResultOf(answer, RemotingSendError)
        self.assertEqual(self.server.reactor.getDelayedCalls(), [])
        late = self.channel.call(RequestCode.CHECK_TRANSACTION_STATE, None, timeout_ms=3000)
        self.failureResultOf(late, RemotingSendError)

    def test_a_one_way_request_is_marked_as_such(self) -> None:
        """A one-way request is marked; on a lost connection it causes no error."""
        self.channel.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, CheckHeader(msg_id="m"))
        [request] = self.client.heard()
        self.assertEqual(request.code, 40)
        self.assertTrue(request.is_oneway)
        self.client.connection.drop()
        self.channel.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, None)
