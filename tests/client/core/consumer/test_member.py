"""A member of a group: the queues that it reads, its start and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.base.errors import Closed, OptionError
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.headers.offset import (
    UpdateConsumerOffsetRequestHeader,
)


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


class ReadingTests(MemberCase):
    """From the queues to the handlers."""

    def test_a_member_alone_gets_all_queues_and_every_message_once(self) -> None:
        """The queues have messages from before its start."""
        box = GroupBox(self.broker)
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(40)))
        self.assertEqual(set(box.member.assigned_queues), {queue(number) for number in range(4)})

    def test_tags_are_compared_again(self) -> None:
        """A queue has only hashes of tags, so the client compares the tags themselves."""
        box = GroupBox(self.broker, expression="a || c")
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(0, 40, 2)))

    def test_a_topic_that_is_not_there_is_said_once(self) -> None:
        """The topic is read as soon as it exists."""
        box = GroupBox(self.broker)
        box.member.subscribe(subscription("U", None))
        with self.assertLogs("twistmq.client", "WARNING") as logs:
            box.start()
            box.advance(60_000)
        said = [line for line in logs.output if "waits for topic U" in line]
        self.assertEqual(len(said), 1)

    def test_messages_beyond_the_bounds_are_not_read(self) -> None:
        """A member that hands out nothing stops its pulls."""
        for number in range(4000):
            self.broker.put("T", 0, b"%d" % number)
        box = GroupBox(self.broker)
        box.start()
        box.advance(10_000)
        self.assertLess(box.member.assigned_queues[queue(0)].window.count, 1100)


class StartTests(MemberCase):
    """The start of a member."""

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
        """Otherwise heartbeats would keep its queues, and another member would be refused."""
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

    def test_a_member_without_any_server_waits_and_closes(self) -> None:
        """It starts when its servers do, and can be closed before."""
        box = GroupBox()
        box.servers.clear()
        box.run(box.member.start(), 120_000)
        box.advance(5_000)
        self.assertEqual(box.member.assigned_queues, {})
        try:
            box.run(box.member.close())
        except RemotingError as error:
            self.fail(str(error))


class CloseTests(MemberCase):
    """The close of a member."""

    def test_close_commits_what_is_finished_and_leaves(self) -> None:
        """The close waits for handlers, and the broker removes the member."""
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
        """Otherwise the messages are delivered again; after two failures one line is logged."""
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

    def test_close_gives_up_a_handler_that_does_not_end(self) -> None:
        """Its message is not committed and is delivered again."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        box.run(box.member.close(1_000))
        self.assertEqual(self.broker.offsets.get(("g", "T", batch.assigned.queue.queue_id), 0), 0)
        self.assertEqual(self.broker.sent_back, [])

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
        """The pulls that wait end with the connections, which is not logged as a failure."""
        for options in ({}, {"in_order": True}):
            box = GroupBox(self.broker, **options)
            box.start()
            box.take_all()
            with self.assertNoLogs("twistmq.client", "WARNING"):
                box.run(box.core.close())
                box.advance(10_000)

    def test_a_client_that_closes_lets_a_member_leave(self) -> None:
        """The close of the client follows one that was interrupted."""
        box, batch, _ = self.cancelled_close()
        box.run(box.core.close())
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 2)
        self.assertEqual(box.core.before_close, [])

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

    def test_a_close_does_not_wait_for_the_next_attempt_here(self) -> None:
        """The next member gets the message, whether it failed before the close or during it.

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


class SharedClientTests(SynchronousTestCase):
    """A producer and a consumer of one client whose groups have the same name."""

    def test_one_leaves_and_the_other_stays(self) -> None:
        """No broker loses the producer's group when the consumer leaves."""
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
        """A member that closes, or cannot start, does not remove it."""
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
