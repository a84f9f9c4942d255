"""The load of a run with a group of brokers: writers and readers that record a history.

All times are milliseconds of one steady clock. A writer sends to the broker that takes its
messages, with many requests in flight, and records each attempt; a message whose outcome is unknown
is sent again, as clients do. A reader follows the queues of one broker.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.history.records import History, Outcome, Read, Send
from tests.interop.servers import wait_until
from twistmq.broker.testing.raw_client import RawClient, pull_header, records_of, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, StoreDamaged
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.message_id import parse_offset_message_id

__all__ = ["QUEUES", "TOPIC", "Address", "Queues", "Reader", "Writer", "body_id", "now_ms",
           "outcome_of", "pull_queues", "queue_name", "send_oneway", "send_some"]

TOPIC: Final = "T"
QUEUES: Final = 4
#: The number of requests that a writer has in flight.
WINDOW: Final = 16
#: How long a writer waits for an answer, s. A broker answers after 2.5 s.
_ANSWER_SECONDS: Final = 5.0
#: How long a client waits before it tries another broker, s.
_PAUSE_SECONDS: Final = 0.05
#: How long a broker may take until it accepts messages, s.
_SENT_SECONDS: Final = 90.0
#: How often a reader asks for news by default, s.
_READ_SECONDS: Final = 0.1
#: The answers of a broker that appended nothing.
_REFUSALS: Final = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION,
                              ResponseCode.MESSAGE_ILLEGAL})
#: A broker that is busy appended nothing if the remark begins with one of these.
_BUSY: Final = ("[PC_SYNCHRONIZED]", "[TIMEOUT_CLEAN_QUEUE]", "[REJECTREQUEST]")
#: The answers to a pull that tell the bounds of the queue.
_PULLED: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                            ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED})
_BODY: Final = re.compile(rb"<\d+/\d+/\d+>")

#: Returns "host:port".
Address = Callable[[], str]
#: The messages of the queues of a topic: the body at each (queue, offset).
Queues = dict[tuple[int, int], bytes]


def now_ms() -> float:
    """Return the time of the steady clock."""
    return time.monotonic() * 1000


def body_id(body: bytes) -> str:
    """Return the part of a body that no other body has; empty if a writer did not make it."""
    match = _BODY.match(body)
    return "" if match is None else match[0].decode()


def queue_name(topic: str, queue_id: int) -> str:
    """Return the name of a queue in a history."""
    return f"{topic}-{queue_id}"


def outcome_of(reply: RemotingCommand) -> Outcome:
    """Return the outcome of a send by its answer."""
    if reply.code == ResponseCode.SUCCESS:
        return Outcome.OK
    is_busy = reply.code == ResponseCode.SYSTEM_BUSY and (reply.remark or "").startswith(_BUSY)
    return Outcome.REFUSED if is_busy or reply.code in _REFUSALS else Outcome.UNKNOWN


class _Attempt(NamedTuple):
    """A send that waits for its answer."""

    body: bytes
    topic: str
    queue_id: int
    begin: float
    opaque: int


class Writer(threading.Thread):
    """Sends messages with many in flight until ``end`` is called, and records all attempts.

    :param number: of this writer, which is in its bodies.
    :param addresses: of the brokers, one of which takes messages.
    :param topics: the topics it sends to in turn.
    :param rate: the messages that it sends in a second.
    :param body_max: the largest number of bytes of a body.
    :param properties: of each message.
    :param answer_seconds: how long it waits for an answer.
    """

    def __init__(
        self, number: int, addresses: Sequence[Address], history: History, *,
        topics: Sequence[str] = (TOPIC,), rate: float = 100, body_max: int = 4096,
        properties: dict[str, str] | None = None, answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        super().__init__(name=f"writer {number}", daemon=True)
        self.number = number
        #: The time of the last acknowledgement.
        self.acknowledged_ms = 0.0
        #: What ended this writer against its will.
        self.failure = ""
        #: While it is set, no burst begins.
        self.held = threading.Event()
        #: Set by the writer while it is held, when its last burst has its answers.
        self.resting = threading.Event()
        self._addresses, self._history, self._topics = addresses, history, topics
        self._seconds_each = 1 / rate
        self._body_max, self._properties = body_max, properties
        self._answer_seconds = answer_seconds
        self._chance = random.Random(number)
        self._count = 0
        #: The messages that are sent again.
        self._again: deque[tuple[bytes, str, int]] = deque()
        self._over = threading.Event()

    def end(self) -> None:
        """Stop sending, and wait for the answers."""
        self._over.set()
        self.join(60)

    def run(self) -> None:
        try:
            self._send_to_all()
        except Exception as error:
            self.failure = repr(error)

    def _send_to_all(self) -> None:
        index = 0
        while not self._over.is_set():
            self._wait_while_held()
            address = self._addresses[index % len(self._addresses)]()
            index += 1
            try:
                with RawClient(address, self._answer_seconds, connect_timeout_s=1) as client:
                    while not self._over.is_set() and self.send_burst(client, address):
                        self._wait_while_held()
            except (BrokerError, OSError):
                # The broker was killed, or does not answer.
                pass
            self._over.wait(_PAUSE_SECONDS)

    def _wait_while_held(self) -> None:
        while self.held.is_set() and not self._over.wait(_PAUSE_SECONDS):
            self.resting.set()
        self.resting.clear()

    def send_burst(self, client: RawClient, node: str) -> bool:
        """Send a window of messages; :returns: whether the broker takes messages."""
        begin = time.monotonic()
        waiting: deque[_Attempt] = deque()
        count = self._chance.randint(1, WINDOW)
        takes = True
        try:
            for _ in range(count):
                self._begin(client, waiting)
            while waiting:
                reply = client.reply(waiting[0].opaque)
                takes = self._note(waiting.popleft(), node, reply) and takes
        finally:
            for attempt in waiting:
                self._note(attempt, node, None)
        self._over.wait(max(0.0, count * self._seconds_each - (time.monotonic() - begin)))
        return takes

    def _begin(self, client: RawClient, waiting: deque[_Attempt]) -> None:
        body, topic, queue_id = self._again.popleft() if self._again else self._make()
        header = send_header(topic, time.time_ns() // 1_000_000, queue_id=queue_id,
                             properties=self._properties)
        waiting.append(_Attempt(body, topic, queue_id, now_ms(), 0))
        opaque = client.begin(RequestCode.SEND_MESSAGE_V2, header, body)
        waiting.append(waiting.pop()._replace(opaque=opaque))

    def _make(self) -> tuple[bytes, str, int]:
        """Return a new message: its body, topic and queue."""
        number, self._count = self._count, self._count + 1
        body = b"<%d/0/%d>" % (self.number, number)
        body += b"x" * self._chance.randint(0, self._body_max - len(body))
        return body, self._topics[number % len(self._topics)], self._chance.randrange(QUEUES)

    def _note(self, attempt: _Attempt, node: str, reply: RemotingCommand | None) -> bool:
        """Record an attempt; :returns: whether it was acknowledged."""
        end = now_ms()
        outcome = Outcome.UNKNOWN if reply is None else outcome_of(reply)
        place = offset = -1
        if outcome is Outcome.OK:
            assert reply is not None
            header = reply.header(SendMessageResponseHeader)
            place = parse_offset_message_id(header.msg_id)[2]
            offset = header.queue_offset
            self.acknowledged_ms = end
        else:
            self._again.append((attempt.body, attempt.topic, attempt.queue_id))
        # A list takes what several threads append.
        self._history.sends.append(Send(
            str(self.number), node, queue_name(attempt.topic, attempt.queue_id),
            body_id(attempt.body), attempt.begin, end, outcome, place, offset))
        return outcome is Outcome.OK


def send_oneway(
    address: str, number: int, count: int, history: History, filling: bytes = b""
) -> None:
    """Send messages that are not answered to one broker, which may die at any time.

    :param filling: the end of each body.
    """
    try:
        with RawClient(address, _ANSWER_SECONDS) as client:
            for index in range(count):
                body = b"<%d/1/%d>" % (number, index) + filling
                queue_id = index % QUEUES
                begin = now_ms()
                history.sends.append(Send(
                    f"oneway {number}", address, queue_name(TOPIC, queue_id), body_id(body), begin,
                    begin, Outcome.UNKNOWN))
                client.begin(RequestCode.SEND_MESSAGE_V2,
                             send_header(TOPIC, time.time_ns() // 1_000_000, queue_id=queue_id),
                             body, oneway=True)
    except (BrokerError, OSError):
        # The broker was killed.
        pass


def send_some(address: str, first: int, count: int) -> Queues:
    """Send messages until a broker has acknowledged ``count`` of them.

    :param first: the number of the first message.
    :returns: the acknowledged messages, by the queues and offsets in the answers.
    :raises AssertionError: when the broker does not take them in time.
    """
    sent: Queues = {}
    number = first

    def send() -> bool:
        nonlocal number
        try:
            with RawClient(address, _ANSWER_SECONDS) as client:
                while number < first + count:
                    body = b"<0/0/%d>" % number
                    header = client.send(TOPIC, body, queue_id=number % QUEUES)
                    sent[header.queue_id, header.queue_offset] = body
                    number += 1
        except BrokerError:
            return False
        return True

    wait_until("messages are acknowledged", send, _SENT_SECONDS)
    return sent


def pull_queues(address: str) -> Queues:
    """Return the messages that a broker shows in the queues."""
    shown: Queues = {}
    with RawClient(address, 30) as client:
        for queue_id in range(QUEUES):
            offset, end = 0, client.max_offset(TOPIC, queue_id)
            while offset < end:
                messages = client.pull(TOPIC, offset, queue_id=queue_id)
                for message in messages:
                    shown[queue_id, message.queue_offset] = message.body
                offset = messages[-1].queue_offset + 1 if messages else offset + 1
    return shown


class Reader(threading.Thread):
    """Follows the queues of one broker, and records its answers.

    :param node: its name in the history.
    :param life: returns how often the broker was started.
    :param seconds: how often it asks for news.
    """

    def __init__(
        self, node: str, address: Address, life: Callable[[], int], history: History,
        topics: Sequence[str] = (TOPIC,), seconds: float = _READ_SECONDS,
    ) -> None:
        super().__init__(name=f"reader of {node}", daemon=True)
        self.failure = ""
        self.node = node
        #: The number of answers with records that cannot be read.
        self.damaged = 0
        self._address, self._life, self._history = address, life, history
        self._next = {(topic, queue_id): 0 for topic in topics for queue_id in range(QUEUES)}
        #: When it last asked for more messages of each queue and got no message, ms.
        self._ended_ms = dict.fromkeys(self._next, 0.0)
        self._seconds = seconds
        self._over = threading.Event()

    def begin_at(self, offsets: Mapping[str, int]) -> None:
        """Begin at these offsets of the queues, by their names in a history, and not at 0."""
        for topic, queue_id in self._next:
            self._next[topic, queue_id] = offsets.get(queue_name(topic, queue_id), 0)

    def has_all_since(self, moment: float) -> bool:
        """Return whether it has come to the end of each queue after a moment, ms."""
        return min(self._ended_ms.values()) > moment

    def end(self) -> None:
        """Stop reading."""
        self._over.set()
        self.join(60)

    def run(self) -> None:
        try:
            while not self._over.wait(self._seconds):
                try:
                    with RawClient(self._address(), _ANSWER_SECONDS, connect_timeout_s=1) as client:
                        self._follow(client, self._life())
                except (BrokerError, OSError):
                    # The broker was killed, or does not answer.
                    pass
        except Exception as error:
            self.failure = repr(error)

    def _follow(self, client: RawClient, life: int) -> None:
        while not self._over.wait(self._seconds):
            for topic, queue_id in self._next:
                self._read(client, topic, queue_id, life)

    def _read(self, client: RawClient, topic: str, queue_id: int, life: int) -> None:
        start = self._next[topic, queue_id]
        begin = now_ms()
        reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
            topic, start, queue_id=queue_id, group="reader", max_count=64))
        if reply.code not in _PULLED or self._life() != life:
            return
        header = reply.header(PullMessageResponseHeader)
        try:
            found = records_of(reply.body) if reply.code == ResponseCode.SUCCESS else []
        except StoreDamaged:
            self.damaged += 1
            return
        self._history.reads.append(Read(
            self.node, self.node, queue_name(topic, queue_id), begin, now_ms(), start,
            [(record.queue_offset, body_id(record.body)) for record in found],
            header.min_offset, header.max_offset, leads=False, life=life))
        if found:
            self._next[topic, queue_id] = found[-1].queue_offset + 1
        elif reply.code == ResponseCode.PULL_NOT_FOUND:
            self._ended_ms[topic, queue_id] = begin
        else:
            # A leader of Apache's may leave offsets out, and the broker says where to go on.
            self._next[topic, queue_id] = max(start, header.next_begin_offset)
