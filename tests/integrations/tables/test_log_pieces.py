"""Commit-log files that are read in pieces: whole, torn and damaged files."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.logs import LogWriter
from tests.integrations.tables.records import encoded
from twistmq.integrations.tables import log_pieces
from twistmq.integrations.tables.columns import select_columns
from twistmq.integrations.tables.log_pieces import LogPiece, PieceReader
from twistmq.integrations.tables.record_batches import BatchBuilder
from twistmq.protocol import record

Damage = tuple[str, int, str]


class Stop(Exception):
    """The error that a test raises at damage."""


def read_file(
    path: Path, file_size: int, in_last_file: bool = False, cuts: tuple[int, ...] = ()
) -> tuple[list[int], list[Damage]]:
    """Read a file in pieces; :returns: the log offsets of its records, and the damage."""
    places: list[int] = []
    damages: list[Damage] = []
    edges = [0, *cuts, file_size]
    for begin, end in pairwise(edges):
        piece = LogPiece(str(path), int(path.name), file_size, begin, end, in_last_file)
        reader = PieceReader(piece, BatchBuilder(select_columns("commitLogOffset,body")), None,
                             lambda *damage: damages.append(damage))
        for batch in reader.batches():
            assert batch.num_rows
            places += batch.column(0).to_pylist()
    return places, damages


class PieceReaderTests(SynchronousTestCase):
    """The pieces of one file."""

    def setUp(self) -> None:
        self.log = LogWriter(Path(self.mktemp()) / "commitlog")  # type: ignore[no-untyped-call]
        rng = random.Random(7)
        while self.log.place < 3 * self.log.file_size - 4000:
            self.log.add(body=rng.randbytes(rng.randrange(2000)), queue_id=rng.randrange(4))
        self.size = self.log.file_size

    def places(self, number: int) -> list[int]:
        """Return the log offsets of the records of a file."""
        return [place for place, _ in self.log.written if place // self.size == number]

    def file(self, number: int) -> Path:
        return self.log.path(number * self.size)

    def check(self, number: int, places: list[int], damages: list[tuple[int, str]],
              in_last_file: bool = False) -> None:
        """Read a file as a whole and in many divisions, and check that the outcome is always the
        same.
        """
        rng = random.Random(number)
        every = [()] + [tuple(sorted(rng.sample(range(1, self.size), rng.randrange(1, 9))))
                        for _ in range(25)]
        for cuts in every:
            found, seen = read_file(self.file(number), self.size, in_last_file, cuts)
            self.assertEqual(found, places, msg=f"cuts {cuts}")
            self.assertEqual([place for _, place, _ in seen], [place for place, _ in damages],
                             msg=f"cuts {cuts}")
            for (path, _, text), (_, wanted) in zip(seen, damages, strict=True):
                self.assertEqual(path, str(self.file(number)))
                self.assertIn(wanted, text)

    def test_whole_files(self) -> None:
        """Every record is read once, up to the blank record or the end of the log."""
        for number in range(3):
            self.check(number, self.places(number), [], in_last_file=number == 2)
        self.assertGreater(len(self.places(0)), 10)

    def test_a_batch_has_so_many_rows(self) -> None:
        """A batch does not exceed its limit of rows, however many records a chunk has."""
        self.patch(log_pieces, "_BATCH_ROWS", 3)
        self.check(0, self.places(0), [])

    def test_records_larger_than_what_is_read(self) -> None:
        """A record that is longer than a chunk is read completely."""
        self.patch(log_pieces, "_CHUNK_SIZE_MIN", 100)
        self.patch(log_pieces, "_CHUNK_SIZE_MAX", 100)
        self.patch(log_pieces, "_SCAN_SIZE", 64)
        self.check(0, self.places(0), [])
        self.check(2, self.places(2), [], in_last_file=True)

    def test_torn_tail(self) -> None:
        """The last file ends at an incomplete record, wherever it is torn."""
        last = len(self.log.written)
        place = self.log.add(body=b"x" * 500)
        made = self.log.written[last][1]
        for size in (1, 4, 7, 8, 50, 90, 91, 300, len(made) - 1):
            self.log.put(place, made[:size] + bytes(len(made) - size))
            self.check(2, self.places(2)[:-1], [], in_last_file=True)

    def test_a_file_that_was_cut(self) -> None:
        """A missing end of a copied file is damage, unless the log may end there."""
        at = self.places(1)[-2]
        os.truncate(self.file(1), at % self.size + 40)
        self.check(1, self.places(1)[:-2], [], in_last_file=True)
        self.check(1, self.places(1)[:-2], [(at % self.size, "40 bytes left")])

    def test_damage_is_reported_once_and_all_other_records_are_read(self) -> None:
        """Each damage is reported once, and the records before and after it are all read."""
        places = self.places(0)
        at = places[4]
        made = dict(self.log.written)[at]
        damages = {
            "magic": (4, b"\0\0\0\0"), "zeros": (0, bytes(len(made))),
            "size too small": (0, b"\0\0\0\x01"), "size of a smaller record": (0, b"\0\0\0\x70"),
            "size below zero": (0, b"\xff\xff\xff\xff"), "least size": (0, b"\x80\0\0\0"),
            "size too large": (0, b"\x7f\0\0\0"), "size of a larger one": (2, b"\x0f\xff"),
            "body": (90, b"????"), "body length": (84, b"\0\0\xff\0"),
        }
        for name, (offset, bytes_) in damages.items():
            self.log.put(at + offset, bytes_)
            rest = [place for place in places if place != at]
            found, seen = read_file(self.file(0), self.size)
            self.assertEqual((found, [place for _, place, _ in seen]), (rest, [at]), msg=name)
            self.check(0, rest, [(at, "")])
            self.check(0, rest, [(at, "")], in_last_file=True)
            self.log.put(at, made)

    def test_neighbouring_damage(self) -> None:
        """Consecutive damaged records count as one damage or as several."""
        places = self.places(0)
        self.log.put(places[3] + 4, b"\0\0\0\0")
        self.log.put(places[4] + 4, b"\0\0\0\0")
        self.log.put(places[8] + 85, b"\xff")
        # At the position where the search begins, a record has its own offset and a negative size.
        self.log.put(places[12] + 4, b"\0\0\0\0")
        self.log.put(places[13], b"\xff\xff\xff\xff")
        damaged = [places[index] for index in (3, 4, 8, 12, 13)]
        self.check(0, [place for place in places if place not in damaged],
                   [(places[3], "magic"), (places[8], "body length"), (places[12], "magic")])

    def test_a_lost_end(self) -> None:
        """In a file that is followed by others, an end without a record is damage."""
        at = self.places(1)[5] - self.size
        self.log.put(self.size + at, bytes(self.size - at))
        self.check(1, self.places(1)[:5], [(at, "magic 0x00000000")])

    def test_stop_at_damage(self) -> None:
        """An error of on_damage ends the read."""
        self.log.put(self.places(0)[4] + 4, b"\0\0\0\0")

        def stop(path: str, position: int, text: str) -> None:
            raise Stop(f"{position}")

        piece = LogPiece(str(self.file(0)), 0, self.size, 0, self.size, False)
        reader = PieceReader(piece, BatchBuilder(select_columns("body")), None, stop)
        batches = reader.batches()
        self.assertEqual(next(batches).num_rows, 4)
        self.assertEqual(str(self.assertRaises(Stop, next, batches)), str(self.places(0)[4]))

    def test_a_body_that_holds_a_record(self) -> None:
        """A record inside a body has another offset, so it does not count as the next record."""
        inner = encoded(body=b"inner", physical_offset=123)
        log = LogWriter(Path(self.mktemp()))  # type: ignore[no-untyped-call]
        for _ in range(10):
            log.add(body=inner * 3)
        damaged = log.written[4][0]
        log.put(damaged + 4, b"\0\0\0\0")
        found, seen = read_file(log.path(0), log.file_size, True, tuple(range(100, 5000, 37)))
        self.assertEqual(found, [place for place, _ in log.written if place != damaged])
        self.assertEqual([place for _, place, _ in seen], [damaged])

    def test_what_is_written_meanwhile(self) -> None:
        """A record that was incomplete at first and whole at the second read is not damage."""
        place = self.log.place
        made = encoded(body=b"late" * 100, physical_offset=place)
        self.log.put(place, made[:100])
        after = place + len(made)
        found: list[int] = []
        piece = LogPiece(str(self.file(2)), 2 * self.size, self.size, 0, self.size, True)
        builder = BatchBuilder(select_columns("commitLogOffset"))

        class Late(PieceReader):
            def _next_sure(late, position: int) -> int | None:
                self.log.put(place, made)
                self.log.put(after, encoded(physical_offset=after))
                return super()._next_sure(position)

        damages: list[Damage] = []
        for batch in Late(piece, builder, None, lambda *each: damages.append(each)).batches():
            found += batch.column(0).to_pylist()
        self.assertEqual((found, damages), ([*self.places(2), place, after], []))

    def test_a_file_that_is_gone_says_so(self) -> None:
        """The error says that the file is gone."""
        self.file(1).unlink()
        self.assertRaises(FileNotFoundError, read_file, self.file(1), self.size)

    def test_a_named_pipe(self) -> None:
        """A named pipe is refused, and the reader does not wait for its other end."""
        path = self.file(1)
        path.unlink()
        os.mkfifo(path)
        error = self.assertRaises(OSError, read_file, path, self.size)
        self.assertIn("a named pipe", str(error))

    def test_exactly_full(self) -> None:
        """A file that ends with the eight bytes of its blank record is read to its end."""
        log = LogWriter(Path(self.mktemp()), 1000)  # type: ignore[no-untyped-call]
        empty = encoded(body=b"", properties="UNIQ_KEY\x01u\x02")
        first = log.add(body=b"x" * (1000 - 8 - len(empty)))
        log.add()
        self.assertEqual(log.written[1][0], 1000)
        self.assertEqual(read_file(log.path(0), 1000), ([first], []))
        self.assertEqual(log.path(0).read_bytes()[-8:], record.blank_record(8))
