"""Restarts after a stop or a kill, of this broker or of Apache's."""

from __future__ import annotations

import errno
from dataclasses import replace

from twisted.logger import capturedLogs

from tests.kernel_case import DAMAGED_PARTS, error_lines, flip
from tests.plugins.timer.case import TimerTestCase
from twistmq.plugins.timer.checkpoint import CLEAN, RUNNING, TimerCheckpoint, TimerCheckpointFile
from twistmq.plugins.timer.log_unit import UNIT_SIZE
from twistmq.protocol.topic_names import TIMER_TOPIC

WHEEL, CHECK = "/store/timerwheel", "/store/config/timercheck"


class RecoveryTests(TimerTestCase):
    """A store with ten messages: five due soon, five later."""

    #: Eight units a file.
    settings = {"mappedFileSizeTimerLog": str(8 * UNIT_SIZE + 20)}  # noqa: RUF012

    def fill(self) -> None:
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS="1500" if number < 5 else "8500")
        self.turn()

    def assert_all_come(self, *twice: int) -> None:
        self.turns(12_000)
        self.assertEqual(sorted(self.bodies()), sorted(
            b"%d" % number for number in (*range(10), *twice)))

    def as_apache(self, **changes: int) -> None:
        """Rewrite the check point as Apache's broker would."""
        values = TimerCheckpoint.decode(self.disk.read_file(CHECK))
        for name, value in changes.items():
            setattr(values, name, value)
        self.disk.write_file(CHECK, values.encode().ljust(4096, b"\0"))

    def test_clean_stop(self) -> None:
        """Everything is as before, and the wheel is used as it was saved."""
        self.fill()
        slots = dict(self.service.wheel.slots)
        self.box.stop()
        self.assertEqual(self.disk.read_file(CHECK)[64:76], b"twistmq\0\0\0\0\x02")
        self.box = self.start()
        self.assertEqual(self.service.wheel.slots, slots)
        self.assertEqual(self.service.enqueue.offset, 10)
        # From now on only a stop is clean.
        self.assertEqual(self.disk.read_file(CHECK)[72:76], b"\0\0\0\x01")
        self.assert_all_come()

    def test_killed_before_it_was_saved(self) -> None:
        """Messages entered since the last check point are entered again, and none twice."""
        self.fill()
        self.after_kill()
        self.assertEqual((self.service.enqueue.offset, self.service.timer_log.end), (0, 0))
        self.turn()
        self.assertEqual(self.service.wheel.count, 10)
        self.assert_all_come()

    def test_killed_after_it_was_saved(self) -> None:
        """The broker continues at the check point; the wheel is rebuilt from the log."""
        self.fill()
        self.save()
        slots = dict(self.service.wheel.slots)
        self.disk.remove(WHEEL)
        self.after_kill()
        self.assertEqual(self.service.enqueue.offset, 10)
        self.assertEqual(self.service.wheel.slots, slots)
        self.assert_all_come()

    def test_killed_between_wheel_and_check_point(self) -> None:
        """A slot of a message that is entered again with another time is not left over.

        Its unit's place is another message's then, which would come with that slot: too early.
        """
        self.restart(timerRollWindowSlot="6")
        self.box.now_ms += 1000 - self.box.now_ms % 1000
        self.send(b"soon", TIMER_DELAY_MS="1500")
        self.send(b"far", TIMER_DELAY_MS="20000")
        self.turns(2000)
        due_ms = self.box.now_ms + 5900
        self.send(b"later", TIMER_DELAY_MS="5900")
        self.turn()
        # Of a save, the wheel; then the kill.
        self.service.timer_log.sync_job()()
        self.service.wheel.write_job()[0]()
        self.box.now_ms += 2000
        self.after_kill(timerRollWindowSlot="6")
        self.turn()
        self.save()
        self.restart(timerRollWindowSlot="6")
        self.assertEqual(self.service.wheel.count, 2)
        while self.box.now_ms + 100 < due_ms:
            self.turns(100)
            self.assertEqual(set(self.bodies()), {b"soon"})
        self.turns(20_000)
        # What had come before the kill comes twice.
        self.assertEqual(self.bodies(), [b"soon", b"soon", b"later", b"far"])

    def test_killed_after_deliveries(self) -> None:
        """Only messages delivered since the last check point are delivered twice."""
        self.fill()
        self.save()
        self.turns(3000)
        self.assertEqual(len(self.bodies()), 5)
        self.after_kill()
        self.assert_all_come(*range(5))

    def test_killed_after_saved_deliveries(self) -> None:
        """No message is delivered twice."""
        self.fill()
        self.turns(3000)
        self.save()
        self.after_kill()
        self.assert_all_come()

    def test_files_without_end(self) -> None:
        """After kills and stops in turn, no message is lost or delivered twice."""
        sent = 0
        for number in range(12):
            for _ in range(3):
                self.send(b"%d" % sent, TIMER_DELAY_MS="60000")
                sent += 1
            self.turns(300)
            self.save()
            if number % 2:
                self.restart()
            else:
                self.after_kill()
        self.assertEqual(self.service.wheel.count, sent)
        self.turns(70_000)
        self.assertEqual(self.bodies(), [b"%d" % each for each in range(sent)])

    def test_one_damaged_message(self) -> None:
        """The log is followed past it, and the broker starts."""
        for number, part in enumerate(DAMAGED_PARTS):
            self.fill()
            self.box.stop()
            self.disk.remove(WHEEL)
            self.as_apache(last_timer_log_flush_position=2 * UNIT_SIZE)
            flip(self.box, TIMER_TOPIC, 0, 10 * number + 7, part)
            self.box = self.start()
            begin = len(self.bodies())
            with capturedLogs() as events:
                self.turns(12_000)
            self.assertEqual(sorted(self.bodies()[begin:]), [
                b"%d" % number for number in range(10) if number != 7])
            self.assertTrue(error_lines(events))

    def test_after_a_stop_of_apaches(self) -> None:
        """Its check point and its wheel are older than its log, so the log counts."""
        self.fill()
        self.box.stop()
        self.disk.remove(WHEEL)
        self.as_apache(last_timer_log_flush_position=2 * UNIT_SIZE)
        self.box = self.start()
        self.assertEqual((self.service.enqueue.offset, self.service.wheel.count), (10, 10))
        self.assert_all_come()

    def test_after_a_kill_of_apaches(self) -> None:
        """Messages in the log are not entered again, although the check point lacks them."""
        self.fill()
        self.box.stop()
        self.as_apache(last_timer_log_flush_position=0, master_timer_queue_offset=3)
        self.box = self.start()
        self.assertEqual(self.service.enqueue.offset, 3)
        self.assertEqual(len(self.service.enqueue.known_log_offsets), 7)
        self.turn()
        self.assertEqual((self.service.wheel.count, self.service.enqueue.known_log_offsets),
                         (10, set()))
        self.assert_all_come()

    def test_after_apaches_whose_log_is_behind(self) -> None:
        """The broker continues after the last unit that exists."""
        self.fill()
        end = self.service.timer_log.end
        self.box.stop()
        self.as_apache()
        for path, at in ((f"/store/timerlog/{8 * UNIT_SIZE + 20:020d}", 0),):
            self.disk.clear_from(path, at)
        self.box = self.start()
        self.assertEqual((self.service.enqueue.offset, self.service.wheel.count), (8, 8))
        self.turn()
        self.assertEqual(self.service.timer_log.end, end)
        self.assert_all_come()

    def test_garbage_behind_the_log(self) -> None:
        """Units of messages that do not exist, or have no time, end the log."""
        self.fill()
        good = self.service.timer_log.unit(0)
        assert good is not None
        for bad in (good._replace(log_offset=good.log_offset + 1), good._replace(message_size=5),
                    good._replace(previous=5000, log_offset=good.log_offset)):
            self.box.stop()
            self.as_apache()
            box_log = self.service.timer_log
            box_log.load()
            box_log.resume(self.end_of_log())
            box_log.write([(box_log.next_position(box_log.end), bad)])
            box_log.close()
            self.box = self.start()
            self.assertEqual(self.service.timer_log.end, self.end_of_log(), msg=bad)
        self.assert_all_come()

    def end_of_log(self) -> int:
        return 8 * UNIT_SIZE + 20 + 2 * UNIT_SIZE

    def test_check_point_that_is_lost(self) -> None:
        """Messages are entered again, except those that are in the log."""
        self.fill()
        self.box.stop()
        self.disk.remove(CHECK)
        self.box = self.start()
        self.turn()
        self.assertEqual(self.service.wheel.count, 10)
        self.assert_all_come()

    def test_log_that_is_lost(self) -> None:
        """As Apache's broker does, this one continues after the entered messages,
        which are lost.
        """
        self.fill()
        self.box.stop()
        self.disk.remove("/store/timerlog")
        self.box = self.start()
        self.assertEqual((self.service.timer_log.end, self.service.enqueue.offset), (0, 10))
        self.send(b"new", TIMER_DELAY_MS="1500")
        self.turns(3000)
        self.assertEqual(self.bodies(), [b"new"])

    def test_other_ticks(self) -> None:
        """The wheel is in ticks, the log in milliseconds."""
        self.fill()
        self.restart(timerPrecisionMs="100")
        self.assertEqual(self.service.wheel.count, 10)
        self.assert_all_come()

    def test_down_for_long(self) -> None:
        """Messages that became due are delivered late, in the order of their times."""
        self.fill()
        self.box.stop()
        self.box.now_ms += 20 * 86_400_000
        self.box = self.start()
        self.turn()
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(10)])

    def test_old_files(self) -> None:
        """Files are deleted together with the messages to which they refer."""
        self.fill()
        [first] = [unit for _, unit in self.service.timer_log.units(7 * UNIT_SIZE, 8 * UNIT_SIZE)]
        self.run_task("remove old timer log files")
        self.assertEqual(self.service.timer_log.begin, 0)
        self.patch(type(self.box.kernel.store.commit_log), "min_offset", first.log_offset + 1)
        self.run_task("remove old timer log files")
        self.assertEqual(self.service.timer_log.begin, 8 * UNIT_SIZE + 20)

    def test_the_two_are_apart(self) -> None:
        """The queues of the two are separate."""
        self.assertNotEqual(CLEAN, RUNNING)


class BeyondTests(TimerTestCase):
    """A saved offset that is not in the range of the timer topic: apache/rocketmq#1869."""

    def change_check_point(self, **changes: int) -> None:
        """Change the saved check point of a stopped broker."""
        file = TimerCheckpointFile(self.disk, CHECK, self.service.tick_ms)
        file.load()
        file.write(replace(file.values, **changes), file.state)

    def test_what_was_not_entered_comes(self) -> None:
        """The timer log has the offset up to which messages were entered, so none comes twice."""
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS="8500")
        self.turn()
        self.send(b"late", TIMER_DELAY_MS="8500")
        self.box.stop()
        self.change_check_point(last_timer_queue_offset=500, master_timer_queue_offset=500)
        with capturedLogs() as events:
            self.box = self.start()
        self.assertEqual(self.service.enqueue.offset, 10)
        self.assertEqual(error_lines(events), [
            "timed messages continue at 10: the saved offset was 500, the timer topic has 0 to 11; "
            "1 messages are entered again"])
        self.turns(12_000)
        self.assertEqual(sorted(self.bodies()), sorted([b"late", *(b"%d" % n for n in range(10))]))

    def test_more_is_stored_before_the_first_turn(self) -> None:
        """The queue is as long as the saved offset then."""
        self.send(b"old", TIMER_DELAY_MS="8500")
        self.turn()
        self.box.stop()
        self.change_check_point(last_timer_queue_offset=3, master_timer_queue_offset=3)
        self.box = self.start()
        for number in range(5):
            self.send(b"%d" % number, TIMER_DELAY_MS="8500")
        self.turns(12_000)
        self.assertEqual(self.bodies(), [b"old", b"0", b"1", b"2", b"3", b"4"])

    def test_without_the_timer_log(self) -> None:
        """Waiting messages are entered again; due ones are counted and not delivered."""
        for number in range(10):
            self.send(b"%d" % number, TIMER_DELAY_MS="1500" if number < 4 else "8500")
        self.turns(3000)
        self.assertEqual(len(self.bodies()), 4)
        self.box.stop()
        self.disk.remove("/store/timerlog")
        self.change_check_point(last_timer_queue_offset=500, master_timer_queue_offset=500,
                                last_timer_log_flush_position=0)
        with capturedLogs() as events:
            self.box = self.start()
            self.turns(12_000)
        self.assertEqual(sorted(self.bodies()), [b"%d" % number for number in range(10)])
        lines = error_lines(events)
        self.assertIn("10 messages are entered again", lines[0])
        self.assertRegex(lines[1], "^4 messages of .*-0 that were due before .* not delivered")

    def test_messages_that_are_not_in_the_queue_yet(self) -> None:
        """An offset that the rest of the log explains stays, and one beyond the log does not."""
        store, enqueue = self.box.kernel.store, self.service.enqueue
        self.send(b"entered", TIMER_DELAY_MS="8500")
        self.turn()
        # From now on, messages wait in the log until replicas have them.
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        self.send(b"1", TIMER_DELAY_MS="8500")
        self.send(b"not timed")
        self.send(b"2", TIMER_DELAY_MS="8500")
        self.assertEqual(store.queues.max_offset(TIMER_TOPIC, 0), 1)
        for offset in (2, 3):
            enqueue.offset = offset
            enqueue.correct_offset()
            self.assertEqual(enqueue.offset, offset)
        # Units of messages that wait shorten the search.
        timer_log = self.service.timer_log
        unit = timer_log.unit(0)
        assert unit is not None
        for log_offset, size in list(store.raw.messages(store.dispatch.offset))[::2]:
            timer_log.write([(timer_log.end, unit._replace(
                log_offset=log_offset, message_size=size))])
            enqueue.correct_offset()
            self.assertEqual(enqueue.offset, 3)
        enqueue.offset = 4
        with capturedLogs() as events:
            enqueue.correct_offset()
        self.assertEqual((enqueue.offset, len(error_lines(events))), (1, 1))

    def test_a_log_that_cannot_be_read_explains_no_offset(self) -> None:
        """The offset is corrected; dispatching reports the fault of the log."""
        store, enqueue = self.box.kernel.store, self.service.enqueue
        store.dispatch.advance_confirm_offset(0)
        self.send(b"waits", TIMER_DELAY_MS="8500")

        def read_record(offset: int) -> bytes:
            raise OSError(errno.EIO, "bad sector")

        self.patch(store.commit_log, "read_record", read_record)
        enqueue.offset = 1
        with capturedLogs() as events:
            enqueue.correct_offset()
        self.assertEqual((enqueue.offset, len(error_lines(events))), (0, 1))

    def test_messages_that_are_gone(self) -> None:
        """Messages that no longer exist are counted."""
        self.send(b"first", TIMER_DELAY_MS="8500")
        self.turn()
        queue = self.box.kernel.store.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        queue.min_offset, queue.tail_start = 7, 9
        with capturedLogs() as events:
            self.service.enqueue.correct_offset()
        self.assertEqual(error_lines(events), [
            "6 messages of rmq_sys_wheel_timer-0 were removed before they were entered: timed "
            "messages continue at 7, where the queue begins, instead of 1"])

    def test_a_log_that_is_cut(self) -> None:
        """Messages that are stored after the log was cut are entered without a wait for a turn."""
        store = self.box.kernel.store
        self.send(b"kept", TIMER_DELAY_MS="8500")
        end = store.commit_log.max_offset
        for number in range(3):
            self.send(b"lost %d" % number, TIMER_DELAY_MS="8500")
        self.turn()
        self.assertEqual(self.service.enqueue.offset, 4)
        self.successResultOf(store.log_cut.truncate(end))
        self.assertEqual(self.service.enqueue.offset, 1)

    def test_what_a_cut_has_removed_is_not_delivered(self) -> None:
        """Later messages at the same places come once, at their times, and also after a kill."""
        store = self.box.kernel.store
        self.send(b"kept", TIMER_DELAY_MS="8500")
        end = store.commit_log.max_offset
        for number in range(3):
            self.send(b"lost %d" % number, TIMER_DELAY_MS=str(3500 + 5000 * (number % 2)))
        self.turn()
        self.save()
        self.successResultOf(store.log_cut.truncate(end))
        self.assertEqual((self.service.wheel.count, self.service.metrics.count("T")), (1, 1))
        values = TimerCheckpoint.decode(self.disk.read_file(CHECK))
        self.assertEqual((values.last_timer_log_flush_position, values.last_timer_queue_offset),
                         (UNIT_SIZE, 1))
        for number in range(3):
            self.send(b"newer%d" % number, TIMER_DELAY_MS="8500")
        self.turns(5000)
        self.assertEqual((self.bodies(), self.service.wheel.count), ([], 4))
        self.save()
        self.after_kill()
        self.turns(12_000)
        self.assertEqual(self.bodies(), [b"kept", b"newer0", b"newer1", b"newer2"])
