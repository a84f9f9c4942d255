"""The rounds in which a member determines its queues."""

from __future__ import annotations

from collections.abc import Sequence

from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.consumer.part_case import queue
from tests.client.core.group_box import GroupBox
from twistmq.client.core.consumer.strategies import Strategy
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode


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


class RoundTests(MemberCase):
    """The times of rounds, and errors that do not end them."""

    def test_an_error_of_the_strategy_does_not_end_the_rounds(self) -> None:
        """It is logged once, and each second another round is tried, which succeeds later."""
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

    def test_a_member_commits_as_soon_as_the_members_change(self) -> None:
        """The next member may read the offset before this one gives the queue up."""
        box = GroupBox(self.broker)
        box.start()
        batch = box.member.take(4)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        self.broker.refusals[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = ResponseCode.SYSTEM_ERROR
        box.notify()
        box.advance(10)
        self.assertEqual(self.broker.offsets["g", "T", batch.assigned.queue.queue_id], 4)
