"""The broker for Dramatiq, as it is used by programs that send and by consumers."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import dramatiq
from dramatiq.broker import MessageProxy
from dramatiq.common import current_millis
from dramatiq.errors import (
    BrokerConnectionError,
    BrokerError,
    ConnectionFailed,
    QueueJoinTimeout,
    QueueNotFound,
)

from tests.integrations.dramatiq.case import DramatiqCase
from tests.interop.servers import wait_until
from twistmq.client import Producer
from twistmq.integrations.dramatiq import TwistmqBroker


def message(queue: str = "default", actor: str = "nobody", **options: Any) -> Any:
    """A message of Dramatiq."""
    return dramatiq.Message(queue, actor, (), {}, options)


class ConnectionTests(DramatiqCase):
    """The moment at which the broker connects, and its errors."""

    def test_a_declaration_does_not_connect(self) -> None:
        """Programs declare their actors when their modules are imported."""
        broker = TwistmqBroker("127.0.0.1:1")
        self.noting(broker)
        self.assertEqual(broker.get_declared_queues(), {"default"})
        self.assertEqual(broker.get_declared_delay_queues(), set())
        broker.close()

    def test_an_error_names_the_server_that_does_not_answer(self) -> None:
        """A send, a worker and a flush all raise this error."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        broker = TwistmqBroker(f"127.0.0.1:{port}", timeout_s=0.5, connect_timeout_s=0.5, retries=0)
        self.addCleanup(broker.close)
        note = self.noting(broker)
        for call in (lambda: note.send(1), lambda: broker.consume("default"), broker.flush_all):
            error = self.assertRaises(ConnectionFailed, call)
            self.assertIsInstance(error, BrokerConnectionError)
            self.assertIn(f"127.0.0.1:{port}", str(error))

    def test_a_wrong_option_is_named(self) -> None:
        """The broker's options are checked at once, and the client's when it connects."""
        self.assertIn("invisible_s is 0: give at least 1", str(
            self.assertRaises(ValueError, TwistmqBroker, invisible_s=0)))
        broker = TwistmqBroker("127.0.0.1:1", visibility=1)  # type: ignore[call-arg]
        self.assertIn("visibility", str(
            self.assertRaises((BrokerError, TypeError), broker.flush, "default")))

    def test_a_broker_that_was_closed_connects_again(self) -> None:
        """Dramatiq's own brokers connect again in the same way."""
        note = self.noting()
        note.send(1)
        self.broker.close()
        note.send(2)
        self.join(self.start(threads=1))
        self.assertEqual(self.calls, [1, 2])

    def test_threads_end_with_the_broker(self) -> None:
        """No thread remains."""
        before = set(threading.enumerate())
        self.noting().send(1)
        consumer = self.broker.consume("default")
        consumer.ack(next(consumer))
        self.broker.close()
        wait_until("the end of the threads", lambda: not [
            each for each in set(threading.enumerate()) - before
            if each.name.startswith("twistmq-")])

    def test_a_forked_child_has_its_own_connection(self) -> None:
        """The child can send, and its end does not give back messages of its parent."""
        note = self.noting()
        note.send("of the parent")
        consumer = self.broker.consume("default", timeout=500)
        taken = next(consumer)
        pid = os.fork()
        if pid == 0:
            try:
                self.broker.close()
                note.send("of the child")
            except BaseException:
                os._exit(1)
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        other = self.connect()
        other.declare_queue("default")
        received = next(other.consume("default", timeout=20_000))
        self.assertEqual((taken.args, received.args), (("of the parent",), ("of the child",)))


class QueueTests(DramatiqCase):
    """Queues and their messages."""

    def test_a_queue_has_to_be_declared_to_be_consumed(self) -> None:
        """A send declares the queue under its own name, and no other queue."""
        self.assertRaises(QueueNotFound, self.broker.consume, "later")
        self.broker.enqueue(message("later.DQ"))
        self.assertEqual(self.broker.get_declared_queues(), {"later"})
        self.assertEqual(next(self.broker.consume("later", timeout=20_000)).queue_name, "later")

    def test_no_more_messages_are_taken_than_the_prefetch_limit(self) -> None:
        """A further message is taken when one of them is finished."""
        for number in range(3):
            self.broker.enqueue(message(actor=str(number)))
        consumer = self.broker.consume("default", prefetch=2, timeout=400)
        first, second = next(consumer), next(consumer)
        self.assertEqual((first.actor_name, second.actor_name), ("0", "1"))
        self.assertIsNone(next(consumer))
        consumer.ack(first)
        self.assertEqual(next(consumer).actor_name, "2")

    def test_a_second_decision_about_a_message_has_no_effect(self) -> None:
        """A second acknowledgement or rejection is ignored."""
        self.broker.enqueue(message())
        consumer = self.broker.consume("default", timeout=20_000)
        taken = next(consumer)
        consumer.ack(taken)
        consumer.ack(taken)
        consumer.nack(taken)
        consumer.requeue([taken])
        # A decision about a message that was received elsewhere has no effect either.
        consumer.ack(MessageProxy(message()))
        consumer.nack(MessageProxy(message()))
        self.broker.join("default", timeout=30_000)
        self.assertEqual(self.dead_letter_count(), 0)

    def test_a_flush_drops_what_waits(self) -> None:
        """The queue is then empty."""
        for _ in range(3):
            self.broker.enqueue(message())
        self.broker.flush_all()
        self.broker.join("default", timeout=10_000)
        self.assertIsNone(next(self.broker.consume("default", timeout=300)))

    def test_a_join_ends_after_its_time(self) -> None:
        """While a message is waiting or delayed, the join ends with Dramatiq's own error."""
        self.broker.enqueue(message())
        self.assertRaises(QueueJoinTimeout, self.broker.join, "default", timeout=300)
        self.broker.flush_all()
        self.broker.enqueue(message(), delay=600_000)
        self.assertRaises(QueueJoinTimeout, self.broker.join, "default", timeout=300)

    def test_a_message_that_a_worker_gives_back_comes_at_once(self) -> None:
        """Another worker receives the message, which is marked as redelivered."""
        broker = self.connect(invisible_s=600)
        broker.enqueue(message())
        consumer = broker.consume("default", timeout=20_000)
        taken = next(consumer)
        self.assertFalse(taken.redelivered)
        consumer.requeue([taken])
        other = self.connect()
        other.declare_queue("default")
        self.assertTrue(next(other.consume("default", timeout=20_000)).redelivered)

    def test_a_consumer_that_closes_gives_back_what_it_has_not_handed_out(self) -> None:
        """A message that was handed out stays hidden until it is finished."""
        broker = self.connect(invisible_s=600)
        for number in range(3):
            broker.enqueue(message(actor=str(number)))
        consumer = broker.consume("default", prefetch=3, timeout=20_000)
        taken = next(consumer)
        consumer.close()
        other = self.connect()
        other.declare_queue("default")
        received = other.consume("default", prefetch=3, timeout=20_000)
        self.assertEqual({next(received).actor_name for _ in range(2)}, {"1", "2"})
        consumer.ack(taken)
        broker.close()
        self.assertIsNone(next(other.consume("default", prefetch=9, timeout=1000)))


class DelayTests(DramatiqCase):
    """Messages with a delay."""

    def test_the_broker_keeps_a_message_until_its_time(self) -> None:
        """No consumer has it before, and none sees the time as an option."""
        begin = current_millis()
        sent = self.broker.enqueue(message(actor="later"), delay=2000)
        # The method assertAlmostEqual of trial has a parameter delta, but ignores it.
        self.assertTrue(begin + 2000 <= sent.options["eta"] <= current_millis() + 2000)
        self.broker.enqueue(message(actor="now"))
        consumer = self.broker.consume("default", timeout=20_000, prefetch=2)
        self.assertEqual(next(consumer).actor_name, "now")
        later = next(consumer)
        self.assertGreaterEqual(current_millis(), begin + 2000)
        self.assertEqual((later.actor_name, later.options), ("later", {}))

    def test_a_delay_beyond_the_limit_is_repeated(self) -> None:
        """The delay is repeated until the message is due, and the message arrives once."""
        broker = self.connect(delay_max_s=1)
        begin = current_millis()
        broker.enqueue(message(), delay=4500)
        consumer = broker.consume("default", timeout=20_000)
        consumer.ack(next(consumer))
        self.assertGreaterEqual(current_millis(), begin + 4500)
        self.assertIsNone(next(broker.consume("default", timeout=2000)))

    def test_a_limit_that_the_broker_does_not_have_is_an_error(self) -> None:
        """The error has Dramatiq's own type and contains the reason of the broker."""
        broker = self.connect(delay_max_s=30 * 86_400)
        error = self.assertRaises(BrokerError, broker.enqueue, message(), delay=20 * 86_400_000)
        self.assertIn("timer message illegal", str(error))
        self.assertNotIsInstance(error, BrokerConnectionError)


class FaultTests(DramatiqCase):
    """Messages that cannot be run."""

    def test_a_body_that_is_too_large_is_refused(self) -> None:
        """The error contains the limit, and the queue continues to work."""
        note = self.noting()
        error = self.assertRaises(BrokerError, note.send, "x" * (5 << 20))
        self.assertIn("4194304", str(error))
        self.assertNotIsInstance(error, BrokerConnectionError)
        note.send("small")
        self.join(self.start())
        self.assertEqual(self.calls, ["small"])

    def test_a_message_of_another_program_is_a_dead_letter(self) -> None:
        """The queue continues to work."""
        self.broker.enqueue(message(actor="mine"))
        with Producer(self.server.namesrv_address) as producer:
            producer.send("dramatiq-default", b"not Dramatiq's")
        self.broker.enqueue(message(actor="next"))
        consumer = self.broker.consume("default", timeout=20_000, prefetch=9)
        self.assertEqual([next(consumer).actor_name for _ in range(2)], ["mine", "next"])
        self.assertEqual(self.dead_letter_count(), 1)

    def test_a_message_that_no_attempt_finishes_is_a_dead_letter(self) -> None:
        """The option limits the attempts, so such a message does not kill workers forever."""
        self.broker.enqueue(message())
        for _ in range(2):
            broker = self.connect(invisible_s=1, max_attempts=2)
            broker.declare_queue("default")
            consumer = broker.consume("default", timeout=20_000)
            self.assertIsNotNone(next(consumer))
            consumer.close()
            broker.close()
        broker = self.connect(invisible_s=1, max_attempts=2)
        broker.declare_queue("default")
        consumer = broker.consume("default", timeout=300)
        wait_until("the dead letter",
                   lambda: next(consumer) is None and self.dead_letter_count() == 1)
