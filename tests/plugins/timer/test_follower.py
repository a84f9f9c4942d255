"""The timers of a slave, which enters messages as its master does and delivers none."""

from __future__ import annotations

from twisted.logger import capturedLogs

from tests.kernel_case import error_lines, flip, run_task
from tests.plugins.timer.case import SAVE
from tests.plugins.timer.follower_case import SLAVE, FollowingCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins.timer.checkpoint import TimerCheckpoint
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import StoreError, WireError
from twistmq.protocol.record import decode_record


class FollowingTests(FollowingCase):
    """A slave, and a slave that is promoted."""

    def test_a_slave_enters_what_its_master_entered_and_delivers_nothing(self) -> None:
        """The slave has the same slots as its master, and does not deliver messages itself."""
        for number in range(300):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1500 + number % 3 * 1000))
        self.turn()
        self.copy()
        ours, theirs = self.slave_service, self.service
        self.assertEqual(ours.enqueue.offset, 300)
        self.assertEqual({time: slot.count for time, slot in ours.wheel.slots.items()},
                         {time: slot.count for time, slot in theirs.wheel.slots.items()})
        self.assertEqual(ours.metrics.count("T"), 300)
        self.slave_turns(5000)
        self.assertEqual(self.slave_bodies(), [])

    def test_nothing_is_entered_that_the_master_has_not_entered(self) -> None:
        """The queue offset in the check point is the limit."""
        self.send(b"a", TIMER_DELAY_MS="5000")
        self.copy()
        self.assertEqual(self.slave_service.wheel.count, 0)
        self.turn()
        self.copy()
        self.assertEqual(self.slave_service.wheel.count, 1)

    def test_a_check_point_that_comes_before_the_load_is_kept(self) -> None:
        """The load of the files does not overwrite the master's progress."""
        self.send(b"a", TIMER_DELAY_MS="5000")
        self.turn()
        run_task(self.box, SAVE)
        self.copy_log()
        for table in self.tables():
            table.take(self.box.ask(table.code).body)
        self.slave_service.following.begin()
        self.slave_turn()
        self.assertEqual(self.slave_service.wheel.count, 1)

    def test_a_promoted_slave_delivers_the_rest_once(self) -> None:
        """A message that the master delivered before the last copy is not delivered again."""
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1000 * (number + 1)))
        self.turns(4500)
        self.copy()
        self.slave.now_ms = self.box.now_ms
        before = self.slave_bodies()
        self.assertEqual(before, self.bodies())
        self.assertTrue(2 < len(before) < 8)
        self.promote()
        self.slave_turns(10_000)
        self.assertEqual(self.slave_bodies(), [b"%d" % number for number in range(10)])

    def test_a_slave_is_given_the_check_point_of_the_moment(self) -> None:
        """A message that was delivered since the last save is not delivered again."""
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1000 * (number + 1)))
        run_task(self.box, SAVE)
        self.turns(4500)
        self.copy_log()
        for table in self.tables():
            table.take(self.box.ask(table.code).body)
        self.slave.now_ms = self.box.now_ms
        self.assertTrue(2 < len(self.slave_bodies()) < 8)
        self.promote()
        self.slave_turns(10_000)
        self.assertEqual(self.slave_bodies(), [b"%d" % number for number in range(10)])

    def test_what_a_lost_master_delivered_last_does_not_come_again(self) -> None:
        """The slave finds the delivery in its log, although the last check point lacks it."""
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1000 * (number + 1)))
        # Twice the same message: each of them comes.
        for _ in range(2):
            self.send(b"same", UNIQ_KEY="same", TIMER_DELAY_MS="4000")
        self.turns(1500)
        self.copy()
        self.copy()
        self.turns(3000)
        self.send(b"late", TIMER_DELAY_MS="500")
        self.copy_log()
        self.slave.now_ms = self.box.now_ms
        before = self.slave_bodies()
        self.assertEqual((len(before), before.count(b"same")), (6, 2))
        self.promote()
        self.slave_turns(10_000)
        self.assertEqual(sorted(self.slave_bodies()), sorted(
            [b"%d" % number for number in range(10)] + [b"same", b"same", b"late"]))

    def test_a_damaged_delivery_of_a_lost_master(self) -> None:
        """Only that message is delivered twice; the other deliveries are found."""
        for number in range(5):
            self.send(b"%d" % number, TIMER_DELAY_MS="1500")
        self.turn()
        self.copy()
        self.copy()
        self.turns(3000)
        self.copy_log()
        self.slave.now_ms = self.box.now_ms
        place = flip(self.slave, "T", 1, 1, "body")
        self.promote()
        with capturedLogs() as events:
            self.slave_turns(5000)
        found = self.slave.kernel.store.get_message("T", 1, 0, 32).messages
        bodies = [decode_record(data, 0, False).body for data in found]
        self.assertEqual((bodies[0], bodies[2:]), (b"0", [b"2", b"3", b"4", b"1"]))
        [line] = error_lines(events)
        self.assertIn(f"the message at {place} of the commit log cannot be read, so it "
                      "may be delivered twice if it was a timed message", line)

    def test_what_a_lost_master_rolled_last_comes_once(self) -> None:
        """The message is in the timer topic again."""
        settings = {"timerRollWindowSlot": "20"}
        self.restart(**settings)
        self.slave.stop()
        self.slave = KernelBox(self.plugins, {**settings, **SLAVE}, self.slave_disk)
        self.slave.now_ms = self.box.now_ms
        self.send(b"far", TIMER_DELAY_MS="30000")
        self.turn()
        self.copy()
        self.copy()
        while len(self.waiting()) == 1:
            self.turn(100)
        self.copy_log()
        self.slave.now_ms = self.box.now_ms
        self.promote()
        self.slave_turns(40_000)
        self.assertEqual(self.slave_bodies(), [b"far"])

    def test_a_promoted_slave_first_enters_what_its_master_had_entered(self) -> None:
        """A message that was delivered there does not count as late; a new one is entered."""
        for number in range(400):
            self.send(b"%d" % number, TIMER_DELAY_MS="1000" if number % 2 else "9000")
        self.turns(3000)
        run_task(self.box, SAVE)
        self.send(b"new", TIMER_DELAY_MS="2000")
        self.copy_log()
        for table in self.tables():
            table.take(self.box.ask(table.code).body)
        self.slave.now_ms = self.box.now_ms
        self.assertEqual(self.slave_service.enqueue.offset, 0)
        self.promote()
        self.slave_turns(12_000)
        bodies = self.slave_bodies()
        self.assertEqual(len(bodies), 401)
        self.assertEqual(len(set(bodies)), 401)

    def test_a_restarted_slave_goes_on(self) -> None:
        """The wheel is restored, and no message is lost or delivered twice."""
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1000 * (number + 1)))
        self.turns(3000)
        self.copy()
        self.slave.stop()
        now_ms = self.box.now_ms
        self.slave = KernelBox(self.plugins, {**self.settings, **SLAVE}, self.slave_disk)
        self.slave.now_ms = now_ms
        self.assertGreater(self.slave_service.wheel.count, 0)
        self.copy()
        self.promote()
        self.slave_turns(12_000)
        self.assertEqual(sorted(self.slave_bodies()), sorted(b"%d" % n for n in range(10)))

    def test_a_killed_slave_has_saved_what_its_master_delivered(self) -> None:
        """It is promoted without a copy of its master, and delivers only the rest."""
        for number in range(4):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(3000 * (number + 1)))
        self.turn()
        self.copy()
        run_task(self.slave, SAVE)
        self.turns(7500)
        self.slave.now_ms = self.box.now_ms
        self.copy()
        run_task(self.slave, SAVE)
        before = self.slave_bodies()
        self.assertEqual(before, [b"0", b"1"])
        self.slave.kernel.store.close()
        self.slave_disk.forget_locks()
        self.slave = KernelBox(self.plugins, {**self.settings, **SLAVE}, self.slave_disk)
        self.slave.now_ms = self.box.now_ms
        self.promote()
        self.slave_turns(10_000)
        self.assertEqual(self.slave_bodies(), [b"%d" % number for number in range(4)])

    def test_rolled_messages_come_once(self) -> None:
        """A slave rolls no message before its master does, and recognises rolled messages."""
        settings = {"timerRollWindowSlot": "20"}
        self.restart(**settings)
        self.slave.stop()
        self.slave = KernelBox(self.plugins, {**settings, **SLAVE}, self.slave_disk)
        self.slave.now_ms = self.box.now_ms
        self.send(b"far", TIMER_DELAY_MS="90000")
        for _ in range(4):
            self.turns(10_000)
            self.slave.now_ms = self.box.now_ms
            self.copy()
        self.assertGreater(len(self.waiting()), 1)
        self.promote()
        self.slave_turns(150_000)
        self.assertEqual(self.slave_bodies(), [b"far"])

    def test_a_master_that_becomes_a_slave_puts_back_what_the_other_has_not_delivered(self) -> None:
        """Its own deliveries may be removed with the end of its log."""
        for number in range(4):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1000 * (number + 1)))
        self.turn()
        self.copy()
        values = TimerCheckpoint.decode(self.box.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        self.promote()
        self.slave_turns(3000)
        self.assertEqual(len(self.slave_bodies()), 3)
        self.slave.kernel.set_role("SLAVE", 1)
        self.slave_service.following.take(values.encode())
        self.slave_turn()
        self.assertEqual(self.slave_service.wheel.count, 4)

    def test_a_master_that_becomes_a_slave_tells_where_it_was(self) -> None:
        """Its check point is saved immediately, so the new master delivers nothing twice."""
        for number in range(4):
            self.send(b"%d" % number, TIMER_DELAY_MS=str(1000 * (number + 1)))
        self.turns(500)
        self.copy()
        self.turns(2000)
        self.box.kernel.set_role("SLAVE", 1)
        self.copy_log()
        for table in self.tables():
            table.take(self.box.ask(table.code).body)
        self.slave.now_ms = self.box.now_ms
        self.promote()
        self.slave_turns(4000)
        self.assertEqual(self.slave_bodies(), [b"0", b"1", b"2", b"3"])

    def test_a_check_point_that_is_behind_moves_nothing(self) -> None:
        """Messages that only this broker has entered remain, whatever time the
        other one reached.
        """
        self.slave.kernel.set_role("ASYNC_MASTER", 0)
        self.send(b"x", TIMER_DELAY_MS="3000")
        self.copy_log()
        self.slave_turn()
        self.assertEqual(self.slave_service.wheel.count, 1)
        self.slave.kernel.set_role("SLAVE", 1)
        self.slave_service.following.take(
            TimerCheckpoint(self.box.now_ms + 60_000, 0, 0, 0).encode())
        self.slave_turn()
        self.assertEqual(self.slave_service.wheel.count, 1)

    def test_bad_answers_change_nothing(self) -> None:
        """A body is too short, or has impossible values."""
        self.send(TIMER_DELAY_MS="3000")
        self.turn()
        self.copy()
        checkpoint, counts = self.tables()
        for bad in (b"", bytes(55), TimerCheckpoint(-1).encode(),
                    TimerCheckpoint(0, 0, 0, -1).encode(),
                    TimerCheckpoint(2**63 - 1, 0, 0, 0).encode(),
                    TimerCheckpoint(self.slave.now_ms + 3_700_000, 0, 0, 0).encode()):
            self.assertRaises(WireError, checkpoint.take, bad)
        for bad in (b"", b"[]", b'{"timingCount":{"T":3}}'):
            self.assertRaises(WireError, counts.take, bad)
        self.assertEqual(self.slave_service.wheel.count, 1)
        self.assertEqual(self.slave_service.metrics.count("T"), 1)

    def test_a_version_that_leaves_no_room_wraps_around(self) -> None:
        """The promoted slave counts more changes, and writes its check point."""
        self.send(TIMER_DELAY_MS="3000")
        self.turn()
        self.copy()
        checkpoint, _ = self.tables()
        theirs = TimerCheckpoint.decode(self.box.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        theirs.counter = 2**63 - 1
        checkpoint.take(theirs.encode())
        self.promote()
        self.slave_turns(4000)
        run_task(self.slave, SAVE)
        ours = TimerCheckpoint.decode(self.slave.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        self.assertLess(ours.counter, -(2**62))
        self.assertEqual(len(self.slave_bodies()), 1)

    def test_the_answer_of_a_slave_has_the_version_of_its_master(self) -> None:
        """The check point of a slave counts no changes of its own."""
        self.send(TIMER_DELAY_MS="3000")
        self.turn()
        self.copy()
        theirs = TimerCheckpoint.decode(self.box.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        ours = TimerCheckpoint.decode(self.slave.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        self.assertEqual(ours.counter, theirs.counter)
        self.assertEqual(ours.timestamp, theirs.timestamp)

    def test_a_timer_log_that_cannot_be_written_is_tried_again(self) -> None:
        """Nothing is skipped."""
        self.send(TIMER_DELAY_MS="3000")
        self.turn()
        run_task(self.box, SAVE)
        self.copy_log()
        write = self.slave_service.timer_log.write

        def failing(units: object) -> None:
            raise StoreError("no room")

        self.slave_service.timer_log.write = failing  # type: ignore[method-assign,assignment]
        self.copy(log=False)
        self.assertEqual(self.slave_service.enqueue.offset, 0)
        self.slave_service.timer_log.write = write  # type: ignore[method-assign]
        self.slave_turn()
        self.assertEqual(self.slave_service.wheel.count, 1)
