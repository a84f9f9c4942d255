"""The results of handlers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.client.core.consumer.part_case import PartCase
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.outcome_reports import OutcomeReports
from twistmq.client.core.consumer.results import Results
from twistmq.client.core.consumer.stats import MemberStats


class _Failures:
    """Records the failed messages."""

    def __init__(self) -> None:
        self.handled: list[tuple[list[int], int]] = []

    def handle(
        self, assigned: AssignedQueue[bytes], messages: Sequence[ReceivedMessage[bytes]], level: int
    ) -> None:
        """See ``Failures``."""
        self.handled.append(([message.offset for message in messages], level))


class ResultTests(PartCase):
    """Three messages of one queue that are running for a second."""

    def setUp(self) -> None:
        """Hand the messages out."""
        super().setUp()
        options = MemberOptions(group="g")
        self.stats, self.failures = MemberStats(), _Failures()
        self.delivery: Delivery[bytes] = Delivery(self.client, options, self.closing)
        self.results: Results[bytes] = Results(
            self.delivery, OutcomeReports(self.client, options, self.stats), self.failures)
        self.assigned = self.assign(3)
        self.delivery.arrived(self.assigned)
        batch = self.delivery.take(3)
        assert batch is not None
        self.messages = batch.messages
        self.advance(1000)

    def counts(self) -> tuple[float, float, float]:
        """The time of a handler in ms, and the messages that succeeded and failed."""
        table = self.stats.topics["T"].table(self.tasks.now_ms)
        return table["consumeRT"], table["consumeOKTPS"] * 60, table["consumeFailedMsgs"]

    def test_processed_messages_are_finished_and_counted(self) -> None:
        """The other messages continue to run."""
        self.results.succeed(self.assigned, self.messages[:2])
        self.assertEqual((self.delivery.running, self.assigned.window.committable), (1, 2))
        self.assertEqual(self.counts(), (1000.0, 2.0, 0))

    def test_failed_messages_are_counted_and_left_to_the_group(self) -> None:
        """The failed messages get the delay level that the handler has given."""
        self.results.fail(self.assigned, self.messages[:2], 7)
        self.assertEqual(self.failures.handled, [([0, 1], 7)])
        self.assertEqual((self.delivery.running, self.assigned.window.committable), (3, 0))
        self.assertEqual(self.counts(), (1000.0, 0.0, 2))

    def test_released_messages_have_no_result(self) -> None:
        """They are handed out again, and nothing is counted."""
        self.results.release(self.assigned, self.messages)
        self.assertEqual((self.delivery.running, self.assigned.window.waiting_count), (0, 3))
        self.assertEqual((self.stats.topics, self.failures.handled), ({}, []))

    def test_a_message_of_a_tool_is_finished_in_any_case(self) -> None:
        """The tool gets the result; the group's retries do not."""
        for is_success, offset in ((True, 0), (False, 1)):
            outcome: Future[bool] = Future()
            self.assigned.outcome = outcome
            end = self.results.succeed if is_success else self.results.fail
            end(self.assigned, self.messages[offset:offset + 1])
            self.assertEqual(outcome.result(), is_success)
        self.assertEqual((self.delivery.running, self.failures.handled), (1, []))
