"""Wrong answers of brokers: each causes a wait and a log line, and no loop or memory."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from functools import partial
from itertools import product

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes, stored
from tests.client.core.group_box import BROKER, GroupBox
from tests.client.core.pop_box import PopBox
from twistmq.client.base.answers import OFFSET_MAX
from twistmq.client.base.errors import RemotingError, SendFailed, Undecodable
from twistmq.client.base.messages import Message, MessageQueue
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.connection.engine import TIMEOUTS_MAX
from twistmq.client.core.consumer.broker_requests import serve_tools
from twistmq.client.core.consumer.pull_request import unwrap
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.core.pop.receipts import BITS_MAX, popped_messages
from twistmq.client.roles.parts import build_producer
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.bodies import ResetOffsetBody
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.headers.client import (
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from twistmq.protocol.headers.offset import GetMaxOffsetResponseHeader
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
    """Return a record of topic T."""
    made = MessageRecord("T", queue_id, body, properties, 1, HOST, HOST, [], 0, sys_flag=sys_flag)
    made.queue_offset = offset
    return encode_record(made)


class PullTests(SynchronousTestCase):
    """A member whose broker answers each pull immediately."""

    def pulls(
        self, answer: Answer | Callable[[RemotingCommand], Answer], milliseconds: float = 10_000
    ) -> tuple[int, list[str]]:
        """Return the number of pulls of one queue in a time, and the warnings of the log.

        :param answer: the answer to each pull, or a function that makes it.
        """
        box = GroupBox()
        box.route = route({"a": BROKER}, 1)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            if request.code != RequestCode.PULL_MESSAGE:
                return honest(request)
            return answer(request) if callable(answer) else answer

        box.servers[BROKER] = lie
        with self.assertLogs("twistmq.client", "DEBUG") as logs:
            box.start()
            before = len(box.requests)
            box.advance(milliseconds)
        codes = [request.code for _, request in box.requests[before:]]
        return codes.count(RequestCode.PULL_MESSAGE), [
            line for line in logs.output if line.startswith(("WARNING", "ERROR"))]

    def test_an_empty_answer_that_is_not_held_costs_a_wait(self) -> None:
        """There are ten pulls a second, whatever the code is."""
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
            self.assertIn(f"offset {offset}" if offset else "continues at 0", warnings[0])

    def test_an_answer_that_has_no_message_though_its_code_says_so_costs_a_wait(self) -> None:
        """The offset advances each time, so nothing else would slow the member down."""
        box_offsets = iter(range(1, 100_000))

        def answer(_: RemotingCommand) -> Answer:
            return 0, PullMessageResponseHeader(0, next(box_offsets), 0, 100_000), b"", None

        count, warnings = self.pulls(answer)
        self.assertLessEqual(count, 11)
        self.assertIn("contains no message", warnings[0])

    def test_offsets_that_no_queue_has_are_an_error(self) -> None:
        """Otherwise the group would commit them."""
        for bad, header in (
                (2**63 - 1, PullMessageResponseHeader(0, 2**63 - 1, 0, 5)),
                (-(2**63), PullMessageResponseHeader(0, 1, -(2**63), 5)),
                (2**63 - 1, PullMessageResponseHeader(0, 1, 0, 2**63 - 1))):
            count, warnings = self.pulls((0, header, record(b"x"), None))
            self.assertLessEqual(count, 11)
            self.assertIn(str(bad), warnings[0])
            self.assertIn("at offset 0 is unusable", warnings[0])

    def check_offsets(self, box: GroupBox, lie: int) -> None:
        """Check that the member uses no offset that it was given."""
        for _, request in box.requests:
            if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
                self.assertNotEqual(request.fields()["commitOffset"], str(lie))
            if request.code == RequestCode.PULL_MESSAGE:
                self.assertIn(int(request.fields()["queueOffset"]), range(OFFSET_MAX + 1))

    def test_no_offset_is_committed_that_no_queue_has(self) -> None:
        """The offset may be that of the group, or the beginning or the end of a queue."""
        bounds = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
                  RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        for lie, codes, start in product(
                (2**63 - 1, -2, -(2**63)), (bounds, (RequestCode.QUERY_CONSUMER_OFFSET,)),
                ("last", 1_700_000_000_000, "first")):
            box = GroupBox(start=start)
            box.route = route({"a": BROKER}, 1)
            box.servers[BROKER] = partial(self.offset_of, box, codes, lie)
            box.start()
            box.advance(20_000)
            self.check_offsets(box, lie)

    @staticmethod
    def offset_of(
        box: GroupBox, codes: tuple[int, ...], lie: int, request: RemotingCommand
    ) -> Answer:
        """Answer some requests for offsets with a lie."""
        if request.code in codes:
            return 0, GetMaxOffsetResponseHeader(lie), b"", None
        return box.broker(request)

    def test_a_program_is_told_no_offset_that_no_queue_has(self) -> None:
        """The program would seek there. A missing queue begins at -1, as with Apache's broker."""
        codes = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
                 RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.QUERY_CONSUMER_OFFSET)
        queue = MessageQueue("T", "a", 0)
        for lie in (2**63 - 1, -2, -1):
            box = GroupBox()
            box.servers[BROKER] = partial(self.offset_of, box, codes, lie)
            queries = Queries(box.core)
            for question in (queries.max_offset(queue), queries.search_offset(queue, 0),
                             queries.group_offset("g", queue), queries.min_offset(queue)):
                if lie == -1 and question.__name__ == "min_offset":
                    self.assertEqual(box.run(question), -1)
                else:
                    error = self.assertRaises(Undecodable, box.run, question)
                    self.assertIn(f"offset {lie}, which no queue has", str(error))

    def test_a_tool_moves_no_queue_to_an_offset_that_no_queue_has(self) -> None:
        """Otherwise the offset would be committed."""
        for offset, is_taken in ((2**63 - 1, False), (-1, False), (7, True)):
            box = GroupBox()
            serve_tools(box.core)
            box.route = route({"a": BROKER}, 1)
            box.start()
            box.push(BROKER, encode_request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 1,
                ResetOffsetRequestHeader("g", "T", 0, True),
                ResetOffsetBody(offset_table={MessageQueue("T", "a", 0): offset}).encode(),
                oneway=True))
            box.advance(6_000)
            commits = [request.fields()["commitOffset"] for _, request in box.requests
                       if request.code == RequestCode.UPDATE_CONSUMER_OFFSET]
            self.assertEqual(str(offset) in commits, is_taken)

    def test_damaged_messages_without_end_are_logged_a_hundred_times_a_minute(self) -> None:
        """The first line of the next minute has the number of omitted ones."""
        box = GroupBox()
        box.route = route({"a": BROKER}, 1)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            if request.code != RequestCode.PULL_MESSAGE:
                return honest(request)
            begin = int(request.fields()["queueOffset"])
            if begin >= 10_100 or (begin >= 10_000 and box.clock.now_ms < 1_065_000):
                return None
            data = b"".join(record(b"xy", offset=begin + number).replace(b"xy", b"xz")
                            for number in range(32))
            return 0, PullMessageResponseHeader(0, begin + 32, 0, 10**6), data, None

        box.servers[BROKER] = lie
        with self.assertLogs("twistmq.client", "ERROR") as logs:
            box.start()
            box.advance(50_000)
            self.assertEqual(len(logs.output), 100)
            self.assertGreater(box.member.damaged_count, 9_000)
            box.advance(120_000)
        self.assertIn("more since the last line", logs.output[100])

    def test_a_damaged_batch_is_a_damaged_message(self) -> None:
        """Its parts and its first offset come from a producer."""
        flags = SYS_INNER_BATCH | SYS_NEED_UNWRAP
        two = encode_batch([(0, b"1", ""), (0, b"2", "")])
        for body, properties in (
                (b"damaged", ""), *((two, f"INNER_BASE\x01{base}\x02")
                                    for base in ("x", "9" * 30, "-1", OFFSET_MAX - 1))):
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
        """The first change causes a round at once."""
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
    """Receipts that are impossible."""

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
        """As a bit of a request it would need a gigabyte; there is no bit before the first one."""
        for start in (5 - BITS_MAX, 6, -(10**12)):
            box, acks = self.acknowledged(b"".join(
                record(b"%d" % number, f"POP_CK\x01{start} 1 60000 0 0 a 0 {number}\x02",
                       offset=number) for number in (5, 6)), 2)
            self.assertIn("5", [offset for offset, _ in acks])
            box.run(box.pop.acks.flush())
            self.assertEqual(box.pop.acks.count, 0)

    def test_a_message_without_a_receipt_holds_up_no_other(self) -> None:
        """Its queue id may be damaged, which no CRC covers; the broker delivers it again."""
        found = (record(b"4", offset=4) + record(b"5", queue_id=-1, offset=5)
                 + record(b"6", offset=6))
        for starts in ("0 0 4", "0 0 4;0 -1 " + "9" * 5000):
            with self.assertLogs("twistmq.client", "ERROR") as logs:
                box, acks = self.acknowledged(found, 3, starts)
            # The bits of the offsets 4 and 6.
            self.assertEqual(acks[0], (base64.b64encode(b"\x05").decode(), "T 0 4"))
            self.assertGreater(box.member.damaged_count, 0)
            self.assertIn("no receipt for offset 5 of queue -1 of T", logs.output[0])

    def test_messages_without_a_receipt_cost_a_wait_and_few_lines(self) -> None:
        """Otherwise a broker that answers at once would be asked without end."""
        box = PopBox()
        honest = box.broker
        pops = 0

        def lie(request: RemotingCommand) -> Answer:
            nonlocal pops
            if request.code != RequestCode.POP_MESSAGE:
                return honest(request)
            pops += 1
            header = PopMessageResponseHeader(1, 60_000, 0, 0, start_offset_info="x")
            return 0, header, b"".join(record(b"x", offset=each) for each in range(32)), None

        box.servers[BROKER] = lie
        box.start()
        with self.assertLogs("twistmq.client", "ERROR") as logs:
            box.demand()
            box.advance(50_000)
        self.assertIn(pops, range(40, 60))
        self.assertEqual(len(logs.output), 100)
        self.assertGreater(box.member.damaged_count, 1000)

    def test_a_popped_message_has_an_offset_that_a_queue_may_have(self) -> None:
        """Others are damaged: the broker delivers them again."""
        found = b"".join(record(b"x", offset=offset) for offset in (
            5, 2**63 - 1, -1, OFFSET_MAX)) + record(
                b"x", "POP_CK\x010 1 60000 0 0 a 0 -2\x02", offset=-2)
        for starts in ("0 0 5", None):
            with self.assertLogs("twistmq.client", "ERROR") as logs:
                _, acks = self.acknowledged(found, 9, starts)
            self.assertEqual([each for each, _ in acks], ["5"])
            self.assertEqual(sum("which no queue has" in line for line in logs.output), 4)

    def test_a_receipt_has_numbers_that_can_be_sent_back(self) -> None:
        """Otherwise it could not be written into a batch of acknowledgements."""
        for forged in (f"{2**64} 1 60000 0 0 a 0 5", f"5 1 {10**20} 0 0 a 0 5",
                       f"5 1 60000 {2**31} 0 a 0 5"):
            found = record(b"5", f"POP_CK\x01{forged}\x02", offset=5)
            box, acks = self.acknowledged(found + record(b"6", offset=6), 2, "0 0 5")
            self.assertEqual(acks[0], (base64.b64encode(b"\x03").decode(), "T 0 5"))
            self.assertEqual(box.pop.acks.count, 0)

    def test_a_start_and_a_count_are_no_greater_than_those_of_requests(self) -> None:
        """Attempts are an int32, and an offset is an int64."""
        answer = PopMessageResponseHeader(
            1, 60_000, 0, 0, f"0 0 {10**19 - 1};0 1 5", None, f"0 1 {OFFSET_MAX}")
        damaged: list[DamagedMessage[bytes]] = []
        source = MessageQueue("T", "a", -1)
        [message] = popped_messages(
            answer, record(b"x") + record(b"x", queue_id=1, offset=6), source, "g", "T", None, 0,
            damaged)
        self.assertIn("no receipt", damaged[0].damage)
        self.assertEqual(message.attempt, 2**31)

    def test_a_receipt_that_a_producer_wrote_is_not_believed(self) -> None:
        """It would acknowledge a message of another member, and never its own one."""
        for forged in ("0 1 60000 0 0 a 0 7", "0 1 60000 0 0 a 3 5", "0 2 60000 0 0 a 0 5",
                       f"{'9' * 5000} 1 60000 0 0 a 0 5"):
            _, acks = self.acknowledged(
                record(b"5", f"POP_CK\x01{forged}\x02", offset=5), 1, "0 0 5")
            self.assertEqual(acks[0], ("5", "5 1 60000 0 0 a 0 5"))


class ConnectionTests(SynchronousTestCase):
    """Connections and their ends."""

    def box(self, answer: Callable[[RemotingCommand], Answer] = stored) -> Box:
        """Return a core, and a broker of topic T."""
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
        """The error has the address."""
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
        """The next line has the number of omitted ones; each request is answered."""
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
