"""What mqadmin asks about clients."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RemotingSendError, RemotingTimeout
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.wire.bodies import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerConnection,
    ProducerData,
    SubscriptionData,
)
from twistmq.broker.wire.command import VERSION, RemotingCommand
from twistmq.broker.wire.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from twistmq.plugins import admin
from twistmq.plugins.admin.clients import CALL_TIMEOUT_MS

CONSUMER = ConsumerData("g", ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (SubscriptionData("T"),))


class ClientsCase(SynchronousTestCase):
    """A broker with one client, which produces and consumes."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin)])
        self.addCleanup(self.box.stop)
        self.client = self.box.peer()
        heartbeat = HeartbeatData("client", (ProducerData("p"),), (CONSUMER,))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard(), peer=self.client)
        self.client.requests.clear()
        self.connection = Connection("client", self.client.remote_address, "PYTHON", VERSION)


class ConnectionsTests(ClientsCase):
    """203 and 204."""

    def test_consumers(self) -> None:
        """The members of a group, how they consume, what they subscribe to."""
        reply = self.box.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST,
                             GetConsumerConnectionListRequestHeader(consumer_group="g"))
        self.assertEqual(ConsumerConnection.decode(reply.body), ConsumerConnection(
            (self.connection,), {"T": SubscriptionData("T")}, ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET))

    def test_producers(self) -> None:
        """The members of a group."""
        reply = self.box.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST,
                             GetProducerConnectionListRequestHeader(producer_group="p"))
        self.assertEqual(ProducerConnection.decode(reply.body),
                         ProducerConnection((self.connection,)))

    def test_groups_without_members(self) -> None:
        """Said with the codes and remarks the tools know."""
        self.box.kernel.channels.remove(self.client)
        reply = self.box.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST,
                             GetConsumerConnectionListRequestHeader(consumer_group="g"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[g] not online"))
        reply = self.box.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST,
                             GetProducerConnectionListRequestHeader(producer_group="p"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR, "the producer group[p] not exist"))


class RunningInfoTests(ClientsCase):
    """307."""

    def setUp(self) -> None:
        super().setUp()
        self.tool = self.box.peer()
        self.header = GetConsumerRunningInfoRequestHeader(
            consumer_group="g", client_id="client", jstack_enable=True)

    def ask(self, header: GetConsumerRunningInfoRequestHeader) -> RemotingCommand:
        return self.box.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)

    def late_reply(self, peer: Peer) -> RemotingCommand:
        reply, = self.box.late_replies(peer)
        return reply

    def hand_on(self) -> None:
        reply = self.box.send(self.tool, RequestCode.GET_CONSUMER_RUNNING_INFO, self.header)
        self.assertIsNone(reply)

    def test_handed_on(self) -> None:
        """The client is asked the same, and what it answers is the answer."""
        self.hand_on()
        request, = self.client.requests
        self.assertEqual((request.code, request.header, request.timeout_ms), (
            RequestCode.GET_CONSUMER_RUNNING_INFO, self.header, CALL_TIMEOUT_MS))
        self.assertEqual(self.tool.written, [])
        assert request.reply is not None
        request.reply.callback(RemotingCommand(0, body=b'{"jstack":"..."}'))
        reply = self.late_reply(self.tool)
        self.assertEqual((reply.code, reply.body), (0, b'{"jstack":"..."}'))
        self.assertEqual(self.tool.held_bytes, 0)

    def test_refusal_is_handed_on(self) -> None:
        """A client's refusal is the answer too."""
        self.hand_on()
        reply = self.client.requests[0].reply
        assert reply is not None
        reply.callback(RemotingCommand(1, remark="no such group here"))
        answer = self.late_reply(self.tool)
        self.assertEqual((answer.code, answer.remark), (1, "no such group here"))

    def test_silent_client(self) -> None:
        """A client that does not answer in time has a code of its own."""
        self.hand_on()
        reply = self.client.requests[0].reply
        assert reply is not None
        reply.errback(RemotingTimeout("no reply for 10000 ms"))
        answer = self.late_reply(self.tool)
        self.assertEqual((answer.code, answer.remark), (
            ResponseCode.CONSUME_MSG_TIMEOUT,
            "consumer <g> <client> Timeout: no reply for 10000 ms"))

    def test_lost_client(self) -> None:
        """A client that is lost before it answers."""
        self.hand_on()
        reply = self.client.requests[0].reply
        assert reply is not None
        reply.errback(RemotingSendError("connection lost"))
        answer = self.late_reply(self.tool)
        self.assertEqual((answer.code, answer.remark), (
            ResponseCode.SYSTEM_ERROR, "invoke consumer <g> <client> Exception: connection lost"))

    def test_not_online(self) -> None:
        """A client that is not there, in this group."""
        for group, client_id in (("g", "other"), ("h", "client")):
            reply = self.ask(GetConsumerRunningInfoRequestHeader(
                consumer_group=group, client_id=client_id))
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"))

    def test_old_client(self) -> None:
        """A client from before there was this question is not asked."""
        client = self.box.kernel.clients.find_consumer("g", "client")
        assert client is not None
        client.version = 61
        reply = self.ask(self.header)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR, "The Consumer <client> Version <61> too low to finish, "
            "please upgrade it to V3_1_8_SNAPSHOT"))
        self.assertEqual(self.client.requests, [])
