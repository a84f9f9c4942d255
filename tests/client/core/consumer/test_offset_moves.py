"""Offsets that are moved."""

from __future__ import annotations

from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.group_box import BROKER, GroupBox


class MoveTests(MemberCase):
    """The broker moves an offset."""

    def test_an_offset_that_the_broker_lost_is_replaced_by_its_own(self) -> None:
        """The queue continues at the offset that the broker gives."""
        self.broker.offsets.update({("g", "T", number): 99 for number in range(4)})
        box = GroupBox(self.broker)
        box.start()
        box.advance(5_000)
        self.assertEqual({self.broker.offsets["g", "T", number] for number in range(4)}, {10})
        self.broker.put("T", 1, b"40")
        box.cut(BROKER)
        box.advance(5_000)
        self.assertEqual(box.take_all(), [40])
