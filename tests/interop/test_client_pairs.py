"""Our client with two brokers of one cluster, ours and Apache's, of which one is killed."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.interop.clients import JavaTestCase
from tests.interop.peer import Peer
from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.client import (
    Client,
    ClientError,
    Consumer,
    Producer,
    ReceivedMessage,
    SendResult,
)
from twistmq.client.core.connection.engine import Engine
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.record import records_of

#: Messages a second while a broker dies, and how long each part of it takes, seconds.
RATE, PART_SECONDS = 200, 1.5
#: For longer than a failed send alone keeps a broker from being used, and several rounds of probes.
ROUNDS_SECONDS = 14.0


class PairTests(JavaTestCase):
    """A topic with four queues at each broker."""

    ours: Servers
    apache: Peer

    def setUp(self) -> None:
        """Start both with our name server."""
        super().setUp()
        self.ours = Servers(self.folder / "ours", "brokerName=broker-ours")
        self.ours.start()
        self.addCleanup(self.ours.stop)
        # It tells clients to go away for some seconds before it ends in order.
        self.apache = self.start_apache(
            with_namesrv=False, namesrv_address=self.ours.namesrv, settings={
                "enableShutdownGracefully": "true", "shutdownWaitTimeSeconds": "5"})
        for port in (self.ours.broker_port, self.apache.broker_port):
            with RawClient(f"127.0.0.1:{port}") as client:
                client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                    topic="Pair", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4,
                    perm=6, topic_filter_type="SINGLE_TAG"))

    def wait_for_queues(self, client: Client) -> None:
        """Wait until the route has both brokers."""
        wait_until("both brokers have the topic", lambda: len(
            client.write_queues("Pair", again=True)) == 8)

    def test_a_death_costs_no_message_and_requests_use_both(self) -> None:
        """Fifty requests are sent at a time; then Apache's broker gets SIGKILL during sends."""
        with Producer(self.ours.namesrv) as producer:
            wait_until("the topic is known", lambda: producer.client.topics())
            self.wait_for_queues(producer.client)
            self.requests(producer)
            results = self.sends(producer)
            self.apache.start_broker()
            wait_until("the broker is back", lambda: self.is_stored(producer.client, results))

    def test_a_broker_that_hangs_gets_nothing_until_a_probe_reaches_it(self) -> None:
        """Apache's broker is stopped and continued; its name server knows it all the time."""
        with Producer(self.ours.namesrv, avoid_slow=True, timeout_s=2, retries=0) as producer:
            wait_until("the topic is known", lambda: producer.client.topics())
            self.wait_for_queues(producer.client)
            wait_until("both brokers are sent to", lambda: len(
                {self.broker_of_a_send(producer) for _ in range(16)}) == 2)
            self.apache.signal_broker(signal.SIGSTOP)
            self.addCleanup(self.apache.signal_broker, signal.SIGCONT)
            wait_until("a send fails", lambda: self.broker_of_a_send(producer) == "")
            begin = time.monotonic()
            found: list[str] = []

            def a_round_is_over() -> bool:
                found.append(self.broker_of_a_send(producer))
                return time.monotonic() > begin + ROUNDS_SECONDS

            wait_until("probes were sent", a_round_is_over)
            self.assertEqual(set(found), {"broker-ours"})
            self.apache.signal_broker(signal.SIGCONT)
            wait_until("it gets messages again", lambda: self.broker_of_a_send(
                producer) == "broker-peer")

    def broker_of_a_send(self, producer: Producer) -> str:
        """The broker that stored a message; "" when the send failed."""
        try:
            return producer.send("Pair", b"probed").queue.broker_name
        except ClientError:
            return ""

    def test_a_broker_that_sends_clients_away_costs_no_message(self) -> None:
        """Apache's broker answers GO_AWAY while it ends; each send succeeds at the other one."""
        sent_away: list[str] = []
        went_away = Engine.went_away

        def noting(engine: Engine, call: Any) -> None:
            sent_away.append(call.connection.address)
            went_away(engine, call)

        self.patch(Engine, "went_away", noting)
        with Producer(self.ours.namesrv, timeout_s=15) as producer:
            wait_until("the topic is known", lambda: producer.client.topics())
            self.wait_for_queues(producer.client)
            ending = threading.Thread(target=self.apache.stop_one, args=("broker",))
            results = [producer.send("Pair", b"before %d" % number) for number in range(16)]
            self.assertEqual(len({result.queue.broker_name for result in results}), 2)
            ending.start()
            while ending.is_alive():
                producer.send("Pair", b"while it ends")
            ending.join()
        self.assertEqual(set(sent_away), {f"127.0.0.1:{self.apache.broker_port}"})

    def test_consumption_goes_on_soon_after_a_restart(self) -> None:
        """Apache's broker, and ours with its name server, get SIGKILL."""
        bodies: list[bytes] = []
        with Producer(self.ours.namesrv) as producer, Consumer(
                self.ours.namesrv, group="pair", topics="Pair", start="first") as consumer:
            wait_until("the topic is known", lambda: producer.client.topics())
            self.wait_for_queues(producer.client)
            thread = threading.Thread(target=consumer.run, args=(
                lambda message: bodies.append(message.body),))
            thread.start()
            wait_until("it has all queues", lambda: len(consumer.assigned()) == 8)
            self.apache.stop_one("broker", kill=True)
            self.apache.start_broker()
            self.comes_through(producer, "broker-peer", bodies)
            self.ours.stop(signal.SIGKILL)
            self.ours.start()
            self.comes_through(producer, "broker-ours", bodies)
            consumer.stop()
            thread.join()

    def comes_through(self, producer: Producer, broker: str, bodies: list[bytes]) -> None:
        """A message to each queue of a broker is consumed soon after the broker accepts it."""
        sent = [b"%s %d" % (broker.encode(), number) for number in range(4)]
        for queue, body in zip((each for each in producer.queues("Pair")
                                if each.broker_name == broker), sent, strict=True):
            wait_until("it is sent", lambda queue=queue, body=body: self.is_sent(
                producer, body, queue))
        # An announcement of the group that waits for the next heartbeat would take up to 30 s.
        wait_until("all are consumed", lambda: set(sent) <= set(bodies), 15)

    def is_sent(self, producer: Producer, body: bytes, queue: Any) -> bool:
        """Try to send a message to a queue."""
        try:
            return producer.send("Pair", body, queue=queue).safe
        except ClientError:
            return False

    def requests(self, producer: Producer) -> None:
        """Check that all replies arrive, and that both brokers had some of the requests."""
        brokers: set[str] = set()

        def handle(message: ReceivedMessage[Any]) -> None:
            brokers.add(message.queue.broker_name)
            consumer.reply(message, b"re: " + message.body)

        with Consumer(self.ours.namesrv, group="pair", topics="Pair", start="first") as consumer:
            thread = threading.Thread(target=consumer.run, args=(handle,))
            thread.start()
            wait_until("it has all queues", lambda: len(consumer.assigned()) == 8)
            questions = [b"%d" % number for number in range(50)]
            with ThreadPoolExecutor(50) as threads:
                replies = list(threads.map(
                    lambda question: producer.request("Pair", question, timeout_s=20).body,
                    questions))
            consumer.stop()
            thread.join()
        self.assertEqual(replies, [b"re: " + question for question in questions])
        self.assertEqual(len(brokers), 2)

    def sends(self, producer: Producer) -> list[SendResult]:
        """Send all the time while the broker is killed; :returns: the result of each send."""
        is_over = threading.Event()
        waiting = []

        def feed() -> None:
            number = 0
            # The producer's pace, no wait for anything.
            while not is_over.wait(1 / RATE):
                waiting.append(producer.send_soon("Pair", b"sent-%d" % number))
                number += 1

        thread = threading.Thread(target=feed)
        thread.start()
        end = time.monotonic() + PART_SECONDS
        wait_until("some are sent", lambda: time.monotonic() > end)
        self.apache.stop_one("broker", kill=True)
        end = time.monotonic() + PART_SECONDS
        wait_until("more are sent", lambda: time.monotonic() > end)
        is_over.set()
        thread.join()
        producer.flush(60)
        self.assertGreater(len(waiting), RATE)
        self.assertEqual([each.exception() for each in waiting if each.exception()], [])
        results = [each.result() for each in waiting]
        self.assertEqual(len({result.queue.broker_name for result in results}), 2)
        return results

    def is_stored(self, client: Client, results: list[SendResult]) -> bool:
        """Whether each acknowledged message is at the place of its result."""
        try:
            found = {(queue, record.queue_offset): record.properties_map()["UNIQ_KEY"]
                     for queue in client.read_queues("Pair", again=True)
                     for record in self.records(client, queue)}
        except Exception:
            return False
        return all(found.get((each.queue, each.offset)) == each.id for each in results)

    def records(self, client: Client, queue: Any) -> list[Any]:
        """Return all messages of a queue."""
        found: list[Any] = []
        while body := client.pull(queue, len(found), max_count=32).body:
            found += records_of(body)
        return found
