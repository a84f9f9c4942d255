"""A broker in this process, and brokers of Dramatiq that use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import dramatiq
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing import running_broker
from twistmq.broker.testing.in_process_broker import RunningBroker
from twistmq.integrations.dramatiq import TwistmqBroker

__all__ = ["DramatiqCase", "start_worker"]

#: A failing actor is called again soon, and at most twice.
RETRIES: Final = {"min_backoff": 100, "max_backoff": 100, "max_retries": 2}


def start_worker(
    case: SynchronousTestCase, broker: TwistmqBroker, threads: int = 4
) -> dramatiq.Worker:
    """Run a worker until the test ends."""
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=threads)
    worker.start()
    case.addCleanup(worker.stop)
    return worker


class DramatiqCase(SynchronousTestCase):
    """Each test has its own broker and its own queue."""

    server: RunningBroker

    def setUp(self) -> None:
        """Start the broker."""
        running = running_broker()
        self.server = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.broker = self.connect()
        self.calls: list[Any] = []

    def connect(self, **options: Any) -> TwistmqBroker:
        """Make a broker of Dramatiq that ends with the test."""
        broker = TwistmqBroker(self.server.namesrv_address, **{"invisible_s": 2, **options})
        self.addCleanup(broker.close)
        return broker

    def actor(
        self, call: Callable[..., Any], broker: TwistmqBroker | None = None, **options: Any
    ) -> Any:
        """Make an actor that calls a function and has its name."""
        return dramatiq.actor(
            call, broker=broker or self.broker, actor_name=call.__name__.strip("_"),
            **{**RETRIES, **options})

    def noting(self, broker: TwistmqBroker | None = None) -> Any:
        """Make an actor that notes its argument."""
        def note(value: Any) -> None:
            self.calls.append(value)

        return self.actor(note, broker)

    def start(self, broker: TwistmqBroker | None = None, threads: int = 4) -> dramatiq.Worker:
        """Run a worker until the test ends."""
        return start_worker(self, broker or self.broker, threads)

    def join(self, worker: dramatiq.Worker, queue: str = "default") -> None:
        """Wait until a queue is empty and its messages are finished."""
        self.broker.join(queue, timeout=60_000)
        worker.join()

    def dead_letter_count(self, queue: str = "default") -> int:
        """The number of dead letters of a queue."""
        return self.server.call(
            lambda: self.server.kernel.store.queues.max_offset(f"%DLQ%dramatiq-{queue}", 0))
