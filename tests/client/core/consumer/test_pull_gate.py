"""The reasons for which a queue is not pulled."""

from __future__ import annotations

from typing import Any

from tests.client.core.consumer.part_case import PartCase
from twistmq.client.core.consumer.assigned_queues import MemberOptions
from twistmq.client.core.consumer.flow_control import FULL_MS, PAUSED_MS, PullFlow, PullLimits
from twistmq.client.core.consumer.pull_gate import PullGate


class PullGateTests(PartCase):
    """The module client/core/consumer/pull_gate.py."""

    def gate(self, *, needs_locks: bool = False, **limits: Any) -> PullGate:
        """Create a gate."""
        options = MemberOptions(group="g", limits=PullLimits(**limits))
        flow = PullFlow(self.queues.total, options.limits)
        return PullGate(self.tasks, options, self.queues, flow, needs_locks=needs_locks)

    def test_a_pause_of_one_queue_or_of_all(self) -> None:
        """It is checked again a second later."""
        gate, first, second = self.gate(), self.assign(0, 0), self.assign(0, 1)
        first.is_paused = True
        self.assertEqual([gate.wait_ms(first), gate.wait_ms(second)], [PAUSED_MS, 0])
        gate.is_paused, first.is_paused = True, False
        self.assertEqual([gate.wait_ms(first), gate.wait_ms(second)], [PAUSED_MS, PAUSED_MS])
        gate.is_paused = False
        self.assertEqual(gate.wait_ms(first), 0)

    def test_an_ordered_queue_is_pulled_under_its_lock(self) -> None:
        """A lock that was not renewed for half a minute does not count."""
        gate, assigned = self.gate(needs_locks=True), self.assign(0)
        self.assertEqual(gate.wait_ms(assigned), PAUSED_MS)
        assigned.window.locked(int(self.tasks.now_ms))
        self.assertEqual(gate.wait_ms(assigned), 0)
        self.advance(30_001)
        self.assertEqual(gate.wait_ms(assigned), PAUSED_MS)

    def test_limits_count_the_messages_that_are_under_way(self) -> None:
        """A full queue is checked again soon."""
        gate, assigned = self.gate(count=5), self.assign(3)
        self.assertEqual([gate.wait_ms(assigned, under_way) for under_way in (0, 2, 3)],
                         [0, 0, FULL_MS])

    def test_a_limit_on_a_topic_is_shared_by_its_queues(self) -> None:
        """Each of two queues has half of it."""
        gate, first = self.gate(topic_count=8), self.assign(5, 0)
        self.assertEqual(gate.wait_ms(first), 0)
        self.assign(0, 1)
        self.assertEqual(gate.wait_ms(first), FULL_MS)
