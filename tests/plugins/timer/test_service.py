"""The delivery of timed messages: times, refusals, restarts and faults."""

from __future__ import annotations

from itertools import product

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from tests.kernel_case import DAMAGED_PARTS, error_lines, flip
from tests.plugins.timer.case import SAVE, TURN, TimerTestCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import timer
from twistmq.plugins.timer.checkpoint import RUNNING, TimerCheckpoint, decode_mark
from twistmq.plugins.timer.service import SEARCH_MS, TURN_MS
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused, StoreDamaged, StoreError
from twistmq.protocol.properties import format_properties
from twistmq.protocol.topic_names import TIMER_TOPIC

DAY_MS = 86_400_000


class DeliveryTests(TimerTestCase):
    """The times of deliveries."""

    def come_at(self) -> dict[bytes, int]:
        """Let time pass; :returns: when each message came, ms from now."""
        begin_ms = self.box.now_ms
        found: dict[bytes, int] = {}
        for _ in range(80):
            self.turn(50)
            for body in self.bodies():
                found.setdefault(body, self.box.now_ms - begin_ms)
        return found

    def test_never_early(self) -> None:
        """A message is delivered at the end of the tick that contains its time."""
        for delay_ms in (1, 999, 1000, 1001, 1500, 2000, 2001):
            self.send(b"%d" % delay_ms, TIMER_DELAY_MS=str(delay_ms))
        self.assertEqual(self.come_at(), {
            b"1": 1000, b"999": 1000, b"1000": 1000, b"1001": 2000, b"1500": 2000, b"2000": 2000,
            b"2001": 3000})

    def test_a_topic_that_lost_queues(self) -> None:
        """A message goes to a queue that the topic has, whether it waited or was late."""
        topics = self.box.kernel.topic_config
        topics.update(TopicConfig("T", 8, 8, 6), {})
        for body, delay_ms in ((b"late", "1000"), (b"waiting", "5000")):
            self.send(body, queue_id=6, TIMER_DELAY_MS=delay_ms)
            self.box.now_ms += 3000
        topics.update(TopicConfig("T", 4, 4, 6), {})
        self.turns(9000)
        self.assertEqual((self.bodies(queue_id=2), self.bodies(queue_id=6)),
                         ([b"late", b"waiting"], []))

    def test_by_each_property(self) -> None:
        """The time may be given in seconds, in milliseconds or as a time."""
        self.send(b"seconds", TIMER_DELAY_SEC="2")
        self.send(b"ms", TIMER_DELAY_MS="1000")
        self.send(b"time", TIMER_DELIVER_MS=str(self.box.now_ms + 3000))
        self.assertEqual(self.come_at(), {b"ms": 1000, b"seconds": 2000, b"time": 3000})

    def test_a_time_that_is_over_is_no_delay(self) -> None:
        """A time that is over, or no delay, is an ordinary message."""
        for fields in ({"TIMER_DELAY_SEC": "0"}, {"TIMER_DELAY_MS": "-5"},
                       {"TIMER_DELIVER_MS": "17"}):
            self.send(**fields)
        self.assertEqual(len(self.stored()), 3)
        self.assertNotIn("REAL_TOPIC", self.stored()[0].properties_map())

    def test_shorter_ticks(self) -> None:
        """The setting timerPrecisionMs gives the length of a tick."""
        self.restart(timerPrecisionMs="100")
        self.send(b"a", TIMER_DELAY_MS="130")
        self.send(b"b", TIMER_DELAY_MS="300")
        self.assertEqual(self.come_at(), {b"a": 200, b"b": 300})

    def test_messages_of_one_tick_come_as_they_were_sent(self) -> None:
        """Messages of one tick are delivered in the order of their sends."""
        bodies = [b"%d" % number for number in range(300)]
        for body in bodies:
            self.send(body, TIMER_DELAY_MS="2500")
        self.turns(4000)
        self.assertEqual(self.bodies(), bodies)

    def test_late_to_be_entered(self) -> None:
        """A message that is due when it is entered is delivered immediately."""
        begin_ms = self.box.now_ms
        self.send(TIMER_DELAY_MS="500")
        self.turn(5000)
        [stored] = self.stored()
        self.assertEqual(stored.properties_map()["TIMER_ENQUEUE_MS"], str(begin_ms))

    def test_for_a_tick_that_is_delivered(self) -> None:
        """It is delivered immediately, and its properties say that it was not entered."""
        self.turns(3000)
        self.box.kernel.append([message(TIMER_TOPIC, properties=format_properties({
            "TIMER_OUT_MS": str(self.box.now_ms - 1000), "REAL_TOPIC": "T", "REAL_QID": "1"}))])
        self.turn()
        [stored] = self.stored()
        self.assertEqual(stored.properties_map()["TIMER_ENQUEUE_MS"], str(2**63 - 1))
        self.assertEqual(self.service.timer_log.end, 0)

    def test_deleted_topic(self) -> None:
        """Its messages create no queue; a topic that was created again gets those due later."""
        for topic in ("T", "U", "V"):
            self.send(topic=topic, TIMER_DELAY_MS="2000")
            self.send(topic=topic, TIMER_DELAY_MS="5000")
        kernel = self.box.kernel
        self.turns(500)
        kernel.tables.delete_topic("T")
        kernel.tables.delete_topic("U")
        self.turns(2500)
        self.assertEqual([len(self.bodies(topic)) for topic in ("T", "U", "V")], [0, 0, 1])
        self.assertNotIn("T", kernel.store.queues.ids_by_topic())
        self.assertEqual(self.service.metrics.count("U"), 1)
        kernel.topic_config.update(TopicConfig("U", 4, 4, 6), {})
        self.turns(3000)
        self.assertEqual([len(self.bodies(topic)) for topic in ("T", "U", "V")], [0, 1, 2])

    def test_deleted_topic_of_a_message_beyond_the_wheel(self) -> None:
        """It does not go on waiting, as a message that would be newer than the deletion."""
        self.restart(timerRollWindowSlot="4")
        for topic in ("T", "U"):
            self.send(topic=topic, TIMER_DELAY_MS="20000")
        self.turns(500)
        self.box.kernel.tables.delete_topic("T")
        self.turns(6000)
        self.assertEqual([self.service.metrics.count(topic) for topic in ("T", "U")], [0, 1])
        self.turns(16_000)
        self.assertEqual([len(self.bodies(topic)) for topic in ("T", "U")], [0, 1])

    def test_topic_that_a_kill_made_forgotten(self) -> None:
        """A missing topic that was not deleted gets its messages."""
        self.send(TIMER_DELAY_MS="2000")
        del self.box.kernel.topic_config.table["T"]
        self.turns(3000)
        self.assertEqual(self.bodies(), [b"timed"])

    def test_far_behind_with_entering(self) -> None:
        """A tick waits for the messages that were stored before its end, and not for later ones."""
        for number in range(300):
            self.send(b"%d" % number, TIMER_DELAY_MS="900")
        self.box.now_ms += 1000
        self.service.enqueue.advance(self.box.now_ms)
        self.service.enqueue.step(self.box.now_ms)
        self.service.enqueue.note_ready()
        self.assertFalse(self.service.dequeue.step(self.service.enqueue.ready_ms))
        self.assertEqual(self.bodies(), [])
        for _ in range(300):
            self.send(b"next", TIMER_DELAY_MS="900")
        while self.service.enqueue.offset < 300:
            self.service.enqueue.step(self.box.now_ms)
        self.service.enqueue.note_ready()
        self.assertTrue(self.service.enqueue.backlog)
        while self.service.dequeue.step(self.service.enqueue.ready_ms):
            pass
        self.assertEqual(len(self.bodies()), 300)

    def test_delivered_properties_equal_apaches(self) -> None:
        """A delivered message has the properties that Apache's broker sets."""
        self.send(TIMER_DELAY_MS="2500", UNIQ_KEY="U")
        begin_ms = self.box.now_ms
        self.turns(4000)
        [stored] = self.stored()
        fields = stored.properties_map()
        self.assertEqual((fields["TIMER_OUT_MS"], fields["TIMER_ENQUEUE_MS"],
                          fields["TIMER_DEQUEUE_MS"], fields["REAL_TOPIC"], fields["REAL_QID"]),
                         (str(begin_ms + 2000), str(begin_ms), str(begin_ms + 3000), "T", "1"))
        self.assertEqual(stored.born_timestamp, begin_ms)

    def test_far_ones_are_rolled(self) -> None:
        """They return to the timer topic on their way, and are delivered in time."""
        self.restart(timerRollWindowSlot="6")
        begin_ms = self.box.now_ms
        self.send(b"far", TIMER_DELAY_MS="20000")
        self.send(b"next", TIMER_DELAY_MS="7000")
        for seconds in range(1, 22):
            self.turns(1000)
            self.assertEqual(b"far" in self.bodies(), seconds >= 20)
            self.assertEqual(b"next" in self.bodies(), seconds >= 7)
        times = {each.body: each.properties_map().get("TIMER_ROLL_TIMES")
                 for each in self.stored()}
        # 6 of 19 ticks, then 3 of 12, then 6 of 8; 3 of 6 for the other.
        self.assertEqual(times[b"next"], "1")
        self.assertGreaterEqual(int(times[b"far"] or 0), 2)
        self.assertEqual(len(self.waiting()), 2 + int(times[b"far"] or 0) + 1)
        self.assertEqual({each.properties_map()["TIMER_OUT_MS"] for each in self.waiting()},
                         {str(begin_ms + 19_000), str(begin_ms + 6000)})
        self.assertEqual(self.service.metrics.count("T"), 0)

    def test_stays_between(self) -> None:
        """With a setting nothing is delivered or entered."""
        self.restart(timerStopDequeue="true")
        self.send(TIMER_DELAY_MS="1500")
        self.turns(5000)
        self.assertEqual((self.bodies(), self.service.wheel.count), ([], 1))
        self.restart(timerStopEnqueue="true")
        self.send(b"other", TIMER_DELAY_MS="1500")
        self.turns(5000)
        self.assertEqual(self.bodies(), [b"timed"])
        self.restart()
        self.turn()
        self.assertEqual(self.bodies(), [b"timed", b"other"])

    def test_turns_are_short(self) -> None:
        """A step ends when its time is over, however much work remains."""
        for number in range(400):
            self.send(b"%d" % number, TIMER_DELAY_MS="1500")
        ticks = iter(range(1_000_000))
        begin_ms = self.box.now_ms
        self.box.clock = lambda: begin_ms + next(ticks) // 64
        turns = 0
        while self.service.enqueue.backlog:
            before = self.box.clock()
            self.run_task(TURN)
            self.assertLessEqual(self.box.clock() - before, 4 * TURN_MS)
            turns += 1
        self.assertGreater(turns, 1)

    def test_a_search_of_the_log_leaves_time_for_other_work(self) -> None:
        """A broker that has just become master searches for a part of a turn only."""
        ticks = iter(range(self.box.now_ms, self.box.now_ms + 1000))
        self.box.clock = lambda: next(ticks)
        looks: list[None] = []

        def look_on() -> bool:
            looks.append(None)
            return True

        self.patch(self.service.delivered, "look_on", look_on)
        self.run_task(TURN)
        self.assertLessEqual(len(looks), SEARCH_MS)
        self.assertGreater(len(looks), 0)

    def test_clock_that_goes_back(self) -> None:
        """Messages are delivered by the clock, and none is lost."""
        self.turns(3000)
        self.box.now_ms -= 2000
        self.restart()
        self.send(b"a", TIMER_DELAY_MS="900")
        self.turn()
        self.assertEqual(self.bodies(), [])
        self.turns(1000)
        self.assertEqual(self.bodies(), [b"a"])


class RefusalTests(TimerTestCase):
    """Messages that are refused."""

    def test_too_far(self) -> None:
        """The code and text are Apache's; a time at the limit is accepted."""
        remark = ("timer message illegal, the delay time should not be bigger than the max delay "
                  "259200000ms; or if set del msg, the delay time should be bigger than the "
                  "current time")
        self.send(TIMER_DELAY_MS=str(3 * DAY_MS))
        for fields in ({"TIMER_DELAY_MS": str(3 * DAY_MS + 1)}, {"TIMER_DELAY_SEC": "x"},
                       {"TIMER_DELIVER_MS": str(self.box.now_ms + 3 * DAY_MS + 1)}):
            self.assertEqual(self.refused(**fields),
                             (ResponseCode.MESSAGE_ILLEGAL, remark), msg=fields)

    def test_own_limit(self) -> None:
        """timerMaxDelaySec, by settings that change while it runs too."""
        self.restart(timerMaxDelaySec="10")
        self.send(TIMER_DELAY_SEC="10")
        code, remark = self.refused(TIMER_DELAY_SEC="11")
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("10000ms", remark or "")

    def test_without_the_wheel_times_are_refused(self) -> None:
        """Without the wheel times are refused, as without the plugin."""
        self.restart(timerWheelEnable="false")
        self.assertEqual(self.refused(TIMER_DELAY_SEC="1"), (
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false"))
        for code, remark in ((RequestCode.GET_TIMER_CHECK_POINT, "The checkpoint is null"),
                             (RequestCode.GET_TIMER_METRICS, "The timer message store is null")):
            reply = self.box.ask(code)
            self.assertEqual((reply.code, reply.remark), (ResponseCode.SYSTEM_ERROR, remark))
        self.assertNotIn("timerReadBehind",
                         self.box.kernel.hooks.runtime_info())

    def test_over_the_limit_some_of_a_tick_are_refused(self) -> None:
        """Over the limit some of a tick are refused, the more the fuller, then all."""
        self.restart(timerCongestNumEachSlot="10")
        taken = refused = 0
        for _ in range(300):
            reply = self.ask_send(TIMER_DELAY_MS="5000")
            self.turn()
            if reply.code == ResponseCode.SUCCESS:
                taken += 1
                continue
            refused += 1
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.SYSTEM_ERROR,
                "timer message is under flow control, max num limit is 20 or the current value is "
                "greater than 10 and less than 20, trigger random flow control"))
        self.assertTrue(11 <= taken <= 20, taken)
        self.assertGreater(refused, 250)
        self.send(TIMER_DELAY_MS="6000")

    def test_to_the_timer_topic_itself(self) -> None:
        """The messages of this topic have a meaning for the broker, so clients may
        not send to it.
        """
        reply = self.ask_send(topic=TIMER_TOPIC, queue_id=0)
        self.assertEqual(reply.code, ResponseCode.NO_PERMISSION)

    def test_long_properties(self) -> None:
        """A message that could not be delivered is refused."""
        code, remark = self.refused(TIMER_DELAY_SEC="1", filler="x" * 32_500)
        self.assertEqual(code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("properties of a timed message", remark or "")

    def test_level_wins(self) -> None:
        """A message with a level is not for this plugin."""
        record = message("T", b"x", properties=format_properties(
            {"DELAY": "3", "TIMER_DELAY_SEC": "5"}))
        self.assertIsNone(self.service.before_append([record]))
        self.assertEqual(record.topic, "T")


class FaultTests(TimerTestCase):
    """Disks that fail, and invalid messages."""

    def test_messages_without_meaning(self) -> None:
        """They are skipped, and later messages are delivered."""
        for fields in ({}, {"TIMER_OUT_MS": "soon"}, {"TIMER_OUT_MS": "5"},
                       {"TIMER_OUT_MS": str(self.box.now_ms + 1000), "REAL_TOPIC": "../x"}):
            self.box.kernel.append([message(TIMER_TOPIC, properties=format_properties(fields))])
        self.send(TIMER_DELAY_MS="1500")
        self.turns(3000)
        self.assertEqual(self.bodies(), [b"timed"])
        self.assertEqual(self.service.enqueue.backlog, 0)

    def test_full_disk(self) -> None:
        """Entering and delivering wait for room, and no message is delivered twice."""
        for number in range(5):
            self.send(b"%d" % number, TIMER_DELAY_MS="1500")
        self.disk.room_bytes = 0
        self.turns(1000)
        self.assertEqual((self.service.enqueue.offset, self.service.wheel.count), (0, 0))
        self.disk.room_bytes = None
        self.turn()
        self.assertEqual(self.service.wheel.count, 5)
        self.disk.room_bytes = 0
        self.turns(3000)
        self.save()
        self.assertEqual(self.bodies(), [])
        self.disk.room_bytes = None
        self.turns(200)
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(5)])

    def test_full_disk_when_late(self) -> None:
        """Late messages wait, too, and no check point is saved in the meantime."""
        self.send(b"later", TIMER_DELAY_MS="9500")
        self.turn(3000)
        self.save()
        self.box.kernel.append([message(TIMER_TOPIC, b"late", properties=format_properties({
            "TIMER_OUT_MS": str(self.box.now_ms - 1000), "REAL_TOPIC": "T", "REAL_QID": "1"}))])
        self.disk.room_bytes = 60
        self.run_task(TURN)
        self.assertFalse(self.service.enqueue.is_whole)
        self.save()
        self.assertEqual(self.service.checkpoint.values.last_timer_queue_offset, 1)
        self.disk.room_bytes = None
        self.turns(300)
        self.assertEqual(self.bodies(), [b"late"])
        self.turns(10_000)
        self.assertEqual(self.bodies(), [b"late", b"later"])

    def test_a_message_that_can_never_be_stored_does_not_block_the_rest(self) -> None:
        """A message that a plugin refuses for good does not block others."""
        self.send(b"bad", TIMER_DELAY_MS="1500")
        self.send(b"good", TIMER_DELAY_MS="1500")
        self.turn()
        kernel = self.box.kernel
        append = kernel.append

        def refuse_bad(records: list[object], owners: None = None) -> dict[int, object]:
            illegal = {index: RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "bad")
                       for index, record in enumerate(records) if record.body == b"bad"}
            append([r for index, r in enumerate(records) if index not in illegal])
            return illegal

        self.patch(kernel, "append", refuse_bad)
        self.turns(3000)
        self.assertEqual(self.bodies(), [b"good"])
        self.assertIsNone(self.service.wheel.next_ms)

    def test_unsaved_progress(self) -> None:
        """While the log cannot be synced the check point does not advance; the sync is repeated."""
        self.send(TIMER_DELAY_MS="1500")
        self.turn()
        saved = self.disk.read_file("/store/config/timercheck")
        self.disk.fail_sync_in = 1
        self.save()
        self.assertEqual(self.disk.read_file("/store/config/timercheck"), saved)
        self.disk.fail_sync_in = None
        self.flushLoggedErrors(OSError, StoreError)

    def test_wheel_that_cannot_be_written(self) -> None:
        """It is written later, with the later changes."""
        self.box.kernel.store.flush.flushed(self.box.kernel.store.commit_log.max_offset)
        self.send(TIMER_DELAY_MS="9500")
        self.turn()
        self.disk.room_bytes = 0
        self.save()
        self.assertTrue(self.service.wheel.is_changed)
        self.disk.room_bytes = None
        self.turn(1000)
        self.save()
        self.assertFalse(self.service.wheel.is_changed)

    def test_one_damaged_message(self) -> None:
        """One error names the record that is skipped; the others of its slot are delivered once.

        It is damaged before it is entered, or afterwards.
        """
        for number, (part, entered) in enumerate(product(DAMAGED_PARTS, (False, True))):
            for body in (b"one", b"two", b"three"):
                self.send(body, topic=f"T{number}", TIMER_DELAY_MS="1500")
            if entered:
                self.turn()
            place = flip(self.box, TIMER_TOPIC, 0, 3 * number + 1, part)
            with capturedLogs() as events:
                self.turns(3000)
            self.assertEqual(self.bodies(f"T{number}"), [b"one", b"three"])
            [line] = error_lines(events)
            self.assertIn(f"the timed message of {TIMER_TOPIC}-0 at {place} of the commit log "
                          "cannot be delivered: " if entered else
                          f"message {3 * number + 1} of {TIMER_TOPIC}-0, at {place} of the commit "
                          "log, is skipped: ", line)

    def test_damaged_files_stop_the_start(self) -> None:
        """A wheel of another length, a log of other files."""
        self.box.stop()
        for path, data in (("/store/timerwheel", bytes(64)),
                           (f"/store/timerlog/{0:020d}", bytes(52))):
            self.disk.write_file(path, data)
            error = self.assertRaises(StoreDamaged, self.start)
            self.assertIn(path, str(error))
            self.disk.remove(path)
        self.box = self.start()

    def test_saves_follow_each_other(self) -> None:
        """A stop waits for a save that has begun."""
        held: list[tuple[object, Deferred[None]]] = []
        self.send(TIMER_DELAY_MS="1500")
        self.turn()
        store = self.box.kernel.store
        in_thread = store.in_thread

        def hold(job: object) -> Deferred[None]:
            held.append((job, Deferred()))
            return held[-1][1]

        store.in_thread = hold  # type: ignore[assignment]
        self.run_task(SAVE)
        stopped = self.service.stop()
        assert stopped is not None
        self.assertEqual(len(held), 1)
        store.in_thread = in_thread
        job, done = held[0]
        assert callable(job)
        job()
        done.callback(None)
        self.assertTrue(stopped.called)
        self.assertEqual(self.service.checkpoint.load(), True)
        self.assertEqual(self.service.checkpoint.state, 2)


class FigureTests(TimerTestCase):
    """The reported numbers."""

    def test_runtime_info(self) -> None:
        """The rows are those that mqadmin prints."""
        for _ in range(20):
            self.send(TIMER_DELAY_MS="500")
        for _ in range(5):
            self.send(TIMER_DELAY_MS="9500")
        hooks = self.box.kernel.hooks
        self.assertEqual(hooks.runtime_info(), {
            "timerReadBehind": "0", "timerOffsetBehind": "25", "timerCongestNum": "0",
            "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0"})
        self.turns(2000)
        info = hooks.runtime_info()
        self.assertEqual(
            (info["timerOffsetBehind"], info["timerCongestNum"]), ("0", "5"))
        self.assertEqual((info["timerEnqueueTps"], info["timerDequeueTps"]), ("12.5", "10.0"))
        self.box.now_ms += 7000
        self.assertEqual(hooks.runtime_info()["timerReadBehind"], "7")

    def test_check_point(self) -> None:
        """A slave gets the check point."""
        self.send(TIMER_DELAY_MS="9500")
        self.turn()
        self.save()
        told = TimerCheckpoint.decode(self.box.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        self.assertEqual(told, TimerCheckpoint(
            self.box.now_ms, 52, 1, 1, 0, self.box.now_ms, told.counter))
        self.assertGreater(told.counter, 0)

    def test_nothing_to_save(self) -> None:
        """If nothing changes, nothing is written for a minute."""
        self.turn()
        self.save()
        before = self.disk.sync_count
        for _ in range(50):
            self.turn(1000)
            self.save()
        self.assertEqual(self.disk.sync_count, before)
        self.turn(11_000)
        self.save()
        self.assertGreater(self.disk.sync_count, before)

    def test_a_slave_leaves_delivery_to_its_master(self) -> None:
        """A slave leaves the delivery to its master."""
        self.send(TIMER_DELAY_MS="500")
        self.box.kernel.set_role("SLAVE", 1)
        self.turns(3000)
        self.assertEqual(self.service.enqueue.offset, 0)

    def test_progress_in_the_log(self) -> None:
        """Progress is logged only when the delivery is behind."""
        seen: list[str] = []
        self.patch(self.service, "log", type("Log", (), {
            "info": staticmethod(lambda text, **fields: seen.append(text.format(**fields)))})())
        name = "log the lag of timed messages"
        self.turn()
        self.run_task(name)
        self.send(TIMER_DELAY_MS="500")
        self.run_task(name)
        self.assertEqual(seen, [
            "timed messages: 1 to enter, delivery is 0 ms late, 0 wait"])
        # A slave does not deliver, so it is not late.
        self.box.kernel.set_role("SLAVE", 1)
        self.run_task(name)
        self.assertEqual(len(seen), 1)

    def test_start_that_failed_before(self) -> None:
        """A service that was not loaded is not stopped, and does nothing."""
        service = KernelBox([("timer", timer.Plugin)]).plugin(timer.Plugin).service
        assert service is not None
        service._is_loaded = False
        self.assertIsNone(service.stop())
        service.turn(1)
        self.assertEqual(service.enqueue.write_ms, service.enqueue.write_ms)


class AgreedTests(TimerTestCase):
    """Replicas must confirm the log."""

    def setUp(self) -> None:
        super().setUp()
        self.send(b"first", TIMER_DELAY_MS="1500")
        self.due_ms = self.box.now_ms + 1500
        self.confirm()

    def confirm(self) -> None:
        """Let the replicas have all of the log."""
        dispatch = self.box.kernel.store.dispatch
        dispatch.advance_confirm_offset(self.box.kernel.store.commit_log.max_offset)

    def saved(self) -> TimerCheckpoint:
        return TimerCheckpoint.decode(self.disk.read_file("/store/config/timercheck"))

    def copied(self) -> TimerCheckpoint:
        """Return the check point that another broker of the group gets."""
        return TimerCheckpoint.decode(self.box.ask(RequestCode.GET_TIMER_CHECK_POINT).body)

    def test_progress_waits_for_the_deliveries(self) -> None:
        """Until replicas have the deliveries, another master would have to make them."""
        for _ in range(5):
            self.turns(1000)
            self.save()
        self.assertEqual(self.service.delivered_count, 1)
        for check_point in (self.saved(), self.copied()):
            self.assertLess(check_point.last_read_ms, self.due_ms)
        self.confirm()
        self.assertGreater(self.copied().last_read_ms, self.due_ms)
        self.save()
        self.assertGreater(self.saved().last_read_ms, self.due_ms)

    def test_a_delivery_that_is_cut_is_made_again(self) -> None:
        """The remaining deliveries are not repeated, and later messages still wait."""
        self.send(b"second", TIMER_DELAY_MS="1500")
        self.send(b"late", TIMER_DELAY_MS="8000")
        self.confirm()
        self.turns(1000)
        self.save()
        end = self.box.kernel.store.commit_log.max_offset
        self.turns(3000)
        self.save()
        self.assertEqual(self.service.delivered_count, 2)
        store = self.box.kernel.store
        first = next(store.raw.messages(end))
        self.box.kernel.step_down(1)
        self.turns(1000)
        self.successResultOf(store.log_cut.cut_undispatched(sum(first)))
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.confirm()
        kept = self.bodies()
        self.assertEqual(len(kept), 1)
        self.turns(2000)
        self.confirm()
        self.assertEqual(sorted(self.bodies()), [b"first", b"second"])
        self.turns(8000)
        self.confirm()
        self.assertEqual(sorted(self.bodies()), [b"first", b"late", b"second"])

    def test_a_stop_before_replicas_have_the_deliveries(self) -> None:
        """The save does not count as a clean stop, because the wheel is ahead of the progress."""
        self.turns(1000)
        self.save()
        self.turns(3000)
        self.box.stop()
        self.assertLess(self.saved().last_read_ms, self.due_ms)
        self.assertEqual(decode_mark(self.disk.read_file("/store/config/timercheck"))[0], RUNNING)
