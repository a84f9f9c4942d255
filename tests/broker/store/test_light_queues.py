"""Light queues: their offsets, entries, failures and crashes."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import LightQueuesFull
from twistmq.broker.store.consume_queue import OFFSET_MAX
from twistmq.broker.store.light_queues import light_entries
from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import StoreBox, inner_batch, message
from twistmq.protocol.errors import MessageIllegal, StoreError
from twistmq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    format_properties,
    parse_properties,
)
from twistmq.protocol.record import (
    SYS_TRANSACTION_PREPARED,
    MessageRecord,
    decode_record,
)


def named(*names: str, topic: str = "Parent", **fields: object) -> MessageRecord:
    """Return a message that names light queues, without their prefix."""
    text = ",".join(f"%LMQ%{name}" for name in names)
    return message(topic, properties=format_properties(
        {"UNIQ_KEY": "u", INNER_MULTI_DISPATCH: text}), **fields)  # type: ignore[arg-type]


def offsets_of(record: MessageRecord) -> str | None:
    """Return the offsets that the broker assigned."""
    return parse_properties(record.properties).get(INNER_MULTI_QUEUE_OFFSET)


class LightTestCase(SynchronousTestCase):
    """A test with a store that has light queues."""

    disk_type: type[MemoryDisk] = MemoryDisk

    def setUp(self) -> None:
        self.disk = self.disk_type()
        self.box = StoreBox(self.disk, enable_lmq=True, enable_multi_dispatch=True,
                            max_lmq_consume_queue_num=5).open()

    def places(self, name: str) -> list[int]:
        """Return the positions of the messages of a light queue in the log."""
        found: list[int] = []
        topic, offset, store = f"%LMQ%{name}", 0, self.box.store
        while offset < store.queues.max_offset(topic, 0):
            result = store.get_message(topic, 0, offset, 32)
            found += [decode_record(data).physical_offset for data in result.messages]
            self.assertGreater(result.next_begin_offset, offset)
            offset = result.next_begin_offset
        return found


class EntryTests(LightTestCase):
    """One record is in several queues."""

    def test_offsets_and_entries(self) -> None:
        """Each queue has its own offsets; the record's own queue has it too."""
        records = [named("a"), named("a", "b"), message("Parent"), named("b"), named("b", "a")]
        self.box.append(*records)
        self.assertEqual([offsets_of(each) for each in records], ["0", "1,0", None, "1", "2,2"])
        self.assertEqual([each.queue_offset for each in records], [0, 1, 2, 3, 4])
        place = [each.physical_offset for each in records]
        self.assertEqual(self.places("a"), [place[0], place[1], place[4]])
        self.assertEqual(self.places("b"), [place[1], place[3], place[4]])
        stored = decode_record(self.box.store.get_message("%LMQ%b", 0, 2, 1).messages[0])
        self.assertEqual((stored.topic, stored.queue_offset), ("Parent", 4))
        self.assertEqual(stored.properties_map()[INNER_MULTI_QUEUE_OFFSET], "2,2")

    def test_a_name_that_comes_twice(self) -> None:
        """The queue has the record once."""
        records = [named("a", "a", "b"), named("a")]
        self.box.append(*records)
        self.assertEqual([offsets_of(each) for each in records], ["0,0,0", "1"])
        self.assertEqual(self.places("a"), [each.physical_offset for each in records])

    def test_what_the_sender_says_of_offsets(self) -> None:
        """The offsets of the sender are ignored."""
        record = message("Parent", properties=format_properties(
            {INNER_MULTI_QUEUE_OFFSET: "70", INNER_MULTI_DISPATCH: "%LMQ%a"}))
        self.box.append(record)
        self.assertEqual(offsets_of(record), "0")

    def test_who_is_in_no_light_queue(self) -> None:
        """Retries, the system's topics, batches, and messages that are not there yet."""
        self.box.batch_topics.add("Batches")
        records = [
            named("a", topic="%RETRY%g"), named("a", topic="rmq_sys_x"),
            named("a", topic="SCHEDULE_TOPIC_XXXX"), named("a", topic="Batches"),
            named("a", topic="RMQ_SYS_TRANS_HALF_TOPIC"),
            named("a", sys_flag=SYS_TRANSACTION_PREPARED), inner_batch("Batches", [b"x"]),
        ]
        self.box.append(*records)
        self.assertEqual([offsets_of(each) for each in records], [None] * 7)
        self.assertIsNone(self.box.store.queues.find("%LMQ%a", 0))

    def test_own_messages_of_a_light_topic(self) -> None:
        """They are between the others, in the order of the log."""
        records = [named("a"), message("%LMQ%a"), named("a"), message("%LMQ%a")]
        self.box.append(*records)
        self.assertEqual(self.places("a"), [each.physical_offset for each in records])
        self.assertEqual([records[1].queue_offset, records[3].queue_offset], [1, 3])

    def test_a_pull_waiting_on_a_light_queue_is_woken(self) -> None:
        """The pull is woken as by a message of its own queue."""
        arrived: list[tuple[str, int, int]] = []
        self.box.store.dispatch.on_arrival.append(lambda records: arrived.extend(
            (each.topic, each.queue_id, each.queue_offset) for each in records))
        self.box.append(named("a", "b", queue_id=3))
        self.assertEqual(arrived, [("Parent", 3, 0), ("%LMQ%a", 0, 0), ("%LMQ%b", 0, 0)])

    def test_switched_off(self) -> None:
        """No offsets are assigned, and existing ones remain."""
        self.box.append(named("a"), named("a"))
        self.box.store.queues.write_all()
        for changes in ({"enable_lmq": False}, {"enable_multi_dispatch": False}):
            self.box = self.box.after_kill(**{
                "enable_lmq": True, "enable_multi_dispatch": True, **changes})
            record = named("a")
            self.box.append(record)
            self.assertIsNone(offsets_of(record))
            self.assertEqual(len(self.places("a")), 2)


class RefusedTests(LightTestCase):
    """A refused record uses no offset."""

    disk_type = FaultyDisk

    def test_names_that_cannot_be(self) -> None:
        """The prefix is missing, or the name is not valid for a directory."""
        for text in ("a", "%LMQ%a,b", "%LMQ%a,,%LMQ%b", "%LMQ%a/b", "%LMQ%" + "x" * 251):
            record = message("Parent", properties=format_properties({INNER_MULTI_DISPATCH: text}))
            self.assertRaises(MessageIllegal, self.box.append, named("a"), record)
        record = named("a")
        self.box.append(record)
        self.assertEqual((offsets_of(record), record.queue_offset), ("0", 0))

    def test_empty_names(self) -> None:
        """At the end they are ignored, and alone they are refused."""
        records = [message("Parent", properties=format_properties({INNER_MULTI_DISPATCH: text}))
                   for text in ("%LMQ%a,", ",", " ")]
        self.box.append(*records)
        self.assertEqual([offsets_of(each) for each in records], ["0", None, None])

    def test_too_many_queues(self) -> None:
        """The limit holds; a queue that is removed makes room."""
        self.box.append(named("a", "b", "c"))
        error = self.assertRaises(
            LightQueuesFull, self.box.append, named("a"), named("d", "e", "f"))
        self.assertEqual(error.record_index, 1)
        record = named("a")
        self.box.append(record)
        self.assertEqual(offsets_of(record), "1")
        for name in "bde":
            self.box.store.delete_topic(f"%LMQ%{name}")
        self.box.append(named("f"))
        self.assertEqual(len(self.places("f")), 1)

    def test_a_disk_that_fails(self) -> None:
        """Offsets are given back when the log cannot be written."""
        disk = self.disk
        assert isinstance(disk, FaultyDisk)
        self.box.append(named("a"))
        disk.fail_write_in = 1
        self.assertRaises(StoreError, self.box.append, named("a", "b"), named("a"))
        disk.fail_write_in = None
        record = named("a", "b")
        self.box.append(record)
        self.assertEqual(offsets_of(record), "1,0")

    def test_a_record_that_is_too_long(self) -> None:
        """The same is so if a later record is refused."""
        self.assertRaises(MessageIllegal, self.box.append, named("a"),
                          message("Parent", properties="x" * 40_000))
        record = named("a")
        self.box.append(record)
        self.assertEqual(offsets_of(record), "0")


class RecoveryTests(LightTestCase):
    """Stops, kills and losses of power."""

    def fill(self, chance: random.Random, count: int) -> list[MessageRecord]:
        """Append messages that name some of four queues."""
        return [record for _ in range(count) for record in self.box.append(
            named(*chance.sample("abcd", chance.randrange(1, 4)), queue_id=chance.randrange(2)))]

    def check(self, records: list[MessageRecord]) -> None:
        """Check the messages of each light queue, in order."""
        for name in "abcd":
            expected = [each.physical_offset for each in records
                        if f"%LMQ%{name}" in each.properties]
            self.assertEqual(self.places(name), expected, msg=name)

    def test_stop_and_kill(self) -> None:
        """The offsets continue."""
        chance = random.Random(1)
        records = self.fill(chance, 10)
        self.box = self.box.after_stop()
        self.check(records)
        records += self.fill(chance, 10)
        self.box = self.box.after_kill()
        self.check(records)
        records += self.fill(chance, 10)
        self.check(records)

    def test_losses_of_power(self) -> None:
        """Lost entries of the queues are made again."""
        for seed in range(30):
            chance = random.Random(seed)
            disk = PowerLossDisk()
            self.box = StoreBox(disk, mapped_file_size_commit_log=4000, enable_lmq=True,
                                enable_multi_dispatch=True).open()
            records: list[MessageRecord] = []
            for _ in range(3):
                for _ in range(chance.randrange(1, 10)):
                    records += self.fill(chance, chance.randrange(1, 4))
                    if chance.random() < 0.3:
                        self.box.store.queues.write_all()
                    if chance.random() < 0.3:
                        self.box.store.queues.sync_job()()
                    if chance.random() < 0.3:
                        self.assertIsNone(self.box.store.flush.flushed(self.box.store.commit_log.max_offset))
                self.box.store.close()
                disk.crash(chance)
                self.box = self.box._again().open()
                records = [each for each in records
                           if each.next_offset <= self.box.store.commit_log.max_offset]
                self.check(records)

    def test_a_light_queue_is_lost(self) -> None:
        """The entries of its parent queue do not suffice."""
        records = self.fill(random.Random(2), 10)
        self.box.store.queues.write_all()
        self.box.store.close()
        for name in self.disk.list_directory("/store/consumequeue/%LMQ%a/0"):
            self.disk.remove(f"/store/consumequeue/%LMQ%a/0/{name}")
        self.box = self.box._again().open()
        self.check(records)


class StoredEntryTests(SynchronousTestCase):
    """The light queues of a stored record."""

    def test_light_entries(self) -> None:
        """Only valid names count."""
        def entries(names: str, offsets: str, topic: str = "T") -> list[tuple[str, int]]:
            return light_entries(topic, format_properties(
                {INNER_MULTI_DISPATCH: names, INNER_MULTI_QUEUE_OFFSET: offsets}))

        self.assertEqual(entries("%LMQ%a,%LMQ%b", "3,4"), [("%LMQ%a", 3), ("%LMQ%b", 4)])
        self.assertEqual(entries("a,%LMQ%b", ",4"), [("%LMQ%b", 4)])
        self.assertEqual(entries("%LMQ%a,%LMQ%b", "3"), [])
        self.assertEqual(entries("%LMQ%a/b", "3"), [])
        self.assertEqual(entries("%LMQ%a", "-3"), [])
        self.assertEqual(entries("%LMQ%a", "3", "%RETRY%g"), [])
        self.assertEqual(light_entries("T", ""), [])
        # Offsets and names that no queue can have, as in another broker's log.
        most = str(OFFSET_MAX)
        self.assertEqual(light_entries("T", format_properties({
            INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b,%LMQ%c,%LMQ%d,%LMQ%" + "e" * 300 + ",%LMQ%f\0",
            INNER_MULTI_QUEUE_OFFSET: f"{most},{OFFSET_MAX + 1},{'9' * 5000},\u0663,1,2"})),
            [("%LMQ%a", OFFSET_MAX)])
