"""The check and the dump of a store of Apache's 5.3.3, whole and with each kind of damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.ledger.golden import GOLDEN_SIZES, unpack
from tests.broker.store.test_inspect import check
from twistmq.broker.store.entry_heads import ENTRY_FILLER, ENTRY_HEAD, ENTRY_HEAD_SIZE, UNIT_SIZE
from twistmq.broker.store.inspect.dump import Wanted, find_records
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report

VERSION: Final = "5.3.3"
FILE_SIZE: Final = GOLDEN_SIZES["mapped_file_size_commit_log"]


class _Place(NamedTuple):
    """Where an entry is: its index, its position, and the bytes of head and record."""

    number: int
    position: int
    size: int


class PlantedTests(SynchronousTestCase):
    """``store check`` and ``store dump --ledger`` over a store that was stopped cleanly."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        unpack(VERSION, "stopped", self.root)
        self.ledger = self.root / "dledger-n0"
        self.places = list(self.walk())

    def walk(self) -> Iterator[_Place]:
        """Yield the entries of the data files."""
        for path in sorted((self.ledger / "data").iterdir()):
            data, at = path.read_bytes(), 0
            while data[at : at + 4] == (1).to_bytes(4, "big"):
                _, size, index, *_ = ENTRY_HEAD.unpack_from(data, at)
                yield _Place(index, int(path.name) + at, size)
                at += size

    @contextmanager
    def changed(self, path: Path, at: int, data: bytes) -> Iterator[None]:
        """Overwrite bytes of a file for the duration of the block."""
        with path.open("r+b") as file:
            file.seek(at)
            before = file.read(len(data))
            self.assertNotEqual(before, data, path)
            file.seek(at)
            file.write(data)
        yield
        with path.open("r+b") as file:
            file.seek(at)
            file.write(before)

    @contextmanager
    def written(self, path: Path, text: str | None) -> Iterator[None]:
        """Replace or remove a small file for the duration of the block."""
        before = path.read_bytes()
        path.unlink()
        if text is not None:
            path.write_text(text)
        yield
        path.write_bytes(before)

    def data_at(self, position: int) -> tuple[Path, int]:
        """Return the data file of a position, and the offset in it."""
        start = position - position % FILE_SIZE
        return self.ledger / f"data/{start:020d}", position - start

    def expect(self, kind: str, *texts: str) -> None:
        """Check that one of the lines has all these texts."""
        lines, _ = check(self.root)
        self.assertTrue(any(all(text in line for text in texts) for line in lines),
                        f"{kind}: {lines}")

    def test_it_has_no_finding(self) -> None:
        """The dump shows each of its entries."""
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertEqual(report.counts["entries"], len(self.places))
        files = StoreFiles(self.root, None, self.ledger)
        self.addCleanup(files.close)
        found = list(find_records(files, Wanted(), Report(self.root, self.fail, 9)))
        entries = [files.entry_of(place) for place, _ in found]
        self.assertEqual([entry and entry[0] for entry in entries],
                         [place.number for place in self.places])

    def test_damage_of_entries(self) -> None:
        """Each field of a head, the record, an entry of zeros, and the end of a file."""
        entry = self.places[50]
        path, at = self.data_at(entry.position)
        for kind, field, value, text in (
            ("the magic", 0, b"\0\0\0\7", "magic 1"),
            ("the size", 4, bytes(4), "the size of the record"),
            ("the index", 8, (77).to_bytes(8, "big"), f"index {entry.number}"),
            ("the term", 16, b"\xff" * 8, "a term of at least"),
            ("the position", 24, (9).to_bytes(8, "big"), f"its own position {entry.position}"),
            ("the size of the body", 44, bytes(4), "the size of the record"),
        ):
            with self.changed(path, at + field, value):
                self.expect(kind, text)
        with self.changed(path, at + ENTRY_HEAD_SIZE + 88, b"\xee"):
            self.expect("a byte of the record", path.name)
        with self.changed(path, at, bytes(entry.size)):
            self.expect("zeros", "the next one starts at byte")
        last = next(before for before, after in zip(self.places, self.places[1:], strict=False)
                    if before.position // FILE_SIZE < after.position // FILE_SIZE)
        path, at = self.data_at(last.position + last.size)
        with self.changed(path, at, ENTRY_FILLER + (FILE_SIZE - at - 1).to_bytes(4, "big")):
            self.expect("the end of a file", f"a blank record of {FILE_SIZE - at} bytes")

    def test_damage_of_the_index(self) -> None:
        """A unit that differs, and one that is missing."""
        path = self.ledger / f"index/{0:020d}"
        with self.changed(path, 30 * UNIT_SIZE + 4, (5).to_bytes(8, "big")):
            self.expect("another position", "the unit of entry 30", "bytes at 5")
        with self.changed(path, 30 * UNIT_SIZE, bytes(UNIT_SIZE)):
            self.expect("no unit", "the unit of entry 30", "no unit")

    def test_damage_of_files(self) -> None:
        """A data file that is missing, and each of the small files."""
        path = self.ledger / f"data/{FILE_SIZE:020d}"
        with self.written(path, None):
            self.expect("a missing file", f"{path.name}: expected a file")
        term, checkpoint = (self.ledger / name for name in ("currterm", "checkpoint"))
        for kind, path, text, found in (
            ("an old term", term, "voteLeader=\ncurrTerm=-1\n", "a term of at least"),
            ("no term", term, "voteLeader=n0\n", "expected a line currTerm=NUMBER"),
            ("no vote file", term, None, "expected a term and a vote"),
            ("a checkpoint beyond the end", checkpoint, "committedIndex=7\nendIndex=5000\n",
             "expected endIndex of at most"),
            ("a broken checkpoint", checkpoint, "committedIndex=\nendIndex=9\n",
             "expected a line committedIndex=NUMBER"),
        ):
            with self.written(path, text):
                self.expect(kind, found)

    def test_damage_of_queues(self) -> None:
        """An entry of a queue that points into the middle of a record."""
        path = self.root / f"consumequeue/GoldenReplica/1/{0:020d}"
        place = int.from_bytes(path.read_bytes()[:8], "big")
        with self.changed(path, 0, (place + 5).to_bytes(8, "big")):
            self.expect("a wrong place", "consumequeue/GoldenReplica/1")
