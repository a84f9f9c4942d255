"""The pulls of a task: each message of its range is read once, whatever the broker returns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import ScriptedServer, answer, route_body
from tests.integrations.tables.records import encoded
from tests.integrations.tables.topics import BROKER, Topics, topics
from twistmq.client import Message
from twistmq.integrations.tables import queue_reader
from twistmq.integrations.tables.columns import select_columns
from twistmq.integrations.tables.connection import ClientSettings
from twistmq.integrations.tables.data_loss import DataLoss
from twistmq.integrations.tables.queue_reader import ReadFailed, ReadPlan, read_range, wanted_tags
from twistmq.integrations.tables.ranges import QueueRange
from twistmq.integrations.tables.record_batches import BodyUnreadable
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.bodies import BrokerData, ClusterInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingSendError
from twistmq.protocol.headers.pull import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.record import SYS_INNER_BATCH, SYS_NEED_UNWRAP

COLUMNS = tuple(select_columns("queueOffset,body"))


def plan_for(address: str, **changes: object) -> ReadPlan:
    settings = ClientSettings(address, 5.0, 3.0, 3, 0.01, wait_s=0.0, deletion_check_s=0.05)
    plan = ReadPlan(settings, COLUMNS, "readers")
    return dataclasses.replace(plan, **changes)  # type: ignore[arg-type]


def rows_of(plan: ReadPlan, part: QueueRange) -> list[tuple[int, bytes]]:
    return [(row["queueOffset"], row["body"]) for batch in read_range(plan, part)
            for row in batch.to_pylist()]


class BrokerTests(SynchronousTestCase):
    """A reader of a real broker."""

    def read(self, box: Topics, start: int, end: int, **changes: object) -> list[tuple[int, bytes]]:
        plan = plan_for(box.options["nameServer"], **changes)
        return rows_of(plan, QueueRange("orders", BROKER, 0, start, end))

    def test_exactly_the_offsets_of_the_range(self) -> None:
        """The rows have exactly the offsets of the range, in order, however many the broker returns
        at a time.
        """
        for most in ("32", "7", "1", "1000"):
            with topics(maxTransferCountOnMessageInMemory=most) as box:
                sent = [(offset, body) for _, offset, body in box.fill("orders", [700])]
                for start, end in ((0, 700), (13, 14), (650, 700), (5, 405)):
                    self.assertEqual(self.read(box, start, end), sent[start:end],
                                     msg=f"{most}: {start} to {end}")
                self.assertEqual(self.read(box, 0, 700, pull_batch_size=3), sent)

    def test_several_pulls_at_a_time(self) -> None:
        """New requests arrive at the broker while it answers earlier ones."""
        with topics() as box:
            box.fill("orders", [640])
            sent: list[int] = []
            begin = queue_reader.QueueReader._pull

            def counted(self: queue_reader.QueueReader, offset: int, count: int) -> object:
                sent.append(len(self._pulls))
                return begin(self, offset, count)

            with mock.patch.object(queue_reader.QueueReader, "_pull", counted):
                self.assertEqual(len(self.read(box, 0, 640)), 640)
            self.assertGreater(max(sent), 8)
            # Only offsets that the broker did not return are requested twice.
            self.assertLess(len(sent), 2 * 640 // 32)

    def test_batches_are_bounded(self) -> None:
        """A record batch has no more rows than its limit, so that memory does not grow."""
        with topics() as box, mock.patch.object(queue_reader, "BATCH_ROWS", 50):
            box.fill("orders", [400])
            part = QueueRange("orders", BROKER, 0, 0, 400)
            counts = [batch.num_rows for batch in read_range(plan_for(box.options["nameServer"]),
                                                             part)]
        self.assertEqual(sum(counts), 400)
        self.assertLess(max(counts), 50 + 256)

    def test_only_messages_with_one_of_the_tags(self) -> None:
        """Only messages with one of the tags are read, even if another tag has the same hash."""
        self.assertEqual(java_string_hash("Aa"), java_string_hash("BB"))
        with topics() as box:
            for number in range(300):
                tag = ("Aa", "BB", "c")[number % 3]
                box.send("orders", 0, [b"%d" % number], TAGS=tag)
            found = self.read(box, 10, 200, expression="Aa || x")
            self.assertEqual(found, [(n, b"%d" % n) for n in range(10, 200) if n % 3 == 0])
            self.assertEqual(self.read(box, 0, 300, expression="nobody"), [])

    def test_an_invalid_sql92_expression_names_the_option(self) -> None:
        """A valid expression filters the messages, and the error about an invalid one names the
        option.
        """
        with topics(enablePropertyFilter="true") as box:
            for number in range(50):
                box.send("orders", 0, [b"%d" % number], n=str(number))
            found = self.read(box, 0, 50, expression="n > 40", expression_type="SQL92")
            self.assertEqual([offset for offset, _ in found], list(range(41, 50)))
            error = self.assertRaises(ReadFailed, self.read, box, 0, 50, expression="n >",
                                      expression_type="SQL92")
            self.assertIn("option subExpression: 'n >' (SQL92)", str(error))

    def test_a_broker_without_sql92_is_said_with_its_setting(self) -> None:
        """The answer of the broker itself does not name the setting."""
        with topics() as box:
            box.fill("orders", [1])
            error = self.assertRaises(ReadFailed, self.read, box, 0, 1, expression="n > 1",
                                      expression_type="SQL92")
            self.assertIn("enablePropertyFilter=true", str(error))

    def test_offsets_that_are_not_there_any_more(self) -> None:
        """The read fails with the queue and the offset, or reads the remaining messages."""
        with topics() as box:
            box.fill("orders", [20])
            for start, end in ((10, 30), (25, 30)):
                error = self.assertRaises(DataLoss, self.read, box, start, end)
                self.assertIn(f"topic orders, broker {BROKER}, queue 0, offset", str(error))
                self.assertIn("failOnDataLoss", str(error))
            found = self.read(box, 10, 30, fail_on_data_loss=False)
            self.assertEqual([offset for offset, _ in found], list(range(10, 20)))

    def test_topic_gone(self) -> None:
        """A missing topic has the same effect as missing offsets."""
        with topics() as box:
            box.fill("other", [1])
            part = QueueRange("gone", BROKER, 0, 0, 3)
            plan = plan_for(box.options["nameServer"])
            error = self.assertRaises(DataLoss, rows_of, plan, part)
            self.assertIn("topic gone", str(error))
            self.assertIn("offset 0 is not there: the topic is gone", str(error))

    def test_body_that_does_not_decompress(self) -> None:
        """The error names the topic, the queue and the offset."""
        with topics() as box:
            box.send("orders", 0, [b"whole"])
            box.producer.send(Message("orders", b"no zlib", sys_flag=1), queue=box.queue("orders"))
            error = self.assertRaises(ValueError, self.read, box, 0, 2)
            self.assertIn("queue 0, offset 1 (commit log offset", str(error))


class FailureTests(SynchronousTestCase):
    """A reader of a broker that fails."""

    #: The number of messages in its queue, and the number that it returns at a time.
    ends_at = 300
    gives = 10

    def setUp(self) -> None:
        self.begins_at = 0
        self.missing: set[int] = set()
        #: The number that must be added to the offsets in its records, according to its answers.
        self.delta = 0
        #: The ids under which the broker is registered; 0 is the master's.
        self.ids = (0,)
        #: The results of the next pulls: a response code, or None to end the connection.
        self.failures: list[int | None] = []
        self.broker = ScriptedServer(self.answer_of)
        self.addCleanup(self.broker.close)
        self.name_server = ScriptedServer(self.name_server_answer)
        self.addCleanup(self.name_server.close)

    def name_server_answer(self, request: RemotingCommand) -> bytes:
        addresses = dict.fromkeys(self.ids, self.broker.address)
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return answer(request, body=ClusterInfo({
                BROKER: BrokerData("c", BROKER, addresses)}, {"c": {BROKER}}).encode())
        return answer(request, body=route_body({BROKER: addresses}))

    def record(self, offset: int) -> bytes:
        return encoded("orders", b"%d" % offset, queue_offset=offset)

    def answer_of(self, request: RemotingCommand) -> bytes | None:
        assert request.code == RequestCode.PULL_MESSAGE
        header = request.header(PullMessageRequestHeader)
        offset = header.queue_offset
        is_look = offset == 0 and header.max_msg_nums == 1
        if self.failures and (offset >= 100 or is_look):
            code = self.failures.pop(0)
            if code is None:
                raise ConnectionError
            return answer(request, code, remark="not now")
        code, behind, body = ResponseCode.SUCCESS, offset, b""
        if offset < self.begins_at:
            code, behind = ResponseCode.PULL_OFFSET_MOVED, self.begins_at
        elif offset >= self.ends_at:
            code = ResponseCode.PULL_NOT_FOUND
        else:
            behind = min(offset + min(self.gives, header.max_msg_nums), self.ends_at)
            body = b"".join(self.record(one) for one in range(offset, behind)
                            if one not in self.missing)
        return answer(request, code, PullMessageResponseHeader(
            0, behind, self.begins_at, self.ends_at, offset_delta=self.delta or None), body)

    def read(self, **changes: object) -> list[int]:
        plan = plan_for(self.name_server.address, **changes)
        return [offset for offset, _ in rows_of(plan, QueueRange("orders", BROKER, 0, 0, 300))]

    def test_lost_in_mid_read(self) -> None:
        """Lost connections and busy brokers delay the read; no message is lost or read twice."""
        for failures in ([None], [None, None], [2, None, 14]):
            self.failures = [*failures]
            self.assertEqual(self.read(), list(range(300)), msg=str(failures))
            self.assertEqual(self.failures, [])

    def test_after_the_last_try_the_error_says_where_and_why(self) -> None:
        """After the last attempt, the error states the position and the reason."""
        self.failures = [None] * 99
        error = str(self.assertRaises(ReadFailed, self.read))
        self.assertIn(f"topic orders, broker {BROKER}, queue 0, offset 100", error)
        self.assertIn(self.broker.address, error)
        self.assertIn("tried 4 times", error)

    def test_every_connection_lost(self) -> None:
        """A reader that loses the connection of each large request makes smaller ones, and
        progresses.
        """
        begin, sent = queue_reader.QueueReader._pull, []

        def lost(self: queue_reader.QueueReader, offset: int, count: int) -> object:
            if self._pulls:
                raise RemotingSendError("127.0.0.1:1: the connection was lost")
            sent.append(offset)
            return begin(self, offset, count)

        self.ends_at = 100
        with mock.patch.object(queue_reader.QueueReader, "_pull", lost):
            plan = plan_for(self.name_server.address)
            found = [offset for offset, _ in
                     rows_of(plan, QueueRange("orders", BROKER, 0, 0, self.ends_at))]
        self.assertEqual(found, list(range(100)))
        self.assertGreater(len(sent), 100 // self.gives)

    def test_a_permanent_refusal_is_not_retried(self) -> None:
        """A request that was refused permanently is not repeated."""
        self.failures = [ResponseCode.NO_PERMISSION] * 9
        error = str(self.assertRaises(ReadFailed, self.read))
        self.assertIn("offset 100", error)
        self.assertIn("not now", error)

    def test_removed_at_the_begin(self) -> None:
        """Retention has removed the first messages before the read."""
        self.begins_at = 40
        error = str(self.assertRaises(DataLoss, self.read))
        self.assertIn("queue 0, offset 0 is not there: the queue begins at 40", error)
        self.assertEqual(self.read(fail_on_data_loss=False), list(range(40, 300)))

    def test_missing_between(self) -> None:
        """A message that is missing between other messages is reported."""
        self.missing = {155}
        error = str(self.assertRaises(DataLoss, self.read))
        self.assertIn("queue 0, offset 155 is not there", error)
        left = [offset for offset in range(300) if offset != 155]
        self.assertEqual(self.read(fail_on_data_loss=False), left)

    def test_missing_at_the_end_of_an_answer(self) -> None:
        """An answer that lacks its last messages, or has other messages, is reported."""
        self.missing = {159}
        error = str(self.assertRaises(DataLoss, self.read))
        self.assertIn("queue 0, offset 159 is not there: the broker has skipped it", error)
        left = [offset for offset in range(300) if offset != 159]
        self.assertEqual(self.read(fail_on_data_loss=False), left)
        self.missing = set(range(150, 160))
        error = str(self.assertRaises(DataLoss, self.read))
        self.assertIn("queue 0, offset 150 is not there", error)
        self.missing = set()
        for other in (lambda offset: 150, lambda offset: -offset):
            self.patch(self, "record", lambda offset, other=other: encoded(
                "orders", b"%d" % offset,
                queue_offset=other(offset) if 150 <= offset < 160 else offset))
            error = str(self.assertRaises(DataLoss, self.read))
            self.assertIn("queue 0, offset 15", error)

    def test_a_part_of_a_queue_with_offsets_of_its_own(self) -> None:
        """After a static topic was moved, the rows have the offsets of the whole queue."""
        self.delta = 100
        self.patch(self, "record", lambda offset: encoded(
            "orders", b"%d" % offset, queue_offset=offset - self.delta))
        plan, part = plan_for(self.name_server.address), QueueRange("orders", BROKER, 0, 100, 300)
        self.assertEqual(rows_of(plan, part), [(one, b"%d" % one) for one in range(100, 300)])
        self.missing = {155}
        error = str(self.assertRaises(DataLoss, rows_of, plan, part))
        self.assertIn("queue 0, offset 155 is not there", error)

    def test_an_answer_that_cannot_be_used_says_where(self) -> None:
        """The error of the task has the topic, the queue and the offset."""
        self.delta = 2**63 - 1
        error = str(self.assertRaises(ReadFailed, self.read))
        self.assertIn(f"topic orders, broker {BROKER}, queue 0, offset 0", error)

    def test_the_number_of_an_inner_batch_is_a_lie(self) -> None:
        """The messages in the body of the batch are counted, and a gap after it is reported."""
        for text in ("abc", "-9", "0", "", "9" * 5000):
            def record(offset: int, text: str = text) -> bytes:
                if offset % 2:
                    return b""
                body = encode_batch([(0, b"%d" % one, "") for one in (offset, offset + 1)])
                return encoded("orders", body, f"INNER_NUM\x01{text}\x02", queue_offset=offset,
                               sys_flag=SYS_INNER_BATCH | SYS_NEED_UNWRAP)

            self.patch(self, "record", record)
            plan, part = plan_for(self.name_server.address), QueueRange("orders", BROKER, 0, 0, 10)
            self.missing = set()
            self.assertEqual(rows_of(plan, part), [(one, b"%d" % one) for one in range(10)])
            self.missing = {6}
            error = str(self.assertRaises(DataLoss, rows_of, plan, part))
            self.assertIn("queue 0, offset 6 is not there: the next message there is 8", error)
            self.patch(self, "record", lambda offset, text=text: encoded(
                "orders", b"junk", f"INNER_NUM\x01{text}\x02", queue_offset=offset,
                sys_flag=SYS_INNER_BATCH | SYS_NEED_UNWRAP))
            error = str(self.assertRaises(BodyUnreadable, rows_of, plan, part))
            self.assertIn("offset 0 (commit log offset 0) is damaged", error)

    def test_topic_removed(self) -> None:
        """A topic that is deleted during the read counts as a loss."""
        self.failures = [ResponseCode.TOPIC_NOT_EXIST] * 99
        self.assertIn("the topic is gone", str(self.assertRaises(DataLoss, self.read)))

    def test_topic_removed_and_passed_over(self) -> None:
        """The messages that were returned before the deletion are read."""
        self.failures = [ResponseCode.TOPIC_NOT_EXIST] * 99
        self.assertEqual(self.read(fail_on_data_loss=False), list(range(100)))

    def test_a_slave_that_has_less_is_no_loss(self) -> None:
        """The reader waits for the master."""
        self.ids = (1,)
        self.ends_at = 200
        error = str(self.assertRaises(ReadFailed, self.read, fail_on_data_loss=False))
        self.assertIn("a slave of broker broker-a has the queue only up to 200", error)
        self.ids = (0,)
        self.assertEqual(self.read(fail_on_data_loss=False), list(range(200)))


class WantedTagsTests(SynchronousTestCase):
    """Tag expressions."""

    def test_tag_expressions_select_all_or_some(self) -> None:
        """An expression selects all messages or some tags; another language gives no tags."""
        self.assertIsNone(wanted_tags("*", "TAG"))
        self.assertIsNone(wanted_tags("", "TAG"))
        self.assertIsNone(wanted_tags("a", "SQL92"))
        self.assertEqual(wanted_tags(" a||b || ", "TAG"), ["a", "b"])
        self.assertEqual(wanted_tags("\0a||\u3000b", "TAG"), ["a", "\u3000b"])


class DamagedTests(SynchronousTestCase):
    """Forty messages in the log of a broker, three of which are damaged."""

    def setUp(self) -> None:
        """Store the messages, and damage three of them: a body, a magic number, and a length."""
        running = topics()
        self.box = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.sent = [(offset, body) for _, offset, body in self.box.fill("orders", [40])]
        [path] = Path(self.box.broker.data, "store", "commitlog").glob("0*")
        with open(path, "r+b") as log:
            data = log.read(1 << 20)
            for number, place, value in ((7, 88, b"#"), (20, 4, b"\0\0\0\0"), (31, 0, b"\0\0\0\0")):
                at = data.index(self.sent[number][1]) - 88 + place
                log.seek(at)
                log.write(value)
        self.bad = {7, 20, 31}

    def read(self, names: str = "queueOffset,body,damage", start: int = 0, end: int = 40,
             **changes: object) -> list[dict[str, Any]]:
        """Return the rows of the range."""
        columns = tuple(select_columns(names, damaged=str(changes.get("damaged", ""))))
        plan = plan_for(self.box.options["nameServer"], columns=columns, **changes)
        part = QueueRange("orders", BROKER, 0, start, end)
        return [row for batch in read_range(plan, part) for row in batch.to_pylist()]

    def test_the_query_fails_and_says_where(self) -> None:
        """This is the default."""
        error = str(self.assertRaises(BodyUnreadable, self.read))
        self.assertIn("queue 0", error)
        self.assertIn("offset 7 (commit log offset ", error)
        self.assertIn("CRC does not match", error)
        self.assertEqual(len(self.read(start=8, end=20)), 12)

    def test_the_others_are_read(self) -> None:
        """With damaged=skip, each skipped message has a line in the log."""
        with self.assertLogs("twistmq.tables", "ERROR") as logs:
            rows = self.read(damaged="skip")
        self.assertEqual([(row["queueOffset"], row["body"]) for row in rows],
                         [each for each in self.sent if each[0] not in self.bad])
        self.assertEqual(len(logs.output), 3)
        self.assertIn("offset 31 (commit log offset", logs.output[2])

    def test_they_are_delivered_marked(self) -> None:
        """They have their positions, a null body and the reason; other columns are filled as far as
        possible.
        """
        rows = self.read("queueOffset,body,damage,topic,queueId,brokerName,tags,storeTimestamp",
                         damaged="deliver")
        self.assertEqual([row["queueOffset"] for row in rows], list(range(40)))
        self.assertEqual({row["queueOffset"] for row in rows if row["damage"]}, self.bad)
        for row, sent in zip(rows, self.sent, strict=True):
            self.assertEqual(row["body"], None if row["queueOffset"] in self.bad else sent[1])
        self.assertEqual({(row["topic"], row["queueId"], row["brokerName"]) for row in rows},
                         {("orders", 0, BROKER)})
        self.assertEqual(len(self.read("queueOffset", damaged="deliver")), 40)

    def test_a_range_without_them(self) -> None:
        """Damage outside the range is not reported."""
        with self.assertNoLogs("twistmq.tables"):
            self.assertEqual(len(self.read(start=32, end=40, damaged="fail")), 8)
