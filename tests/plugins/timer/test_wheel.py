"""The wheel: its slots in memory and in its file."""

from __future__ import annotations

import struct

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.disk import FaultyDisk
from twistmq.plugins.timer.log_unit import MAGIC_DELETE, LogUnit
from twistmq.plugins.timer.wheel import RING_SLOTS, SLOT_SIZE, WHEEL_SIZE, Slot, TimerWheel
from twistmq.protocol.errors import StoreDamaged

NOW_MS = 1_700_000_000_000
PATH = "/store/timerwheel"


def unit(slot_ms: int, magic: int = 1) -> LogUnit:
    return LogUnit(-1, magic, NOW_MS, slot_ms - NOW_MS, 0, 100, 0)


class TimerWheelTests(SynchronousTestCase):
    """A wheel of seconds."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.disk.make_directory("/store")
        self.wheel = TimerWheel(self.disk, PATH, 1000)

    def write(self) -> None:
        self.wheel.write_job()[0]()

    def loaded(self, from_ms: int = 0, tick_ms: int = 1000) -> dict[int, Slot]:
        wheel = TimerWheel(self.disk, PATH, tick_ms)
        wheel.load(from_ms)
        self.assertEqual(wheel.count, sum(slot.count for slot in wheel.slots.values()))
        return wheel.slots

    def raw(self, time_ms: int) -> tuple[int, ...]:
        at = time_ms // 1000 % RING_SLOTS * SLOT_SIZE
        return struct.unpack(">qqqii", self.disk.read_file(PATH)[at:at + SLOT_SIZE])

    def test_the_first_unit_stays_the_first(self) -> None:
        """The first unit remains the first one; a recall decreases the count."""
        for position, magic in ((0, 1), (52, 1), (104, 1 | MAGIC_DELETE)):
            self.wheel.add(position, unit(NOW_MS + 5000, magic))
        self.wheel.add(156, unit(NOW_MS + 2000))
        self.assertEqual(self.wheel.slots, {NOW_MS + 5000: Slot(0, 104, 1),
                                            NOW_MS + 2000: Slot(156, 156, 1)})
        self.assertEqual((self.wheel.count, self.wheel.next_ms), (2, NOW_MS + 2000))
        self.assertEqual(self.wheel.waiting(NOW_MS + 5999), 1)
        self.assertEqual(self.wheel.waiting(NOW_MS + 6000), 0)
        self.wheel.finish(NOW_MS + 2000)
        self.assertEqual((self.wheel.count, self.wheel.next_ms), (1, NOW_MS + 5000))
        self.wheel.finish(NOW_MS + 5000)
        self.assertEqual((self.wheel.count, self.wheel.next_ms), (0, None))

    def test_a_slot_has_its_place_by_its_time(self) -> None:
        """A slot has its place by its time; the rest of the file is empty."""
        self.wheel.add(52, unit(NOW_MS + 5000))
        self.wheel.add(104, unit(NOW_MS + 6000))
        self.write()
        self.assertEqual(self.disk.file_size(PATH), WHEEL_SIZE)
        self.assertEqual(self.raw(NOW_MS + 5000), (NOW_MS // 1000 + 5, 52, 52, 1, 0))
        self.assertEqual(self.raw(NOW_MS + 6000), (NOW_MS // 1000 + 6, 104, 104, 1, 0))
        data = self.disk.read_file(PATH)
        self.assertEqual(data.count(0) + sum(
            byte != 0 for row in (5000, 6000) for byte in struct.pack(
                ">qqqii", *self.raw(NOW_MS + row))), WHEEL_SIZE)

    def test_only_what_changed_is_written(self) -> None:
        """Each change is written once."""
        self.wheel.add(0, unit(NOW_MS))
        self.assertTrue(self.wheel.is_changed)
        self.write()
        self.assertFalse(self.wheel.is_changed)
        before = self.disk.sync_count
        self.write()
        self.assertEqual(self.disk.sync_count, before)

    def test_failed_write_is_done_again(self) -> None:
        """The same slots are written at the next attempt."""
        self.wheel.add(0, unit(NOW_MS))
        self.disk.fail_write_in = 1
        job, take_back = self.wheel.write_job()
        self.assertRaises(OSError, job)
        take_back()
        self.disk.fail_write_in = None
        self.write()
        self.assertEqual(self.loaded(), {NOW_MS: Slot(0, 0, 1)})

    def test_slots_load_from_a_time_on_across_the_files_end(self) -> None:
        """From a time on; on the last slot of the file and the first too."""
        last = NOW_MS // 1000 // RING_SLOTS * RING_SLOTS * 1000 + (
            RING_SLOTS - 1) * 1000
        for time_ms in (NOW_MS, NOW_MS + 1000, last, last + 1000):
            self.wheel.add(0, unit(NOW_MS)._replace(write_ms=time_ms, delay_ms=0))
        self.write()
        self.assertEqual(set(self.loaded()), {NOW_MS, NOW_MS + 1000, last, last + 1000})
        self.assertEqual(set(self.loaded(NOW_MS + 1000)), {NOW_MS + 1000, last, last + 1000})

    def test_slot_comes_again(self) -> None:
        """Two weeks later the same slot has the later time."""
        later = NOW_MS + RING_SLOTS * 1000
        for time_ms in (NOW_MS, later):
            self.wheel.add(0, unit(NOW_MS)._replace(write_ms=time_ms, delay_ms=0))
            self.write()
        self.assertEqual(set(self.loaded()), {later})

    def test_shorter_ticks(self) -> None:
        """The times in the file are in ticks."""
        wheel = TimerWheel(self.disk, PATH, 100)
        wheel.add(0, unit(NOW_MS + 300))
        wheel.write_job()[0]()
        self.assertEqual(self.loaded(tick_ms=100), {NOW_MS + 300: Slot(0, 0, 1)})

    def test_a_missing_or_short_wheel_file_is_made(self) -> None:
        """The same applies to a file that a crash left too short."""
        self.assertEqual(self.loaded(), {})
        self.disk.write_file(PATH, b"")
        self.assertEqual(self.loaded(), {})

    def test_file_of_another_length(self) -> None:
        """The file is not used as a wheel."""
        self.disk.write_file(PATH, bytes(64))
        error = self.assertRaises(StoreDamaged, self.loaded)
        self.assertEqual(str(error), "/store/timerwheel has 64 bytes, not 38707200")
