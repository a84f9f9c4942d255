"""A member that pops: what is popped when, and what becomes of each message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, route, routes
from tests.client.core.pop_box import BROKER, PopBox, PopBroker
from twistmq.client.base.errors import Closed, OptionError, Unsupported
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.strategies import AveragelyByCircle
from twistmq.protocol.bodies import (
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from twistmq.protocol.headers.pop import PopMessageRequestHeader


class PopCase(SynchronousTestCase):
    """Ten messages in two queues."""

    def start(self, count: int = 10, **options: Any) -> PopBox:
        """Start a member."""
        self.box = PopBox(**options)
        for number in range(count):
            self.box.broker.put(b"%d" % number, number % 2)
        self.box.start()
        return self.box

    def take(self, most: int = 100) -> Batch[bytes]:
        """Demand messages and take those of one queue."""
        self.box.demand()
        batch = self.box.member.take(most)
        assert batch is not None
        return batch


class StrategyTests(PopCase):
    """The option ``strategy``: the broker divides the queues by it."""

    def test_the_broker_is_told_its_name(self) -> None:
        """Java's default is AVG."""
        for options, name in (({}, "AVG"), ({"strategy": AveragelyByCircle()}, "AVG_BY_CIRCLE")):
            box = self.start(**options)
            questions = [json.loads(command.body) for _, command in box.requests
                         if command.code == RequestCode.QUERY_ASSIGNMENT]
            self.assertEqual({each["strategyName"] for each in questions}, {name})
            self.assertEqual({each["consumerGroup"] for each in questions}, {"g"})


class DemandTests(PopCase):
    """Pops: when, of which queues, how many messages."""

    def test_nothing_is_popped_before_something_waits(self) -> None:
        """A popped message is hidden from the other members."""
        box = self.start()
        box.advance(30_000)
        self.assertEqual(box.broker.pops, [])
        box.demand()
        self.assertEqual(sorted(box.take_all()), list(range(10)))
        box.advance(5000)
        self.assertEqual(len(box.broker.pops), 1)

    def test_a_pop_is_held_and_repeated_while_something_waits(self) -> None:
        """The broker does not answer: after its time another one is sent."""
        box = self.start(0)
        box.demand()
        box.advance(25_000)
        self.assertEqual([pop.poll_time for pop in box.broker.pops], [15_000])
        box.advance(10_000)
        self.assertEqual(len(box.broker.pops), 2)
        self.assertEqual(box.broker.pops[0].born_time, 0)

    def test_messages_that_are_popped_and_not_finished_are_bounded(self) -> None:
        """By number; a finished one makes room."""
        box = self.start(in_flight_max=4)
        batch = self.take()
        box.take_all()
        box.demand()
        self.assertEqual([pop.max_msg_nums for pop in box.broker.pops], [4])
        box.member.succeed(batch.assigned, batch.messages[:1])
        box.settle()
        self.assertEqual([pop.max_msg_nums for pop in box.broker.pops], [4, 1])

    def test_bytes_that_are_popped_and_not_finished_are_bounded(self) -> None:
        """A pop counts with what it may bring, 256 KiB; a finished message makes room."""
        box = self.start(0, cache_bytes_max=300_000, pop_count=1)
        for _ in range(3):
            box.broker.put(b"1".ljust(100_000))
        batch = self.take()
        box.demand()
        self.assertEqual(len(box.broker.pops), 1)
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(len(box.broker.pops), 2)

    def test_a_paused_member_pops_nothing(self) -> None:
        """One source, or all."""
        box = self.start()
        for queues in (None, [MessageQueue("T", "a", -1)]):
            box.member.set_paused(queues, True)
            box.demand()
            self.assertEqual(box.broker.pops, [])
            box.member.set_paused(queues, False)
        box.settle()
        self.assertEqual(len(box.broker.pops), 1)

    def test_a_pop_that_fails_is_tried_again(self) -> None:
        """A refusal, a broker that holds too many, a lost connection."""
        box = self.start()
        for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.POLLING_FULL,
                     ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
            box.broker.refusals = {RequestCode.POP_MESSAGE: code}
            box.demand()
            box.advance(1500)
            self.assertEqual(box.take_all(), [])
        box.broker.refusals = {}
        box.broker.silent = {RequestCode.POP_MESSAGE}
        box.advance(1000)
        box.cut(BROKER)
        box.broker.silent = set()
        # The messages of the lost answer are hidden for their time.
        box.advance(70_000)
        self.assertEqual(sorted(box.take_all()), list(range(10)))

    def test_an_unexpected_error_does_not_end_the_pops(self) -> None:
        """It is logged, and the source is popped again soon."""
        box = self.start()
        with mock.patch.object(box.core.routes, "master", side_effect=ZeroDivisionError), (
                self.assertLogs("twistmq.client", "ERROR")) as logged:
            box.demand()
            box.advance(500)
        self.assertIn("failed, and is tried again", logged.output[0])
        box.advance(5000)
        self.assertEqual(sorted(box.take_all()), list(range(10)))

    def test_tags_are_compared_again(self) -> None:
        """A broker compares hashes; a message with another tag is acknowledged and not seen."""
        box = self.start(0, expression="a || b")
        for number, tag in enumerate("abc"):
            box.broker.put(b"%d" % number, 0, tag)
        box.demand()
        self.assertEqual(box.take_all(), [0, 1])
        box.settle()
        self.assertEqual(box.broker.acks, [2])

    def test_a_message_that_waited_for_too_long_is_not_handed_out(self) -> None:
        """Another member may have it; a new demand pops it again."""
        box = self.start(invisible_s=8)
        box.demand()
        box.advance(7000)
        self.assertEqual(box.take_all(), [])
        self.assertEqual(box.member.assigned_queues.total.byte_count, 0)
        box.advance(1000)
        box.demand()
        self.assertEqual(sorted(box.take_all()), list(range(10)))


    def test_the_time_that_was_asked_for_counts_whatever_the_broker_says(self) -> None:
        """Of a long time of the broker's too much would be over at once; a line names both."""
        box = self.start(invisible_s=2)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            answer = honest(request)
            if request.code == RequestCode.POP_MESSAGE and answer is not None and answer[1]:
                answer[1].invisible_time = 60_000  # type: ignore[attr-defined]
            return answer

        box.servers[BROKER] = lie
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.demand()
        self.assertEqual(sorted(box.take_all()), list(range(10)))
        self.assertEqual((len(honest.pops), len(logs.output)), (1, 1))
        self.assertIn("for 2000 ms", logs.output[0])
        self.assertIn("for 60000 ms", logs.output[0])

    def test_a_change_of_the_time_counts_as_it_was_asked_for(self) -> None:
        """A message that waits again is handed out, whatever the broker says of its time."""
        box = self.start(1, invisible_s=2)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            answer = honest(request)
            if request.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME and answer is not None:
                answer[1].invisible_time = 600_000  # type: ignore[union-attr]
            return answer

        box.servers[BROKER] = lie
        batch = self.take()
        box.advance(1500)
        self.assertEqual(len(honest.changes), 1)
        box.member.release(batch.assigned, batch.messages)
        self.assertEqual(box.take_all(), [0])


class ResultTests(PopCase):
    """Messages that are acknowledged, fail, expire or are lost."""

    def test_finished_messages_are_acknowledged_together(self) -> None:
        """A broker that knows no batch gets them one by one."""
        box = self.start()
        batch = self.take()
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual((box.broker.acks, box.broker.batches), ([0, 2, 4, 6, 8], 1))
        box.broker.refusals = {
            RequestCode.BATCH_ACK_MESSAGE: ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        batch = self.take()
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(sorted(box.broker.acks), list(range(10)))
        self.assertEqual(box.pop.acks.count, 0)
        for number in range(3):
            box.broker.put(b"%d" % number, 0)
        batch = self.take()
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(len(box.broker.acks), 13)
        asked = [request for _, request in box.requests
                 if request.code == RequestCode.BATCH_ACK_MESSAGE]
        self.assertEqual(len(asked), 2)

    def test_receipts_of_retries_name_the_topic_of_their_kind(self) -> None:
        """Both kinds of names; the message shows the topic that was asked for."""
        for mark, topic in (("1", "%RETRY%g_T"), ("2", "%RETRY%g+T")):
            box = self.start(0)
            box.broker.retry_mark = mark
            box.broker.put(b"1", 0)
            batch = self.take()
            [message] = batch.messages
            self.assertEqual((message.topic, message.queue), ("T", MessageQueue("T", "a", 0)))
            box.member.succeed(batch.assigned, [message])
            box.settle()
            [ack] = [request.fields() for _, request in box.requests
                     if request.code == RequestCode.ACK_MESSAGE]
            self.assertEqual(ack["topic"], topic)
            self.assertEqual(box.broker.acks, [1])

    def test_an_acknowledgement_is_tried_again_while_its_receipt_is_valid(self) -> None:
        """A broker that is away for a while costs no second delivery."""
        box = self.start(1)
        batch = self.take()
        box.broker.silent = {RequestCode.ACK_MESSAGE}
        box.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(20_000)
        self.assertEqual(box.broker.acks, [])
        box.broker.refusals, box.broker.silent = {}, set()
        box.advance(2000)
        self.assertEqual(box.broker.acks, [0])

    def test_an_acknowledgement_whose_receipt_ended_is_not_sent(self) -> None:
        """The message is perhaps another member's."""
        box = self.start(1, invisible_s=5)
        batch = self.take()
        box.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(5500)
        box.broker.refusals = {}
        box.advance(5000)
        self.assertEqual((box.broker.acks, box.pop.acks.count), ([], 0))
        self.assertEqual(box.broker.open(), [0])

    def test_a_message_is_hidden_for_longer_while_its_handler_runs(self) -> None:
        """Its newest receipt acknowledges it."""
        box = self.start(1, invisible_s=10)
        batch = self.take()
        box.advance(100_000)
        self.assertEqual(box.broker.open(), [])
        self.assertFalse(batch.messages[0].lost)
        self.assertLess(len(box.broker.changes), 30)
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [0])

    def test_an_acknowledgement_waits_for_a_change_that_is_under_way(self) -> None:
        """It would be of the old receipt, and the message would come again."""
        box = self.start(1, invisible_s=10)
        batch = self.take()
        [message] = batch.messages
        changing = box.engine.tasks.spawn(box.pop.acks.change(message, 9000))  # type: ignore[arg-type]
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertTrue(changing.is_done)
        self.assertEqual(box.broker.acks, [0])
        codes = [request.code for _, request in box.requests][-2:]
        self.assertEqual(codes, [RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                                 RequestCode.ACK_MESSAGE])

    def test_a_message_that_another_member_has_is_lost(self) -> None:
        """The broker refuses to hide it for longer."""
        box = self.start(1, invisible_s=10)
        batch = self.take()
        box.broker.messages[0, 0].pop_ms += 7
        box.advance(7000)
        self.assertTrue(batch.messages[0].lost)

    def test_a_handler_that_takes_too_long_has_its_message_delivered_again(self) -> None:
        """It is hidden no longer, and its late result counts for nothing."""
        box = self.start(1, invisible_s=10, consume_timeout_s=30)
        batch = self.take()
        box.advance(31_000)
        self.assertTrue(batch.messages[0].lost)
        box.advance(10_000)
        self.assertEqual(box.broker.open(), [0])
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [])

    def test_a_lost_message_is_neither_handed_out_again_nor_counted(self) -> None:
        """A worker that sees it gives it back, skips it, or finishes it too late."""
        for end in ("release", "skip", "fail"):
            box = self.start(1, invisible_s=10, consume_timeout_s=30)
            batch = self.take()
            box.advance(31_000)
            self.assertTrue(batch.messages[0].lost)
            changes = len(box.broker.changes)
            if end == "release":
                box.member.release(batch.assigned, batch.messages)
            elif end == "fail":
                box.member.fail(batch.assigned, batch.messages)
            box.settle()
            self.assertEqual(box.member.delivery.running, 0, msg=end)
            self.assertEqual(batch.assigned.window.count, 0, msg=end)
            self.assertIsNone(box.member.take(1))
            box.advance(5000)
            self.assertEqual(len(box.broker.changes), changes, msg="it is not hidden any more")

    def test_a_failed_message_that_is_lost_meanwhile_is_counted_once(self) -> None:
        """The broker does not answer when it is to be hidden for its next attempt."""
        box = self.start(1, invisible_s=2)
        batch = self.take()
        box.broker.silent = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
        box.member.fail(batch.assigned, batch.messages)
        box.advance(10_000)
        self.assertEqual(box.member.delivery.running, 0)

    def test_a_failed_message_waits_for_its_next_attempt(self) -> None:
        """By its attempts, or the level that the handler gives."""
        box = self.start(1)
        for delay_ms, level in ((10_000, 0), (30_000, 0), (1000, 1)):
            batch = self.take()
            [message] = batch.messages
            box.member.fail(batch.assigned, [message], level)
            box.settle()
            self.assertEqual(box.broker.changes[-1].invisible_time, delay_ms)
            self.assertEqual(box.member.delivery.running, 0)
            box.advance(delay_ms)
        self.assertEqual(self.take().messages[0].attempt, 4)

    def test_a_message_that_failed_too_often_is_sent_to_the_dead_letters(self) -> None:
        """So is one whose handler says it; when the broker refuses, it comes again."""
        box = self.start(2, max_attempts=1)
        batch = self.take()
        box.member.fail(batch.assigned, batch.messages, -1)
        batch = self.take()
        box.member.fail(batch.assigned, batch.messages, 1)
        box.settle()
        box.advance(1000)
        batch = self.take()
        self.assertEqual(batch.messages[0].attempt, 2)
        box.broker.refusals = {RequestCode.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_ERROR}
        box.member.fail(batch.assigned, batch.messages)
        box.advance(60_000)
        self.assertEqual(box.broker.open(), [1])
        box.broker.refusals = {}
        batch = self.take()
        box.member.fail(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual([(each.origin_topic, each.delay_level, each.offset)
                          for each in box.broker.sent_back], [("T", -1, 0), ("T", -1, 1000)])
        self.assertEqual(box.broker.acks, [0, 1])

    def test_a_released_message_is_handed_out_again(self) -> None:
        """An iteration was left: the broker is not asked."""
        box = self.start(1)
        batch = self.take()
        box.member.release(batch.assigned, batch.messages)
        self.assertEqual(box.take_all(), [0])
        self.assertEqual(len(box.broker.pops), 1)


class OrderTests(PopCase):
    """With ``order="queue"``."""

    def test_messages_of_a_queue_are_handed_out_one_after_the_other(self) -> None:
        """A failed one comes again before the next; the broker knows the pop as one in order."""
        box = self.start(6, order="queue", suspend_s=1)
        first = self.take(1)
        self.assertEqual([int(each.body) for each in first.messages], [0])
        second = box.member.take(1)
        assert second is not None
        self.assertEqual(second.messages[0].queue.queue_id, 1)
        self.assertIsNone(box.member.take(1))
        box.member.fail(first.assigned, first.messages)
        self.assertIsNone(box.member.take(1))
        box.advance(1100)
        again = box.member.take(1)
        assert again is not None
        self.assertEqual((int(again.messages[0].body), again.messages[0].attempt), (0, 2))
        box.member.succeed(again.assigned, again.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [0])
        self.assertEqual(box.broker.batches, 0)
        self.assertTrue(box.broker.pops[0].order)

    def test_the_broker_says_how_often_a_message_was_delivered(self) -> None:
        """Records of an order do not change."""
        box = self.start(1, order="queue", invisible_s=5)
        self.take().messages[0].lost = True
        box.advance(6000)
        box.member.assigned_queues.clear()
        self.assertEqual(self.take().messages[0].attempt, 2)

    def test_messages_behind_one_that_is_handled_stay_hidden(self) -> None:
        """Else they would be delivered before it."""
        box = self.start(4, order="queue", invisible_s=5)
        self.take(1)
        box.advance(20_000)
        self.assertEqual([int(each.body) for key, each in box.broker.messages.items()
                          if key[0] == 0 and each.visible_ms <= box.clock.now_ms], [])

    def test_a_lost_message_takes_those_behind_it_along(self) -> None:
        """They would be handled before it: the broker gives all of them out again."""
        box = self.start(6, order="queue", invisible_s=5, consume_timeout_s=20)
        batch = self.take(2)
        first, second = batch.messages
        box.broker.messages[first.record.queue_id, first.offset].pop_ms += 7
        box.advance(4000)
        self.assertEqual((first.lost, second.lost, box.member.delivery.running), (True, True, 0))
        box.member.release(batch.assigned, [second])
        following = [box.member.take(1), box.member.take(1)]
        self.assertNotIn(first.queue, [each.messages[0].queue for each in following if each])
        box.advance(6000)
        again = self.take(2)
        self.assertEqual([each.body for each in again.messages], [first.body, second.body])

    def test_messages_that_are_given_out_again_replace_those_that_are_here(self) -> None:
        """The receipts of the earlier ones are void."""
        box = self.start(2, order="queue")
        batch = self.take(1)
        box.broker.messages[batch.messages[0].queue.queue_id, 0].visible_ms = 0
        box.member.take(1)
        again = self.take(1)
        self.assertEqual(again.messages[0].body, batch.messages[0].body)
        self.assertTrue(batch.messages[0].lost)
        box.member.succeed(again.assigned, again.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [int(again.messages[0].body)])

    def test_a_pop_without_an_answer_is_sent_again_as_the_same_attempt(self) -> None:
        """The broker knows it by its id, and gives out the same messages."""
        box = self.start(1, order="queue")
        box.broker.silent = {RequestCode.POP_MESSAGE}
        box.demand()
        box.cut(BROKER)
        box.advance(1100)
        box.broker.silent = set()
        ids = [pop.attempt_id for pop in box.broker.pops]
        self.assertEqual((len(ids), len(set(ids))), (2, 1))
        box.broker.put(b"1")
        box.advance(61_000)
        self.take()
        self.demand_again()
        self.assertNotEqual(box.broker.pops[-1].attempt_id, ids[0])

    def demand_again(self) -> None:
        """Wait for messages until there is another pop."""
        count = len(self.box.broker.pops)
        self.box.demand()
        self.assertGreater(len(self.box.broker.pops), count)

    def test_a_dead_message_of_an_order_is_followed_by_the_next(self) -> None:
        """It goes to the dead letters and is acknowledged."""
        box = self.start(4, order="queue", suspend_s=0.1)
        batch = self.take(1)
        box.member.fail(batch.assigned, batch.messages, -1)
        box.advance(200)
        following = box.take_all(1)
        self.assertIn(2, following)
        self.assertEqual((box.broker.acks, len(box.broker.sent_back)), ([0], 1))


class AssignmentTests(PopCase):
    """The queues of each broker that are popped."""

    def test_without_a_mode_all_queues_of_all_brokers_are_popped(self) -> None:
        """The names are those of the namespace; listeners hear of them."""
        told: list[list[MessageQueue]] = []
        box = PopBox(on_assigned=told.append)
        other = PopBroker(box.clock, "b")
        box.servers["10.0.0.3:10911"] = other
        box.servers[NAMESRV] = routes({"T": route({"a": BROKER, "b": "10.0.0.3:10911"}, 2)})
        box.broker.put(b"1")
        other.put(b"2")
        box.start()
        both = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]
        self.assertEqual((box.member.assigned(), told), (both, [both]))
        box.demand()
        self.assertEqual(sorted(box.take_all()), [1, 2])

    def test_the_mode_of_the_group_is_followed_while_it_runs(self) -> None:
        """An administrator has each member pop some queues, and then all again."""
        told: list[tuple[str, list[MessageQueue]]] = []
        box = self.start(on_assigned=lambda queues: told.append(("got", queues)),
                         on_lost=lambda queues: told.append(("lost", queues)))
        one, all_of_it = MessageQueue("T", "a", 1), MessageQueue("T", "a", -1)
        box.broker.assignments = [{"messageQueue": {
            "topic": "T", "brokerName": "a", "queueId": 1}, "mode": "POP"}]
        box.advance(21_000)
        self.assertEqual(box.member.assigned(), [one])
        box.demand()
        self.assertEqual(box.take_all(), [1, 3, 5, 7, 9])
        self.assertEqual([pop.queue_id for pop in box.broker.pops], [1])
        box.broker.refusals = {RequestCode.QUERY_ASSIGNMENT: ResponseCode.SYSTEM_ERROR}
        box.advance(21_000)
        self.assertEqual(box.member.assigned(), [one])
        box.broker.refusals, box.broker.assignments = {}, None
        box.advance(21_000)
        self.assertEqual(box.member.assigned(), [all_of_it])
        self.assertEqual(told[1:], [("lost", [all_of_it]), ("got", [one]),
                                    ("lost", [one]), ("got", [all_of_it])])

    def test_a_broker_without_pop_is_refused_at_the_start(self) -> None:
        """The text says what to use instead, and the group is left."""
        box = PopBox()
        box.broker.refusals = {
            RequestCode.QUERY_ASSIGNMENT: ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        with self.assertRaises(Unsupported) as caught:
            box.run(box.member.start())
        self.assertIn("RocketMQ 5.0", str(caught.exception))
        self.assertEqual((box.core.members, box.broker.members), ([], set()))

    def test_a_topic_that_is_not_wanted_any_more_is_given_back(self) -> None:
        """Its messages are visible at once."""
        box = self.start()
        box.demand()
        box.member.unsubscribe("T")
        box.advance(2000)
        self.assertEqual(box.broker.open(), list(range(10)))
        self.assertEqual((box.member.assigned(), box.member.assigned_queues), ([], {}))

    def test_a_group_cannot_begin_at_a_time(self) -> None:
        """Brokers know the first and the last message only."""
        with self.assertRaises(OptionError):
            PopBox(start=datetime(2026, 1, 1, tzinfo=UTC))


class CloseTests(PopCase):
    """A close."""

    def test_a_close_waits_for_handlers_and_gives_back_the_rest(self) -> None:
        """Nothing is hidden afterwards, and what is finished is acknowledged."""
        box = self.start()
        batch = self.take(3)
        closing = box.engine.tasks.spawn(box.member.close(10_000), "close")
        box.advance(5000)
        self.assertFalse(closing.is_done)
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertTrue(closing.is_done)
        self.assertEqual(box.broker.acks, [0, 2, 4])
        self.assertEqual(box.broker.open(), [1, 3, 5, 6, 7, 8, 9])
        self.assertEqual(box.broker.members, set())
        with self.assertRaises(Closed):
            box.run(box.member.ready())

    def test_a_close_waits_for_acknowledgements_that_are_tried_again(self) -> None:
        """A finished message does not come again because a broker was busy for a moment."""
        box = self.start(1)
        batch = self.take()
        box.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        closing = box.engine.tasks.spawn(box.member.close(10_000), "close")
        box.advance(500)
        self.assertFalse(closing.is_done)
        box.broker.refusals = {}
        box.advance(3000)
        self.assertTrue(closing.is_done)
        self.assertEqual(box.broker.acks, [0])

    def test_a_handler_that_does_not_end_has_its_message_given_back(self) -> None:
        """Its late result counts for nothing."""
        box = self.start(1)
        batch = self.take()
        box.run(box.member.close(2000))
        self.assertEqual(box.broker.open(), [0])
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [])

    def test_messages_of_a_pop_that_ends_too_late_are_given_back(self) -> None:
        """The client is shared, so its connections stay."""
        box = self.start(0)
        answered: list[Any] = []
        serve = box.broker

        def late(command: Any) -> Any:
            if command.code == RequestCode.POP_MESSAGE:
                answered.append(command)
                return None
            return serve(command)

        box.servers[BROKER] = late
        box.demand()
        box.run(box.member.close(1000))
        serve.put(b"1")
        code, header, body, _ = serve(answered[-1])  # type: ignore[misc]
        box.reply(BROKER, answered[-1], code, header, body)
        box.settle()
        self.assertEqual(serve.open(), [1])
        self.assertEqual(len(serve.changes), 1)

    def test_a_close_ends_although_no_broker_answers(self) -> None:
        """Within a few seconds."""
        box = self.start(3)
        batch = self.take(1)
        box.broker.silent = {RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
                             RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                             RequestCode.UNREGISTER_CLIENT}
        box.member.succeed(batch.assigned, batch.messages)
        begin_ms = box.clock.now_ms
        box.run(box.member.close(1000))
        self.assertLess(box.clock.now_ms - begin_ms, 15_000)


class ToolTests(PopCase):
    """Questions of tools."""

    def ask(self, code: int, header: Any, body: bytes = b"") -> Any:
        """Let the broker ask; :returns: the client's answer."""
        self.box.push(BROKER, encode_request(code, 7, header, body))
        self.box.settle()
        [answer] = [request for _, request in self.box.requests if request.is_response]
        self.box.requests.clear()
        return answer

    def test_the_running_info_shows_what_is_popped(self) -> None:
        """With Apache's fields; there are no queues that are pulled."""
        box = self.start()
        self.take()
        answer = self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO,
                          GetConsumerRunningInfoRequestHeader("g", box.core.client_id))
        info = ConsumerRunningInfo.decode(answer.body)
        self.assertEqual(info.mq_table, {})
        self.assertEqual(info.mq_pop_table, {MessageQueue("T", "a", -1): {
            "waitAckCount": 10, "droped": False, "lastPopTimestamp": box.clock.wall_ms()}})
        self.assertEqual(info.status_table["T"]["pullTPS"], 10 / 60)

    def test_a_member_has_no_offsets(self) -> None:
        """Brokers have them: a reset changes nothing here."""
        box = self.start()
        batch = self.take(1)
        answer = self.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                          GetConsumerStatusRequestHeader("T", "g", box.core.client_id))
        self.assertEqual(GetConsumerStatusBody.decode(answer.body).message_queue_table, {})
        body = ResetOffsetBody({MessageQueue("T", "a", 0): 0}).encode_standard()
        self.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                 ResetOffsetRequestHeader("g", "T", is_force=True), body)
        self.assertFalse(batch.messages[0].lost)

    def test_a_tool_gives_a_message_to_a_handler(self) -> None:
        """It is not popped, so nothing is acknowledged."""
        box = self.start(0)
        box.push(BROKER, encode_request(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, 7, ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g"), self.record()))
        box.settle()
        batch = box.member.take(1)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        [answer] = [request for _, request in box.requests if request.is_response]
        self.assertIn(b"CR_SUCCESS", answer.body)
        self.assertEqual(box.pop.acks.count, 0)

    def record(self) -> bytes:
        """A message as a broker stores it."""
        self.box.broker.put(b"5")
        self.box.broker.pops.append(PopMessageRequestHeader("g", "T", 0, 1, 0, 0, 0))
        return self.box.broker._record(self.box.broker.messages.pop((0, 0)))
