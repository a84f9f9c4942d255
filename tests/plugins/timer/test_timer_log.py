"""The timer log: the positions of its units, and the effects of a failed write."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import StoreFull
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.plugins.timer.log_unit import UNIT_SIZE, LogUnit, encode_blank
from twistmq.plugins.timer.timer_log import TimerLog
from twistmq.protocol.errors import StoreDamaged, StoreError

#: Room for four units and a blank of 42 bytes.
FILE_SIZE = 4 * UNIT_SIZE + 42
DIRECTORY = "/store/timerlog"


def unit(number: int) -> LogUnit:
    return LogUnit(-1, 1, 1_700_000_000_000, 1000, number, 100, 0)


class TimerLogTests(SynchronousTestCase):
    """A log with files of four units."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.log = self.open(0)

    def open(self, end: int) -> TimerLog:
        log = TimerLog(self.disk, DIRECTORY, FILE_SIZE)
        log.load()
        log.truncate(end)
        return log

    def write(self, *numbers: int) -> list[int]:
        """Write units; :returns: their positions."""
        units = []
        position = self.log.next_position(self.log.end)
        for number in numbers:
            units.append((position, unit(number)))
            position = self.log.next_position(position + UNIT_SIZE)
        self.log.write(units)
        return [position for position, _ in units]

    def places(self, begin: int = 0) -> list[int]:
        return [each.log_offset for _, each in self.log.units(begin, self.log.end)]

    def test_units_fill_files(self) -> None:
        """A file has four units, and the next one begins at its end."""
        positions = self.write(*range(10))
        self.assertEqual(positions, [0, 52, 104, 156, 250, 302, 354, 406, 500, 552])
        self.assertEqual(self.log.starts, [0, 250, 500])
        self.assertEqual(self.log.end, 604)
        self.assertEqual([self.log.unit(position) for position in positions],
                         [unit(number) for number in range(10)])
        self.assertEqual(self.places(), list(range(10)))
        self.assertEqual(self.places(302), list(range(5, 10)))

    def test_blank_at_the_end_of_a_file(self) -> None:
        """Apache's broker needs it to go on with the next file."""
        self.write(1, 2, 3, 4, 5)
        self.assertEqual(self.disk.read_file(f"{DIRECTORY}/{0:020d}")[4 * UNIT_SIZE:],
                         encode_blank(42).ljust(42, b"\0"))

    def test_file_that_is_full_exactly(self) -> None:
        """The blank is written with the next unit, in a write of its own."""
        self.write(1, 2, 3, 4)
        self.assertEqual((self.log.starts, self.log.end), ([0], 208))
        self.assertEqual(self.write(5), [250])
        self.assertEqual(self.places(), [1, 2, 3, 4, 5])

    def test_where_no_unit_is(self) -> None:
        """Before, after and between units, and in a deleted file."""
        self.write(*range(5))
        self.log.drop_first()
        for position in (-1, 0, 208, 251, 302, 10_000):
            self.assertIsNone(self.log.unit(position), msg=position)
        self.assertEqual(self.places(self.log.begin), [4])

    def test_truncated_units_are_gone_after_a_reopen(self) -> None:
        """Later units no longer exist, also for the next broker."""
        self.write(*range(10))
        for end, left in ((552, 9), (500, 8), (302, 5), (250, 4), (104, 2), (0, 0)):
            self.log.truncate(end)
            self.log = self.open(self.log.starts[-1] + FILE_SIZE if self.log.starts else 0)
            self.assertEqual(self.places(), list(range(left)), msg=end)
            self.log.truncate(end)
        self.assertEqual(self.write(7), [0])

    def test_full_disk(self) -> None:
        """No unit of the write counts, and its bytes do not reappear."""
        self.write(1)
        self.disk.room_bytes = 80
        self.assertRaises(StoreFull, self.write, 2, 3, 4)
        self.assertEqual(self.places(), [1])
        self.disk.room_bytes = None
        self.write(5)
        self.log = self.open(FILE_SIZE)
        self.assertEqual(self.places(), [1, 5])

    def test_failing_disk(self) -> None:
        """An error of the disk becomes an error of the store."""
        self.write(1)
        self.disk.fail_write_in = 1
        self.assertRaises(StoreError, self.write, 2)
        self.disk.fail_write_in = None
        self.assertEqual(self.write(3), [52])
        self.assertEqual(self.places(), [1, 3])

    def test_a_sync_writes_new_units_and_new_directories(self) -> None:
        """New units are synced, and the directory if files were added."""
        self.write(1)
        before = self.disk.sync_count
        self.log.sync_job()()
        self.assertEqual(self.disk.sync_count - before, 2)
        self.write(2)
        self.log.sync_job()()
        self.assertEqual(self.disk.sync_count - before, 3)

    def test_failed_sync(self) -> None:
        """It is repeated, with the directory."""
        self.write(1)
        self.disk.fail_sync_in = 1
        self.assertRaises(OSError, self.log.sync_job())
        self.disk.fail_sync_in = None
        before = self.disk.sync_count
        self.log.sync_job()()
        self.assertEqual(self.disk.sync_count - before, 2)

    def test_last_unit_of_first_file(self) -> None:
        """The last unit tells when the file can be deleted; the last file remains."""
        self.write(1, 2, 3, 4)
        self.assertIsNone(self.log.last_unit_of_first_file())
        self.write(5)
        self.assertEqual(self.log.last_unit_of_first_file(), unit(4))
        self.log.drop_first()
        self.assertIsNone(self.log.last_unit_of_first_file())
        self.assertEqual(self.disk.list_directory(DIRECTORY), [f"{250:020d}"])

    def test_file_of_another_length(self) -> None:
        """The file was written with another setting."""
        self.write(1)
        self.assertRaises(StoreDamaged, TimerLog(self.disk, DIRECTORY, FILE_SIZE * 2).load)
