"""The timers of a slave that acts as master, and of the master that returns."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from twisted.internet.defer import Deferred

from tests.kernel_case import run_task
from tests.plugins.timer.case import SAVE
from tests.plugins.timer.follower_case import SLAVE, FollowingCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins.timer.checkpoint import TimerCheckpoint
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.record import MessageRecord
from twistmq.protocol.topic_names import TIMER_TOPIC

CODE = RequestCode.GET_TIMER_CHECK_POINT


class ActingCase(FollowingCase):
    """The slave may let other brokers store messages; ``escaped`` has those that it sent."""

    def setUp(self) -> None:
        super().setUp()
        self.escaped: list[list[bytes]] = []
        self.records: list[MessageRecord] = []
        self.answers: list[Deferred[dict[int, BrokerError]]] = []
        #: Whether the others answer at once.
        self.at_once = True
        self.slave.kernel.use_escape(self.escape)
        self.box.kernel.use_escape(self.escape)

    def escape(self, records: Sequence[MessageRecord]) -> Deferred[dict[int, BrokerError]]:
        self.escaped.append([each.body for each in records])
        self.records += records
        answer: Deferred[dict[int, BrokerError]] = Deferred()
        self.answers.append(answer)
        if self.at_once:
            answer.callback({})
        return answer

    def stand_in(self, elapsed_ms: int = 0) -> None:
        """Remove the master, and let some time pass."""
        self.slave.now_ms = max(self.slave.now_ms, self.box.now_ms)
        self.slave.kernel.identity.is_acting = True
        self.slave_turns(elapsed_ms)

    def return_master(self) -> None:
        """Return the master, which asks the slave for its progress and continues."""
        self.slave.kernel.identity.has_master = True
        self.slave_turn()
        self.box.now_ms = self.slave.now_ms
        [table] = [each for each in self.box.kernel.hooks.collect_synced_tables()
                   if each.code == CODE]
        assert table.take_back is not None
        table.take_back(self.slave.ask(CODE).body)
        self.slave.kernel.identity.is_acting = False

    def send_each_second(self, count: int) -> list[bytes]:
        bodies = [b"%d" % number for number in range(count)]
        for number, body in enumerate(bodies):
            self.send(body, TIMER_DELAY_MS=str(1000 * (number + 1)))
        return bodies


class StandInTests(ActingCase):
    """Messages that become due on the slave."""

    def test_others_store_what_falls_due(self) -> None:
        """They are sent once when they are due; the log of the slave does not change."""
        bodies = self.send_each_second(6)
        self.turns(2500)
        self.copy()
        end = self.slave.kernel.store.commit_log.max_offset
        self.stand_in(5000)
        before = [each[0] for each in self.escaped]
        self.assertEqual(self.bodies() + before, bodies)
        record = self.records[0]
        self.assertEqual((record.topic, record.queue_id), ("T", 1))
        properties = parse_properties(record.properties)
        self.assertIn("TIMER_OUT_MS", properties)
        self.assertEqual(properties["KEYS"], "k")
        self.slave_turns(3000)
        self.assertEqual([each[0] for each in self.escaped], before)
        self.assertEqual(self.slave.kernel.store.commit_log.max_offset, end)

    def test_none_without_an_escape_or_beside_the_master(self) -> None:
        """They wait; a master that is seen again delivers them itself."""
        bodies = self.send_each_second(3)
        self.turn()
        self.copy()
        self.slave.kernel.use_escape(None)
        self.stand_in(5000)
        self.slave.kernel.use_escape(self.escape)
        self.slave.kernel.identity.has_master = True
        self.slave_turns(1000)
        self.assertEqual((self.escaped, self.slave_bodies()), ([], []))
        self.slave.kernel.identity.has_master = False
        self.slave_turns(1000)
        self.assertEqual([body for each in self.escaped for body in each], bodies)

    def test_a_batch_that_cannot_be_sent_holds_up_no_other(self) -> None:
        """A batch that fails while it is built leaves no wait behind."""
        escaping = self.slave_service.due.escaping
        wrong: Any = [SimpleNamespace(topic=TIMER_TOPIC, properties="", body=b"wrong")]
        self.assertRaises(KeyError, escaping.store, wrong)
        good: Any = [SimpleNamespace(topic="T", body=b"good")]
        self.assertEqual((escaping.is_waiting, escaping.store(good)), (False, []))
        self.assertEqual(self.escaped, [[b"good"]])

    def test_what_its_master_had_not_entered(self) -> None:
        """The slave enters it from the copied log."""
        self.send(b"a", TIMER_DELAY_MS="2000")
        self.copy()
        self.assertEqual(self.slave_service.wheel.count, 0)
        self.stand_in(4000)
        self.assertEqual(self.escaped, [[b"a"]])

    def test_what_was_late_already(self) -> None:
        """A message that is due, and that the master had not entered, is sent immediately."""
        self.copy()
        self.send(b"a", TIMER_DELAY_MS="1000")
        self.turns(5000, 5000)
        for table in self.tables():
            table.take(self.box.ask(table.code).body)
        self.copy_log()
        self.stand_in()
        self.assertEqual(self.escaped, [])
        self.send(b"late", TIMER_DELAY_MS="1000")
        self.copy_log()
        self.stand_in(5000)
        self.assertEqual(self.escaped, [[b"late"]])

    def test_refusals_are_tried_again_alone(self) -> None:
        """It is sent again after a second; later messages wait, so that each is delivered once."""
        self.at_once = False
        for body in (b"a", b"b"):
            self.send(body, TIMER_DELAY_MS="1000")
        self.send(b"c", TIMER_DELAY_MS="2000")
        self.turn()
        self.copy()
        self.stand_in(4000)
        self.assertEqual(self.escaped, [[b"a", b"b"]])
        self.answers[0].callback({1: BrokerError("no other broker accepts messages of T")})
        self.slave_turns(900)
        self.assertEqual(self.escaped, [[b"a", b"b"]])
        self.slave_turns(500)
        self.assertEqual(self.escaped, [[b"a", b"b"], [b"b"]])
        self.answers[1].errback(RuntimeError("a fault"))
        self.slave_turns(2000)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.answers[2].callback({})
        self.slave_turns(500)
        self.assertEqual(self.escaped[2:], [[b"b"], [b"c"]])

    def test_recalled_messages_do_not_come(self) -> None:
        unique = "0A0B0C0D"
        self.send(b"gone", UNIQ_KEY=unique, TIMER_DELAY_MS="3000")
        self.send(b"", UNIQ_KEY="1", TIMER_DELIVER_MS=str(self.box.now_ms + 3000),
                  TIMER_DEL_UNIQKEY=f"T+{unique}")
        self.send(b"stays", UNIQ_KEY="2", TIMER_DELAY_MS="3000")
        self.turn()
        self.copy()
        self.stand_in(5000)
        self.assertEqual(self.escaped, [[b"stays"]])

    def test_a_promotion_while_others_answer(self) -> None:
        """A message that is on its way is not stored here as well."""
        self.at_once = False
        bodies = self.send_each_second(3)
        self.turn()
        self.copy()
        self.stand_in(1500)
        self.promote()
        self.slave_turns(500)
        self.answers[0].callback({})
        self.slave_turns(4000)
        self.assertEqual((self.escaped, self.slave_bodies()), ([bodies[:1]], bodies[1:]))


class ReturnTests(ActingCase):
    """The master returns."""

    def test_it_delivers_the_rest_once(self) -> None:
        """Messages that the slave delivered are not delivered again; missing ones are."""
        bodies = self.send_each_second(8)
        self.turns(1500)
        self.copy()
        for number in (3, 6):
            self.send(b"only here %d" % number, TIMER_DELAY_MS=str(number * 1000))
        self.box.kernel.identity.registers = False
        self.stand_in(4000)
        escaped = [body for each in self.escaped for body in each]
        self.assertTrue(2 < len(escaped) < 6)
        self.box.now_ms = self.slave.now_ms
        self.turns(500)
        self.assertEqual(self.bodies(), bodies[:1])
        self.return_master()
        self.box.kernel.identity.registers = True
        self.turns(8000)
        ours = self.bodies()
        self.assertEqual([body for body in ours if body in bodies],
                         [body for body in bodies if body not in escaped])
        self.assertEqual([body for body in ours if body not in bodies],
                         [b"only here 3", b"only here 6"])

    def test_it_has_entered_less_than_the_slave(self) -> None:
        """As after a kill, it enters messages from its log, and delivers none of these again."""
        bodies = self.send_each_second(4)
        self.copy()
        self.stand_in(2500)
        escaped = [body for each in self.escaped for body in each]
        self.assertEqual(self.service.enqueue.offset, 0)
        self.return_master()
        self.turns(4000)
        self.assertEqual(escaped + self.bodies(), bodies)

    def test_the_slave_finishes_what_it_is_at(self) -> None:
        """It reports its progress when the other brokers have answered, and begins no new batch."""
        self.at_once = False
        bodies = self.send_each_second(4)
        self.turn()
        self.copy()
        self.stand_in(1500)
        self.slave.kernel.identity.has_master = True
        peer = self.slave.peer()
        self.assertIsNone(self.slave.send(peer, CODE))
        self.slave_turns(2000)
        self.assertEqual(self.slave.late_replies(peer), [])
        self.answers[0].callback({})
        self.slave_turns(1000)
        [reply] = self.slave.late_replies(peer)
        values = TimerCheckpoint.decode(reply.body)
        self.assertEqual(self.escaped, [bodies[:1]])
        self.return_master()
        self.assertGreater(values.last_read_ms, 0)
        self.turns(5000)
        self.assertEqual(self.bodies(), bodies[1:])

    def test_a_slave_without_an_escape_delivered_nothing(self) -> None:
        """Apache's slave discards its messages then and reports that it has passed them."""
        bodies = self.send_each_second(3)
        self.turn()
        self.copy()
        self.stand_in(5000)
        self.box.kernel.use_escape(None)
        self.return_master()
        self.turns(1000)
        self.assertEqual(self.bodies(), bodies)

    def test_its_check_point_is_newer_than_its_masters(self) -> None:
        """An Apache master accepts only the newer one."""
        self.send_each_second(3)
        self.turn()
        self.copy()
        # The master counts on for some seconds that are not copied.
        for _ in range(5):
            self.turns(1000)
            run_task(self.box, SAVE)
        self.copy_log()
        before = TimerCheckpoint.decode(self.box.ask(CODE).body)
        self.stand_in(500)
        after = TimerCheckpoint.decode(self.slave.ask(CODE).body)
        self.assertGreater(after.counter, before.counter)
        self.assertGreaterEqual(after.last_read_ms, before.last_read_ms)
        self.return_master()
        self.turn()
        self.assertGreaterEqual(TimerCheckpoint.decode(self.box.ask(CODE).body).counter,
                                after.counter)


class RollTests(ActingCase):
    """Messages whose times are after the roll window."""

    settings_of_both: ClassVar[dict[str, str]] = {"timerRollWindowSlot": "20"}

    def setUp(self) -> None:
        super().setUp()
        self.restart(**self.settings_of_both)
        self.slave.stop()
        self.slave = KernelBox(
            self.plugins, {**self.settings_of_both, **SLAVE}, self.slave_disk)
        for box in (self.box, self.slave):
            box.kernel.use_escape(self.escape)
        self.slave.now_ms = self.box.now_ms

    def test_another_broker_lets_them_wait(self) -> None:
        """They wait there for the remaining time; the returned master does not roll them again."""
        due_ms = self.box.now_ms + 50_000
        self.send(b"far", TIMER_DELIVER_MS=str(due_ms))
        self.turn()
        self.copy()
        self.stand_in(30_000)
        [record] = self.records
        properties = parse_properties(record.properties)
        self.assertEqual((record.topic, record.queue_id), ("T", 1))
        out_ms = self.service.wheel.floor_ms(due_ms - 1)
        self.assertEqual(properties.pop("TIMER_DELIVER_MS"), str(out_ms + 1))
        self.assertEqual([name for name in properties if name.startswith(("TIMER_", "REAL_"))], [])
        self.return_master()
        self.turns(40_000)
        self.assertEqual((len(self.waiting()), self.bodies()), (1, []))
