"""Progress that is saved only when nothing can undo it."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.request.settled_progress import SettledProgress
from twistmq.broker.testing.store import StoreBox, message


class SettledProgressTests(SynchronousTestCase):
    """A progress that depends on the records of a store."""

    def setUp(self) -> None:
        self.box = StoreBox().open()
        self.store = self.box.store
        self.progress = SettledProgress(self.store, 0)

    def append(self, number: int) -> int:
        """Store a message, and note the progress; :returns: the end of the log."""
        (record,) = self.box.append(message())
        self.progress.note(number)
        return record.next_offset

    def flush(self) -> None:
        self.store.flush.flushed(self.store.commit_log.max_offset)

    def test_it_is_settled_by_a_flush(self) -> None:
        """Without replicas only a loss of power could undo it."""
        self.append(1)
        self.assertEqual((self.progress.settled, self.progress.waits), (0, True))
        self.assertEqual(self.progress.agreed_value(2), 2)
        self.flush()
        self.assertEqual((self.progress.settled, self.progress.waits), (1, False))

    def test_replicas_have_to_confirm_it(self) -> None:
        """Each value needs a flush, and the confirmation of all records before it."""
        self.store.dispatch.advance_confirm_offset(0)
        ends = [self.append(number) for number in (1, 2)]
        self.store.dispatch.advance_confirm_offset(ends[1])
        self.assertEqual((self.progress.settled, self.progress.agreed_value(2)), (0, 0))
        self.flush()
        self.assertEqual((self.progress.settled, self.progress.settled_end), (2, ends[1]))
        ends = [self.append(number) for number in (3, 4)]
        self.flush()
        for number, end in enumerate(ends, 3):
            self.store.dispatch.advance_confirm_offset(end - 1)
            self.assertEqual(self.progress.agreed_value(9), number - 1)
            self.store.dispatch.advance_confirm_offset(end)
            self.assertEqual(self.progress.agreed_value(9), number)

    def test_it_goes_back(self) -> None:
        """Values of records that were removed are never settled."""
        self.append(1)
        self.flush()
        self.store.dispatch.advance_confirm_offset(self.store.commit_log.max_offset)
        self.append(2)
        self.assertEqual(self.progress.go_back(), 1)
        self.store.dispatch.advance_confirm_offset(self.append(3) - 1)
        self.flush()
        self.assertEqual(self.progress.settled, 1)
        self.progress.reset(7)
        self.store.dispatch.advance_confirm_offset(self.store.commit_log.max_offset)
        self.assertEqual((self.progress.settled, self.progress.waits), (7, False))

    def test_memory_is_bounded(self) -> None:
        """The newest values are joined, and the first ones are still settled one by one."""
        self.store.dispatch.advance_confirm_offset(0)
        ends = [self.append(number) for number in range(1, 1001)]
        self.assertLess(len(self.progress._waiting), 100)
        self.flush()
        self.store.dispatch.advance_confirm_offset(ends[4])
        self.assertEqual(self.progress.settled, 5)
        self.store.dispatch.advance_confirm_offset(ends[-1])
        self.assertEqual(self.progress.settled, 1000)
