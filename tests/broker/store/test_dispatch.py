"""The dispatch up to a confirm offset, of appended records and of raw bytes."""

from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import DISPATCH_STEP_RECORDS
from twistmq.broker.store import dispatch as dispatch_module
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError


class ConfirmTests(SynchronousTestCase):
    """A confirm offset before the end of the log, and raw appends."""

    def setUp(self) -> None:
        """Create a store whose replicas must confirm messages."""
        self.box = StoreBox().open()
        self.store = self.box.store
        self.arrived: list[bytes] = []
        self.store.dispatch.on_arrival.append(lambda rs: self.arrived.extend(r.body for r in rs))

    def test_bounds_what_is_seen(self) -> None:
        """Messages after it are neither read nor announced."""
        self.box.append(message(body=b"a"))
        self.store.dispatch.advance_confirm_offset(0)
        records = self.box.append(message(body=b"b", keys="k"), message(body=b"c"))
        self.assertEqual((self.box.bodies(), self.arrived), ([b"a"], [b"a"]))
        self.assertIsNone(self.store.look_message(records[0].physical_offset))
        self.assertEqual(self.store.reader.query("TopicTest", "k", 1, 0, 2**62)[0], [])
        self.assertEqual(self.store.dispatch.behind_bytes, 0)
        self.store.dispatch.advance_confirm_offset(records[0].next_offset + 5)
        self.assertEqual((self.box.bodies(), self.arrived), ([b"a", b"b"], [b"a", b"b"]))
        self.assertEqual(len(self.store.reader.query("TopicTest", "k", 1, 0, 2**62)[0]), 1)
        self.store.dispatch.advance_confirm_offset(0)
        self.assertEqual(self.store.dispatch.confirm_offset, records[0].next_offset + 5)
        self.store.dispatch.advance_confirm_offset(10**9)
        self.assertEqual(self.store.dispatch.confirm_offset, self.store.commit_log.max_offset)
        self.assertEqual(self.arrived, [b"a", b"b", b"c"])

    def test_follows_again(self) -> None:
        """Messages that waited are dispatched with the next append."""
        self.store.dispatch.advance_confirm_offset(0)
        self.box.append(message(body=b"a"))
        self.store.dispatch.confirm_follows = True
        self.box.append(message(body=b"b"))
        self.assertEqual(self.arrived, [b"a", b"b"])

    def test_large_backlog_is_dispatched_in_steps(self) -> None:
        """No step blocks the reactor for long."""
        self.box = StoreBox(mapped_file_size_commit_log=4 << 20).open()
        store = self.box.store
        store.dispatch.advance_confirm_offset(0)
        with mock.patch.object(dispatch_module, "DISPATCH_WAITING_BYTES_MAX", 0):
            self.box.append(*[message(body=bytes(100_000)) for _ in range(20)])
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        first = store.queues.max_offset("TopicTest", 0)
        self.assertLess(first, 20)
        self.assertGreater(store.dispatch.behind_bytes, 0)
        self.box.step(10, 5)
        self.assertEqual(store.queues.max_offset("TopicTest", 0), 20)

    def test_unconfirmed_records_wait_in_memory(self) -> None:
        """They are dispatched as they are confirmed, without a read of the log."""
        store = self.store
        store.dispatch.advance_confirm_offset(0)
        records = [*self.box.append(*[message(body=b"%d" % number) for number in range(3)]),
                   *self.box.append(message(body=b"3", queue_id=1), message(body=b"4"))]
        self.patch(store.commit_log, "peek", None)
        for number, record in enumerate(records):
            store.dispatch.advance_confirm_offset(record.next_offset - 1)
            self.assertEqual(len(self.arrived), number)
            self.assertFalse(store.dispatch.step())
            store.dispatch.advance_confirm_offset(record.next_offset)
            self.assertEqual(self.arrived[-1], b"%d" % number)
        self.assertEqual(len(self.arrived), len(records))
        self.assertEqual((store.dispatch.offset, store.dispatch.timestamp),
                         (records[-1].next_offset, records[-1].store_timestamp))
        self.assertEqual([store.queues.max_offset("TopicTest", each) for each in (0, 1)], [4, 1])

    def test_records_beyond_the_limit_are_read_back(self) -> None:
        """Later records wait in memory again when all of these are dispatched."""
        store = self.store
        store.dispatch.advance_confirm_offset(0)
        (first,) = self.box.append(message(body=b"0"))
        with mock.patch.object(dispatch_module, "DISPATCH_WAITING_BYTES_MAX", first.next_offset):
            self.box.append(message(body=b"1"))
        self.box.now_ms += 5
        (newest,) = self.box.append(message(body=b"2"))
        store.dispatch.advance_confirm_offset(newest.physical_offset)
        self.box.step(3, 5)
        self.assertEqual(self.arrived, [b"0", b"1"])
        self.assertEqual(store.commit_log.last_store_timestamp, newest.store_timestamp)
        store.dispatch.advance_confirm_offset(newest.next_offset)
        self.assertEqual(self.arrived, [b"0", b"1", b"2"])
        (later,) = self.box.append(message(body=b"3"))
        self.patch(store.commit_log, "peek", None)
        store.dispatch.advance_confirm_offset(later.next_offset)
        self.assertEqual(self.arrived[-1], b"3")
        self.assertEqual(later.queue_offset, 3)

    def test_raw_append_makes_the_same_store(self) -> None:
        """A master's log, cut anywhere, makes the same messages readable."""
        master = StoreBox(MemoryDisk()).open()
        for number in range(40):
            master.append(message(body=b"%d" % number * 700, keys="k", queue_id=number % 2))
        log = master.store.commit_log
        size = 777
        while self.store.commit_log.max_offset < master.store.commit_log.max_offset:
            offset = self.store.commit_log.max_offset
            end = min(offset + size, offset + log.file_size - offset % log.file_size)
            data = log.read(offset, min(end, master.store.commit_log.max_offset) - offset)
            assert data is not None
            self.store.raw.append(offset, data)
        self.box.step(1000)
        for queue_id in range(2):
            self.assertEqual(
                self.box.bodies(queue_id=queue_id), master.bodies(queue_id=queue_id)
            )
        self.assertEqual(len(self.arrived), 40)
        self.assertEqual(
            self.store.reader.query("TopicTest", "k", 64, 0, 2**62),
            master.store.reader.query("TopicTest", "k", 64, 0, 2**62),
        )
        (ours,) = self.box.append(message())
        (theirs,) = master.append(message())
        self.assertEqual(ours.queue_offset, theirs.queue_offset)
        self.assertEqual(ours.physical_offset, theirs.physical_offset)

    def test_raw_append_elsewhere_is_refused(self) -> None:
        """It must begin at the end of the log."""
        self.box.append(message())
        error = self.assertRaises(StoreError, self.store.raw.append, 0, b"x")
        self.assertIn("cannot be stored at 105", str(error))

    def test_absurd_queue_offset(self) -> None:
        """Such a message is found by position and key, and blocks no other."""
        master = StoreBox().open()
        log = master.store.commit_log
        records = master.append(*[message(body=b"%d" % n, keys="k") for n in range(3)])
        data = bytearray(log.read(0, log.max_offset) or b"")
        data[records[1].size + 20] = 0x03
        self.store.raw.append(0, bytes(data))
        self.store.dispatch.step()
        self.assertEqual(self.arrived, [b"0", b"2"])
        self.assertEqual(self.store.queues.max_offset("TopicTest", 0), 3)
        self.assertEqual(self.box.bodies(), [b"0", b"2"])
        self.assertEqual(len(self.store.reader.query("TopicTest", "k", 9, 0, 2**62)[0]), 3)


class ManyRecordsTests(SynchronousTestCase):
    """Records whose dispatch is too much for one turn."""

    def setUp(self) -> None:
        """Create three parts that are stored and not dispatched."""
        self.box = StoreBox().open()
        self.store = self.box.store
        self.arrived: list[bytes] = []
        self.store.dispatch.on_arrival.append(lambda rs: self.arrived.extend(r.body for r in rs))
        self.many = [b"%d" % number for number in range(3 * DISPATCH_STEP_RECORDS)]
        records = [message(body=body, keys="k") for body in self.many]
        self.store.append_encoded([
            self.store.encode_ahead(records[begin:begin + DISPATCH_STEP_RECORDS])
            for begin in range(0, len(records), DISPATCH_STEP_RECORDS)])

    def test_each_step_makes_a_part_readable(self) -> None:
        """Each step makes a part readable, and so does flush_step."""
        self.assertEqual((self.arrived, self.store.dispatch.offset), ([], 0))
        self.assertTrue(self.store.dispatch.step())
        self.assertEqual(self.arrived, self.many[:DISPATCH_STEP_RECORDS])
        self.box.step(2, 5)
        self.assertEqual(self.arrived, self.many)
        self.assertEqual(self.store.dispatch.offset, self.store.commit_log.max_offset)
        self.assertFalse(self.store.dispatch.step())

    def test_records_appended_meanwhile_become_readable_behind(self) -> None:
        """Records that are appended meanwhile follow without steps of their own."""
        for number in range(4):
            self.box.append(message(body=b"later %d" % number))
        later = [b"later %d" % number for number in range(4)]
        self.assertEqual(self.arrived, [*self.many, *later])
        self.assertEqual(self.box.bodies(), self.arrived)

    def test_replicas_have_a_say(self) -> None:
        """They are read back up to the confirm offset, each record once."""
        self.store.dispatch.step()
        self.store.dispatch.advance_confirm_offset(0)
        self.box.append(message(body=b"later"))
        self.assertEqual(len(self.arrived), DISPATCH_STEP_RECORDS)
        self.store.dispatch.advance_confirm_offset(self.store.commit_log.max_offset)
        while self.store.dispatch.step():
            continue
        self.assertEqual(self.arrived, [*self.many, b"later"])

    def test_topic_deleted(self) -> None:
        """Its queue is not created again, and a new one begins at 0."""
        self.store.delete_topic("TopicTest")
        while self.store.dispatch.step():
            continue
        self.assertEqual(self.store.queues.ids_by_topic(), {})
        [record] = self.box.append(message(body=b"new"))
        self.assertEqual((record.queue_offset, self.box.bodies()), (0, [b"new"]))

    def test_a_start_after_a_kill_makes_all_of_it_readable(self) -> None:
        """A start after a kill makes all of it readable."""
        self.store.dispatch.step()
        self.assertEqual(self.box.after_kill().bodies(), self.many)

    def test_a_clean_stop_dispatches_what_waits(self) -> None:
        """A clean stop dispatches the waiting records."""
        self.assertEqual(self.box.after_stop().bodies(), self.many)
