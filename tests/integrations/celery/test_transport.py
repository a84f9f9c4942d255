"""The transport of kombu against a broker."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
from kombu.exceptions import ChannelError, OperationalError
from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.celery.case import KombuCase
from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.client import Producer, RemotingTimeout


def eta(seconds: float) -> dict[str, str]:
    """Return the header of a task that is due after a number of seconds."""
    return {"eta": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


class QueueTests(KombuCase):
    """Queues, acknowledgements and lengths."""

    def test_the_length_counts_what_waits(self) -> None:
        """A purge removes the messages that no consumer has, and returns their number."""
        queue, connection = kombu.Queue("length"), self.connect()
        self.publish(connection, queue, *range(40))
        bound = queue(connection.default_channel)
        self.assertEqual(bound.queue_declare().message_count, 40)
        first = bound.get()
        self.assertEqual(first.decode(), 0)
        self.assertEqual(bound.purge(), 39)
        self.assertIsNone(bound.get())
        first.ack()
        wait_until("the end", lambda: bound.queue_declare().message_count == 0)

    def test_only_a_declared_queue_can_be_declared_passively(self) -> None:
        """This holds for every connection."""
        channel = self.connect().default_channel
        self.assertRaises(ChannelError, channel.queue_declare, queue="unknown", passive=True)
        self.connect().default_channel.queue_declare(queue="known")
        self.assertEqual(channel.queue_declare(queue="known", passive=True).queue, "known")

    def test_prefetch_bounds_what_is_not_acknowledged(self) -> None:
        """The next message arrives when one of the first messages is acknowledged."""
        queue, connection = kombu.Queue("prefetch"), self.connect()
        self.publish(connection, queue, *range(6))
        messages: list[Any] = []
        consumer = kombu.Consumer(connection, [queue], on_message=messages.append)
        consumer.qos(prefetch_count=2)
        with consumer:
            while len(messages) < 2:
                connection.drain_events(timeout=20)
            self.assertRaises(socket.timeout, connection.drain_events, timeout=0.5)
            messages[0].ack()
            connection.drain_events(timeout=20)
            self.assertEqual([each.decode() for each in messages], [0, 1, 2])
            consumer.qos(prefetch_count=6)
            while len(messages) < 6:
                connection.drain_events(timeout=20)

    def test_higher_priorities_come_first(self) -> None:
        """Messages that are fetched together and have the same priority keep the order of their
        arrival.
        """
        queue, connection = kombu.Queue("priorities"), self.connect()
        for number, priority in enumerate((1, 9, 5, 9)):
            self.publish(connection, queue, number, priority=priority)
        self.assertEqual(self.take(connection, queue, 4), [1, 3, 2, 0])

    def test_a_requeued_message_is_marked(self) -> None:
        """The message is delivered again at once."""
        queue, connection = kombu.Queue("requeue"), self.connect()
        self.publish(connection, queue, "x")
        bound = queue(connection.default_channel)
        first = bound.get()
        self.assertFalse(first.delivery_info["redelivered"])
        first.requeue()
        second = bound.get()
        self.assertEqual((second.decode(), second.delivery_info["redelivered"]), ("x", True))
        second.ack()
        self.assertIsNone(bound.get())

    def test_a_rejected_message_is_a_dead_letter(self) -> None:
        """It becomes a dead letter of the queue's group."""
        queue, connection = kombu.Queue("rejected"), self.connect()
        self.publish(connection, queue, "x")
        bound = queue(connection.default_channel)
        bound.get().reject()
        self.assertIsNone(bound.get())
        self.assertEqual(self.dead_letter_count("kombu-rejected"), 1)

    def test_a_message_of_another_program_is_a_dead_letter(self) -> None:
        """The queue continues to work."""
        queue, connection = kombu.Queue("foreign"), self.connect()
        queue(connection.default_channel).declare()
        bodies = (b"not kombu's", b'{"headers": [1], "properties": {"delivery_info": {}}}',
                  b'{"body": 5, "properties": {"delivery_info": {}, "priority": 1e400}}',
                  b'{"expires": "x", "properties": {"delivery_info": {}}}')
        with Producer(self.broker.namesrv_address) as producer:
            for body in bodies:
                producer.send("kombu-foreign", body)
            producer.send("kombu-foreign", b'{"body": "{}", "content-type": "application/json", '
                          b'"properties": {"delivery_info": {}, "priority": 1e400}}')
        self.publish(connection, queue, "mine")
        self.assertEqual(self.take(connection, queue, 2), [{}, "mine"])
        self.assertEqual(self.dead_letter_count("kombu-foreign"), len(bodies))

    def test_a_message_without_an_acknowledgement_gets_its_own(self) -> None:
        """A consumer that does not acknowledge gets each message once."""
        queue, connection = kombu.Queue("no-ack"), self.connect(invisible_s=1)
        self.publish(connection, queue, 1, 2)
        bodies: list[Any] = []
        with kombu.Consumer(connection, [queue], no_ack=True,
                            callbacks=[lambda body, message: bodies.append(body)]):
            while len(bodies) < 2:
                connection.drain_events(timeout=20)
            self.assertRaises(socket.timeout, connection.drain_events, timeout=2.5)
        self.assertEqual(bodies, [1, 2])

    def test_an_expired_message_is_dropped(self) -> None:
        """The message is not dropped before its time."""
        queue, connection = kombu.Queue("expired"), self.connect()
        self.publish(connection, queue, "old", expiration=0.2)
        self.publish(connection, queue, "new", expiration=60)
        time.sleep(0.25)  # the time of the first message has to pass
        self.assertEqual(self.take(connection, queue, 1), ["new"])
        self.assertIsNone(queue(connection.default_channel).get())


class HoldTests(KombuCase):
    """The time for which a consumer has a message."""

    def test_a_message_stays_hidden_while_a_consumer_has_it(self) -> None:
        """The message stays hidden for longer than the invisible time, because that time is
        extended.
        """
        queue, connection = kombu.Queue("held"), self.connect(invisible_s=1)
        self.publish(connection, queue, "x")
        message = queue(connection.default_channel).get()
        other = queue(self.connect(invisible_s=1).default_channel)
        other.declare()
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            self.assertIsNone(other.get())
        message.ack()
        self.assertIsNone(other.get())

    def test_the_messages_of_a_consumer_that_died_come_again(self) -> None:
        """They are marked as redelivered after the invisible time, except for acknowledged
        messages.
        """
        queue, connection = kombu.Queue("died"), self.connect(invisible_s=1)
        self.publish(connection, queue, "done", "running")
        bound = queue(connection.default_channel)
        bound.get().ack()
        bound.get()
        transport = connection.transport
        wait_until("the acknowledgement", lambda: not transport.holder._finished)
        # The threads of the connection end as if the process had ended.
        transport.holder.close()
        other, redelivered = self.connect(invisible_s=1), []
        bodies = self.take(other, queue, 1, decide=lambda message: redelivered.append(
            message.delivery_info["redelivered"]))
        self.assertEqual((bodies, redelivered), (["running"], [True]))

    def test_a_connection_that_closes_gives_its_messages_back(self) -> None:
        """The messages are given back long before their invisible time is over."""
        queue, connection = kombu.Queue("closed"), self.connect(invisible_s=600)
        self.publish(connection, queue, "x")
        queue(connection.default_channel).get()
        connection.release()
        self.assertEqual(self.take(self.connect(), queue, 1), ["x"])

    def test_a_message_that_no_attempt_finishes_is_a_dead_letter(self) -> None:
        """The option determines the number of attempts."""
        queue = kombu.Queue("poison")
        self.publish(self.connect(), queue, "x")
        for _ in range(2):
            connection = self.connect(invisible_s=1, max_attempts=2)
            self.take(connection, queue, 1, decide=lambda message: None)
            connection.transport.holder.close()
        connection = self.connect(invisible_s=1, max_attempts=2)
        with kombu.Consumer(connection, [queue], on_message=self.fail):
            wait_until("the dead letter", lambda: self._drained(connection)
                       and self.dead_letter_count("kombu-poison") == 1)

    def _drained(self, connection: kombu.Connection) -> bool:
        self.assertRaises(socket.timeout, connection.drain_events, timeout=0.3)
        return True


class DelayTests(KombuCase):
    """Tasks with a time."""

    def test_the_broker_keeps_a_message_until_its_time(self) -> None:
        """No consumer receives the message earlier."""
        queue, connection = kombu.Queue("eta"), self.connect()
        begin = time.time()
        self.publish(connection, queue, "later", headers=eta(2))
        self.publish(connection, queue, "now")
        times: list[float] = []
        bodies = self.take(connection, queue, 2,
                           decide=lambda message: (times.append(time.time()), message.ack()))
        self.assertEqual(bodies, ["now", "later"])
        self.assertGreater(times[1], begin + 1.5)

    def test_a_delay_beyond_the_limit_is_repeated(self) -> None:
        """The delay is divided until the task is due; nothing arrives earlier or twice."""
        queue, connection = kombu.Queue("far"), self.connect(delay_max_s=1)
        begin = time.time()
        self.publish(connection, queue, "x", headers=eta(5))
        times: list[float] = []
        self.take(connection, queue, 1,
                  decide=lambda message: (times.append(time.time()), message.ack()))
        self.assertGreater(times[0], begin + 3)
        self.assertIsNone(queue(connection.default_channel).get())

    def test_a_part_of_a_delay_that_cannot_be_sent_is_tried_again(self) -> None:
        """The reader goes on when no broker stores the message, and when something else fails."""
        queue, connection = kombu.Queue("away"), self.connect(delay_max_s=1, invisible_s=1)
        self.publish(connection, queue, "x", "y", headers=eta(4))
        producer = connection.transport._producer
        send, faults = producer.send, [RuntimeError("odd"), RemotingTimeout("no answer")]

        def failing(*arguments: Any, **options: Any) -> Any:
            if faults:
                raise faults.pop()
            return send(*arguments, **options)

        producer.send = failing
        self.assertCountEqual(self.take(connection, queue, 2), ["x", "y"])
        self.assertEqual(faults, [])

    def test_a_limit_that_the_broker_does_not_have_is_an_error(self) -> None:
        """The error has kombu's own type and contains the broker's limit."""
        queue, connection = kombu.Queue("beyond"), self.connect(delay_max_s=30 * 86_400)
        error = self.assertRaises(ChannelError, self.publish, connection, queue, "x",
                                  headers=eta(20 * 86_400))
        self.assertIn("timer message illegal", str(error))


class ExchangeTests(KombuCase):
    """Exchanges that connections share."""

    def test_a_fan_out_reaches_each_queue_that_is_bound(self) -> None:
        """The exchange reaches lasting queues, and queues of one process from their binding on."""
        exchange = kombu.Exchange("news", type="fanout")
        sender = self.connect()
        producer = kombu.Producer(sender.default_channel, exchange=exchange)
        producer.publish("before")
        lasting = kombu.Queue("archive", exchange=exchange)
        own = kombu.Queue("screen", exchange=exchange, auto_delete=True)
        reader, other = self.connect(), self.connect()
        lasting(reader.default_channel).declare()
        own(other.default_channel).declare()
        producer.publish("after")
        self.assertEqual(self.take(reader, lasting, 1), ["after"])
        self.assertEqual(self.take(other, own, 1), ["after"])
        # The consumers of the lasting queue share its messages.
        self.assertIsNone(lasting(self.connect().default_channel).get())

    def test_patterns_of_a_topic_exchange(self) -> None:
        """A publisher that declared nothing reaches the queues of other connections."""
        exchange = kombu.Exchange("events", type="topic")
        orders = kombu.Queue("orders", exchange=exchange, routing_key="order.*")
        all_of_them = kombu.Queue("all", exchange=exchange, routing_key="#", exclusive=True)
        reader = self.connect()
        orders(reader.default_channel).declare()
        all_of_them(reader.default_channel).declare()
        producer = kombu.Producer(self.connect().default_channel, exchange=exchange)
        for key in ("order.paid", "user.new", "order.sent", "order.a.b"):
            producer.publish(key, routing_key=key)
        self.assertEqual(self.take(reader, orders, 2), ["order.paid", "order.sent"])
        self.assertIsNone(orders(reader.default_channel).get())
        self.assertEqual(self.take(reader, all_of_them, 4),
                         ["order.paid", "user.new", "order.sent", "order.a.b"])

    def test_a_reply_reaches_the_process_that_waits(self) -> None:
        """One reply goes to a direct exchange of the process, and one directly to the queue."""
        exchange = kombu.Exchange("replies", type="direct", durable=False)
        asker, answerer = self.connect(), self.connect()
        own = kombu.Queue("reply-1", exchange=exchange, routing_key="r1", auto_delete=True)
        other = kombu.Queue("reply-2", exchange=exchange, routing_key="r2", auto_delete=True)
        own(asker.default_channel).declare()
        other(asker.default_channel).declare()
        producer = kombu.Producer(answerer.default_channel)
        producer.publish("by the exchange", exchange=exchange, routing_key="r1")
        producer.publish("by the name", routing_key="reply-1")
        self.assertCountEqual(self.take(asker, own, 2), ["by the exchange", "by the name"])
        with kombu.Consumer(asker, [other], on_message=self.fail):
            self.assertRaises(socket.timeout, asker.drain_events, timeout=0.5)

    def test_a_direct_exchange_sends_to_the_queues_with_the_key(self) -> None:
        """Other queues do not receive the message."""
        exchange = kombu.Exchange("sizes", type="direct")
        small = kombu.Queue("small", exchange=exchange, routing_key="s")
        large = kombu.Queue("large", exchange=exchange, routing_key="l")
        connection = self.connect()
        producer = kombu.Producer(connection.default_channel, exchange=exchange)
        for key in ("s", "l", "m"):
            producer.publish(key, routing_key=key, declare=[small, large])
        self.assertEqual(self.take(connection, small, 1), ["s"])
        self.assertEqual(self.take(connection, large, 1), ["l"])
        self.assertIsNone(small(connection.default_channel).get())


class FaultTests(KombuCase):
    """The transport raises the errors of kombu, and each text names a remedy."""

    def test_a_body_that_is_too_large_is_refused(self) -> None:
        """The message is not tried again, and the connection continues to work."""
        queue, connection = kombu.Queue("large-body"), self.connect()
        queue(connection.default_channel).declare()
        producer = kombu.Producer(connection)
        error = self.assertRaises(
            ChannelError, producer.publish, os.urandom(5 << 20), routing_key="large-body",
            content_type="application/data", content_encoding="binary", retry=True)
        self.assertIn("4194304", str(error))
        producer.publish("small", routing_key="large-body")
        self.assertEqual(self.take(connection, queue, 1), ["small"])

    def test_a_forked_child_leaves_the_connection_alone(self) -> None:
        """The end of the child does not give back messages of its parent."""
        queue, connection = kombu.Queue("forked"), self.connect()
        self.publish(connection, queue, "x")
        message = queue(connection.default_channel).get()
        pid = os.fork()
        if pid == 0:
            try:
                connection.release()
            except BaseException:
                os._exit(1)
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIsNone(queue(self.connect().default_channel).get())
        message.ack()
        self.assertEqual(self.take(connection, queue, 0), [])

    def test_threads_end_with_the_connection(self) -> None:
        """No thread remains."""
        before = set(threading.enumerate())
        connection = self.connect()
        queue = kombu.Queue("threads")
        self.publish(connection, queue, "x")
        self.take(connection, queue, 1)
        connection.release()
        wait_until("the end of the threads", lambda: not [
            each for each in set(threading.enumerate()) - before
            if each.name.startswith("twistmq-")])


class RestartTests(SynchronousTestCase):
    """A broker that ends and starts again."""

    def test_a_consumer_waits_for_a_broker_that_restarts(self) -> None:
        """The consumer receives earlier and delayed messages over the same connection object."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        with running_broker(data=folder) as broker:
            ports = {"namesrv.port": str(broker.service.namesrv.port),
                     "listenPort": str(broker.service.broker.port)}
            connection = kombu.Connection(f"twistmq://{broker.namesrv_address}")
            self.addCleanup(connection.release)
            producer = kombu.Producer(connection)
            queue, bodies = kombu.Queue("restart"), []
            consumer = kombu.Consumer(connection, [queue], callbacks=[
                lambda body, message: (bodies.append(body), message.ack())])
            consumer.consume()
            producer.publish("before", routing_key="restart")
            connection.drain_events(timeout=20)
            producer.publish("delayed", routing_key="restart", headers=eta(4))
        with running_broker(ports, data=folder):
            producer.publish("after", routing_key="restart", retry=True)
            while len(bodies) < 3:
                connection.drain_events(timeout=40)
            self.assertEqual(bodies, ["before", "after", "delayed"])


class NameServerTests(SynchronousTestCase):
    """Without a name server."""

    def test_the_error_names_the_address(self) -> None:
        """The error has kombu's own type, which Celery passes on."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        connection = kombu.Connection(f"twistmq://127.0.0.1:{port}", connect_timeout=1,
                                      transport_options={"timeout_s": 0.5})
        error = self.assertRaises(OperationalError, connection.ensure_connection, max_retries=1,
                                  interval_start=0)
        self.assertIn(f"127.0.0.1:{port}", str(error))

    def test_the_next_address_is_tried(self) -> None:
        """As with other brokers, semicolons separate the addresses."""
        with running_broker() as broker, kombu.Connection(
                f"twistmq://127.0.0.1:1;twistmq://{broker.namesrv_address}",
                connect_timeout=1) as connection:
            connection.ensure_connection(max_retries=3, interval_start=0)
            self.assertTrue(connection.connected)
