"""The port for members: its responses, its refusals, and its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.dledger.peer_network import Collector, PeerNetwork, Pipe
from twistmq.plugins.dledger import incoming_link, peer_port
from twistmq.plugins.ha.frames import encode_report, encode_slave_id
from twistmq.protocol.codes import DLedgerRequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_reply, encode_request
from twistmq.protocol.frame import FRAME_SIZE_MAX, FrameDecoder, encode_frame
from twistmq.raft.messages import HeartbeatResponse, VoteResponse, VoteResult

#: The host of a member, and a host that does not belong to a member.
MEMBER_HOST, OTHER_HOST = "10.0.0.2", "10.0.0.77"


def body(**fields: Any) -> bytes:
    """Return the body of a request of n1 for n0; None omits a field."""
    whole = {"group": "G0", "leaderId": "n1", "localId": "n1", "remoteId": "n0", "term": 3,
             **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()


class PortCase(SynchronousTestCase):
    """The port of n0 in a group of two."""

    settings: Mapping[str, str] = MappingProxyType({})

    def setUp(self) -> None:
        self.network = PeerNetwork(2, self.settings)
        self.addCleanup(self.network.stop)
        self.member = self.network.members["n0"]
        self.member.leader = "n1"
        self.opaque = 0

    def connect(self, host: str = MEMBER_HOST) -> tuple[Collector, Pipe]:
        """Connect to the port; the connection must be allowed."""
        client = Collector()
        pipe = self.network.join(client, self.member, host)
        assert pipe is not None
        return client, pipe

    def send(self, pipe: Pipe, code: int, data: bytes, *, oneway: bool = False) -> None:
        """Send a request."""
        self.opaque += 1
        pipe.wires[0].write(encode_request(code, self.opaque, None, data, oneway=oneway))
        self.network.pump()

    def replies(self, client: Collector) -> list[RemotingCommand]:
        """Return the bytes that arrived since the last call."""
        data, client.data = client.data, b""
        return [decode_command(frame) for frame in FrameDecoder().feed(data)]

    def ask(self, code: int, data: bytes) -> RemotingCommand:
        """Send a request over a new connection; :returns: the reply, which comes at once."""
        client, pipe = self.connect()
        self.send(pipe, code, data)
        (reply,) = self.replies(client)
        self.assertEqual(reply.opaque, self.opaque)
        self.assertFalse(client.is_lost)
        return reply

    def lines(self, events: Any) -> list[str]:
        return [str(formatEvent(event)) for event in events
                if "members" in str(event.get("log_format"))]


class AnswerTests(PortCase):
    """The responses to valid and to refused requests."""

    def test_the_response_follows_later(self) -> None:
        """It is sent over the same connection, with the opaque of the request."""
        client, pipe = self.connect()
        self.send(pipe, DLedgerRequestCode.VOTE, body(ledgerEndIndex=4, ledgerEndTerm=2))
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        self.assertEqual(client.data, b"")
        self.member.asked[1][1].callback(HeartbeatResponse())
        self.member.asked[0][1].callback(VoteResponse(
            term=3, leader="n1", result=VoteResult.ACCEPT))
        self.network.pump()
        heartbeat, vote = self.replies(client)
        self.assertEqual((heartbeat.code, heartbeat.opaque, heartbeat.body),
                         (200, 2, b'{"code":200,"term":-1}'))
        self.assertEqual((vote.opaque, json.loads(vote.body)["voteResult"]), (1, "ACCEPT"))

    def test_no_reply(self) -> None:
        """To a one-way request, to one that the core does not answer, over a lost connection."""
        client, pipe = self.connect()
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body(), oneway=True)
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        self.member.asked[0][1].callback(HeartbeatResponse())
        self.member.asked[1][1].errback(RuntimeError())
        self.network.pump()
        pipe.lose()
        self.member.asked[2][1].callback(HeartbeatResponse())
        self.network.pump()
        self.assertEqual(client.data, b"")

    def test_another_group_or_member(self) -> None:
        """The core does not get the request; one log line names the peer and the reason."""
        for fields, code, why in (
            ({"group": "G1"}, 400, "it is for the group G1, and this is G0"),
            ({"group": None}, 400, "it is for the group , and this is G0"),
            ({"remoteId": "n7"}, 401, "it is for the member n7, and this is n0"),
            ({"localId": "n9", "leaderId": "n9"}, 401,
             "it is from the member n9, which is not another one of this group"),
            ({"localId": "n0", "leaderId": "n0"}, 401,
             "it is from the member n0, which is not another one of this group"),
            ({"localId": None, "leaderId": None}, 401,
             "it is from the member , which is not another one of this group"),
        ):
            for request in (DLedgerRequestCode.VOTE, DLedgerRequestCode.HEART_BEAT):
                # There are few lines a minute about each host.
                self.network.pass_ms(60_000)
                with capturedLogs() as events:
                    reply = self.ask(request, body(**fields))
                self.assertEqual((reply.code, json.loads(reply.body)["code"]), (200, code))
                (line,) = self.lines(events)
                self.assertRegex(line, r"^a request of 10\.0\.0\.2:\d+ at the port for members is "
                                       f"refused: {why}$")
        self.assertEqual(self.member.asked, [])

    def test_nonsense(self) -> None:
        """The response has an error code of the remoting protocol, and the connection remains."""
        for code, data, remoting, why in (
            (DLedgerRequestCode.VOTE, b"", 1, "VoteRequest"),
            (DLedgerRequestCode.VOTE, b"null", 1, "VoteRequest"),
            (DLedgerRequestCode.PUSH, body(type="INSTALL_SNAPSHOT"), 1, "INSTALL_SNAPSHOT"),
            (DLedgerRequestCode.PUSH, body(type="COMPARE", preLogIndex=1), 1, "preLogIndex"),
            (DLedgerRequestCode.METADATA, b"[]", 1, "MetadataRequest"),
            (DLedgerRequestCode.APPEND, body(body="AAAA"), 3, "APPEND"),
            (DLedgerRequestCode.GET, body(beginIndex=0), 3, "GET"),
            (DLedgerRequestCode.PULL, body(), 3, "PULL"),
            (51006, body(), 3, "51006"),
            (10, b"a message", 3, "request code 10"),
        ):
            with capturedLogs() as events:
                reply = self.ask(code, data)
            self.assertEqual((reply.code, reply.body), (remoting, b""))
            (line,) = self.lines(events)
            self.assertIn(why, line)
            self.assertIn(why, str(reply.remark))
        self.assertEqual(self.member.asked, [])

    def test_a_header_that_cannot_be_read(self) -> None:
        """A request with a readable opaque is answered, and the next request is served."""
        client, pipe = self.connect()
        with capturedLogs() as events:
            pipe.wires[0].write(encode_frame(0, b'{"code":51002,"opaque":77,"flag":[]}', b""))
            pipe.wires[0].write(encode_frame(0, b"nothing", b""))
            pipe.wires[0].write(encode_reply(200, 5, None, b"", None))
            self.network.pump()
        (reply,) = self.replies(client)
        self.assertEqual((reply.code, reply.opaque), (ResponseCode.SYSTEM_ERROR, 77))
        self.assertEqual(len(self.lines(events)), 3)
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        self.assertEqual(len(self.member.asked), 1)

    def test_texts_of_a_peer_cannot_forge_or_fill_the_log(self) -> None:
        """Texts are escaped and cut, and each host gets at most ten log lines a minute."""
        with capturedLogs() as events:
            for _ in range(50):
                self.ask(DLedgerRequestCode.HEART_BEAT, body(group="a\nb\x1b[1m" + "x" * 100_000))
        lines = self.lines(events)
        self.assertEqual(len(lines), 10)
        self.assertTrue(all(line.isprintable() and len(line) < 400 for line in lines))

    def test_a_tool_asks_for_a_transfer(self) -> None:
        """The core decides about the request; the tool's connection still counts as
        a stranger's.
        """
        _, pipe = self.connect()
        self.send(pipe, DLedgerRequestCode.LEADERSHIP_TRANSFER, body(
            localId=None, leaderId=None, transferId="n0", transfereeId="n1"))
        self.assertEqual(len(self.member.asked), 1)
        pipe.lose()
        self.network.pump()
        self.assertEqual(self.member.box.host.connecting, [])

    def test_metadata(self) -> None:
        """Apache's client receives the metadata, and a request for another group is refused."""
        for asked, expected in (
            (b'{"code":200,"group":"G0","remoteId":"n0","term":-1}',
             {"code": 200, "group": "G0", "leaderId": "n1", "peers": self.network.addresses,
              "term": -1}),
            (b'{"code":200,"group":"G1","remoteId":"n0","term":-1}',
             {"code": 400, "group": "G0", "leaderId": "n1", "term": -1}),
            (b'{"code":200,"group":"G0","remoteId":"n1","term":-1}',
             {"code": 401, "group": "G0", "leaderId": "n1", "term": -1}),
        ):
            reply = self.ask(DLedgerRequestCode.METADATA, asked)
            self.assertEqual((reply.code, json.loads(reply.body)), (200, expected))
        self.member.leader = ""
        reply = self.ask(DLedgerRequestCode.METADATA, asked)
        self.assertNotIn("leaderId", json.loads(reply.body))


class StrangerTests(PortCase):
    """Connections that do not belong to a member."""

    def test_a_host_that_is_not_in_the_group(self) -> None:
        """The connection is closed immediately."""
        with capturedLogs() as events:
            self.assertIsNone(self.network.join(Collector(), self.member, OTHER_HOST))
        self.assertIn("10.0.0.77", self.lines(events)[0])
        self.assertIn("dledger.peers", self.lines(events)[0])

    def test_other_protocols(self) -> None:
        """A slave of the plugin ha, TLS, HTTP, and lengths that cannot be."""
        slave = encode_report(0), encode_report(123_456), encode_slave_id(1) + encode_report(0)
        for data in (*slave, b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n",
                     b"\xff" * 8, (FRAME_SIZE_MAX + 1).to_bytes(4, "big") + b"\0" * 4):
            client, pipe = self.connect()
            with capturedLogs() as events:
                pipe.wires[0].write(data)
                self.network.pump()
            self.assertTrue(client.is_lost, data)
            (line,) = self.lines(events)
            self.assertRegex(line, r"^a connection of 10\.0\.0\.2:\d+ to the port for members is "
                                   r"closed: it does not send requests of members: ")

    def test_many_idle_connections(self) -> None:
        """The oldest stranger is closed for a new one; a member's connection is not."""
        member, pipe = self.connect()
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        strangers = [self.connect()[0] for _ in range(peer_port.STRANGERS_MAX + 10)]
        self.network.pump()
        self.assertEqual([client.is_lost for client in strangers],
                         [True] * 10 + [False] * peer_port.STRANGERS_MAX)
        self.assertFalse(member.is_lost)

    def test_connections_of_one_member(self) -> None:
        """Lost connections that were not closed do not accumulate."""
        clients = []
        for _ in range(peer_port.MEMBER_LINKS_MAX + 2):
            client, pipe = self.connect()
            clients.append(client)
            self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        self.assertEqual([client.is_lost for client in clients],
                         [True] * 2 + [False] * peer_port.MEMBER_LINKS_MAX)

    def test_memory_of_strangers(self) -> None:
        """The connection with the largest frame is closed, unless it belongs to a member."""
        member, pipe = self.connect()
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        begin = FRAME_SIZE_MAX.to_bytes(4, "big") + b"\0\0\0\2{}"
        large = begin + b"x" * (FRAME_SIZE_MAX - 1_000_000)
        pipe.wires[0].write(large)
        self.network.pump()
        strangers = [self.connect() for _ in range(3)]
        for _, stranger in strangers:
            stranger.wires[0].write(begin + b"x" * 1_000_000)
        self.network.pump()
        self.assertFalse(any(client.is_lost for client, _ in strangers))
        for _, stranger in strangers[:2]:
            stranger.wires[0].write(b"x" * 14_000_000)
            self.network.pump()
        self.assertEqual([client.is_lost for client, _ in strangers].count(True), 1)
        self.assertFalse(member.is_lost)

    def test_memory_of_members(self) -> None:
        """The limit applies to the sum over all members."""
        clients = []
        begin = FRAME_SIZE_MAX.to_bytes(4, "big") + b"\0\0\0\2{}"
        for _ in range(5):
            client, pipe = self.connect()
            clients.append(client)
            self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
            pipe.wires[0].write(begin + b"x" * (FRAME_SIZE_MAX - 1_000_000))
            self.network.pump()
        self.assertEqual([client.is_lost for client in clients].count(True), 1)


class BackPressureTests(PortCase):
    """A member that sends requests faster than this one answers them."""

    def test_nothing_is_read_while_too_much_is_unanswered(self) -> None:
        """Reading continues when half of the requests are answered."""
        client, pipe = self.connect()
        for _ in range(incoming_link.UNANSWERED_MAX + 1):
            self.send(pipe, DLedgerRequestCode.HEART_BEAT, body())
        self.send(pipe, DLedgerRequestCode.HEART_BEAT, body(term=99))
        self.assertEqual(len(self.member.asked), incoming_link.UNANSWERED_MAX + 1)
        for _, response in self.member.asked[:incoming_link.UNANSWERED_MAX // 2]:
            response.callback(HeartbeatResponse())
        self.network.pump()
        self.assertEqual(self.member.asked[-1][0].term, 3)
        self.member.asked[-1][1].callback(HeartbeatResponse())
        self.network.pump()
        self.assertEqual(self.member.asked[-1][0].term, 99)
        self.assertEqual(len(self.replies(client)), incoming_link.UNANSWERED_MAX // 2 + 1)

    def test_large_requests(self) -> None:
        """The bytes of requests count as well; a lost connection is not read."""
        _, pipe = self.connect()
        entry = {"body": "A" * 10_000_000, "index": 1, "magic": 1, "pos": 0, "size": 7_500_048}
        for _ in range(4):
            self.send(pipe, DLedgerRequestCode.PUSH, body(type="APPEND", entry=entry))
        self.assertEqual(pipe.wires[1].producerState, "paused")
        pipe.lose()
        for _, response in self.member.asked:
            response.errback(RuntimeError())
        self.assertEqual(pipe.wires[1].producerState, "paused")


class AllowedHostTests(PortCase):
    """The hosts of ``dledger.peers``."""

    settings = MappingProxyType({"dledger.peers": "10.9.0.0/16"})

    def test_they_replace_those_of_the_group(self) -> None:
        """A host of the group that is not in it cannot connect."""
        self.connect("10.9.1.2")
        self.assertIsNone(self.network.join(Collector(), self.member, MEMBER_HOST))
