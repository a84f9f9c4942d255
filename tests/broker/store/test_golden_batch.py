"""Batch and light queues of Apache's broker: they are read, and made again byte for byte."""

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.batch_queue import BATCH_ENTRY
from twistmq.broker.store.get_message import GetMessageStatus
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, inner_batch, message
from twistmq.protocol.batch import decode_batch
from twistmq.protocol.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    format_properties,
    parse_properties,
)
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    StoredMessage,
    decode_record,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store-batch"
TOPIC = "GoldenBatch"
QUEUES = "/store/batchconsumequeue/GoldenBatch/"
CODES = {0: GetMessageStatus.FOUND, 19: GetMessageStatus.OFFSET_OVERFLOW_ONE,
         21: GetMessageStatus.OFFSET_OVERFLOW_BADLY}


def golden_box() -> StoreBox:
    """Return the store on a memory disk, not loaded yet."""
    disk = MemoryDisk()
    root = GOLDEN / "store"
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.parent.name != "config":
            name = f"/store/{path.relative_to(root).as_posix()}"
            disk.make_directory(name.rpartition("/")[0])
            disk.write_file(name, path.read_bytes())
    box = StoreBox(
        disk, mapped_file_size_commit_log=16384, mapper_file_size_batch_consume_queue=230,
        mapped_file_size_consume_queue=400, max_hash_slot_num=40, max_index_num=120,
        enable_lmq=True, enable_multi_dispatch=True)
    box.batch_topics.add(TOPIC)
    return box


def answers(what: str) -> list[dict[str, Any]]:
    """Return Apache's answers to questions of one kind."""
    rows = json.loads((GOLDEN / "answers.json").read_text())
    return [row for row in rows if row["what"] == what]


class GoldenBatchTests(SynchronousTestCase):
    """The store in tests/golden/store-batch."""

    def setUp(self) -> None:
        """Open the store."""
        self.box = golden_box().open()

    def test_every_pull_gets_what_apache_gave(self) -> None:
        """The pulls begin at each offset, also in a batch, with room for many messages or few."""
        pulls = answers("pull")
        self.assertGreater(len(pulls), 70)
        for row in pulls:
            fields, reply = row["fields"], row["reply"]
            result = self.box.store.get_message(
                fields["topic"], int(fields["queueId"]), int(fields["queueOffset"]),
                int(fields["maxMsgNums"]))
            found = [decode_record(record) for record in result.messages]
            if result.status is not GetMessageStatus.NO_MESSAGE_IN_QUEUE:
                self.assertEqual(result.status, CODES[row["code"]], msg=fields)
            self.assertEqual(
                [[each.queue_offset, each.physical_offset] for each in found], row["places"],
                msg=fields)
            self.assertEqual(
                (result.next_begin_offset, result.min_offset, result.max_offset),
                tuple(int(reply[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")),
                msg=fields)

    def test_offsets_and_times_are_apaches(self) -> None:
        """The first offset, the next offset and the time of the first message are equal."""
        store = self.box.store
        for what, ask, name in (("max offset", store.queues.max_offset, "offset"),
                                ("min offset", store.queues.min_offset, "offset"),
                                ("earliest", store.reader.earliest_store_time, "timestamp")):
            for row in answers(what):
                queue_id = int(row["fields"]["queueId"])
                self.assertEqual(ask(row["fields"]["topic"], queue_id),
                                 int(row["reply"][name]), msg=row)

    def test_offset_by_time_finds_what_it_should(self) -> None:
        """Apache's answers are expected where its search within one file finds a message."""
        entries = [entry for path in sorted((GOLDEN / "store/batchconsumequeue" / TOPIC / "0"
                                             ).iterdir())
                   for entry in BATCH_ENTRY.iter_unpack(path.read_bytes()) if entry[1]]
        same = 0
        for row in answers("offset by time"):
            asked, upper = int(row["fields"]["timestamp"]), row["fields"]["boundaryType"] == "upper"
            found = self.box.store.reader.offset_by_time(
                TOPIC, 0, asked, row["fields"]["boundaryType"])
            if upper:
                wanted = max([entry[4] for entry in entries if entry[3] <= asked], default=0)
            else:
                wanted = min([entry[4] for entry in entries if entry[3] >= asked], default=34)
            self.assertEqual(found, wanted, msg=row)
            same += found == int(row["reply"]["offset"])
        self.assertGreater(same, 40)

    def test_records_say_what_they_hold(self) -> None:
        """INNER_NUM is the number of messages, INNER_BASE the record's queue offset."""
        batches = [each for each in self.records() if each.sys_flag & SYS_INNER_BATCH]
        self.assertEqual(len(batches), 9)
        for each in batches:
            properties = each.properties_map()
            self.assertEqual(properties[INNER_NUM], str(len(decode_batch(each.body))))
            self.assertEqual(properties[INNER_BASE], str(each.queue_offset))

    def records(self) -> list[StoredMessage]:
        """Return the records of queue 0."""
        found: list[StoredMessage] = []
        offset = 0
        while (result := self.box.store.get_message(TOPIC, 0, offset, 32)).messages:
            found += map(decode_record, result.messages)
            offset = result.next_begin_offset
        return found

    def test_a_crash_without_queues_makes_the_same_files(self) -> None:
        """Entries that are made again from the log are Apache's to the byte."""
        disk = self.box.disk
        assert isinstance(disk, MemoryDisk)
        names = [path.relative_to(GOLDEN).as_posix()
                 for part in ("consumequeue", "batchconsumequeue")
                 for path in (GOLDEN / "store" / part).rglob("*") if path.is_file()]
        before = {name: disk.read_file(f"/{name}") for name in names}
        self.assertEqual(len(before), 4 + 5)
        self.box.store.close()
        for name in names:
            disk.remove(f"/{name}")
        again = StoreBox(disk, self.box.settings)
        again.batch_topics.add(TOPIC)
        again.open()
        self.assertEqual(again.store.queues.max_offset(TOPIC, 0), 34)
        self.assertTrue(again.store.stop().called)
        self.assertEqual({name: disk.read_file(f"/{name}") for name in names}, before)

    def test_what_is_appended_comes_behind(self) -> None:
        """Offsets continue after Apache's last one, and the entry has Apache's form."""
        body = self.records()[0].body
        record = inner_batch(TOPIC, [inner for _, inner, _ in decode_batch(body)])
        self.assertEqual(record.message_count, 3)
        self.box.append(record, message(TOPIC, b"single"))
        self.assertEqual(record.queue_offset, 34)
        self.assertEqual(self.box.store.queues.max_offset(TOPIC, 0), 38)
        result = self.box.store.get_message(TOPIC, 0, 36, 32)
        stored = [decode_record(data) for data in result.messages]
        self.assertEqual([each.queue_offset for each in stored], [34, 37])
        self.assertEqual(stored[0].properties_map()[INNER_BASE], "34")
        self.assertEqual((result.message_count, result.next_begin_offset), (4, 38))

    def test_a_light_queue_goes_on(self) -> None:
        """Its next offset follows Apache's last one."""
        record = message("GoldenParent", properties=format_properties(
            {INNER_MULTI_DISPATCH: "%LMQ%c,%LMQ%new"}))
        self.box.append(record)
        fields = parse_properties(record.properties)
        self.assertEqual(fields[INNER_MULTI_QUEUE_OFFSET], "3,0")
        (data,) = self.box.store.get_message("%LMQ%c", 0, 3, 1).messages
        self.assertEqual(decode_record(data).physical_offset, record.physical_offset)
