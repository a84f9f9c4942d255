"""Handlers that take too long."""

from __future__ import annotations

from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.group_box import GroupBox


class TimeoutTests(MemberCase):
    """The search for such handlers."""

    def test_a_handler_that_takes_too_long_has_its_message_sent_back(self) -> None:
        """Its late result does not count."""
        box = GroupBox(self.broker, consume_timeout_ms=60_000)
        box.start()
        batch = self.take(box, 1)
        box.advance(130_000)
        self.assertEqual([header.delay_level for header in self.broker.sent_back], [3])
        box.member.fail(batch.assigned, batch.messages)
        box.advance(1_000)
