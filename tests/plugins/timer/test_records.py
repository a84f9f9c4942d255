"""The messages that wait, their times, and their records."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.store import message
from twistmq.plugins.timer.records import (
    ENTERED_NEVER,
    asks_for_time,
    due_ms_of,
    due_record,
    rolled_record,
    timed_ms,
    wait_record,
)
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.properties import format_properties, parse_properties
from twistmq.protocol.record import (
    PROPERTIES_LENGTH_MAX,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    MessageRecord,
    decode_record,
    encode_record,
)

NOW_MS = 1_700_000_000_123


def record(topic: str = "T", sys_flag: int = 0, **properties: str) -> MessageRecord:
    return message(topic, b"x", 3, properties=format_properties(properties), sys_flag=sys_flag)


class AskingTests(SynchronousTestCase):
    """Records that ask for a time."""

    def test_that_do(self) -> None:
        """Each of the three properties counts, also beside an invalid level."""
        for fields in ({"TIMER_DELAY_SEC": "1"}, {"TIMER_DELAY_MS": "1"},
                       {"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_MS": "1", "DELAY": "0"},
                       {"TIMER_DELAY_MS": "1", "DELAY": "x"}):
            self.assertEqual(asks_for_time(record(**fields)), fields)
        self.assertIsNotNone(
            asks_for_time(record(sys_flag=SYS_TRANSACTION_COMMIT, TIMER_DELAY_MS="1")))

    def test_that_do_not(self) -> None:
        """Records without a time, with a level, after their wait, half messages,
        and similar names.
        """
        for fields in ({}, {"TIMER_DELAY_MS": "1", "DELAY": "2"},
                       {"TIMER_DELAY_MS": "1", "TIMER_OUT_MS": "7"},
                       {"KEYS": "TIMER_DELAY_MS"}, {"MY_TIMER_DELAY_MS": "1"},
                       {"TIMER_DEL_UNIQKEY": "a+b"}):
            self.assertIsNone(asks_for_time(record(**fields)), msg=fields)
        self.assertIsNone(asks_for_time(record("rmq_sys_wheel_timer", TIMER_DELAY_MS="1")))
        self.assertIsNone(asks_for_time(record("RMQ_SYS_TRANS_HALF_TOPIC", TIMER_DELAY_MS="1")))
        self.assertIsNone(
            asks_for_time(record(sys_flag=SYS_TRANSACTION_PREPARED, TIMER_DELAY_MS="1")))

    def test_seconds_win_over_milliseconds(self) -> None:
        """Seconds take precedence over milliseconds, and these over a time."""
        for fields, expected in (
            ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "5"}, NOW_MS + 2000),
            ({"TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "1"}, NOW_MS + 5),
            ({"TIMER_DELIVER_MS": "17"}, 17), ({"TIMER_DELAY_MS": "-5"}, NOW_MS - 5),
            ({"TIMER_DELAY_SEC": "1.5"}, None), ({"TIMER_DELIVER_MS": "x"}, None),
            ({"TIMER_DELIVER_MS": "9" * 19}, None), ({"TIMER_DELAY_SEC": "\u0661"}, None),
        ):
            self.assertEqual(timed_ms(fields, NOW_MS), expected, msg=fields)


class WayTests(SynchronousTestCase):
    """A record is moved to the timer topic, and from there to its own topic."""

    def waiting(self, **properties: str) -> MessageRecord:
        """Return a record before it is stored."""
        sent = record("Real", TAGS="red", KEYS="k", **properties)
        wait_record(sent, parse_properties(sent.properties), NOW_MS)
        return sent

    def test_into_the_timer_topic(self) -> None:
        """The record has its topic and its time as properties."""
        sent = self.waiting(TIMER_DELAY_MS="5")
        self.assertEqual((sent.topic, sent.queue_id), ("rmq_sys_wheel_timer", 0))
        fields = parse_properties(sent.properties)
        self.assertEqual(fields, {
            "TAGS": "red", "KEYS": "k", "TIMER_DELAY_MS": "5", "TIMER_OUT_MS": str(NOW_MS),
            "REAL_TOPIC": "Real", "REAL_QID": "3"})
        self.assertEqual(due_ms_of(fields), NOW_MS)

    def test_out_of_it(self) -> None:
        """All properties remain; two more have the times of its arrival and delivery."""
        stored = decode_record(encode_record(self.waiting(TIMER_DELAY_MS="5")))
        due = due_record(stored, stored.properties_map(), 7, 9)
        self.assertEqual((due.topic, due.queue_id, due.body), ("Real", 3, b"x"))
        self.assertEqual(parse_properties(due.properties), {
            **stored.properties_map(), "TIMER_ENQUEUE_MS": "7", "TIMER_DEQUEUE_MS": "9"})
        self.assertEqual(due.keys, ["k"])
        self.assertIsNone(asks_for_time(due))

    def test_a_rolled_record_stays_in_the_timer_topic(self) -> None:
        """A rolled record stays in the timer topic, and has the number of its rolls."""
        stored = decode_record(encode_record(self.waiting(TIMER_DELAY_MS="5")))
        rolled = rolled_record(stored, stored.properties_map(), 7, 9)
        self.assertEqual(rolled.topic, "rmq_sys_wheel_timer")
        self.assertEqual(parse_properties(rolled.properties)["TIMER_ROLL_TIMES"], "1")
        stored = decode_record(encode_record(rolled))
        again = rolled_record(stored, stored.properties_map(), 8, 10)
        self.assertEqual(parse_properties(again.properties), {
            **stored.properties_map(), "TIMER_ROLL_TIMES": "2", "TIMER_ENQUEUE_MS": "8",
            "TIMER_DEQUEUE_MS": "10"})

    def test_what_does_not_say_where(self) -> None:
        """The topic is missing, invalid or the timer topic, or the queue is missing."""
        stored = decode_record(encode_record(record()))
        for fields in ({}, {"REAL_TOPIC": "T"}, {"REAL_TOPIC": "../T", "REAL_QID": "0"},
                       {"REAL_TOPIC": "T", "REAL_QID": "-1"},
                       {"REAL_TOPIC": "rmq_sys_wheel_timer", "REAL_QID": "0"}):
            self.assertRaises(BrokerError, due_record, stored, fields, 1, 2)
        self.assertRaises(BrokerError, due_ms_of, {})
        self.assertRaises(BrokerError, due_ms_of, {"TIMER_OUT_MS": "soon"})

    def test_room_for_delivery(self) -> None:
        """A record that can be stored now can also be rolled and delivered."""
        room = PROPERTIES_LENGTH_MAX
        while True:
            try:
                sent = self.waiting(TIMER_DELAY_MS="5", filler="x" * room)
                break
            except RequestRefused:
                room -= 1
        self.assertGreater(room, PROPERTIES_LENGTH_MAX - 500)
        stored = decode_record(encode_record(sent))
        fields = stored.properties_map()
        for _ in range(3):
            rolled = rolled_record(stored, fields, NOW_MS, NOW_MS)
        due = due_record(stored, parse_properties(rolled.properties), ENTERED_NEVER, NOW_MS)
        encode_record(due)
