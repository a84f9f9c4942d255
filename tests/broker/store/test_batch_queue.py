"""A batch queue in memory."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.batch_queue import (
    BATCH_ENTRY,
    BATCH_ENTRY_SIZE,
    BatchQueue,
    entry_before,
)


class BatchQueueTests(SynchronousTestCase):
    """Entries and their numbers."""

    def setUp(self) -> None:
        """Create a queue of three records with six messages."""
        self.queue = BatchQueue("T", 3)
        for offset, count, place in ((0, 3, 100), (3, 1, 200), (4, 2, 300)):
            self.assertTrue(self.queue.add_batch(offset, count, place, 90, 7, 1000 + place))

    def test_entry_is_apaches(self) -> None:
        """The first entry has Apache's bytes."""
        self.assertEqual(
            bytes(self.queue.tail[:BATCH_ENTRY_SIZE]).hex(" ", 2).replace(" ", ""),
            "0000000000000064" "0000005a" "0000000000000007" "000000000000044c"
            "0000000000000000" "0003" "ffffffff" "00000000")

    def test_offsets_count_messages(self) -> None:
        """The end is after the last message of the last record."""
        queue = self.queue
        self.assertEqual((queue.min_offset, queue.max_offset, queue.written_end), (0, 6, 0))
        self.assertEqual(queue.max_physical, 390)

    def test_a_record_is_entered_once(self) -> None:
        """Recovery reads whole records again."""
        self.assertFalse(self.queue.add_batch(4, 2, 300, 90, 7, 1300))
        self.assertEqual(len(self.queue.tail), 3 * BATCH_ENTRY_SIZE)

    def test_a_gap_stays(self) -> None:
        """A missing record has no entry."""
        self.assertTrue(self.queue.add_batch(10, 1, 400, 90, 7, 1400))
        self.assertEqual((self.queue.max_offset, len(self.queue.tail)), (11, 4 * BATCH_ENTRY_SIZE))

    def test_a_queue_begins_with_its_first_record(self) -> None:
        """Earlier records are no longer in the log."""
        queue = BatchQueue("T", 0)
        queue.add_batch(50, 5, 0, 90, 0, 1)
        self.assertEqual((queue.min_offset, queue.max_offset), (50, 55))

    def test_cut_drops_whole_records(self) -> None:
        """The queue continues at the beginning of the first record that was cut."""
        self.queue.cut(250)
        self.assertEqual((self.queue.max_offset, self.queue.next_offset), (4, 4))
        self.assertEqual(len(self.queue.tail), 2 * BATCH_ENTRY_SIZE)

    def test_entry_before(self) -> None:
        """The last entry that begins at an offset or before it is found."""
        found = [entry_before(self.queue.tail, offset) for offset in range(-1, 8)]
        self.assertEqual(found, [-1, 0, 0, 0, 1, 2, 2, 2, 2])
        self.assertEqual(entry_before(b"", 0), -1)

    def test_begin_at(self) -> None:
        """A queue whose topic was created again has no entries and continues at an offset."""
        self.queue.tail.clear()
        self.queue.begin_at(2)
        self.assertEqual(
            (self.queue.min_offset, self.queue.max_offset, self.queue.next_offset), (2, 2, 2))

    def test_most_messages_of_a_record(self) -> None:
        """The field is a Java short."""
        queue = BatchQueue("T", 0)
        queue.add_batch(0, 32767, 0, 90, 0, 1)
        self.assertEqual(BATCH_ENTRY.unpack(queue.tail)[5], 32767)
        self.assertRaises(AssertionError, queue.add_batch, 40000, 32768, 0, 90, 0, 1)
