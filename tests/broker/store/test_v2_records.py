"""Records of topics with more than 127 bytes, in the V2 layout, in the whole store."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.inspect.check import StoreCheck
from twistmq.broker.store.inspect.dump import Wanted, as_json, find_records
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.record import MAGIC_V1, MAGIC_V2

#: Of 128 bytes, of which a retry topic's prefix is seven; and one that is not ASCII.
TOPICS = ("%RETRY%" + "g" * 121, "ü" * 100)
SHORT = "s" * 127
FILE_SIZE = 4096
COUNT = 30


class V2RecordTests(SynchronousTestCase):
    """Both layouts in one log of several files."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.root.mkdir(parents=True)
        self.box = StoreBox(
            RealDisk(), root=str(self.root), mapped_file_size_commit_log=FILE_SIZE).open()
        self.addCleanup(lambda: self.box.store.close())
        self.sent = {topic: [f"{topic[:1]}{number}".encode() for number in range(COUNT)]
                     for topic in (*TOPICS, SHORT)}
        for number in range(COUNT):
            self.box.append(*[message(topic, bodies[number], keys=f"k{number} all", tag="t")
                              for topic, bodies in self.sent.items()])

    def assert_all_there(self) -> None:
        """Check that every message is found by queue, key and position."""
        store = self.box.store
        for topic, bodies in self.sent.items():
            self.assertEqual(self.box.bodies(topic), bodies)
            found, _, _ = store.reader.query(topic, "k7", 9, 0, 2**62)
            self.assertEqual(len(found), 1)
            place = store.queues.commit_log_offset(topic, 0, 7)
            self.assertEqual(store.look_message(place), found[0])
            magic = MAGIC_V1 if topic == SHORT else MAGIC_V2
            self.assertEqual(struct.unpack_from(">i", found[0], 4), (magic,))
            self.assertGreater(store.reader.store_time(topic, 0, 7), 0)

    def test_version_2_records_read_as_they_were_sent(self) -> None:
        """The records are equal to the sent ones."""
        self.assert_all_there()

    def test_stop_and_kill(self) -> None:
        """No record is lost."""
        self.box = self.box.after_stop()
        self.assert_all_there()
        self.box = self.box.after_kill()
        self.assert_all_there()

    def test_queues_and_index_made_again(self) -> None:
        """They are made from the log alone."""
        self.box.store.close()
        disk = self.box.disk
        for name in ("consumequeue", "index", "checkpoint"):
            disk.remove(str(self.root / name))
        self.box = self.box._again().open()
        self.assert_all_there()

    def test_a_record_whose_topic_was_torn_ends_the_log(self) -> None:
        """The log ends before a record whose topic is torn."""
        place = self.box.store.queues.commit_log_offset(TOPICS[1], 0, COUNT - 1)
        record = self.box.store.look_message(place)
        assert record is not None
        self.box.store.close()
        path = self.root / "commitlog" / f"{place - place % FILE_SIZE:020d}"
        with path.open("r+b") as file:
            file.seek(place % FILE_SIZE + len(record) - 150)
            file.write(bytes(FILE_SIZE - file.tell()))
        self.box = self.box._again().open()
        self.assertEqual(self.box.store.commit_log.max_offset, place)
        self.assertEqual(self.box.bodies(TOPICS[1]), self.sent[TOPICS[1]][:-1])
        self.assertEqual(self.box.bodies(TOPICS[0]), self.sent[TOPICS[0]])

    def test_check_and_dump(self) -> None:
        """The tools that look from outside read them, by topic and key as well."""
        self.successResultOf(self.box.store.stop())
        lines: list[str] = []
        report = Report(self.root, lines.append, 9)
        files = StoreFiles(self.root)
        self.addCleanup(files.close)
        StoreCheck(files, report).run()
        self.assertEqual((lines, report.counts["records"]), ([], 3 * COUNT))
        for topic, bodies in self.sent.items():
            found = list(find_records(files, Wanted(topic=topic), report))
            self.assertEqual([each.body for _, each in found], bodies)
            (place, each), = find_records(files, Wanted(topic=topic, key="k7"), report)
            self.assertEqual(json.loads(as_json(place, each, True))["topic"], topic)
        path = next(iter(sorted((self.root / "commitlog").iterdir())))
        with path.open("r+b") as file:
            file.seek(88)
            file.write(b"?")
        again = StoreFiles(self.root)
        self.addCleanup(again.close)
        StoreCheck(again, report).run()
        self.assertIn("byte 8: expected the CRC", lines[0])
