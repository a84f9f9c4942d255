"""The entries of a queue in memory."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.consume_queue import ENTRY, FILLER, ConsumeQueue
from twistmq.protocol.properties import java_string_hash


class ConsumeQueueTests(SynchronousTestCase):
    """The class ConsumeQueue."""

    def setUp(self) -> None:
        """Create a queue with three messages of 100 bytes."""
        self.queue = ConsumeQueue("T", 1)
        for offset in range(3):
            self.assertTrue(self.queue.add(offset, offset * 100, 100, 7))

    def entries(self) -> list[tuple[int, int, int]]:
        """Return the entries in memory."""
        return list(ENTRY.iter_unpack(self.queue.tail))

    def test_entry_layout(self) -> None:
        """20 bytes, as Apache's; a tag's hash is sign-extended."""
        self.assertEqual(ENTRY.pack(1, 215, -1).hex(), "0000000000000001000000d7" + "f" * 16)
        self.assertEqual(FILLER.hex(), "00000000000000007fffffff0000000000000000")

    def test_entries_follow_each_other_and_the_numbers_follow_them(self) -> None:
        """Entries follow each other and the numbers follow them."""
        self.assertEqual(self.entries(), [(0, 100, 7), (100, 100, 7), (200, 100, 7)])
        self.assertEqual((self.queue.max_offset, self.queue.max_physical), (3, 300))
        self.assertEqual(self.queue.key_hash, java_string_hash("T#"))

    def test_a_message_seen_again_changes_nothing(self) -> None:
        """Recovery dispatches messages again."""
        self.assertFalse(self.queue.add(1, 100, 100, 7))
        self.assertEqual(self.queue.max_offset, 3)

    def test_missing_messages_leave_fillers(self) -> None:
        """Offsets are unchanged although entries are lost."""
        self.assertTrue(self.queue.add(5, 500, 100, 7))
        self.assertEqual(self.entries()[3:], [(0, 0x7FFFFFFF, 0)] * 2 + [(500, 100, 7)])

    def test_first_message_may_have_any_offset(self) -> None:
        """Earlier messages are no longer in the commit log."""
        queue = ConsumeQueue("T", 0)
        queue.add(1000, 5, 100, 0)
        self.assertEqual((queue.min_offset, queue.max_offset, len(queue.tail)), (1000, 1001, 20))

    def test_entries_at_or_behind_the_place_go(self) -> None:
        """Entries at the position or after it are removed, and earlier ones remain."""
        self.queue.cut(150)
        self.assertEqual(self.entries(), [(0, 100, 7), (100, 100, 7)])
        self.queue.cut(100)
        self.assertEqual((self.queue.max_offset, self.queue.next_offset), (1, 1))
