"""The beginning of a queue for a member that gets it."""

from __future__ import annotations

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import LosingCase, MemberCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox
from twistmq.client.core.consumer.assigned_queues import MemberOptions
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class NewQueueTests(MemberCase):
    """A queue that the member never had."""

    def test_a_queue_that_was_never_read_begins_where_the_options_say(self) -> None:
        """With "last" only later messages are read."""
        box = GroupBox(self.broker, start="last")
        box.start()
        self.assertEqual(box.take_all(), [])
        self.assertEqual(box.member.assigned_queues[queue(0)].next_offset, 10)


class ReturnTests(LosingCase):
    """A queue that returns to the member."""

    def test_a_queue_that_comes_back_soon_goes_on_where_this_member_stopped(self) -> None:
        """The group is then no longer set back."""
        box = self.lose_two_queues()
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [4, 4])
        box.advance(6_000)
        self.assertEqual([self.broker.offsets["g", "T", number] for number in (2, 3)], [4, 4])

    def test_a_queue_that_was_set_back_to_what_was_committed_before_goes_on_too(self) -> None:
        """A member of Apache's client that asks before the commit gets the earlier offset."""
        box = self.commit_twice_and_lose_two_queues()
        for number in (2, 3):
            self.assertEqual(self.broker.offsets["g", "T", number], 6)
            self.broker.offsets["g", "T", number] = 4
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [6, 6])

    def test_a_queue_that_comes_back_begins_where_another_member_ended(self) -> None:
        """The other member advanced further."""
        box = self.lose_two_queues()
        self.broker.offsets["g", "T", 2] = 6
        self.assertEqual(self.come_back(box, 2), 6)

    def test_a_queue_that_comes_back_late_begins_where_the_broker_says(self) -> None:
        """The members that had it meanwhile have committed, or a tool has."""
        box = self.lose_two_queues()
        box.advance(10_000)
        self.assertEqual(self.come_back(box, 2), 1)

    def test_where_a_member_stopped_does_not_count_at_another_broker(self) -> None:
        """A slave without the end of the log may be the master now, or have been."""
        box = self.lose_two_queues()
        box.cut(BROKER)
        box.advance(2_000)
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [1, 1])

    def test_where_a_member_stopped_does_not_count_in_a_topic_that_was_made_anew(self) -> None:
        """The queue is shorter and all its messages are new, wherever the group begins."""
        box = self.lose_two_queues()
        self.patch(box.intake.beginnings, "_options", MemberOptions(group="g", start="last"))
        for number in (2, 3):
            del self.broker.records["T", number][2:]
        del self.broker.offsets["g", "T", 3]
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [1, 0])

    def test_where_a_member_stopped_counts_when_the_broker_answers_late(self) -> None:
        """The end of the queue is not known at the first attempt."""
        box = self.lose_two_queues()
        self.broker.refusals[RequestCode.GET_MAX_OFFSET] = ResponseCode.SYSTEM_BUSY
        self.broker.members["g"].discard("10.0.0.2@zzz")
        box.notify()
        box.advance(1_500)
        self.assertEqual(set(box.member.assigned_queues), {queue(0), queue(1)})
        self.broker.refusals.clear()
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [4, 4])

    def test_a_tool_that_moves_a_queue_while_it_comes_back_is_heard(self) -> None:
        """The end of the queue is requested in the meantime."""
        box = self.lose_two_queues()
        answer = self.broker._get_max_offset

        def moved(command: RemotingCommand) -> Answer:
            self.broker.offsets["g", "T", 2] = 2
            box.intake.stops.forget([queue(2)])
            return answer(command)

        self.patch(self.broker, "_get_max_offset", moved)
        self.assertEqual(self.come_back(box, 2), 2)

    def test_a_queue_that_a_tool_moved_begins_where_the_tool_says(self) -> None:
        """Another member may have had it then."""
        box = self.lose_two_queues()
        box.run(box.intake.move_to({queue(2): 1}))
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [1, 4])

    def test_an_offset_before_what_was_committed_is_a_tools(self) -> None:
        """A member cannot have read such an offset, so later messages are delivered again.

        A reset at the broker alone tells no member.
        """
        box = self.commit_twice_and_lose_two_queues()
        self.assertEqual([self.broker.offsets["g", "T", number] for number in (2, 3)], [6, 6])
        self.broker.offsets["g", "T", 2] = 2
        self.broker.offsets["g", "T", 3] = 5
        self.assertEqual([self.come_back(box, number) for number in (2, 3)], [2, 6])

    def test_a_queue_that_was_never_committed_comes_back(self) -> None:
        """Otherwise a new group that begins at the end would skip messages."""
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
