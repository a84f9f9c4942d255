"""END_TRANSACTION: the requests that it accepts, its responses, and the stored messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tests.transaction.case import COMMIT, ROLLBACK, UNKNOWN, TransactionTestCase
from twistmq.broker import hookimpl
from twistmq.plugins import schedule
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import decode_command, encode_request
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import SYS_TRANSACTION_COMMIT, MessageRecord
from twistmq.protocol.topic_names import SCHEDULE_TOPIC
from twistmq.transaction import plugin


class SendTests(TransactionTestCase):
    """Half messages are sent."""

    def test_the_reply_names_the_real_queue_and_the_half_offset(self) -> None:
        """The response has the queue to which the message was sent and the offset of the half
        message.
        """
        reply = self.half(queue_id=3)
        [found] = self.halves()
        self.assertEqual((reply.queue_id, reply.queue_offset, reply.transaction_id),
                         (3, found.queue_offset, "U-half"))
        self.assertEqual(parse_offset_message_id(reply.msg_id)[2], found.physical_offset)
        self.assertEqual((found.queue_id, found.sys_flag), (0, 0))

    def test_others_of_the_same_read(self) -> None:
        """An ordinary message that arrives in the same read gets its own queue offset."""
        self.half(queue_id=3)
        reply = self.send(b"whole", queue_id=2, TRAN_MSG="false")
        self.assertIn(b"whole", self.bodies(queue_id=2))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def test_not_visible(self) -> None:
        """The message is not in its topic before the commit."""
        self.half()
        self.assertEqual(self.stored(), [])

    def test_half_messages_that_are_stored_are_counted_until_they_are_ended(self) -> None:
        """A half message is counted until it is ended, by whatever outcome."""
        first, second = self.half(b"1"), self.half(b"2")
        self.disk.fail_write_in = 1
        self.assertNotEqual(self.send(b"3").code, ResponseCode.SUCCESS)
        self.disk.fail_write_in = None
        self.assertEqual(self.service.metrics.count("T"), 2)
        self.must_end(first, COMMIT)
        self.must_end(second, ROLLBACK)
        self.assertEqual(self.service.metrics.count("T"), 0)


class BatchTests(TransactionTestCase):
    """The ends that arrive in one read are handled together."""

    def end_all(self, *headers: EndTransactionRequestHeader) -> dict[int, tuple[int, str | None]]:
        """Requests in one read; :returns: code and remark by the request's place among them."""
        frames = b"".join(encode_request(RequestCode.END_TRANSACTION, number, header, b"")
                          for number, header in enumerate(headers))
        replies = [decode_command(frame) for data in self.box.kernel.dispatcher.execute(
            self.producer, FrameDecoder().feed(frames), self.box.now_ms)
            for frame in FrameDecoder().feed(data)]
        return {reply.opaque: (reply.code, reply.remark) for reply in replies}

    def test_stored_at_once(self) -> None:
        """All committed messages are stored by one append; each request has its own response."""
        halves = [self.half(b"%d" % number) for number in range(5)]
        appended: list[list[bytes]] = []
        append = self.box.kernel.append

        def counting(records: Sequence[MessageRecord], owners: Sequence[int] | None = None
                     ) -> dict[int, BrokerError]:
            appended.append([record.body for record in records])
            return append(records, owners)

        self.box.kernel.append = counting  # type: ignore[method-assign]
        answers = self.end_all(
            self.end_header(halves[0], COMMIT), self.end_header(halves[1], ROLLBACK),
            self.end_header(halves[2], COMMIT), self.end_header(halves[3], UNKNOWN),
            self.end_header(halves[4], COMMIT, commit_log_offset=7))
        self.assertEqual(answers, {
            0: (ResponseCode.SUCCESS, None), 1: (ResponseCode.SUCCESS, None),
            2: (ResponseCode.SUCCESS, None),
            4: (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")})
        self.assertEqual(appended, [[b"0", b"2"]])
        self.assertEqual(self.bodies(), [b"0", b"2"])
        self.assertEqual(self.service.metrics.count("T"), 2)
        self.assertEqual(sorted(self.asked(60_000)), [b"3", b"4"])

    def test_same_transaction(self) -> None:
        """The first end of a transaction decides, in one read as in two."""
        halves = [self.half(b"%d" % number) for number in range(2)]
        answers = self.end_all(
            self.end_header(halves[0], COMMIT), self.end_header(halves[0], COMMIT),
            self.end_header(halves[1], COMMIT), self.end_header(halves[0], ROLLBACK))
        self.assertEqual([answers[number][0] for number in range(4)],
                         [ResponseCode.SUCCESS] * 3 + [ResponseCode.SYSTEM_ERROR])
        self.assertEqual(self.bodies(), [b"0", b"1"])

    def test_one_is_refused(self) -> None:
        """If one message cannot be stored, it stays a half message; the others are ended."""
        halves = [self.half(b"%d" % number) for number in range(3)]

        @hookimpl
        def before_append(records: Sequence[MessageRecord]) -> dict[int, BrokerError]:
            return {index: BrokerError("not that one") for index, record in enumerate(records)
                    if record.body == b"1" and record.topic == "T"}

        self.box.kernel.hooks.register("picky", SimpleNamespace(before_append=before_append))
        self.box.kernel.hooks.freeze()
        answers = self.end_all(*[self.end_header(half, COMMIT) for half in halves])
        self.assertEqual([answers[number] for number in range(3)], [
            (ResponseCode.SUCCESS, None), (ResponseCode.SYSTEM_ERROR, "not that one"),
            (ResponseCode.SUCCESS, None)])
        self.assertEqual(self.bodies(), [b"0", b"2"])
        self.assertEqual(self.asked(60_000), [b"1"])


class EndTests(TransactionTestCase):
    """Half messages are ended."""

    def test_the_message_is_where_it_was_sent(self) -> None:
        """The message is where it was sent, once, with its tag and its keys."""
        sent_ms = self.box.now_ms
        half = self.half(queue_id=2)
        self.box.now_ms += 50
        self.must_end(half, COMMIT)
        [found] = self.stored(queue_id=2)
        place = parse_offset_message_id(half.msg_id)[2]
        self.assertEqual(
            (found.body, found.sys_flag, found.prepared_transaction_offset, found.queue_offset,
             found.born_timestamp, found.store_timestamp),
            (b"half", SYS_TRANSACTION_COMMIT, place, 0, sent_ms, sent_ms + 50))
        messages, *_ = self.box.kernel.store.reader.query("T", "k", 10, 0, 2**62)
        self.assertEqual(len(messages), 1)

    def test_a_topic_that_lost_queues(self) -> None:
        """A message whose queue no longer exists is stored in a queue that exists."""
        topics = self.box.kernel.topic_config
        topics.update(TopicConfig("T", 8, 8, 6), {})
        half = self.half(queue_id=6)
        topics.update(TopicConfig("T", 4, 4, 6), {})
        self.must_end(half, COMMIT)
        self.assertEqual((self.bodies(queue_id=2), self.bodies(queue_id=6)), ([b"half"], []))

    def test_the_message_is_never_there(self) -> None:
        """A message that is rolled back is never in its topic."""
        self.must_end(self.half(), ROLLBACK)
        self.assertEqual(self.stored(), [])
        self.assertEqual(self.asked(60_000), [])

    def test_not_known(self) -> None:
        """An end of an unknown type gets no response and has no effect."""
        half = self.half()
        for how in (UNKNOWN, 4, 99):
            for asked in (False, True):
                self.assertIsNone(self.box.send(
                    self.producer, RequestCode.END_TRANSACTION,
                    self.end_header(half, how, from_transaction_check=asked)))
        self.assertEqual((self.stored(), self.service.metrics.count("T")), ([], 1))
        self.assertEqual(self.asked(6000), [b"half"])

    def test_wrong_requests(self) -> None:
        """Wrong requests get Apache's codes and remarks, and the half message stays open."""
        half = self.half()
        whole = self.send(b"whole", TRAN_MSG="false")
        self.assertEqual(whole.code, ResponseCode.SUCCESS)
        [other] = self.stored()
        not_found = "Find prepared transaction message failed"
        for changes, remark in (
            ({"producer_group": "other"}, "The producer group wrong"),
            ({"tran_state_table_offset": 77}, "The transaction state table offset wrong"),
            ({"commit_log_offset": 10**9}, not_found),
            ({"commit_log_offset": 1}, not_found),
            ({"commit_log_offset": -1}, not_found),
            ({"commit_log_offset": other.physical_offset}, not_found),
        ):
            for how in (COMMIT, ROLLBACK):
                self.assertEqual(self.end(half, how, **changes),
                                 (ResponseCode.SYSTEM_ERROR, remark))
        self.assertEqual(self.bodies(), [b"whole"])
        self.must_end(half, COMMIT)

    def test_group_is_not_said(self) -> None:
        """A half message without a producer group cannot be ended by one."""
        half = self.half(PGROUP="")
        for group in ("g", "", None):
            self.assertEqual(self.end(half, COMMIT, producer_group=group),
                             (ResponseCode.SYSTEM_ERROR, "The producer group wrong"))

    def test_id_is_not_said(self) -> None:
        """The place tells which half message is meant; an id is not needed."""
        self.assertEqual(self.end(self.half(), COMMIT, msg_id=None)[0], ResponseCode.SUCCESS)

    def test_ended_twice(self) -> None:
        """The second time it is answered as the first, and delivered no more."""
        half = self.half()
        for _ in range(3):
            self.must_end(half, COMMIT)
        self.assertEqual(self.bodies(), [b"half"])
        self.assertEqual(self.service.metrics.count("T"), 0)
        self.assertEqual(self.end(half, ROLLBACK),
                         (ResponseCode.SYSTEM_ERROR, "The transaction has ended otherwise"))

    def test_committed_after_rollback(self) -> None:
        """A commit after a rollback does not deliver the message."""
        half = self.half()
        self.must_end(half, ROLLBACK)
        self.assertEqual(self.end(half, COMMIT)[0], ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.stored(), [])

    def test_store_does_not_take_it(self) -> None:
        """A commit that cannot be stored is refused, and can be tried again."""
        half = self.half()
        self.disk.fail_write_in = 1
        self.assertNotEqual(self.end(half, COMMIT)[0], ResponseCode.SUCCESS)
        self.disk.fail_write_in = None
        self.assertEqual(self.stored(), [])
        self.must_end(half, COMMIT)
        self.assertEqual(self.bodies(), [b"half"])

    def test_a_slave_ends_nothing(self) -> None:
        """A slave refuses to end transactions."""
        half = self.half()
        self.box.kernel.set_role("SLAVE", 1)
        self.assertEqual(self.end(half, COMMIT)[0], ResponseCode.SLAVE_NOT_AVAILABLE)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.must_end(half, COMMIT)

    def test_own_time_is_over(self) -> None:
        """A producer that set its own time must end the message before it, or as an answer."""
        half = self.half(b"1", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
        short = self.half(b"2", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        self.box.now_ms += 6000
        self.must_end(short, COMMIT)
        self.box.now_ms += 4001
        self.assertEqual(self.end(half, COMMIT)[0], ResponseCode.ILLEGAL_OPERATION)
        self.assertEqual(self.end(half, ROLLBACK)[0], ResponseCode.ILLEGAL_OPERATION)
        self.assertEqual(self.end(half, COMMIT, from_transaction_check=True)[0],
                         ResponseCode.SUCCESS)
        self.assertEqual(self.bodies(), [b"2", b"1"])


class DelayTests(TransactionTestCase):
    """Half messages with a delay level."""

    plugins = (("schedule", schedule.Plugin), ("transaction", plugin.Plugin))

    def test_delay_begins_with_the_commit(self) -> None:
        """The delay begins with the commit, and not with the half message."""
        half = self.half(DELAY="1")
        self.assertEqual([each.body for each in self.halves()], [b"half"])
        self.box.now_ms += 3000
        self.must_end(half, COMMIT)
        self.assertEqual(self.stored(), [])
        stats = self.box.kernel.stats
        self.assertEqual((stats.sums("TOPIC_PUT", SCHEDULE_TOPIC).count,
                          stats.has("TOPIC_PUT", "T")), (1, False))
        self.box.now_ms += 1000
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "deliver delayed messages"]
        task.run(self.box.now_ms)
        self.assertEqual(self.bodies(), [b"half"])
        self.assertEqual(len(self.halves()), 1)
