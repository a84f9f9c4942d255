"""A pair of a master and a slave that our client reads: ours, and Apache's."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.client import Client, ClientError, Consumer, MessageQueue, Producer
from twistmq.client.base.interceptors import Interceptor
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
)

__all__ = ["Pair", "check_diverted", "check_late_member"]

TOPIC, COUNT = "SlaveReads", 40
#: How long what both brokers and the name server have to hear of may take, seconds.
PATIENCE = 90.0


class Pair:
    """A pair of brokers of the name "pair".

    :param master: address of the master; ``slave`` that of its slave.
    :param beside: address of a master of another name.
    :param is_complete: whether the slave has all messages.
    """

    def __init__(
        self, namesrv: str, master: str, slave: str, beside: str, is_complete: Callable[[], bool],
    ) -> None:
        self.namesrv = namesrv
        self.master, self.slave = master, slave
        self.is_complete = is_complete
        for address in (master, beside):
            with RawClient(address) as client:
                client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                    topic=TOPIC, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4,
                    perm=6, topic_filter_type="SINGLE_TAG"))

    def fill(self, producer: Producer) -> tuple[list[MessageQueue], set[bytes]]:
        """Send messages to the queues of the pair, and wait until the slave has copied them."""
        wait_until("both are routed", lambda: self.is_routed(producer.client), PATIENCE)
        queues = [each for each in producer.queues(TOPIC) if each.broker_name == "pair"]
        sent = send(producer, 0, COUNT, queues)
        wait_until("the slave has all", self.is_complete, PATIENCE)
        return queues, set(sent)

    def is_known_to_slave(self) -> bool:
        """Whether the slave answers questions about the topic."""
        with RawClient(self.slave) as client:
            return client.request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(
                topic=TOPIC)).code == ResponseCode.SUCCESS

    def is_routed(self, client: Client) -> bool:
        """Whether the name server has both brokers of the pair, and the other one."""
        try:
            data = client.route(TOPIC, again=True)
        except ClientError:
            return False
        return len(data.queue_datas) == 2 and any(
            set(each.broker_addrs.values()) == {self.master, self.slave}
            for each in data.broker_datas)


class Pulls(Interceptor):
    """An interceptor that counts the pulls of each broker."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before_request(self, address: str, code: int, body: bytes) -> None:
        """See ``Interceptor``."""
        self.counts[address] += code == RequestCode.PULL_MESSAGE


class Reader:
    """A consumer, its messages, and the brokers from which it read them."""

    def __init__(self, pair: Pair, group: str) -> None:
        self.bodies: list[bytes] = []
        self.pulls = Pulls()
        self.consumer: Consumer[Any] = Consumer(
            pair.namesrv, group=group, topics=TOPIC, start="first", interceptors=[self.pulls])
        self._thread = threading.Thread(target=self.consumer.run, args=(
            lambda message: self.bodies.append(message.body),))
        self._thread.start()

    def sources(self) -> set[int]:
        """The ids of the brokers that the queues of the pair are read from now."""
        return {held.broker_id for held in list(self.consumer._member.assigned_queues.values())
                if held.queue.topic == TOPIC and held.queue.broker_name == "pair"}

    def close(self) -> None:
        """Leave the group."""
        self.consumer.stop()
        self._thread.join()
        self.consumer.close()


def send(producer: Producer, first: int, count: int, queues: list[MessageQueue]) -> list[bytes]:
    """Send messages to queues in turn; :returns: the bodies."""
    bodies = [b"%d" % number for number in range(first, first + count)]
    for number, body in enumerate(bodies):
        producer.send(TOPIC, body, queue=queues[number % len(queues)])
    return bodies


def check_diverted(pair: Pair) -> None:
    """The master sends readers of old messages to the slave, and the slave sends them back."""
    with Producer(pair.namesrv, timeout_s=20) as producer:
        _, sent = pair.fill(producer)
        reader = Reader(pair, "diverted")
        try:
            wait_until("all came", lambda: set(reader.bodies) == sent, PATIENCE)
            wait_until("the master is read again", lambda: reader.sources() == {0}, PATIENCE)
            assert reader.pulls.counts[pair.slave] > 0, reader.pulls.counts
        finally:
            reader.close()


def check_late_member(pair: Pair, stop_master: Callable[[], object]) -> None:
    """A member that starts while the master is down reads the whole slave.

    :raises AssertionError: when a message is missing.
    """
    with Producer(pair.namesrv, group="slave_reads") as producer:
        _, sent = pair.fill(producer)
    # Topics follow the messages some seconds later; a slave refuses pulls of one it has not.
    wait_until("the slave has the topic", pair.is_known_to_slave, PATIENCE)
    stop_master()
    found: set[bytes] = set()
    with Consumer(pair.namesrv, group="late", topics=TOPIC, start="first") as consumer:
        timer = threading.Timer(PATIENCE, consumer.stop)
        timer.start()
        for message in consumer:
            found.add(message.body)
            if sent <= found:
                break
        timer.cancel()
    assert sent <= found, f"{len(sent - found)} of {len(sent)} messages are missing"
