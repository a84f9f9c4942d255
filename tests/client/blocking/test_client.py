"""The blocking client: look-ups, pulls, sends, and repeated attempts."""

from __future__ import annotations

import socket
import threading
import time
import zlib
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import (
    ScriptedServer,
    answer,
    route_body,
)
from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.broker.testing.raw_client import records_of
from twistmq.client import (
    Busy,
    Client,
    Message,
    NoRoute,
    OptionError,
    Producer,
    PullStatus,
    SendFailed,
)
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import (
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
    RequestRefused,
)
from twistmq.protocol.headers.offset import GetMaxOffsetResponseHeader
from twistmq.protocol.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.record import SYS_COMPRESSED
from twistmq.protocol.signature import Credentials

#: Codes of what a producer sends beside messages.
_HEARTBEATS = (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)
ACCOUNTS = """\
accounts:
  - accessKey: alice123
    secretKey: secret-of-alice
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


def free_address() -> str:
    """Return an address without a server."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


class BrokerTests(SynchronousTestCase):
    """Tests with a broker."""

    def test_send_and_pull(self) -> None:
        """A new topic is created; its queues take turns; pulls return the sent messages."""
        with running_broker() as broker, Producer(broker.namesrv_address) as producer:
            client = producer.client
            results = [producer.send("orders", b"%d" % number, tags="t")
                       for number in range(8)]
            self.assertEqual({result.queue.queue_id for result in results}, {0, 1, 2, 3})
            self.assertTrue(all(result.safe for result in results))
            queues = client.read_queues("orders", again=True)
            self.assertEqual([queue.queue_id for queue in queues], [0, 1, 2, 3])
            bodies = []
            for queue in queues:
                self.assertEqual((client.min_offset(queue), client.max_offset(queue)), (0, 2))
                result = client.pull(queue, 0)
                self.assertEqual((result.status, result.next_offset, result.max_offset),
                                 (PullStatus.FOUND, 2, 2))
                bodies += [record.body for record in records_of(result.body)]
            self.assertEqual(sorted(bodies), [b"%d" % number for number in range(8)])
            self.assertIn("orders", client.topics())

    def test_batch_to_a_queue(self) -> None:
        """Messages of a batch are one after the other in the queue they are for."""
        queue = MessageQueue("orders", "broker-a", 2)
        with running_broker({"brokerName": "broker-a"}) as broker, (
                Producer(broker.namesrv_address)) as producer:
            producer.send("orders", b"first", queue=queue)
            batch = [Message("orders", b"%d" % number, keys=[f"k{number}"], flag=number)
                     for number in range(3)]
            self.assertEqual(producer.send_batch(batch, queue).offset, 1)
            records = records_of(producer.client.pull(queue, 1).body)
            self.assertEqual([(one.body, one.flag, one.properties_map()["KEYS"])
                              for one in records],
                             [(b"0", 0, "k0"), (b"1", 1, "k1"), (b"2", 2, "k2")])

    def test_pull_status(self) -> None:
        """The pull is at the end, at a missing offset, or has an expression without matches."""
        with running_broker() as broker, Producer(broker.namesrv_address) as producer:
            client = producer.client
            queue = producer.send("orders", b"1", tags="a").queue
            self.assertIs(client.pull(queue, 1).status, PullStatus.NO_NEW_MESSAGE)
            moved = client.pull(queue, 7)
            self.assertIs(moved.status, PullStatus.OFFSET_MOVED)
            self.assertEqual(moved.next_offset, 1)
            other = client.pull(queue, 0, expression="b")
            self.assertIs(other.status, PullStatus.NO_MATCHED_MESSAGE)
            self.assertEqual(other.next_offset, 1)

    def test_reads_decompress_bodies_and_compare_tags_again(self) -> None:
        """A broker compares hashes of tags, and returns bodies as they were sent."""
        self.assertEqual(java_string_hash("Aa"), java_string_hash("BB"))
        with running_broker() as broker, Producer(broker.namesrv_address) as producer:
            queue = producer.send("orders", b"0", tags="BB").queue
            for number in range(1, 100):
                producer.send(Message("orders", zlib.compress(b"%d" % number),
                                      tags=("BB", "Aa")[number % 2], sys_flag=SYS_COMPRESSED),
                              queue=queue)
            client = producer.client
            found = [(each.offset, each.body) for each in client.read(queue, expression="Aa || x")]
            self.assertEqual(found, [(n, b"%d" % n) for n in range(1, 100, 2)])
            part = [each.offset for each in client.read(queue, 10, 50)]
            self.assertEqual(part, list(range(10, 50)))
            self.assertEqual(list(client.read(queue, expression="none")), [])
            self.assertEqual(list(client.read(queue, 100)), [])

    def test_pull_waits(self) -> None:
        """The broker holds a pull for the requested time."""
        with running_broker() as broker, Client(
                broker.namesrv_address, timeout_s=10) as client:
            producer = Producer(client=client)
            queue = producer.send("orders", b"1").queue
            pending = client.pull_soon(queue, 1, group="g", max_count=1, hold_s=8.0)
            producer.send("orders", b"2", queue=queue)
            result = pending.result()
            self.assertEqual([one.body for one in records_of(result.body)], [b"2"])

    def test_offsets_are_found_by_time_and_by_group(self) -> None:
        """The group has no offset at first, and one later."""
        with running_broker() as broker, Client(broker.namesrv_address) as client:
            queue = Producer(client=client).send("orders", b"1").queue
            [record] = records_of(client.pull(queue, 0, group="readers").body)
            stored_s = record.store_timestamp / 1000
            self.assertEqual(client.search_offset(queue, stored_s), 0)
            self.assertEqual(client.search_offset(queue, stored_s + 0.001), 1)
            for wrong in (record.store_timestamp, float("nan"), "now"):
                with self.assertRaisesRegex(OptionError, "give .*seconds since 1970"):
                    client.search_offset(queue, wrong)  # type: ignore[arg-type]
            self.assertIsNone(client.group_offset("strangers", queue))
            client.commit_group_offset("readers", queue, 1)
            self.assertEqual(client.group_offset("readers", queue), 1)

    def test_runtime_info(self) -> None:
        """The result has every broker of the name server, with its runtime information."""
        with running_broker() as broker, Client(broker.namesrv_address) as client:
            (address,) = client.broker_addresses().values()
            self.assertEqual(address, broker.broker_address)
            self.assertEqual(client.runtime_info(address)["brokerVersionDesc"], "V5_3_3")
            # A name server knows no such table.
            error = self.assertRaises(RequestRefused, client.runtime_info, broker.namesrv_address)
            self.assertEqual(error.response_code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def test_an_unknown_topic_is_an_error_with_name_and_code(self) -> None:
        """The topic is unknown to the name server."""
        with running_broker({"autoCreateTopicEnable": "false"}) as broker, (
                Client(broker.namesrv_address)) as client:
            producer = Producer(client=client)
            for ask in (client.read_queues, client.write_queues,
                        lambda topic: producer.send(topic, b"x")):
                error = self.assertRaises(RequestRefused, ask, "nowhere")
                self.assertEqual(error.response_code, ResponseCode.TOPIC_NOT_EXIST)
                self.assertIn("nowhere", str(error))

    def test_a_broker_with_acl_accepts_only_signed_requests(self) -> None:
        """A broker with access control accepts only requests with a right signature."""
        home = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        (home / "conf").mkdir(parents=True)
        (home / "conf/plain_acl.yml").write_text(ACCOUNTS)
        with running_broker({"aclEnable": "true", "rocketmqHome": str(home)}) as broker:
            for secret, is_let_in in (("secret-of-alice", True), ("secret-of-nobody", False)):
                with Producer(broker.namesrv_address, retries=0,
                              credentials=Credentials("alice123", secret)) as producer:
                    message = Message("orders", b"paid", tags="größe")
                    if is_let_in:
                        queue = producer.send_batch([message, message]).queue
                        self.assertEqual(len(records_of(producer.client.pull(queue, 0).body)), 2)
                    else:
                        error = self.assertRaises(RequestRefused, producer.send, message)
                        self.assertIn("ignature", str(error))
                        self.assertNotIn(secret, str(error))


class RetryTests(SynchronousTestCase):
    """Tests with servers that fail."""

    def name_server(self, brokers: dict[str, dict[int, str]]) -> ScriptedServer:
        """A name server that answers every route with these brokers."""
        server = ScriptedServer(lambda request: answer(request, body=route_body(brokers)))
        self.addCleanup(server.close)
        return server

    def broker(self, *, fails: int = 0, code: int = 0, answers: bool = True,
               after: threading.Event | None = None) -> ScriptedServer:
        """Start a broker whose queues end at 5; its first requests get another answer.

        :param code: the answer they get; 0: the connection ends.
        :param after: what it waits for before it ends.
        """
        left = [fails]

        def script(request: RemotingCommand) -> bytes | None:
            if request.code in _HEARTBEATS:
                return answer(request)
            if not answers:
                return None
            left[0] -= 1
            if left[0] >= 0:
                if code:
                    return answer(request, code, remark="not now")
                if after is not None:
                    after.wait(10)
                raise ConnectionError
            if request.code == RequestCode.GET_MAX_OFFSET:
                return answer(request, header=GetMaxOffsetResponseHeader(offset=5))
            header = request.header(SendMessageRequestHeaderV2)
            return answer(request, header=SendMessageResponseHeader(
                msg_id="0A", queue_id=header.queue_id, queue_offset=5))

        server = ScriptedServer(script)
        self.addCleanup(server.close)
        return server

    def client(self, *name_servers: str, timeout_s: float = 5.0) -> Client:
        client = Client(name_servers, timeout_s=timeout_s, retry_wait_s=0.01)
        self.addCleanup(client.close)
        return client

    def producer(self, brokers: dict[str, dict[int, str]]) -> Producer:
        return Producer(client=self.client(self.name_server(brokers).address))

    def codes(self, server: ScriptedServer) -> list[int]:
        """The codes of a server's requests, but for heartbeats."""
        return [code for code in server.codes() if code not in _HEARTBEATS]

    def test_next_name_server(self) -> None:
        """A name server that is down costs one attempt, and is asked last from then on."""
        name_server = self.name_server({"a": {0: "127.0.0.1:1"}})
        client = self.client(free_address(), name_server.address)
        self.assertEqual(client.read_queues("t"), [MessageQueue("t", "a", 0)])
        client.read_queues("t", again=True)
        self.assertEqual(len(name_server.requests), 2)

    def test_no_name_server(self) -> None:
        """The error names each name server with its fault."""
        addresses = [free_address(), free_address()]
        error = self.assertRaises(RemotingConnectError, self.client(*addresses).route, "t")
        for address in addresses:
            self.assertIn(address, str(error))
        self.assertRaises(ValueError, Client, "")
        self.assertRaises(ValueError, Client, "localhost")

    def test_lost_connection(self) -> None:
        """A look-up is repeated on a new connection, with a new route."""
        broker = self.broker(fails=1)
        name_server = self.name_server({"a": {0: broker.address}})
        client = self.client(name_server.address)
        self.assertEqual(client.max_offset(MessageQueue("t", "a", 0)), 5)
        self.assertEqual(len(broker.requests), 2)
        self.assertEqual(len(name_server.requests), 2)

    def test_reads_go_to_the_slave_when_the_master_is_gone(self) -> None:
        """Reads go to the slave, and writes never do."""
        slave = self.broker()
        client = self.client(self.name_server({"a": {0: free_address(), 1: slave.address}}).address)
        queue = MessageQueue("t", "a", 0)
        self.assertEqual(client.max_offset(queue), 5)
        self.assertRaises(RemotingConnectError, client.commit_group_offset, "g", queue, 1)
        error = self.assertRaises(SendFailed, Producer(client=client).send, "t", b"x", queue=queue)
        self.assertIsInstance(error.attempts[0].error, RemotingConnectError)
        self.assertFalse(error.maybe_stored)
        self.assertEqual(self.codes(slave), [RequestCode.GET_MAX_OFFSET])

    def test_other_broker(self) -> None:
        """A send goes to another broker if one is down, or has no room at the moment."""
        for failing in (None, self.broker(fails=9, code=ResponseCode.SYSTEM_BUSY)):
            other = self.broker()
            first = free_address() if failing is None else failing.address
            producer = self.producer({"a": {0: first}, "b": {0: other.address}})
            brokers = {producer.send("t", b"x").queue.broker_name for _ in range(4)}
            self.assertEqual(brokers, {"b"})

    def test_given_up(self) -> None:
        """A busy broker is tried again in the time of the send; then the error is the broker's own.

        It has the broker's address.
        """
        broker = self.broker(fails=10_000, code=ResponseCode.SYSTEM_BUSY)
        client = self.client(self.name_server({"a": {0: broker.address}}).address, timeout_s=1)
        error = self.assertRaises(Busy, Producer(client=client).send, "t", b"x")
        self.assertEqual(error.response_code, ResponseCode.SYSTEM_BUSY)
        self.assertIn(f"{broker.address} answered 2: not now", str(error))
        self.assertIn(len(self.codes(broker)), range(2, 20))

    def test_not_tried_again(self) -> None:
        """A send with a permanent refusal is not repeated."""
        broker = self.broker(fails=9, code=ResponseCode.MESSAGE_ILLEGAL)
        producer = self.producer({"a": {0: broker.address}})
        self.assertRaises(RequestRefused, producer.send, "t", b"x")
        self.assertEqual(len(self.codes(broker)), 1)

    def test_time_out(self) -> None:
        """A broker that does not answer is given up in time; the error has its address."""
        broker = self.broker(answers=False)
        client = self.client(self.name_server({"a": {0: broker.address}}).address, timeout_s=1)
        begin = time.monotonic()
        error = self.assertRaises(RemotingTimeout, client.max_offset, MessageQueue("t", "a", 0))
        self.assertLess(time.monotonic() - begin, 10.0)
        self.assertIn(broker.address, str(error))
        wait_until("three requests", lambda: len(broker.requests) == 3)

    def test_requests_under_way(self) -> None:
        """Calls that wait on a lost connection fail; the next one has a new connection."""
        all_sent = threading.Event()
        broker = self.broker(fails=1, after=all_sent)
        producer = self.producer({"a": {0: broker.address}})
        queue = MessageQueue("t", "a", 0)
        # The route is there, so that all three wait on the connection once they are begun.
        producer.queues("t")
        pending = [producer.send_soon("t", b"x", queue=queue) for _ in range(3)]
        producer.queues("t")
        all_sent.set()
        for each in pending:
            error = self.assertRaises(SendFailed, each.result, 10)
            self.assertIsInstance(error.attempts[0].error, RemotingSendError)
            self.assertTrue(error.maybe_stored)
        self.assertEqual(producer.send("t", b"x", queue=queue).offset, 5)
        self.assertEqual(producer.client.max_offset(queue), 5)

    def test_pulls_under_way_end_with_their_connection(self) -> None:
        """Each future has its own error, and none can be cancelled any more."""
        all_sent = threading.Event()
        broker = self.broker(fails=1, after=all_sent)
        client = self.client(self.name_server({"a": {0: broker.address}}).address)
        queue = MessageQueue("t", "a", 0)
        client.read_queues("t")
        pending = [client.pull_soon(queue, offset) for offset in range(3)]
        client.read_queues("t")
        self.assertFalse(pending[2].cancel())
        all_sent.set()
        errors = [self.assertRaises(RemotingSendError, each.result, 10) for each in pending]
        self.assertEqual(len({id(error) for error in errors}), 3)

    def test_unknown_broker(self) -> None:
        """No route names the broker of the queue."""
        client = self.client(self.name_server({"a": {0: "127.0.0.1:1"}}).address)
        error = self.assertRaises(NoRoute, client.max_offset, MessageQueue("t", "gone", 0))
        self.assertIn("gone", str(error))
        pending = client.pull_soon(MessageQueue("t", "gone", 0), 0)
        self.assertIn("gone", str(self.assertRaises(NoRoute, pending.result, 10)))
