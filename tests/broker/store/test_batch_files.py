"""Batch queues on disk: reads by offset and time, crashes, losses of power, removal."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.batch_queue import BATCH_ENTRY, BATCH_ENTRY_SIZE, BatchQueue
from twistmq.broker.store.get_message import GetMessageStatus
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import StoreBox, inner_batch, message
from twistmq.protocol.errors import MessageIllegal, StoreDamaged
from twistmq.protocol.record import MessageRecord, decode_record

TOPIC = "Batches"
FILE_SIZE = 5 * BATCH_ENTRY_SIZE
DIRECTORY = f"/store/batchconsumequeue/{TOPIC}/0"


class BatchTestCase(SynchronousTestCase):
    """A test with a store that has a batch topic."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.box = StoreBox(self.disk)
        self.box.batch_topics.add(TOPIC)
        self.box.open()
        self.records: list[MessageRecord] = []

    def append(self, *sizes: int) -> None:
        """Append batches of these sizes; a size of 0 appends a message that is not a batch."""
        for size in sizes:
            self.box.now_ms += 10
            name = b"%d" % len(self.records)
            self.records += self.box.append(
                inner_batch(TOPIC, [name] * size) if size else message(TOPIC, name))

    def queue(self) -> BatchQueue:
        """Return the queue object."""
        queue = self.box.store.queues.find(TOPIC, 0)
        assert isinstance(queue, BatchQueue)
        return queue

    def write(self) -> None:
        """Write the entries that wait in memory."""
        self.box.store.queues.write_all()

    def check(self) -> None:
        """Read from every offset the queue has; each finds the record that has it."""
        store = self.box.store
        end = 0
        for record in self.records:
            self.assertEqual(record.queue_offset, end)
            end += record.message_count
            for offset in range(record.queue_offset, end):
                if offset < store.queues.min_offset(TOPIC, 0):
                    continue
                result = store.get_message(TOPIC, 0, offset, 1)
                self.assertEqual(result.status, GetMessageStatus.FOUND, msg=offset)
                (data,) = result.messages
                self.assertEqual(decode_record(data).physical_offset, record.physical_offset)
                self.assertEqual((result.next_begin_offset, result.message_count),
                                 (end, record.message_count))
                self.assertEqual(
                    store.queues.commit_log_offset(TOPIC, 0, offset), record.physical_offset)
        self.assertEqual(store.queues.max_offset(TOPIC, 0), end)


class ReadTests(BatchTestCase):
    """Entries are in files, in memory, or in both."""

    def test_every_offset_wherever_entries_are(self) -> None:
        """None, some or all of them are in files."""
        self.append(3, 0, 5, 1, 2, 2, 0)
        self.check()
        self.write()
        self.check()
        self.append(4, 4, 0, 7)
        self.check()
        self.write()
        self.append(1)
        self.check()
        names = self.disk.list_directory(DIRECTORY)
        self.assertEqual([int(name) for name in names], [0, FILE_SIZE, 2 * FILE_SIZE])

    def test_after_stop_and_kill(self) -> None:
        """Files and log agree; entries that were only in memory are made again."""
        self.append(3, 0, 5, 1, 2, 2, 0)
        self.box = self.box.after_stop()
        self.check()
        self.append(4, 4)
        self.box = self.box.after_kill()
        self.check()
        self.append(0, 2)
        self.box = self.box.after_kill()
        self.check()

    def test_a_read_ends_with_enough_messages(self) -> None:
        """A batch above the limit is returned alone or not at all."""
        self.append(3, 3, 9)
        result = self.box.store.get_message(TOPIC, 0, 0, 7)
        self.assertEqual((result.count, result.message_count, result.next_begin_offset), (2, 6, 6))
        result = self.box.store.get_message(TOPIC, 0, 6, 7)
        self.assertEqual((result.count, result.message_count, result.next_begin_offset), (1, 9, 15))

    def test_batches_on_disk_are_for_a_slave(self) -> None:
        """Batches far behind count as being on disk, so a slave should serve them."""
        self.patch(MemoryDisk, "physical_memory_bytes", lambda disk: 1000)
        self.box = self.box.after_stop()
        self.append(*[2] * 20)
        store = self.box.store
        self.assertEqual([store.get_message(TOPIC, 0, offset, 1).suggest_slave
                          for offset in (0, 38)], [True, False])

    def test_offset_by_time(self) -> None:
        """The first record then or later, the last one then or earlier."""
        start = self.box.now_ms
        self.append(3, 0, 5, 1, 2, 2, 0)
        self.write()
        self.append(4, 4)
        for written in (True, False):
            for number, record in enumerate(self.records):
                stored = start + 10 * (number + 1)
                ask = self.box.store.reader.offset_by_time
                self.assertEqual(ask(TOPIC, 0, stored), record.queue_offset)
                self.assertEqual(ask(TOPIC, 0, stored - 1), record.queue_offset)
                self.assertEqual(ask(TOPIC, 0, stored, "upper"), record.queue_offset)
                self.assertEqual(ask(TOPIC, 0, stored + 1, "upper"), record.queue_offset)
            self.assertEqual(ask(TOPIC, 0, stored + 1), self.queue().max_offset)
            if written:
                self.write()

    def test_offsets_nothing_has(self) -> None:
        """A read outside the queue gets the bounds of the queue."""
        self.append(3, 2)
        store = self.box.store
        for offset, status in ((5, GetMessageStatus.OFFSET_OVERFLOW_ONE),
                               (6, GetMessageStatus.OFFSET_OVERFLOW_BADLY)):
            self.assertEqual(store.get_message(TOPIC, 0, offset, 1).status, status)
        self.assertEqual(store.get_message(TOPIC, 1, 0, 1).status,
                         GetMessageStatus.NO_MESSAGE_IN_QUEUE)

    def test_a_large_file_is_searched(self) -> None:
        """The search halves the range first, and then looks within one read."""
        self.box = self.box.after_stop(mapper_file_size_batch_consume_queue=1000 * 46)
        chance = random.Random(1)
        self.append(*[chance.choice((0, 1, 2, 5)) for _ in range(900)])
        self.write()
        self.check()


class RecoveryTests(BatchTestCase):
    """The states that a crash may leave."""

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change bytes of a file behind the store's back."""
        self.box.store.close()
        file = self.disk.open_file(path)
        file.write_at(position, data)
        file.close()

    def test_a_hole_is_filled_from_the_log(self) -> None:
        """Zeros in mid-queue, as a loss of power leaves them."""
        self.append(3, 0, 5, 1, 2, 2, 0)
        self.write()
        self.damage(f"{DIRECTORY}/{0:020d}", 2 * BATCH_ENTRY_SIZE, bytes(BATCH_ENTRY_SIZE))
        self.box = self.box._again().open()
        self.check()

    def test_a_hole_far_back(self) -> None:
        """The hole is before the last three files."""
        self.append(*[3, 0, 5, 1, 2] * 6)
        self.write()
        self.damage(f"{DIRECTORY}/{FILE_SIZE:020d}", 2 * BATCH_ENTRY_SIZE,
                    bytes(BATCH_ENTRY_SIZE))
        self.box = self.box._again().open()
        self.check()

    def test_a_wrong_entry_is_made_again(self) -> None:
        """An entry that looks well and is not its record's."""
        self.append(3, 0, 5, 1, 2, 2, 0)
        self.write()
        wrong = BATCH_ENTRY.pack(self.records[2].physical_offset, self.records[2].size, 0,
                                 self.records[2].store_timestamp, 4, 4, -1, 0)
        self.damage(f"{DIRECTORY}/{0:020d}", 2 * BATCH_ENTRY_SIZE, wrong)
        self.box = self.box._again().open()
        self.check()

    def test_entries_behind_the_log_are_dropped(self) -> None:
        """The log has lost their records."""
        self.append(3, 0, 5)
        self.write()
        queue = self.queue()
        queue.add_batch(9, 4, self.box.store.commit_log.max_offset, 99, 0, self.box.now_ms)
        queue.add_batch(13, 1, self.box.store.commit_log.max_offset + 99, 99, 0, self.box.now_ms)
        self.write()
        self.box = self.box.after_kill()
        self.check()
        self.append(2, 2, 2)
        self.check()

    def test_entries_behind_a_clean_log_are_dropped(self) -> None:
        """The first of them shows where the log ends now."""
        self.append(3, 0, 5, 1)
        self.successResultOf(self.box.store.stop())
        self.disk.clear_from(f"/store/commitlog/{0:020d}", self.records[2].physical_offset)
        del self.records[2:]
        self.box = self.box._again().open()
        self.check()
        self.append(2, 2, 2)
        self.check()

    def test_a_queue_that_lost_all_files(self) -> None:
        """The queue is made again from the log."""
        self.append(3, 0, 5, 1, 2, 2, 0)
        self.write()
        self.box.store.close()
        for name in self.disk.list_directory(DIRECTORY):
            self.disk.remove(f"{DIRECTORY}/{name}")
        self.box = self.box._again().open()
        self.check()

    def test_a_topic_created_again_begins_at_0(self) -> None:
        """This is so even if recovery sees the records of both after a crash."""
        self.append(3, 0, 5)
        self.write()
        self.assertEqual(self.box.store.delete_topic(TOPIC), 1)
        self.assertFalse(self.disk.exists(f"/store/batchconsumequeue/{TOPIC}"))
        self.records.clear()
        self.append(2, 2)
        self.check()
        self.box = self.box.after_kill()
        self.check()

    def test_losses_of_power(self) -> None:
        """After each, flushed messages are present, and offsets have no gaps and no duplicates."""
        for seed in range(40):
            self._lose_power(random.Random(seed))

    def _lose_power(self, chance: random.Random) -> None:
        disk = PowerLossDisk()
        self.box = StoreBox(disk, mapped_file_size_commit_log=4000)
        self.box.batch_topics.add(TOPIC)
        self.box.open()
        self.records.clear()
        for _ in range(3):
            flushed = 0
            # So many that holes may be further back than in the last three files.
            for _ in range(chance.randrange(1, 40)):
                self.append(*[chance.choice((0, 1, 3, 6)) for _ in range(chance.randrange(1, 9))])
                if chance.random() < 0.4:
                    self.write()
                if chance.random() < 0.05:
                    self.box.store.queues.sync_job()()
                if chance.random() < 0.3:
                    self.assertIsNone(self.box.store.flush.flushed(self.box.store.commit_log.max_offset))
                    flushed = len(self.records)
            self.box.store.close()
            disk.crash(chance)
            self.box = self.box._again().open()
            left = [record for record in self.records
                    if record.next_offset <= self.box.store.commit_log.max_offset]
            self.assertGreaterEqual(len(left), flushed)
            self.records[:] = left
            self.check()


class RemovalTests(BatchTestCase):
    """A queue follows the beginning of the commit log."""

    def test_the_beginning_moves(self) -> None:
        """It moves to the first remaining record; files before it are deleted."""
        self.append(*[3, 0, 5, 1, 2] * 4)
        self.write()
        queue, files = self.queue(), self.box.store.queues.batch_files
        for number in (0, 1, 4, 5, 7, 12):
            record = self.records[number]
            files.correct_min_offset(queue, record.physical_offset)
            self.assertEqual(queue.min_offset, record.queue_offset)
            files.remove_unreachable(queue)
            self.assertEqual(queue.starts[0], number // 5 * FILE_SIZE)
            self.assertEqual([int(name) for name in self.disk.list_directory(DIRECTORY)],
                             queue.starts)
            self.check()

    def test_a_queue_without_records(self) -> None:
        """Its end is its beginning, and the next record is stored there."""
        self.append(3, 0, 5)
        self.write()
        queue, files = self.queue(), self.box.store.queues.batch_files
        files.correct_min_offset(queue, self.box.store.commit_log.max_offset)
        files.remove_unreachable(queue)
        self.assertEqual((queue.min_offset, queue.max_offset, queue.starts), (9, 9, [0]))
        self.append(2)
        self.assertEqual(self.records[-1].queue_offset, 9)
        result = self.box.store.get_message(TOPIC, 0, 10, 1)
        self.assertEqual((result.status, result.next_begin_offset), (GetMessageStatus.FOUND, 11))


class KindTests(BatchTestCase):
    """The queues of a topic have one kind."""

    def test_files_of_the_other_kind(self) -> None:
        """The store does not load, and the error has the topic."""
        self.append(3)
        self.assertTrue(self.box.store.stop().called)
        again = self.box._again()
        again.batch_topics = set()
        error = self.assertRaises(StoreDamaged, again.load)
        self.assertIn(f"the queues of topic {TOPIC} are BatchCQ, its queue.type is SimpleCQ",
                      str(error))

    def test_plain_files_of_a_batch_topic(self) -> None:
        """The same is true the other way round."""
        self.box.append(message("Plain"))
        self.assertTrue(self.box.store.stop().called)
        self.box.batch_topics.add("Plain")
        error = self.assertRaises(StoreDamaged, self.box._again().load)
        self.assertIn("the queues of topic Plain are SimpleCQ, its queue.type is BatchCQ",
                      str(error))

    def test_a_topic_nobody_knows_keeps_its_kind(self) -> None:
        """Its configuration may be lost, but its queues are not."""
        self.append(3, 2)
        self.assertTrue(self.box.store.stop().called)
        self.box = self.box._again()
        self.patch(self.box, "is_batch_topic", lambda topic: None)
        self.box.open()
        self.check()
        other = message(TOPIC, queue_id=1)
        self.box.append(other)
        self.assertIsInstance(self.box.store.queues.find(TOPIC, 1), BatchQueue)

    def test_a_queue_more_of_the_other_kind(self) -> None:
        """A record for it is refused, and uses no offset."""
        self.append(3)
        self.box.batch_topics = set()
        self.patch(self.box, "is_batch_topic", lambda topic: False)
        error = self.assertRaises(MessageIllegal, self.box.append, message(TOPIC, queue_id=1))
        self.assertIn("BatchCQ", str(error))

    def test_batches_need_a_batch_queue(self) -> None:
        """A record of several messages must be a batch."""
        self.assertRaises(MessageIllegal, self.box.append, inner_batch("Plain", [b"a", b"b"]))
        self.assertRaises(MessageIllegal, self.box.append, message(TOPIC, message_count=2))
        self.assertEqual(self.box.store.commit_log.max_offset, 0)
        self.append(2)
        self.check()
