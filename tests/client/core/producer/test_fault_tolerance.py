"""Slow and dead brokers, with a scripted clock."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer, stored
from tests.client.core.producer.test_sender import A, SendCase
from twistmq.client.base.errors import SendFailed
from twistmq.client.base.messages import MessageQueue
from twistmq.client.core.producer.fault_tolerance import TABLE_4, TABLE_5, Faults
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.offset import GetMaxOffsetResponseHeader


class TableTests(SynchronousTestCase):
    """The tables of 5.x and of releases up to 5.1.3."""

    def test_each_latency_has_its_time(self) -> None:
        """Each step begins exactly at its latency."""
        for table, steps in ((TABLE_5, ((0, 0), (50, 0), (549, 0), (550, 2000), (1799, 2000),
                                        (1800, 5000), (3000, 6000), (4999, 6000), (5000, 10_000),
                                        (14_999, 10_000), (15_000, 30_000), (99_999, 30_000))),
                             (TABLE_4, ((0, 0), (549, 0), (550, 30_000), (1000, 60_000),
                                        (2000, 120_000), (3000, 180_000), (14_999, 180_000),
                                        (15_000, 600_000)))):
            self.assertEqual([(ms, table.away_ms(ms)) for ms, _ in steps], list(steps))


class AvoidTests(SynchronousTestCase):
    """The time for which a broker is avoided."""

    def away(self, faults: Faults, begin_ms: int) -> int:
        """Return for how long the broker b is avoided from a time on, ms."""
        return next(ms for ms in range(0, 700_001, 100)
                    if faults.is_available("b", begin_ms + ms))

    def test_a_slow_broker_is_left_out_for_the_time_of_its_latency(self) -> None:
        """With 700 ms for 2 s, with 5.5 s for 10 s; others are not."""
        for latency_ms, away_ms in ((40, 0), (700, 2000), (5500, 10_000)):
            faults = Faults()
            faults.ended("b", latency_ms, 1000)
            self.assertEqual(self.away(faults, 1000), away_ms)
            self.assertTrue(faults.is_available("other", 1000))

    def test_the_table_of_4_9_is_an_option(self) -> None:
        """With it 700 ms cost 30 s, and a failure ten minutes."""
        faults = Faults(TABLE_4)
        faults.ended("b", 700, 1000)
        self.assertEqual(self.away(faults, 1000), 30_000)
        faults.ended("b", 1, 1000, failed=True)
        self.assertEqual(self.away(faults, 1000), 600_000)

    def test_a_quick_send_does_not_take_a_broker_back_in_5(self) -> None:
        """In 5.x its time can only grow; in 4.9 the last send decides."""
        for table, away_ms in ((TABLE_5, 10_000), (TABLE_4, 0)):
            faults = Faults(table)
            faults.ended("b", 5500, 1000)
            faults.ended("b", 10, 1000)
            self.assertEqual(self.away(faults, 1000), away_ms)
        faults = Faults()
        faults.ended("b", 5500, 1000)
        faults.ended("b", 700, 1000)
        self.assertEqual(self.away(faults, 1000), 10_000)

    def test_a_refusal_leaves_a_broker_out_for_ten_seconds(self) -> None:
        """It counts as a latency of 10 s, however fast it was, and the broker is reachable."""
        faults = Faults()
        faults.ended("b", 2, 1000, failed=True)
        self.assertEqual(self.away(faults, 1000), 10_000)
        self.assertTrue(faults.is_reachable("b"))
        self.assertIsNone(faults.due_ms())


class ProbeTests(SynchronousTestCase):
    """Brokers that do not answer."""

    def setUp(self) -> None:
        """Create a dead broker."""
        self.faults = Faults(now_ms=1000)
        self.faults.ended("dead", 3000, 4500, failed=True, reachable=False)
        self.faults.ended("slow", 3000, 4500)

    def test_a_dead_broker_is_left_out_until_a_probe_reaches_it(self) -> None:
        """The end of its time is not enough; after the probe it is used when its time is over."""
        self.assertFalse(self.faults.is_available("dead", 600_000))
        self.assertFalse(self.faults.is_reachable("dead"))
        self.faults.probed("dead")
        self.assertTrue(self.faults.is_reachable("dead"))
        self.assertFalse(self.faults.is_available("dead", 14_499))
        self.assertTrue(self.faults.is_available("dead", 14_500))

    def test_a_send_that_succeeds_shows_that_it_is_alive(self) -> None:
        """If all brokers are dead, one is tried, and may answer."""
        self.faults.ended("dead", 5, 20_000)
        self.assertTrue(self.faults.is_available("dead", 20_000))
        self.assertIsNone(self.faults.due_ms())

    def test_dead_brokers_are_probed_each_three_seconds(self) -> None:
        """The first round is three seconds after the start; a broker has one open probe."""
        self.assertEqual(self.faults.due_ms(), 4000)
        self.assertEqual(self.faults.probes(3999), [])
        self.assertEqual(self.faults.probes(5900), ["dead"])
        self.assertEqual(self.faults.due_ms(), 7000)
        self.assertEqual(self.faults.probes(7000), [])
        self.assertEqual(self.faults.due_ms(), 10_000)
        self.assertEqual(self.faults.probes(10_000), ["dead"])

    def test_a_long_sleep_is_not_made_up_for(self) -> None:
        """After it one round is due, not all that were missed."""
        self.assertEqual(self.faults.probes(1_000_000), ["dead"])
        self.assertEqual(self.faults.due_ms(), 1_000_000)
        self.assertEqual(self.faults.probes(1_000_000), [])
        self.assertEqual(self.faults.due_ms(), 1_003_000)

    def test_a_broker_without_a_route_is_forgotten(self) -> None:
        """It is no longer probed, and a late answer changes nothing."""
        self.faults.forget("dead")
        self.faults.probed("dead")
        self.assertIsNone(self.faults.due_ms())
        self.assertEqual(self.faults.probes(5000), [])
        self.assertTrue(self.faults.is_available("dead", 5000))


class ProducerTests(SendCase):
    """A producer with ``avoid_slow`` and its two brokers."""

    def setUp(self) -> None:
        """Create the producer."""
        super().setUp()
        self.sender = Sender(self.box.core, ProducerOptions(group="g", avoid_slow=True),
                             lambda _: "ID")

    def brokers(self, count: int = 16) -> set[str]:
        """Return the brokers of a number of sends."""
        return {self.send().queue.broker_name for _ in range(count)}

    def probes(self) -> list[RemotingCommand]:
        """Return the probes that brokers received."""
        return [command for _, command in self.box.requests
                if command.code == RequestCode.GET_MAX_OFFSET]

    def test_a_slow_broker_gets_nothing_for_the_time_of_its_latency(self) -> None:
        """700 ms cost a broker 2 s, and 2,900 ms cost it 5 s; the table of 4.9 has longer times."""
        for table, delay_ms, away_ms in ((TABLE_5, 700, 2000), (TABLE_5, 2900, 5000),
                                         (TABLE_4, 700, 30_000), (TABLE_4, 2900, 120_000)):
            self.setUp()
            self.sender = Sender(self.box.core, ProducerOptions(
                avoid_slow=True, latencies=table), lambda _: "ID")

            def slowly(command: RemotingCommand, delay_ms: int = delay_ms) -> Answer:
                answer = stored(command)
                assert answer is not None
                self.box.tasks_later(delay_ms, self.box.reply, A, command, *answer[:2])
                return None

            self.box.servers[A] = slowly
            self.send(queue=MessageQueue("T", "a", 0))
            self.box.servers[A] = stored
            self.assertEqual(self.brokers(), {"b"})
            self.box.advance(away_ms - 1)
            self.assertEqual(self.brokers(), {"b"})
            self.box.advance(1)
            self.assertEqual(self.brokers(), {"a", "b"}, msg=str(away_ms))
            self.assertEqual(self.probes(), [])

    def test_a_dead_broker_gets_nothing_until_a_probe_reaches_it(self) -> None:
        """It is asked for the end of a queue every three seconds, however long it is dead."""
        def is_silent(command: RemotingCommand) -> Answer:
            return None

        def is_alive(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.GET_MAX_OFFSET:
                return 0, GetMaxOffsetResponseHeader(0), b"", None
            return stored(command)

        for dead in (is_silent, None):
            self.setUp()
            if dead is None:
                del self.box.servers[A]
            else:
                self.box.servers[A] = dead
            self.assertRaises(SendFailed, self.send, queue=MessageQueue("T", "a", 0))
            for _ in range(10):
                self.box.advance(60_000)
                self.assertEqual(self.brokers(), {"b"})
            if dead is not None:
                self.assertIn(len(self.probes()), (200, 201))
                self.assertEqual({command.fields()["topic"] for command in self.probes()}, {"T"})
            self.box.servers[A] = is_alive
            self.box.advance(3000)
            self.assertEqual(self.brokers(), {"a", "b"})
            self.box.requests.clear()
            self.box.advance(60_000)
            self.assertEqual(self.probes(), [])
