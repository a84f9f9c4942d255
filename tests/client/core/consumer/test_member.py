"""A member of a group: what it reads, hands out, commits and gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, route, routes, stored
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.base.errors import Closed, OptionError
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.core.consumer.assigned_queues import Batch, MemberOptions
from twistmq.client.core.consumer.retries import Retries
from twistmq.client.core.consumer.strategies import Strategy
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import HeartbeatData, MessageModel, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.flags import PULL_COMMIT_OFFSET
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.properties import parse_properties


def beats_unanswered(
    broker: GroupBroker, beats: list[RemotingCommand]
) -> Callable[[RemotingCommand], Answer]:
    """A broker that answers everything but heartbeats, which are noted."""
    def answer(command: RemotingCommand) -> Answer:
        if command.code == RequestCode.HEART_BEAT:
            beats.append(command)
            return None
        return broker(command)

    return answer


def queue(number: int) -> MessageQueue:
    """A queue of the topic."""
    return MessageQueue("T", "a", number)


class ReadingTests(SynchronousTestCase):
    """From the queues to the handlers."""

    def setUp(self) -> None:
        """Make a broker with ten messages in each of four queues."""
        self.broker = GroupBroker()
        for number in range(40):
            self.broker.put("T", number % 4, b"%d" % number, "ab"[number % 2])

    def test_a_member_alone_gets_all_queues_and_every_message_once(self) -> None:
        """It reads all that there was before it."""
        box = GroupBox(self.broker)
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(40)))
        self.assertEqual(set(box.member.assigned_queues), {queue(number) for number in range(4)})

    def test_tags_are_compared_again(self) -> None:
        """A queue knows the hashes of tags only, so the client looks at the tags themselves."""
        box = GroupBox(self.broker, expression="a || c")
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(0, 40, 2)))

    def test_a_queue_that_was_never_read_begins_where_the_options_say(self) -> None:
        """With "last" only messages that come later are read."""
        box = GroupBox(self.broker, start="last")
        box.start()
        self.assertEqual(box.take_all(), [])
        self.assertEqual(box.member.assigned_queues[queue(0)].next_offset, 10)

    def new_member(self) -> GroupBox:
        """A member that got its queues a moment ago; the member before commits one of them then."""
        box = GroupBox(self.broker)
        box.run(box.member.start())
        box.advance(300)
        self.assertEqual(len(box.member.assigned_queues), 4)
        self.broker.offsets["g", "T", 1] = 7
        return box

    def test_a_new_queue_begins_where_the_member_before_ended(self) -> None:
        """The other member commits while the queue waits for its first pull."""
        box = self.new_member()
        box.advance(300)
        self.assertEqual(sorted(box.take_all(1000)), sorted(
            number for number in range(40) if number % 4 != 1 or number // 4 >= 7))

    def test_a_new_queue_is_not_committed_before_it_is_pulled(self) -> None:
        """The group would be set back to where it was before."""
        box = self.new_member()
        box.run(box.intake.committer.commit(again=True))
        self.assertEqual(self.broker.offsets, {("g", "T", 1): 7})
        box.advance(300)
        box.run(box.intake.committer.commit(again=True))
        self.assertEqual([self.broker.offsets["g", "T", number] for number in range(4)],
                         [0, 7, 0, 0])

    def test_a_stop_reaches_a_wait_that_was_just_woken(self) -> None:
        """A message that another one takes wakes it, and the stop comes before it looks again."""
        box = GroupBox(self.broker)
        box.start()
        box.take_all()
        waits = [box.member.tasks.spawn(box.member.ready(), "wait") for _ in range(2)]
        box.advance(1)
        self.assertEqual([each.is_done for each in waits], [False, False])
        box.member.delivery._notify()
        box.member.wake_all()
        box.advance(1)
        self.assertEqual([each.is_done for each in waits], [True, True])

    def test_an_unknown_offset_is_never_a_number(self) -> None:
        """A broker that cannot say where the group is keeps the queue from being read."""
        self.broker.refusals[RequestCode.QUERY_CONSUMER_OFFSET] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker)
        box.start()
        self.assertEqual(box.member.assigned_queues, {})
        self.broker.refusals.clear()
        box.advance(2000)
        self.assertEqual(sorted(box.take_all()), list(range(40)))

    def test_a_negative_offset_is_none(self) -> None:
        """No broker has a message there: the queue waits, and the log says so."""
        self.broker.offsets["g", "T", 1] = -5
        box = GroupBox(self.broker)
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.start()
        self.assertIn("the group is at offset -5", logs.output[0])
        self.assertEqual(len(box.member.assigned_queues), 3)

    def test_a_topic_that_is_not_there_is_said_once(self) -> None:
        """It is read as soon as it is there."""
        box = GroupBox(self.broker)
        box.member.subscribe(subscription("U", None))
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.start()
            box.advance(60_000)
        said = [line for line in logs.output if "waits for topic U" in line]
        self.assertEqual(len(said), 1)

    def test_what_is_finished_is_committed_and_nothing_beyond(self) -> None:
        """The offset is that of the first message that is not finished.

        A new member commits as often as later: another one may have its queues at any time.
        """
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 4)
        box.member.succeed(batch.assigned, batch.messages[:2])
        box.advance(box.member.options.commit_ms)
        number = batch.assigned.queue.queue_id
        self.assertEqual(self.broker.offsets["g", "T", number], 2)
        box.member.succeed(batch.assigned, batch.messages[3:])
        box.advance(6_000)
        self.assertEqual(self.broker.offsets["g", "T", number], 2)
        box.member.succeed(batch.assigned, batch.messages[2:3])
        box.advance(6_000)
        self.assertEqual(self.broker.offsets["g", "T", number], 4)

    def take(self, box: GroupBox, most: int) -> Batch[bytes]:
        """Take a batch that must be there."""
        batch = box.member.take(most)
        assert batch is not None
        return batch

    def test_an_offset_that_the_broker_lost_is_replaced_by_its_own(self) -> None:
        """The queue is taken again at the place that the broker says."""
        self.broker.offsets.update({("g", "T", number): 99 for number in range(4)})
        box = GroupBox(self.broker)
        box.start()
        box.advance(5_000)
        self.assertEqual({self.broker.offsets["g", "T", number] for number in range(4)}, {10})
        self.broker.put("T", 1, b"40")
        box.cut(BROKER)
        box.advance(5_000)
        self.assertEqual(box.take_all(), [40])

    def test_a_failed_message_is_sent_back_and_counts_as_finished(self) -> None:
        """The broker delivers it again later."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 1)
        box.member.fail(batch.assigned, batch.messages, 5)
        box.advance(15_000)
        [header] = self.broker.sent_back
        self.assertEqual((header.delay_level, header.max_reconsume_times), (5, 16))
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 1)

    def test_a_message_that_cannot_be_sent_back_waits_here(self) -> None:
        """It is handed out again five seconds later, and its offset is not committed."""
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker)
        box.start()
        box.take_all()
        [assigned] = [each for each in box.member.assigned_queues.values()
                      if each.queue == queue(1)]
        [message] = [each for each in assigned.window.running() if each.offset == 0]
        box.member.fail(assigned, [message])
        box.advance(20_000)
        batch = self.take(box, 10)
        self.assertEqual([each.offset for each in batch.messages], [0])
        self.assertEqual(batch.messages[0].attempt, 2)

    def test_a_message_that_cannot_be_sent_back_goes_to_the_retry_topic(self) -> None:
        """The member sends a copy itself; the message counts as finished and waits nowhere."""
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker)
        sent: list[SendMessageRequestHeaderV2] = []

        def serve(command: RemotingCommand) -> Answer:
            if command.code != RequestCode.SEND_MESSAGE_V2:
                return self.broker(command)
            sent.append(command.header(SendMessageRequestHeaderV2))
            self.assertEqual(command.body, b"0")
            return stored(command)

        box.servers[BROKER] = serve
        box.servers[NAMESRV] = routes({"T": box.route, "%RETRY%g": box.route})
        box.start()
        batch = next(batch for batch in iter(lambda: self.take(box, 1), None)
                     if batch.messages[0].body == b"0")
        box.member.fail(batch.assigned, batch.messages)
        box.advance(20_000)
        [header] = sent
        self.assertEqual((header.topic, header.reconsume_times, header.max_reconsume_times),
                         ("%RETRY%g", 1, 16))
        self.assertEqual(self.broker.offsets["g", "T", 0], 1)
        self.assertNotIn(0, box.take_all())

    def test_the_copy_for_the_retry_topic_counts_the_attempt(self) -> None:
        """Its delay grows with each, and the message is dead in the end as any other is."""
        for times in (0, 2):
            broker = GroupBroker(1)
            broker.put("T", 0, b"tried", reconsume_times=times)
            box = GroupBox(broker)
            box.start()
            [message] = self.take(box, 1).messages
            copy = Retries(box.core, "g", box.member.sender, 16).copy(message)
            self.assertEqual((copy.topic, copy.reconsume_times, copy.max_reconsume_times),
                             ("%RETRY%g", times + 1, 16))
            properties = parse_properties(copy.properties)
            self.assertEqual((properties["DELAY"], properties["RETRY_TOPIC"]),
                             (str(times + 3), "T"))

    def test_a_close_does_not_wait_for_the_next_attempt_here(self) -> None:
        """Whether the message failed before the close or after it began; the next member gets it.

        What its queue finished ahead of it is committed.
        """
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        self.broker.refusals[RequestCode.SEND_MESSAGE_V2] = ResponseCode.NO_PERMISSION
        for fails_in_close in (False, True):
            self.broker.offsets.clear()
            box = GroupBox(self.broker)
            box.start()
            batch = self.take(box, 3)
            queue_id = batch.assigned.queue.queue_id
            box.member.succeed(batch.assigned, batch.messages[:1])
            if fails_in_close:
                box.tasks_later(100, box.member.fail, batch.assigned, batch.messages[1:])
            else:
                box.member.fail(batch.assigned, batch.messages[1:])
                box.advance(1_000)
            begin = box.clock.now_ms
            box.run(box.member.close())
            self.assertEqual(box.clock.now_ms - begin, 100 if fails_in_close else 0)
            self.assertEqual(self.broker.offsets["g", "T", queue_id], 1)
            again = GroupBox(self.broker)
            again.start()
            again.take_all()
            [assigned] = [each for each in again.member.assigned_queues.values()
                          if each.queue == queue(queue_id)]
            self.assertEqual([each.offset for each in assigned.window.running()][:2], [1, 2])
            again.run(again.member.close(0))

    def test_a_close_without_a_broker_waits_for_no_attempt(self) -> None:
        """A broker that refuses connections holds up no close by a message that failed."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        del box.servers[BROKER]
        box.cut(BROKER)
        box.member.fail(batch.assigned, batch.messages)
        box.advance(100)
        begin = box.clock.now_ms
        box.run(box.member.close())
        self.assertLess(box.clock.now_ms - begin, 1_000)

    def test_a_handler_that_takes_too_long_has_its_message_sent_back(self) -> None:
        """Its late result does not count."""
        box = GroupBox(self.broker, consume_timeout_ms=60_000)
        box.start()
        batch = self.take(box, 1)
        box.advance(130_000)
        self.assertEqual([header.delay_level for header in self.broker.sent_back], [3])
        box.member.fail(batch.assigned, batch.messages)
        box.advance(1_000)

    def test_a_pull_that_fails_is_tried_again(self) -> None:
        """A cut connection costs a second, and no message."""
        box = GroupBox(self.broker)
        box.start()
        box.take_all()
        box.cut(BROKER)
        self.broker.put("T", 2, b"41")
        box.advance(3_000)
        self.assertEqual(box.take_all(), [41])

    def test_a_broker_that_forgot_the_group_hears_of_it_at_once(self) -> None:
        """Each answer that says so is followed by a heartbeat, not by a half minute."""
        for code in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST,
                     ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                     ResponseCode.SUBSCRIPTION_PARSE_FAILED):
            self.setUp()
            box = GroupBox(self.broker)
            box.start()
            before = self.broker.heartbeats
            self.broker.refusals[RequestCode.PULL_MESSAGE] = code
            # A pull that is refused, and not the new connection, is what it follows.
            self.broker.put("T", 0, b"40")
            box.cut(BROKER)
            box.advance(1_500)
            self.assertGreater(self.broker.heartbeats, before + 1, msg=code.name)

    def test_messages_beyond_the_bounds_are_not_read(self) -> None:
        """A member that hands out nothing stops pulling."""
        for number in range(4000):
            self.broker.put("T", 0, b"%d" % number)
        box = GroupBox(self.broker)
        box.start()
        box.advance(10_000)
        self.assertLess(box.member.assigned_queues[queue(0)].window.count, 1100)

    def test_close_commits_what_is_finished_and_leaves(self) -> None:
        """It waits for handlers, and the broker forgets the member."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        box.tasks_later(2_000, box.member.succeed, batch.assigned, batch.messages)
        begin = box.clock.now_ms
        box.run(box.member.close(10_000))
        self.assertEqual(box.clock.now_ms - begin, 2_000)
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 3)
        self.assertEqual(self.broker.members["g"], set())
        self.assertEqual(box.core.members, [])
        self.assertRaises(Closed, box.run, box.member.ready())

    def test_a_commit_of_a_close_that_fails_is_made_once_more(self) -> None:
        """Else the messages come again; when it fails twice, one line tells of it."""
        for failures in (1, 2):
            broker = GroupBroker()
            broker.put("T", 0, b"0")
            box = GroupBox(broker)
            commits: list[int | None] = []

            def unanswered(
                command: RemotingCommand, broker: GroupBroker = broker,
                commits: list[int | None] = commits, failures: int = failures,
            ) -> Answer:
                if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
                    header = command.header(UpdateConsumerOffsetRequestHeader)
                    if header.commit_offset:
                        commits.append(header.commit_offset)
                        if len(commits) <= failures:
                            return None
                return broker(command)

            box.servers[BROKER] = unanswered
            box.start()
            batch = self.take(box, 1)
            box.member.succeed(batch.assigned, batch.messages)
            with self.assertLogs("twistmq.client", "WARNING") as logged:
                box.run(box.member.close(1_000))
            self.assertEqual(commits, [1, 1])
            key = "g", "T", batch.assigned.queue.queue_id
            self.assertEqual(broker.offsets.get(key), 1 if failures == 1 else 0)
            errors = [record for record in logged.records if record.levelname == "ERROR"]
            self.assertEqual(len(errors), failures - 1)

    def test_a_commit_waits_for_the_one_before(self) -> None:
        """A broker may handle the later of two first; a pull commits nothing for that reason."""
        box = GroupBox(self.broker)
        commits: list[int | None] = []
        pulls: list[int] = []

        is_slow = False

        def first_unanswered(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.PULL_MESSAGE:
                pulls.append(command.header(PullMessageRequestHeader).sys_flag)
            if is_slow and command.code == RequestCode.UPDATE_CONSUMER_OFFSET and (
                    command.header(UpdateConsumerOffsetRequestHeader).queue_id
                    == first.assigned.queue.queue_id):
                commits.append(command.header(UpdateConsumerOffsetRequestHeader).commit_offset)
                if commits == [1]:
                    return None
            return self.broker(command)

        box.servers[BROKER] = first_unanswered
        box.start()
        first = self.take(box, 1)
        second = box.member.take(1)
        while second is not None and second.assigned is not first.assigned:
            second = box.member.take(1)
        assert second is not None
        is_slow = True
        box.member.succeed(first.assigned, first.messages)
        while not commits:
            box.advance(100)
        box.member.succeed(second.assigned, second.messages)
        closing = box.engine.tasks.spawn(box.member.close(1_000))
        box.advance(4_000)
        self.assertEqual((commits, closing.is_done), ([1], False))
        box.advance(2_000)
        self.assertEqual((commits, closing.is_done), ([1, 2], True))
        self.assertEqual(self.broker.offsets["g", "T", first.assigned.queue.queue_id], 2)
        self.assertTrue(pulls)
        self.assertFalse(any(flag & PULL_COMMIT_OFFSET for flag in pulls))

    def test_the_first_commit_of_a_topic_is_made_alone(self) -> None:
        """Apache's broker may keep one of several first ones; later ones are made together.

        That of 4.9.4 says 0 of a group without an offset.
        """
        box = GroupBox(self.broker)
        commits: list[int] = []

        def unanswered(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and is_slow:
                commits.append(command.header(UpdateConsumerOffsetRequestHeader).queue_id)
                return None
            if command.code == RequestCode.QUERY_CONSUMER_OFFSET and not self.broker.offsets:
                return (ResponseCode.SUCCESS, QueryConsumerOffsetResponseHeader(offset=0),
                        b"", None)
            return self.broker(command)

        is_slow = False
        box.servers[BROKER] = unanswered
        box.start()
        is_slow = True
        for _ in range(4):
            batch = self.take(box, 1)
            box.member.succeed(batch.assigned, batch.messages)
        several = {assigned.queue.queue_id for assigned in box.member.assigned_queues.values()
                   if assigned.window.committable}
        self.assertGreater(len(several), 1)
        committing = box.engine.tasks.spawn(box.member.commit())
        box.advance(1_000)
        self.assertEqual(len(commits), 1)
        is_slow = False
        box.advance(20_000)
        self.assertTrue(committing.is_done)
        self.assertEqual({queue_id for _, topic, queue_id in self.broker.offsets
                          if topic == "T"}, several)
        is_slow = True
        commits.clear()
        box.engine.tasks.spawn(box.intake.committer.commit(again=True))
        box.advance(100)
        self.assertLessEqual(several, set(commits))
        is_slow = False
        box.advance(20_000)
        # With a topic the broker forgets the offsets of groups.
        box.intake.moves.topic_deleted(next(iter(box.member.assigned_queues.values())))
        is_slow = True
        commits.clear()
        box.engine.tasks.spawn(box.intake.committer.commit(again=True))
        box.advance(50)
        self.assertEqual(len(commits), 1)

    def test_a_queue_that_was_set_back_is_committed_again(self) -> None:
        """As by a late commit of the member before, within three commits."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(12_000)
        key = "g", "T", batch.assigned.queue.queue_id
        self.assertEqual(self.broker.offsets[key], 3)
        self.broker.offsets[key] = 1
        box.advance(16_000)
        self.assertEqual(self.broker.offsets[key], 3)

    def test_close_gives_up_a_handler_that_does_not_end(self) -> None:
        """Its message is not committed and comes again."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        box.run(box.member.close(1_000))
        self.assertEqual(self.broker.offsets.get(("g", "T", batch.assigned.queue.queue_id), 0), 0)
        self.assertEqual(self.broker.sent_back, [])

    def test_a_close_while_the_member_starts_leaves_no_task(self) -> None:
        """A start that waits for its first heartbeat when the client closes begins nothing more."""
        for client_is_closed in (False, True):
            box = GroupBox(self.broker)
            beats: list[RemotingCommand] = []
            box.servers[BROKER] = beats_unanswered(self.broker, beats)
            starting = box.engine.tasks.spawn(box.member.start())
            box.advance(100)
            self.assertEqual((len(beats) > 0, starting.is_done), (True, False))
            box.engine.tasks.spawn(
                box.core.close() if client_is_closed else box.member.close())
            box.advance(60_000)
            self.assertRaises(Closed if not client_is_closed else (Closed, Cancelled),
                              starting.result)
            self.assertEqual(
                {task.name for task in box.engine.tasks.tasks}
                - {"heartbeats", "heartbeat", "routes"}, set())

    def test_a_start_that_is_cancelled_leaves(self) -> None:
        """Else heartbeats keep its queues, and another member of the group is refused."""
        box = GroupBox(self.broker)
        beats: list[RemotingCommand] = []
        box.servers[BROKER] = beats_unanswered(self.broker, beats)
        starting = box.engine.tasks.spawn(box.member.start())
        box.advance(100)
        self.assertEqual((len(beats) > 0, starting.is_done), (True, False))
        box.servers[BROKER] = self.broker
        starting.cancel()
        box.advance(10_000)
        self.assertRaises(Cancelled, starting.result)
        self.assertEqual(box.core.members, [])
        self.assertEqual(box.core.routes.followed(), set())
        box.member = box.new_member("g")
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(40)))

    def cancelled_close(self) -> tuple[GroupBox, Batch[Any], Task[None]]:
        """Cancel a close that waits for a handler; two messages of its batch are finished."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        box.member.succeed(batch.assigned, batch.messages[:2])
        closing = box.engine.tasks.spawn(box.member.close(10_000))
        box.advance(100)
        self.assertFalse(closing.is_done)
        closing.cancel()
        return box, batch, closing

    def test_a_close_that_is_cancelled_goes_to_its_end(self) -> None:
        """Without waiting for handlers any longer; a second close waits for that."""
        box, batch, closing = self.cancelled_close()
        box.run(box.member.close(10_000), 1_000)
        self.assertRaises(Cancelled, closing.result)
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 2)
        self.assertEqual((box.core.members, self.broker.members["g"]), ([], set()))

    def test_a_client_that_closes_before_its_members_is_quiet(self) -> None:
        """The pulls that wait end with its connections, which is no failure to look at."""
        for options in ({}, {"in_order": True}):
            box = GroupBox(self.broker, **options)
            box.start()
            box.take_all()
            with self.assertNoLogs("twistmq.client", "WARNING"):
                box.run(box.core.close())
                box.advance(10_000)

    def test_a_client_that_closes_lets_a_member_leave(self) -> None:
        """A close that was interrupted is followed by that of the client."""
        box, batch, _ = self.cancelled_close()
        box.run(box.core.close())
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 2)
        self.assertEqual(box.core.before_close, [])


    def test_an_unexpected_error_does_not_end_the_pulls(self) -> None:
        """It is logged, and the queue is pulled again soon."""
        box = GroupBox(self.broker)
        box.start()
        for number in range(4):
            self.broker.put("T", number, b"%d" % (40 + number))
        # The pulls that are held time out; the next ones fail.
        with mock.patch.object(box.core.routes, "reader", side_effect=ZeroDivisionError), (
                self.assertLogs("twistmq.client", "ERROR")) as logged:
            box.advance(35_000)
        failed = [line for line in logged.output if "a pull of MessageQueue" in line]
        self.assertIn("failed, and is tried again", failed[0])
        box.advance(5_000)
        self.assertEqual(sorted(box.take_all()), list(range(44)))


class SharedClientTests(SynchronousTestCase):
    """A producer and a consumer of one client whose groups have the same name."""

    def test_one_leaves_and_the_other_stays(self) -> None:
        """The consumer that leaves takes the producer's group from no broker."""
        box = GroupBox()
        sender = Sender(box.core, ProducerOptions(group="g"), lambda now_ms: "ID")
        box.core.add(sender)
        box.start()
        box.run(box.member.close())
        [leaving] = [command.fields() for _, command in box.requests
                     if command.code == RequestCode.UNREGISTER_CLIENT]
        self.assertEqual((leaving.get("consumerGroup"), leaving.get("producerGroup")), ("g", None))
        self.assertIn(sender, box.core.members)


class SharedTopicTests(SynchronousTestCase):
    """Two groups of one client that read the same topic."""

    def test_the_topic_is_followed_as_long_as_one_of_them_reads_it(self) -> None:
        """A member that closes, or cannot start, takes it from no other."""
        box = GroupBox()
        other = box.new_member("g2")
        box.start()
        box.run(other.start())
        twin = box.new_member("g2")
        self.assertRaises(OptionError, box.run, twin.start())
        box.run(twin.close())
        self.assertIn("T", box.core.routes.followed())
        box.run(box.member.close())
        box.route.queue_datas[0].read_queue_nums = 8
        box.advance(35_000)
        self.assertEqual(len(other.assigned_queues), 8)
        box.run(other.close())
        self.assertEqual(box.core.routes.followed(), set())


class _Failing(Strategy):
    """A strategy of a program that fails a few times."""

    name = "FAILING"

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def allocate(
        self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError("a bug")
        return list(queues)


class RebalanceTests(SynchronousTestCase):
    """Queues that come and go."""

    def setUp(self) -> None:
        """Make a broker and a member."""
        self.broker = GroupBroker()
        for number in range(40):
            self.broker.put("T", number % 4, b"%d" % number)

    def test_a_second_member_takes_half_of_the_queues(self) -> None:
        """The first commits what it loses, and marks running messages as lost."""
        box = GroupBox(self.broker)
        box.start()
        batches = []
        while (batch := box.member.take(1)) is not None and len(batches) < 4:
            batches.append(batch)
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(set(box.member.assigned_queues), {queue(0), queue(1)})
        lost = {batch.assigned.queue: batch.messages[0].lost for batch in batches}
        self.assertEqual(lost, {queue(0): False, queue(1): False, queue(2): True, queue(3): True})

    def test_an_error_of_the_strategy_does_not_end_the_rounds(self) -> None:
        """It is logged once, the round is tried again each second, and the queues come then."""
        strategy = _Failing(5)
        box = GroupBox(self.broker, strategy=strategy)
        with self.assertLogs("twistmq.client", "ERROR") as logged:
            box.start()
            box.advance(3_000)
            self.assertEqual(box.member.assigned_queues, {})
            box.advance(3_000)
        [line] = logged.output
        self.assertIn("the rebalance of group g failed, and is tried again: "
                      "ZeroDivisionError: a bug", line)
        self.assertEqual(set(box.member.assigned_queues), {queue(number) for number in range(4)})
        strategy.failures = 1
        with self.assertLogs("twistmq.client", "ERROR") as logged:
            box.advance(25_000)
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(sorted(box.take_all()), list(range(40)))

    def test_handlers_that_end_soon_after_the_change_have_their_results_committed(self) -> None:
        """The member that has the queue now looks where it begins half a second after it took it.

        A result that comes later, or after that of a failure, is not committed.
        """
        box = GroupBox(self.broker)
        box.start()
        batches = {batch.assigned.queue: batch
                   for batch in [box.member.take(4) for _ in range(4)] if batch is not None}
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        while len(box.member.assigned_queues) == 4:
            box.advance(10)
        soon, late = batches[queue(2)], batches[queue(3)]
        box.member.succeed(soon.assigned, soon.messages[:2])
        box.member.fail(soon.assigned, soon.messages[2:3])
        box.member.succeed(soon.assigned, soon.messages[3:])
        box.advance(400)
        self.assertEqual(self.broker.offsets["g", "T", 2], 2)
        box.member.succeed(late.assigned, late.messages)
        box.advance(30_000)
        self.assertEqual(self.broker.offsets.get(("g", "T", 3), 0), 0)
        self.assertEqual(self.broker.offsets["g", "T", 2], 2)
        self.assertEqual(self.broker.sent_back, [])

    def lose_two_queues(self) -> GroupBox:
        """A member that finished four messages of each queue, and lost the queues 2 and 3.

        The group is set back to 1 in both, as a member of Apache's client does that asked where
        they begin before this one committed, and commits it with its first pull.
        """
        box = GroupBox(self.broker)
        box.start()
        for _ in range(4):
            batch = box.member.take(4)
            assert batch is not None
            box.member.succeed(batch.assigned, batch.messages)
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(set(box.member.assigned_queues), {queue(0), queue(1)})
        for number in (2, 3):
            self.assertEqual(self.broker.offsets["g", "T", number], 4)
            self.broker.offsets["g", "T", number] = 1
        return box

    def commit_twice_and_lose_two_queues(self) -> GroupBox:
        """A member that committed 4 and then 6 of each queue, and lost the queues 2 and 3."""
        box = GroupBox(self.broker)
        box.start()
        for count in (4, 2):
            for _ in range(4):
                batch = box.member.take(count)
                assert batch is not None
                box.member.succeed(batch.assigned, batch.messages)
            if count == 4:
                box.advance(6_500)
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        return box

    def come_back(self, box: GroupBox, number: int) -> int:
        """The other member leaves; :returns: where a lost queue begins."""
        self.broker.members["g"].discard("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(len(box.member.assigned_queues), 4)
        return box.member.assigned_queues[queue(number)].window.committable

    def test_a_queue_that_comes_back_soon_goes_on_where_this_member_stopped(self) -> None:
        """The group is no longer set back then."""
        box = self.lose_two_queues()
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [4, 4])
        box.advance(6_000)
        self.assertEqual([self.broker.offsets["g", "T", number] for number in (2, 3)], [4, 4])

    def test_a_queue_that_was_set_back_to_what_was_committed_before_goes_on_too(self) -> None:
        """A member of Apache's client that asks before the commit finds the earlier offset."""
        box = self.commit_twice_and_lose_two_queues()
        for number in (2, 3):
            self.assertEqual(self.broker.offsets["g", "T", number], 6)
            self.broker.offsets["g", "T", number] = 4
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [6, 6])

    def test_a_queue_that_comes_back_begins_where_another_member_ended(self) -> None:
        """That one came further."""
        box = self.lose_two_queues()
        self.broker.offsets["g", "T", 2] = 6
        self.assertEqual(self.come_back(box, 2), 6)

    def test_a_queue_that_comes_back_late_begins_where_the_broker_says(self) -> None:
        """The members that had it meanwhile have committed, or a tool has."""
        box = self.lose_two_queues()
        box.advance(10_000)
        self.assertEqual(self.come_back(box, 2), 1)

    def test_where_a_member_stopped_does_not_count_at_another_broker(self) -> None:
        """A slave that did not have the end of the log may be the master now, or the same again."""
        box = self.lose_two_queues()
        box.cut(BROKER)
        box.advance(2_000)
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [1, 1])

    def test_where_a_member_stopped_does_not_count_in_a_topic_that_was_made_anew(self) -> None:
        """The queue is shorter, and all its messages are new, wherever the group begins."""
        box = self.lose_two_queues()
        self.patch(box.intake.beginnings, "_options", MemberOptions(group="g", start="last"))
        for number in (2, 3):
            del self.broker.records["T", number][2:]
        del self.broker.offsets["g", "T", 3]
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [1, 0])

    def test_where_a_member_stopped_counts_when_the_broker_answers_late(self) -> None:
        """The end of the queue is not known with the first try."""
        box = self.lose_two_queues()
        self.broker.refusals[RequestCode.GET_MAX_OFFSET] = ResponseCode.SYSTEM_BUSY
        self.broker.members["g"].discard("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(set(box.member.assigned_queues), {queue(0), queue(1)})
        self.broker.refusals.clear()
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [4, 4])

    def test_a_tool_that_moves_a_queue_while_it_comes_back_is_heard(self) -> None:
        """The end of the queue is asked for meanwhile."""
        box = self.lose_two_queues()
        answer = self.broker._get_max_offset

        def moved(command: RemotingCommand) -> Answer:
            self.broker.offsets["g", "T", 2] = 2
            box.intake.stops.forget([queue(2)])
            return answer(command)

        self.patch(self.broker, "_get_max_offset", moved)
        self.assertEqual(self.come_back(box, 2), 2)

    def test_a_queue_that_a_tool_moved_begins_where_the_tool_says(self) -> None:
        """Also when another member had it then."""
        box = self.lose_two_queues()
        box.run(box.intake.move_to({queue(2): 1}))
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [1, 4])

    def test_an_offset_before_what_was_committed_is_a_tools(self) -> None:
        """No member can have found it: the messages behind it are to come again.

        A reset at the broker alone tells no member.
        """
        box = self.commit_twice_and_lose_two_queues()
        self.assertEqual([self.broker.offsets["g", "T", number] for number in (2, 3)], [6, 6])
        self.broker.offsets["g", "T", 2] = 2
        self.broker.offsets["g", "T", 3] = 5
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [2, 6])

    def test_a_tool_that_moves_a_queue_while_it_is_given_up_is_heard(self) -> None:
        """The commit of the lost queue is not remembered then."""
        box, batch = self.losing()
        box.run(box.intake.move_to({queue(2): 0, queue(3): 0}))
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(1_500)
        for number in (2, 3):
            self.broker.offsets["g", "T", number] = 0
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [0, 0])

    def test_a_queue_that_was_never_committed_comes_back(self) -> None:
        """A new group that begins at the end would skip what came meanwhile."""
        self.broker.refusals[RequestCode.UPDATE_CONSUMER_OFFSET] = ResponseCode.SYSTEM_ERROR
        box = GroupBox(self.broker, start="last")
        box.start()
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.broker.put("T", 2, b"42")
        self.assertEqual(self.come_back(box, 2), 10)
        box.advance(600)
        self.assertEqual(box.take_all(), [42])

    def test_a_member_commits_as_soon_as_the_members_change(self) -> None:
        """The one that gets a queue may ask where it begins before this one gives it up."""
        box = GroupBox(self.broker)
        box.start()
        batch = box.member.take(4)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        self.broker.refusals[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = ResponseCode.SYSTEM_ERROR
        box.notify()
        box.advance(10)
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 4)

    def test_a_broker_that_hangs_does_not_hold_up_the_queues_of_another_one(self) -> None:
        """Their messages are there at once, although the queues of the other are not."""
        silent = "10.0.0.8:10911"
        for name in ("0hangs", "z hangs"):
            for in_order in (False, True):
                self.broker.members.clear()
                self.broker.locks.clear()
                box = GroupBox(self.broker, in_order=in_order)
                box.route = route({name: silent, "a": BROKER})
                box.servers[silent] = lambda command: None
                box.tasks_later(0, box.core.tasks.spawn, box.member.start())
                # A heartbeat waits for three seconds, and the members and locks are asked next.
                box.advance(6_500)
                self.assertEqual({assigned.broker_name for assigned in box.member.assigned_queues},
                                 {"a"})
                self.assertIsNotNone(box.member.take(1))
                box.run(box.member.close(0))
                self.assertEqual(box.member.assigned_queues, {})

    def test_a_broker_that_hangs_does_not_keep_the_members_from_a_new_one(self) -> None:
        """Another broker of the topic says who is in the group, within the same time."""
        box = GroupBox(self.broker)
        silent = "10.0.0.8:10911"
        box.route = route({"0hangs": silent, "a": BROKER})
        box.servers[silent] = lambda command: None
        self.broker.members["g"].add("10.0.0.0@other")
        box.run(box.member.start())
        box.advance(3600)
        assigned = {each.queue.broker_name for each in box.member.assigned_queues.values()}
        self.assertIn("a", assigned)

    def losing(self, **options: Any) -> tuple[GroupBox, Batch[bytes]]:
        """A member that is giving two queues up; :returns: it, and what runs of one of them."""
        box = GroupBox(self.broker, **options)
        box.start()
        batches = {batch.assigned.queue: batch
                   for batch in [box.member.take(1) for _ in range(4)] if batch is not None}
        self.broker.members["g"].add("10.0.0.2@zzz")
        box.notify()
        while len(box.member.assigned_queues) == 4:
            box.advance(10)
        for number in (0, 1, 3):
            batch = batches[queue(number)]
            box.member.succeed(batch.assigned, batch.messages)
        return box, batches[queue(2)]

    def test_a_close_ends_what_was_begun_with_lost_queues(self) -> None:
        """The results of handlers that ended meanwhile are committed."""
        box, batch = self.losing()
        box.tasks_later(50, box.member.succeed, batch.assigned, batch.messages)
        begin = box.clock.now_ms
        box.run(box.member.close(10_000))
        self.assertLess(box.clock.now_ms - begin, 100)
        self.assertEqual([self.broker.offsets["g", "T", number] for number in range(4)],
                         [1, 1, 1, 1])

    def test_a_close_gives_back_the_locks_of_lost_queues(self) -> None:
        """Else no member reads them for a minute. The lock of a handler that runs on stays."""
        box, batch = self.losing(in_order=True)
        box.tasks_later(50, box.member.succeed, batch.assigned, batch.messages)
        box.run(box.member.close(10_000))
        self.assertEqual(self.broker.locks, {})
        self.broker.members["g"].clear()
        box, _ = self.losing(in_order=True)
        box.run(box.member.close(500))
        self.assertEqual(set(self.broker.locks), {queue(2)})

    def test_a_close_gives_back_the_locks_of_queues_that_come(self) -> None:
        """Their first offset is not known yet, so that the member does not have them."""
        asked: list[RemotingCommand] = []

        def answer(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
                asked.append(command)
                return None
            return self.broker(command)

        box = GroupBox(self.broker, in_order=True)
        box.servers[BROKER] = answer
        box.run(box.member.start())
        while not asked:
            box.advance(10)
        self.assertEqual(len(self.broker.locks), 4)
        box.run(box.member.close(10_000))
        box.advance(10)
        self.assertEqual(self.broker.locks, {})

    def test_no_moment_of_a_close_leaves_a_lock(self) -> None:
        """Also just before or after the locks were asked for."""
        for steps in range(40):
            self.broker.members["g"].clear()
            box = GroupBox(self.broker, in_order=True)
            box.run(box.member.start())
            for _ in range(steps):
                box.engine.run()
                box.advance(1)
            closing = box.member.tasks.spawn(box.member.close(10_000), "close")
            box.advance(2_000)
            self.assertTrue(closing.is_done)
            self.assertEqual(self.broker.locks, {}, steps)

    def test_a_member_that_no_broker_lists_has_no_queue(self) -> None:
        """It holds nothing until its heartbeat is known."""
        box = GroupBox(self.broker)
        box.start()
        self.broker.members["g"].clear()
        self.broker.refusals[RequestCode.HEART_BEAT] = ResponseCode.SYSTEM_ERROR
        box.notify()
        box.advance(1_500)
        self.assertEqual(box.member.assigned_queues, {})

    def test_without_a_list_of_members_nothing_changes(self) -> None:
        """A broker that does not answer costs no queue."""
        box = GroupBox(self.broker)
        box.start()
        self.broker.refusals[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = ResponseCode.SYSTEM_ERROR
        box.advance(60_000)
        self.assertEqual(len(box.member.assigned_queues), 4)

    def test_more_queues_are_followed(self) -> None:
        """A route with more queues is seen within half a minute."""
        box = GroupBox(self.broker)
        box.start()
        box.route.queue_datas[0].read_queue_nums = 8
        box.advance(35_000)
        self.assertEqual(len(box.member.assigned_queues), 8)

    def test_a_broadcasting_member_has_all_queues_whoever_else_is_there(self) -> None:
        """It asks for no list of members, and its heartbeats say that it broadcasts."""
        self.broker.members["g"].add("10.0.0.2@zzz")
        box = GroupBox(self.broker, is_broadcast=True)
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(40)))
        models = {each.message_model for _, command in box.requests
                  if command.code == RequestCode.HEART_BEAT
                  for each in HeartbeatData.decode(command.body).consumer_data_set}
        self.assertEqual(models, {MessageModel.BROADCASTING})


class OrderTests(SynchronousTestCase):
    """Consumption in order."""

    def setUp(self) -> None:
        """Make a broker with ten messages in one queue."""
        self.broker = GroupBroker(queues=1)
        for number in range(10):
            self.broker.put("T", 0, b"%d" % number)

    def test_nothing_is_handed_out_while_a_message_of_the_queue_runs(self) -> None:
        """The next comes when the one before is finished."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        seen = []
        for _ in range(10):
            batch = box.member.take(1)
            assert batch is not None
            self.assertIsNone(box.member.take(1))
            seen.append(int(batch.messages[0].body))
            box.member.succeed(batch.assigned, batch.messages)
        self.assertEqual(seen, list(range(10)))

    def test_a_failed_message_comes_again_before_the_next(self) -> None:
        """After the wait of a suspension, and never sent back."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        batch = box.member.take(3)
        assert batch is not None
        box.member.fail(batch.assigned, batch.messages)
        box.settle()
        self.assertIsNone(box.member.take(3))
        box.advance(1_100)
        again = box.member.take(3)
        assert again is not None
        self.assertEqual([int(each.body) for each in again.messages], [0, 1, 2])
        self.assertEqual({each.attempt for each in again.messages}, {2})
        self.assertEqual(self.broker.sent_back, [])

    def test_a_message_with_too_many_attempts_leaves_the_order(self) -> None:
        """It goes to the dead letters, and the next one follows."""
        box = GroupBox(self.broker, in_order=True, max_attempts=1)
        box.start()
        for _ in range(2):
            batch = box.member.take(1)
            assert batch is not None
            self.assertEqual(int(batch.messages[0].body), 0)
            box.member.fail(batch.assigned, batch.messages)
            box.advance(1_200)
        self.assertEqual([header.delay_level for header in self.broker.sent_back], [-1])
        batch = box.member.take(1)
        assert batch is not None
        self.assertEqual(int(batch.messages[0].body), 1)

    def test_a_queue_that_another_member_locked_is_not_read(self) -> None:
        """It is taken once the lock is free."""
        self.broker.locks[queue(0)] = "other"
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.assertEqual(box.member.assigned_queues, {})
        del self.broker.locks[queue(0)]
        box.advance(2_000)
        self.assertEqual(list(box.member.assigned_queues), [queue(0)])

    def test_an_answer_without_locks_is_said(self) -> None:
        """Nothing is read then."""
        def answer(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.LOCK_BATCH_MQ:
                return ResponseCode.SUCCESS, None, b"\xff", None
            return self.broker(command)

        box = GroupBox(self.broker, in_order=True)
        box.servers[BROKER] = answer
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.start()
        self.assertIn("no locks from broker a", logs.output[0])
        self.assertEqual(box.member.assigned_queues, {})

    def test_a_lock_that_is_not_renewed_stops_the_order(self) -> None:
        """After thirty seconds the lock is not believed in."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.broker.locks[queue(0)] = "other"
        box.advance(31_000)
        self.assertIsNone(box.member.take(1))

    def test_close_gives_the_locks_back(self) -> None:
        """Another member can lock the queue at once."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.assertEqual(self.broker.locks, {queue(0): "10.0.0.1@test"})
        box.run(box.member.close())
        box.settle()
        self.assertEqual(self.broker.locks, {})


    def test_a_lost_queue_stays_locked_until_its_handler_ends(self) -> None:
        """The member does not take it again before, either."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        batch = box.member.take(1)
        assert batch is not None
        self.broker.members["g"].add("10.0.0.0@aaa")
        box.notify()
        box.advance(10_000)
        self.assertEqual((box.member.assigned_queues, self.broker.locks),
                         ({}, {queue(0): "10.0.0.1@test"}))
        self.broker.members["g"].remove("10.0.0.0@aaa")
        box.notify()
        box.advance(10_000)
        self.assertEqual(box.member.assigned_queues, {})
        self.broker.members["g"].add("10.0.0.0@aaa")
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(100)
        self.assertEqual(self.broker.locks, {})

    def test_a_close_does_not_wait_for_the_dead_letters(self) -> None:
        """A broker that refuses a dead message holds it up no longer than an answer takes."""
        self.broker.refusals[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR
        self.broker.refusals[RequestCode.SEND_MESSAGE_V2] = ResponseCode.NO_PERMISSION
        for fails_in_close in (False, True):
            box = GroupBox(self.broker, in_order=True, max_attempts=0)
            box.start()
            batch = box.member.take(1)
            assert batch is not None
            if fails_in_close:
                box.tasks_later(100, box.member.fail, batch.assigned, batch.messages)
            else:
                box.member.fail(batch.assigned, batch.messages)
                box.advance(1_000)
            begin = box.clock.now_ms
            box.run(box.member.close())
            self.assertEqual(box.clock.now_ms - begin, 100 if fails_in_close else 0)
            self.assertEqual((self.broker.offsets["g", "T", 0], self.broker.locks), (0, {}))

    def test_close_leaves_the_lock_of_a_handler_that_runs(self) -> None:
        """Another member would handle the same queue beside it."""
        box = GroupBox(self.broker, in_order=True)
        box.start()
        self.assertIsNotNone(box.member.take(1))
        box.run(box.member.close(1_000))
        box.settle()
        self.assertEqual(self.broker.locks, {queue(0): "10.0.0.1@test"})


class FailureTests(SynchronousTestCase):
    """A start that fails."""

    def test_a_member_without_any_server_waits_and_closes(self) -> None:
        """It starts when its servers come, and can be closed before."""
        box = GroupBox()
        box.servers.clear()
        box.run(box.member.start(), 120_000)
        box.advance(5_000)
        self.assertEqual(box.member.assigned_queues, {})
        try:
            box.run(box.member.close())
        except RemotingError as error:
            self.fail(str(error))
