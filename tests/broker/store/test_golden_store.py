"""A store of Apache's broker is opened, read, and written again byte for byte."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.message_id import offset_message_id, parse_offset_message_id
from twistmq.protocol.properties import UNIQ_KEY
from twistmq.protocol.record import (
    CHECK_FILE_END,
    MessageRecord,
    StoredMessage,
    check_record,
    decode_record,
    encode_record,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store" / "5.3.3"
FILE_SIZE = 8192
#: The queue whose entries hold delivery times, which the store alone cannot know.
SCHEDULE = "/store/consumequeue/SCHEDULE_TOPIC_XXXX/17/" + "0" * 20


def golden_files() -> dict[str, bytes]:
    """Every file of the store, under the path it has on the memory disk."""
    return {
        "/store/" + path.relative_to(GOLDEN).as_posix(): path.read_bytes()
        for path in sorted(GOLDEN.rglob("*"))
        if path.is_file() and path.name != "sent.txt"
    }


def record_of(message: StoredMessage) -> MessageRecord:
    """Return a stored message as one that was not stored yet."""
    return MessageRecord(
        message.topic, message.queue_id, message.body, message.properties,
        message.born_timestamp, message.born_host, message.store_host, [], flag=message.flag,
        sys_flag=message.sys_flag, reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset)


class GoldenStoreTests(SynchronousTestCase):
    """The store in tests/golden/store; FillStore.java made it."""

    def setUp(self) -> None:
        """Copy the files to a memory disk."""
        self.disk = MemoryDisk()
        self.files = golden_files()
        for path, data in self.files.items():
            self.disk.make_directory(path.rpartition("/")[0])
            self.disk.write_file(path, data)
        lines = (GOLDEN / "sent.txt").read_text(encoding="utf-8").splitlines()
        self.sent = [line.split(" ") for line in lines]

    def open(self) -> StoreBox:
        """Open the store with the settings it was written with."""
        return StoreBox(
            self.disk,
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=400,
            max_hash_slot_num=40,
            max_index_num=120,
        ).open()

    def records(self) -> list[bytes]:
        """Return every record of the log, in order."""
        found = []
        for path, data in self.files.items():
            at = 0
            while "/commitlog/" in path and (size := check_record(data, at)) > 0:
                found.append(data[at : at + size])
                at += size
            if "/commitlog/" in path and not path.endswith(str(FILE_SIZE)):
                self.assertEqual(check_record(data, at), CHECK_FILE_END)
        return found

    def test_records_encode_to_the_same_bytes(self) -> None:
        """Every record of every kind is encoded."""
        records = self.records()
        self.assertGreater(len(records), 38)
        for data in records:
            message = decode_record(data)
            record = record_of(message)
            record.queue_offset = message.queue_offset
            record.physical_offset = message.physical_offset
            record.store_timestamp = message.store_timestamp
            self.assertEqual(encode_record(record), data)

    def test_appended_messages_have_the_same_bytes(self) -> None:
        """An empty store gives the same messages the same offsets, and the same ends of files."""
        box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
        for data in self.records():
            message = decode_record(data)
            box.now_ms = message.store_timestamp
            box.append(record_of(message))
        for path, data in self.files.items():
            if "/commitlog/" in path:
                self.assertEqual(box.disk.read_file(path), data, msg=path)

    def test_everything_sent_is_found(self) -> None:
        """Each message is found by queue offset, offset id and unique id."""
        store = self.open().store
        found = 0
        for kind, topic, queue_id, queue_offset, offset_ids, unique_ids in self.sent:
            if kind not in ("plain", "batch", "compressed"):
                continue
            pairs = zip(offset_ids.split(","), unique_ids.split(","), strict=True)
            for number, (offset_id, unique_id) in enumerate(pairs):
                result = store.get_message(topic, int(queue_id), int(queue_offset) + number, 1)
                (data,) = result.messages
                message = decode_record(data)
                self.assertIn(f"{UNIQ_KEY}\x01{unique_id}\x02", message.properties)
                text = offset_message_id(message.store_host, message.physical_offset)
                self.assertEqual(text, offset_id)
                self.assertEqual(store.look_message(parse_offset_message_id(offset_id)[2]), data)
                found += 1
                # A batch's own unique key is stored behind each message's, and wins.
                if kind != "batch":
                    self.assertEqual(store.reader.query(topic, unique_id, 9, 0, 2**62)[0], [data])
        self.assertEqual(found, 36)
        self.assertEqual(len(store.reader.query("Golden", "all", 99, 0, 2**62)[0]), 30)

    def test_queues_and_index_made_again_are_the_same(self) -> None:
        """They are made from the commit log alone, byte for byte."""
        for name in ("consumequeue", "index", "checkpoint"):
            self.disk.remove(f"/store/{name}")
        self.disk.write_file("/store/abort", b"")
        self.successResultOf(self.open().store.stop())
        for path, data in self.files.items():
            if "/consumequeue/" in path and path != SCHEDULE:
                self.assertEqual(self.disk.read_file(path), data, msg=path)
        (index,) = [data for path, data in self.files.items() if "/index/" in path]
        (name,) = self.disk.list_directory("/store/index")
        self.assertEqual(self.disk.read_file(f"/store/index/{name}"), index)

    def test_clean_open_changes_nothing(self) -> None:
        """A start and a stop leave every byte of log, queues and index as it was."""
        self.successResultOf(self.open().store.stop())
        for path, data in self.files.items():
            if not path.endswith("/checkpoint"):
                self.assertEqual(self.disk.read_file(path), data, msg=path)

    def test_messages_go_on(self) -> None:
        """Offsets continue where Apache's broker stopped."""
        box = self.open()
        end = box.store.queues.max_offset("Golden", 0)
        (record,) = box.append(message("Golden", keys="ours"))
        self.assertEqual(record.queue_offset, end)
        self.assertEqual(
            len(box.after_kill().store.reader.query("Golden", "all", 99, 0, 2**62)[0]), 30)
