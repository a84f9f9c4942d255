"""The queues of a member."""

from __future__ import annotations

from tests.client.core.box import route
from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import BROKER, GroupBox
from twistmq.protocol.bodies import HeartbeatData, MessageModel
from twistmq.protocol.codes import RequestCode, ResponseCode


class RebalanceTests(MemberCase):
    """Queues that are added and removed."""

    def test_a_second_member_takes_half_of_the_queues(self) -> None:
        """The first member commits the queues that it loses, and marks running messages as lost."""
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

    def test_a_broker_that_hangs_does_not_hold_up_the_queues_of_another_one(self) -> None:
        """Their messages arrive at once, although those of the other broker do not."""
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
        """Another broker of the topic has the members, within the same time."""
        box = GroupBox(self.broker)
        silent = "10.0.0.8:10911"
        box.route = route({"0hangs": silent, "a": BROKER})
        box.servers[silent] = lambda command: None
        self.broker.members["g"].add("10.0.0.0@other")
        box.run(box.member.start())
        box.advance(3600)
        assigned = {each.queue.broker_name for each in box.member.assigned_queues.values()}
        self.assertIn("a", assigned)

    def test_a_member_that_no_broker_lists_has_no_queue(self) -> None:
        """It has no queues until its heartbeat is known."""
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
        """A route with more queues is noticed within half a minute."""
        box = GroupBox(self.broker)
        box.start()
        box.route.queue_datas[0].read_queue_nums = 8
        box.advance(35_000)
        self.assertEqual(len(box.member.assigned_queues), 8)

    def test_a_broadcasting_member_has_all_queues_whoever_else_is_there(self) -> None:
        """It requests no list of members, and its heartbeats have the mode."""
        self.broker.members["g"].add("10.0.0.2@zzz")
        box = GroupBox(self.broker, is_broadcast=True)
        box.start()
        self.assertEqual(sorted(box.take_all()), list(range(40)))
        models = {each.message_model for _, command in box.requests
                  if command.code == RequestCode.HEART_BEAT
                  for each in HeartbeatData.decode(command.body).consumer_data_set}
        self.assertEqual(models, {MessageModel.BROADCASTING})
