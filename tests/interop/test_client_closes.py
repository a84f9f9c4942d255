"""Handlers that fail while their consumer closes: each message is delivered again once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from tests.interop.client_case import Broker, ClientTestCase
from tests.interop.servers import wait_until
from twistmq.client import Client, Consumer, Message, Producer, ReceivedMessage, Retry

#: Consumers that close, and messages that each of them has under way then.
RESTARTS, RUNNING = 10, 3


class CloseTests(ClientTestCase):
    """A group of which one consumer after the other closes."""

    def test_a_handler_that_fails_during_a_close_costs_one_delivery(self) -> None:
        """It fails while the close waits for it, or after the close has given it up.

        The first sends its message back; the other leaves it to the next member of the group.
        """
        self.on_each(self.check)

    def check(self, broker: Broker) -> None:
        """Check all restarts at one broker."""
        delivered: Counter[bytes] = Counter()
        with Client(broker.where) as client, Producer(client=client) as producer:
            for number in range(RESTARTS):
                self.close_one(client, producer, delivered, number)
            # It fails last, so those that failed before come again before it.
            producer.send("Closes", b"last")
            with Consumer(client=client, group="closes", topics="Closes",
                          start="first") as consumer:
                def handle(message: ReceivedMessage[Any]) -> None:
                    delivered[message.body] += 1
                    if message.body == b"last" and delivered[b"last"] == 1:
                        wait_until("all others were delivered", lambda: len(delivered) ==
                                   RESTARTS * RUNNING + 1)
                        raise Retry

                thread = threading.Thread(target=consumer.run, args=(handle,))
                thread.start()
                wait_until("the last one came again", lambda: delivered[b"last"] == 2, 120)
                wait_until("nothing is left", lambda: self.lag(client) == 0)
                consumer.stop()
                thread.join()
        self.assertEqual(set(delivered.values()), {2}, broker.name)
        self.assertEqual(len(delivered), RESTARTS * RUNNING + 1)

    def close_one(
        self, client: Client, producer: Producer, delivered: Counter[bytes], number: int
    ) -> None:
        """Close a consumer whose handlers of some messages run, and let them fail."""
        own = {b"%d-%d" % (number, index) for index in range(RUNNING)}
        running: set[bytes] = set()
        may_fail = threading.Event()
        producer.send_batch([Message("Closes", body) for body in own])

        def handle(message: ReceivedMessage[Any]) -> None:
            delivered[message.body] += 1
            if message.body in own and delivered[message.body] == 1:
                running.add(message.body)
                may_fail.wait(60)
                raise Retry

        consumer = Consumer(client=client, group="closes", topics="Closes", start="first")
        thread = threading.Thread(target=consumer.run, args=(handle,))
        thread.start()
        wait_until("the handlers run", lambda: running == own)
        closing = threading.Thread(target=consumer.close, args=(10 if number % 2 else 0.2,))
        closing.start()
        if number % 2:
            wait_until("it closes", lambda: consumer._member.is_closing)
        else:
            closing.join()
        may_fail.set()
        closing.join()
        thread.join()

    def lag(self, client: Client) -> int:
        """Messages of the topic that the group has not finished."""
        return sum(client.max_offset(queue) - (client.group_offset("closes", queue) or 0)
                   for queue in client.read_queues("Closes"))
