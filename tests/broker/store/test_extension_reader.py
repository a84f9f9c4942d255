"""Sequential reads of units, and filters that get the units."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.extension_reader import ExtendedFilter, UnitReader
from twistmq.broker.store.extension_unit import ExtensionUnit, address_of

UNITS = [ExtensionUnit(number, number + 100, bytes(number)) for number in range(40)]


class Extension:
    """The units above, and the reads of them."""

    def __init__(self) -> None:
        self.data = b"".join(unit.encode() for unit in UNITS)
        self.addresses = [address_of(sum(unit.size for unit in UNITS[:number]))
                          for number in range(len(UNITS))]
        self.sizes: list[int] = []

    def read(self, place: int, size: int) -> bytes:
        self.sizes.append(size)
        return self.data[place : place + size]


class Recorder:
    """A filter that accepts odd codes and records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int | None, bytes | None]] = []

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        self.asked.append((tags_code, store_time, bitmap))
        return tags_code % 2 == 1

    def match_record(self, record: bytes | memoryview) -> bool:
        return bytes(record) == b"wanted"

    def match_properties(self, properties: str) -> bool:
        return properties == "wanted"


class UnitReaderTests(SynchronousTestCase):
    """The class UnitReader."""

    def setUp(self) -> None:
        self.extension = Extension()

    def test_each_address_gives_its_unit_in_any_order(self) -> None:
        """The address gives the unit, wherever it lies in the bytes of a read."""
        for size in (20, 21, 64, 5000):
            reader = UnitReader(self.extension.read, size)
            for number in (*range(40), *reversed(range(40)), 7, 30, 2):
                self.assertEqual(reader.unit(self.extension.addresses[number]), UNITS[number],
                                 msg=f"{size} {number}")

    def test_neighbouring_units_come_with_one_read(self) -> None:
        """One read has several units; a longer unit needs another read."""
        reader = UnitReader(self.extension.read, 1000)
        for address in self.extension.addresses[:30]:
            reader.unit(address)
        self.assertEqual(self.extension.sizes, [1000, 1000])
        reader = UnitReader(self.extension.read, 20)
        reader.unit(self.extension.addresses[9])
        self.assertEqual(self.extension.sizes[2:], [20, 29])

    def test_an_address_without_a_unit_gives_none(self) -> None:
        """An address without a unit gives None."""
        reader = UnitReader(self.extension.read, 100)
        self.assertIsNone(reader.unit(address_of(len(self.extension.data))))
        self.assertIsNone(reader.unit(address_of(1)))
        self.assertEqual(reader.unit(self.extension.addresses[3]), UNITS[3])


class ExtendedFilterTests(SynchronousTestCase):
    """The class ExtendedFilter."""

    def setUp(self) -> None:
        extension = Extension()
        self.addresses = extension.addresses
        self.inner = Recorder()
        self.filter = ExtendedFilter(UnitReader(extension.read, 100), self.inner)

    def test_the_filter_gets_tag_time_and_bitmap_of_a_unit(self) -> None:
        """The filter gets the tag, the time and the bitmap of the unit."""
        self.assertEqual([self.filter.match_queue_entry(self.addresses[n]) for n in (0, 3)],
                         [False, True])
        self.assertEqual(self.inner.asked, [(0, 100, None), (3, 103, bytes(3))])

    def test_an_entry_without_a_unit_is_filtered_by_itself(self) -> None:
        """An entry without a unit is passed unchanged."""
        self.assertTrue(self.filter.match_queue_entry(-5))
        self.assertEqual(self.inner.asked, [(-5, None, None)])

    def test_lost_unit(self) -> None:
        """A message whose unit is missing may match."""
        self.assertTrue(self.filter.match_queue_entry(address_of(1 << 30)))
        self.assertEqual(self.inner.asked, [])

    def test_records_are_the_filters_own_business(self) -> None:
        """Records are passed to the filter unchanged."""
        self.assertEqual([self.filter.match_record(data) for data in (b"wanted", b"not")],
                         [True, False])
        self.assertEqual([self.filter.match_properties(text) for text in ("wanted", "not")],
                         [True, False])
