"""The bitmap of a message, and the remembered answers of its filters."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.store import message
from twistmq.plugins.filter_sql92.bitmap_fast_path import AskedFilter, BitmapMaker


def wants(colour: str, mask: int) -> AskedFilter:
    return AskedFilter(lambda properties: properties.get("colour") == colour, mask)


def raises(mask: int) -> AskedFilter:
    def matches(properties: Mapping[str, str]) -> bool:
        raise LookupError("a bug of the language")

    return AskedFilter(matches, mask)


class BitmapTests(SynchronousTestCase):
    """One message and its filters."""

    def setUp(self) -> None:
        self.record = message("T", properties="colour\x01red\x02")
        self.record.queue_offset, self.record.physical_offset = 5, 1000
        self.raised: list[tuple[str, type[BaseException] | None]] = []

    def bitmap(self, *filters: AskedFilter) -> str:
        def note(topic: str) -> None:
            self.raised.append((topic, sys.exc_info()[0]))

        maker = BitmapMaker(2, note, 100, lambda: 0)
        maker.filters["T"] = list(filters)
        bitmap = maker.bitmap(self.record)
        assert bitmap is not None
        return bitmap.hex()

    def test_the_bits_of_those_that_want_it(self) -> None:
        """The bitmap has exactly the bits of the filters that match, with bit 0 in
        the first byte.
        """
        self.assertEqual(self.bitmap(), "0000")
        self.assertEqual(self.bitmap(wants("red", 0x8001), wants("blue", 0x0FF0)), "0180")
        self.assertEqual(self.bitmap(wants("red", 3), wants("red", 0x100)), "0301")

    def test_each_filter_remembers_its_answer(self) -> None:
        """Each filter remembers its answer."""
        red, blue = wants("red", 1), wants("blue", 2)
        self.bitmap(red, blue)
        queue_id = self.record.queue_id
        self.assertEqual(red.known.find(queue_id, 5, 1000, 1), b"\x01")
        self.assertEqual(blue.known.find(queue_id, 5, 1000, 1), b"\x00")

    def test_one_raises(self) -> None:
        """A filter that raises an error gets the message; its answer is not remembered."""
        wrong, red = raises(4), wants("red", 1)
        self.assertEqual(self.bitmap(wrong, red), "0500")
        self.assertEqual((wrong.known.count, red.known.count), (0, 1))
        self.assertEqual(self.raised, [("T", LookupError)])
