"""Priority messages of the client, from a program to a pop of a running broker."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing import running_broker
from twistmq.client import Client, Message, PopConsumer, Producer
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

TOPIC = "Jobs"
COUNT = 8


class PriorityTests(SynchronousTestCase):
    """A topic of the type PRIORITY with four queues."""

    def test_the_highest_priority_is_consumed_first(self) -> None:
        """A message goes to the queue of its priority, or to the last one."""
        with running_broker() as broker, Client(broker.namesrv_address, timeout_s=60) as client:
            client.ask(broker.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC,
                       CreateTopicRequestHeader(
                           topic=TOPIC, default_topic="TBW102", read_queue_nums=4,
                           write_queue_nums=4, perm=6, topic_filter_type="SINGLE_TAG",
                           attributes="+message.type=PRIORITY"))
            # Without the mode, a member pops one queue after the other.
            client.ask(broker.broker_address, RequestCode.SET_MESSAGE_REQUEST_MODE, None,
                       json.dumps({"topic": TOPIC, "consumerGroup": "g", "mode": "POP",
                                   "popShareQueueNum": 0}).encode())
            producer = Producer(client=client, group="p")
            sent = [producer.send(Message(TOPIC, b"%d" % number, priority=number % 5))
                    for number in range(COUNT)]
            self.assertEqual([each.queue.queue_id for each in sent],
                             [min(number % 5, 3) for number in range(COUNT)])
            with PopConsumer(client=client, group="g", topics=TOPIC, start="first",
                             pop_count=1) as consumer:
                found: list[int | None] = []
                while len(found) < COUNT:
                    messages = consumer.receive(1)
                    consumer.acknowledge(messages)
                    found += [message.priority for message in messages]
        queues = [min(priority or 0, 3) for priority in found]
        self.assertEqual(queues, sorted(queues, reverse=True), msg=str(found))
        self.assertEqual(sorted(map(str, found)), sorted(str(n % 5) for n in range(COUNT)))
