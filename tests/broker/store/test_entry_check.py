"""After a crash, entries are compared with their messages."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.consume_queue import ENTRY_SIZE
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.properties import java_string_hash

QUEUE = f"/store/consumequeue/TopicTest/0/{0:020d}"
#: The hash of the third ends with a byte of zeros, as a torn one does.
TAGS = ("Tag", "", "agf", "a")


class EntryCheckTests(SynchronousTestCase):
    """The class EntryCheck."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.box = StoreBox(self.disk).open()
        self.box.append(*[message(tag=tag) for tag in TAGS])
        self.box.store.queues.write_all()

    def restart_with(self, position: int, data: bytes) -> list[int]:
        """Kill the store, change the queue's file, start again; the entries' codes."""
        self.box.store.close()
        self.disk.open_file(QUEUE).write_at(position, data)
        self.box = self.box._again().open()
        return [code for _, _, code in self.box.store.queues.entries("TopicTest", 0, 0, 9)]

    def test_however_much_of_an_entry_a_loss_of_power_left(self) -> None:
        """The entry is repaired, however much of it a loss of power left."""
        expected = [java_string_hash(tag) for tag in TAGS]
        for number in range(len(TAGS)):
            for size in range(ENTRY_SIZE):
                found = self.restart_with(number * ENTRY_SIZE + size, bytes(ENTRY_SIZE - size))
                self.assertEqual(found, expected, msg=f"{number} {size}")
                self.box.store.queues.write_all()

    def test_an_entry_of_a_lost_message_is_replaced(self) -> None:
        """An entry of a message that the log lost is replaced."""
        found = self.restart_with(ENTRY_SIZE, (5000).to_bytes(8, "big"))
        self.assertEqual(found, [java_string_hash(tag) for tag in TAGS])

    def test_made_by_somebody(self) -> None:
        """The code of a plugin is compared with the code that it gives now."""
        self.box.store.close()
        box = self.box._again()
        box.tags_codes = {"TopicTest": lambda record: 1 << 40}
        self.disk.remove(QUEUE)
        box.open().store.queues.write_all()
        box.store.close()
        self.disk.open_file(QUEUE).write_at(ENTRY_SIZE + 12, bytes(8))
        again = box._again()
        again.tags_codes = {"TopicTest": lambda record: 1 << 40}
        again.open()
        self.assertEqual({code for _, _, code in again.store.queues.entries("TopicTest", 0, 0, 9)},
                         {1 << 40})
