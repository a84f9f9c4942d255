"""A broker in this process, and connections of kombu to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kombu
from twisted.trial.unittest import SynchronousTestCase

import twistmq.integrations.celery  # noqa: F401
from twistmq.broker.testing import running_broker
from twistmq.broker.testing.in_process_broker import RunningBroker

__all__ = ["KombuCase"]


class KombuCase(SynchronousTestCase):
    """Each test has its own broker."""

    broker: RunningBroker

    def setUp(self) -> None:
        """Start the broker."""
        running = running_broker()
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)

    @property
    def url(self) -> str:
        """Return the URL of the broker."""
        return f"twistmq://{self.broker.namesrv_address}"

    def connect(self, **transport_options: Any) -> kombu.Connection:
        """Make a connection that ends with the test."""
        connection = kombu.Connection(self.url, transport_options=transport_options)
        self.addCleanup(connection.release)
        return connection

    def publish(
        self, connection: kombu.Connection, queue: kombu.Queue, *bodies: Any, **options: Any
    ) -> None:
        """Declare a queue, and send to the queue itself."""
        producer = kombu.Producer(connection.default_channel)
        for body in bodies:
            producer.publish(body, routing_key=queue.name, declare=[queue], **options)

    def take(
        self, connection: kombu.Connection, queue: kombu.Queue, count: int, *,
        timeout: float = 20, decide: Callable[[Any], object] = lambda message: message.ack(),
        prefetch: int = 0,
    ) -> list[Any]:
        """Consume until a number of messages has arrived; :returns: the decoded bodies.

        :param decide: called with each message.
        """
        received: list[Any] = []

        def on_message(message: Any) -> None:
            received.append(message.decode())
            decide(message)

        consumer = kombu.Consumer(connection, [queue], on_message=on_message,
                                  accept=["json", "text/plain"])
        if prefetch:
            consumer.qos(prefetch_count=prefetch)
        with consumer:
            while len(received) < count:
                connection.drain_events(timeout=timeout)
        return received

    def dead_letter_count(self, group: str) -> int:
        """Return the number of a group's dead letters."""
        return self.broker.call(
            lambda: self.broker.kernel.store.queues.max_offset(f"%DLQ%{group}", 0))
