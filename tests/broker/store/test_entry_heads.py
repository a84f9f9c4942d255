"""Heads, fillers and units of a ledger's entries."""

from __future__ import annotations

import struct

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.entry_heads import (
    ENTRY_HEAD_SIZE,
    UNIT_SIZE,
    EntryHeads,
    EntryWalk,
    entry_filler,
    record_follows,
)

#: The smallest record that a walk accepts: only its size is looked at.
RECORD = struct.pack(">i", 100) + b"r" * 96


def entries(count: int, term: int = 3, begin: int = 0, index: int = 7) -> tuple[bytes, bytes]:
    """Make entries that follow each other; :returns: their bytes and units."""
    framing = EntryHeads(index, term)
    framing.begin()
    data = b""
    for _ in range(count):
        data += framing.head(begin + len(data), len(RECORD)) + RECORD
    return data, bytes(framing.units)


class EntryHeadsTests(SynchronousTestCase):
    """The heads and units of new entries."""

    def test_a_head_and_its_unit(self) -> None:
        """The fields are where Apache's members have them."""
        data, unit = entries(1, term=5, begin=4096, index=9)
        self.assertEqual(
            data[:ENTRY_HEAD_SIZE],
            struct.pack(">iiqqqiiii", 1, 148, 9, 5, 4096, 0, 0, 0, 100))
        self.assertEqual(unit, struct.pack(">iqiqq", 1, 4096, 148, 9, 5))

    def test_a_filler_names_the_rest_of_the_file(self) -> None:
        """A filler is -1 and the number of bytes up to the end of the file."""
        self.assertEqual(entry_filler(77), struct.pack(">ii", -1, 77))

    def test_an_append_that_fails_takes_no_index(self) -> None:
        """The next append gets the indexes of one that was undone, and the last term stays."""
        framing = EntryHeads(4, 2)
        framing.begin()
        framing.head(0, 100)
        framing.keep()
        framing.term = 3
        framing.begin()
        framing.head(148, 100)
        framing.undo()
        self.assertEqual((framing.next_index, framing.last_term), (5, 2))
        framing.begin(30)
        framing.copied_head(9, 1000, 100)
        self.assertEqual((framing.begin_index, framing.next_index), (30, 31))
        framing.undo()
        self.assertEqual((framing.begin_index, framing.next_index, framing.term), (5, 5, 3))

    def test_a_record_follows_its_head_only_in_its_place(self) -> None:
        """Data with another position, magic number or size is not an entry."""
        data, _ = entries(1)
        self.assertTrue(record_follows(b"x" + data, 1, 0))
        self.assertFalse(record_follows(data, 0, 1))
        for at in (3, 7, 47, 51):
            bad = bytearray(data)
            bad[at] ^= 1
            self.assertFalse(record_follows(bytes(bad), 0, 0), at)


class EntryWalkTests(SynchronousTestCase):
    """Following the heads of stored entries."""

    def walk(self, data: bytes, index: int = -1, term: int = -1, end: int = 10_000) -> EntryWalk:
        walk = EntryWalk(0, index, term)
        walk.pass_entries(data, 0, 10_000, end)
        return walk

    def test_all_entries_of_a_chunk(self) -> None:
        """A walk knows its last entry's end and term, the next index, and the units."""
        data, units = entries(5)
        walk = self.walk(data + bytes(100))
        self.assertEqual((walk.position, walk.index, walk.term), (5 * 148, 12, 3))
        self.assertEqual(walk.take_units(), units)
        self.assertEqual(walk.take_units(), b"")

    def test_an_entry_whose_record_is_in_the_next_chunk(self) -> None:
        """Only the head has to be in the chunk; the walk goes on in the next one."""
        data, units = entries(3)
        cut = 148 + ENTRY_HEAD_SIZE
        walk = self.walk(data[:cut])
        self.assertEqual((walk.position, walk.fault), (296, ""))
        walk.pass_entries(data[296:], 296, 10_000, 10_000)
        self.assertEqual((walk.position, walk.take_units()), (444, units))

    def test_a_filler_leads_to_the_next_file(self) -> None:
        """A filler of the right size ends the file; another one ends the entries."""
        data, _ = entries(2)
        self.assertEqual(self.walk(data + entry_filler(10_000 - 296)).position, 10_000)
        walk = self.walk(data + entry_filler(10_000 - 297))
        self.assertEqual((walk.position, walk.fault),
                         (296, "a filler of 9703 bytes, 9704 are left"))

    def test_what_ends_the_entries(self) -> None:
        """Each field that does not continue the entry before it ends the walk there."""
        data, _ = entries(1)
        second, _ = entries(1, begin=148, index=8)
        for name, at, value in (
            ("magic", 0, struct.pack(">i", 2)), ("size", 4, struct.pack(">i", 149)),
            ("index", 8, struct.pack(">q", 9)), ("lower term", 16, struct.pack(">q", 2)),
            ("position", 24, struct.pack(">q", 147)), ("record size", 44, struct.pack(">i", 99)),
            ("no entry", 0, bytes(48)),
        ):
            bad = second[:at] + value + second[at + len(value):]
            walk = self.walk(data + bad)
            self.assertEqual((walk.position, walk.index), (148, 8), name)
            self.assertNotEqual(walk.fault, "", name)
            self.assertEqual(len(walk.units), UNIT_SIZE, name)

    def test_an_entry_that_is_not_complete(self) -> None:
        """An entry that extends beyond the end of the log does not count."""
        data, _ = entries(2)
        self.assertEqual(self.walk(data, end=295).position, 148)
        self.assertEqual(self.walk(data, end=296).position, 296)

    def test_the_first_entry_continues_what_is_known(self) -> None:
        """A walk that knows the index and the term before it refuses another entry."""
        data, _ = entries(1)
        self.assertEqual(self.walk(data, 7, 3).position, 148)
        self.assertEqual(self.walk(data, 8, 3).position, 0)
        self.assertEqual(self.walk(data, 7, 4).position, 0)
