"""The beginning of a queue in which the group has no offset: the requests to brokers."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers import offset as headers

RETRIES = "%RETRY%g"


def queue(number: int) -> MessageQueue:
    """Return a queue of the topic."""
    return MessageQueue("T", "a", number)


class TimeBroker(GroupBroker):
    """A broker that answers at which offset the messages of a time begin."""

    def __init__(self, queues: int = 4) -> None:
        super().__init__(queues)
        self.times: list[int] = []

    def _search_offset_by_timestamp(self, command: RemotingCommand) -> Answer:
        self.times.append(command.header(headers.SearchOffsetRequestHeader).timestamp)
        return 0, headers.SearchOffsetResponseHeader(2), b"", None


class BeginningTests(SynchronousTestCase):
    """A topic with two queues of five messages each."""

    def setUp(self) -> None:
        """Create the broker."""
        self.broker = TimeBroker(2)
        for number in range(10):
            self.broker.put("T", number % 2, b"%d" % number)

    def begin(self, **options: Any) -> tuple[list[int], GroupBox]:
        """Start a member; :returns: where its queues begin."""
        box = GroupBox(self.broker, **{"start": "last", **options})
        box.start()
        return [box.member.assigned_queues[queue(number)].window.committable
                for number in range(2)], box

    def asked(self, box: GroupBox, code: int) -> int:
        """Return the number of requests of a kind."""
        return sum(request.code == code for _, request in box.requests)

    def test_a_new_group_begins_at_the_end(self) -> None:
        """The broker is asked once for the offsets of the group in all queues."""
        begin, box = self.begin()
        self.assertEqual(begin, [5, 5])
        self.assertEqual(self.asked(box, RequestCode.QUERY_TOPICS_BY_CONSUMER), 1)

    def test_a_group_that_knows_all_queues_is_not_asked_for(self) -> None:
        """In ordinary times a start has no more requests than before."""
        self.broker.offsets.update({("g", "T", 0): 5, ("g", "T", 1): 3})
        begin, box = self.begin()
        self.assertEqual(begin, [5, 3])
        self.assertEqual(self.asked(box, RequestCode.QUERY_TOPICS_BY_CONSUMER), 0)
        self.assertEqual(self.asked(box, RequestCode.GET_MAX_OFFSET), 0)

    def test_a_queue_is_new_to_a_group_that_has_another_one_of_the_topic(self) -> None:
        """It is read from its first message, even if the broker says that it is not in memory."""
        self.broker.offsets["g", "T", 0] = 5
        self.broker.is_at_hand = False
        self.assertEqual(self.begin()[0], [5, 0])

    def test_a_topic_is_new_to_a_group_that_has_others(self) -> None:
        """The broker decides, as for Apache's client: is the first message at hand?"""
        self.broker.offsets["g", "U", 0] = 1
        self.assertEqual(self.begin()[0], [0, 0])
        self.setUp()
        self.broker.offsets["g", "U", 0] = 1
        self.broker.is_at_hand = False
        self.assertEqual(self.begin()[0], [5, 5])

    def test_a_broker_that_does_not_say_where_groups_were(self) -> None:
        """The broker is older than 5.0, or its rules forbid the request: queues are asked for."""
        refusal = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        for known, expected in (({}, [5, 5]), ({("g", "T", 0): 4}, [4, 0]),
                                ({("g", RETRIES, 0): 0}, [0, 0])):
            self.setUp()
            self.broker.refusals[RequestCode.QUERY_TOPICS_BY_CONSUMER] = refusal
            self.broker.offsets.update(known)
            self.assertEqual(self.begin()[0], expected, known)

    def test_a_broker_that_does_not_answer_may_know_the_group(self) -> None:
        """No message is skipped, and the start does not wait for the queues."""
        broker = self.broker

        def answer(command: RemotingCommand) -> Answer:
            return None if command.code == RequestCode.QUERY_TOPICS_BY_CONSUMER else broker(command)

        box = GroupBox(broker, start="last")
        box.servers[BROKER] = answer
        box.run(box.member.start())
        box.advance(6_000)
        self.assertEqual([box.member.assigned_queues[queue(number)].window.committable
                          for number in range(2)], [0, 0])

    def test_where_a_queue_begins_is_committed_with_its_first_pull(self) -> None:
        """Otherwise a member that is killed soon would lose messages since its start."""
        _, box = self.begin()
        box.advance(100)
        self.assertEqual({key: value for key, value in self.broker.offsets.items()
                          if key[1] == "T"}, {("g", "T", 0): 5, ("g", "T", 1): 5})

    def test_a_group_may_begin_at_a_time(self) -> None:
        """The broker gives the offset for each queue; the group's offsets are not requested."""
        begin, box = self.begin(start=1_700_000_000_123)
        self.assertEqual((begin, self.broker.times), ([2, 2], [1_700_000_000_123] * 2))
        self.assertEqual(sorted(box.take_all()), [4, 5, 6, 7, 8, 9])

    def test_retries_are_read_from_the_first_one_whatever_the_start(self) -> None:
        """They belong to the group."""
        for start in ("last", "first", 1_700_000_000_123):
            self.setUp()
            _, box = self.begin(start=start)
            self.broker.put(RETRIES, 0, b"0")
            begin = box.run(box.intake.starts.first_offset(MessageQueue(RETRIES, "a", 0)))
            self.assertEqual(begin.offset, 0)


class ShorterTests(SynchronousTestCase):
    """A queue that has fewer messages than the member read of it."""

    def move(self, earliest_ms: int) -> list[int]:
        """Read ten messages of a queue that then has two; :returns: the next messages."""
        broker = GroupBroker(1)
        broker.earliest_ms = 1
        for number in range(10):
            broker.put("T", 0, b"%d" % number)
        box = GroupBox(broker)
        box.start()
        batch = box.member.take(10)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(6_000)
        broker.records.clear()
        broker.earliest_ms = earliest_ms
        for number in (20, 21):
            broker.put("T", 0, b"%d" % number)
        box.cut(BROKER)
        with self.assertLogs("twistmq.client", "WARNING"):
            box.advance(6_000)
        return box.take_all()

    def test_a_topic_that_was_made_again_is_read_from_its_first_message(self) -> None:
        """Its messages are younger than those that were read before."""
        self.assertEqual(self.move(1_900_000_000_000), [20, 21])

    def test_a_broker_that_lost_its_newest_messages_repeats_nothing(self) -> None:
        """Its first message is as old as before."""
        self.assertEqual(self.move(1), [])
