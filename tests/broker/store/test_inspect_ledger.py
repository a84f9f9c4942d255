"""The check of a ledger from outside: whole ones of both projects, and each kind of damage."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.ledger.golden import CASES, unpack
from tests.broker.store.test_inspect import check, digest
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.entry_heads import ENTRY_FILLER, UNIT_SIZE
from twistmq.broker.store.inspect.dump import Wanted, as_json, as_text, find_records
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.store.ledger.ledger import StoredEntry
from twistmq.broker.store.ledger.state_files import HardState, write_hard_state
from twistmq.broker.testing.ledger_store import LedgerBox
from twistmq.broker.testing.store import message, small_settings
from twistmq.protocol.errors import StoreError

FILE_SIZE = 4096
COUNT = 90
ID = "n0"


class DiskBox(LedgerBox):
    """A ledger in a folder of the file system."""

    @classmethod
    def at(cls, root: Path) -> DiskBox:
        """Open a store in a folder, with the ledger of the member ``n0``."""
        cls.folder = f"{root}/dledger-{ID}"
        return cls(RealDisk(), small_settings(
            str(root), mapped_file_size_commit_log=FILE_SIZE)).open()


class LedgerCheckTests(SynchronousTestCase):
    """``store check`` over a ledger that was stopped cleanly."""

    def setUp(self) -> None:
        """Fill it: an entry of each term 1 and 2 is a barrier."""
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.root.mkdir(parents=True)
        self.box = DiskBox.at(self.root)
        self.box.lead_term(1)
        self.fill(COUNT // 2)
        self.box.commit()
        self.box.lead_term(2)
        self.fill(COUNT // 2)
        self.box.commit()
        write_hard_state(self.box.disk, self.box.folder, HardState(2, ID))
        self.entries: list[StoredEntry] = list(self.box.ledger.read(0, 1 << 30))
        self.successResultOf(self.box.store.stop())

    def fill(self, count: int) -> None:
        """Append messages."""
        for number in range(count):
            self.box.append(message("T", b"%03d" % number * 30, queue_id=number % 2, tag="A",
                                    keys=f"k{number}"))

    def patch_at(self, part: str, position: int, data: bytes) -> None:
        """Overwrite bytes of the log (``data``) or of the index."""
        size = FILE_SIZE if part == "data" else LedgerBox.index_file_size
        start = position - position % size
        with (self.root / f"dledger-{ID}/{part}/{start:020d}").open("r+b") as file:
            file.seek(position - start)
            file.write(data)

    def expect(self, *texts: str) -> list[str]:
        """Check: there is one line, with all these texts, and nothing changes on disk."""
        before = digest(self.root)
        lines, _ = check(self.root)
        self.assertEqual(digest(self.root), before)
        self.assertEqual(len(lines), 1, lines)
        for text in texts:
            self.assertIn(text, lines[0])
        return lines

    def test_a_whole_ledger(self) -> None:
        """There is no finding; entries, units and the two small files are reported."""
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        counts = report.counts
        self.assertEqual((counts["records"], counts["entries"], counts["index units"],
                          counts["queue entries"]), (COUNT + 2, COUNT + 2, COUNT + 2, COUNT))
        self.assertEqual(counts["entry-index files"], 2)
        self.assertEqual(report.notes, [
            f"the ledger has entries from 0 to {COUNT + 1}, the last one of term 2; committed: "
            f"{COUNT + 1}; term 2, vote: n0"])

    def test_the_stores_of_apaches_brokers(self) -> None:
        """They have no finding after a clean stop and after a kill; 5.5.0 also indexes tags."""
        for version, state in CASES:
            root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
            unpack(version, state, root)
            lines, report = check(root)
            self.assertEqual(lines, [], (version, state))
            self.assertGreater(report.counts["entries"], 140)
            self.assertEqual(report.counts["index units"], report.counts["entries"])

    def test_a_damaged_head(self) -> None:
        """Each field of a head is compared; the record after it, and all others, are found."""
        entry = self.entries[50]
        file, at = entry.position // FILE_SIZE * FILE_SIZE, entry.position % FILE_SIZE
        for field, value, expected, found in (
            (0, b"\0\0\0\7", "magic 1", "7"), (4, bytes(4), "the size of the record", "and 0"),
            (8, (77).to_bytes(8, "big"), "index 50", "77"),
            (16, (1).to_bytes(8, "big"), "a term of at least 2", "1"),
            (24, (9).to_bytes(8, "big"), f"its own position {entry.position}", "9"),
            (44, bytes(4), "the size of the record", "0 and"),
        ):
            with (self.root / f"dledger-{ID}/data/{file:020d}").open("rb") as log:
                log.seek(at + field)
                before = log.read(len(value))
            self.patch_at("data", entry.position + field, value)
            lines, report = check(self.root)
            where = f"dledger-{ID}/data/{file:020d} byte {at + field}: expected {expected}"
            self.assertTrue(any(line.startswith(where) and found in line for line in lines),
                            (field, lines))
            # A wrong term is also not the one that the unit has.
            self.assertLessEqual(len(lines), 2, lines)
            self.assertEqual(report.counts["records"], COUNT + 2)
            self.patch_at("data", entry.position + field, before)

    def test_a_damaged_record(self) -> None:
        """A body that does not match its CRC is named."""
        self.patch_at("data", self.entries[40].position + 48 + 100, b"\xee")
        self.expect("the CRC", "another body")

    def test_an_entry_of_zeros(self) -> None:
        """The walk continues at the next entry."""
        entry = self.entries[60]
        self.patch_at("data", entry.position, bytes(48 + len(entry.body)))
        lines, report = check(self.root)
        self.assertIn("the next one starts at byte", lines[0])
        self.assertEqual(report.counts["records"], COUNT + 1)

    def test_a_wrong_filler(self) -> None:
        """A filler that does not lead to the next file is named."""
        last = next(entry for entry, after in zip(self.entries, self.entries[1:], strict=False)
                    if after.position // FILE_SIZE > entry.position // FILE_SIZE)
        end = last.position + 48 + len(last.body)
        rest = FILE_SIZE - end % FILE_SIZE
        self.patch_at("data", end, ENTRY_FILLER + (rest - 1).to_bytes(4, "big"))
        self.expect(f"a blank record of {rest} bytes", f"one of {rest - 1}")

    def test_a_wrong_unit(self) -> None:
        """A unit that differs from its entry, or is missing, is named with both values."""
        self.patch_at("index", 30 * UNIT_SIZE + 4, (5).to_bytes(8, "big"))
        self.expect(f"index/{0:020d} byte {30 * UNIT_SIZE}", "the unit of entry 30",
                    "entry 30:", "bytes at 5")
        self.patch_at("index", 30 * UNIT_SIZE, bytes(UNIT_SIZE))
        self.expect("the unit of entry 30", "no unit")

    def test_a_missing_file(self) -> None:
        """A missing file of the log or of the index is named."""
        index = self.root / f"dledger-{ID}/index"
        last = sorted(index.iterdir())[-1]
        last.rename(index / "away")
        lines, _ = check(self.root)
        self.assertIn("expected the unit of entry 64", lines[0])
        self.assertIn("the same 27 more times", lines[1])
        (index / "away").rename(last)
        (self.root / f"dledger-{ID}/data/{FILE_SIZE:020d}").unlink()
        lines, _ = check(self.root)
        self.assertTrue(any(f"data/{FILE_SIZE:020d}: expected a file" in line for line in lines))

    def test_the_small_files(self) -> None:
        """A term below the entries', no term, and a checkpoint beyond the log are named."""
        term, checkpoint = (self.root / f"dledger-{ID}" / name
                            for name in ("currterm", "checkpoint"))
        term.write_text("voteLeader=\ncurrTerm=1\n")
        self.expect("currterm: expected a term of at least 2", "found 1")
        term.write_text("voteLeader=n0\n")
        self.expect("currterm: expected a line currTerm=NUMBER")
        term.unlink()
        self.expect("currterm: expected a term and a vote", "no file")
        term.write_text("voteLeader=\ncurrTerm=2\n")
        checkpoint.write_text("committedIndex=7\nendIndex=500\n")
        self.expect("checkpoint: expected endIndex of at most 91", "found 500")
        checkpoint.write_text("committedIndex=\nendIndex=91\n")
        self.expect("checkpoint: expected a line committedIndex=NUMBER")

    def test_what_a_cut_left_over(self) -> None:
        """Old entries after the end, which Apache's member leaves there, are not damage."""
        entry = self.entries[-2]
        data = b"".join(path.read_bytes() for path in
                        sorted((self.root / f"dledger-{ID}/data").glob("0*")))
        end = self.entries[-1].position + 48 + len(self.entries[-1].body)
        size = 48 + len(entry.body)
        rest = bytearray(data[entry.position : entry.position + size])
        rest[24:32] = end.to_bytes(8, "big")
        rest[48 + 28 : 48 + 36] = (end + 48).to_bytes(8, "big")
        self.patch_at("data", end, bytes(rest))
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertIn(f"the log ends at {end}: the {size} bytes after it are left over from "
                      "entries that were cut", report.notes)
        self.assertEqual(report.counts["entries"], COUNT + 2)

    def test_a_dump_shows_index_and_term(self) -> None:
        """Each record is shown with its entry, by key, by position, and in order."""
        files = StoreFiles(self.root)
        self.addCleanup(files.close)
        report = Report(self.root, self.fail, 10)
        found = list(find_records(files, Wanted(topic="T"), report))
        self.assertEqual([files.entry_of(place) for place, _ in found],
                         [(entry.index, entry.term) for entry in self.entries
                          if entry.index not in (0, COUNT // 2 + 1)])
        ((place, record),) = find_records(files, Wanted(place=found[50][0]), report)
        entry = files.entry_of(place)
        self.assertEqual(entry, (52, 2))
        self.assertIn("entry 52  term 2", as_text(place, record, False, None, entry))
        self.assertEqual(json.loads(as_json(place, record, False, None, entry))["entry"],
                         {"index": 52, "term": 2})
        by_key = list(find_records(files, Wanted(topic="T", key="k7"), report))
        self.assertEqual([files.entry_of(place) for place, _ in by_key], [(8, 1), (54, 2)])

    def test_which_ledger(self) -> None:
        """A single ledger is found, one of several must be named, and empty folders are ignored."""
        (self.root / "commitlog").mkdir()
        self.assertEqual(check(self.root)[0], [])
        (self.root / "dledger-n1/data").mkdir(parents=True)
        error = self.assertRaises(StoreError, StoreFiles, self.root)
        self.assertIn("--ledger names one: n0, n1", str(error))
        files = StoreFiles(self.root, None, self.root / f"dledger-{ID}")
        self.addCleanup(files.close)
        self.assertEqual(len(list(find_records(files, Wanted(), Report(self.root, self.fail, 9)))),
                         COUNT + 2)
