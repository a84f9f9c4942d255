"""Messages that are handed out while they are hidden."""

from __future__ import annotations

from tests.client.core.box import Answer
from tests.client.core.pop.pop_case import PopCase
from tests.client.core.pop_box import BROKER
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand


class StaleTests(PopCase):
    """Messages that wait for too long."""

    def test_a_message_that_waited_for_too_long_is_not_handed_out(self) -> None:
        """Another member may have it; a new demand pops it again."""
        box = self.start(invisible_s=8)
        box.demand()
        box.advance(7000)
        self.assertEqual(box.take_all(), [])
        self.assertEqual(box.member.assigned_queues.total.byte_count, 0)
        box.advance(1000)
        box.demand()
        self.assertEqual(sorted(box.take_all()), list(range(10)))

    def test_a_change_of_the_time_counts_as_it_was_asked_for(self) -> None:
        """A message that waits again is handed out, whatever time the broker returns."""
        box = self.start(1, invisible_s=2)
        honest = box.broker

        def lie(request: RemotingCommand) -> Answer:
            answer = honest(request)
            if request.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME and answer is not None:
                answer[1].invisible_time = 600_000  # type: ignore[union-attr]
            return answer

        box.servers[BROKER] = lie
        batch = self.take()
        box.advance(1500)
        self.assertEqual(len(honest.changes), 1)
        box.member.release(batch.assigned, batch.messages)
        self.assertEqual(box.take_all(), [0])
