"""A member that is polled: what a poll acknowledges, where it seeks, what is assigned to it."""

from __future__ import annotations

import contextlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, Box, route, routes
from tests.client.core.group_box import BROKER, GroupBroker
from twistmq.client.base.errors import Closed, NotAssigned, OptionError
from twistmq.client.core.connection.tasks import Cancelled
from twistmq.client.core.consumer.polls import Poll
from twistmq.client.core.consumer.pull_consumer import PullMember
from twistmq.client.roles.parts import build_pull_consumer
from twistmq.protocol.bodies import ConsumeType, HeartbeatData, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.flags import PULL_COMMIT_OFFSET
from twistmq.protocol.headers import offset as offsets
from twistmq.protocol.headers.client import ConsumeMessageDirectlyResultRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader


def bodies(poll: Poll[Any]) -> list[int]:
    """The bodies of the messages that a poll took, as numbers."""
    return [int(message.body) for batch in poll.batches for message in batch.messages]


def queue(number: int) -> MessageQueue:
    """A queue of the topic."""
    return MessageQueue("T", "a", number)


class SeekBroker(GroupBroker):
    """Answers where queues begin, too, and takes the commits of pulls."""

    def __call__(self, command: RemotingCommand) -> Answer:
        """Answer a request."""
        if command.code == RequestCode.GET_MIN_OFFSET:
            return 0, offsets.GetMinOffsetResponseHeader(self.min_offset), b"", None
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return 0, offsets.SearchOffsetResponseHeader(2), b"", None
        if command.code == RequestCode.PULL_MESSAGE:
            header = command.header(PullMessageRequestHeader)
            if header.sys_flag & PULL_COMMIT_OFFSET:
                self.offsets["g", header.topic, header.queue_id] = header.commit_offset
        return super().__call__(command)


class PullCase(SynchronousTestCase):
    """A topic with two queues of five messages each."""

    topics: str | None = "T"

    def setUp(self) -> None:
        """Start a member."""
        self.broker = SeekBroker(2)
        for number in range(10):
            self.broker.put("T", number % 2, b"%d" % number)
        self.box = Box()
        self.box.servers[BROKER] = self.broker
        self.box.servers[NAMESRV] = routes({"T": route({"a": BROKER}, 2)})
        self.pull: PullMember[Any] = build_pull_consumer(
            self.box.core, "g", self.topics, {"start": "first"})
        self.member, self.poller = self.pull.member, self.pull.poller
        self.positions, self.assignment = self.pull.positions, self.pull.assignment
        self.box.run(self.member.start())
        self.box.advance(600)

    def poll(self, most: int = 100, timeout_ms: float = 0) -> list[int]:
        """Poll as a shell does; :returns: the bodies as numbers."""
        with self.poller.polls.begin() as poll:
            self.box.run(self.poller.poll(poll, most, timeout_ms))
            return bodies(poll)

    def committed(self) -> dict[int, int]:
        """The offsets at the broker, by queue."""
        return {key[2]: offset for key, offset in self.broker.offsets.items() if key[1] == "T"}


class PollTests(PullCase):
    """With a subscription."""

    def test_only_what_a_later_poll_acknowledged_is_committed(self) -> None:
        """By a commit, and at the close."""
        self.assertEqual(self.poll(3), [0, 2, 4])
        self.box.run(self.member.commit())
        self.assertEqual(self.committed().get(0, 0), 0)
        self.assertEqual(sorted(self.poll(4)), [1, 3, 5, 7])
        self.box.run(self.member.commit())
        self.assertEqual(self.committed(), {0: 3, 1: 0})
        self.assertEqual(sorted(self.poll()), [6, 8, 9])
        self.box.run(self.pull.leave())
        self.assertEqual(self.committed(), {0: 3, 1: 4})
        self.assertEqual(self.broker.members["g"], set())
        with self.assertRaises(Closed):
            self.poll()

    def test_a_poll_waits_for_messages_at_most_for_its_time(self) -> None:
        """One that is cancelled lets its messages come with the next."""
        self.poll()
        begin_ms = self.box.clock.now_ms
        self.assertEqual(self.poll(timeout_ms=700), [])
        self.assertEqual(self.box.clock.now_ms - begin_ms, 700)
        self.member.set_paused(None, True)
        self.box.run(self.positions.seek(queue(0), 3))
        with self.poller.polls.begin() as poll:
            waiting = self.box.core.tasks.spawn(self.poller.poll(poll, 10, 60_000))
            self.box.settle()
            waiting.cancel()
            self.box.settle()
        self.assertIsInstance(waiting.error, Cancelled)
        self.member.set_paused(None, False)
        self.assertEqual(self.poll(timeout_ms=5000), [6, 8])

    def test_messages_whose_poll_did_not_reach_the_program_come_again(self) -> None:
        """A shell may be cancelled at the last moment, after the core has answered."""
        with contextlib.suppress(Cancelled), self.poller.polls.begin() as poll:
            self.box.run(self.poller.poll(poll, 100, 0))
            raise Cancelled
        self.assertEqual(sorted(self.poll()), sorted(bodies(poll)))

    def test_a_poll_that_has_not_returned_keeps_its_messages(self) -> None:
        """Another one, of a second task or of a signal handler, gets others meanwhile."""
        with self.poller.polls.begin() as poll:
            self.box.run(self.poller.poll(poll, 3, 0))
            others = self.poll()
        self.assertEqual(sorted(bodies(poll) + others), list(range(10)))
        self.box.run(self.member.commit())
        self.assertEqual(set(self.committed().values()) - {0}, set())
        self.assertEqual(self.poll(), [])
        self.box.run(self.member.commit())
        self.assertEqual(self.committed(), {0: 5, 1: 5})

    def test_the_messages_of_a_poll_are_not_timed(self) -> None:
        """Nothing is sent back, and there is no retry topic."""
        self.poll()
        self.box.advance(3_600_000)
        self.assertEqual(self.broker.sent_back, [])
        beats = [HeartbeatData.decode(request.body) for _, request in self.box.requests
                 if request.code == RequestCode.HEART_BEAT]
        [data] = beats[-1].consumer_data_set
        self.assertEqual((data.consume_type, [each.topic for each in data.subscription_data_set]),
                         (ConsumeType.CONSUME_ACTIVELY, ["T"]))

    def test_a_seek_continues_a_queue_there(self) -> None:
        """Messages that were polled before are not acknowledged then."""
        self.poll()
        for seek, left in ((self.positions.seek(queue(0), 3), [6, 8]),
                           (self.positions.seek_to_end(queue(0)), []),
                           (self.positions.seek_to_begin(queue(0)), [0, 2, 4, 6, 8]),
                           (self.positions.seek_to_time(queue(0), 1), [4, 6, 8])):
            self.box.run(seek)
            position = self.positions.position(queue(0))
            self.assertEqual(position, 5 - len(left))
            self.assertEqual(self.poll(timeout_ms=100), left)
        self.box.run(self.positions.seek(queue(0), 1))
        self.poll()
        self.box.run(self.member.commit())
        self.assertEqual(self.box.run(self.positions.committed(queue(0))), 1)
        self.box.run(self.positions.seek_to_begin(queue(0)))
        self.box.run(self.member.commit())
        self.assertEqual(self.box.run(self.positions.committed(queue(0))), 0)

    def test_a_seek_to_where_nothing_is_is_an_error(self) -> None:
        """Before the first message, behind the end, and in a queue of another member."""
        self.broker.min_offset = 1
        for offset in (0, 6):
            with self.assertRaises(OptionError):
                self.box.run(self.positions.seek(queue(0), offset))
        with self.assertRaises(NotAssigned):
            self.box.run(self.positions.seek(queue(7), 1))
        with self.assertRaises(NotAssigned):
            self.positions.position(queue(7))
        with self.assertRaises(OptionError):
            self.box.run(self.assignment.assign([queue(0)]))


    def test_a_tool_cannot_give_it_a_message(self) -> None:
        """There is no handler that would answer."""
        self.box.push(BROKER, encode_request(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, 7, ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g"), self.broker.records["T", 0][0]))
        self.box.settle()
        [answer] = [request for _, request in self.box.requests if request.is_response]
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("is polled", answer.remark or "")


class AssignTests(PullCase):
    """Without a subscription."""

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
        """The topics of the last heartbeat."""
        beats = [HeartbeatData.decode(request.body) for _, request in self.box.requests
                 if request.code == RequestCode.HEART_BEAT]
        [data] = beats[-1].consumer_data_set
        return [each.topic for each in data.subscription_data_set]

    def test_a_queue_that_is_not_there_is_an_error(self) -> None:
        """So is a subscription beside an assignment."""
        with self.assertRaises(OptionError):
            self.box.run(self.assignment.assign([queue(2)]))
        self.box.run(self.assignment.assign([queue(0)]))
        with self.assertRaises(OptionError):
            self.member.subscribe(self.member.subscriptions["T"])
