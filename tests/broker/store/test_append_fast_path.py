"""The loops that every message passes, without files."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.append_fast_path import (
    Absurd,
    dispatch_records,
    encode_ahead,
    encode_records,
    give_back_offsets,
    place_records,
)
from twistmq.broker.store.consume_queue import ENTRY, MISSING_MAX, OFFSET_MAX, ConsumeQueue
from twistmq.broker.store.index_tail import ITEM, IndexTail
from twistmq.broker.testing.store import message
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.record import (
    CHECK_FILE_END,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    MessageRecord,
    check_record,
    decode_record,
)

#: Bytes of message() as stored: 91 and "hello" and "TopicTest".
SIZE = 91 + 5 + 9


class LoopCase(SynchronousTestCase):
    """A table of queues and an index, without files."""

    def setUp(self) -> None:
        """Create the empty parts."""
        self.queues: dict[str, dict[int, ConsumeQueue]] = {}
        self.dirty: dict[ConsumeQueue, None] = {}
        self.absurd: Absurd = []
        self.restarted: list[tuple[str, int]] = []
        self.indexes = [IndexTail(10, 4, lambda position, size: b"")]

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Make a queue as a table does."""
        queue = ConsumeQueue(topic, queue_id)
        self.queues.setdefault(topic, {})[queue_id] = queue
        return queue

    def remove_all(self) -> None:
        """Delete all queues as a table does."""
        for by_id in self.queues.values():
            for queue in by_id.values():
                queue.is_removed = True
        self.queues.clear()

    def restart(self, queue: ConsumeQueue, offset: int) -> None:
        """Empty a queue as a table does."""
        self.restarted.append((queue.topic, offset))
        queue.tail.clear()
        queue.tail_start = offset

    def next_index(self) -> IndexTail:
        """Begin another index."""
        self.indexes.append(IndexTail(10, 4, lambda position, size: b""))
        return self.indexes[-1]

    def encode(
        self, *records: MessageRecord, offset: int = 0, file_size: int = 9999, body_max: int = 1000
    ) -> list[tuple[int, bytes]]:
        """Encode with a filter that keeps topic Hidden out of queues."""
        return encode_records(
            records, self.queues, self.make, lambda record: record.topic != "Hidden",
            offset, file_size, 777, body_max,
        )

    def dispatch(self, *records: MessageRecord, index: bool = True) -> int:
        """Dispatch records into queues and index."""
        tail = self.indexes[-1] if index else None
        return dispatch_records(
            records, self.queues, self.make, self.restart, self.dirty, self.absurd, tail,
            self.next_index,
        )


class KnownQueueTests(LoopCase):
    """A record that contains its queue object."""

    def test_it_is_taken_only_if_it_is_the_one(self) -> None:
        """A plugin may have changed the topic, and topics are deleted and created again."""
        topic = message().topic
        in_table = self.make(topic, 0)
        removed, own = ConsumeQueue(topic, 0), ConsumeQueue(topic, 0)
        removed.is_removed = True
        for known, taken in ((ConsumeQueue("U", 0), in_table), (ConsumeQueue(topic, 7), in_table),
                             (removed, in_table), (None, in_table), (own, own)):
            record = message()
            record.queue = known
            self.encode(record)
            self.assertIs(record.queue, taken)
        self.assertEqual((in_table.next_offset, own.next_offset), (4, 1))

    def test_its_topic_is_the_queues_own_string(self) -> None:
        """The next look-up of the queue compares no texts."""
        queue = self.make("TopicTest", 0)
        record = message(topic="".join(["Topic", "Test"]))
        self.assertIsNot(record.topic, queue.topic)
        self.encode(record)
        self.assertIs(record.topic, queue.topic)


class PlaceRecordsTests(LoopCase):
    """encode_ahead and place_records: the same as encode_records, in two steps."""

    def records(self) -> list[MessageRecord]:
        """Records of all kinds: hidden, half, with IPv6 addresses, of several queues."""
        return [
            message(body=b"a"), message("Hidden"), message(queue_id=1, born_host=bytes(20)),
            message(sys_flag=SYS_TRANSACTION_PREPARED), message(store_host=bytes(20)),
            *[message(body=b"x" * size) for size in range(0, 300, 7)]]

    def test_the_same_bytes_and_places(self) -> None:
        """Bytes and offsets are the same, wherever parts and files end."""
        for offset, cut in ((0, 1), (900, 5), (999_992, 48)):
            self.queues = {}
            want_records = self.records()
            want = self.encode(*want_records, offset=offset, file_size=1000)
            self.queues = {}
            records = self.records()
            parts = [records[:cut], records[cut:2 * cut], records[2 * cut:]]
            encoded = [(part, encode_ahead(part, 992, 1000)) for part in parts]
            got = place_records(encoded, self.queues, self.make,
                                lambda record: record.topic != "Hidden", offset, 1000, 777)
            self.assertEqual(got, want)
            self.assertGreater(len(got), 1)
            for name in ("queue_offset", "physical_offset", "next_offset", "store_timestamp",
                         "enters_queue", "size"):
                self.assertEqual([getattr(record, name) for record in records],
                                 [getattr(record, name) for record in want_records], msg=name)

    def test_records_beyond_the_limits_are_refused_by_index(self) -> None:
        """A body that is too long, and a record that fits into no file, are refused."""
        for bad in (message(body=bytes(1001)), message(body=bytes(900))):
            error = self.assertRaises(MessageIllegal, encode_ahead, [message(), bad], 992, 1000)
            self.assertEqual(error.record_index, 1)


class EncodeRecordsTests(LoopCase):
    """The function encode_records."""

    def test_records_follow_each_other(self) -> None:
        """Records follow each other; each queue counts for itself."""
        records = [message(), message(queue_id=1), message()]
        writes = self.encode(*records, offset=500)
        self.assertEqual([record.queue_offset for record in records], [0, 0, 1])
        self.assertEqual([record.physical_offset for record in records], [500, 605, 710])
        self.assertEqual([record.next_offset for record in records], [605, 710, 815])
        self.assertEqual([(offset, len(data)) for offset, data in writes], [(500, 3 * SIZE)])
        found = decode_record(writes[0][1], 2 * SIZE)
        self.assertEqual(
            (found.physical_offset, found.queue_offset, found.store_timestamp), (710, 1, 777)
        )

    def test_a_record_that_does_not_fit_begins_the_next_file(self) -> None:
        """A record that does not fit with eight bytes to spare begins the next file."""
        file_size = 3 * SIZE
        records = [message() for _ in range(3)]
        writes = self.encode(*records, file_size=file_size)
        self.assertEqual([record.physical_offset for record in records], [0, SIZE, file_size])
        first, second = writes
        self.assertEqual((first[0], len(first[1])), (0, 2 * SIZE + 8))
        self.assertEqual(check_record(first[1], 2 * SIZE), CHECK_FILE_END)
        self.assertEqual(first[1][2 * SIZE : 2 * SIZE + 4], SIZE.to_bytes(4, "big"))
        self.assertEqual((second[0], len(second[1])), (file_size, SIZE))
        self.assertEqual(decode_record(second[1]).physical_offset, file_size)

    def test_exact_fit(self) -> None:
        """A record that leaves exactly the eight bytes does not roll."""
        records = [message(), message()]
        writes = self.encode(*records, file_size=2 * SIZE + 8)
        self.assertEqual(len(writes), 1)
        writes = self.encode(message(), offset=2 * SIZE, file_size=2 * SIZE + 8)
        self.assertEqual([(offset, len(data)) for offset, data in writes],
                         [(2 * SIZE, 8), (2 * SIZE + 8, SIZE)])

    def test_half_messages_take_no_offset(self) -> None:
        """Prepared and rolled-back records have queue offset 0 and enter no queue."""
        kinds = [SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK, SYS_TRANSACTION_COMMIT, 0]
        records = [message(), *[message(sys_flag=kind) for kind in kinds], message("Hidden")]
        self.encode(*records)
        self.assertEqual([record.queue_offset for record in records], [0, 0, 0, 1, 2, 0])
        entered = [record.enters_queue for record in records]
        self.assertEqual(entered, [True, False, False, True, True, False])

    def test_refusal_takes_nothing(self) -> None:
        """The error has the index of the record, and no queue offset is used."""
        cases = {
            "body": (message(body=bytes(1001)), "body of 1001 bytes, 1000 fit"),
            "file": (message(body=bytes(500)), "600 bytes, 592 fit"),
            "properties": (message(properties="x" * 40_000), "40000"),
            "flag": (message(flag=2**31), "does not fit"),
            "inner batch": (message(message_count=2), "inner batch"),
        }
        for name, (record, text) in cases.items():
            with_others = [message(), message(), record, message()]
            error = self.assertRaises(
                MessageIllegal, self.encode, *with_others, file_size=600
            )
            self.assertEqual(error.record_index, 2, msg=name)
            self.assertIn(text, str(error), msg=name)
            self.assertEqual(self.queues["TopicTest"][0].next_offset, 0, msg=name)

    def test_gives_back(self) -> None:
        """The offsets of a failed write are given back."""
        records = [message(), message("Hidden"), message()]
        self.encode(*records)
        give_back_offsets(records, self.queues)
        self.assertEqual(self.queues["TopicTest"][0].next_offset, 0)


class DispatchRecordsTests(LoopCase):
    """The function dispatch_records."""

    def test_enters_queues(self) -> None:
        """Each record has its entry; a queue is marked once."""
        records = [message(tag="TagA"), message(), message(queue_id=3)]
        self.encode(*records)
        self.assertEqual(self.dispatch(*records), 60)
        queue = self.queues["TopicTest"][0]
        self.assertEqual(ENTRY.unpack_from(queue.tail, 0), (0, records[0].size, 2598919))
        self.assertEqual(ENTRY.unpack_from(queue.tail, 20)[0], records[0].size)
        self.assertEqual([each.queue_id for each in self.dirty], [0, 3])
        self.assertEqual(queue.max_physical, records[1].next_offset)

    def test_indexes_keys(self) -> None:
        """Unique key, then keys; half messages too, rolled-back ones not."""
        records = [
            message(unique_key="U", keys="a b"),
            message(keys="half", sys_flag=SYS_TRANSACTION_PREPARED),
            message(keys="gone", sys_flag=SYS_TRANSACTION_ROLLBACK),
        ]
        self.indexes = [IndexTail(10, 100, lambda position, size: b"")]
        self.encode(*records)
        self.assertEqual(self.dispatch(*records), 20)
        places = [item[1] for item in ITEM.iter_unpack(self.indexes[0].items)]
        self.assertEqual(places, [0, 0, 0, records[1].physical_offset])

    def test_without_index(self) -> None:
        """Without an index no items are added."""
        records = [message(keys="a")]
        self.encode(*records)
        self.dispatch(*records, index=False)
        self.assertEqual(self.indexes[0].count, 1)

    def test_full_index_goes_on_in_the_next(self) -> None:
        """The keys of one message may be in two files."""
        records = [message(keys="a b c d e")]
        self.encode(*records)
        self.dispatch(*records)
        self.assertEqual([index.count for index in self.indexes], [4, 3])

    def test_again_changes_nothing(self) -> None:
        """Recovery dispatches records that are entered already."""
        records = [message(keys="a"), message(keys="b")]
        self.encode(*records)
        self.dispatch(*records)
        self.assertEqual(self.dispatch(records[0]), 0)
        self.assertEqual(self.indexes[0].count, 3)
        self.assertEqual(self.restarted, [])

    def test_absurd_offset(self) -> None:
        """An impossible offset must not fill the memory with fillers."""
        records = [message(keys="a"), message(keys="b"), message()]
        self.encode(*records)
        records[1].queue_offset = 2 + MISSING_MAX
        self.assertEqual(self.dispatch(*records), 20 * 3)
        self.assertEqual(self.absurd, [
            (records[1], f"TopicTest-0 cannot have queue offset {2 + MISSING_MAX}")])
        self.assertFalse(records[1].enters_queue)
        self.assertEqual(self.indexes[0].count, 3)

    def test_an_offset_that_no_queue_has(self) -> None:
        """It neither begins a queue nor empties one that has messages."""
        for offset in (-1, -(2**63), OFFSET_MAX + 1, 2**63 - 1):
            for topic in ("TopicTest", f"New{offset}"):
                count = 2 if topic == "TopicTest" else 1
                records = [message(topic, keys="a") for _ in range(count)]
                self.encode(*records, offset=10_000)
                records[-1].queue_offset = offset
                self.dispatch(*records)
                self.assertIs(self.absurd.pop()[0], records[-1], offset)
        self.assertEqual(self.restarted, [])
        # The last of eight has no entry; those of the others before are fillers.
        self.assertEqual(self.queues["TopicTest"][0].max_offset, 7)
        self.assertEqual(self.queues["New-1"][0].max_offset, 0)

    def test_a_queue_that_cannot_be(self) -> None:
        """The record is indexed, and the others are entered."""
        records = [message(keys="a"), message("Bad", keys="b"), message(keys="c")]
        self.encode(*records)
        self.remove_all()
        make = self.make

        def make_or_refuse(topic: str, queue_id: int) -> ConsumeQueue:
            if topic == "Bad":
                raise MessageIllegal("no queue")
            return make(topic, queue_id)

        self.patch(self, "make", make_or_refuse)
        self.dispatch(*records)
        self.assertEqual(self.absurd, [(records[1], "no queue")])
        self.assertEqual((records[1].enters_queue, list(self.queues)), (False, ["TopicTest"]))
        self.assertEqual(self.queues["TopicTest"][0].max_offset, 2)
        self.assertEqual(self.indexes[0].count, 4)

    def test_topic_made_again(self) -> None:
        """A newer record with an old offset restarts its queue."""
        records = [message() for _ in range(3)]
        self.encode(*records)
        self.dispatch(*records)
        self.remove_all()
        newer = [message()]
        self.encode(*newer, offset=records[-1].next_offset)
        self.remove_all()
        self.dispatch(*records, *newer)
        self.assertEqual(self.restarted, [("TopicTest", 0)])
        self.assertEqual(ENTRY.unpack(self.queues["TopicTest"][0].tail)[0], 3 * SIZE)
