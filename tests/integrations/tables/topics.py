"""Topics with messages, for the tests of reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.integrations.tables import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.broker.testing.raw_client import records_of
from twistmq.client import Client, Message, Producer
from twistmq.protocol.bodies import MessageQueue

__all__ = ["BROKER", "Topics", "topics"]

#: The name of the broker.
BROKER = "broker-a"


@dataclass
class Topics:
    """A broker, a client of it and a producer."""

    broker: RunningBroker
    client: Client
    producer: Producer
    #: The options that every source and sink gets.
    options: dict[str, str] = field(default_factory=dict)

    def queue(self, topic: str, queue_id: int = 0) -> MessageQueue:
        return MessageQueue(topic, BROKER, queue_id)

    def send(self, topic: str, queue_id: int, bodies: list[bytes],
             **properties: str) -> None:
        """Send messages to a queue, in order."""
        queue = self.queue(topic, queue_id)
        for begin in range(0, len(bodies), 100):
            self.producer.send_batch([Message(topic, body, properties=dict(properties))
                              for body in bodies[begin:begin + 100]], queue)

    def fill(self, topic: str, counts: list[int]) -> list[tuple[int, int, bytes]]:
        """Send a number of messages to each queue; :returns: (queue id, offset, body) of each
        message.
        """
        found = []
        for queue_id, count in enumerate(counts):
            bodies = [b"%s-%d-%d" % (topic.encode(), queue_id, offset) for offset in range(count)]
            self.send(topic, queue_id, bodies)
            found += [(queue_id, offset, body) for offset, body in enumerate(bodies)]
        return found

    def stored(self, topic: str, queue_ids: range = range(4)) -> list[Any]:
        """Return all records of a topic, by queue and offset."""
        found = []
        for queue_id in queue_ids:
            queue, offset = self.queue(topic, queue_id), 0
            while offset < self.client.max_offset(queue):
                result = self.client.pull(queue, offset)
                found += records_of(result.body)
                offset = result.next_offset
        return found


@contextmanager
def topics(**settings: str) -> Iterator[Topics]:
    """Start a broker without topics."""
    with running_broker({"brokerName": BROKER, **settings}) as broker, Client(
            broker.namesrv_address, timeout_s=30) as client:
        yield Topics(broker, client, Producer(client=client, timeout_s=30),
                     {"nameServer": broker.namesrv_address})
