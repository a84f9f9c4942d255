"""The queues and exchanges that a connection has declared, and the topics that stand for them.

    lasting queue           a topic and a group
    queue of one process    (auto_delete or exclusive) no topic; see ``sources``
    exchange                a topic, whose readers select the messages for their queues
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from kombu.exceptions import ChannelError
from kombu.exceptions import ConnectionError as KombuConnectionError

from twistmq.client import Client, ClientError, MessageQueue, Producer
from twistmq.integrations.base.delays import delivery_time
from twistmq.integrations.base.holder import Holder
from twistmq.integrations.base.topics import KnownTopics, is_connection_error, unfinished_count
from twistmq.integrations.celery.deliveries import Delivery
from twistmq.integrations.celery.envelopes import (
    Envelope,
    bytes_of,
    due_time,
    envelope_of,
    search_key,
    set_expiry,
)
from twistmq.integrations.celery.names import exchange_topic, queue_topic
from twistmq.integrations.celery.options import Options
from twistmq.integrations.celery.sources import ExchangeSource, QueueSource, Source

__all__ = ["Topology", "kombu_errors"]

#: The name of the exchange that routes by the name of a queue.
_DEFAULT_EXCHANGE: Final = ""


@contextmanager
def kombu_errors() -> Iterator[None]:
    """Turn errors of the client into errors of kombu with the same text.

    :raises kombu.exceptions.ConnectionError: when a server does not answer.
    :raises kombu.exceptions.ChannelError: when a server refuses the request.
    """
    try:
        yield
    except ClientError as error:
        kind = KombuConnectionError if is_connection_error(error) else ChannelError
        raise kind(str(error)) from error


class _Queue(msgspec.Struct):
    """A queue that was declared on a connection."""

    is_lasting: bool
    #: The regular expressions of routing keys for each exchange that the queue is bound to.
    patterns: dict[str, set[str]] = msgspec.field(default_factory=dict)
    #: The name of the exchange of each topic; None: the queue's own topic.
    topics: dict[str, str | None] = msgspec.field(default_factory=dict)
    #: A queue of one process reads the topics of its exchanges from these offsets on.
    starts: dict[MessageQueue, int] = msgspec.field(default_factory=dict)
    source: Source | None = None


class Topology:
    """The queues and exchanges of one connection.

    :param arrived: called when a message is ready for a consumer.
    """

    def __init__(
        self, client: Client, producer: Producer, options: Options, holder: Holder,
        arrived: Callable[[], None],
    ) -> None:
        self._client = client
        self._producer = producer
        self._options = options
        self._holder = holder
        self._arrived = arrived
        self._queues: dict[str, _Queue] = {}
        self._topics = KnownTopics(client, options.topic_queues)

    def close(self) -> None:
        """End all readers; messages that are not finished become visible to other workers."""
        for queue in self._queues.values():
            if queue.source is not None:
                with suppress(ClientError):
                    queue.source.close()
        self._queues.clear()

    def sources(self) -> list[tuple[bool, Source]]:
        """Return the readers of queues, each with a flag: whether its queue is a lasting one."""
        return [(queue.is_lasting, queue.source) for queue in list(self._queues.values())
                if queue.source is not None]

    def existing_source(self, queue: str) -> Source | None:
        """Return the reader of a queue, if it has one."""
        declared = self._queues.get(queue)
        return None if declared is None else declared.source

    def is_lasting(self, queue: str) -> bool:
        """Whether a queue is a lasting one, which has a topic."""
        declared = self._queues.get(queue)
        if declared is not None:
            return declared.is_lasting
        topic = queue_topic(self._options.prefix, queue)
        with kombu_errors():
            return self._topics.has_topic(topic)

    def has_queue(self, queue: str) -> bool:
        """Whether a queue was declared here, or by any process if it is a lasting one."""
        return queue in self._queues or self.is_lasting(queue)

    def declare(self, queue: str, *, is_lasting: bool) -> None:
        """Declare a queue."""
        if queue in self._queues:
            return
        with kombu_errors():
            if is_lasting:
                topic = queue_topic(self._options.prefix, queue)
                self._topics.ensure_topic(topic)
                self._queues[queue] = _Queue(True, topics={topic: None})
                return
            declared = _Queue(False)
            self._bind_reader(declared, _DEFAULT_EXCHANGE, f"^{re.escape(queue)}$")
            self._queues[queue] = declared

    def bind(self, queue: str, exchange: str, pattern: str, *, is_routed: bool) -> None:
        """Bind a queue to an exchange.

        :param pattern: a regular expression for routing keys.
        :param is_routed: whether all messages of the exchange go to its topic, where the readers of
            each queue select them.
        """
        declared = self._declared(queue)
        with kombu_errors():
            if not declared.is_lasting:
                self._bind_reader(declared, exchange, pattern)
            elif is_routed:
                self._bind_group(queue, declared, exchange, pattern)

    def _bind_reader(self, declared: _Queue, exchange: str, pattern: str) -> None:
        """Bind a queue of this process, which reads the messages that are sent from now on."""
        topic = exchange_topic(self._options.prefix, exchange)
        declared.patterns.setdefault(exchange, set()).add(pattern)
        if topic in declared.topics:
            return
        self._topics.ensure_topic(topic)
        for queue in self._client.read_queues(topic):
            declared.starts[queue] = self._client.max_offset(queue)
        declared.topics[topic] = exchange
        self._drop_source(declared)

    def _bind_group(self, queue: str, declared: _Queue, exchange: str, pattern: str) -> None:
        """Bind a lasting queue, whose group gets the messages that are sent from now on."""
        topic = exchange_topic(self._options.prefix, exchange)
        declared.patterns.setdefault(exchange, set()).add(pattern)
        if topic in declared.topics:
            return
        self._topics.ensure_topic(topic)
        declared.topics[topic] = exchange
        self._drop_source(declared)
        # A broker accepts an offset only for a group that has a member.
        group = self._queue_source(queue).group
        for each in self._client.read_queues(topic):
            if self._client.group_offset(group, each) is None:
                self._client.commit_group_offset(group, each, self._client.max_offset(each))

    def _drop_source(self, declared: _Queue) -> None:
        """Make the next reader of a queue read all of its topics."""
        source, declared.source = declared.source, None
        if source is not None:
            channel = source.channel
            source.close()
            if channel is not None:
                raise ChannelError("a queue cannot be bound while it is consumed")

    def _declared(self, queue: str) -> _Queue:
        if queue not in self._queues:
            self.declare(queue, is_lasting=True)
        return self._queues[queue]

    def source(self, queue: str) -> Source:
        """Return the reader of a queue, which is declared if necessary."""
        declared = self._declared(queue)
        if declared.is_lasting:
            return self._queue_source(queue)
        if declared.source is None:
            topics = {topic: exchange or "" for topic, exchange in declared.topics.items()}
            declared.source = ExchangeSource(
                queue, topics, declared.patterns, declared.starts, self._client, self._options,
                self._holder, self._arrived)
        return declared.source

    def _queue_source(self, queue: str) -> QueueSource:
        declared = self._queues[queue]
        if declared.source is None:
            with kombu_errors():
                declared.source = QueueSource(
                    queue, queue_topic(self._options.prefix, queue), declared.topics,
                    declared.patterns, self._client, self._options, self._holder, self._arrived,
                    self._store)
        assert isinstance(declared.source, QueueSource)
        return declared.source

    def size(self, queue: str) -> int:
        """Return how many messages no consumer has received; 0 for a queue of one process."""
        if not self.is_lasting(queue):
            return 0
        topic = queue_topic(self._options.prefix, queue)
        with kombu_errors():
            return unfinished_count(self._client, topic)

    def purge(self, queue: str) -> int:
        """Remove the messages that no consumer has received; :returns: their number."""
        source = self.source(queue)
        with kombu_errors():
            return source.purge() if isinstance(source, QueueSource) else 0

    def delete(self, queue: str) -> None:
        """Forget a queue of this process, and remove the messages of a lasting one.

        The topic stays, because other processes may have declared the queue too.
        """
        declared = self._queues.get(queue)
        if declared is None:
            return
        if declared.is_lasting:
            self.purge(queue)
        del self._queues[queue]
        if declared.source is not None:
            with kombu_errors():
                declared.source.close()

    # --- messages

    def send_to_queue(self, queue: str, envelope: Envelope) -> None:
        """Send a message to a queue; a queue of one process reads the default exchange."""
        if self.is_lasting(queue):
            self._send(queue_topic(self._options.prefix, queue), envelope)
        else:
            self.send_to_exchange(_DEFAULT_EXCHANGE, envelope)

    def send_to_exchange(self, exchange: str, envelope: Envelope) -> None:
        """Send a message to the topic of an exchange."""
        topic = exchange_topic(self._options.prefix, exchange)
        with kombu_errors():
            self._topics.ensure_topic(topic)
        self._send(topic, envelope)

    def send_again(self, delivery: Delivery) -> None:
        """Send a message that was received to its queue once more."""
        envelope = envelope_of(delivery.message.body)
        envelope["redelivered"] = True
        self.send_to_queue(delivery.queue, envelope)

    def _send(self, topic: str, envelope: Envelope) -> None:
        with kombu_errors():
            self._store(topic, envelope)

    def _store(self, topic: str, envelope: Envelope) -> None:
        """Send a message; :raises ClientError: when no broker stores it."""
        set_expiry(envelope)
        deliver_at = delivery_time(due_time(envelope), self._options)
        self._producer.send(
            topic, bytes_of(envelope), keys=search_key(envelope), deliver_at=deliver_at)
