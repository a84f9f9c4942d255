"""Celery on the transport: tasks, delays, retries, remote control and events."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

import kombu
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject
from kombu.exceptions import OperationalError

from tests.integrations.celery.case import KombuCase
from tests.interop.replica_times import Relay
from tests.interop.servers import wait_until


class CeleryCase(KombuCase):
    """An application, and its worker on a thread."""

    def setUp(self) -> None:
        """Make the application; its tasks append to ``self.calls``."""
        super().setUp()
        self.calls: list[Any] = []
        self.app = Celery("tests", broker=self.url, set_as_current=False)
        self.addCleanup(self.app.close)
        # Each test has its own queue.
        self.queue = self.id().rpartition(".")[2][:40]
        self.app.conf.update(
            task_default_queue=self.queue, worker_hijack_root_logger=False,
            broker_transport_options={"invisible_s": 2}, broker_connection_timeout=2,
            task_acks_late=True, worker_prefetch_multiplier=1)

    def noting(self) -> Any:
        """Register a task that notes its argument."""
        @self.app.task(name="note", shared=False)
        def note(number: int = 1) -> None:
            self.calls.append(number)

        return note

    def start(self, **options: Any) -> Any:
        """Run a worker until the test ends."""
        context = start_worker(self.app, pool="solo", perform_ping_check=False,
                               shutdown_timeout=30, loglevel="error", **options)
        worker = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return worker


class TaskTests(CeleryCase):
    """The tasks that workers run."""

    def test_tasks_run(self) -> None:
        """Each task runs once, in the order of the sends."""
        note = self.noting()
        for number in range(50):
            note.delay(number)
        self.start()
        wait_until("the tasks", lambda: len(self.calls) >= 50)
        self.assertEqual(self.calls, list(range(50)))

    def test_a_countdown_and_a_retry_are_delays_of_the_broker(self) -> None:
        """Other tasks run in the meantime, and the worker holds no message that is not due."""
        @self.app.task(name="flaky", shared=False, bind=True, max_retries=2)
        def flaky(this: Any) -> None:
            self.calls.append((this.request.retries, time.monotonic()))
            if this.request.retries < 2:
                raise this.retry(countdown=1.5)

        flaky.apply_async(countdown=1.5)
        begin = time.monotonic()
        worker = self.start()
        wait_until("the last attempt", lambda: len(self.calls) == 3)
        self.assertEqual([retries for retries, _ in self.calls], [0, 1, 2])
        times = [begin, *(when for _, when in self.calls)]
        for earlier, later in pairwise(times):
            self.assertGreater(later - earlier, 0.9)
        self.assertEqual(worker.consumer.timer.schedule.queue and [
            entry for entry in worker.consumer.timer.schedule.queue
            if "apply_eta_task" in str(entry)], [])

    def test_a_task_longer_than_the_invisible_time_runs_once(self) -> None:
        """No second worker gets the message."""
        @self.app.task(name="long", shared=False)
        def long() -> None:
            self.calls.append("begin")
            time.sleep(5)
            self.calls.append("end")

        long.delay()
        self.start()
        connection = self.connect(invisible_s=2)
        wait_until("the begin", lambda: self.calls == ["begin"])
        queue = kombu.Queue(self.queue)(connection.default_channel)
        while self.calls == ["begin"]:
            self.assertIsNone(queue.get())
        wait_until("the end", lambda: self.calls == ["begin", "end"])

    def test_unknown_and_rejected_tasks_are_dead_letters(self) -> None:
        """The worker continues to work."""
        @self.app.task(name="refuse", shared=False)
        def refuse() -> None:
            raise Reject("no", requeue=False)

        note = self.noting()
        self.app.send_task("unknown", queue=self.queue)
        refuse.delay()
        note.delay()
        self.start()
        wait_until("the task", lambda: self.calls == [1])
        self.assertEqual(self.dead_letter_count(f"kombu-{self.queue}"), 2)

    def test_a_purge_removes_the_tasks_that_wait(self) -> None:
        """The purge returns their number."""
        note = self.noting()
        for _ in range(5):
            note.delay()
        self.assertEqual(self.app.control.purge(), 5)
        self.assertEqual(self.app.control.purge(), 0)


class NameServerTests(CeleryCase):
    """A name server that goes while a worker runs."""

    def test_it_is_away_for_a_while(self) -> None:
        """Tasks run meanwhile, each once; a new queue is an error that names the name server."""
        server = ("127.0.0.1", self.broker.service.namesrv.port)
        self.app.conf.broker_transport_options = {"invisible_s": 2, "timeout_s": 0.5}
        note = self.noting()
        with Relay(("127.0.0.1", 0), server) as relay:
            address = relay.address
            self.app.conf.broker_url = f"twistmq://{address}"
            note.delay(1)
            self.start()
            wait_until("the first task", lambda: self.calls == [1])
        note.delay(2)
        wait_until("the second task", lambda: self.calls == [1, 2])
        error = self.assertRaises(OperationalError, note.apply_async, (3,), queue="new",
                                  retry=False)
        self.assertIn(address, str(error))
        with Relay(("127.0.0.1", int(address.rpartition(":")[2])), server):
            note.apply_async((4,), queue=self.queue)
            wait_until("the last task", lambda: self.calls == [1, 2, 4])


class ControlTests(CeleryCase):
    """Remote control and events."""

    def test_workers_answer_and_obey(self) -> None:
        """The requests are a ping, an inspection, and a command."""
        note = self.noting()
        worker = self.start()
        self.assertEqual(self.app.control.ping(timeout=20, limit=1),
                         [{worker.hostname: {"ok": "pong"}}])
        inspect = self.app.control.inspect([worker.hostname], timeout=20)
        self.assertIn("note", inspect.registered()[worker.hostname])
        self.assertEqual(inspect.active_queues()[worker.hostname][0]["name"], self.queue)
        reply = self.app.control.rate_limit("note", "100/s", reply=True, timeout=20,
                                            destination=[worker.hostname])
        self.assertEqual(list(reply[0][worker.hostname]), ["ok"])
        self.app.control.revoke("t-1", reply=True, timeout=20, destination=[worker.hostname])
        note.apply_async((1,), task_id="t-1")
        note.apply_async((2,), task_id="t-2")
        wait_until("the task that was not revoked", lambda: self.calls)
        self.assertEqual(self.calls, [2])

    def test_a_monitor_sees_the_events_of_tasks(self) -> None:
        """Flower and ``celery events`` receive the events in the same way.

        Two processes send them, so their order is not fixed.
        """
        expected = {"task-sent", "task-received", "task-started", "task-succeeded"}
        note = self.noting()
        self.app.conf.update(worker_send_task_events=True, task_send_sent_event=True)
        events: list[str] = []
        ready = threading.Event()
        connection = self.app.connection_for_read()
        self.addCleanup(connection.release)
        receiver = self.app.events.Receiver(
            connection, handlers={"*": lambda event: events.append(event["type"])})

        def watch() -> None:
            with receiver.consumer_context() as (watched, _, _):
                ready.set()
                while not expected.issubset(events):
                    try:
                        watched.drain_events(timeout=0.2)
                    except TimeoutError:
                        if self.is_over:
                            return

        self.is_over = False
        thread = threading.Thread(target=watch)
        self.addCleanup(thread.join, 30)
        self.addCleanup(setattr, self, "is_over", True)
        thread.start()
        ready.wait(30)
        self.start()
        note.delay()
        wait_until("the events", lambda: expected.issubset(events))
