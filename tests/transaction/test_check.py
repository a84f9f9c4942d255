"""The check of half messages: which producers are asked, when and how often, and which half
messages are given up.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.logger import capturedLogs

from tests.kernel_case import DAMAGED_PARTS, error_lines, flip, run_all
from tests.transaction.case import (
    COMMIT,
    ROLLBACK,
    TransactionTestCase,
    questions,
)
from twistmq.broker import hookimpl
from twistmq.broker.request import consumer_offset
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import MessageRecord, decode_record, host_bytes, record_again
from twistmq.protocol.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from twistmq.transaction import check, plugin
from twistmq.transaction.service import SYSTEM_GROUP

TIMEOUT_MS = 6000


class CheckTests(TransactionTestCase):
    """The questions of a check and their times."""

    def test_not_before_its_time(self) -> None:
        """A half message is checked when it reaches the configured age, and not a millisecond
        earlier.
        """
        self.half()
        self.assertEqual(self.asked(TIMEOUT_MS - 1), [])
        self.assertEqual(len(self.halves()), 1)
        self.assertEqual(self.asked(1), [b"half"])

    def test_its_header_names_the_copy_that_was_put_back(self) -> None:
        """The header names the copy that was put back; the body is the message as it was sent."""
        half = self.half(queue_id=3)
        [asked] = self.check(TIMEOUT_MS)
        first, copy = self.halves()
        header, shown = asked.header, asked.message
        self.assertEqual(
            (header.topic, header.tran_state_table_offset, header.commit_log_offset, header.msg_id,
             header.transaction_id, header.offset_msg_id, header.broker_name),
            (HALF_TOPIC, copy.queue_offset, copy.physical_offset, half.transaction_id,
             half.transaction_id, offset_message_id(copy.store_host, copy.physical_offset),
             "broker-a"))
        self.assertEqual((shown.topic, shown.queue_id, shown.body, shown.physical_offset),
                         ("T", 3, b"half", copy.physical_offset))
        self.assertEqual(shown.properties_map()["TRANSACTION_CHECK_TIMES"], "1")
        self.assertEqual(first.born_timestamp, copy.born_timestamp)

    def test_a_commit_delivers(self) -> None:
        """A commit delivers the message, a rollback does not, and neither is asked about again."""
        self.half(b"1")
        self.half(b"2")
        for asked, how in zip(self.check(TIMEOUT_MS), (COMMIT, ROLLBACK), strict=True):
            self.answer(asked, how)
        self.assertEqual(self.bodies(), [b"1"])
        for _ in range(3):
            self.assertEqual(self.asked(30_000), [])
        self.assertEqual((self.bodies(), self.given_up()), ([b"1"], []))

    def test_again_and_again(self) -> None:
        """If a question is not answered, each later check asks again."""
        self.half()
        counts = [asked.message.properties_map()["TRANSACTION_CHECK_TIMES"]
                  for _ in range(4) for asked in self.check(30_000)]
        self.assertEqual(counts, ["1", "2", "3", "4"])

    def test_ended_ones_are_passed(self) -> None:
        """Only open half messages are asked about, even if the ends are not written yet."""
        halves = {b"%d" % number: self.half(b"%d" % number) for number in range(100)}
        wanted = []
        for number, (body, half) in enumerate(halves.items()):
            if number % 3:
                self.must_end(half, ROLLBACK)
            else:
                wanted.append(body)
            if number == 50:
                self.write_ends()
        self.assertEqual(self.asked(TIMEOUT_MS), wanted)

    def test_young_ones_end_the_check(self) -> None:
        """The check ends at the first half message that is too young; older ones before it are
        asked about.
        """
        self.half(b"old")
        self.box.now_ms += TIMEOUT_MS
        self.half(b"young")
        self.assertEqual(self.asked(), [b"old"])
        self.assertEqual(self.progress()[0], 1)
        self.assertEqual(self.asked(TIMEOUT_MS - 1), [])
        self.assertEqual(self.asked(1), [b"young", b"old"])

    def test_born_in_the_future(self) -> None:
        """A half message whose producer's clock is ahead is asked about immediately."""
        self.half()
        self.box.now_ms -= 60_000
        self.assertEqual(self.asked(), [b"half"])

    def test_other_producers(self) -> None:
        """A connected producer of the same group is asked, and no disconnected or foreign one."""
        second, stranger = self.new_producer(), self.new_producer("other")
        for number in range(4):
            self.half(b"%d" % number)
        self.producer.active = False
        self.assertEqual(self.asked(TIMEOUT_MS), [])
        self.assertEqual([asked.message.body for asked in questions(second)],
                         [b"0", b"1", b"2", b"3"])
        self.assertEqual(stranger.requests, [])

    def test_a_check_without_a_producer_counts(self) -> None:
        """A check without a connected producer counts; a producer that connects later is asked."""
        self.half()
        self.producer.active = False
        self.assertEqual(self.asked(TIMEOUT_MS), [])
        self.producer = self.new_producer()
        [asked] = self.check(30_000)
        self.assertEqual(asked.message.properties_map()["TRANSACTION_CHECK_TIMES"], "2")

    def test_late_end(self) -> None:
        """A producer that ends the first copy after it was put back is not asked again."""
        half = self.half()
        [asked] = self.check(TIMEOUT_MS)
        self.must_end(half, COMMIT)
        self.answer(asked, COMMIT)
        self.assertEqual(self.bodies(), [b"half"])
        for _ in range(3):
            self.assertEqual(self.asked(30_000), [])

    def test_late_answer(self) -> None:
        """An answer to an earlier question ends the transaction too."""
        self.half()
        [asked] = self.check(TIMEOUT_MS)
        self.assertEqual(self.asked(30_000), [b"half"])
        self.answer(asked, COMMIT)
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual(self.bodies(), [b"half"])

    def test_late_end_behind_a_young_one(self) -> None:
        """A late end is remembered until the check reaches the copy, even over a restart."""
        half = self.half(b"old")
        self.assertEqual(self.asked(TIMEOUT_MS), [b"old"])
        self.box.now_ms += 10_000
        # The copy is behind what was put back in the same check: another message is between.
        self.half(b"between")
        self.assertEqual(self.asked(), [b"old"])
        self.must_end(half, COMMIT)
        self.assertEqual(self.asked(TIMEOUT_MS - 1), [])
        self.restart()
        self.assertEqual(self.asked(1), [b"between"])
        for _ in range(3):
            self.assertEqual(self.asked(30_000), [b"between"])
        self.assertEqual(self.bodies(), [b"old"])

    def test_the_groups_offsets_follow(self) -> None:
        """The committed offsets of the group advance, and consumed messages are not read again."""
        for number in range(5):
            self.must_end(self.half(b"%d" % number), ROLLBACK)
        self.assertEqual(self.asked(TIMEOUT_MS), [])
        self.assertEqual(self.progress(), (5, 1))
        self.restart()
        self.assertEqual(self.progress(), (5, 1))
        self.assertEqual(self.asked(60_000), [])

    def test_many_offsets_are_saved_beside_others(self) -> None:
        """At the end of a check all committed offsets are saved, in slices of the reactor."""
        kernel = self.box.kernel
        self.must_end(self.half(), ROLLBACK)
        for number in range(1000):
            kernel.consumer_offset.commit("", f"g{number}", "T", 0, number)

        def encode(key: str, row: object) -> bytes:
            self.box.now_ms += 1
            return encode_pretty_row(key, row)

        self.patch(consumer_offset, "encode_pretty_row", encode)
        [task] = [task for task in kernel.periodic_tasks if task.name == "check half messages"]
        self.box.now_ms += TIMEOUT_MS
        begin_ms = self.box.now_ms
        waiting: Any = task.run(self.box.now_ms)
        while self.service.period_ms() == 1:
            waiting = task.run(self.box.now_ms)
        self.assertLess(self.box.now_ms - begin_ms, 100)
        self.assertNoResult(waiting)
        kernel.slices.finish()
        self.successResultOf(waiting)
        self.assertIn(b"CID_RMQ_SYS_TRANS", self.disk.read_file(
            "/store/config/consumerOffset.json"))

    def test_stop_saves_once(self) -> None:
        """A stop saves the offsets of the checks together with all others, in one save."""
        saved: list[int] = []
        table = self.box.kernel.consumer_offset
        for number in range(2 * check.STEP_COUNT):
            self.half(b"%d" % number)
        self.box.now_ms += TIMEOUT_MS
        self.service.step(self.box.now_ms)
        self.assertEqual(self.service.period_ms(), 1, msg="the check goes on")
        save = table.persist
        self.patch(table, "persist", lambda: saved.append(self.progress()[0]) or save())
        self.restart()
        self.assertEqual(saved, [self.progress()[0]])
        self.assertGreater(saved[0], 0)

    def test_a_slave_does_not_check(self) -> None:
        """A slave does not check; as a master it continues from the committed offsets."""
        self.half(b"1")
        self.assertEqual(self.asked(TIMEOUT_MS), [b"1"])
        [copy] = self.halves()[1:]
        self.half(b"2")
        self.box.kernel.set_role("SLAVE", 1)
        with capturedLogs() as events:
            self.assertEqual(self.asked(TIMEOUT_MS + 30_000), [])
        # It does not even try, which would be refused and said.
        self.assertEqual([*events], [])
        # As its master has come further meanwhile.
        self.box.kernel.consumer_offset.commit(
            "master", SYSTEM_GROUP, HALF_TOPIC, 0, copy.queue_offset + 1)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.assertEqual(self.asked(), [b"2"])

    def test_ends_of_a_slave(self) -> None:
        """A slave does not write ends; those that wait are written when it is a master again."""
        self.must_end(self.half(), ROLLBACK)
        self.box.kernel.set_role("SLAVE", 1)
        self.box.now_ms += 30_000
        with capturedLogs() as events:
            self.write_ends()
        self.assertEqual((self.ops(), [*events]), ([], []))
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.write_ends()
        self.assertEqual(len(self.ops()), 1)


class DamagedTests(TransactionTestCase):
    """Half messages or ends of which one record is damaged."""

    def test_a_half_message(self) -> None:
        """One error names the damaged half message; the others are still asked about."""
        for part in DAMAGED_PARTS:
            for body in (b"one", b"two", b"three"):
                self.half(body)
            place = flip(self.box, HALF_TOPIC, 0, 1, part)
            with capturedLogs() as events:
                asked = self.check(TIMEOUT_MS)
            self.assertEqual([each.message.body for each in asked], [b"one", b"three"])
            [line] = error_lines(events)
            self.assertIn(f"half message 1 of {HALF_TOPIC}-0, at {place} of the commit "
                          "log, cannot be checked: ", line)
            for each in asked:
                self.answer(each, COMMIT)
            self.assertEqual(self.bodies(), [b"one", b"three"])
            self.doCleanups()
            self.setUp()

    def test_an_end(self) -> None:
        """One error names the damaged end, and its half message is asked about again."""
        for part in DAMAGED_PARTS:
            for body in (b"one", b"two", b"three"):
                self.must_end(self.half(body), ROLLBACK)
                self.write_ends()
            self.half(b"open")
            place = flip(self.box, OP_HALF_TOPIC, 0, 1, part)
            self.box.stop()
            self.box = self.start()
            self.producer = self.new_producer()
            with capturedLogs() as events:
                self.assertEqual(self.asked(TIMEOUT_MS), [b"two", b"open"])
            [line] = error_lines(events)
            self.assertIn(f"op message 1 of {OP_HALF_TOPIC}-0, at {place} of the commit log, "
                          "cannot be read: ", line)
            self.doCleanups()
            self.setUp()


class GivenUpTests(TransactionTestCase):
    """Half messages that are given up because no producer ends them."""

    settings = {"transactionCheckMax": "2"}  # noqa: RUF012

    def setUp(self) -> None:
        self.discarded: list[bytes] = []
        listener = SimpleNamespace(on_half_message_discarded=hookimpl(
            lambda record: self.discarded.append(decode_record(record).body)))
        self.plugins = (("transaction", plugin.Plugin), ("listener", listener))
        super().setUp()

    def test_checked_too_often(self) -> None:
        """A half message is given up one interval after its last check."""
        self.half()
        self.assertEqual(self.asked(TIMEOUT_MS) + self.asked(30_000), [b"half"] * 2)
        self.assertEqual(self.given_up(), [])
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual((self.given_up(), self.discarded), ([b"half"], [b"half"]))
        [found] = self.stored(CHECK_MAX_TIME_TOPIC, 0)
        self.assertEqual([found.properties_map()[name] for name in (
            "REAL_TOPIC", "REAL_QID", "TRANSACTION_CHECK_TIMES")], ["T", "1", "2"])
        self.assertEqual(self.service.metrics.count("T"), 0)
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual((self.given_up(), self.stored()), ([b"half"], []))
        self.assertEqual(self.box.kernel.topic_config.table[CHECK_MAX_TIME_TOPIC].perm, 6)

    def test_last_answer_counts(self) -> None:
        """An answer to the last question is accepted until the next check."""
        self.half()
        self.check(TIMEOUT_MS)
        [asked] = self.check(30_000)
        self.answer(asked, COMMIT)
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual((self.bodies(), self.given_up()), ([b"half"], []))

    def test_too_old(self) -> None:
        """A half message is given up without a question when its file may be deleted soon."""
        self.half(b"asked")
        self.assertEqual(self.asked(72 * 3_600_000), [b"asked"])
        self.half()
        self.assertEqual(self.asked(72 * 3_600_000 + 1), [])
        self.assertEqual(self.given_up(), [b"asked", b"half"])
        self.box.kernel.settings.update({"fileReservedTime": "1"})
        self.half(b"soon")
        self.assertEqual(self.asked(3_600_000), [b"soon"])
        self.half(b"sooner")
        self.assertEqual(self.asked(3_600_001), [])
        self.assertEqual(self.given_up(), [b"asked", b"half", b"soon", b"sooner"])

    def test_never_unasked(self) -> None:
        """Every half message is asked about once, even if the maximum number of checks is 0."""
        self.box.kernel.settings.put("transactionCheckMax", 0)
        self.half()
        self.assertEqual(self.asked(TIMEOUT_MS), [b"half"])
        self.assertEqual(self.given_up(), [])
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual(self.given_up(), [b"half"])

    def test_ended_and_old(self) -> None:
        """A half message that was ended is not given up, however old it is."""
        self.must_end(self.half(), COMMIT)
        self.assertEqual(self.asked(100 * 3_600_000), [])
        self.assertEqual(self.given_up(), [])

    def test_a_failing_disk_delays_the_check_and_loses_nothing(self) -> None:
        """A failing disk delays the check; nothing is lost, and no question is sent twice."""
        self.half()
        self.disk.fail_write_in = 1
        self.assertEqual(self.asked(TIMEOUT_MS), [])
        self.disk.fail_write_in = None
        self.assertEqual(self.asked(), [b"half"])
        self.assertEqual(self.asked(30_000), [b"half"])
        self.disk.fail_write_in = 1
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual(self.discarded, [])
        self.disk.fail_write_in = None
        self.assertEqual(self.asked(), [])
        self.assertEqual((self.discarded, self.given_up()), ([b"half"], [b"half"]))

    def test_no_room_for_a_property(self) -> None:
        """A half message that cannot be put back is given up, and the check continues."""
        room = 32_767 - len(self.halves_properties())
        self.half(b"full", filling="x" * room)
        self.half(b"next")
        self.assertEqual(self.asked(TIMEOUT_MS), [b"next"])
        self.assertEqual(self.given_up(), [b"full"])

    def halves_properties(self) -> bytes:
        """The properties of a half message with an almost empty filling."""
        half = self.half(b"full", filling="")
        self.must_end(half, ROLLBACK)
        [found] = self.halves()
        return found.properties.encode() + b"filling\x01\x02"


class ImmunityTests(TransactionTestCase):
    """Half messages that set their own time of the first check."""

    settings = {"transactionCheckMax": "2"}  # noqa: RUF012

    def immune(self, body: bytes, seconds: str) -> None:
        self.half(body, CHECK_IMMUNITY_TIME_IN_SECONDS=seconds)

    def test_own_time(self) -> None:
        """Before its time a half message is put back without a question, which is not counted."""
        self.immune(b"late", "100")
        self.half(b"plain")
        self.assertEqual(self.asked(TIMEOUT_MS), [b"plain"])
        self.assertEqual(self.asked(30_000) + self.asked(30_000), [b"plain"])
        self.assertEqual(self.given_up(), [b"plain"])
        self.assertEqual(self.asked(100_000 - 66_001), [])
        self.assertEqual(self.asked(1), [b"late"])
        self.assertEqual(self.asked(30_000), [b"late"])
        self.assertEqual(self.asked(30_000), [])
        self.assertEqual(self.given_up(), [b"plain", b"late"])

    def test_short_time(self) -> None:
        """The time may be shorter than the setting of the broker."""
        self.immune(b"soon", "1")
        self.assertEqual(self.asked(999), [])
        self.assertEqual(self.asked(1), [b"soon"])

    def test_ended_meanwhile(self) -> None:
        """A half message that was put back and then ended is not asked about at its time."""
        half = self.half(CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        self.assertEqual(self.asked(TIMEOUT_MS) + self.asked(30_000), [])
        self.must_end(half, COMMIT)
        for _ in range(5):
            self.assertEqual(self.asked(30_000), [])
        self.assertEqual((self.bodies(), self.given_up()), ([b"half"], []))

    def test_birth_to_come(self) -> None:
        """A birth time in the future counts as the store time, for the limits and in the copies."""
        self.half(b"x", born_ms=self.box.now_ms + 10**15, CHECK_IMMUNITY_TIME_IN_SECONDS="9")
        self.assertEqual(self.asked(8_999), [])
        stored_ms = self.box.now_ms - 8_999
        self.assertEqual({each.born_timestamp for each in self.halves()[1:]}, {stored_ms})
        self.assertEqual(self.asked(1), [b"x"])
        self.half(b"y", born_ms=self.box.now_ms + 10**15)
        self.assertIn(b"y", self.asked(TIMEOUT_MS))
        self.half(b"z", born_ms=self.box.now_ms + 10**15,
                  CHECK_IMMUNITY_TIME_IN_SECONDS="1" + "0" * 17)
        hours = self.box.kernel.settings.int("fileReservedTime")
        self.assertNotIn(b"z", self.asked(hours * 3_600_000))
        self.asked(1)
        self.assertIn(b"z", self.given_up())

    def test_end_after_its_time(self) -> None:
        """A birth time in the future does not extend the time in which a producer may end it."""
        half = self.half(b"x", born_ms=self.box.now_ms + 10**15, CHECK_IMMUNITY_TIME_IN_SECONDS="9")
        self.box.now_ms += 9_001
        self.assertEqual(self.end(half, COMMIT)[0], ResponseCode.ILLEGAL_OPERATION)

    def test_what_is_written_is_bounded(self) -> None:
        """Half messages above a limit do not wait for their time: they are checked."""
        self.patch(check, "UNASKED_BYTES", 3000)
        body = b"b" * 300
        for number in range(4):
            self.half(body + b"%d" % number, CHECK_IMMUNITY_TIME_IN_SECONDS="1" + "0" * 17)
        self.assertTrue(750 < self.halves()[0].size <= 1500, self.halves()[0].size)
        self.assertEqual(len(self.asked(1000)), 3)
        for _ in range(10):
            self.asked(1000)
        self.assertEqual(len(self.given_up()), 4)
        self.assertEqual(len(self.halves()), 4 + 1 + 4 * 2)

    def test_each_host_has_a_share(self) -> None:
        """A host may use half of the limit that other hosts leave, so no host can use all of it."""
        self.patch(check, "UNASKED_BYTES", 6000)
        stranger = self.box.peer()
        stranger.remote_host = host_bytes("10.0.0.9", 9)
        for number in range(8):
            self.half(b"s" * 300 + b"%d" % number, peer=stranger,
                      CHECK_IMMUNITY_TIME_IN_SECONDS="1" + "0" * 17)
        self.immune(b"own", "1000")
        for _ in range(8):
            self.assertNotIn(b"own", self.asked(TIMEOUT_MS))
        self.assertGreaterEqual(len(self.given_up()), 4)
        self.assertEqual(self.asked(1_000_000), [b"own"])

    def test_no_number(self) -> None:
        """The broker's setting is used if the value is not a number."""
        self.immune(b"x", "soon")
        self.assertEqual(self.asked(TIMEOUT_MS - 1), [])
        self.assertEqual(self.asked(1), [b"x"])


class StepTests(TransactionTestCase):
    """A check runs in small steps."""

    def test_no_step_looks_at_more_than_it_may(self) -> None:
        """No step reads more messages than its limit, and all are asked about in order."""
        bodies = [b"%d" % number for number in range(3 * check.STEP_COUNT)]
        for body in bodies:
            self.half(body)
        self.box.now_ms += TIMEOUT_MS
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "check half messages"]
        assert callable(task.period_ms)
        counts, found = [], []
        self.assertEqual(task.period_ms(), 30_000)
        while task.period_ms() == 1 or not counts:
            task.run(self.box.now_ms)
            step = [asked.message.body for asked in questions(self.producer)]
            counts.append(len(step))
            found += step
        self.assertEqual(found, bodies)
        self.assertLessEqual(max(counts), check.STEP_COUNT)
        self.assertGreaterEqual(len(counts), 3)

    def test_ends_between_steps(self) -> None:
        """A half message that is ended during a check is not asked about."""
        halves = [self.half(b"%d" % number) for number in range(2 * check.STEP_COUNT)]
        self.box.now_ms += TIMEOUT_MS
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "check half messages"]
        task.run(self.box.now_ms)
        self.assertLess(len(self.producer.requests), len(halves) - 1)
        self.must_end(halves[-1], ROLLBACK)
        run_all(self.box, "check half messages")
        asked = [each.message.body for each in questions(self.producer)]
        self.assertEqual(asked, [b"%d" % number for number in range(len(halves) - 1)])

    def test_time_ends_a_step(self) -> None:
        """So does time: a slow disk holds the reactor for one half message, not for all."""
        for number in range(10):
            self.half(b"%d" % number)
        self.box.now_ms += TIMEOUT_MS
        late = iter(range(10_000))
        self.box.clock = lambda: self.box.now_ms + 5 * next(late)
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "check half messages"]
        task.run(self.box.now_ms)
        self.assertLessEqual(len(questions(self.producer)), 1)
        self.box.clock = lambda: self.box.now_ms

    def test_stop_in_the_middle(self) -> None:
        """After a restart a check continues where it was stopped."""
        bodies = [b"%d" % number for number in range(2 * check.STEP_COUNT)]
        for body in bodies:
            self.half(body)
        self.box.now_ms += TIMEOUT_MS
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "check half messages"]
        task.run(self.box.now_ms)
        before = [asked.message.body for asked in questions(self.producer)]
        self.assertTrue(before)
        self.restart()
        after = self.asked()
        self.assertEqual(before + after[:len(bodies) - len(before)], bodies)

    def test_a_half_message_that_is_gone_is_logged_and_passed(self) -> None:
        """A half message that no longer exists is logged and skipped."""
        self.half(b"gone")
        self.half(b"there")
        [gone, _] = self.halves()
        store = self.box.kernel.store
        look = store.look_message
        self.patch(store, "look_message", lambda place, size=None: (
            None if place == gone.physical_offset else look(place, size)))
        self.assertEqual(self.asked(TIMEOUT_MS), [b"there"])

    def test_check_that_raises(self) -> None:
        """A check that fails ends, and the next one begins after the normal interval."""
        self.half()
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "check half messages"]
        assert callable(task.period_ms)
        self.box.now_ms += TIMEOUT_MS
        patch = self.patch(self.box.kernel.store, "look_message", lambda place: 1 / 0)
        self.assertRaises(ZeroDivisionError, task.run, self.box.now_ms)
        self.assertEqual(task.period_ms(), 30_000)
        patch.restore()
        self.assertEqual(self.asked(), [b"half"])

    def test_saved_offset_is_outside(self) -> None:
        """A group's offset that its queue does not have is corrected and logged."""
        self.half()
        self.box.kernel.consumer_offset.commit("", "CID_RMQ_SYS_TRANS", HALF_TOPIC, 0, 99)
        self.assertEqual(self.asked(TIMEOUT_MS), [b"half"])
        self.assertEqual(self.progress()[0], 1)
        self.half(b"new")
        self.assertEqual(self.asked(TIMEOUT_MS), [b"half", b"new"])

    def test_more_half_queues(self) -> None:
        """Each half queue is checked; its ends are in the op queue of the same number."""
        config = self.box.kernel.topic_config.table[HALF_TOPIC]
        config.read_queue_nums = config.write_queue_nums = 2
        self.half(b"0")
        [found] = self.halves()
        self.half(b"1")
        # Another broker may have filled the second queue.
        other = record_again(found, found.properties_map())
        other.queue_id, other.body = 1, b"other"
        self.assertEqual(self.box.kernel.append([other]), {})
        asked = self.check(TIMEOUT_MS)
        self.assertEqual([each.message.body for each in asked], [b"0", b"1", b"other"])
        self.answer(asked[2], COMMIT)
        self.write_ends()
        [op] = self.stored(OP_HALF_TOPIC, 1)
        self.assertEqual(op.body, b"1,0,")


class ReplacedTests(TransactionTestCase):
    """Another plugin provides the service of transactions."""

    def test_stands_back(self) -> None:
        """If another plugin provides the service, this one registers no requests and no check."""
        self.half()

        class Other:
            def prepare(self, record: MessageRecord, properties: object) -> None:
                record.topic, record.sys_flag = "ELSEWHERE", 0

        other = SimpleNamespace(provide_transaction_service=hookimpl(lambda: Other()))
        self.restart((("transaction", plugin.Plugin), ("other", other)))
        names = [task.name for task in self.box.kernel.periodic_tasks]
        self.assertNotIn("check half messages", names)
        self.assertNotIn(37, self.box.kernel.dispatcher.handlers)
        self.assertEqual(self.send(b"2").code, ResponseCode.SUCCESS)
        self.assertEqual(self.bodies("ELSEWHERE"), [b"2"])

    def test_without_the_plugin(self) -> None:
        """Without the plugin half messages and ends are refused; stored half messages remain."""
        half = self.half()
        self.restart(())
        self.assertEqual(self.send(b"2").code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertEqual(self.end(half, COMMIT)[0], ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.restart()
        self.assertEqual(self.asked(60_000), [b"half"])


class AgreedTests(TransactionTestCase):
    """The log contains a message for certain when the replicas have it."""

    def setUp(self) -> None:
        super().setUp()
        self.halves_sent = [self.half(b"1"), self.half(b"2")]
        self.confirm()

    def confirm(self) -> None:
        """Let the replicas have all of the log."""
        dispatch = self.box.kernel.store.dispatch
        dispatch.advance_confirm_offset(self.box.kernel.store.commit_log.max_offset)

    def asked_when_confirmed(self) -> list[bytes]:
        """Return the bodies that are asked about after the replicas have the whole log."""
        self.confirm()
        self.service.questions.ask_readable()
        return [asked.message.body for asked in questions(self.producer)]

    def committed(self) -> int:
        """Return the offset that the checks have committed."""
        return self.box.kernel.consumer_offset.query(SYSTEM_GROUP, HALF_TOPIC, 0)

    def test_progress_waits_for_the_copies(self) -> None:
        """The committed offset waits for the replicas, because a new master continues from it."""
        self.assertEqual(self.asked(TIMEOUT_MS), [])
        self.asked(1000)
        self.assertLessEqual(self.committed(), 0)
        self.assertEqual(self.asked_when_confirmed(), [b"1", b"2"])
        self.asked(1000)
        self.assertEqual(self.committed(), 2)

    def test_an_end_that_is_cut(self) -> None:
        """If an end is cut from the log, the transaction is open, and its producer is asked."""
        store = self.box.kernel.store
        end = store.commit_log.max_offset
        for half in self.halves_sent:
            self.must_end(half, COMMIT)
        first = next(store.raw.messages(end))
        self.box.kernel.step_down(1)
        self.successResultOf(store.log_cut.cut_undispatched(sum(first)))
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.confirm()
        self.assertEqual(self.bodies(), [b"1"])
        self.write_ends()
        self.confirm()
        self.assertEqual(self.asked(TIMEOUT_MS), [])
        self.assertEqual(self.asked_when_confirmed(), [b"1", b"2"])
        self.must_end(self.halves_sent[1], COMMIT)
        self.confirm()
        self.assertEqual(self.bodies(), [b"1", b"2"])
