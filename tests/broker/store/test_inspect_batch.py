"""The check and the dump of batch queues and light queues from outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.test_inspect import check, digest
from twistmq.broker.store.batch_queue import BATCH_ENTRY, BATCH_ENTRY_SIZE
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.inspect.dump import as_json, as_text
from twistmq.broker.testing.store import StoreBox, inner_batch, message
from twistmq.protocol.record import decode_record

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store-batch" / "store"
TOPIC = "Batches"


class BatchDamageTests(SynchronousTestCase):
    """A store with one batch queue of two files, and damage in it."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.root.mkdir(parents=True)
        self.box = StoreBox(RealDisk(), root=str(self.root))
        self.box.batch_topics.add(TOPIC)
        self.box.open()
        self.records = []
        for size in (3, 0, 5, 1, 2, 2, 0, 4):
            self.box.now_ms += 10
            self.records += self.box.append(
                inner_batch(TOPIC, [b"m%d" % index for index in range(size)]) if size
                else message(TOPIC, b"single", tag="T"))
        self.successResultOf(self.box.store.stop())
        self.directory = self.root / "batchconsumequeue" / TOPIC / "0"

    def patch_entry(self, number: int, position: int, data: bytes) -> str:
        """Change bytes of an entry; :returns: its place, as a check prints it."""
        path = self.directory / f"{number // 5 * 230:020d}"
        at = number % 5 * BATCH_ENTRY_SIZE + position
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
        return f"{path.relative_to(self.root)} byte {at}: "

    def expect(self, *lines: str) -> None:
        """Check: these lines and no others."""
        before = digest(self.root)
        found, report = check(self.root)
        self.assertEqual(digest(self.root), before)
        self.assertEqual(found, list(lines))
        self.assertGreaterEqual(report.problems, len(lines))

    def test_a_whole_batch_store_has_no_finding(self) -> None:
        """There is no finding, and entries and files are counted."""
        lines, report = check(self.root)
        self.assertEqual((lines, report.problems, report.notes), ([], 0, []))
        self.assertEqual((report.counts["queue entries"], report.counts["queue files"]), (8, 2))

    def test_a_batch_store_of_apaches_broker_is_sound(self) -> None:
        """A store of Apache's has no finding."""
        root = self.root / "golden"
        shutil.copytree(GOLDEN, root)
        lines, report = check(root)
        self.assertEqual((lines, report.problems), ([], 0))
        self.assertEqual(report.counts["queue entries"], 15 + 9 + 9 + 3 + 8 + 7)

    def test_each_field(self) -> None:
        """Each damage is named with its place."""
        record = self.records[2]
        for name, position, size, wanted in (
            ("size", 8, 4, record.size), ("tag's code", 12, 8, 0),
            ("store time", 20, 8, record.store_timestamp), ("queue offset", 28, 8, 4),
            ("number of messages", 36, 2, 5),
        ):
            where = self.patch_entry(2, position, (wanted + 1).to_bytes(size, "big"))
            self.expect(f"{where}expected the record's {name} {wanted}, found {wanted + 1}")
            self.patch_entry(2, position, wanted.to_bytes(size, "big"))
        self.expect()

    def test_a_hole(self) -> None:
        """Zeros between entries, and the record they should be of."""
        where = self.patch_entry(3, 0, bytes(BATCH_ENTRY_SIZE))
        place = self.records[3].physical_offset
        self.expect(
            f"{where}expected an entry of {TOPIC}-0, found zeros",
            f"commitlog/{0:020d} byte {place}: expected an entry in {TOPIC}-0 at offset 9, "
            f"found the entry of the record at {self.records[4].physical_offset}")

    def test_entries_of_nothing(self) -> None:
        """An entry refers to a position after the last record."""
        end = self.records[-1].next_offset
        where = self.patch_entry(8, 0, BATCH_ENTRY.pack(end, 99, 0, 1, 18, 1, -1, 0))
        lines, _ = check(self.root)
        self.assertEqual(len(lines), 1)
        self.assertIn(f"{where}expected an entry of {TOPIC}-0, found place {end}", lines[0])

    def test_missing_entries(self) -> None:
        """The end of the queue is missing."""
        (self.directory / f"{230:020d}").unlink()
        place = self.records[5].physical_offset
        self.expect(
            f"commitlog/{0:020d} byte {place}: expected an entry in {TOPIC}-0 at offset 12, "
            "found the end of the queue after 5 entries",
            f"commitlog/{0:020d} byte {place}: the same 2 more times behind it")

    def test_a_topic_made_again(self) -> None:
        """The check does not report records of the deleted queue."""
        self.box = self.box._again().open()
        self.box.store.delete_topic(TOPIC)
        self.box.append(inner_batch(TOPIC, [b"a", b"b"]))
        self.successResultOf(self.box.store.stop())
        lines, report = check(self.root)
        self.assertEqual((lines, report.counts["records of deleted queues"]), ([], 8))

    def test_a_batch_that_counts_wrong(self) -> None:
        """The property INNER_NUM differs from the body."""
        path = self.root / "commitlog" / f"{0:020d}"
        data = path.read_bytes()
        at = data.index(b"INNER_NUM\x01") + 10
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"4")
        where = f"commitlog/{0:020d} byte 0: "
        lines, _ = check(self.root)
        self.assertIn(f"{where}expected INNER_NUM 3, found 4", lines)

    def test_dump_shows_the_messages(self) -> None:
        """Each message is shown with its own offset."""
        data = (self.root / "commitlog" / f"{0:020d}").read_bytes()
        record = decode_record(data, self.records[4].physical_offset)
        shown = json.loads(as_json(0, record, True))
        self.assertEqual([(each["queueOffset"], each["body"]) for each in shown["messages"]],
                         [(10, "m0"), (11, "m1")])
        self.assertNotIn("body", shown)
        self.assertIn("@11", as_text(0, record, False))
        self.assertIn("body (2): m1", as_text(0, record, True))
