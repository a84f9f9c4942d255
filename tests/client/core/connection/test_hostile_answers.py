"""Single lies of brokers: each costs a wait and a line in the log, no loop and no memory."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes, stored
from tests.client.core.group_box import BROKER, GroupBox
from tests.client.core.pop_box import PopBox
from twistmq.client.base.errors import RemotingError, SendFailed
from twistmq.client.base.messages import Message, MessageQueue
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.connection.engine import TIMEOUTS_MAX
from twistmq.client.core.consumer.broker_requests import serve_tools
from twistmq.client.core.consumer.pull_request import unwrap
from twistmq.client.core.pop.receipts import BITS_MAX
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from twistmq.protocol.headers.pop import PopMessageResponseHeader
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    MessageRecord,
    encode_record,
    host_bytes,
)

HOST = host_bytes("10.0.0.1", 1)


def record(
    body: bytes, properties: str = "", sys_flag: int = 0, queue_id: int = 0, offset: int = 0
) -> bytes:
    """A record of topic T."""
    made = MessageRecord("T", queue_id, body, properties, 1, HOST, HOST, [], 0, sys_flag=sys_flag)
    made.queue_offset = offset
    return encode_record(made)


class PullTests(SynchronousTestCase):
    """A member whose broker answers each pull at once."""

    def pulls(self, answer: Answer, milliseconds: float = 10_000) -> tuple[int, list[str]]:
        """How many pulls of one queue there are in that time, and the warnings of the log."""
        box = GroupBox()
        box.route = route({"a": BROKER}, 1)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            return answer if request.code == RequestCode.PULL_MESSAGE else honest(request)

        box.servers[BROKER] = lie
        with self.assertLogs("twistmq.client", "DEBUG") as logs:
            box.start()
            before = len(box.requests)
            box.advance(milliseconds)
        codes = [request.code for _, request in box.requests[before:]]
        return codes.count(RequestCode.PULL_MESSAGE), [
            line for line in logs.output if line.startswith(("WARNING", "ERROR"))]

    def test_an_empty_answer_that_is_not_held_costs_a_wait(self) -> None:
        """Ten a second, whatever the code says."""
        for code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            count, _ = self.pulls((code, PullMessageResponseHeader(0, 0, 0, 0), b"", None))
            self.assertLessEqual(count, 110)
            self.assertGreater(count, 50)

    def test_an_answer_that_does_not_go_on_is_an_error(self) -> None:
        """The same messages again and again would be handled again and again."""
        for offset in (0, -7, -(2**63)):
            count, warnings = self.pulls((
                0, PullMessageResponseHeader(0, offset, 0, 5), record(b"x"), None))
            self.assertLessEqual(count, 11)
            self.assertIn("topic='T'", warnings[0])
            self.assertIn(f"offset {offset}" if offset else "goes on at 0", warnings[0])

    def test_a_damaged_batch_is_a_damaged_message(self) -> None:
        """Its parts, and its first offset, come from a producer."""
        flags = SYS_INNER_BATCH | SYS_NEED_UNWRAP
        for body, properties in ((b"damaged", ""), (b"", "INNER_BASE\x01x\x02")):
            damaged: list[DamagedMessage[bytes]] = []
            whole = record(b"1")
            self.assertEqual([each.body for each in unwrap(
                whole + record(body, properties, flags) + whole, MessageQueue("T", "a", 0),
                damaged)], [b"1", b"1"])
            self.assertIn("it is not a batch", damaged[0].damage)
        data = record(b"damaged", "", flags)
        count, said = self.pulls((0, PullMessageResponseHeader(0, 1, 0, 5), data, None))
        self.assertLessEqual(count, 11)
        self.assertIn("it is not a batch", said[0])

    def test_a_flood_of_changes_of_the_group_costs_ten_rounds_a_second(self) -> None:
        """The first one is looked at at once."""
        box = GroupBox()
        box.start()
        before = len(box.requests)
        change = encode_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1,
                                NotifyConsumerIdsChangedRequestHeader("g"), oneway=True)
        for _ in range(1000):
            box.push(BROKER, change)
            box.advance(1)
        asked = [request.code for _, request in box.requests[before:]].count(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        # A round asks for the topic, and for the topic of retries if that exists.
        self.assertLessEqual(asked, 24)
        self.assertGreaterEqual(asked, 5)


class PopTests(SynchronousTestCase):
    """Receipts that no broker can mean."""

    def acknowledged(
        self, found: bytes, count: int, start_offset_info: str | None = None
    ) -> tuple[PopBox, list[tuple[str, str]]]:
        """Let a broker answer each pop with records, and acknowledge so many.

        :returns: (offset, receipt) of each acknowledgement, or (bits, check point) of a batch.
        """
        box = PopBox()
        honest = box.broker
        acks: list[tuple[str, str]] = []

        def lie(request: RemotingCommand) -> Answer:
            if request.code == RequestCode.POP_MESSAGE:
                header = PopMessageResponseHeader(
                    1, 60_000, 0, 0, start_offset_info=start_offset_info)
                return 0, header, found, None
            if request.code == RequestCode.ACK_MESSAGE:
                acks.append((request.fields()["offset"], request.fields()["extraInfo"]))
                return 0, None, b"", None
            if request.code == RequestCode.BATCH_ACK_MESSAGE:
                ack, = msgspec.json.decode(request.body)["acks"]
                acks.append((ack["b"], f"{ack['t']} {ack['q']} {ack['so']}"))
                return 0, None, b"", None
            return honest(request)

        box.servers[BROKER] = lie
        box.start()
        box.demand()
        batch = box.member.take(count)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(100)
        return box, acks

    def test_a_receipt_far_from_its_check_point_is_acknowledged_alone(self) -> None:
        """As a bit of a request it would have a gigabyte; there is no bit before the first."""
        for start in (5 - BITS_MAX, 6, -(10**12)):
            box, acks = self.acknowledged(b"".join(
                record(b"%d" % number, f"POP_CK\x01{start} 1 60000 0 0 a 0 {number}\x02",
                       offset=number) for number in (5, 6)), 2)
            self.assertIn("5", [offset for offset, _ in acks])
            box.run(box.member.acks.flush())
            self.assertEqual(box.member.acks.count, 0)

    def test_a_message_without_a_receipt_holds_up_no_other(self) -> None:
        """Its queue id may be damaged, which no CRC tells; the broker delivers it again."""
        found = (record(b"4", offset=4) + record(b"5", queue_id=-1, offset=5)
                 + record(b"6", offset=6))
        for starts in ("0 0 4", "0 0 4;0 -1 " + "9" * 5000):
            with self.assertLogs("twistmq.client", "ERROR") as logs:
                box, acks = self.acknowledged(found, 3, starts)
            # The bits of the offsets 4 and 6.
            self.assertEqual(acks[0], (base64.b64encode(b"\x05").decode(), "T 0 4"))
            self.assertGreater(box.member.damaged_count, 0)
            self.assertIn("no receipt for offset 5 of queue -1 of T", logs.output[0])

    def test_a_receipt_that_a_producer_wrote_is_not_believed(self) -> None:
        """It would acknowledge what another member of the group has, and never its own message."""
        for forged in ("0 1 60000 0 0 a 0 7", "0 1 60000 0 0 a 3 5", "0 2 60000 0 0 a 0 5",
                       f"{'9' * 5000} 1 60000 0 0 a 0 5"):
            _, acks = self.acknowledged(
                record(b"5", f"POP_CK\x01{forged}\x02", offset=5), 1, "0 0 5")
            self.assertEqual(acks[0], ("5", "5 1 60000 0 0 a 0 5"))


class ConnectionTests(SynchronousTestCase):
    """Connections and their ends."""

    def box(self, answer: Callable[[RemotingCommand], Answer] = stored) -> Box:
        """A core, and a broker of topic T."""
        box = Box()
        box.servers[NAMESRV] = routes({"T": route({"a": BROKER})})
        box.servers[BROKER] = answer
        box.engine.tasks.on_failure = None
        return box

    def test_bytes_that_trickle_are_no_answer(self) -> None:
        """A connection without a whole frame is closed as one without bytes is."""
        box = self.box(lambda request: None)
        trickle = iter(struct.pack(">iI", 1 << 20, 1 << 16) + b"{" * 1000)
        asked = []
        for _ in range(TIMEOUTS_MAX):
            asked.append(box.engine.invoke(BROKER, 1, timeout_ms=1000))
            for _ in range(20):
                box.advance(100)
                if BROKER not in box.closed:
                    box.push(BROKER, bytes([next(trickle)]))
        self.assertIn(BROKER, box.closed)
        for each in asked:
            self.assertIsInstance(each.error, RemotingError)
            self.assertIn(BROKER, str(each.error))

    def test_go_away_without_end_costs_two_connections_a_request(self) -> None:
        """The error names the address."""
        box = self.box(lambda request: (ResponseCode.GO_AWAY, None, b"", "away"))
        sender = build_producer(box.core, {})
        error = self.assertRaises(
            SendFailed, box.run, sender.send(sender.prepare(Message("T", b"x"))))
        self.assertIn(f"{BROKER} sends clients away", str(error))
        self.assertLessEqual(box.connects.count(BROKER), 6)
        box.advance(60_000)
        self.assertLessEqual(box.connects.count(BROKER), 20)
        self.assertLessEqual(box.engine.debug_counts()["connections"], 2)

    def test_failing_requests_of_a_server_are_logged_once_a_second(self) -> None:
        """The next line says how many were left out; each is answered."""
        box = GroupBox()
        serve_tools(box.core)
        box.start()
        bad = encode_request(RequestCode.GET_CONSUMER_RUNNING_INFO, 7, None, b"x")
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            for _ in range(1000):
                box.push(BROKER, bad)
            box.advance(1001)
            box.push(BROKER, bad)
            box.settle()
        lines = [line for line in logs.output if "with the code 307 failed" in line]
        self.assertEqual(len(lines), 2)
        self.assertIn("999 more", lines[1])
        answers = [request for address, request in box.requests if request.is_response]
        self.assertEqual([each.code for each in answers], [ResponseCode.SYSTEM_ERROR] * 1001)
