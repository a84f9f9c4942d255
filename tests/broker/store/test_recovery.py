"""The log is read record by record, from a computed start."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.recovery import (
    scan_log,
    start_after_crash,
    without_torn,
)
from twistmq.broker.store.stored_records import record_of
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.record import (
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    StoredMessage,
    decode_record,
    encode_record,
)


class ScanTests(SynchronousTestCase):
    """The function scan_log and its start."""

    def make_log(self, bodies: list[bytes]) -> MessageStore:
        """Create a store with messages."""
        self.box = StoreBox(MemoryDisk(), mapped_file_size_commit_log=3_000_000).open()
        for body in bodies:
            self.box.append(message(body=body))
        return self.box.store

    def test_crosses_files_and_large_records(self) -> None:
        """Every record is found, even one that is larger than a read."""
        bodies = [bytes([n]) * (400_000 * n) for n in range(1, 6)] * 2
        store = self.make_log(bodies)
        found = [m.body for m in scan_log(store.commit_log, 0, store.commit_log.max_offset, True)]
        self.assertEqual(found, bodies)

    def test_from_any_record(self) -> None:
        """It may begin at any record, not only at a file."""
        store = self.make_log([b"a", b"b", b"c"])
        second = store.queues.commit_log_offset("TopicTest", 0, 1)
        end = store.commit_log.max_offset
        found = [m.body for m in scan_log(store.commit_log, second, end, True)]
        self.assertEqual(found, [b"b", b"c"])
        self.assertEqual(
            list(scan_log(store.commit_log, second + 1, store.commit_log.max_offset, True)), [])

    def test_record_of(self) -> None:
        """The dispatched record is equal to the sent one."""
        box = StoreBox().open()
        sent = message(tag="t", keys="a b", unique_key="U", queue_id=2, flag=9, reconsume_times=3)
        box.append(message(), sent)
        (_, found) = scan_log(box.store.commit_log, 0, box.store.commit_log.max_offset, True)
        again = record_of(found, None, {})
        for name in (
            "topic", "queue_id", "body", "properties", "keys", "tags_code", "flag", "sys_flag",
            "reconsume_times", "queue_offset", "physical_offset", "next_offset", "size",
            "store_timestamp", "enters_queue", "born_host", "store_host", "born_timestamp",
        ):
            self.assertEqual(getattr(again, name), getattr(sent, name), msg=name)
        self.assertFalse(record_of(found, lambda record: False, {}).enters_queue)
        code = record_of(found, None, {"TopicTest": lambda record: 77}).tags_code
        self.assertEqual(code, 77)

    def test_half_messages_enter_no_queue(self) -> None:
        """They do not enter a queue when they are dispatched again either."""
        box = StoreBox().open()
        box.append(
            message(sys_flag=SYS_TRANSACTION_PREPARED), message(sys_flag=SYS_TRANSACTION_ROLLBACK)
        )
        for found in scan_log(box.store.commit_log, 0, box.store.commit_log.max_offset, True):
            self.assertFalse(record_of(found, None, {}).enters_queue)

    def test_start_after_crash(self) -> None:
        """It is the newest file whose first message checkpoint and index cover."""
        disk = MemoryDisk()
        log = CommitLog(disk, "/log", 1000)
        log.load()
        for number in range(6):
            record = message()
            record.physical_offset = number * 1000
            record.store_timestamp = (number + 1) * 10_000
            log.write([(number * 1000, encode_record(record).ljust(1000, b"\0"))])
        cases = [
            (0, 0, None, 0),
            (43_000, 60_000, None, 3000),
            (60_000, 42_999, None, 2000),
            (99_999, 99_999, None, 5000),
            (99_999, 99_999, 5100, 5000),
            (99_999, 99_999, 4100, 4000),
            (99_999, 99_999, 0, 3000),
        ]
        for physic, logics, index_end, expected in cases:
            start = start_after_crash(log, Checkpoint(physic, logics, 20_000), index_end, False)
            self.assertEqual(start, expected, msg=(physic, logics, index_end))
        self.assertEqual(start_after_crash(log, Checkpoint(99, 99, 20_000), None, True), 0)
        safe = start_after_crash(log, Checkpoint(99_999, 99_999, 20_000), None, True)
        self.assertEqual(safe, 1000)

    def test_start_after_a_torn_time(self) -> None:
        """The store time of a file's first record counts only if the record is whole."""
        log = CommitLog(MemoryDisk(), "/log", 1000)
        log.load()
        for number, kept in enumerate((1000, 60)):
            record = message()
            record.physical_offset = number * 1000
            record.store_timestamp = 1_700_000_000_000
            log.write([(number * 1000, encode_record(record)[:kept].ljust(1000, b"\0"))])
        self.assertLess(0, log.store_timestamp(1000))
        self.assertLess(log.store_timestamp(1000), log.store_timestamp(0))
        durable = Checkpoint(1_700_000_000_000, 1_700_000_000_000)
        self.assertEqual(start_after_crash(log, durable, None, False), 0)

    def test_torn_end(self) -> None:
        """Only the last record may be torn; the ends of others are their own."""

        def stored(properties: str, topic: str = "T") -> StoredMessage:
            return decode_record(encode_record(message(topic, properties=properties)))

        whole, torn, bare = stored("a\x011\x02"), stored("a\x011\0"), stored("", "T\0")
        for messages, kept in (
            ([], []),
            ([whole], [whole]),
            ([whole, torn], [whole]),
            ([torn, whole], [torn, whole]),
            ([whole, bare], [whole]),
        ):
            self.assertEqual(list(without_torn(messages, 4096, 0)), kept)
            self.assertEqual(list(without_torn(messages, 4096, 1)), messages, "all are durable")

    def test_a_sector_of_zeros_in_properties_ends_the_log_before_its_record(self) -> None:
        """Such a record is torn, so the log ends before it."""
        text = "a\x01" + "x" * 1500 + "\x02"
        record = message(properties=text)
        record.physical_offset = 4096
        data = encode_record(record)
        for first, end, torn in ((512, 1024, True), (1024, 1536, True), (513, 1024, False)):
            holed = decode_record(data[:first] + bytes(end - first) + data[end:])
            whole = decode_record(data)
            kept = [whole] if torn else [whole, holed, whole]
            self.assertEqual(list(without_torn([whole, holed, whole], 4096, 0)), kept)
            self.assertEqual(len(list(without_torn([whole, holed, whole], 4096, 1))), 3)
