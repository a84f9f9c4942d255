"""The blocking consumer, whose handlers run on several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from tests.client.test_shells import ShellCase
from twistmq.client import Consumer, Producer
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.handler_calls import Steps

#: The longest time for which a worker is suspended, in seconds.
_WAIT_S = 20


class StopTests(ShellCase):
    """A stop while a worker has a message and has not called its handler."""

    def suspend_first(self, consumer: Consumer[Any], name: str) -> threading.Event:
        """Suspend the worker that has the first message, until the event is set."""
        steps_of: Callable[[Batch[Any]], Steps] = getattr(consumer._handling, name)
        resumed = threading.Event()

        def suspended(batch: Batch[Any]) -> Steps:
            if batch.messages[0].offset == 0:
                resumed.wait(_WAIT_S)
            return steps_of(batch)

        setattr(consumer._handling, name, suspended)
        return resumed

    def test_no_finished_message_is_delivered_again(self) -> Deferred[Any]:
        """The suspended worker handles its message, because a later one was handled.

        The group would otherwise continue at the message of the suspended worker.
        """
        def run() -> None:
            with Producer(self.where) as producer:
                for _ in range(4):
                    producer.send("T", b"x", sharding_key="one")
                client = producer.client
                [queue] = {producer.send("T", b"x", sharding_key="one").queue}
                consumers: list[Consumer[Any]] = [
                    Consumer(client=client, group=group, topics="T", start="first")
                    for group in ("one_by_one", "as_list")]
                for consumer in consumers:
                    name = consumer._member.options.group
                    resumed = self.suspend_first(consumer, name)
                    seen: list[int] = []

                    def note(offset: int, consumer: Consumer[Any] = consumer,
                             seen: list[int] = seen,
                             resumed: threading.Event = resumed) -> None:
                        seen.append(offset)
                        consumer.stop()
                        resumed.set()

                    if name == "one_by_one":
                        consumer.run(lambda message, note=note: note(message.offset), workers=2)
                    else:
                        consumer.run_batches(
                            lambda messages, note=note: note(messages[0].offset),
                            size=1, workers=2)
                    consumer.close()
                    self.assertEqual(seen, [1, 0], msg=name)
                    self.assertEqual(client.group_offset(name, queue), 2, msg=name)

        return self.in_thread(run)
