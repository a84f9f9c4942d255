"""Reads of a queue with their statuses, limits and filters; by key; by time."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.get_message import GetMessageResult, GetMessageStatus
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.record import decode_record


class TagFilter:
    """A filter for one tag hash that excludes bodies with "no"."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.looked_at = 0

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        """Match by the entry."""
        return tags_code == self.code

    def match_record(self, record: bytes | memoryview) -> bool:
        """Match by the record."""
        self.looked_at += 1
        return decode_record(record).body != b"no"


class LittleMemoryDisk(MemoryDisk):
    """A disk on a machine so small that almost everything is not in memory."""

    def physical_memory_bytes(self) -> int:
        """40 percent of it are 400 bytes."""
        return 1000


class GetMessageTests(SynchronousTestCase):
    """Reads by queue offset."""

    def setUp(self) -> None:
        """Create a store with small transfer limits."""
        self.box = StoreBox(
            max_transfer_count_on_message_in_memory=5, max_transfer_count_on_message_in_disk=2
        ).open()

    def get(
        self, offset: int, count: int = 32, code: int | None = None, total: int = 1 << 20
    ) -> GetMessageResult:
        """Read queue 0 of TopicTest."""
        self.filter = None if code is None else TagFilter(code)
        return self.box.store.get_message("TopicTest", 0, offset, count, self.filter, total)

    def check(self, result: GetMessageResult, status: str, following: int, count: int = 0) -> None:
        """Compare a result's essence."""
        found = (result.status.name, result.next_begin_offset, result.count, result.message_count)
        self.assertEqual(found, (status, following, count, count))

    def test_unknown_and_empty_queue(self) -> None:
        """If nothing was stored, the read begins at 0."""
        self.check(self.get(0), "NO_MESSAGE_IN_QUEUE", 0)
        self.check(self.get(7), "NO_MESSAGE_IN_QUEUE", 0)
        self.assertEqual(self.box.store.queues.ids_by_topic(), {})

    def test_reads_before_at_and_behind_the_end_have_their_status(self) -> None:
        """The status says whether the offset is too small, at the end, or after it."""
        self.box.append(*[message() for _ in range(3)])
        queue = self.box.store.queues.find("TopicTest", 0)
        assert queue is not None
        queue.min_offset = 1
        self.check(self.get(0), "OFFSET_TOO_SMALL", 1)
        self.check(self.get(-5), "OFFSET_TOO_SMALL", 1)
        self.check(self.get(3), "OFFSET_OVERFLOW_ONE", 3)
        self.check(self.get(4), "OFFSET_OVERFLOW_BADLY", 3)
        result = self.get(1)
        self.check(result, "FOUND", 3, 2)
        self.assertEqual((result.min_offset, result.max_offset), (1, 3))

    def test_records_are_verbatim(self) -> None:
        """The reader returns the records with the bytes of the commit log."""
        (record,) = self.box.append(message(body=b"abc", tag="t"))
        result = self.get(0)
        self.assertEqual(result.messages, [self.box.store.look_message(0)])
        self.assertEqual(result.size, record.size)
        self.assertEqual(decode_record(result.messages[0]).body, b"abc")

    def test_cost_of_a_filter(self) -> None:
        """The more expensive the filter, the fewer unwanted entries are examined."""
        self.box.append(*[message() for _ in range(900)])
        for cost, following in ((None, 800), (1, 800), (100, 8), (1_000_000, 2)):
            wants = TagFilter(1)
            if cost is not None:
                wants.cost = cost  # type: ignore[attr-defined]
            found = self.box.store.get_message("TopicTest", 0, 0, 2, wants)
            self.check(found, "NO_MATCHED_MESSAGE", following)

    def test_count_limits(self) -> None:
        """The request and the settings limit the number of messages."""
        self.box.append(*[message() for _ in range(20)])
        self.check(self.get(0, 3), "FOUND", 3, 3)
        self.check(self.get(3, 32), "FOUND", 8, 5)
        self.check(self.get(18, 32), "FOUND", 20, 2)
        self.check(self.get(0, 0), "FOUND", 1, 1)

    def test_count_limit_on_disk(self) -> None:
        """Messages far behind count as being on disk: the limit is lower, and a
        slave should serve.
        """
        self.box = StoreBox(
            LittleMemoryDisk(),
            max_transfer_count_on_message_in_memory=5,
            max_transfer_count_on_message_in_disk=2,
        ).open()
        self.box.append(*[message() for _ in range(20)])
        result = self.get(0)
        self.check(result, "FOUND", 2, 2)
        self.assertTrue(result.suggest_slave)
        # The last message of this one is just beyond the 400 bytes that are in memory.
        self.assertTrue(self.get(15, 1).suggest_slave)
        result = self.get(17)
        self.check(result, "FOUND", 20, 3)
        self.assertFalse(result.suggest_slave)

    def test_in_memory(self) -> None:
        """Only messages near the end of the log count as being in memory."""
        self.box = StoreBox(LittleMemoryDisk()).open()
        self.box.append(*[message() for _ in range(20)])
        store = self.box.store
        near = [store.reader.is_in_memory("TopicTest", 0, offset) for offset in (0, 16, 17, 19, 20)]
        self.assertEqual(near, [False, False, True, True, False])
        self.assertFalse(store.reader.is_in_memory("Other", 0, 0))

    def test_size_limits(self) -> None:
        """The first message is returned whatever its size; the others must fit."""
        self.box.append(*[message(body=bytes(1000)) for _ in range(4)])
        self.check(self.get(0, total=2500), "FOUND", 2, 2)
        self.check(self.get(0, total=0), "FOUND", 1, 1)
        self.box = StoreBox(max_transfer_bytes_on_message_in_memory=3400).open()
        self.box.append(*[message(body=bytes(1000)) for _ in range(4)])
        self.check(self.get(0), "FOUND", 3, 3)

    def test_filter_by_entry(self) -> None:
        """Entries with other tags are skipped without a read of their records."""
        tags = ["a", "b", "a", "b", "b"]
        self.box.append(*[message(tag=tag, body=b"%d" % n) for n, tag in enumerate(tags)])
        result = self.get(0, code=ord("a"))
        self.check(result, "FOUND", 5, 2)
        assert self.filter is not None
        self.assertEqual(self.filter.looked_at, 2)
        self.check(self.get(3, code=ord("a")), "NO_MATCHED_MESSAGE", 5)

    def test_filter_by_record(self) -> None:
        """Records that are read and excluded are counted."""
        self.box.append(*[message(tag="a", body=body) for body in (b"no", b"no", b"yes", b"no")])
        result = self.get(0, code=ord("a"))
        self.check(result, "FOUND", 4, 1)
        self.assertEqual(result.filtered_count, 3)
        self.box.append(message(tag="a", body=b"no"))
        result = self.get(4, code=ord("a"))
        self.check(result, "NO_MATCHED_MESSAGE", 5)

    def test_filter_looks_at_so_many_entries(self) -> None:
        """At most 16,000 bytes of entries, or the requested number, are examined."""
        self.box = StoreBox(mapped_file_size_consume_queue=40_000).open()
        for _ in range(10):
            self.box.append(*[message(tag="b") for _ in range(100)])
        self.check(self.get(0, code=ord("a")), "NO_MATCHED_MESSAGE", 800)
        self.check(self.get(0, 900, code=ord("a")), "NO_MATCHED_MESSAGE", 900)

    def test_read_ends_with_a_queue_file(self) -> None:
        """The entries of the next file are returned by the next read."""
        self.box.append(*[message() for _ in range(25)])
        self.box.step(60_000)
        self.check(self.get(18), "FOUND", 20, 2)

    def test_queue_file_is_gone(self) -> None:
        """The read continues at the next file."""
        self.box.append(*[message() for _ in range(45)])
        self.box.step(60_000)
        queue = self.box.store.queues.find("TopicTest", 0)
        assert queue is not None
        del queue.starts[0]
        self.check(self.get(3), "OFFSET_FOUND_NULL", 20)

    def test_removed_messages_are_skipped(self) -> None:
        """The read continues with the next commit-log file."""
        self.box = StoreBox(mapped_file_size_commit_log=1000).open()
        self.box.append(*[message(body=bytes(300)) for _ in range(6)])
        log = self.box.store.commit_log
        del log.starts[0]
        log._files.close_all()
        self.check(self.get(0), "FOUND", 6, 4)
        del log.starts[0]
        log._files.close_all()
        self.check(self.get(0, code=0), "FOUND", 6, 2)
        del log.starts[0]
        log._files.close_all()
        self.check(self.get(0), "MESSAGE_WAS_REMOVING", 6)

    def test_readers_in_several_files(self) -> None:
        """A read maps the file in which it begins, whatever the last one used."""
        self.box = StoreBox(mapped_file_size_commit_log=1000).open()
        self.box.append(*[message(body=bytes(300)) for _ in range(6)])
        log = self.box.store.commit_log
        for offset in (0, 4, 1, 5):
            asked: list[int] = []
            self.patch(log, "read", asked.append)
            self.assertEqual(len(self.get(offset, 1).messages), 1)
            self.assertEqual(asked, [], offset)

    def test_reads_that_find_something(self) -> None:
        """Reads with and without messages, and the messages, are counted."""
        self.box.append(message(), message())
        self.get(0)
        self.get(2)
        stats = self.box.store.stats
        self.assertEqual((stats.get_found, stats.get_miss, stats.transferred), (1, 1, 2))

    def test_status_names(self) -> None:
        """All statuses of Apache exist, and no others."""
        self.assertEqual(len(GetMessageStatus), 10)


class QueryTests(SynchronousTestCase):
    """Reads by key."""

    def setUp(self) -> None:
        """A store with a hash table so small that hashes collide."""
        self.box = StoreBox(max_hash_slot_num=1, max_index_num=1000).open()

    def query(self, key: str, count: int = 32, topic: str = "TopicTest") -> list[bytes]:
        """Return the bodies of the messages that are found."""
        records, _, _ = self.box.store.reader.query(topic, key, count, 0, 2**62)
        return [decode_record(record).body for record in records]

    def test_by_key_and_unique_key(self) -> None:
        """The oldest message is first, and each is returned once."""
        self.box.append(
            message(body=b"0", keys="k1 k2", unique_key="U0"),
            message(body=b"1", keys="k2", unique_key="U1"),
            message("Other", body=b"2", keys="k2"),
        )
        self.assertEqual(self.query("k2"), [b"0", b"1"])
        self.assertEqual(self.query("U1"), [b"1"])
        self.assertEqual(self.query("k2", topic="Other"), [b"2"])
        self.assertEqual(self.query("k3"), [])

    def test_equal_hashes_are_told_apart(self) -> None:
        """"Aa" and "BB" have the same hash in Java."""
        self.box.append(message(body=b"0", keys="Aa"), message(body=b"1", keys="BB"))
        self.assertEqual(self.query("Aa"), [b"0"])
        self.assertEqual(self.query("BB"), [b"1"])

    def test_key_said_twice(self) -> None:
        """A message with the same key twice is found once."""
        self.box.append(message(body=b"0", keys="k k"))
        self.assertEqual(self.query("k"), [b"0"])

    def test_the_newest_messages_come_up_to_the_limit(self) -> None:
        """The newest so many; never more than the settings allow."""
        self.box.append(*[message(body=b"%d" % n, keys="k") for n in range(100)])
        self.assertEqual(self.query("k", 2), [b"98", b"99"])
        self.assertEqual(len(self.query("k", 1000)), 64)

    def test_each_message_is_found_at_its_own_store_time(self) -> None:
        """Whichever index file its key is in, and at no millisecond beside it."""
        box = StoreBox(max_hash_slot_num=1, max_index_num=6).open()
        times = []
        for number in range(24):
            box.now_ms += 377 if number % 2 else 5_123
            box.append(message(keys="k", unique_key=f"U{number}"))
            times.append(box.now_ms)
        self.assertGreater(len(box.store.index.files), 4)
        for number, time_ms in enumerate(times):
            for key in ("k", f"U{number}"):
                for distance in (-1, 0, 1):
                    moment = time_ms + distance
                    found, _, _ = box.store.reader.query("TopicTest", key, 1, moment, moment)
                    self.assertEqual([decode_record(each).queue_offset for each in found],
                                     [] if distance else [number], (key, distance))

    def test_index_position(self) -> None:
        """The header of the response has the progress of the index."""
        self.assertEqual(self.box.store.reader.query("T", "k", 1, 0, 2**62), ([], 0, 0))
        records = self.box.append(message(keys="k"), message(keys="k"))
        _, timestamp, place = self.box.store.reader.query("T", "k", 1, 0, 2**62)
        self.assertEqual((timestamp, place), (self.box.now_ms, records[1].physical_offset))

    def test_without_index(self) -> None:
        """Nothing is found."""
        self.box = StoreBox(message_index_enable=False).open()
        self.box.append(message(keys="k"))
        self.assertEqual(self.query("k"), [])


class TimeTests(SynchronousTestCase):
    """Reads by time."""

    def setUp(self) -> None:
        """Messages at 10, 20, 20, 20, 40 s, in two queue files."""
        self.box = StoreBox(mapped_file_size_consume_queue=60).open()
        for second in (10, 20, 20, 20, 40):
            self.box.now_ms = second * 1000
            self.box.append(message())
        self.box.step(60_000)

    def test_lower_and_upper(self) -> None:
        """The lower boundary is the first at or after the time, the upper the last
        at or before it.
        """
        cases = [(0, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 3), (30, 4, 3), (40, 4, 4), (50, 5, 4)]
        for second, lower, upper in cases:
            find = self.box.store.reader.offset_by_time
            self.assertEqual(find("TopicTest", 0, second * 1000), lower, msg=second)
            self.assertEqual(find("TopicTest", 0, second * 1000, "upper"), upper, msg=second)

    def test_unknown_queue(self) -> None:
        """The offset is 0, and there are no times."""
        store = self.box.store
        self.assertEqual(store.reader.offset_by_time("Other", 0, 1), 0)
        self.assertEqual(store.reader.store_time("Other", 0, 0), -1)
        self.assertEqual(store.reader.earliest_store_time("Other", 0), -1)

    def test_store_times(self) -> None:
        """The times of a message, of the first of the queue, and of the first of the log."""
        store = self.box.store
        self.assertEqual([store.reader.store_time("TopicTest", 0, n) for n in (-1, 0, 4, 5)],
                         [-1, 10_000, 40_000, -1])
        queue = store.queues.find("TopicTest", 0)
        assert queue is not None
        queue.min_offset = 2
        self.assertEqual(store.reader.earliest_store_time("TopicTest", 0), 20_000)
        self.assertEqual(store.reader.earliest_store_time(), 10_000)
        self.assertEqual(store.reader.offset_by_time("TopicTest", 0, 0, "upper"), 2)

    def test_a_queues_message_in_the_commit_log(self) -> None:
        """The position of a queue's message in the commit log is found."""
        store = self.box.store
        self.assertEqual(store.queues.commit_log_offset("TopicTest", 0, 0), 0)
        self.assertGreater(store.queues.commit_log_offset("TopicTest", 0, 1), 0)
        self.assertEqual(store.queues.commit_log_offset("TopicTest", 0, 5), -1)
        self.assertEqual(store.queues.commit_log_offset("Other", 0, 0), -1)
