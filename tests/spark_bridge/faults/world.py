"""The servers of the fault harness, their topics, and producers that never stop.

There are a name server, a broker named ``solo``, and a pair, master and slave, named ``pair``: each
a process of its own. One producer a broker sends to all its queues in turn.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.replicas import Group, OurReplica, slaves_of
from tests.interop.servers import wait_until
from tests.spark_bridge.faults.ledger import Ledger, Outcome, Place
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import records_of, send_header
from twistmq.client import Client
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from twistmq.protocol.headers.offset import (
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader

__all__ = ["COPY", "PAIR", "SOLO", "TOPICS", "World"]

SOLO, PAIR = "solo", "pair"
#: The topics that producers send to, by the broker; the one that the sink writes to; and the one
#: that is never read, which makes files of the log end.
TOPICS: Final = {SOLO: ("steady", "grows", "made"), PAIR: ("steady",)}
COPY: Final = "copied"
FILLER: Final = "filler"
_QUEUES: Final = {"steady": 2, "grows": 1, "made": 2, COPY: 2, FILLER: 1}
#: How long an answer may take, and a server's start or another change, seconds.
_ANSWER_SECONDS: Final = 3.0
_PATIENCE_SECONDS: Final = 120.0
_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(64 * 1024), "maxMessageSize": "30000",
    "autoCreateTopicEnable": "false", "registerNameServerPeriod": "10000",
    "cleanResourceInterval": "200", "flushConsumeQueueThoroughInterval": "500",
    "flushIntervalConsumeQueue": "200", "deleteCommitLogFilesInterval": "10",
    "slaveReadEnable": "true", "slaveTimeout": "1000", "timerWheelEnable": "false"}
_MASTER: Final = {"brokerRole": "SYNC_MASTER", "brokerId": "0", "inSyncReplicas": "2"}
_SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
#: A send that was answered so is stored, less safely than it should be.
_STORED: Final = frozenset({
    ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT})
#: A send that was answered so is not stored.
_NOT_STORED: Final = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY})


class World:
    """All servers and producers; a ``with`` block ends them.

    :param rate: messages a second to each broker.
    """

    def __init__(self, folder: Path, ledger: Ledger, rate: float) -> None:
        self.folder = folder
        self.ledger = ledger
        self._stack = contextlib.ExitStack()
        self.group = Group(folder)
        self._rate = rate
        #: Held while something needs the name server, or ends it.
        self.names_lock = threading.RLock()
        self.senders: dict[str, Producer] = {}

    def __enter__(self) -> World:
        try:
            self._stack.enter_context(self.group)
            self.solo = self.group.ours(SOLO, **_SETTINGS, brokerName=SOLO)
            self.pair = [self.group.ours(f"{PAIR}-{number}", **_SETTINGS, brokerName=PAIR,
                                         **role)
                         for number, role in enumerate((_MASTER, _SLAVE))]
            for broker in (self.solo, *self.pair):
                broker.start()
            self.wait_for_slave()
            for broker_name, topics in TOPICS.items():
                for topic in topics:
                    self.create(topic, broker_name, _QUEUES[topic])
            self.create(COPY, PAIR, _QUEUES[COPY])
            self.create(FILLER, SOLO, _QUEUES[FILLER])
            for broker_name in TOPICS:
                self.senders[broker_name] = Producer(self, broker_name, self._rate)
                self._stack.callback(self.senders[broker_name].stop)
                self.senders[broker_name].start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def namesrv(self) -> str:
        return self.group.namesrv.address

    def master(self, broker_name: str) -> OurReplica:
        """Return the broker with a name that accepts messages."""
        return self.solo if broker_name == SOLO else self.pair[0]

    def places(self, broker_name: str, topic: str = "") -> list[Place]:
        """The queues that producers of a broker send to."""
        return [place for place in self.senders[broker_name].places
                if not topic or place[0] == topic]

    # --- topics

    def create(self, topic: str, broker_name: str, queues: int) -> None:
        """Make a topic, or give it more queues; returns when name servers know them."""
        self._ask(broker_name, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic, "TBW102", queues, queues, 6, "SINGLE_TAG"))
        wanted = {MessageQueue(topic, broker_name, number) for number in range(queues)}

        def is_known() -> bool:
            try:
                return wanted <= set(client.read_queues(topic, again=True))
            except BrokerError:
                return False

        with self.names_lock, Client(self.namesrv) as client:
            wait_until(f"{topic} is known", is_known, _PATIENCE_SECONDS)

    def delete(self, topic: str, broker_name: str) -> None:
        """Delete a topic as the command of the administrator does."""
        self._ask(broker_name, RequestCode.DELETE_TOPIC_IN_BROKER,
                  DeleteTopicRequestHeader(topic=topic))
        with self.names_lock, Client(self.namesrv, timeout_s=30, retries=10) as client:
            client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV,
                                   DeleteTopicFromNamesrvRequestHeader(topic=topic))

    def _ask(self, broker_name: str, code: int, header: object) -> None:
        with RawClient(self.master(broker_name).address, 30) as client:
            reply = client.request(code, header)  # type: ignore[arg-type]
            assert not reply.code, reply.remark

    def bounds(self, places: list[Place]) -> dict[Place, tuple[int, int]]:
        """Return the first and the next offset of queues at their masters."""
        found = {}
        for place in places:
            # A name server may be away.
            with RawClient(self.master(place[1]).address, 30) as client:
                begin = client.request(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(
                    topic=place[0], queue_id=place[2]))
                assert not begin.code, begin.remark
                found[place] = (begin.header(GetMinOffsetResponseHeader).offset,
                                client.max_offset(place[0], place[2]))
        return found

    def content(self, place: Place) -> Iterator[tuple[int, str, dict[str, str]]]:
        """The messages of a queue at its master: offset, body and properties."""
        [(begin, end)] = self.bounds([place]).values()
        with Client(self.namesrv, timeout_s=30, retries=20, retry_wait_s=0.5) as client:
            while begin < end:
                found = client.pull(MessageQueue(*place), begin, group="checker", max_count=32)
                for record in records_of(found.body):
                    yield record.queue_offset, record.body.decode(), record.properties_map()
                assert found.next_offset > begin, (place, begin, found)
                begin = found.next_offset

    # --- pairs

    def wait_for_slave(self) -> None:
        """Wait until the slave of the pair has all messages of its master."""
        def is_in_sync() -> bool:
            try:
                return slaves_of(self.pair[0].address).in_sync_slave_nums > 0
            except BrokerError:
                return False

        wait_until("the slave is in sync", is_in_sync, _PATIENCE_SECONDS)

    def swap_roles(self) -> None:
        """Start the old master, which is dead, as the slave of the one that was promoted."""
        self.pair.reverse()
        new, old = self.pair
        new.settings.update(_MASTER)
        old.settings.update(_SLAVE)
        old.settings["ha.resync"] = "true"
        old.start()
        del old.settings["ha.resync"]
        self.wait_for_slave()
        # A promoted slave waits for no slave until it is started as the master that it is.
        new.end()
        new.start()
        self.wait_for_slave()


class Producer:
    """A thread that sends to all queues of a broker in turn."""

    def __init__(self, world: World, broker_name: str, rate: float) -> None:
        self.world = world
        self.broker_name = broker_name
        self.places: list[Place] = [
            (topic, broker_name, number) for topic in TOPICS[broker_name]
            for number in range(_QUEUES[topic])]
        self._paused: set[str] = set()
        self._lock = threading.Lock()
        self._pause_s = 1 / rate
        self._client: RawClient | None = None
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: An error that is none of a server that is away.
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more; the answer that is due is awaited."""
        self._stops.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    @contextlib.contextmanager
    def paused(self, *topics: str) -> Iterator[None]:
        """Send nothing to topics, or to any, while the block runs."""
        names = set(topics or TOPICS[self.broker_name])
        with self._lock:
            self._paused |= names
        try:
            yield
        finally:
            with self._lock:
                self._paused -= names

    def burst(self, place: Place, count: int) -> None:
        """Send messages now, also to a topic that is paused."""
        for _ in range(count):
            with self._lock:
                self._send(place)

    def _run(self) -> None:
        for number in itertools.count():
            if self._stops.wait(self._pause_s):
                return
            place = self.places[number % len(self.places)]
            try:
                with self._lock:
                    if place[0] not in self._paused:
                        self._send(place)
            except Exception as error:
                self.failures.append(f"the producer of {self.broker_name}: {error!r}")
                return

    def _send(self, place: Place) -> None:
        if self._client is None:
            try:
                self._client = RawClient(self.world.master(self.broker_name).address,
                                         _ANSWER_SECONDS)
            except BrokerError:
                return
        ledger = self.world.ledger
        sent = ledger.begin(place)
        header = send_header(place[0], time.time_ns() // 1_000_000, queue_id=place[2])
        try:
            reply = self._client.request(RequestCode.SEND_MESSAGE_V2, header, sent.body.encode())
        except BrokerError:
            ledger.end(sent, Outcome.UNSAFE)
            self._close()
            return
        outcome = (Outcome.ACKNOWLEDGED if reply.code == ResponseCode.SUCCESS
                   else Outcome.REFUSED if reply.code in _NOT_STORED else Outcome.UNSAFE)
        stored = reply.code == ResponseCode.SUCCESS or reply.code in _STORED
        ledger.end(sent, outcome,
                   reply.header(SendMessageResponseHeader).queue_offset if stored else -1)
        if not stored:
            # The pair may have another master now.
            self._close()

    def fill(self, size: int, count: int) -> None:
        """Send large messages that are never read, so that files of the log end."""
        with RawClient(self.world.master(self.broker_name).address, 30) as client:
            for _ in range(count):
                client.send(FILLER, bytes(size))

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


