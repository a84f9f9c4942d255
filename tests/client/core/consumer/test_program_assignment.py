"""Queues that the program assigns."""

from __future__ import annotations

from tests.client.core.consumer.part_case import queue
from tests.client.core.consumer.pull_case import PullCase
from twistmq.client.base.errors import OptionError
from twistmq.protocol.bodies import HeartbeatData
from twistmq.protocol.codes import RequestCode


class AssignTests(PullCase):
    """An assignment without a subscription."""

    topics = None

    def test_assigned_queues_are_read_whatever_the_members_are(self) -> None:
        """A second assignment drops the queues that it does not name, and commits them."""
        self.broker.members["g"].add("another")
        self.assertEqual(self.poll(), [])
        self.box.run(self.assignment.assign([queue(1)]))
        self.assertEqual(self.poll(timeout_ms=3000), [1, 3, 5, 7, 9])
        self.poll()
        self.box.run(self.assignment.assign([queue(0)]))
        self.assertEqual(self.poll(timeout_ms=3000), [0, 2, 4, 6, 8])
        self.assertEqual(self.member.assigned(), [queue(0)])
        self.assertEqual(self.committed()[1], 5)
        self.assertEqual(self.topics_of_the_group(), ["T"])
        self.box.run(self.assignment.assign([]))
        self.box.advance(2000)
        self.assertEqual(self.member.assigned(), [])
        self.assertEqual(self.topics_of_the_group(), [])

    def topics_of_the_group(self) -> list[str]:
        """Return the topics of the last heartbeat."""
        beats = [HeartbeatData.decode(request.body) for _, request in self.box.requests
                 if request.code == RequestCode.HEART_BEAT]
        [data] = beats[-1].consumer_data_set
        return [each.topic for each in data.subscription_data_set]

    def test_a_queue_that_is_not_there_is_an_error(self) -> None:
        """A subscription beside an assignment is an error as well."""
        with self.assertRaises(OptionError):
            self.box.run(self.assignment.assign([queue(2)]))
        self.box.run(self.assignment.assign([queue(0)]))
        with self.assertRaises(OptionError):
            self.member.subscribe(self.member.subscriptions["T"])
