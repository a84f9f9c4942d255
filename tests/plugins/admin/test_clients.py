"""The requests of mqadmin about clients."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.scheduling.scheduler import SLICE_MS
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.plugins.admin.clients import CALL_TIMEOUT_MS, STATUS_TIMEOUT_MS
from twistmq.protocol.bodies import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    GetConsumerStatusBody,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    ProducerConnection,
    ProducerData,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.errors import RemotingError, RemotingSendError, RemotingTimeout
from twistmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import decode_record

CONSUMER = ConsumerData("g", ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (SubscriptionData("T"),))


class ClientsCase(SynchronousTestCase):
    """A broker with one client, which produces and consumes."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)])
        self.addCleanup(self.box.stop)
        self.client = self.box.peer()
        heartbeat = HeartbeatData("client", (ProducerData("p"),), (CONSUMER,))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard(), peer=self.client)
        self.client.requests.clear()
        self.connection = Connection("client", self.client.remote_address, "PYTHON", VERSION)


class ConnectionsTests(ClientsCase):
    """The requests 203 and 204."""

    def test_the_members_of_a_group(self) -> None:
        """The response has the members of a group, their way of consuming and their
        subscriptions.
        """
        reply = self.box.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST,
                             GetConsumerConnectionListRequestHeader(consumer_group="g"))
        self.assertEqual(ConsumerConnection.decode(reply.body), ConsumerConnection(
            (self.connection,), {"T": SubscriptionData("T")}, ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET))

    def test_the_producers_of_a_group_are_listed(self) -> None:
        """The response has the producers of a group."""
        reply = self.box.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST,
                             GetProducerConnectionListRequestHeader(producer_group="p"))
        self.assertEqual(ProducerConnection.decode(reply.body),
                         ProducerConnection((self.connection,)))

    def test_groups_without_members(self) -> None:
        """The refusals have the codes and remarks that the tools know."""
        self.box.kernel.channels.remove(self.client)
        reply = self.box.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST,
                             GetConsumerConnectionListRequestHeader(consumer_group="g"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[g] not online"))
        reply = self.box.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST,
                             GetProducerConnectionListRequestHeader(producer_group="p"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR, "the producer group[p] not exist"))


class AllProducersTests(ClientsCase):
    """The request 328."""

    def test_every_group_with_its_clients(self) -> None:
        """The response has every group with its clients, and the time when each was
        last heard of.
        """
        self.box.now_ms += 5000
        other = self.box.peer()
        heartbeat = HeartbeatData("other", (ProducerData("p"), ProducerData("q")))
        self.box.ask(RequestCode.HEART_BEAT, body=heartbeat.encode_standard(), peer=other)

        def info(client_id: str, peer: Peer, seen_ms: int) -> ProducerInfo:
            return ProducerInfo(client_id, f"/{peer.remote_address}", "PYTHON", VERSION, seen_ms)

        now_ms = self.box.now_ms
        reply = self.box.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        self.assertEqual(ProducerTableInfo.decode(reply.body).data, {
            "p": [info("client", self.client, now_ms - 5000), info("other", other, now_ms)],
            "q": [info("other", other, now_ms)]})

    def test_without_producers_the_table_is_empty(self) -> None:
        """Without producers the table is empty."""
        self.box.kernel.channels.remove(self.client)
        self.assertEqual(self.box.ask(RequestCode.GET_ALL_PRODUCER_INFO).body, b'{"data":{}}')


class StatusTests(ClientsCase):
    """The request 223."""

    def setUp(self) -> None:
        super().setUp()
        self.other = self.box.peer()
        self.box.ask(RequestCode.HEART_BEAT, peer=self.other,
                     body=HeartbeatData("other", (), (CONSUMER,)).encode_standard())
        self.client.requests.clear()
        self.other.requests.clear()
        self.tool = self.box.peer()

    def ask(self, client: str | None = None, group: str = "g") -> RemotingCommand | None:
        return self.box.send(
            self.tool, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            GetConsumerStatusRequestHeader(topic="T", group=group, client_addr=client))

    def answer(self, peer: Peer, offset: int) -> None:
        request, = peer.requests
        self.assertEqual((request.code, request.header, request.timeout_ms), (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequestHeader(topic="T", group="g"), STATUS_TIMEOUT_MS))
        assert request.reply is not None
        body = GetConsumerStatusBody({MessageQueue("T", "broker-a", 0): offset})
        request.reply.callback(RemotingCommand(0, body=body.encode()))

    def fail_with(self, peer: Peer, answer: RemotingCommand | RemotingError) -> None:
        reply = peer.requests[0].reply
        assert reply is not None
        if isinstance(answer, RemotingError):
            reply.errback(answer)
        else:
            reply.callback(answer)

    def offsets(self) -> dict[str, dict[MessageQueue, int]]:
        reply, = self.box.late_replies(self.tool)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        return GetConsumerStatusBody.decode(reply.body).consumer_table

    def test_every_member_is_asked_at_once(self) -> None:
        """All members are asked at the same time, and the response follows the last answer."""
        self.assertIsNone(self.ask())
        self.answer(self.other, 7)
        self.assertEqual(self.tool.written, [])
        self.answer(self.client, 5)
        queue = MessageQueue("T", "broker-a", 0)
        self.assertEqual(self.offsets(), {"client": {queue: 5}, "other": {queue: 7}})

    def test_answers_of_clients_are_read_one_at_a_time(self) -> None:
        """The answers are read one after the other, in slices of the reactor."""
        decode = GetConsumerStatusBody.decode

        def slow(data: bytes) -> GetConsumerStatusBody:
            self.box.now_ms += SLICE_MS + 1
            return decode(data)

        self.patch(GetConsumerStatusBody, "decode", slow)
        self.ask()
        self.answer(self.other, 7)
        self.answer(self.client, 5)
        self.assertEqual(self.tool.written, [])
        self.box.kernel.background.step(self.box.clock())
        self.assertEqual(self.tool.written, [])
        self.box.kernel.background.step(self.box.clock())
        self.assertEqual(self.offsets().keys(), {"client", "other"})

    def test_a_named_client_is_asked_alone(self) -> None:
        """If the request names a client, only that one is asked."""
        self.ask("other")
        self.assertEqual(self.client.requests, [])
        self.answer(self.other, 7)
        self.assertEqual(self.offsets().keys(), {"other"})

    def test_no_answers(self) -> None:
        """Clients that are silent, lost, refuse or answer nonsense are left out."""
        for answer in (RemotingTimeout("no reply"), RemotingSendError("lost"),
                       RemotingCommand(1, remark="no"), RemotingCommand(0),
                       RemotingCommand(0, body=b"{")):
            for peer in (self.client, self.other, self.tool):
                peer.requests.clear()
            self.tool.written.clear()
            self.ask()
            self.fail_with(self.client, answer)
            self.answer(self.other, 7)
            self.assertEqual(self.offsets().keys(), {"other"}, repr(answer))

    def test_a_status_of_a_group_without_members_is_refused(self) -> None:
        """No member of the group is online, or none has the client id that the request names."""
        reply = self.ask(group="nope")
        assert reply is not None
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR, "No Any Consumer online in the consumer group: [nope]"))
        reply = self.ask("third")
        assert reply is not None
        self.assertEqual(GetConsumerStatusBody.decode(reply.body).consumer_table, {})

    def test_old_client(self) -> None:
        """If one client is too old for the request, no client is asked."""
        client = self.box.kernel.clients.find_consumer("g", "other")
        assert client is not None
        client.version = 27
        reply = self.ask()
        assert reply is not None
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR,
            "the client does not support this feature. version=27"))
        self.assertEqual(self.client.requests, [])


class ConsumeDirectlyTests(ClientsCase):
    """The request 309."""

    def setUp(self) -> None:
        super().setUp()
        self.tool = self.box.peer()
        kernel = self.box.kernel
        kernel.topic_config.update(TopicConfig("T", 1, 1, topic_sys_flag=2), {})
        kernel.subscription_group.update(SubscriptionGroupConfig("g", group_sys_flag=1), {})
        self.record = message("T", b"body")
        kernel.append([self.record])
        self.message_id = offset_message_id(kernel.store_host, self.record.physical_offset)

    def header(self, **fields: str | int | None) -> ConsumeMessageDirectlyResultRequestHeader:
        return ConsumeMessageDirectlyResultRequestHeader(**{
            "consumer_group": "g", "client_id": "client", "msg_id": self.message_id,
            **fields})  # type: ignore[arg-type]

    def test_handed_on(self) -> None:
        """The client gets the stored message, and its answer becomes the response."""
        asked = self.header(topic="T", broker_name="wrong")
        self.assertIsNone(self.box.send(self.tool, RequestCode.CONSUME_MESSAGE_DIRECTLY, asked))
        request, = self.client.requests
        self.assertEqual((request.code, request.header, request.timeout_ms), (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            self.header(topic="T", broker_name="broker-a", topic_sys_flag=2, group_sys_flag=1),
            CALL_TIMEOUT_MS))
        self.assertEqual(decode_record(request.body).body, b"body")
        assert request.reply is not None
        request.reply.callback(RemotingCommand(0, body=b'{"consumeResult":"CR_SUCCESS"}'))
        reply, = self.box.late_replies(self.tool)
        self.assertEqual((reply.code, reply.body), (0, b'{"consumeResult":"CR_SUCCESS"}'))

    def test_a_message_that_is_not_there(self) -> None:
        """The message does not exist, the id is invalid, or the client is not online."""
        gone = offset_message_id(self.box.kernel.store_host, 99_999)
        for fields, remark in (
            ({"msg_id": gone}, "can not find message by the offset, 99999"),
            ({"msg_id": "x"}, "not an offset message id: 'x'"),
            ({"msg_id": None}, "not an offset message id: ''"),
            ({"client_id": "other"}, "The Consumer <g> <other> not online"),
            ({"client_id": None}, "The Consumer <g> <> not online"),
        ):
            reply = self.box.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY,
                                 self.header(**fields))  # type: ignore[arg-type]
            self.assertEqual((reply.code, reply.remark), (ResponseCode.SYSTEM_ERROR, remark))
        self.assertEqual(self.client.requests, [])


class RunningInfoTests(ClientsCase):
    """The request 307."""

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
        """The client gets the same request, and its answer becomes the response."""
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
        """The refusal of a client becomes the response, too."""
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
        """The client is lost before it answers."""
        self.hand_on()
        reply = self.client.requests[0].reply
        assert reply is not None
        reply.errback(RemotingSendError("connection lost"))
        answer = self.late_reply(self.tool)
        self.assertEqual((answer.code, answer.remark), (
            ResponseCode.SYSTEM_ERROR, "invoke consumer <g> <client> Exception: connection lost"))

    def test_not_online(self) -> None:
        """The client is not online in this group."""
        for group, client_id in (("g", "other"), ("h", "client")):
            reply = self.ask(GetConsumerRunningInfoRequestHeader(
                consumer_group=group, client_id=client_id))
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"))

    def test_old_client(self) -> None:
        """A client that is too old for the request is not asked."""
        client = self.box.kernel.clients.find_consumer("g", "client")
        assert client is not None
        client.version = 61
        reply = self.ask(self.header)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR, "The Consumer <client> Version <61> too low to finish, "
            "please upgrade it to V3_1_8_SNAPSHOT"))
        self.assertEqual(self.client.requests, [])
