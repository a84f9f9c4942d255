"""``twistmq store check`` with timed messages: whole stores, and each kind of damage."""

from __future__ import annotations

import struct

from tests.plugins.timer.store_case import LOG_FILE_SIZE, TimerStoreCase, check
from twistmq.plugins.timer.log_unit import MAGIC_DELETE, UNIT_SIZE
from twistmq.plugins.timer.wheel import SLOT_FIELD_POSITIONS, WHEEL_SIZE, Slot
from twistmq.protocol.topic_names import TIMER_TOPIC

#: What the summary counts.
FILES, UNITS, SLOTS = "timer log files", "timer log units", "timer wheel slots"
CHECK_POINT = "config/timercheck"


class WholeTests(TimerStoreCase):
    """A whole store has no findings in any state."""

    def whole(self, message: str = "") -> dict[str, int]:
        """Check that the store is whole; :returns: the counts."""
        lines, report = check(self.root)
        self.assertEqual(lines, [], msg=message)
        self.assertEqual(report.problems, 0)
        return dict(report.counts)

    def test_a_cleanly_stopped_store_has_no_finding(self) -> None:
        """A clean store: all files, units and slots that wait are looked at."""
        self.fill()
        self.stop()
        counts = self.whole()
        self.assertEqual((counts[FILES], counts[UNITS], counts[SLOTS]), (4, 20, 6))

    def test_a_store_in_which_nothing_waits(self) -> None:
        """A store without waiting messages, and one that never had a timed message."""
        self.turns(2000)
        self.stop()
        self.assertEqual(self.whole().get(UNITS, 0), 0)
        for name in ("config/timercheck", "config/timermetrics"):
            (self.root / name).unlink(missing_ok=True)
        self.whole()

    def test_no_finding_at_any_moment_of_a_life(self) -> None:
        """The store has no findings at any moment of a broker's life, saved or killed.

        What the next broker makes of it is whole too, before and after its own stop.
        """
        self.box.now_ms += 300
        for step in range(40):
            self.timed(b"%d" % step, 1500 + step % 7 * 400)
            if step % 9 == 0:
                self.recall(self.timed(b"back %d" % step, 9000))
            if step % 11 == 0:
                self.timed(b"far %d" % step, 70_000)
            self.whole(f"{step} sent")
            self.turns(300)
            self.whole(f"{step} entered")
            if step % 3 == 0:
                self.box.kernel.store.flush_step(self.box.now_ms)
                self.save()
                self.whole(f"{step} saved")
            if step % 10 == 9:
                self.kill()
                self.whole(f"{step} killed")
                self.box = self.start()
                self.is_up = True
                self.whole(f"{step} started")
        self.stop()
        self.assertGreater(self.whole("stopped")[UNITS], 40)

    def test_the_length_of_a_tick_is_found_out(self) -> None:
        """The length of a tick is determined, with our mark and without it."""
        for count, tick_ms in enumerate((100, 200, 500), 1):
            self.stop()
            self.box = self.start(timerPrecisionMs=str(tick_ms))
            self.is_up = True
            self.timed(b"later", 30_000)
            self.turns(1000)
            self.stop()
            self.assertEqual(self.whole(str(tick_ms))[SLOTS], count)
            self.put(self.root / CHECK_POINT, 64, bytes(8))
            self.assertEqual(self.whole(str(tick_ms))[SLOTS], count)

    def test_removed_files(self) -> None:
        """Units may refer to removed units and messages."""
        self.fill()
        self.service.timer_log.drop_first()
        self.stop()
        counts = self.whole()
        self.assertEqual((counts[FILES], counts[UNITS]), (3, 14))


class DamageTests(TimerStoreCase):
    """Each damage gives one line with the file, the byte, the expected and the actual value."""

    def setUp(self) -> None:
        """Create a clean store with messages in every state."""
        super().setUp()
        self.fill()
        self.stop()
        self.assertEqual(check(self.root)[0], [])

    def is_named(self, *lines: str) -> None:
        self.assertEqual(check(self.root)[0], list(lines))

    def of_slot(self, length: int) -> list[int]:
        """Places of the units of the one slot that has so many, ascending."""
        by_time: dict[int, list[int]] = {}
        for position, unit in self.units():
            by_time.setdefault(unit.slot_ms, []).append(position)
        [found] = [places for places in by_time.values() if len(places) == length]
        return found

    def slot_of(self, position: int) -> tuple[int, int, Slot]:
        """Return the position, the ticks and the slot of a unit."""
        ticks = dict(self.units())[position].slot_ms // 1000
        [found] = [each for each in self.slots() if each[1] == ticks]
        return found

    # --- units

    def test_a_unit_that_leads_past_another_one_of_its_slot(self) -> None:
        """A unit skips another unit of its slot."""
        places = self.of_slot(14)
        place = self.put_unit(places[5], "previous", "q", places[3])
        self.is_named(f"{place}: expected {places[4]}, the previous unit of its slot, found "
                      f"{places[3]}")

    def test_first_unit(self) -> None:
        """The first unit of a slot refers to a unit of another slot."""
        places = self.of_slot(14)
        place = self.put_unit(places[0], "previous", "q", 0)
        self.is_named(f"{place}: expected -1, because no unit precedes it in its slot, found 0")

    def test_no_unit(self) -> None:
        """A unit that is torn, and units that are zeros."""
        places = self.of_slot(14)
        place = self.put_unit(places[5], "size", "i", 51)
        [line] = check(self.root)[0]
        self.assertTrue(line.startswith(f"{place}: expected a unit of 52 bytes, found 00000033 "))
        for position in places[6:8]:
            path, at = self.log_place(position)
            self.put(path, at, bytes(UNIT_SIZE))
        lines = check(self.root)[0]
        path, at = self.log_place(places[6])
        self.assertEqual(lines[1:], [
            f"timerlog/{path.name} byte {at}: expected a unit of 52 bytes, found zeros",
            f"timerlog/{path.name} byte {at}: the same 1 more times behind it"])

    def test_a_unit_that_leads_to_no_record(self) -> None:
        """A unit refers to no record, or to a position after the log."""
        unit = dict(self.units())[self.of_slot(14)[2]]
        position = self.of_slot(14)[2]
        for wrong, found in ((unit.log_offset + 1, "no record starts there"),
                             (1 << 40, "no file of the log that has this place")):
            place = self.put_unit(position, "log_offset", "q", wrong)
            [line] = check(self.root)[0]
            self.assertIn(f"{place}: expected the place of a message, ", line)
            self.assertIn(f"found {wrong}, {found}", line)
        self.put_unit(position, "log_offset", "q", unit.log_offset)
        self.is_named()

    def test_place_of_another_topic(self) -> None:
        """A unit refers to a delivered message."""
        delivered = self.root / "consumequeue" / "T" / "1" / f"{0:020d}"
        place_of = int.from_bytes(delivered.read_bytes()[:8], "big")
        place = self.put_unit(self.of_slot(14)[2], "log_offset", "q", place_of)
        self.is_named(f"{place}: expected the place of a message of {TIMER_TOPIC}, found "
                      f"{place_of}, a record of T")

    def test_message_size(self) -> None:
        """A unit has another size than its message."""
        position = self.of_slot(14)[2]
        size = dict(self.units())[position].message_size
        place = self.put_unit(position, "message_size", "i", size + 1)
        self.is_named(f"{place}: expected the message's size {size}, found {size + 1}")

    def test_topic_hash(self) -> None:
        """A unit has another topic; Java's hash of T is 84."""
        place = self.put_unit(self.of_slot(14)[2], "topic_hash", "i", 85)
        self.is_named(f"{place}: expected the code 84 of topic 'T', found 85")

    def test_a_unit_that_takes_a_message_back_where_the_message_does_not(self) -> None:
        """A unit recalls although its message does not; the count is wrong as well."""
        places = self.of_slot(14)
        place = self.put_unit(places[2], "magic", "i", 1 | MAGIC_DELETE)
        at = self.slot_of(places[2])[0]
        self.is_named(
            f"{place}: expected a unit that is a message, found magic 5",
            f"timerwheel byte {at + 24}: expected count to be 10, as its units show (slot of "
            f"{self.slot_of(places[2])[1]} ticks), found 12")

    def test_a_unit_in_the_wrong_slot_is_found(self) -> None:
        """A unit, alone in its slot, has another time: it is in no slot, and its slot is empty."""
        position, unit = next((p, u) for p, u in self.units()
                              if p not in self.of_slot(14) and not u.is_rolled and p > 0)
        at, ticks, _ = self.slot_of(position)
        place = self.put_unit(position, "write_ms", "q", unit.write_ms + 900_000)
        lines = check(self.root)[0]
        self.assertEqual(lines[0], (
            f"{place}: expected a time whose sum with the delay is the message's "
            f"{unit.slot_ms}, found {unit.write_ms + 900_000} and {unit.delay_ms}"))
        self.assertEqual(lines[1], (
            f"timerwheel byte {at + 16}: expected last to be the slot's newest unit, none (slot of "
            f"{ticks} ticks), found {position}"))
        self.assertIn(f"leads to the unit at {position}, found none", lines[2])
        self.assertEqual(len(lines), 3)

    # --- files of the log

    def test_missing_file(self) -> None:
        """A file in the middle is missing; references into it are named as well."""
        (self.root / "timerlog" / f"{LOG_FILE_SIZE:020d}").unlink()
        self.assertIn(f"timerlog/{LOG_FILE_SIZE:020d}: expected a file, found none",
                      check(self.root)[0])

    def test_a_file_of_another_length_is_found(self) -> None:
        """A file of another length."""
        path = self.root / "timerlog" / f"{LOG_FILE_SIZE:020d}"
        path.write_bytes(path.read_bytes()[:330])
        self.is_named(f"timerlog/{path.name}: expected 340 bytes as the others have, found 330 "
                      "bytes")

    def test_a_wrong_mark_at_the_end_of_a_file_is_found(self) -> None:
        """The mark at the end of a file is wrong."""
        self.put(self.root / "timerlog" / f"{LOG_FILE_SIZE:020d}", 312, b"\1")
        [line] = check(self.root)[0]
        self.assertTrue(line.startswith(
            f"timerlog/{LOG_FILE_SIZE:020d} byte 312: expected the blank 0000001c 00000000 "), line)

    # --- the wheel

    def test_a_slot_that_leads_to_an_older_unit_of_its_own(self) -> None:
        """A slot refers to an older unit of its own, and to a unit of another slot."""
        places = self.of_slot(14)
        at, ticks, _ = self.slot_of(places[0])
        for wrong in (places[-2], 0, 7):
            self.put(self.root / "timerwheel", at + 16, struct.pack(">q", wrong))
            self.is_named(f"timerwheel byte {at + 16}: expected last to be the slot's newest unit, "
                          f"the one at {places[-1]} (slot of {ticks} ticks), found {wrong}")

    def test_a_slot_that_says_another_first_unit(self) -> None:
        """A slot has another first unit."""
        places = self.of_slot(14)
        at, ticks, _ = self.slot_of(places[0])
        self.put(self.root / "timerwheel", at + SLOT_FIELD_POSITIONS["first"],
                 struct.pack(">q", places[1]))
        self.is_named(f"timerwheel byte {at + 8}: expected first to be {places[0]}, as its units "
                      f"show (slot of {ticks} ticks), found {places[1]}")

    def test_a_slot_that_says_another_number(self) -> None:
        """A slot has another count: thirteen units, of which one recalls."""
        at, ticks, slot = self.slot_of(self.of_slot(14)[0])
        self.assertEqual(slot.count, 12)
        self.put(self.root / "timerwheel", at + 24, struct.pack(">i", 11))
        self.is_named(f"timerwheel byte {at + 24}: expected count to be 12, as its units show "
                      f"(slot of {ticks} ticks), found 11")

    def test_counts_of_apache(self) -> None:
        """Apache's recovery sets no counts: without our mark another one is a number only."""
        at = self.slot_of(self.of_slot(14)[0])[0]
        self.put(self.root / "timerwheel", at + 24, struct.pack(">i", 11))
        self.put(self.root / CHECK_POINT, 64, bytes(8))
        lines, report = check(self.root)
        self.assertEqual(lines, [])
        self.assertEqual([count for name, count in report.counts.items() if "Apache" in name], [1])

    def test_lost_slot(self) -> None:
        """A slot is all zeros."""
        places = self.of_slot(14)
        at, ticks, _ = self.slot_of(places[0])
        self.put(self.root / "timerwheel", at, bytes(32))
        self.is_named(f"timerwheel byte {at}: expected a slot of {ticks} ticks that leads to the "
                      f"unit at {places[-1]}, found none")

    def test_time_of_slot(self) -> None:
        """A slot has the time of another one."""
        places = self.of_slot(14)
        at, ticks, _ = self.slot_of(places[0])
        self.put(self.root / "timerwheel", at, struct.pack(">q", ticks + 1))
        self.assertEqual(check(self.root)[0][0], f"timerwheel byte {at}: expected a time of slot "
                         f"{at // 32}, found {ticks + 1} ticks")

    def test_length_of_wheel(self) -> None:
        """The wheel has another length, or is missing."""
        path = self.root / "timerwheel"
        path.write_bytes(path.read_bytes()[:-32])
        self.is_named(f"timerwheel: expected {WHEEL_SIZE} bytes, found {WHEEL_SIZE - 32} bytes")
        path.unlink()
        self.is_named("timerwheel: expected a wheel, found none")

    # --- check point and metrics

    def value(self, index: int) -> int:
        """A value of the check point is wrong."""
        data = (self.root / CHECK_POINT).read_bytes()
        return int.from_bytes(data[index * 8:index * 8 + 8], "big", signed=True)

    def set_value(self, index: int, value: int) -> None:
        """Change a value of the check point, and our mark's copy of it."""
        for begin in (0, 80):
            self.put(self.root / CHECK_POINT, begin + index * 8, struct.pack(">q", value))

    def test_ahead_of_log(self) -> None:
        """The check point is after the last unit."""
        end = self.units()[-1][0] + UNIT_SIZE
        self.assertEqual(self.value(1), end)
        self.set_value(1, end + UNIT_SIZE)
        self.is_named(f"{CHECK_POINT} byte 8: expected last_timer_log_flush_position to be no "
                      f"position after the timer log's last unit, which ends at {end}, found "
                      f"{end + UNIT_SIZE}")

    def test_behind_log(self) -> None:
        """The check point of a clean stop is before the end."""
        end = self.value(1)
        self.set_value(1, end - UNIT_SIZE)
        self.is_named(f"{CHECK_POINT} byte 8: expected last_timer_log_flush_position to be the end "
                      f"of the timer log's last unit, {end}, found {end - UNIT_SIZE}")

    def test_ahead_of_queue(self) -> None:
        """The check point is after the end of the timer topic."""
        end = self.value(2)
        for index, name in ((2, "last_timer_queue_offset"), (3, "master_timer_queue_offset")):
            self.set_value(index, end + 1)
            self.is_named(f"{CHECK_POINT} byte {index * 8}: expected {name} to be no offset after "
                          f"the end of {TIMER_TOPIC}, {end}, found {end + 1}")
            self.set_value(index, end)

    def test_impossible_value(self) -> None:
        """A value is negative."""
        self.set_value(6, -5)
        self.is_named(f"{CHECK_POINT} byte 48: expected counter to be a number that is not "
                      "negative, found -5")

    def test_no_checkpoint(self) -> None:
        """The check point is too short or missing."""
        path = self.root / CHECK_POINT
        path.write_bytes(path.read_bytes()[:40])
        self.assertIn(f"{CHECK_POINT}: expected 4096 bytes, found 40 bytes", check(self.root)[0])
        path.unlink()
        self.assertIn(f"{CHECK_POINT}: expected a check point, found none", check(self.root)[0])

    def test_metrics_that_are_no_json(self) -> None:
        """The metrics are no JSON, or of another kind; an empty file has its backup."""
        path = self.root / "config" / "timermetrics"
        whole = path.read_bytes()
        for wrong in (whole[:-5], b'{"timingCount":[]}', b""):
            path.write_bytes(wrong)
            path.with_name("timermetrics.bak").unlink(missing_ok=True)
            [line] = check(self.root)[0]
            self.assertTrue(line.startswith("config/timermetrics: expected JSON, found "), msg=line)
        path.with_name("timermetrics.bak").write_bytes(whole)
        self.is_named()
