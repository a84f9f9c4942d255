"""Pulls of one queue that overlap while messages certainly exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.core.consumer.fetcher import AHEAD_MAX
from twistmq.client.core.consumer.flow_control import PullLimits
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.flags import PULL_SUSPEND
from twistmq.protocol.headers.pull import PullMessageRequestHeader

#: Messages that a pull asks for.
COUNT = 32
QUEUE = MessageQueue("T", "a", 0)


class HoldTests(SynchronousTestCase):
    """A queue without messages, and a broker that holds the pulls of it."""

    def test_a_broker_may_hold_a_pull_for_fifteen_seconds(self) -> None:
        """The pull asks for that, and a late answer ends the wait before the time-out."""
        broker = GroupBroker(queues=1)
        box = GroupBox(broker)
        held: list[RemotingCommand] = []

        def serve(command: RemotingCommand) -> Answer:
            if command.code != RequestCode.PULL_MESSAGE:
                return broker(command)
            held.append(command)
            return None

        box.servers[BROKER] = serve
        box.start()
        [pull] = held
        header = pull.header(PullMessageRequestHeader)
        self.assertEqual((header.queue_offset, header.suspend_timeout_millis), (0, 15_000))
        self.assertEqual(header.sys_flag & PULL_SUSPEND, PULL_SUSPEND)
        box.advance(20_000)
        self.assertEqual(len(held), 1)
        broker.put("T", 0, b"7")
        answer = broker(pull)
        assert answer is not None
        box.reply(BROKER, pull, *answer)
        box.settle()
        self.assertEqual(box.take_all(), [7])
        self.assertEqual([each.header(PullMessageRequestHeader).queue_offset for each in held],
                         [0, 1])


class AheadTests(SynchronousTestCase):
    """A queue of a thousand messages, and a broker whose answers to pulls the test can change."""

    def setUp(self) -> None:
        self.broker = GroupBroker(queues=1)
        for number in range(1000):
            self.broker.put("T", 0, b"%d" % number)
        #: Where each pull began.
        self.pulls: list[int] = []

    def box(
        self, answer: Callable[[int, RemotingCommand], Answer], **options: Any
    ) -> GroupBox:
        """Return a member whose pulls are answered by ``answer``, with the offset
        and the command.
        """
        box = GroupBox(self.broker, **options)

        def serve(command: RemotingCommand) -> Answer:
            if command.code != RequestCode.PULL_MESSAGE:
                return self.broker(command)
            offset = command.header(PullMessageRequestHeader).queue_offset
            self.pulls.append(offset)
            return answer(offset, command)

        box.servers[BROKER] = serve
        box.start()
        return box

    def first_only(self, offset: int, command: RemotingCommand) -> Answer:
        """Answer only the first pull."""
        return None if offset else self.broker(command)

    def test_a_full_answer_is_followed_by_several_pulls(self) -> None:
        """Each begins where the previous one will end."""
        self.box(self.first_only)
        self.assertEqual(self.pulls, [COUNT * number for number in range(1 + AHEAD_MAX)])

    def test_every_message_comes_once_and_in_order(self) -> None:
        """No pull is made without a result before the end of the queue."""
        box = self.box(lambda offset, command: self.broker(command))
        box.advance(1000)
        self.assertEqual(box.take_all(), list(range(1000)))
        self.assertEqual(self.pulls, [*range(0, 1000, COUNT), 1000])

    def test_nothing_is_begun_beyond_the_end(self) -> None:
        """Of 70 remaining messages there are two full pulls and a part."""
        del self.broker.records["T", 0][COUNT + 70:]
        self.box(self.first_only)
        self.assertEqual(self.pulls, [0, 32, 64, 96])

    def test_bounds_count_what_is_under_way(self) -> None:
        """As before, one pull may exceed them."""
        self.box(self.first_only, limits=PullLimits(count=100))
        self.assertEqual(self.pulls, [0, 32, 64, 96])

    def test_an_answer_with_less_makes_those_behind_it_void(self) -> None:
        """Messages are read again from there, one pull at a time; none is lost or duplicated."""
        def answer(offset: int, command: RemotingCommand) -> Answer:
            records = self.broker.records["T", 0]
            if offset != 2 * COUNT or self.pulls.count(offset) > 1:
                return self.broker(command)
            self.broker.records["T", 0] = records[:offset + 5]
            found = self.broker(command)
            self.broker.records["T", 0] = records
            return found

        box = self.box(answer)
        box.advance(1000)
        self.assertEqual(box.take_all(), list(range(1000)))
        self.assertEqual(self.pulls[1 + AHEAD_MAX : 3 + AHEAD_MAX], [69, 101])

    def test_a_refusal_makes_those_behind_it_void(self) -> None:
        """The broker is asked again a second later."""
        def answer(offset: int, command: RemotingCommand) -> Answer:
            if offset == 2 * COUNT and self.pulls.count(offset) == 1:
                return ResponseCode.SYSTEM_ERROR, None, b"", "refused by the test"
            return self.broker(command)

        box = self.box(answer)
        self.assertEqual(box.member.assigned_queues[QUEUE].next_offset, 2 * COUNT)
        box.advance(2000)
        self.assertEqual(box.take_all(), list(range(1000)))

    def test_room_is_given_back(self) -> None:
        """A pull counts no longer once it is void, though its answer is not read."""
        box = self.box(lambda offset, command: self.broker(command) if not offset else (
            ResponseCode.SYSTEM_ERROR, None, b"", "refused by the test"))
        self.assertEqual(box.intake._flow._counted, 0)


class FailureTests(MemberCase):
    """Pulls that fail, and the first pull."""

    def test_a_new_queue_begins_where_the_member_before_ended(self) -> None:
        """The other member commits while the queue waits for its first pull."""
        box = self.new_member()
        box.advance(300)
        self.assertEqual(sorted(box.take_all(1000)), sorted(
            number for number in range(40) if number % 4 != 1 or number // 4 >= 7))

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
        """Each such answer is followed by a heartbeat at once."""
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
