"""The readers of the messages of a queue.

A lasting queue has a topic, and a group that all workers share. Its reader pops messages from this
topic and from the topics of the exchanges that the queue is bound to. A queue of one process, such
as the mailbox of a worker, has no topic: its reader pulls from the topics of its exchanges,
beginning with the messages that are sent after the binding.

A reader has a thread while a channel consumes its queue. Messages wait in the reader until the
channel takes them. They are given back when no channel has consumed the queue for a while.
"""

from __future__ import annotations

import heapq
import logging
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Final, Protocol

from twistmq.client import (
    Client,
    ClientError,
    Closed,
    MessageQueue,
    PopConsumer,
    PullResult,
    PullStatus,
    ReceivedMessage,
    Undecodable,
)
from twistmq.client.core.consumer.pull_request import messages_of
from twistmq.integrations.base.delays import is_too_early
from twistmq.integrations.base.holder import Holder
from twistmq.integrations.celery.deliveries import Delivery
from twistmq.integrations.celery.envelopes import Envelope, due_time, envelope_of, expiry
from twistmq.integrations.celery.options import Options

__all__ = ["ExchangeSource", "QueueSource", "Source", "Taker"]

log = logging.getLogger("twistmq.integrations.celery")

#: How long one request for messages waits, seconds.
_WAIT_S: Final = 1.0
#: How long messages wait for a channel before they are given back, seconds.
_GRACE_S: Final = 2.0
#: How long a reader waits for room for half of the prefetch limit, seconds. While short tasks run,
#: it thus asks for several messages at once.
_GATHER_S: Final = 0.002
#: The number of messages that wait for a channel without a prefetch limit.
READY_MAX: Final = 256
#: How long a broker may hold a pull, seconds.
_HOLD_S: Final = 10.0
#: The largest number of messages in one pop, and of messages that a worker has received and not
#: finished; the latter is bounded by kombu's prefetch limit.
_RECEIVE_MAX: Final = 32
_HELD_MAX: Final = 100_000
#: The group that reads the topics of exchanges for queues of one process.
_READERS: Final = "readers"


class Taker(Protocol):
    """The part of a channel that its sources use."""

    #: kombu's QoS.
    qos: Any

    def free_count(self, source: Source) -> int:
        """Return how many messages a queue may receive now."""

    def deliver(self, delivery: Delivery) -> None:
        """Pass a message to its consumer."""


class Source:
    """The messages of one queue of one connection.

    :param queue: the name of the queue in kombu.
    :param arrived: called when a message is ready.
    """

    def __init__(self, queue: str, holder: Holder, arrived: Callable[[], None]) -> None:
        self.queue = queue
        self.holder = holder
        self._arrived = arrived
        #: The channel that consumes the queue.
        self.channel: Taker | None = None
        self._ready: list[Delivery] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        #: Whether nothing has been read since a channel began to consume the queue. Messages that
        #: arrived earlier wait for the first read, because it may return higher priorities.
        self._is_new = False

    @property
    def ready_count(self) -> int:
        """The number of messages that wait for a channel."""
        return 0 if self._is_new else len(self._ready)

    def attach(self, channel: Taker) -> None:
        """Read messages for a channel."""
        with self._changed:
            self.channel = channel
            self._is_new = True
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._read_always, name=f"twistmq-{self.queue}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def detach(self) -> None:
        """Stop reading soon."""
        with self._changed:
            self.channel = None
            self._changed.notify_all()

    def wake(self) -> None:
        """Check again whether the channel has room."""
        with self._changed:
            self._changed.notify_all()

    def take(self) -> Delivery | None:
        """Return the next message that is ready."""
        with self._changed:
            while self._ready:
                delivery = heapq.heappop(self._ready)
                self._changed.notify_all()
                if expiry(delivery.envelope) > time.time():
                    return delivery
                self.holder.acknowledge(delivery)
        return None

    def _add(self, delivery: Delivery) -> None:
        if delivery.consumer is not None:
            self.holder.hold(delivery)
        with self._changed:
            heapq.heappush(self._ready, delivery)

    def _read_always(self) -> None:
        while (room := self._wait_for_room()) is not None:
            try:
                for message in self._receive(
                        self._gather(room), 0.0 if self._ready else _WAIT_S):
                    self._receive_one(message)
            except Closed:
                return
            except ClientError as error:
                if self._is_closed:
                    # The client has closed, and with it the pulls in flight.
                    return
                log.warning("queue %s cannot be read, and will be tried again: %s",
                            self.queue, error)
                self._pause()
            except Exception:
                # Without this thread, no message of the queue would arrive any more.
                log.exception("queue %s: a message cannot be handled, and is delivered again after "
                              "its invisible time", self.queue)
                self._pause()
            self._is_new = False
            if self._ready:
                self._arrived()

    def _pause(self) -> None:
        with self._changed:
            if not self._is_closed:
                self._changed.wait(_WAIT_S)

    def _wait_for_room(self) -> int | None:
        """Wait until a channel can take messages.

        :returns: the largest number of messages that it can take; None: the thread ends, because
            no channel consumes the queue.
        """
        idle_since: float | None = None
        while True:
            with self._changed:
                channel = self.channel
                if self._is_closed:
                    self._thread = None
                    return None
                if channel is not None:
                    idle_since = None
                    room = channel.free_count(self)
                    if room > 0:
                        return room
                    self._changed.wait(_WAIT_S)
                    continue
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since < _GRACE_S:
                    self._changed.wait(_GRACE_S / 4)
                    continue
                unread = [each for each in self._ready if each.consumer is not None]
                self._ready = [each for each in self._ready if each.consumer is None]
                self._thread = None
            for delivery in unread:
                self.holder.give_back(delivery)
            return None

    def _gather(self, room: int) -> int:
        """Wait a moment if there is room for less than half of the prefetch limit.

        :returns: for how many messages there is room then.
        """
        channel = self.channel
        if channel is None or room >= channel.qos.prefetch_count // 2:
            return room
        time.sleep(_GATHER_S)
        return max(channel.free_count(self), room)

    def _receive_one(self, message: ReceivedMessage[Any]) -> None:
        try:
            envelope = envelope_of(message.body)
        except Undecodable as error:
            self._refuse(message, error)
            return
        if self._accepts(message, envelope):
            self._add_received(message, envelope)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._ready.clear()

    @abstractmethod
    def _receive(self, max_count: int, wait_s: float) -> list[ReceivedMessage[Any]]:
        """Wait for messages."""

    @abstractmethod
    def _refuse(self, message: ReceivedMessage[Any], error: Exception) -> None:
        """Handle a message that kombu did not send."""

    @abstractmethod
    def _accepts(self, message: ReceivedMessage[Any], envelope: Envelope) -> bool:
        """Whether the message is for this queue."""

    @abstractmethod
    def _add_received(self, message: ReceivedMessage[Any], envelope: Envelope) -> None:
        """Hand out a message."""


def _matches(patterns: dict[str, set[str]], exchange: str, routing_key: str) -> bool:
    """Whether a routing key matches one of the patterns that bind a queue to an exchange."""
    return any(re.match(pattern, routing_key) for pattern in patterns.get(exchange, ()))


class QueueSource(Source):
    """The messages of a lasting queue.

    :param group: the name of the group and of the topic.
    :param topics: the name of the exchange of each topic; None for the queue's own topic.
    :param patterns: the patterns of routing keys for each exchange.
    :param send_again: sends a message again that has arrived before its time; it raises ClientError
        when no broker stores the message.
    """

    def __init__(
        self, queue: str, group: str, topics: dict[str, str | None],
        patterns: dict[str, set[str]], client: Client, options: Options, holder: Holder,
        arrived: Callable[[], None], send_again: Callable[[str, Envelope], None],
    ) -> None:
        super().__init__(queue, holder, arrived)
        self.group = group
        self._topics = topics
        self._patterns = patterns
        self._options = options
        self._send_again = send_again
        self.consumer: PopConsumer[Any] = PopConsumer(
            client=client, group=group, topics=list(topics), start="first",
            invisible_s=options.invisible_s, in_flight_max=_HELD_MAX,
            max_attempts=options.max_attempts)

    def receive_now(self) -> None:
        """Ask the broker for one message without waiting for one."""
        for message in self.consumer.receive(1, wait_s=0):
            self._receive_one(message)

    def purge(self) -> int:
        """Acknowledge all messages that are visible now; :returns: their number."""
        count = 0
        while delivery := self.take():
            self.holder.acknowledge(delivery)
            count += 1
        while messages := self.consumer.receive(_RECEIVE_MAX, wait_s=0):
            self.consumer.acknowledge(messages)
            count += len(messages)
        return count

    def _receive(self, max_count: int, wait_s: float) -> list[ReceivedMessage[Any]]:
        messages: list[ReceivedMessage[Any]] = self.consumer.receive(
            min(max_count, _RECEIVE_MAX), wait_s=wait_s)
        return messages

    def _refuse(self, message: ReceivedMessage[Any], error: Exception) -> None:
        log.error("queue %s: %r goes to the dead letters: %s", self.queue, message, error)
        self.consumer.bury(message)

    def _accepts(self, message: ReceivedMessage[Any], envelope: Envelope) -> bool:
        exchange = self._topics.get(message.topic)
        routing_key = envelope["properties"]["delivery_info"].get("routing_key") or ""
        if exchange is None or _matches(self._patterns, exchange, routing_key):
            return True
        self.consumer.acknowledge(message)
        return False

    def _add_received(self, message: ReceivedMessage[Any], envelope: Envelope) -> None:
        if message.attempt > self._options.max_attempts:
            log.error("queue %s: %r goes to the dead letters after %d attempts", self.queue,
                      message, message.attempt - 1)
            self.consumer.bury(message)
            return
        if is_too_early(due_time(envelope)):
            # Its delay exceeds the broker's limit, so the message is sent again for the next part.
            try:
                self._send_again(self.group, envelope)
                self.consumer.acknowledge(message)
            except ClientError as error:
                log.warning("queue %s: %r is delivered again after its invisible time: %s",
                            self.queue, message, error)
            return
        self._add(Delivery(self.queue, envelope, message, self.consumer))

    def close(self) -> None:
        """End the thread; messages that are not finished become visible to other workers."""
        super().close()
        self.consumer.close()


class ExchangeSource(Source):
    """The messages of a queue that only this process has.

    :param topics: the name of the exchange of each topic.
    :param patterns: the patterns of routing keys for each exchange.
    :param starts: the next offset to read from each queue of these topics.
    """

    def __init__(
        self, queue: str, topics: dict[str, str], patterns: dict[str, set[str]],
        starts: dict[MessageQueue, int], client: Client, options: Options, holder: Holder,
        arrived: Callable[[], None],
    ) -> None:
        super().__init__(queue, holder, arrived)
        self._topics = topics
        self._patterns = patterns
        self._starts = starts
        self._client = client
        self._group = f"{options.prefix}-{_READERS}"
        #: The pulls in flight.
        self._pulls: dict[MessageQueue, Future[PullResult]] = {}

    def _receive(self, max_count: int, wait_s: float) -> list[ReceivedMessage[Any]]:
        for queue, offset in self._starts.items():
            if queue not in self._pulls:
                self._pulls[queue] = self._client.pull_soon(
                    queue, offset, group=self._group, hold_s=_HOLD_S)
        wait(self._pulls.values(), timeout=wait_s, return_when=FIRST_COMPLETED)
        messages: list[ReceivedMessage[Any]] = []
        for queue in [queue for queue, pull in self._pulls.items() if pull.done()]:
            messages += self._pulled(queue, self._pulls.pop(queue).result())
        return messages

    def _pulled(self, queue: MessageQueue, result: PullResult) -> list[ReceivedMessage[Any]]:
        """Return the messages of a response; damaged ones are left out."""
        start = self._starts[queue]
        self._starts[queue] = result.next_offset
        if result.status is not PullStatus.FOUND:
            return []
        messages: list[ReceivedMessage[Any]] = messages_of(
            result, queue, damaged=[], begin=start)
        return [each for each in messages if each.offset >= start]

    def _refuse(self, message: ReceivedMessage[Any], error: Exception) -> None:
        log.warning("queue %s: %r is left out: %s", self.queue, message, error)

    def _accepts(self, message: ReceivedMessage[Any], envelope: Envelope) -> bool:
        routing_key = envelope["properties"]["delivery_info"].get("routing_key") or ""
        return _matches(self._patterns, self._topics[message.topic], routing_key)

    def _add_received(self, message: ReceivedMessage[Any], envelope: Envelope) -> None:
        self._add(Delivery(self.queue, envelope, message))
