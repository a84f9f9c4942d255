"""The arithmetic of logical queues."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import A, B, item
from twistmq.plugins.static_topic.mapping import (
    GLOBAL_SCOPE,
    TopicQueueMappingDetail,
    find_item,
    latest_item,
    logical_broker_name,
    next_item,
)

FIRST, SECOND, LAST = item(0, A, 0, 0), item(1, B, 2, 10_000), item(2, A, 3, -1)
PARTS = [FIRST, SECOND, LAST]


class ItemTests(SynchronousTestCase):
    """One part."""

    def test_a_physical_offset_is_counted_from_where_the_part_begins(self) -> None:
        """A physical offset is counted from the beginning of its part, and is never before it."""
        part = item(1, B, 2, 10_000, start_offset=5, end_offset=25)
        self.assertEqual([part.logical(offset) for offset in (0, 5, 6, 25, 30)],
                         [10_000, 10_000, 10_001, 10_020, 10_025])
        self.assertEqual([part.logical_inside(offset) for offset in (0, 6, 25, 30)],
                         [10_000, 10_001, 10_020, 10_020])
        self.assertEqual([part.physical(offset) for offset in (10_000, 10_020, 9_999)], [5, 25, 4])
        self.assertEqual((part.logical_end, part.offset_delta), (10_020, 9_995))

    def test_a_part_without_logical_offset_decides_nothing(self) -> None:
        """A part without a logical offset has none; a part without an end ends where it begins."""
        self.assertEqual((LAST.is_decided, LAST.logical_inside(7)), (False, -1))
        self.assertEqual((SECOND.is_decided, SECOND.is_end_decided, SECOND.logical_end),
                         (True, False, 10_000))
        self.assertTrue(item(0, A, 0, 0, end_offset=1).is_end_decided)
        self.assertFalse(item(0, A, 0, 0, end_offset=0).is_end_decided)


class QueueTests(SynchronousTestCase):
    """All parts of a queue."""

    def test_an_offset_lies_in_the_last_decided_part_that_begins(self) -> None:
        """An offset belongs to the last decided part that begins at it or before it."""
        for offset, expected in ((-5, FIRST), (0, FIRST), (9_999, FIRST), (10_000, SECOND),
                                 (2**62, SECOND)):
            self.assertIs(find_item(PARTS, offset), expected, msg=str(offset))
        self.assertIs(find_item(PARTS[1:], 3), SECOND)
        self.assertIsNone(find_item([LAST], 3))
        self.assertIsNone(find_item([], 3))
        self.assertIs(latest_item(PARTS), SECOND)

    def test_after_a_part_comes_the_one_of_the_next_generation(self) -> None:
        """The next part belongs to the next generation, once its offset is decided."""
        self.assertIs(next_item(PARTS, FIRST), SECOND)
        self.assertIsNone(next_item(PARTS, SECOND))
        self.assertIsNone(next_item(PARTS, LAST))

    def test_a_broker_leads_the_queues_whose_last_part_it_has(self) -> None:
        """A broker leads a queue if it has the last part; name servers get these queues."""
        detail = TopicQueueMappingDetail(
            topic="S", total_queues=3, bname=A, epoch=9,
            hosted_queues={0: PARTS, 1: PARTS[:2], 2: [FIRST], 3: []})
        self.assertEqual(detail.led(), {0: 3, 2: 0})
        info = detail.info()
        self.assertEqual((info.topic, info.total_queues, info.bname, info.epoch, info.scope,
                          info.curr_id_map), ("S", 3, A, 9, GLOBAL_SCOPE, {0: 3, 2: 0}))
        self.assertFalse(detail.leads(None))

    def test_logical_broker_name(self) -> None:
        """The name that clients have in place of a broker's."""
        self.assertEqual(logical_broker_name(GLOBAL_SCOPE), "__syslo__global__")
        self.assertEqual(logical_broker_name("mine"), "__syslo__mine")
