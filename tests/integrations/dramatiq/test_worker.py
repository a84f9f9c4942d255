"""Workers of Dramatiq on the broker: the messages that they run, and their ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import dramatiq
from dramatiq.common import current_millis
from dramatiq.errors import BrokerConnectionError, ConnectionClosed
from dramatiq.middleware import Middleware
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend
from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.dramatiq.case import DramatiqCase, start_worker
from tests.interop.replica_times import Relay
from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.integrations.dramatiq import TwistmqBroker


class ActorTests(DramatiqCase):
    """The messages that workers run; adapted from the tests that Dramatiq has for its brokers."""

    def test_messages_run_once_in_the_order_in_which_they_were_sent(self) -> None:
        """A worker with one thread keeps the order of the messages."""
        note = self.noting()
        for number in range(100):
            note.send(number)
        self.join(self.start(threads=1))
        self.assertEqual(self.calls, list(range(100)))

    def test_a_failed_message_is_called_again_after_its_backoff(self) -> None:
        """The actor is called again until it succeeds."""
        def flaky() -> None:
            self.calls.append(current_millis())
            if len(self.calls) < 3:
                raise RuntimeError("not yet")

        self.actor(flaky, min_backoff=800, max_backoff=800).send()
        self.join(self.start())
        first, second, third = self.calls
        self.assertGreaterEqual(second - first, 400)
        self.assertGreaterEqual(third - second, 400)
        self.assertEqual(self.dead_letter_count(), 0)

    def test_a_message_without_further_retries_is_a_dead_letter(self) -> None:
        """The message becomes a dead letter after its last retry, and other messages still run."""
        def fail() -> None:
            self.calls.append("failed")
            raise RuntimeError("always")

        self.actor(fail, max_retries=1).send()
        note = self.noting()
        note.send("next")
        self.join(self.start())
        self.assertCountEqual(self.calls, ["failed", "next", "failed"])
        self.assertEqual(self.dead_letter_count(), 1)

    def test_a_message_of_an_unknown_actor_is_a_dead_letter(self) -> None:
        """Dramatiq rejects such a message, and the broker keeps it as a dead letter."""
        self.broker.enqueue(dramatiq.Message("default", "unknown", (), {}, {}))
        note = self.noting()
        note.send("known")
        self.join(self.start())
        self.assertEqual((self.calls, self.dead_letter_count()), (["known"], 1))

    def test_delays_do_not_depend_on_each_other(self) -> None:
        """The shorter one ends first; no actor is called before its time."""
        def late(delay: int) -> None:
            self.calls.append((delay, current_millis()))

        actor = self.actor(late)
        begin = current_millis()
        for delay in (2500, 1200):
            actor.send_with_options(args=(delay,), delay=delay)
        self.join(self.start())
        self.assertEqual([delay for delay, _ in self.calls], [1200, 2500])
        for delay, when in self.calls:
            self.assertGreaterEqual(when - begin, delay)

    def test_a_task_longer_than_the_invisible_time_runs_once(self) -> None:
        """No second worker gets the message."""
        def long() -> None:
            self.calls.append("begin")
            time.sleep(5)
            self.calls.append("end")

        self.actor(long).send()
        self.start()
        wait_until("the begin", lambda: self.calls == ["begin"])
        other = self.connect()
        other.declare_queue("default")
        consumer = other.consume("default", timeout=200)
        while self.calls == ["begin"]:
            self.assertIsNone(next(consumer))
        self.assertEqual(self.calls, ["begin", "end"])

    def test_pipelines_and_results(self) -> None:
        """Dramatiq's own middleware, which uses the global broker, works with this broker."""
        self.addCleanup(dramatiq.set_broker, None)
        dramatiq.set_broker(self.broker)
        self.broker.add_middleware(Results(backend=StubBackend()))

        def double(number: int) -> int:
            return number * 2

        actor = self.actor(double, store_results=True)
        self.start()
        pipeline = (actor.message(3) | actor.message()).run()
        self.assertEqual(pipeline.get_result(block=True, timeout=30_000), 12)
        group = dramatiq.group([actor.message(1), actor.message(2)], broker=self.broker).run()
        self.assertEqual(list(group.get_results(block=True, timeout=30_000)), [2, 4])

    def test_middlewares_see_each_step(self) -> None:
        """The steps have the order of Dramatiq's own brokers; no message waits in a worker for its
        time.
        """
        steps: list[str] = []

        class Watcher(Middleware):
            def __getattribute__(self, name: str) -> Any:
                if name.startswith(("before_", "after_")) and name.endswith(
                        ("queue", "message", "ack")):
                    return lambda *_, **__: steps.append(name)
                return super().__getattribute__(name)

        self.broker.add_middleware(Watcher())
        note = self.noting()
        self.join(self.start(threads=1))
        note.send_with_options(args=(1,), delay=100)
        wait_until("the last step", lambda: "after_ack" in steps)
        self.assertEqual(steps, [
            "before_declare_queue", "after_declare_queue", "before_enqueue", "after_enqueue",
            "before_process_message", "after_process_message", "before_ack", "after_ack"])


class LostRetryTests(DramatiqCase):
    """Retries that are not sent: Dramatiq itself would finish the message."""

    def test_a_message_whose_retry_cannot_be_sent_is_delivered_again(self) -> None:
        """The message is delivered again when its invisible time is over."""
        def flaky() -> None:
            self.calls.append("called")
            if len(self.calls) == 1:
                raise RuntimeError("not yet")

        self.actor(flaky).send()
        connection = self.broker._connect()
        send = connection.send
        with mock.patch.object(connection, "send", side_effect=ConnectionClosed("away")) as away:
            worker = self.start()
            wait_until("the retry", lambda: away.called)
        self.assertIs(connection.send.__func__, send.__func__)
        wait_until("the second call", lambda: len(self.calls) == 2)
        self.join(worker)
        self.assertEqual((len(self.calls), self.dead_letter_count()), (2, 0))

    def test_a_message_whose_retry_is_refused_is_a_dead_letter(self) -> None:
        """Its traceback makes the retry too large."""
        def fail() -> None:
            raise RuntimeError("x" * (5 << 20))

        self.actor(fail).send()
        self.join(self.start())
        self.assertEqual(self.dead_letter_count(), 1)

    def test_a_rejection_is_repeated_until_the_broker_answers(self) -> None:
        """The message stays hidden in the meantime, so it does not run again."""
        def fail() -> None:
            self.calls.append("called")
            raise RuntimeError("always")

        self.actor(fail, max_retries=0).send()
        reader = self.broker._connect().reader("default")
        bury, errors = reader.bury, [BrokerConnectionError("away")] * 2
        with mock.patch.object(
                reader, "bury", side_effect=lambda task: _fail(errors) or bury(task)), \
                mock.patch("dramatiq.worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 1.5):
            self.start()
            wait_until("the dead letter", lambda: self.dead_letter_count() == 1)
        self.assertEqual((self.calls, errors), (["called"], []))


def _fail(errors: list[BrokerConnectionError]) -> None:
    """Raise the next error, as long as there is one."""
    if errors:
        raise errors.pop()


class EndTests(DramatiqCase):
    """Workers that end."""

    def test_a_worker_that_stops_finishes_what_runs_and_gives_the_rest_back(self) -> None:
        """Another worker has it at once, and nothing runs twice."""
        begun, may_end = threading.Event(), threading.Event()
        broker = self.connect(invisible_s=600)

        def work(number: int) -> None:
            self.calls.append(number)
            begun.set()
            may_end.wait(30)

        actor = self.actor(work, broker)
        for number in range(3):
            actor.send(number)
        worker = start_worker(self, broker, threads=1)
        begun.wait(30)
        wait_until("the other messages", lambda: worker.work_queue.qsize() == 1)
        stop = threading.Thread(target=worker.stop)
        stop.start()
        wait_until("the stop", lambda: not any(each.running for each in worker.workers))
        may_end.set()
        stop.join(30)
        self.assertEqual(self.calls, [0])
        other = self.connect()
        self.actor(work, other)
        self.start(other)
        wait_until("the rest", lambda: len(self.calls) == 3)
        self.assertEqual(set(self.calls), {0, 1, 2})


class NameServerTests(DramatiqCase):
    """A name server that goes while a worker runs."""

    def test_it_is_away_for_a_while(self) -> None:
        """Messages run meanwhile, each once; a new queue is an error that names the name server."""
        server = ("127.0.0.1", self.server.service.namesrv.port)
        with Relay(("127.0.0.1", 0), server) as relay:
            address = relay.address
            broker = TwistmqBroker(address, timeout_s=0.5, connect_timeout_s=0.5, retries=0)
            self.addCleanup(broker.close)
            note = self.noting(broker)
            self.start(broker)
            note.send(1)
            wait_until("the first call", lambda: self.calls == [1])
        note.send(2)
        wait_until("the second call", lambda: self.calls == [1, 2])
        error = self.assertRaises(BrokerConnectionError, broker.enqueue,
                                  note.message(3).copy(queue_name="new"))
        self.assertIn(address, str(error))
        with Relay(("127.0.0.1", int(address.rpartition(":")[2])), server):
            note.send(4)
            wait_until("the last call", lambda: self.calls == [1, 2, 4])


class RestartTests(SynchronousTestCase):
    """A broker that ends and starts again."""

    def test_a_worker_waits_for_a_broker_that_restarts(self) -> None:
        """The worker receives earlier and delayed messages, and a running message runs once."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        calls: list[str] = []
        may_end = threading.Event()
        with running_broker(data=folder) as server, mock.patch(
                "dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.2):
            ports = {"namesrv.port": str(server.service.namesrv.port),
                     "listenPort": str(server.service.broker.port)}
            broker = TwistmqBroker(server.namesrv_address, timeout_s=1)
            self.addCleanup(broker.close)

            def note(text: str) -> None:
                calls.append(text)
                if text == "running":
                    may_end.wait(60)

            actor = dramatiq.actor(note, broker=broker)
            actor.send_with_options(args=("delayed",), delay=4000)
            actor.send("running")
            start_worker(self, broker)
            wait_until("the first call", lambda: calls == ["running"])
        with running_broker(ports, data=folder):
            may_end.set()
            actor.send("after")
            wait_until("all calls", lambda: len(calls) == 3)
            broker.join("default", timeout=60_000)
        self.assertCountEqual(calls, ["running", "after", "delayed"])
