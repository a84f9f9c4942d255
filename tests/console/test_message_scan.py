"""The merge of queues, and the mark with which a search goes on."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.message_scan import (
    Hit,
    QueueScan,
    merged,
    stop_notes,
)


def scan(queue_id: int, stop: int, *pairs: tuple[int, int], back: bool = False,
         is_whole: bool = False) -> QueueScan:
    """What was read of a queue; each pair is a time and an offset."""
    return QueueScan("b", queue_id, stop, back, is_whole,
                     [Hit(at, offset, (offset,)) for at, offset in pairs])


class MergeTests(SynchronousTestCase):
    """Queues of which each was read on its own."""

    def test_messages_that_are_not_shown_are_read_again(self) -> None:
        """The mark of a queue is at the first message that was cut off."""
        hits, mark = merged([scan(0, 40, (9, 49), (3, 45), back=True),
                             scan(1, 7, (8, 8), back=True, is_whole=True)], 2)
        self.assertEqual([hit.stored_ms for hit in hits], [9, 8])
        self.assertEqual(mark, {("b", 0): 46})
        hits, mark = merged([scan(0, 60, (1, 10), (5, 12)), scan(1, 9, (2, 3), is_whole=True)], 2)
        self.assertEqual([hit.stored_ms for hit in hits], [1, 2])
        self.assertEqual(mark, {("b", 0): 12})

    def test_queues_that_are_finished_have_no_mark(self) -> None:
        """The search is over when no queue has one."""
        scans = [scan(0, 0, (1, 1), is_whole=True)]
        self.assertEqual(merged(scans, 5)[1], {})
        self.assertEqual(stop_notes(scans, 5), [])

    def test_notes_are_few(self) -> None:
        """A topic with many queues has a sentence about the rest."""
        notes = stop_notes([scan(at, 5, back=True) for at in range(100)], 10)
        self.assertEqual(len(notes), 9)
        self.assertEqual(notes[-1], "The search stopped in 92 more queues in the same way.")
